//! The filter that every provider answer passes on its way to the client. Only here are our
//! credentials masked if an answer repeats them, in its headers and in its body, however the body
//! is cut into pieces. The filter also removes the usage of a stream if the client did not ask for
//! it, and translates an answer in another dialect than the client's, after the masking.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};

use super::answer_translation::{AnswerPlan, AnswerTranslation, DROPPED, WholeTranslation};
use rerouter_base::secret::{Mask, StreamMask};
use rerouter_dialect::chat::usage_strip::UsageStrip;
use rerouter_dialect::stream::StreamTally;
use rerouter_dialect::wire::sse::{Splitter, ends_event};

/// The memory of a translated stream is counted in steps of this many bytes.
const HELD_STEP: usize = 4 << 10;
/// Most bytes of an event that are held until it is whole. Of a larger one, pieces pass.
const HELD_EVENT: usize = 64 << 10;

/// Puts stars in the place of our credentials in the headers of an answer.
pub(super) fn mask_headers(headers: &mut HeaderMap, credentials: &Mask) {
    for value in headers.values_mut().filter(|value| credentials.matches(value.as_bytes())) {
        let masked = credentials.mask(Bytes::copy_from_slice(value.as_bytes()));
        // Headers allow a star wherever they allow another visible character.
        *value = HeaderValue::from_maybe_shared(masked).unwrap_or(HeaderValue::from_static("*"));
    }
}

/// What is done to the events of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EventFilter {
    /// Nothing: it is no stream, or an error.
    Off,
    /// Each is kept until it is whole, so that a stream never breaks off inside one.
    Whole,
    /// The same, and the usage is removed.
    WithoutUsage,
}

impl EventFilter {
    pub(super) fn of(is_stream: bool, strips_usage: bool) -> Self {
        match (is_stream, strips_usage) {
            (false, _) => EventFilter::Off,
            (true, false) => EventFilter::Whole,
            (true, true) => EventFilter::WithoutUsage,
        }
    }
}

/// Whether the bytes are one line with a comment. Some providers send such lines to keep a
/// connection, without a blank line.
fn is_comment(bytes: &[u8]) -> bool {
    bytes.starts_with(b":") && memchr::memchr(b'\n', bytes) == Some(bytes.len() - 1)
}

pub(super) struct AnswerFilter {
    mask: StreamMask,
    events: Splitter,
    usage: UsageStrip,
    translation: Option<AnswerTranslation>,
}

impl Default for AnswerFilter {
    fn default() -> Self {
        AnswerFilter {
            mask: StreamMask::default(),
            events: Splitter::with_limit(HELD_EVENT),
            usage: UsageStrip::default(),
            translation: None,
        }
    }
}

impl AnswerFilter {
    pub(super) fn translating(plan: &AnswerPlan, status: u16, stream: bool) -> Self {
        let translation = Some(AnswerTranslation::begin(plan, status, stream));
        AnswerFilter { translation, ..AnswerFilter::default() }
    }

    /// Whether `piece`, the next of the body, passes unchanged.
    pub(super) fn passes(
        &self,
        piece: &[u8],
        credentials: Option<&Mask>,
        events: EventFilter,
    ) -> bool {
        let are_whole = match events {
            EventFilter::Off => true,
            EventFilter::Whole => {
                self.events.is_between_events() && (ends_event(piece) || is_comment(piece))
            }
            EventFilter::WithoutUsage => false,
        };
        are_whole
            && self.translation.is_none()
            && credentials.is_none_or(|credentials| self.mask.passes(credentials, piece))
    }

    /// Takes the next piece of the body, the last one if `end`, and returns the bytes that are
    /// ready for the client. The filter keeps the others until more comes.
    pub(super) fn feed(
        &mut self,
        piece: Bytes,
        end: bool,
        credentials: Option<&Mask>,
        events: EventFilter,
    ) -> Bytes {
        let mut left = match credentials {
            Some(credentials) => self.mask.feed(credentials, piece),
            None => piece,
        };
        if end {
            left = joined(left, self.mask.finish());
        }
        if let Some(translation) = &mut self.translation {
            // The translation decodes what the provider escaped, so credentials can appear only
            // now.
            let left = translation.feed(&left, end);
            return match credentials {
                Some(credentials) => credentials.mask(left),
                None => left,
            };
        }
        match events {
            EventFilter::Off => left,
            EventFilter::Whole => self.whole_events(&left, end),
            EventFilter::WithoutUsage => {
                let left = self.usage.feed(&left);
                if end { joined(left, self.usage.finish()) } else { left }
            }
        }
    }

    fn whole_events(&mut self, bytes: &[u8], end: bool) -> Bytes {
        let mut out = BytesMut::with_capacity(bytes.len());
        self.events.feed(bytes, |event| out.extend_from_slice(event.bytes()));
        if end {
            self.events.finish(|event| {
                if !event.is_cut() {
                    out.extend_from_slice(event.bytes());
                }
            });
        }
        out.freeze()
    }

    /// The translation, if it keeps the answer until it is whole.
    pub(super) fn whole(&self) -> Option<&WholeTranslation> {
        match &self.translation {
            Some(AnswerTranslation::Whole(whole)) => Some(whole),
            _ => None,
        }
    }

    /// The counts of a stream that is translated.
    pub(super) fn tally(&self) -> Option<&StreamTally> {
        match &self.translation {
            Some(AnswerTranslation::Stream { translator, .. }) => Some(translator.tally()),
            _ => None,
        }
    }

    /// The header that lists what a translation left out, if the answer added to the list. A
    /// provider may name a member by our credential.
    pub(super) fn dropped(&self, credentials: Option<&Mask>) -> Option<HeaderValue> {
        let mut headers = HeaderMap::new();
        headers.insert(&DROPPED, self.translation.as_ref()?.dropped()?);
        if let Some(credentials) = credentials {
            mask_headers(&mut headers, credentials);
        }
        headers.remove(&DROPPED)
    }

    /// Bytes kept for translation. For a stream the number is rounded up to a multiple of
    /// [`HELD_STEP`], because the exact number changes with each event.
    pub(super) fn held(&self) -> usize {
        match &self.translation {
            Some(AnswerTranslation::Stream { translator, .. }) => {
                translator.held().next_multiple_of(HELD_STEP)
            }
            Some(AnswerTranslation::Whole(whole)) => whole.held(),
            None => 0,
        }
    }

    /// Ends a translated stream for lack of memory. Returns its last event.
    pub(super) fn give_up(&mut self) -> Bytes {
        let mut event = Vec::new();
        if let Some(AnswerTranslation::Stream { translator, failed, .. }) = &mut self.translation {
            translator.give_up(&mut event);
            *failed = translator.has_failed();
        }
        event.into()
    }

    /// Whether a translated stream was given up: its bytes are not in the provider's dialect, or
    /// are an error.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.translation, Some(AnswerTranslation::Stream { failed: true, .. }))
    }

    /// The last event of a translated stream that broke off, in the client's dialect. Empty if the
    /// client already has a last event.
    pub(super) fn break_off(&mut self) -> Option<Bytes> {
        match &mut self.translation {
            Some(AnswerTranslation::Stream { translator, .. }) => {
                let mut event = Vec::new();
                translator.break_off(&mut event);
                Some(event.into())
            }
            _ => None,
        }
    }
}

pub(super) fn joined(first: Bytes, second: Bytes) -> Bytes {
    if second.is_empty() { first } else { [first, second].concat().into() }
}
