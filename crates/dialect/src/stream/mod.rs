//! Event streams. A dialect's `stream_events.rs` classifies its events (for failover, usage and the
//! end of a stream) and assembles the answer of a recorded stream.

pub mod event;
pub mod merge;
mod repeated;
mod tally;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Dialect;
use crate::wire::sse;
use event::{EventFacts, place, read_error};

pub use event::{EventKind, StreamError};
pub use tally::StreamTally;
pub use tally::StreamVerdict;

/// The kind of an event in this dialect.
pub fn classify(dialect: impl Into<Dialect>, event: &[u8]) -> EventKind {
    look(dialect.into(), event).kind
}

fn look(dialect: Dialect, event: &[u8]) -> EventFacts {
    let fields = sse::fields(event);
    let Some(data) = fields.data.as_deref() else { return EventKind::Comment.into() };
    let mut facts = (dialect.row().stream.look)(&fields, data);
    let text = facts.text.take().and_then(|text| place(data.get(text)?, event));
    facts.text = text;
    facts
}

/// The error in an answer that is no stream. The answer's status may still be 200.
pub fn error_in(body: &[u8]) -> Option<StreamError> {
    #[derive(Deserialize)]
    struct ErrorMember<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"error\""));
    // Most answers do not contain the word `error`, and are not parsed.
    ERROR.find(body)?;
    let answer: ErrorMember<'_> = serde_json::from_slice(body).ok()?;
    answer.error.map(|error| read_error(error.get()))
}

/// Assembles the answer of a recorded stream.
pub fn assemble(dialect: impl Into<Dialect>, stream: &[u8]) -> Value {
    (dialect.into().row().stream.assemble)(stream)
}

#[cfg(test)]
mod tests;
