//! Event streams. Each endpoint has a file that reads its events (for failover, usage and the end
//! of a stream) and assembles the answer of a recorded stream.

mod chat;
mod event;
mod merge;
mod messages;
mod repeated;
mod responses;
mod tally;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::endpoint::Endpoint;
use super::sse::{self, Splitter, SseEvent};
use event::{EventFacts, place, read_error};

pub(crate) use event::{EventKind, StreamError};
pub use tally::StreamTally;
pub(crate) use tally::StreamVerdict;

/// What an event of a stream of this endpoint is.
pub(crate) fn classify(endpoint: Endpoint, event: &[u8]) -> EventKind {
    look(endpoint, event).kind
}

fn look(endpoint: Endpoint, event: &[u8]) -> EventFacts {
    let fields = sse::fields(event);
    let Some(data) = fields.data.as_deref() else { return EventKind::Comment.into() };
    let mut facts = match endpoint {
        Endpoint::Responses => responses::look(&fields, data),
        Endpoint::Messages => messages::look(&fields, data),
        Endpoint::ChatCompletions | Endpoint::Embeddings | Endpoint::CountTokens => {
            chat::look(&fields, data)
        }
    };
    let text = facts.text.take().and_then(|text| place(data.get(text)?, event));
    facts.text = text;
    facts
}

/// The error in an answer that is no stream, whose status may still be 200.
pub(crate) fn error_in(body: &[u8]) -> Option<StreamError> {
    #[derive(Deserialize)]
    struct ErrorMember<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"error\""));
    // Most answers do not hold the word and need no parser.
    ERROR.find(body)?;
    let answer: ErrorMember<'_> = serde_json::from_slice(body).ok()?;
    answer.error.map(|error| read_error(error.get()))
}

/// Assembles the answer of a recorded stream: a chat completion, a response or a message.
pub fn assemble(endpoint: Endpoint, stream: &[u8]) -> Value {
    match endpoint {
        Endpoint::Responses => {
            let mut parts = responses::ResponseAssembly::default();
            each_object(stream, |event| parts.take(event));
            parts.whole()
        }
        Endpoint::Messages => {
            let mut parts = messages::MessageAssembly::default();
            each_object(stream, |event| parts.take(event));
            parts.whole()
        }
        Endpoint::ChatCompletions | Endpoint::Embeddings | Endpoint::CountTokens => {
            let mut parts = chat::ChatAssembly::default();
            each_object(stream, |chunk| parts.take(chunk));
            parts.whole()
        }
    }
}

fn each_object(stream: &[u8], mut each: impl FnMut(Map<String, Value>)) {
    let mut splitter = Splitter::with_limit(stream.len());
    let mut take = |event: SseEvent<'_>| {
        if let Some(data) = sse::fields(event.bytes()).data
            && let Ok(Value::Object(object)) = serde_json::from_slice(&data)
        {
            each(object);
        }
    };
    splitter.feed(stream, &mut take);
    splitter.finish(&mut take);
}

#[cfg(test)]
mod tests;
