//! Counts a stream while it is relayed.

use super::super::Dialect;
use super::super::usage::Usage;
use super::super::usage_object::PartialUsage;
use super::event::{EventKind, OversizedRule, StreamError};
use super::look;
use super::repeated::RepeatedEvent;
use crate::wire::sse::{self, Splitter, SseEvent};

/// What the first event with content or an error decided about a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamVerdict {
    /// Nothing yet: failover is still possible.
    #[default]
    Open,
    /// An answer has begun.
    Answer,
    /// It began with an error.
    Error,
}

/// Counts the events of a stream while it passes, in bounded memory.
#[derive(Debug, Default)]
pub struct StreamTally {
    splitter: Splitter,
    counts: StreamCounts,
}

#[derive(Debug, Default)]
struct StreamCounts {
    dialect: Dialect,
    verdict: StreamVerdict,
    usage: Option<Box<PartialUsage>>,
    all_told: bool,
    bytes: u64,
    events: u64,
    number: Option<u64>,
    finish_seen: bool,
    /// The choices that have begun but not ended, as a set of bits.
    open: u128,
    done_seen: bool,
    error: Option<StreamError>,
    repeated: RepeatedEvent,
    oversized: Option<OversizedEvent>,
}

/// An event over [`crate::wire::sse::SSE_EVENT_BYTES`]; only its beginning and end are kept.
#[derive(Debug, Default)]
struct OversizedEvent {
    start: Vec<u8>,
    end: Vec<u8>,
}

/// Limit on the kept beginning, which is enough for an event's name.
const OVERSIZED_START: usize = 256;

impl OversizedEvent {
    fn take(&mut self, piece: &[u8]) {
        let room = OVERSIZED_START.saturating_sub(self.start.len()).min(piece.len());
        self.start.extend_from_slice(piece.get(..room).unwrap_or_default());
        self.end.extend_from_slice(piece.get(piece.len().saturating_sub(4)..).unwrap_or_default());
        self.end.drain(..self.end.len().saturating_sub(4));
    }

    fn is_over(&self) -> bool {
        sse::ends_event(&self.end)
    }
}

impl StreamCounts {
    fn take(&mut self, event: SseEvent<'_>) {
        let event = match event {
            SseEvent::Whole(bytes) | SseEvent::Rest(bytes) => bytes,
            SseEvent::Piece(bytes) => return self.take_piece(bytes),
        };
        self.oversized = None;
        self.events += 1;
        if let Some(facts) = self.repeated.read(event) {
            self.bytes = self.bytes.saturating_add(facts.bytes);
            self.open |= facts.choices;
            return self.decide(StreamVerdict::Answer);
        }
        let facts = look(self.dialect, event);
        self.repeated.learn(event, &facts);
        self.bytes = self.bytes.saturating_add(facts.bytes);
        self.number = facts.number.or(self.number);
        self.open = (self.open | facts.choices) & !facts.ended;
        if let Some(told) = facts.told {
            self.all_told |= told.counts() && (facts.all_told || self.finish_seen);
            match &mut self.usage {
                Some(before) => before.update(*told),
                None => self.usage = Some(told),
            }
        }
        match facts.kind {
            EventKind::Content => {
                self.finish_seen |= facts.finished;
                self.decide(StreamVerdict::Answer);
            }
            EventKind::Done => {
                self.done_seen = true;
                self.decide(StreamVerdict::Answer);
            }
            EventKind::Error(error) => {
                self.error.get_or_insert(error);
                self.decide(StreamVerdict::Error);
            }
            EventKind::Comment | EventKind::Preamble | EventKind::Usage | EventKind::Other => {}
        }
    }

    /// Counts a piece of an event that is too large to parse. It is content: an image, a document,
    /// or the last event of a response, which repeats the whole answer.
    fn take_piece(&mut self, piece: &[u8]) {
        let oversized = self.oversized.get_or_insert_default();
        oversized.take(piece);
        match self.dialect.row().stream.oversized {
            OversizedRule::Text => self.bytes = self.bytes.saturating_add(piece.len() as u64),
            OversizedRule::End(ends) => {
                self.done_seen |= oversized.is_over() && ends(&oversized.start);
            }
            OversizedRule::Ignored => {}
        }
        self.decide(StreamVerdict::Answer);
    }

    fn decide(&mut self, verdict: StreamVerdict) {
        if self.verdict == StreamVerdict::Open {
            self.verdict = verdict;
        }
    }
}

impl StreamTally {
    pub fn new(dialect: impl Into<Dialect>) -> Self {
        StreamTally {
            splitter: Splitter::default(),
            counts: StreamCounts { dialect: dialect.into(), ..StreamCounts::default() },
        }
    }

    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.splitter.feed(chunk, |event| self.counts.take(event));
    }

    /// Ends the stream. A last event without its blank line counts too, as clients read it.
    pub fn finish(&mut self) {
        self.splitter.finish(|event| self.counts.take(event));
    }

    /// Whether an answer or an error came first.
    pub fn verdict(&self) -> StreamVerdict {
        self.counts.verdict
    }

    /// The provider's final usage, once it has arrived.
    pub fn usage(&self) -> Option<Usage> {
        self.counts.usage.as_ref().filter(|_| self.counts.all_told)?.usage()
    }

    /// The provider's final usage. Without it, an estimate from the relayed text, with the
    /// provider's count of the prompt if known.
    pub fn usage_or_estimate(&self, prompt_tokens: u64) -> Usage {
        self.usage().unwrap_or_else(|| {
            let ours = Usage::estimate(prompt_tokens, self.counts.bytes);
            match &self.counts.usage {
                Some(told) => told.completed_by(ours),
                None => ours,
            }
        })
    }

    /// Whether the provider has told the tokens of the prompt.
    pub fn is_prompt_told(&self) -> bool {
        self.counts.usage.as_ref().is_some_and(|told| told.whole_prompt().is_some())
    }

    /// Bytes of text that were relayed.
    #[cfg(test)]
    pub(crate) fn content_bytes(&self) -> u64 {
        self.counts.bytes
    }

    pub fn events(&self) -> u64 {
        self.counts.events
    }

    /// The sequence number for a further event.
    pub fn next_number(&self) -> u64 {
        self.counts.number.map_or(0, |number| number.saturating_add(1))
    }

    /// Whether the stream has ended: by a terminal event or, in chat completions, when every choice
    /// has ended, as some providers send no terminal event.
    pub fn finished(&self) -> bool {
        self.counts.done_seen || (self.counts.finish_seen && self.counts.open == 0)
    }

    /// Whether the terminal event came.
    pub fn done_seen(&self) -> bool {
        self.counts.done_seen
    }

    /// The first error inside the stream.
    pub fn error(&self) -> Option<&StreamError> {
        self.counts.error.as_ref()
    }
}
