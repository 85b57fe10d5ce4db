//! Answers of `generateContent`, read as a stream with one chunk.

use super::stream_reader::GeminiStreamReader;
use crate::neutral::answer::StopReason;
use crate::neutral::event::StreamEvent;

/// Reads a whole answer as events.
pub(crate) fn read(body: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
    let mut reader = GeminiStreamReader::default();
    reader.event(body, each);
    if !reader.has_stopped() {
        // The document is complete, so the answer is too. Clients need a stop reason.
        each(StreamEvent::Stop(StopReason::End));
    }
    reader.done(each);
}
