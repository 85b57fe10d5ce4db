//! The dialects, with methods that look up their rows.

use super::neutral::target_terms::ModelTerms;
use super::usage::Usage;
use super::usage_answer::read_ending;

/// A dialect: the form of answers and streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Chat,
    Embeddings,
    Responses,
    Messages,
    /// Spoken by providers only: clients have no endpoint for it.
    Gemini,
}

impl Dialect {
    /// The dialects that requests and answers are translated among.
    pub const TRANSLATED: [Dialect; 4] =
        [Dialect::Chat, Dialect::Messages, Dialect::Responses, Dialect::Gemini];

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The translated dialect of this name.
    pub fn named(name: &str) -> Option<Self> {
        Dialect::TRANSLATED.into_iter().find(|dialect| dialect.name() == name)
    }

    /// The name of its API in texts for people.
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// The token limit of a translated request whose client gives none, if the API needs a limit.
    pub fn default_limit(self, model: &ModelTerms) -> Option<u64> {
        self.row().default_limit.map(|limit| model.longest_answer.unwrap_or(limit))
    }

    /// Whether its API has a count of tokens that can be translated for other dialects.
    pub fn counts(self) -> bool {
        self.row().count.is_some()
    }

    /// The usage in an answer that is no stream. A truncated answer is read as far as it goes.
    pub fn read_usage(self, answer: &[u8]) -> Option<Usage> {
        (self.row().usage.read)(answer)
    }

    /// The usage in the last bytes of an answer that is no stream.
    pub fn read_usage_at_end(self, ending: &[u8]) -> Option<Usage> {
        read_ending(ending, self.row().usage.member)
    }
}
