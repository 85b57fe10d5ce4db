//! Whole chat completions, whose message is read as one large delta.

use super::chunk::CompletionChunk;
use super::stream_reader::ChatStreamReader;
use crate::neutral::answer::StopReason;
use crate::neutral::event::StreamEvent;
use crate::neutral::failure;

/// Reads a whole chat completion as events.
pub(crate) fn read(body: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
    let Ok(chunk) = serde_json::from_str::<CompletionChunk<'_>>(body) else {
        return each(StreamEvent::Failed(failure::unreadable()));
    };
    let mut reader = ChatStreamReader::default();
    reader.take(&chunk, each);
    if !reader.has_stopped() {
        // The document is complete, so the answer is too. Clients need a stop reason.
        each(StreamEvent::Stop(StopReason::End));
    }
    reader.done(each);
}
