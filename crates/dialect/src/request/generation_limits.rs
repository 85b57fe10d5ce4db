//! Members that limit or multiply the generated tokens, or refer to a prompt outside the request.
//! One table serves all endpoints: servers differ in which members they follow, so the largest
//! value counts.

use super::super::usage::{may_multiply, read_mode};
use super::member_names::MemberNames;
use crate::wire::json::{Cursor, JsonError, JsonKind};
use rerouter_base::bounds;
use rerouter_base::error::Error;

/// Names of the members that [`GenerationLimits`] reads.
pub(crate) const NAMES: &[&str] = &[
    // Limits of one answer: names of OpenAI and Anthropic, then of Gemini, Hugging Face, Ollama and
    // llama.cpp.
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_length",
    "num_predict",
    "n_predict",
    // Number of answers.
    "n",
    "candidate_count",
    "num_return_sequences",
    "best_of",
    // Limits of thinking.
    "thinking",
    "thinking_budget",
    "reasoning",
    "max_tool_calls",
    // A predicted answer. Its unused part is billed as output.
    "prediction",
    // Prompts that are not in the request.
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
    // Members that change the length of the prompt.
    "chat_template",
    "mm_processor_kwargs",
    // Members by which the provider adds to the prompt.
    "web_search_options",
    "search_options",
    "search_parameters",
    "enable_search",
    "mcp_servers",
    "plugins",
    "data_sources",
    // Members that may multiply prices.
    "service_tier",
    "speed",
    "inference_geo",
];

/// How an endpoint limits its answers.
pub(crate) struct LimitRules {
    /// The limit of an answer that every server of the endpoint knows. Some servers ignore the
    /// other names.
    pub name: &'static str,
    /// Whether that limit includes thinking. Anthropic's does; elsewhere servers differ.
    pub includes_thinking: bool,
    pub generates: bool,
}

/// The values of the members in [`NAMES`].
#[derive(Clone, Debug, Default)]
pub(crate) struct GenerationLimits {
    /// The largest limit of one answer, in tokens.
    pub limit: Option<u64>,
    /// Whether the request has the limit that every server knows.
    has_limit: bool,
    /// Whether a limit is 0 or -1, which some servers read as no limit.
    is_unlimited: bool,
    /// The limit on thinking, in tokens.
    thinking: u64,
    choices: Option<u64>,
    best_of: Option<u64>,
    /// Bytes of the prediction.
    predicted: u64,
    /// Whether a part of the prompt is outside the request, or the provider adds to the prompt.
    pub is_open: bool,
    /// Members that may multiply prices, with their values.
    pub modes: Vec<(&'static str, String)>,
}

impl GenerationLimits {
    /// Reads the value of one of [`NAMES`].
    pub(crate) fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        name: &'static str,
        rules: &LimitRules,
    ) -> Result<(), JsonError> {
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
                // An object is the id of a template. The text prompt of legacy completions is not
                // read here.
                self.is_open |= cursor.kind()? == JsonKind::Object;
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
            | "mm_processor_kwargs"
            | "search_options"
            | "search_parameters"
            | "enable_search"
            | "mcp_servers"
            | "plugins"
            | "data_sources" => self.is_open |= is_there(cursor)?,
            "service_tier" | "speed" | "inference_geo" => self.read_mode(cursor, name)?,
            "web_search_options" => {
                // Even an empty object enables the search.
                self.is_open |= cursor.kind()? != JsonKind::Null;
                cursor.pass()?;
            }
            _ => {
                let limit = read_count(cursor, "", name)?;
                self.has_limit |= limit.is_some() && name == rules.name;
                self.is_unlimited |= limit == Some(0);
                self.limit = self.limit.max(limit);
            }
        }
        Ok(())
    }

    fn read_mode(
        &mut self,
        cursor: &mut Cursor<'_>,
        member: &'static str,
    ) -> Result<(), JsonError> {
        let span = cursor.skip()?;
        let raw = std::str::from_utf8(cursor.raw(&span)).unwrap_or_default();
        let mode = read_mode(raw).filter(|mode| may_multiply(mode));
        self.modes.extend(mode.map(|mode| (member, mode)));
        Ok(())
    }

    /// Reads a limit on thinking, as a number or within an object.
    fn read_nested(
        &mut self,
        cursor: &mut Cursor<'_>,
        within: &'static str,
        names: &'static [&'static str],
    ) -> Result<(), JsonError> {
        if cursor.kind()? == JsonKind::Number {
            self.think(read_count(cursor, within.trim_end_matches('.'), "")?);
            return Ok(());
        }
        let mut names = MemberNames::new(within, names);
        cursor.members(|cursor, name| match names.find(&name)? {
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

    /// The number of answers, if the client sets it.
    pub(crate) fn choices(&self) -> Option<u64> {
        let said = self.choices.is_some() || self.best_of.is_some();
        said.then(|| {
            self.choices.unwrap_or(1).max(1).saturating_mul(self.best_of.unwrap_or(1).max(1))
        })
    }

    /// Whether every server obeys the limit of an answer.
    pub(crate) fn is_limited(&self) -> bool {
        self.has_limit && !self.is_unlimited
    }

    /// Upper bound on the tokens of all answers.
    pub(crate) fn answers(&self, rules: &LimitRules) -> u64 {
        if !rules.generates {
            return 0;
        }
        let unsaid = if self.is_limited() { 0 } else { bounds::ANSWER_TOKENS };
        let limit = self.limit.unwrap_or(0).max(unsaid);
        let one = if rules.includes_thinking {
            limit.max(self.thinking)
        } else {
            limit.saturating_add(self.thinking)
        };
        one.saturating_add(self.predicted).saturating_mul(self.choices().unwrap_or(1))
    }
}

/// Whether a value is not null, false or empty.
fn is_there(cursor: &mut Cursor<'_>) -> Result<bool, JsonError> {
    let span = cursor.skip()?;
    Ok(!matches!(cursor.raw(&span), b"null" | b"false" | b"[]" | b"{}" | b"\"\""))
}

/// Reads a count: a whole number in digits, or null. Local servers use -1 for no limit; it is read
/// as 0.
fn read_count(cursor: &mut Cursor<'_>, within: &str, name: &str) -> Result<Option<u64>, JsonError> {
    let span = cursor.skip()?;
    let written = cursor.raw(&span);
    match written {
        b"null" => return Ok(None),
        b"-1" => return Ok(Some(0)),
        _ => {}
    }
    // Larger numbers are refused: some JSON parsers would read another value.
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
