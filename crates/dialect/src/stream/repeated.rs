//! Events that differ from an earlier one only in the model's text, as most do. They are counted
//! without a parser.

use std::ops::Range;

use memchr::memmem;

use super::event::EventFacts;
use crate::wire::json;

/// A member that OpenAI fills with random letters, to hide how long the text is.
const PADDING: &[u8] = b"\"obfuscation\":\"";

/// A parsed content event, and the span of its text. An event with the same bytes around another
/// text has the same meaning.
#[derive(Debug, Default)]
pub(super) struct RepeatedEvent {
    event: Vec<u8>,
    /// The text's span with quotes. Empty if no event was learnt.
    text: Range<usize>,
    /// The value of [`PADDING`] behind the text. Empty, at the end of the event, if there is none.
    padding: Range<usize>,
    /// Bytes that [`EventFacts::bytes`] counts apart from the text.
    beside: u64,
}

impl RepeatedEvent {
    /// Remembers a parsed event, if its text is all that may change.
    pub(super) fn learn(&mut self, event: &[u8], facts: &EventFacts) {
        let Some(text) = facts.text.clone().filter(|_| facts.is_plain) else { return };
        let end = event.len();
        let behind = event.get(text.end..).unwrap_or_default();
        let padding = memmem::find(behind, PADDING).map(|at| text.end + at + PADDING.len() - 1);
        let padding = padding.and_then(|at| {
            let (value, _) = json::split_string(event.get(at..)?)?;
            Some(at..at + value.len())
        });
        self.beside = facts.bytes.saturating_sub(inside(text.len()));
        self.text = text;
        self.padding = padding.unwrap_or(end..end);
        self.event.clear();
        self.event.extend_from_slice(event);
    }

    /// The bytes of text in an event that matches the learnt one; `None` for any other.
    pub(super) fn read(&self, event: &[u8]) -> Option<u64> {
        let fixed = |range: Range<usize>| self.event.get(range).unwrap_or_default();
        if self.text.is_empty() {
            return None;
        }
        let rest = event.strip_prefix(fixed(0..self.text.start))?;
        let (text, rest) = json::split_string(rest)?;
        let mut rest = rest.strip_prefix(fixed(self.text.end..self.padding.start))?;
        if !self.padding.is_empty() {
            rest = json::split_string(rest)?.1;
        }
        // An empty text is no content yet.
        let is_same = rest == fixed(self.padding.end..self.event.len())
            && text.len() > 2
            && std::str::from_utf8(text).is_ok();
        is_same.then(|| self.beside + inside(text.len()))
    }
}

/// Length of a JSON string without its quotes.
fn inside(length: usize) -> u64 {
    length.saturating_sub(2) as u64
}

#[cfg(test)]
#[path = "repeated_tests.rs"]
mod tests;
