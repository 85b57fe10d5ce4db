//! Writes provider failures in Anthropic's form.

use std::borrow::Cow;

use crate::neutral::answer::{Failure, FailureKind};
use crate::neutral::failure::TOO_LONG_CODE;
use crate::neutral::json_text::{Quoted, put};

/// Text by which Anthropic's clients recognize a prompt that is too long; no code exists for it.
const TOO_LONG: &str = "prompt is too long";

/// Writes the error object of an answer or of a stream's `error` event.
pub fn write(failure: &Failure, out: &mut Vec<u8>) {
    let kind = match failure.kind {
        FailureKind::InvalidRequest => "invalid_request_error",
        FailureKind::Authentication => "authentication_error",
        FailureKind::Billing => "billing_error",
        FailureKind::Permission => "permission_error",
        FailureKind::NotFound => "not_found_error",
        FailureKind::TooLarge => "request_too_large",
        FailureKind::RateLimit => "rate_limit_error",
        FailureKind::Overloaded => "overloaded_error",
        FailureKind::Timeout => "timeout_error",
        FailureKind::Internal => "api_error",
    };
    let unsaid = failure.code.as_deref() == Some(TOO_LONG_CODE);
    let message = if unsaid && !failure.message.contains(TOO_LONG) {
        Cow::Owned(format!("{TOO_LONG}: {}", failure.message))
    } else {
        Cow::Borrowed(&*failure.message)
    };
    put!(out, "{\"type\":\"error\",\"error\":{\"type\":", Quoted(kind), ",\"message\":");
    put!(out, Quoted(&message), "}}");
}
