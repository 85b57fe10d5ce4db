//! What the mock provider says, before a dialect writes it, and how dialects write it.

use serde_json::Value;

use super::usage::Usage;
use rerouter_base::error::Error;

/// An answer of the mock provider.
pub struct MockAnswer<'a> {
    pub model: &'a str,
    /// The same for the same request.
    pub mark: String,
    pub content: String,
    pub usage: Usage,
    pub include_usage: bool,
}

impl MockAnswer<'_> {
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.content.split_inclusive(' ')
    }
}

/// How an endpoint writes such answers.
pub struct MockRules {
    /// In one piece, to the request of this body.
    pub whole: fn(&MockAnswer<'_>, &[u8]) -> Result<Value, Error>,
    /// As the events of a stream.
    pub events: fn(&MockAnswer<'_>) -> Vec<String>,
    /// How many of these come until the first word of the model, that one included.
    pub until_first_word: usize,
    /// An error inside a stream, by its message.
    pub error_event: fn(&str) -> String,
    /// The body of a refusal, by its status, its message and OpenAI's type for it.
    pub refusal: fn(u16, &str, &str) -> Value,
}

/// An event with a name.
pub fn named(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// An event without one.
pub fn unnamed(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// Both objects as one.
pub fn joined(mut first: Value, more: Value) -> Value {
    if let (Value::Object(first), Value::Object(more)) = (&mut first, more) {
        first.extend(more);
    }
    first
}
