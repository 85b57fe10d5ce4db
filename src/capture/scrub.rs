//! What a capture must not hold: credentials in headers and inside bodies.

use bytes::Bytes;
use http::HeaderMap;
use memchr::memmem;
use serde::de::IgnoredAny;

use super::coded::{self, Said};
use super::echo::Secrets;
use super::record::{CaptureState, Head};
use super::sift::{Look, Sifted, quotes_credential, sift};
use super::spelled;
use crate::protocol::json::{self, Edit};
use crate::secret::is_credential;

/// The word of a call whose answer of success says that it failed.
const IN_BAND: &str = "in_band_error";
/// What stands in a body where a value was that is a credential.
pub(super) const VALUE: &[u8] = b"\"[redacted]\"";

/// The headers that a capture keeps, in order: all but those that carry a credential by their name.
pub fn keep_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, value)| !value.is_sensitive() && !is_credential(name.as_str()))
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect()
}

/// A body fit to be stored, and whether something was taken out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// The body; only the credentials are other bytes than before.
    pub body: Bytes,
    /// Whether there were any: such a body cannot be sent again.
    pub redacted: bool,
}

/// Takes the credentials out of a request's body: of each of its tools and MCP servers what is one by its name, of their headers
/// those that carry one, and of their addresses those that hold one; and each of these wherever else it stands. Of a body that is
/// JSON in part only (it was cut, or is something else) the rest is not stored.
pub fn scrub_body(body: &Bytes) -> Scrubbed {
    scrub_request(body, false).scrubbed
}

/// What became of a request's body.
pub(super) struct Request {
    pub(super) scrubbed: Scrubbed,
    /// What was taken out.
    pub(super) secrets: Secrets,
    /// Whether there may have been more, which nobody knows: it was cut off within its tools.
    pub(super) lacks_tools: bool,
}

/// The same for one that may have been `cut` off.
pub(super) fn scrub_request(body: &Bytes, cut: bool) -> Request {
    // Where tools may hold credentials, some are offered within others.
    let look = if cut || memmem::find(body, b"mcp").is_some() { Look::Deep } else { Look::Top };
    let Sifted { found, read, in_tools } = sift(body, look);
    let secrets = Secrets::of(body.get(..read).unwrap_or_default(), &found);
    let redacted = !found.is_empty() || read < body.len();
    let kept = json::splice(
        &body.slice(..read),
        found.into_iter().map(|span| Edit::new(span, VALUE)).collect(),
    );
    let kept = secrets.hide_body(&kept, true).map_or_else(Bytes::new, |(kept, _)| kept);
    Request { scrubbed: Scrubbed { body: kept, redacted }, secrets, lacks_tools: cut && in_tools }
}

/// A provider's answer as it may be stored.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// As it came.
    Same,
    /// Without what was in it.
    Other(Bytes),
    /// What the events of a stream amount to, without it.
    Assembled(Bytes),
    /// Not at all: nobody could say what is in it.
    Gone,
}

/// Takes out of an answer what quotes the credentials of its request, `secrets`, and what describes tools as a request does.
/// Notes in the head what became of it.
pub(super) fn scrub_answer(head: &mut Head, body: Bytes, secrets: &Secrets) -> Bytes {
    let answer = match body.is_empty() {
        true => Answer::Same,
        false => answer(head, &body, secrets),
    };
    if answer != Answer::Same {
        head.lacks_of_answer();
    }
    match answer {
        Answer::Same => body,
        Answer::Other(other) => other,
        Answer::Assembled(whole) => {
            head.response_assembled = true;
            head.version = head.version.max(Head::ASSEMBLED);
            whole
        }
        Answer::Gone => Bytes::new(),
    }
}

fn answer(head: &Head, body: &Bytes, secrets: &Secrets) -> Answer {
    match coded::said(head, body) {
        Said::Plain => plain(head, body, secrets),
        Said::Decoded(decoded) if plain(head, &decoded, secrets) == Answer::Same => Answer::Same,
        // There is nothing that it could quote.
        Said::Unknown if secrets.is_empty() && !head.request_truncated => Answer::Same,
        Said::Decoded(_) | Said::Unknown => Answer::Gone,
    }
}

fn plain(head: &Head, body: &Bytes, secrets: &Secrets) -> Answer {
    if secrets.are_too_many(body) {
        return Answer::Gone;
    }
    let is_stream = head.response_stream && !head.response_assembled;
    let refuses = head.status >= 400 || head.error.as_deref() == Some(IN_BAND);
    // One that is coded is none to the data path, which cannot read it, but says that it is.
    let has_events =
        is_stream || (!refuses && !head.response_assembled && coded::says_events(head));
    let sifted = if has_events { sift_stream(body) } else { sift_whole(body, refuses) };
    let Some(edits) = sifted else {
        return if is_stream { assembled(head, body, secrets) } else { Answer::Gone };
    };
    let mut changed = !edits.is_empty();
    let mut kept = json::splice(body, edits);
    if is_stream && !secrets.is_empty() {
        // Each event, and what they say together: one may say in one piece what others say in several.
        let mut lines = kept
            .split(|byte| matches!(byte, b'\n' | b'\r'))
            .map(|line| line.strip_prefix(b"data:").unwrap_or(line));
        if lines.any(|line| secrets.are_in(line, ends_early(head)))
            || secrets.hide_in(&mut head.assembled(body), ends_early(head))
        {
            return assembled(head, body, secrets);
        }
    } else {
        let Some((hidden, there)) = secrets.hide_body(&kept, ends_early(head)) else {
            return Answer::Gone;
        };
        changed |= there;
        kept = hidden;
    }
    if changed { Answer::Other(kept) } else { Answer::Same }
}

/// Whether an answer may end within what it says.
pub(super) fn ends_early(head: &Head) -> bool {
    head.response_truncated || head.state != CaptureState::Completed
}

/// What is to leave an answer that is no stream; `None` where that cannot be said. One that refuses may quote any part of its request.
fn sift_whole(body: &Bytes, refuses: bool) -> Option<Vec<Edit>> {
    if !refuses && !lists_tools(body) {
        return Some(Vec::new());
    }
    let Sifted { found, read, .. } = sift(body, if refuses { Look::Wary } else { Look::Deep });
    let rest = body.get(read..).unwrap_or_default();
    if quotes_credential(rest) || (!refuses && lists_tools(rest)) {
        return None;
    }
    Some(found.into_iter().map(|span| Edit::new(span, VALUE)).collect())
}

/// What is to leave the events of a stream; `None` where one of them cannot be read where it stands.
fn sift_stream(stream: &Bytes) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    if !lists_tools(stream) {
        return Some(edits);
    }
    let mut from = 0;
    for line in stream.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
        let start = from;
        from += line.len();
        let Some(data) = line.strip_prefix(b"data:").filter(|data| lists_tools(data)) else {
            continue;
        };
        let at = start + line.len() - data.len();
        let data = data.trim_ascii_end();
        let Sifted { found, read, .. } = sift(data, Look::Deep);
        let whole = serde_json::from_slice::<IgnoredAny>(data).is_ok();
        // The last one may have been cut off; any other goes on in the next line.
        if !whole && (read < data.len() || from < stream.len()) {
            return None;
        }
        edits
            .extend(found.into_iter().map(|span| Edit::new(at + span.start..at + span.end, VALUE)));
    }
    Some(edits)
}

fn lists_tools(text: &[u8]) -> bool {
    memmem::find(text, b"tools").is_some() || memmem::find(text, b"mcp_servers").is_some()
}

/// Whether a body lists tools, or describes one, behind its first `most` bytes, of which nothing is kept; in letters of any case, and
/// spelled in any way.
pub fn offers_tools_past(body: &[u8], most: usize) -> bool {
    const LISTS: [&[u8]; 2] = [b"tools", b"mcp_servers"];
    // A name may begin before it is cut off, each of its letters six bytes long.
    const LONGEST: usize = 14 * 6;
    if body.len() <= most {
        return false;
    }
    let rest = body.get(most.saturating_sub(LONGEST)..).unwrap_or_default();
    memchr::memchr_iter(b'"', rest).any(|at| {
        let name = rest.get(at + 1..).unwrap_or_default();
        // Others wait for this, and hardly anything that is quoted begins so.
        if !matches!(name.first(), Some(b't' | b'T' | b'm' | b'M' | b'a' | b'A' | b'\\')) {
            return false;
        }
        let lists = LISTS
            .iter()
            .any(|list| spelled::after(name, list).is_some_and(|after| after.starts_with(b"\"")));
        lists || spelled::after(name, b"authorization").is_some()
    })
}

/// What a stream amounts to, without credentials.
fn assembled(head: &Head, stream: &[u8], secrets: &Secrets) -> Answer {
    let mut whole = head.assembled(stream);
    secrets.hide_in(&mut whole, ends_early(head));
    let Ok(text) = serde_json::to_vec(&whole) else { return Answer::Gone };
    let text = Bytes::from(text);
    let found = sift(&text, Look::Deep).found;
    let kept = json::splice(&text, found.into_iter().map(|span| Edit::new(span, VALUE)).collect());
    if secrets.are_in(&kept, false) { Answer::Gone } else { Answer::Assembled(kept) }
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
pub(super) mod tests;
