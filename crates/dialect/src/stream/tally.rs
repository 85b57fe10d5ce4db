//! Counts a stream while it is relayed.

use super::super::Dialect;
use super::super::usage::Usage;
use super::super::usage_object::PartialUsage;
use super::event::{EventFacts, OversizedRule, StreamError};
use super::repeated::RepeatedEvent;
use super::{WireEvent, read};
use crate::neutral::event::{Each, ReadEvents, StreamEvent};
use crate::neutral::{failure, size};
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

/// Reads the events of a stream and counts them while it passes, in bounded memory.
#[derive(Debug)]
pub struct StreamTally {
    splitter: Splitter,
    /// Made for the first event: most answers are documents.
    reader: Option<Box<dyn ReadEvents>>,
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
    /// The choices that have begun, and those that have ended, as sets of bits.
    begun: u128,
    ended: u128,
    done_seen: bool,
    error: Option<StreamError>,
    repeated: RepeatedEvent,
    /// The usage in a last event that was too large to parse.
    usage_at_end: Option<Usage>,
    oversized: Option<OversizedEvent>,
}

/// An event over [`sse::SSE_EVENT_BYTES`]; only its beginning and end are kept.
#[derive(Debug, Default)]
struct OversizedEvent {
    start: Vec<u8>,
    end: Vec<u8>,
}

/// Limit on the kept beginning, which is enough for an event's name.
const OVERSIZED_START: usize = 256;
/// Limit on the kept end, in which the usage of a response is searched.
const OVERSIZED_END: usize = 16 << 10;

impl OversizedEvent {
    fn take(&mut self, piece: &[u8]) {
        let room = OVERSIZED_START.saturating_sub(self.start.len()).min(piece.len());
        self.start.extend_from_slice(piece.get(..room).unwrap_or_default());
        let last = piece.len().saturating_sub(OVERSIZED_END);
        self.end.extend_from_slice(piece.get(last..).unwrap_or_default());
        self.end.drain(..self.end.len().saturating_sub(OVERSIZED_END));
    }

    fn is_over(&self) -> bool {
        sse::ends_event(&self.end)
    }

    /// The kept end up to the bracket of the last object inside the event.
    fn end_of_member(&self) -> Option<&[u8]> {
        let inside = self.end.trim_ascii_end().strip_suffix(b"}")?;
        inside.get(..=memchr::memrchr(b'}', inside)?)
    }
}

impl StreamCounts {
    /// Counts an event. Reads it too, unless it only repeats another one with another text.
    fn take(&mut self, event: SseEvent<'_>, reader: &mut dyn ReadEvents) {
        if let SseEvent::Piece(piece) = event {
            return self.take_piece(piece);
        }
        if size::is_too_large(event.bytes()) {
            (self.oversized, self.events) = (None, self.events + 1);
            return self.take_piece(event.bytes());
        }
        if let Some(bytes) = self.repeated.read(event.bytes()) {
            self.events += 1;
            self.bytes = self.bytes.saturating_add(bytes);
            return self.decide(StreamVerdict::Answer);
        }
        let facts = self.read(event, reader, &mut |_| {});
        self.repeated.learn(event.bytes(), &facts);
        self.add(facts);
    }

    /// Counts an event, and passes what it says to `each`.
    fn take_read(&mut self, event: SseEvent<'_>, reader: &mut dyn ReadEvents, each: Each<'_>) {
        if let SseEvent::Piece(piece) = event {
            each(StreamEvent::TooLong);
            return self.take_piece(piece);
        }
        let facts = self.read(event, reader, each);
        self.add(facts);
    }

    fn read(
        &mut self,
        event: SseEvent<'_>,
        reader: &mut dyn ReadEvents,
        each: Each<'_>,
    ) -> EventFacts {
        self.oversized = None;
        self.events += 1;
        let mut facts = EventFacts::new();
        let read = read(reader, event, &mut |neutral| {
            facts.take(&neutral, event.bytes());
            each(neutral);
        });
        if let WireEvent::Unreadable = read {
            each(StreamEvent::Failed(failure::unreadable()));
        }
        facts
    }

    fn add(&mut self, facts: EventFacts) {
        self.bytes = self.bytes.saturating_add(facts.bytes);
        self.number = facts.number.or(self.number);
        self.begun |= facts.choices;
        self.ended |= facts.ended;
        if let Some((told, is_final)) = facts.told {
            self.all_told |= told.counts() && (is_final || self.ended != 0);
            match &mut self.usage {
                Some(before) => before.update(told),
                None => self.usage = Some(Box::new(told)),
            }
        }
        if let Some(error) = facts.error {
            self.error.get_or_insert(error);
            return self.decide(StreamVerdict::Error);
        }
        self.done_seen |= facts.done;
        if facts.says || facts.done {
            self.decide(StreamVerdict::Answer);
        }
    }

    /// Counts a piece of an event that is too large to parse. It is content: an image, a document,
    /// or the last event of a response, which repeats the whole answer.
    fn take_piece(&mut self, piece: &[u8]) {
        self.oversized.take_if(|before| before.is_over());
        let oversized = self.oversized.get_or_insert_default();
        oversized.take(piece);
        match self.dialect.row().oversized {
            OversizedRule::Text => self.bytes = self.bytes.saturating_add(piece.len() as u64),
            OversizedRule::End(ends) => {
                if oversized.is_over() && ends(&oversized.start) {
                    self.done_seen = true;
                    let response = oversized.end_of_member();
                    self.usage_at_end =
                        response.and_then(|end| self.dialect.read_usage_at_end(end));
                }
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

impl Default for StreamTally {
    fn default() -> Self {
        StreamTally::new(Dialect::default())
    }
}

impl StreamTally {
    pub fn new(dialect: impl Into<Dialect>) -> Self {
        StreamTally::with(dialect.into(), Splitter::default())
    }

    /// A tally whose events are read too, up to this size.
    pub(crate) fn reading(dialect: Dialect, limit: usize) -> Self {
        StreamTally::with(dialect, Splitter::with_limit(limit))
    }

    fn with(dialect: Dialect, splitter: Splitter) -> Self {
        let counts = StreamCounts { dialect, ..StreamCounts::default() };
        StreamTally { splitter, reader: None, counts }
    }

    fn parts(&mut self) -> (&mut Splitter, &mut dyn ReadEvents, &mut StreamCounts) {
        let StreamTally { splitter, reader, counts } = self;
        let reader = reader.get_or_insert_with(counts.dialect.row().reader);
        (splitter, &mut **reader, counts)
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        let (splitter, reader, counts) = self.parts();
        splitter.feed(chunk, |event| counts.take(event, reader));
    }

    /// Takes the next bytes of the stream, and passes what they say to `each`.
    pub(crate) fn read(&mut self, chunk: &[u8], each: Each<'_>) {
        let (splitter, reader, counts) = self.parts();
        splitter.feed(chunk, |event| counts.take_read(event, reader, each));
    }

    /// Ends the stream. A last event without its blank line counts too, as clients read it.
    pub fn finish(&mut self) {
        self.finish_read(&mut |_| {});
    }

    /// Ends the stream, and passes what the rest says to `each`.
    pub(crate) fn finish_read(&mut self, each: Each<'_>) {
        let (splitter, reader, counts) = self.parts();
        splitter.finish(|event| counts.take_read(event, reader, each));
        reader.end(each);
    }

    /// Bytes in memory: incomplete events, and what the reader needs later.
    pub(crate) fn held(&self) -> usize {
        self.splitter.held() + self.reader.as_ref().map_or(0, |reader| reader.held())
    }

    pub fn verdict(&self) -> StreamVerdict {
        self.counts.verdict
    }

    /// The provider's final usage, once it has arrived.
    pub fn usage(&self) -> Option<Usage> {
        let told = self.counts.usage.as_ref().filter(|_| self.counts.all_told);
        told.and_then(|told| told.usage()).or_else(|| self.counts.usage_at_end.clone())
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
        let StreamCounts { begun, ended, .. } = self.counts;
        self.counts.done_seen || (ended != 0 && begun & !ended == 0)
    }

    pub fn done_seen(&self) -> bool {
        self.counts.done_seen
    }

    /// The first error inside the stream.
    pub fn error(&self) -> Option<&StreamError> {
        self.counts.error.as_ref()
    }
}
