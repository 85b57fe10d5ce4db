//! What an event of a stream adds to its counts.

use std::ops::Range;

use crate::neutral::event::{PartKind, StreamEvent};
use crate::usage_object::PartialUsage;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// No data: a comment, a keep-alive.
    Comment,
    /// No content yet: a role, an empty delta, the start of an answer or of a part.
    Preamble,
    /// Content, or the end of a choice. No failover is possible after it.
    Content,
    /// An error in a stream whose status was 200.
    Error(StreamError),
    Done,
    /// A chunk with nothing but the usage.
    Usage,
    /// Data that is not of this protocol, or an unknown event.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The provider's text.
    pub message: String,
    /// The HTTP status that the error names or implies, else 502.
    pub status: u16,
}

/// How an event that is too large to parse is counted. It is content in any case.
pub(crate) enum OversizedRule {
    /// Its bytes count as text.
    Text,
    /// Decides by the first bytes whether the event ends the stream.
    End(fn(&[u8]) -> bool),
    Ignored,
}

#[derive(Debug, Default)]
pub(super) struct EventFacts {
    /// The usage that it reports, and whether that is final.
    pub(super) told: Option<(PartialUsage, bool)>,
    /// Bytes of text that the model wrote.
    pub(super) bytes: u64,
    /// Whether it has content.
    pub(super) says: bool,
    /// Whether it reports usage apart from the start of an answer.
    reports: bool,
    is_unknown: bool,
    /// The choices in this event and the choices that it ends, as sets of bits by index.
    pub(super) choices: u128,
    pub(super) ended: u128,
    pub(super) done: bool,
    pub(super) error: Option<StreamError>,
    /// Its sequence number, if the dialect has one.
    pub(super) number: Option<u64>,
    /// The span of its first text, with quotes, if the text has no escapes.
    pub(super) text: Option<Range<usize>>,
    has_text: bool,
    /// Whether nothing but its first text may differ in an event with the same bytes around it.
    pub(super) is_plain: bool,
}

impl EventFacts {
    pub(super) fn new() -> Self {
        EventFacts { is_plain: true, ..EventFacts::default() }
    }

    /// `within` is the event on the wire.
    pub(super) fn take(&mut self, event: &StreamEvent<'_>, within: &[u8]) {
        match event {
            StreamEvent::Start { usage, .. } => {
                if let Some(usage) = usage {
                    self.told = Some(((*usage).clone(), false));
                }
            }
            StreamEvent::PartStart { part, .. } => {
                self.says = true;
                if let PartKind::ToolCall { name, .. } | PartKind::TextCall { name, .. } = part {
                    self.bytes += name.len() as u64;
                }
            }
            StreamEvent::PartEnd { .. } => {}
            StreamEvent::Delta { text, .. } => {
                if !std::mem::replace(&mut self.has_text, true) {
                    self.text = quoted(text.as_bytes(), within);
                }
                self.bytes += text.len() as u64;
                self.says = true;
            }
            StreamEvent::Choices(choices) => {
                (self.choices, self.ended) = (choices.begun, choices.ended);
                self.bytes += choices.other_bytes;
                self.says |= choices.other_bytes > 0 || choices.ended != 0;
                self.is_plain &= choices.begun.is_power_of_two() && choices.ended == 0;
            }
            rest => {
                self.is_plain = false;
                match rest {
                    StreamEvent::Usage { told, is_final } => {
                        self.told = Some(((*told).clone(), *is_final));
                        self.reports |= told.counts();
                    }
                    StreamEvent::Sequence(number) => self.number = Some(*number),
                    StreamEvent::Stop(_) => self.says = true,
                    StreamEvent::End => self.done = true,
                    StreamEvent::Failed(failure) => {
                        let (message, status) = (failure.message.clone(), failure.status);
                        self.error.get_or_insert(StreamError { message, status });
                    }
                    StreamEvent::Unknown { path, .. } => self.is_unknown |= *path == "event.",
                    StreamEvent::NextMessage => {}
                    StreamEvent::Dropped(lost) => self.says |= lost.is_content(),
                    _ => self.says = true,
                }
            }
        }
    }

    pub(super) fn kind(self) -> EventKind {
        match self {
            EventFacts { error: Some(error), .. } => EventKind::Error(error),
            EventFacts { done: true, .. } => EventKind::Done,
            EventFacts { says: true, .. } => EventKind::Content,
            EventFacts { reports: true, choices: 0, .. } => EventKind::Usage,
            EventFacts { is_unknown: true, .. } => EventKind::Other,
            _ => EventKind::Preamble,
        }
    }
}

/// The span of a string's content, with its quotes, that borrows from `within`.
fn quoted(text: &[u8], within: &[u8]) -> Option<Range<usize>> {
    let start = text.as_ptr().addr().checked_sub(within.as_ptr().addr())?.checked_sub(1)?;
    let range = start..start.checked_add(text.len())?.checked_add(2)?;
    let inner = within.get(range.clone())?.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    (inner == text).then_some(range)
}
