//! Redacts answers. A stream that needs redaction is kept as its assembled answer.

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;

use super::rules::{self, Replacements, Secrets};
use crate::capture::record::{CaptureState, Head};
use rerouter_dialect::wire::json::{self, Edit};

/// Finds the credentials of tools that an answer lists.
pub(super) fn find(is_stream: bool, body: &[u8], secrets: &mut Secrets) -> Vec<Edit> {
    static LISTS: LazyLock<[Finder<'_>; 2]> =
        LazyLock::new(|| ["tools", "mcp_servers"].map(Finder::new));
    if LISTS.iter().all(|list| list.find(body).is_none()) {
        Vec::new()
    } else if is_stream {
        events(body).flat_map(|event| rules::find(event, secrets)).collect()
    } else {
        rules::find(body, secrets)
    }
}

/// Returns what may be kept of an answer, in which `found` are the credentials. Notes the redaction
/// in the head.
pub(super) fn redact(
    head: &mut Head,
    body: &Bytes,
    found: Vec<Edit>,
    rules: &Replacements<'_>,
) -> Bytes {
    if body.is_empty() || (found.is_empty() && rules.is_empty()) {
        return body.clone();
    }
    let cut = head.response_truncated || head.state != CaptureState::Completed;
    let kept = if head.answers_in_events() {
        stream(head, body, !found.is_empty(), cut, rules)
    } else {
        let (changed, body) = (!found.is_empty(), json::splice(body, found));
        rules.body(&body, cut).or(changed.then_some(body))
    };
    let Some(kept) = kept else { return body.clone() };
    head.lacks_of_answer();
    if head.answers_in_events() && !kept.is_empty() {
        head.response_assembled = true;
        head.version = head.version.max(Head::ASSEMBLED);
    }
    kept
}

/// Searches each event alone, and the answer that all events form together.
fn stream(
    head: &Head,
    body: &Bytes,
    found: bool,
    cut: bool,
    rules: &Replacements<'_>,
) -> Option<Bytes> {
    let must_assemble = !rules.expressions.is_empty();
    if must_assemble && cut {
        return Some(Bytes::new());
    }
    let whole = Bytes::from(head.assembled(body).to_string());
    let again = rules::find(&whole, &mut Secrets::default());
    let whole = json::splice(&whole, again);
    let redacted = rules.body(&whole, false);
    let is_in = |event| rules.body(&Bytes::copy_from_slice(event), false).is_some();
    if must_assemble || found || redacted.is_some() || events(body).any(is_in) {
        return Some(redacted.unwrap_or(whole));
    }
    None
}

/// The data lines of a stream, without their field name.
fn events(stream: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = stream.split(|byte| matches!(byte, b'\n' | b'\r'));
    lines.filter_map(|line| line.strip_prefix(b"data:"))
}
