//! Event streams: their counts, for failover, usage and the end of a stream.

pub mod event;
mod repeated;
mod tally;

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Dialect;
use crate::neutral::event::{Each, ReadEvents, StreamEvent, Unreadable};
use crate::neutral::{failure, size};
use crate::wire::json;
use crate::wire::sse::{self, SseEvent};
use event::EventFacts;
pub use event::{EventKind, StreamError};
pub use tally::StreamTally;
pub use tally::StreamVerdict;

pub fn classify(dialect: impl Into<Dialect>, event: &[u8]) -> EventKind {
    let mut facts = EventFacts::new();
    let mut reader = (dialect.into().row().reader)();
    match read(&mut *reader, SseEvent::Whole(event), &mut |neutral| facts.take(&neutral, event)) {
        WireEvent::Read => facts.kind(),
        WireEvent::Comment => EventKind::Comment,
        WireEvent::Unreadable => EventKind::Other,
    }
}

/// What an event on the wire turned out to be.
pub(crate) enum WireEvent {
    /// Without data, or cut off.
    Comment,
    Read,
    /// Its data is not of the dialect.
    Unreadable,
}

/// An event that is not of the dialect may still be an error by its name.
pub(crate) fn read(reader: &mut dyn ReadEvents, event: SseEvent<'_>, each: Each<'_>) -> WireEvent {
    let fields = sse::fields(event.bytes());
    // Clients do not see events with empty data either (WHATWG HTML section 9.2.6).
    let data = fields.data.as_deref().filter(|data| !data.trim_ascii().is_empty());
    let Some(data) = data else { return WireEvent::Comment };
    // A last event without its blank line may be truncated.
    if let SseEvent::Rest(_) = event
        && !is_whole(data)
        && fields.name != Some(b"error")
    {
        return WireEvent::Comment;
    }
    if size::is_too_large(data) {
        each(StreamEvent::TooLong);
        return WireEvent::Read;
    }
    let name = fields.name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    let text = std::str::from_utf8(data).map_err(|_| Unreadable);
    let read = text.and_then(|data| match reader.event(name, data, each) {
        Err(Unreadable) => {
            reader.event(name, &json::mend_surrogates(data).ok_or(Unreadable)?, each)
        }
        Ok(()) => Ok(()),
    });
    match read {
        Ok(()) => WireEvent::Read,
        Err(Unreadable) if name == "error" => {
            let text = String::from_utf8_lossy(data);
            each(StreamEvent::Failed(failure::read_in_band(&text)));
            WireEvent::Read
        }
        Err(Unreadable) => WireEvent::Unreadable,
    }
}

/// Whether a JSON document is cut off. Anything else that is no JSON is the client's to read.
pub fn breaks_off(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    serde_json::from_slice::<&RawValue>(body).is_err_and(|error| error.is_eof())
}

fn is_whole(data: &[u8]) -> bool {
    data == b"[DONE]" || serde_json::from_slice::<&RawValue>(data).is_ok()
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
    let failure = failure::read_in_band(answer.error?.get());
    Some(StreamError { message: failure.message, status: failure.status })
}

#[cfg(test)]
mod tests;
