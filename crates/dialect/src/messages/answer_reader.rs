//! Whole messages, read as streams whose blocks are complete from the start.

use super::stream_reader::{MessageBody, MessagesStreamReader};
use crate::neutral::event::StreamEvent;
use crate::neutral::failure;

/// Reads a whole message as events.
pub(crate) fn read(body: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
    match serde_json::from_str::<MessageBody<'_>>(body) {
        Ok(message) => MessagesStreamReader::default().whole(&message, each),
        Err(_) => each(StreamEvent::Failed(failure::unreadable())),
    }
}
