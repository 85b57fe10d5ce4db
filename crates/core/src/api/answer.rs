//! Responses of handlers.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value};

pub(super) fn json(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A JSON response with a secret, which no cache may keep.
pub(super) fn secret_json(status: StatusCode, body: &Value) -> Response<Bytes> {
    let mut response = json(status, body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// As [`secret_json`], for serialized JSON.
pub(super) fn secret_text(status: StatusCode, body: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::copy_from_slice(body.as_bytes()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The answer to a change that gateways may not know of: 202 with their names. Without any it stays
/// as it is.
pub(super) fn confirmed(
    mut response: Response<Bytes>,
    unconfirmed: Vec<String>,
) -> Response<Bytes> {
    if unconfirmed.is_empty() {
        return response;
    }
    let mut body: Map<String, Value> = serde_json::from_slice(response.body()).unwrap_or_default();
    body.insert("unconfirmed".to_owned(), unconfirmed.into());
    *response.status_mut() = StatusCode::ACCEPTED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.body_mut() = Bytes::from(Value::Object(body).to_string());
    response
}

/// 204 without a body.
pub(super) fn no_content() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
