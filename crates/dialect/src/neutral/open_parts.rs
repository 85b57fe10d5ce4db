//! The open parts of a stream, by the key that the provider's events use for them.

use super::answer::Citation;
use super::event::{Each, Lost, PartKind, StreamEvent};
use super::normalizer::ANSWER_PARTS;
use super::seal::Seal;

/// Limit on the sources of an answer. Real answers have some tens.
const ANSWER_CITATIONS: usize = 256;

/// Assigns part indexes. A text part starts with its first non-empty text, so none is empty.
#[derive(Debug)]
pub(crate) struct OpenParts<K> {
    open: Vec<(K, usize)>,
    next: usize,
    /// Sources of texts that have not begun.
    early: Vec<(K, Citation)>,
    /// The sources so far, by their URL.
    cited: Vec<(K, String)>,
}

impl<K> Default for OpenParts<K> {
    fn default() -> Self {
        OpenParts { open: Vec::new(), next: 0, early: Vec::new(), cited: Vec::new() }
    }
}

impl<K: Copy + PartialEq> OpenParts<K> {
    fn index(&self, key: K) -> Option<usize> {
        // Most events belong to the part that was opened last.
        self.open.iter().rev().find(|(known, _)| *known == key).map(|(_, index)| *index)
    }

    /// An open part of the same key ends first.
    pub(crate) fn start(&mut self, key: K, part: PartKind<'_>, each: Each<'_>) -> usize {
        self.end(key, each);
        if self.open.len() >= ANSWER_PARTS {
            each(StreamEvent::TooLong);
            return self.next;
        }
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
        while let Some(at) = self.early.iter().position(|(of, _)| *of == key) {
            let (_, citation) = self.early.remove(at);
            each(StreamEvent::Cited { index, citation });
        }
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

    /// Adds a source to a text part, which may begin later. A source without a URL is lost.
    pub(crate) fn cite(&mut self, key: K, citation: Citation, each: Each<'_>) {
        if citation.url.is_empty() || self.cited.len() >= ANSWER_CITATIONS {
            return each(StreamEvent::Dropped(Lost::Citations));
        }
        let source = (key, citation.url.clone());
        // Some providers repeat the list of sources.
        if citation.span.is_none() && self.cited.contains(&source) {
            return;
        }
        self.cited.push(source);
        match self.index(key) {
            Some(index) => each(StreamEvent::Cited { index, citation }),
            None => self.early.push((key, citation)),
        }
    }

    pub(crate) fn end(&mut self, key: K, each: Each<'_>) {
        if let Some(at) = self.open.iter().rposition(|(known, _)| *known == key) {
            let (_, index) = self.open.remove(at);
            each(StreamEvent::PartEnd { index });
        }
    }

    pub(crate) fn end_but(&mut self, keys: &[K], but: Option<K>, each: Each<'_>) {
        keys.iter().filter(|key| Some(**key) != but).for_each(|key| self.end(*key, each));
    }

    /// Ends the answer, and all parts before it.
    pub(crate) fn finish(&mut self, each: Each<'_>) {
        self.end_all(each);
        each(StreamEvent::End);
    }

    pub(crate) fn end_all(&mut self, each: Each<'_>) {
        if !std::mem::take(&mut self.early).is_empty() {
            each(StreamEvent::Dropped(Lost::Citations));
        }
        for (_, index) in self.open.drain(..) {
            each(StreamEvent::PartEnd { index });
        }
    }
}
