//! An event stream as it passes: what each event means for failover, usage and end, in bounded memory, and, from a
//! recorded stream, the one answer that it amounts to. What an event means is its endpoint's matter: one file each.

mod chat;
mod messages;
mod responses;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::endpoint::Endpoint;
use super::sse::{self, Event, Fields, Splitter};
use super::usage::{Told, Usage};

/// What one event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// No data: a comment, a keep-alive.
    Comment,
    /// An event that carries nothing yet: a role, an empty delta, the beginning of an answer or of a part of one.
    Preamble,
    /// Something of the answer, or a choice's end: from here on there is no other provider.
    Content,
    /// An error inside a 200.
    Error(StreamError),
    /// The end of a whole answer: `[DONE]`, `response.completed` or `response.incomplete`, `message_stop`.
    Done,
    /// A chunk whose only news is the usage.
    Usage,
    /// Data that is no event of this protocol, or one that is not known.
    Other,
}

/// An error inside a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The provider's words.
    pub message: String,
    /// The status that it would have had as an answer, where it says so.
    pub status: Option<u16>,
}

/// What an event says, and its effect on the counts.
struct Look {
    seen: Seen,
    /// What it tells of the tokens used.
    told: Option<Told>,
    /// Whether nothing more is to be told.
    all_told: bool,
    /// About as many bytes as a model wrote.
    bytes: u64,
    /// A choice's end.
    finished: bool,
    /// The choices that it is about, and those of them that it ends: a bit each, by their index.
    choices: u128,
    ended: u128,
    /// The number of the event, where events are numbered.
    number: Option<u64>,
}

impl From<Seen> for Look {
    fn from(seen: Seen) -> Self {
        Look {
            seen,
            told: None,
            all_told: false,
            bytes: 0,
            finished: false,
            choices: 0,
            ended: 0,
            number: None,
        }
    }
}

/// What one event of such an endpoint's stream is.
pub fn classify(endpoint: Endpoint, event: &[u8]) -> Seen {
    look(endpoint, event).seen
}

fn look(endpoint: Endpoint, event: &[u8]) -> Look {
    let fields = sse::fields(event);
    let Some(data) = fields.data.as_deref() else { return Seen::Comment.into() };
    match endpoint {
        Endpoint::Responses => responses::look(&fields, data),
        Endpoint::Messages => messages::look(&fields, data),
        Endpoint::ChatCompletions | Endpoint::Embeddings | Endpoint::CountTokens => {
            chat::look(&fields, data)
        }
    }
}

/// Data that is not what the protocol writes: an error where its name says so.
fn unread(fields: &Fields<'_>, data: &[u8]) -> Look {
    let named_error = fields.name == Some(b"error");
    if named_error {
        Seen::Error(read_error(&String::from_utf8_lossy(data))).into()
    } else {
        Seen::Other.into()
    }
}

/// Whether a JSON value holds nothing.
fn is_empty(raw: &str) -> bool {
    let inner = |open, close| raw.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let bare = inner('[', ']')
        .or_else(|| inner('{', '}'))
        .is_some_and(|inner| inner.trim_ascii().is_empty());
    matches!(raw, "\"\"" | "null") || bare
}

/// Bytes of a JSON string without its quotes.
fn inside(raw: &str) -> u64 {
    raw.len().saturating_sub(2) as u64
}

/// Reads `{"message", "code", "type", "status"}`, in any of the ways that providers write it.
fn read_error(raw: &str) -> StreamError {
    let error: Value = serde_json::from_str(raw).unwrap_or(Value::Null);
    let message = error.get("message").unwrap_or(&error);
    let message = message.as_str().map_or_else(|| raw.to_owned(), str::to_owned);
    let said =
        ["status", "status_code", "code", "type"].into_iter().filter_map(|name| error.get(name));
    let status = said.filter_map(status_of).next();
    StreamError { message, status }
}

fn status_of(said: &Value) -> Option<u16> {
    let number = said.as_u64().or_else(|| said.as_str()?.parse().ok());
    if let Some(status) = number.and_then(|number| u16::try_from(number).ok()) {
        return (400..600).contains(&status).then_some(status);
    }
    match said.as_str()? {
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

/// What a stream's first telling event made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: another provider could still answer.
    #[default]
    Open,
    /// It is an answer.
    Answer,
    /// It began with an error.
    Error,
}

/// Counts a stream while it passes, in bounded memory.
#[derive(Debug, Default)]
pub struct Tally {
    splitter: Splitter,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    endpoint: Endpoint,
    verdict: Verdict,
    told: Option<Told>,
    all_told: bool,
    bytes: u64,
    events: u64,
    number: Option<u64>,
    finish_seen: bool,
    /// The choices that have begun and not ended.
    open: u128,
    done_seen: bool,
    error: Option<StreamError>,
    giant: Option<Giant>,
}

/// An event over [`crate::bounds::SSE_EVENT_BYTES`], of which no more is kept than its beginning and its end.
#[derive(Debug, Default)]
struct Giant {
    start: Vec<u8>,
    end: Vec<u8>,
}

/// Of the beginning as much as holds its name.
const GIANT_START: usize = 256;

impl Giant {
    fn take(&mut self, piece: &[u8]) {
        let room = GIANT_START.saturating_sub(self.start.len()).min(piece.len());
        self.start.extend_from_slice(piece.get(..room).unwrap_or_default());
        self.end.extend_from_slice(piece.get(piece.len().saturating_sub(4)..).unwrap_or_default());
        self.end.drain(..self.end.len().saturating_sub(4));
    }

    fn is_over(&self) -> bool {
        sse::ends_event(&self.end)
    }
}

impl Counts {
    fn take(&mut self, event: Event<'_>) {
        let event = match event {
            Event::Whole(bytes) | Event::Rest(bytes) => bytes,
            Event::Piece(bytes) => return self.take_piece(bytes),
        };
        self.giant = None;
        let look = look(self.endpoint, event);
        self.events += 1;
        self.bytes = self.bytes.saturating_add(look.bytes);
        self.number = look.number.or(self.number);
        self.open = (self.open | look.choices) & !look.ended;
        if let Some(told) = look.told {
            self.told = Some(self.told.map_or(told, |before| before.and_then(told)));
            self.all_told |= look.all_told || self.finish_seen;
        }
        match look.seen {
            Seen::Content => {
                self.finish_seen |= look.finished;
                self.decide(Verdict::Answer);
            }
            Seen::Done => {
                self.done_seen = true;
                self.decide(Verdict::Answer);
            }
            Seen::Error(error) => {
                self.error.get_or_insert(error);
                self.decide(Verdict::Error);
            }
            Seen::Comment | Seen::Preamble | Seen::Usage | Seen::Other => {}
        }
    }

    /// Too large to be read, and surely no preamble: an image, a document. It may repeat the whole answer as its end.
    fn take_piece(&mut self, piece: &[u8]) {
        let giant = self.giant.get_or_insert_default();
        giant.take(piece);
        match self.endpoint {
            Endpoint::Responses => {
                self.done_seen |= giant.is_over() && responses::is_end(&giant.start);
            }
            Endpoint::Messages => {}
            Endpoint::ChatCompletions | Endpoint::Embeddings | Endpoint::CountTokens => {
                self.bytes = self.bytes.saturating_add(piece.len() as u64);
            }
        }
        self.decide(Verdict::Answer);
    }

    fn decide(&mut self, verdict: Verdict) {
        if self.verdict == Verdict::Open {
            self.verdict = verdict;
        }
    }
}

impl Tally {
    /// For a stream of this endpoint.
    pub fn of(endpoint: Endpoint) -> Self {
        Tally { splitter: Splitter::default(), counts: Counts { endpoint, ..Counts::default() } }
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.splitter.feed(chunk, |event| self.counts.take(event));
    }

    /// The stream is over: what stands without a blank line counts too, as clients read it.
    pub fn finish(&mut self) {
        self.splitter.finish(|event| self.counts.take(event));
    }

    /// What the first telling event made of the stream.
    pub fn verdict(&self) -> Verdict {
        self.counts.verdict
    }

    /// The provider's count of the whole answer, once it came.
    pub fn usage(&self) -> Option<Usage> {
        self.counts.told.filter(|_| self.counts.all_told)?.usage()
    }

    /// The provider's count, else ours over what passed; of the prompt the provider's, where it has told that already.
    pub fn usage_or_estimate(&self, prompt_tokens: u64) -> Usage {
        self.usage().unwrap_or_else(|| {
            let ours = Usage::estimate(prompt_tokens, self.counts.bytes);
            self.counts.told.map_or(ours, |told| told.completed_by(ours))
        })
    }

    /// Bytes of text that passed.
    pub fn content_bytes(&self) -> u64 {
        self.counts.bytes
    }

    /// Events that passed.
    pub fn events(&self) -> u64 {
        self.counts.events
    }

    /// The number that an event after those that passed would have, where events are numbered.
    pub fn next_number(&self) -> u64 {
        self.counts.number.map_or(0, |number| number.saturating_add(1))
    }

    /// Whether the stream came to its end: the terminal event, or in a chat the end of every choice for providers that leave it out.
    pub fn finished(&self) -> bool {
        self.counts.done_seen || (self.counts.finish_seen && self.counts.open == 0)
    }

    /// Whether the terminal event passed.
    pub fn done_seen(&self) -> bool {
        self.counts.done_seen
    }

    /// The first error inside the stream.
    pub fn error(&self) -> Option<&StreamError> {
        self.counts.error.as_ref()
    }
}

/// The error in an answer that is no stream, though its status may say success: the same as inside a stream.
pub fn error_in(body: &[u8]) -> Option<StreamError> {
    #[derive(Deserialize)]
    struct Said<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    // Most answers have no such word, and are not read for it.
    memchr::memmem::find(body, b"\"error\"")?;
    let said: Said<'_> = serde_json::from_slice(body).ok()?;
    said.error.map(|error| read_error(error.get()))
}

/// The one answer that a recorded stream of this endpoint amounts to: a chat-completion object, a response or a message.
pub fn assemble(endpoint: Endpoint, stream: &[u8]) -> Value {
    match endpoint {
        Endpoint::Responses => {
            let mut parts = responses::Parts::default();
            each_object(stream, |event| parts.take(event));
            parts.whole()
        }
        Endpoint::Messages => {
            let mut parts = messages::Parts::default();
            each_object(stream, |event| parts.take(event));
            parts.whole()
        }
        Endpoint::ChatCompletions | Endpoint::Embeddings | Endpoint::CountTokens => {
            let mut parts = chat::Parts::default();
            each_object(stream, |chunk| parts.take(chunk));
            parts.whole()
        }
    }
}

fn each_object(stream: &[u8], mut each: impl FnMut(Map<String, Value>)) {
    let mut splitter = Splitter::with_limit(stream.len());
    let mut take = |event: Event<'_>| {
        if let Some(data) = sse::fields(event.bytes()).data
            && let Ok(Value::Object(object)) = serde_json::from_slice(&data)
        {
            each(object);
        }
    };
    splitter.feed(stream, &mut take);
    splitter.finish(&mut take);
}

/// Puts fields onto those before; the named ones come in fragments, of the others the last that is not empty counts.
fn merge(before: &mut Map<String, Value>, fields: Map<String, Value>, fragments: &[&str]) {
    for (name, value) in fields {
        if fragments.contains(&name.as_str()) {
            extend(before.entry(name).or_insert(Value::Null), value);
        } else if !value.is_null() && value.as_str() != Some("") {
            before.insert(name, value);
        }
    }
}

fn extend(before: &mut Value, more: Value) {
    match (before, more) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(parts), Value::Array(more)) => parts.extend(more),
        (_, Value::Null) => {}
        (before, more) => *before = more,
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
