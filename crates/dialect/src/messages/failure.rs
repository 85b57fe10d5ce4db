//! Writes provider failures in Anthropic's form.

use std::borrow::Cow;

use super::errors::error_type;
use crate::neutral::answer::Failure;
use crate::neutral::failure::TOO_LONG_CODE;
use crate::neutral::json_text::{Quoted, put};

/// Text by which Anthropic's clients recognize a prompt that is too long; no code exists for it.
const TOO_LONG: &str = "prompt is too long";

/// Writes the error object of an answer or of a stream's `error` event.
pub fn write(failure: &Failure, out: &mut Vec<u8>) {
    let unsaid = failure.code.as_deref() == Some(TOO_LONG_CODE);
    let message = if unsaid && !failure.message.contains(TOO_LONG) {
        Cow::Owned(format!("{TOO_LONG}: {}", failure.message))
    } else {
        Cow::Borrowed(&*failure.message)
    };
    let kind = error_type(failure.kind as u16);
    put!(out, "{\"type\":\"error\",\"error\":{\"type\":", Quoted(kind), ",\"message\":");
    put!(out, Quoted(&message), "}}");
}
