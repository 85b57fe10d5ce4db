//! What an answer says whose provider names a content coding, so that it can be looked through.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::record::Head;
use super::scrub::ends_early;
use crate::bounds;
use crate::protocol::coding::{self, Coding};

const EVENT_STREAM: &str = "text/event-stream";

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// What its bytes are: it is not coded.
    Plain,
    /// This, in its coding; its beginning, where it ends early.
    Decoded(Bytes),
    /// Nobody knows.
    Unknown,
}

/// What the body of this head's answer says.
pub(super) fn said(head: &Head, body: &[u8]) -> Said {
    let lines = || {
        let lines = head
            .response_headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(CONTENT_ENCODING.as_str()));
        lines.map(|(_, value)| value.as_bytes())
    };
    match Coding::of(lines()) {
        Ok(None) => Said::Plain,
        Ok(Some(coding)) => {
            let decoded = match ends_early(head) {
                true => coding::decode_cut(coding, body, bounds::DECODED_CAPTURE),
                false => coding::decode(lines(), body, bounds::DECODED_CAPTURE),
            };
            decoded.map_or(Said::Unknown, Said::Decoded)
        }
        // Some name a charset there, or that there is none.
        Err(_) if !Coding::is_among(lines()) && is_text(body) => Said::Plain,
        Err(_) => Said::Unknown,
    }
}

/// Whether this head's answer is called a stream of events.
pub(super) fn says_events(head: &Head) -> bool {
    let types = head
        .response_headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()));
    let is_events = |value: &str| {
        value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(EVENT_STREAM))
    };
    types.into_iter().any(|(_, value)| is_events(value))
}

/// Whether it is text, which may be cut off within a character.
fn is_text(body: &[u8]) -> bool {
    std::str::from_utf8(body).map_or_else(|error| error.error_len().is_none(), |_| true)
}

#[cfg(test)]
#[path = "coded_tests.rs"]
mod tests;
