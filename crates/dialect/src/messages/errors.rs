//! Errors in Anthropic's form.

use serde_json::{Value, json};

use rerouter_base::error::Error;

/// The error type that Anthropic documents for this status.
pub(crate) fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// The error object of an answer's body and of a stream's `error` event.
pub fn error_body(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

pub fn envelope(error: &Error, request_id: &str) -> Value {
    let mut body = error_body(error_type(error.kind().row().status), error.detail());
    if let Value::Object(body) = &mut body {
        body.insert("request_id".into(), request_id.into());
    }
    body
}

/// The last event of a stream.
pub fn event(error: &Error, request_id: &str, _number: u64) -> String {
    format!("event: error\ndata: {}\n\n", envelope(error, request_id))
}
