//! Writes what Pingora's proxy has left to write of a live call: nothing, an error event after a
//! stream that broke off, the last provider's answer, an answer of ours, or an error.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderValue, Response, StatusCode};
use pingora::protocols::http::ServerSession;

use super::call::InferenceCall;
use super::error_event::error_event;
use super::exchange::HttpExchange;
use super::failure::AttemptFailure;
use super::outcome::Outcome;
use super::provider_headers::name_call;
use super::respond::{self, RequestEnd, write_answer};
use super::verdict::WholeAnswer;
use rerouter_core::app::App;

/// Writes the rest of the answer. Also returns the bytes that it added to the provider's answer.
pub(super) async fn finish_answer(
    app: &App,
    session: &mut ServerSession,
    exchange: &mut HttpExchange,
    call: &InferenceCall,
    outcome: &Outcome,
) -> (RequestEnd, Bytes) {
    if call.has_panicked() {
        return Box::pin(respond::panicked(app, session, exchange)).await;
    }
    let status = outcome.status.unwrap_or(502);
    if outcome.failure == Some(AttemptFailure::ClientGone) {
        return (RequestEnd::client_gone(session.body_bytes_sent()), Bytes::new());
    }
    if outcome.relay.complete {
        let sent = session.body_bytes_sent();
        return (RequestEnd { status, sent, reusable: true }, Bytes::new());
    }
    call.ends();
    if outcome.relay.committed {
        // The status is sent already. A stream that broke off gets an error event, and every stream
        // its regular end. Any other answer is cut off, so that the client does not take it for
        // whole.
        let event = if outcome.breaks_off() { error_event(call, outcome) } else { Bytes::new() };
        let reusable =
            outcome.is_stream() && session.write_response_body(event.clone(), true).await.is_ok();
        let sent = session.body_bytes_sent();
        return (RequestEnd { status, sent, reusable }, event);
    }
    let mut response = match &outcome.answer {
        Some(last) => pass_on(last),
        None => respond::refuse(exchange, &outcome.error()),
    };
    let may_come_back = response.headers().contains_key(RETRY_AFTER) && outcome.answer.is_none();
    if !outcome.is_good() && !may_come_back {
        // Every target was tried, so a retry would not help. A `Retry-After` of ours means that
        // none was asked.
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    }
    name_call(call, outcome.attempts.len(), None, response.headers_mut());
    let added = if outcome.answer.is_some() { Bytes::new() } else { response.body().clone() };
    (write_answer(app, session, exchange, response, true).await, added)
}

/// The last provider's answer, passed on because no other target had a better one.
fn pass_on(last: &WholeAnswer) -> Response<Bytes> {
    let mut response = Response::new(last.body.clone());
    *response.status_mut() = StatusCode::from_u16(last.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = last.headers.clone();
    for name in [TRANSFER_ENCODING, CONTENT_LENGTH, CONNECTION] {
        response.headers_mut().remove(name);
    }
    response
}
