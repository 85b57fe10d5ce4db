//! Writes OpenAI's errors inside a stream of responses. Errors of whole answers have the form of
//! chat completions.

use crate::chat::failure::words;
use crate::neutral::answer::Failure;
use crate::neutral::json_text::{Quoted, put};

/// Writes the `error` event.
pub(crate) fn write_event(failure: &Failure, number: u64, out: &mut Vec<u8>) {
    let (_, code) = words(failure);
    put!(out, "event: error\ndata: {\"type\":\"error\",\"code\":", code, ",\"message\":");
    put!(out, Quoted(&failure.message), ",\"param\":", failure.param.as_deref());
    put!(out, ",\"sequence_number\":", number, "}\n\n");
}
