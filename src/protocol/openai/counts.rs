//! The members that limit how much is generated, or multiply it, or name what is not in the
//! request: one table for all endpoints. Servers that speak these protocols know each of them, and
//! differ in which they follow; so the largest counts.

use super::super::endpoint::Endpoint;
use super::super::json::{Cursor, Fault, Shape};
use super::super::known::Known;
use crate::bounds;
use crate::error::Error;

/// See the module.
pub(super) const NAMES: &[&str] = &[
    // What limits one answer: OpenAI's and Anthropic's names, then those of Gemini, Hugging Face,
    // Ollama and llama.cpp.
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_length",
    "num_predict",
    "n_predict",
    // How many answers.
    "n",
    "candidate_count",
    "num_return_sequences",
    "best_of",
    // How long is thought.
    "thinking",
    "thinking_budget",
    "reasoning",
    "max_tool_calls",
    // What the answer is expected to be: where it is not, that costs as an answer all the same.
    "prediction",
    // What is not in the request.
    "previous_response_id",
    "conversation",
    "prompt",
    "container",
    "preset",
    "cached_content",
    "images",
    "files",
    "file_ids",
    "attachments",
    // What changes how long the prompt becomes.
    "chat_template",
    "mm_processor_kwargs",
    // What the provider adds.
    "web_search_options",
    "search_options",
    "search_parameters",
    "enable_search",
    "mcp_servers",
    "plugins",
    "data_sources",
];

/// The limit of an answer that every server of an endpoint knows. Some ignore the other names.
fn limit_name(endpoint: Endpoint) -> &'static str {
    if endpoint == Endpoint::Responses { "max_output_tokens" } else { "max_tokens" }
}

/// What they say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The largest limit of one answer, in tokens.
    pub(super) limit: Option<u64>,
    /// Whether the limit comes under the name that every server knows.
    has_limit: bool,
    /// Whether a limit is 0 or -1, which some servers read as no limit.
    is_unlimited: bool,
    /// Tokens of thoughts at most.
    thinking: u64,
    choices: Option<u64>,
    best_of: Option<u64>,
    /// Bytes of the prediction.
    predicted: u64,
    /// Whether a part of the prompt is not in the request, or the provider adds to it.
    pub(super) is_open: bool,
}

impl Counts {
    /// Reads the value of one of [`NAMES`].
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        name: &str,
        endpoint: Endpoint,
    ) -> Result<(), Fault> {
        match name {
            "n" | "candidate_count" | "num_return_sequences" => {
                self.choices = self.choices.max(read_count(cursor, "", name)?)
            }
            "best_of" => self.best_of = self.best_of.max(read_count(cursor, "", name)?),
            "thinking_budget" => self.think(read_count(cursor, "", name)?),
            "max_tool_calls" => drop(read_count(cursor, "", name)?),
            "thinking" => self.read_nested(cursor, "thinking.", &["budget_tokens"])?,
            "reasoning" => self.read_nested(cursor, "reasoning.", &["max_tokens"])?,
            "prediction" => self.predicted = cursor.skip()?.len() as u64,
            "prompt" => {
                // A template's id; a text, as completions have it, is no part of what is served
                // here.
                self.is_open |= cursor.shape()? == Shape::Object;
                cursor.pass()?;
            }
            "previous_response_id"
            | "conversation"
            | "container"
            | "preset"
            | "cached_content"
            | "images"
            | "files"
            | "file_ids"
            | "attachments"
            | "chat_template"
            | "mm_processor_kwargs" => self.is_open |= is_there(cursor)?,
            "search_options" | "search_parameters" | "enable_search" | "mcp_servers"
            | "plugins" | "data_sources" => self.is_open |= is_there(cursor)?,
            "web_search_options" => {
                // Without options there is a search all the same.
                self.is_open |= cursor.shape()? != Shape::Null;
                cursor.pass()?;
            }
            _ => {
                let limit = read_count(cursor, "", name)?;
                self.has_limit |= limit.is_some() && name == limit_name(endpoint);
                self.is_unlimited |= limit == Some(0);
                self.limit = self.limit.max(limit);
            }
        }
        Ok(())
    }

    /// A count of tokens to think with, in an object of which no more is acted on.
    fn read_nested(
        &mut self,
        cursor: &mut Cursor<'_>,
        within: &'static str,
        names: &'static [&'static str],
    ) -> Result<(), Fault> {
        if cursor.shape()? == Shape::Number {
            self.think(read_count(cursor, within.trim_end_matches('.'), "")?);
            return Ok(());
        }
        let mut known = Known::of(within, names);
        cursor.members(|cursor, name| match known.find(&name)? {
            "" => cursor.pass(),
            found => {
                self.think(read_count(cursor, within, found)?);
                Ok(())
            }
        })
    }

    fn think(&mut self, tokens: Option<u64>) {
        self.thinking = self.thinking.max(tokens.unwrap_or(0));
    }

    /// How many answers are made, where the client says so.
    pub(super) fn choices(&self) -> Option<u64> {
        let said = self.choices.is_some() || self.best_of.is_some();
        said.then(|| {
            self.choices.unwrap_or(1).max(1).saturating_mul(self.best_of.unwrap_or(1).max(1))
        })
    }

    /// Whether every server keeps to the limit of an answer.
    pub(super) fn is_limited(&self) -> bool {
        self.has_limit && !self.is_unlimited
    }

    /// Tokens of all answers at most.
    pub(super) fn answers(&self, endpoint: Endpoint) -> u64 {
        if !endpoint.generates() {
            return 0;
        }
        let unsaid = if self.is_limited() { 0 } else { bounds::ANSWER_TOKENS };
        let limit = self.limit.unwrap_or(0).max(unsaid);
        // Anthropic's limit holds for thoughts too; that of others does not everywhere.
        let one = if endpoint.is_anthropic() {
            limit.max(self.thinking)
        } else {
            limit.saturating_add(self.thinking)
        };
        one.saturating_add(self.predicted).saturating_mul(self.choices().unwrap_or(1))
    }
}

/// Whether there is something in a value.
fn is_there(cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    let span = cursor.skip()?;
    Ok(!matches!(cursor.raw(&span), b"null" | b"false" | b"[]" | b"{}" | b"\"\""))
}

/// A count: a whole number in digits. Null says nothing; -1 means no limit to local servers and is
/// read as 0.
fn read_count(cursor: &mut Cursor<'_>, within: &str, name: &str) -> Result<Option<u64>, Fault> {
    let span = cursor.skip()?;
    let written = cursor.raw(&span);
    match written {
        b"null" => return Ok(None),
        b"-1" => return Ok(Some(0)),
        _ => {}
    }
    // Some readers have no larger one, and take it for another.
    let number = std::str::from_utf8(written)
        .ok()
        .and_then(|digits| digits.parse::<u64>().ok())
        .filter(|number| i64::try_from(*number).is_ok());
    match number.filter(|_| written.iter().all(u8::is_ascii_digit)) {
        Some(number) => Ok(Some(number)),
        None => {
            let field = [within, name].concat();
            Err(Error::invalid(
                &field,
                format!("`{field}` has to be a whole number, in digits alone, or null."),
            )
            .into())
        }
    }
}
