//! The open parts of a stream, by the key that the provider's events use for them.

use super::answer::Citation;
use super::event::{Each, Lost, PartKind, StreamEvent};
use super::seal::Seal;

/// Assigns part indexes. A text part starts with its first non-empty text, so none is empty.
#[derive(Debug)]
pub(crate) struct OpenParts<K> {
    open: Vec<(K, usize)>,
    next: usize,
}

impl<K> Default for OpenParts<K> {
    fn default() -> Self {
        OpenParts { open: Vec::new(), next: 0 }
    }
}

impl<K: Copy + PartialEq> OpenParts<K> {
    fn index(&self, key: K) -> Option<usize> {
        // Most events belong to the part that was opened last.
        self.open.iter().rev().find(|(known, _)| *known == key).map(|(_, index)| *index)
    }

    /// Starts a part and returns its index. An open part of the same key ends first.
    pub(crate) fn start(&mut self, key: K, part: PartKind<'_>, each: Each<'_>) -> usize {
        self.end(key, each);
        let index = self.next;
        self.next += 1;
        self.open.push((key, index));
        each(StreamEvent::PartStart { index, part });
        index
    }

    /// Adds text to a part, and starts the part if it is not open.
    pub(crate) fn text(&mut self, key: K, part: PartKind<'_>, text: &str, each: Each<'_>) {
        if text.is_empty() {
            return;
        }
        let index = match self.index(key) {
            Some(index) => index,
            None => self.start(key, part, each),
        };
        each(StreamEvent::Delta { index, text });
    }

    /// Adds to the arguments of a tool call. If it is not open, it is one of the provider's tools.
    pub(crate) fn arguments(&mut self, key: K, text: &str, each: Each<'_>) {
        match self.index(key) {
            _ if text.is_empty() => {}
            Some(index) => each(StreamEvent::Delta { index, text }),
            None => each(StreamEvent::Working),
        }
    }

    /// Adds a seal to a thinking part, and starts the part if it is not open: it may have no text.
    pub(crate) fn seal(&mut self, key: K, seal: Seal, each: Each<'_>) {
        let index = match self.index(key) {
            Some(index) => index,
            None => self.start(key, PartKind::Thinking, each),
        };
        each(StreamEvent::Sealed { index, seal });
    }

    /// Adds a source to a text part. It is lost if the part is not open, or if it has no URL.
    pub(crate) fn cite(&mut self, key: K, citation: Citation, each: Each<'_>) {
        match self.index(key).filter(|_| !citation.url.is_empty()) {
            Some(index) => each(StreamEvent::Cited { index, citation }),
            None => each(StreamEvent::Dropped(Lost::Citations)),
        }
    }

    pub(crate) fn end(&mut self, key: K, each: Each<'_>) {
        if let Some(at) = self.open.iter().rposition(|(known, _)| *known == key) {
            let (_, index) = self.open.remove(at);
            each(StreamEvent::PartEnd { index });
        }
    }

    pub(crate) fn end_all(&mut self, each: Each<'_>) {
        for (_, index) in self.open.drain(..) {
            each(StreamEvent::PartEnd { index });
        }
    }
}
