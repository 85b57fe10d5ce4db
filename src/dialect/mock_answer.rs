//! What the mock provider says, before a dialect writes it, and how dialects write it.

use serde_json::Value;

use super::usage::Usage;
use crate::error::Error;

/// An answer of the mock provider.
pub(crate) struct MockAnswer<'a> {
    pub(crate) model: &'a str,
    /// The same for the same request.
    pub(crate) mark: String,
    pub(crate) content: String,
    pub(crate) usage: Usage,
    pub(crate) include_usage: bool,
}

impl MockAnswer<'_> {
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.content.split_inclusive(' ')
    }
}

/// How an endpoint writes such answers.
pub(crate) struct MockRules {
    /// In one piece, to the request of this body.
    pub(crate) whole: fn(&MockAnswer<'_>, &[u8]) -> Result<Value, Error>,
    /// As the events of a stream.
    pub(crate) events: fn(&MockAnswer<'_>) -> Vec<String>,
    /// How many of these come until the first word of the model, that one included.
    pub(crate) until_first_word: usize,
    /// An error inside a stream, by its message.
    pub(crate) error_event: fn(&str) -> String,
    /// The body of a refusal, by its status, its message and OpenAI's type for it.
    pub(crate) refusal: fn(u16, &str, &str) -> Value,
}

/// An event with a name.
pub(crate) fn named(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// An event without one.
pub(crate) fn unnamed(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Both objects as one.
pub(crate) fn joined(mut first: Value, more: Value) -> Value {
    if let (Value::Object(first), Value::Object(more)) = (&mut first, more) {
        first.extend(more);
    }
    first
}
