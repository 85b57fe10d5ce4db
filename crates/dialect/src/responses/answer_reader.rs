//! Whole responses, read as streams whose output items are complete.

use super::stream_reader::{ResponseBody, ResponsesStreamReader};
use crate::neutral::event::StreamEvent;
use crate::neutral::failure;

/// Reads a whole response as events.
pub(crate) fn read(body: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
    match serde_json::from_str::<ResponseBody<'_>>(body) {
        Ok(response) => {
            let mut reader = ResponsesStreamReader::default();
            reader.start(&response, each);
            reader.finish(&response, each);
        }
        Err(_) => each(StreamEvent::Failed(failure::unreadable())),
    }
}
