//! Renders errors, in one envelope for each surface, and writes whole answers to the client's
//! session.

use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use pingora::ErrorType;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use serde_json::{Value, json};
use tokio::time::timeout;

use rerouter_base::error::{Error, Kind};
use rerouter_base::interface::Surface;
use rerouter_core::app::App;
use rerouter_dialect::{chat, messages};

/// Bytes of memory that a call takes while its whole answer waits to be read, without the answer.
const UNREAD_ANSWER: usize = 16 << 10;
/// A client must read this many bytes of a whole answer, or all of a smaller one, within
/// [`UNREAD_TIME`].
const UNREAD_PIECE: usize = 64 << 10;
/// Longest wait for a client that does not read a whole answer.
pub(super) const UNREAD_TIME: Duration = Duration::from_secs(10);

pub(super) fn error(surface: Surface, request_id: &str, error: &Error) -> Response<Bytes> {
    let body = envelope(surface, request_id, error);
    let mut response = json_response(error.status(), &body);
    let headers = response.headers_mut();
    if error.kind() == Kind::Unauthorized {
        for challenge in challenges(surface) {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
    }
    if let Some(allow) = error.allow().and_then(|allow| HeaderValue::from_str(allow).ok()) {
        headers.insert(ALLOW, allow);
    }
    if let Some(codings) = error.codings() {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(codings));
    }
    if let Some(seconds) = error.retry_after_s() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.forbids_retry() {
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

pub(super) fn json_response(status: StatusCode, body: &Value) -> Response<Bytes> {
    json_bytes(status, Bytes::from(body.to_string()))
}

pub(super) fn json_bytes(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn envelope(surface: Surface, request_id: &str, error: &Error) -> Value {
    let row = error.kind().row();
    match surface {
        Surface::Agent if error.kind() == Kind::Unauthorized => json!({"error": "Unauthorized"}),
        Surface::Agent => {
            let reason = error.status().canonical_reason().unwrap_or("Error");
            json!({"error": reason, "detail": error.detail()})
        }
        Surface::DataPlane => chat::errors::envelope(error),
        Surface::Messages => messages::errors::envelope(error, request_id),
        Surface::Pin | Surface::Console | Surface::NodeCallback | Surface::RouterManagement => {
            match error.field() {
                Some(field) if row.status == 400 => {
                    json!({"error": row.word, "detail": error.detail(), "field": field})
                }
                _ => json!({"error": row.word, "detail": error.detail()}),
            }
        }
    }
}

/// The error code in the access log: the code in the client's envelope, if it has one.
pub(super) fn word(surface: Surface, error: &Error) -> &'static str {
    let row = error.kind().row();
    if surface.is_data_plane() { row.openai_code.unwrap_or(row.word) } else { row.word }
}

/// The `WWW-Authenticate` challenges of a 401 (RFC 9110 section 11.6.1).
fn challenges(surface: Surface) -> &'static [&'static str] {
    match surface {
        Surface::Agent => &["Bearer realm=\"agent\"", "ApiKey realm=\"agent\""],
        Surface::Pin | Surface::Console => &["Bearer realm=\"pin\""],
        Surface::NodeCallback => &["Signature realm=\"pin-node-agent\""],
        Surface::RouterManagement | Surface::Messages | Surface::DataPlane => {
            &["Bearer realm=\"router\""]
        }
    }
}

pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(super) static ANTHROPIC_REQUEST_ID: HeaderName = messages::REQUEST_ID_HEADER;

/// Writes a whole answer and returns the number of bytes in its body. Without `keep`, the answer
/// announces that the connection closes. Fails if the client does not read.
pub(super) async fn write(
    app: &App,
    session: &mut ServerSession,
    response: Response<Bytes>,
    keep: bool,
) -> pingora::Result<usize> {
    if !keep || app.is_leaving() {
        session.set_keepalive(None);
    }
    session.set_write_timeout(Some(UNREAD_TIME));
    let peer = peer(session);
    let (mut parts, mut body) = response.into_parts();
    let bodiless = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !bodiless {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let head = ResponseHeader::from(parts);
    let no_body = bodiless || session.req_header().method == Method::HEAD || body.is_empty();
    let length = body.len();
    in_time(session.write_response_header(Box::new(head))).await?;
    if no_body {
        in_time(session.finish_body()).await?;
        return Ok(0);
    }
    while !body.is_empty() {
        let held = body.len() + UNREAD_ANSWER;
        let piece = body.split_to(body.len().min(UNREAD_PIECE));
        let write = pin!(session.write_response_body(piece, body.is_empty()));
        let written = app.unread.write(|| (app.server.counted(peer), held), write).await;
        written.unwrap_or_else(unread)?;
    }
    Ok(length)
}

/// Ends a write after [`UNREAD_TIME`]: Pingora's own timeout covers bodies only.
pub(super) async fn in_time<T>(
    writing: impl Future<Output = pingora::Result<T>>,
) -> pingora::Result<T> {
    timeout(UNREAD_TIME, writing).await.unwrap_or_else(|_| unread())
}

/// The error that ends an answer because its client does not read.
pub(super) fn unread<T>() -> pingora::Result<T> {
    let why = "the client does not read";
    Err(pingora::Error::explain(ErrorType::WriteTimedout, why).into_down())
}

pub(super) fn peer(session: &ServerSession) -> Option<IpAddr> {
    Some(session.client_addr()?.as_inet()?.ip().to_canonical())
}

/// Writes an error for a head that Pingora could not parse. The connection closes.
pub(super) async fn write_unparsed(session: &mut ServerSession, response: Response<Bytes>) {
    let (parts, body) = response.into_parts();
    let Ok(mut head) = ResponseHeader::build(parts.status, Some(4)) else { return };
    for (name, value) in &parts.headers {
        if head.append_header(name.clone(), value.clone()).is_err() {
            return;
        }
    }
    if head.insert_header(CONTENT_LENGTH, body.len()).is_ok() {
        // Fails only if the client has left.
        let _ = in_time(session.write_error_response(head, body)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(surface: Surface, refusal: &Error) -> String {
        String::from_utf8(error(surface, "req_1", refusal).into_body().to_vec()).unwrap()
    }

    #[test]
    fn other_refusals_keep_their_words() {
        let refusal = Error::invalid("limit", "Too large.")
            .retry_after(std::time::Duration::from_millis(1200));
        assert_eq!(
            body(Surface::Pin, &refusal),
            r#"{"error":"invalid_request","detail":"Too large.","field":"limit"}"#
        );
        assert_eq!(
            body(Surface::Agent, &refusal),
            r#"{"error":"Bad Request","detail":"Too large."}"#
        );
        assert_eq!(error(Surface::Pin, "", &refusal).headers()[RETRY_AFTER], "2");
    }
}
