//! Messages: each block is read as one that starts whole.

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
