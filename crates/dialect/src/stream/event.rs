//! Events of a stream: their kinds and errors.

use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::usage_object::PartialUsage;
use crate::wire::sse::SseFields;

/// The kind of an event in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// No data: a comment, a keep-alive.
    Comment,
    /// No content yet: a role, an empty delta, the start of an answer or of a part.
    Preamble,
    /// Content, or the end of a choice. No failover is possible after it.
    Content,
    /// An error in a stream whose status was 200.
    Error(StreamError),
    /// The end of the answer: `[DONE]`, `response.completed`, `response.incomplete` or
    /// `message_stop`.
    Done,
    /// A chunk with nothing but the usage.
    Usage,
    /// Data that is not of this protocol, or an unknown event.
    Other,
}

/// An error inside a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The provider's text.
    pub message: String,
    /// The HTTP status that the error names or implies, if any.
    pub status: Option<u16>,
}

/// How the streams of a dialect are read.
pub(crate) struct StreamRules {
    /// Classifies an event by its data.
    pub look: fn(&SseFields<'_>, &[u8]) -> EventFacts,
    pub oversized: OversizedRule,
    /// Assembles the answer of a recorded stream.
    pub assemble: fn(&[u8]) -> Value,
}

/// How an event that is too large to parse is counted. It is content in any case.
pub(crate) enum OversizedRule {
    /// Its bytes count as text.
    Text,
    /// Decides by the first bytes whether the event ends the stream.
    End(fn(&[u8]) -> bool),
    Ignored,
}

/// What one event adds to the counts of its stream.
pub struct EventFacts {
    pub kind: EventKind,
    /// The usage that it reports.
    pub told: Option<Box<PartialUsage>>,
    /// Whether that usage is final.
    pub all_told: bool,
    /// Approximate bytes of text that the model wrote.
    pub bytes: u64,
    /// Whether it ends a choice.
    pub finished: bool,
    /// The choices in this event and the choices that it ends, as sets of bits by index.
    pub choices: u128,
    pub ended: u128,
    /// Its sequence number, if the dialect has one.
    pub number: Option<u64>,
    /// The span of its text with quotes, if the text is a single non-empty string whose length
    /// counts.
    pub text: Option<Range<usize>>,
}

impl From<EventKind> for EventFacts {
    fn from(kind: EventKind) -> Self {
        EventFacts {
            kind,
            told: None,
            all_told: false,
            bytes: 0,
            finished: false,
            choices: 0,
            ended: 0,
            number: None,
            text: None,
        }
    }
}

/// Facts of an event that does not parse. It is an error if its name says so.
pub fn unread(fields: &SseFields<'_>, data: &[u8]) -> EventFacts {
    let named_error = fields.name == Some(b"error");
    if named_error {
        EventKind::Error(read_error(&String::from_utf8_lossy(data))).into()
    } else {
        EventKind::Other.into()
    }
}

/// Whether a JSON value is null, or an empty string, array or object.
pub fn is_empty(raw: &str) -> bool {
    let inner = |open, close| raw.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let bare = inner('[', ']')
        .or_else(|| inner('{', '}'))
        .is_some_and(|inner| inner.trim_ascii().is_empty());
    matches!(raw, "\"\"" | "null") || bare
}

/// Length of a JSON string without its quotes.
pub fn inside(length: usize) -> u64 {
    length.saturating_sub(2) as u64
}

/// The span of `part`, which borrows from `within`.
pub fn place(part: &[u8], within: &[u8]) -> Option<Range<usize>> {
    let start = part.as_ptr().addr().checked_sub(within.as_ptr().addr())?;
    let range = start..start.checked_add(part.len())?;
    (within.get(range.clone())? == part).then_some(range)
}

/// The span of a delta's text in the data of its event, if it is a non-empty string.
pub(crate) fn place_of_text(text: Option<&RawValue>, data: &[u8]) -> Option<Range<usize>> {
    let text = text?.get().as_bytes();
    if text.len() > 2 && text.starts_with(b"\"") { place(text, data) } else { None }
}

/// Reads an error object, with `message`, `code`, `type` and `status` in any form that providers
/// use.
pub(crate) fn read_error(raw: &str) -> StreamError {
    let error: Value = serde_json::from_str(raw).unwrap_or(Value::Null);
    let message = error.get("message").unwrap_or(&error);
    let message = message.as_str().map_or_else(|| raw.to_owned(), str::to_owned);
    let named =
        ["status", "status_code", "code", "type"].into_iter().filter_map(|name| error.get(name));
    let status = named.filter_map(status_of).next();
    StreamError { message, status }
}

fn status_of(named: &Value) -> Option<u16> {
    let number = named.as_u64().or_else(|| named.as_str()?.parse().ok());
    if let Some(status) = number.and_then(|number| u16::try_from(number).ok()) {
        return (400..600).contains(&status).then_some(status);
    }
    match named.as_str()? {
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "insufficient_quota"
        | "tokens"
        | "requests" => Some(429),
        "server_error" | "api_error" | "internal_error" | "internal_server_error" => Some(500),
        "overloaded" | "service_unavailable" => Some(503),
        "overloaded_error" => Some(529),
        "timeout_error" | "vector_store_timeout" => Some(504),
        "invalid_api_key" | "authentication_error" => Some(401),
        "billing_error" => Some(402),
        "permission_error" => Some(403),
        "not_found_error" => Some(404),
        "request_too_large" => Some(413),
        "context_length_exceeded" => Some(400),
        word => word.starts_with("invalid_").then_some(400),
    }
}
