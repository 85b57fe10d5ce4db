//! Reads errors of providers in any form.

use serde_json::Value;

use super::answer::{Failure, FailureKind};
use super::size;

/// Limit on characters of a provider's plain text that are kept as the message.
const TEXT_CHARS: usize = 2_000;

/// OpenAI's error code for a prompt that is too long.
pub(crate) const TOO_LONG_CODE: &str = "context_length_exceeded";

pub fn unreadable() -> Failure {
    internal("The provider's answer cannot be read.")
}

pub(crate) fn ended_early() -> Failure {
    internal("The provider's stream ended before its answer was whole.")
}

pub(crate) fn no_memory() -> Failure {
    let message = "Too many bodies are in memory. Retry in a second.".to_owned();
    Failure { status: 503, kind: FailureKind::Overloaded, message, ..too_long() }
}

pub(crate) fn unfinished() -> Failure {
    internal("The provider did not finish its answer.")
}

pub fn too_long() -> Failure {
    internal("The provider's answer is too long to be translated.")
}

pub fn internal(message: &str) -> Failure {
    Failure {
        status: 502,
        kind: FailureKind::Internal,
        code: None,
        message: message.to_owned(),
        param: None,
    }
}

/// Reads an error answer in any form: OpenAI's, Anthropic's or Google's envelope, a bare object,
/// plain text or HTML.
pub fn read(status: u16, body: &[u8]) -> Failure {
    let body = if size::is_too_large(body) { &[] } else { body };
    match serde_json::from_slice::<Value>(body) {
        Ok(value) if !value.is_null() => of_value(Some(status), &value),
        _ => {
            let message = plain(status, &String::from_utf8_lossy(body));
            Failure { status, kind: kind_of_status(status), ..internal(&message) }
        }
    }
}

/// Reads an error inside a stream or a successful answer. Its status is derived from its content.
pub(crate) fn read_in_band(raw: &str) -> Failure {
    let value = serde_json::from_str(raw).unwrap_or_else(|_| Value::from(raw));
    of_value(None, &value)
}

fn of_value(status: Option<u16>, value: &Value) -> Failure {
    // Google wraps some errors into a list. Others use the member `error` or `detail`.
    let value = value.get(0).unwrap_or(value);
    let is_told = value.get("message").is_some_and(Value::is_string);
    let inner = |name: &&str| value.get(*name).filter(|inner| !inner.is_null() && !is_told);
    let error = ["error", "detail"].iter().find_map(inner).unwrap_or(value);
    let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let number = |name: &str| error.get(name).and_then(number_of);
    let words = [text("code"), text("status"), text("type")];
    let kind = words.into_iter().flatten().find_map(kind_of_word);
    let named = ["status", "status_code", "code"].into_iter().find_map(number);
    let status = status.or(named).unwrap_or_else(|| kind.map_or(502, |kind| kind as u16));
    let whole = || error.as_str().map_or_else(|| error.to_string(), str::to_owned);
    let message = text("message").map_or_else(whole, str::to_owned);
    let long = ["prompt is too long", "exceeds the maximum number of tokens"];
    let code = text("code").map(str::to_owned);
    let code = code.or_else(|| {
        long.iter().any(|words| message.contains(words)).then(|| TOO_LONG_CODE.to_owned())
    });
    Failure {
        status,
        kind: kind.unwrap_or_else(|| kind_of_status(status)),
        code,
        message: shortened(&message),
        param: text("param").map(str::to_owned),
    }
}

fn number_of(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// The message of a body without JSON. Of an HTML page only the title is kept.
fn plain(status: u16, body: &str) -> String {
    let text = body.trim();
    if text.is_empty() {
        return format!("The provider answered with status {status} and no message.");
    }
    if !text.starts_with('<') {
        return shortened(text);
    }
    let lower = text.to_ascii_lowercase();
    let title = lower.find("<title>").map(|at| at + "<title>".len()).and_then(|start| {
        let length = lower.get(start..)?.find("</title>")?;
        Some(text.get(start..start + length)?.trim())
    });
    match title {
        Some(title) if !title.is_empty() => shortened(title),
        _ => format!("The provider answered with status {status} and a page of HTML."),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn kind_of_word(word: &str) -> Option<FailureKind> {
    Some(match word {
        "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => {
            FailureKind::Authentication
        }
        "billing_error" => FailureKind::Billing,
        "permission_error" | "PERMISSION_DENIED" => FailureKind::Permission,
        "not_found_error" | "model_not_found" | "NOT_FOUND" => FailureKind::NotFound,
        "request_too_large" => FailureKind::TooLarge,
        "rate_limit_error"
        | "rate_limit_exceeded"
        | "insufficient_quota"
        | "tokens"
        | "requests"
        | "RESOURCE_EXHAUSTED" => FailureKind::RateLimit,
        "overloaded_error" | "overloaded" | "service_unavailable" | "UNAVAILABLE" => {
            FailureKind::Overloaded
        }
        "timeout_error" | "vector_store_timeout" | "DEADLINE_EXCEEDED" => FailureKind::Timeout,
        "api_error" | "server_error" | "internal_error" | "INTERNAL" | "UNKNOWN" => {
            FailureKind::Internal
        }
        "FAILED_PRECONDITION" | "INVALID_ARGUMENT" | "OUT_OF_RANGE" | TOO_LONG_CODE => {
            FailureKind::InvalidRequest
        }
        word if word.starts_with("invalid_") => FailureKind::InvalidRequest,
        _ => return None,
    })
}

fn kind_of_status(status: u16) -> FailureKind {
    match status {
        401 => FailureKind::Authentication,
        402 => FailureKind::Billing,
        403 => FailureKind::Permission,
        404 => FailureKind::NotFound,
        408 | 504 => FailureKind::Timeout,
        413 => FailureKind::TooLarge,
        429 => FailureKind::RateLimit,
        503 | 529 => FailureKind::Overloaded,
        500.. => FailureKind::Internal,
        _ => FailureKind::InvalidRequest,
    }
}
