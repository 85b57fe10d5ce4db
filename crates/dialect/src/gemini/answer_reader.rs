//! Answers of `generateContent`: the only chunk of a stream.

use super::stream_reader::GeminiStreamReader;
use crate::neutral::answer::StopReason;
use crate::neutral::event::StreamEvent;

/// Reads a whole answer as events.
pub(crate) fn read(body: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
    let mut reader = GeminiStreamReader::default();
    reader.event(body, each);
    if !reader.has_stopped() {
        // A whole document is a whole answer; clients wait for a reason.
        each(StreamEvent::Stop(StopReason::End));
    }
    reader.done(each);
}
