//! Writes provider failures in OpenAI's form.

use crate::neutral::answer::{Failure, FailureKind};
use crate::neutral::json_text::{Quoted, put};

/// Writes the error object of an answer, or of a stream of chat completions.
pub fn write(failure: &Failure, out: &mut Vec<u8>) {
    let (kind, code) = words(failure);
    put!(out, "{\"error\":{\"message\":", Quoted(&failure.message), ",\"type\":", Quoted(kind));
    put!(out, ",\"param\":", failure.param.as_deref(), ",\"code\":", code, "}}");
}

/// OpenAI's `type` and `code` of an error.
pub fn words(failure: &Failure) -> (&'static str, Option<&str>) {
    let (kind, code) = match failure.kind {
        FailureKind::InvalidRequest | FailureKind::TooLarge => ("invalid_request_error", None),
        FailureKind::Authentication => ("authentication_error", Some("invalid_api_key")),
        FailureKind::Billing => ("insufficient_quota", Some("insufficient_quota")),
        FailureKind::Permission => ("permission_error", None),
        FailureKind::NotFound => ("invalid_request_error", None),
        FailureKind::RateLimit => ("rate_limit_error", Some("rate_limit_exceeded")),
        FailureKind::Overloaded => ("server_error", Some("overloaded")),
        FailureKind::Timeout => ("server_error", Some("timeout")),
        FailureKind::Internal => ("server_error", Some("provider_error")),
    };
    (kind, failure.code.as_deref().or(code))
}
