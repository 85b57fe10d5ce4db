//! A whole answer in the neutral form.

use super::part::Part;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub id: String,
    pub model: String,
    /// Unix time in seconds.
    pub created: u64,
    pub content: Vec<Part>,
    /// Sources of texts, each with the index of its part.
    pub citations: Vec<(usize, Citation)>,
    pub stop: StopReason,
    pub usage: Option<TokenCounts>,
    pub namespaced: Vec<NamespacedTool>,
}

/// The name of a tool that the provider knows, with the namespace and the name there.
pub type NamespacedTool = (String, [String; 2]);

impl Answer {
    /// The namespace and the name of a tool, as the client knows them.
    pub(crate) fn tool_name<'a>(&'a self, written: &'a str) -> (Option<&'a str>, &'a str) {
        match self.namespaced.iter().find(|(full, _)| full == written) {
            Some((_, [namespace, name])) => (Some(namespace), name),
            None => (None, written),
        }
    }

    pub(crate) fn cited(&self, index: usize) -> Vec<&Citation> {
        let cited = self.citations.iter().filter(|(of, _)| *of == index);
        cited.map(|(_, citation)| citation).collect()
    }
}

/// A source on the web.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Citation {
    pub url: String,
    pub title: String,
    /// The text of the source that is cited.
    pub quote: String,
    /// Beginning and end of the text that rests on it, in characters; `None` for the whole part.
    pub span: Option<(u64, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StopReason {
    End,
    MaxTokens,
    /// The sequence that was met, where the dialect names it.
    Sequence(Option<String>),
    ToolCalls,
    /// The model or a filter of the provider refused.
    Refusal,
    /// The provider paused a long turn; the client may send it back to go on.
    Pause,
    /// The provider has not finished the answer.
    #[default]
    Unfinished,
}

/// Tokens as billed. `input` includes cached tokens, and `output` includes reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    pub input: u64,
    pub cache_read: u64,
    pub cache_written: u64,
    pub output: u64,
    pub reasoning: u64,
}

impl TokenCounts {
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// A provider's error, or the reason why its answer could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: u16,
    pub kind: FailureKind,
    /// The `code` of an OpenAI error.
    pub code: Option<String>,
    /// The provider's own text.
    pub message: String,
    /// The request member at fault.
    pub param: Option<String>,
}

/// Kinds of failures, each with the status that stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    InvalidRequest = 400,
    Authentication = 401,
    Billing = 402,
    Permission = 403,
    NotFound = 404,
    TooLarge = 413,
    RateLimit = 429,
    Internal = 500,
    Timeout = 504,
    Overloaded = 529,
}

/// Facts of the call that replace what the provider's answer leaves out.
#[derive(Clone, Debug, Default)]
pub struct AnswerContext {
    /// The id of the call. Missing ids of the answer are made from it.
    pub id: String,
    pub model: String,
    /// Unix time in seconds.
    pub created: u64,
    /// A chat client asked for the usage of its stream.
    pub include_usage: bool,
    /// Names of the client's tools that take free text.
    pub text_tools: Vec<String>,
    pub namespaced: Vec<NamespacedTool>,
}
