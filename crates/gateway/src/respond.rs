//! Ends a request with the result of its stages: writes a whole answer or a refusal, and decides
//! whether the connection stays open. `progress_stream.rs` writes answers line by line.

use bytes::Bytes;
use http::{HeaderValue, Response};
use pingora::protocols::http::ServerSession;

use super::exchange::HttpExchange;
use super::intake::DISCARD_BYTES;
use super::{allowance, answers, intake};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind};
use rerouter_base::interface::Surface;
use rerouter_console as console;
use rerouter_core::app::App;

pub(super) struct RequestEnd {
    /// 499 where the client left before the end of its answer.
    pub(super) status: u16,
    /// Bytes of the response body.
    pub(super) sent: usize,
    pub(super) reusable: bool,
}

impl RequestEnd {
    /// Pingora's proxy did not return the session, so there is nobody to answer.
    pub(super) const GONE: RequestEnd = RequestEnd { status: 500, sent: 0, reusable: false };

    /// The client left after `sent` bytes of its answer.
    pub(super) const fn client_gone(sent: usize) -> RequestEnd {
        RequestEnd { status: 499, sent, reusable: false }
    }
}

pub(super) enum StageAnswer {
    /// A whole answer, still to be written.
    Whole(Response<Bytes>),
    Written(RequestEnd),
}

pub(super) struct RequestRefusal {
    error: Error,
    /// The end of the request is known, so the connection may be kept.
    framed: bool,
}

impl RequestRefusal {
    /// The framing of the request is in doubt: the connection closes.
    pub(super) fn unframed(error: Error) -> Self {
        RequestRefusal { error, framed: false }
    }
}

impl From<Error> for RequestRefusal {
    fn from(error: Error) -> Self {
        RequestRefusal { error, framed: true }
    }
}

pub(super) async fn respond(
    app: &App,
    session: &mut ServerSession,
    exchange: &mut HttpExchange,
    answer: Result<StageAnswer, RequestRefusal>,
) -> RequestEnd {
    match answer {
        Ok(StageAnswer::Written(ended)) => ended,
        Ok(StageAnswer::Whole(response)) => {
            write_answer(app, session, exchange, response, true).await
        }
        Err(RequestRefusal { error, framed }) => {
            let response = refuse(exchange, &error);
            let ended = write_answer(app, session, exchange, response, framed).await;
            // A client that left amid its body gets no answer.
            let is_left = matches!(error.cause(), Some("ConnectionClosed" | "ReadError"));
            if is_left { RequestEnd::client_gone(0) } else { ended }
        }
    }
}

/// Notes a refusal in the access line and renders it for the surface of the request, for a browser
/// on the console as a page.
pub(super) fn refuse(exchange: &mut HttpExchange, error: &Error) -> Response<Bytes> {
    exchange.refused(error);
    match &exchange.page {
        Some(ask) => console::refuse(ask, error),
        None => answers::error(exchange.surface, exchange.id.as_str(), error),
    }
}

/// If `framed`, drains the unread rest of the body, within limits, and keeps the connection.
pub(super) async fn write_answer(
    app: &App,
    session: &mut ServerSession,
    exchange: &HttpExchange,
    mut response: Response<Bytes>,
    framed: bool,
) -> RequestEnd {
    name_request(exchange, &mut response);
    let status = response.status().as_u16();
    let keep = framed && !exchange.skip_drain && intake::drain(session).await;
    match answers::write(app, session, response, keep).await {
        Ok(sent) => {
            if !keep && !exchange.skip_drain && !session.is_body_done() {
                intake::discard(session, DISCARD_BYTES).await;
            }
            RequestEnd { status, sent, reusable: keep }
        }
        Err(_) => RequestEnd::client_gone(session.body_bytes_sent()),
    }
}

/// Ends a request that panicked: with 500 if nothing of its answer was written. Else the answer is
/// cut off, so that the client does not take it for complete. The connection closes. Also returns
/// the body that was written.
pub(super) async fn panicked(
    app: &App,
    session: &mut ServerSession,
    exchange: &mut HttpExchange,
) -> (RequestEnd, Bytes) {
    app.metrics.process.panics.inc();
    let error = panic_error();
    if let Some(head) = session.response_written().filter(|head| !head.status.is_informational()) {
        exchange.refused(&error);
        let (status, sent) = (head.status.as_u16(), session.body_bytes_sent());
        return (RequestEnd { status, sent, reusable: false }, Bytes::new());
    }
    let response = refuse(exchange, &error);
    let body = response.body().clone();
    (write_answer(app, session, exchange, response, false).await, body)
}

pub(super) fn panic_error() -> Error {
    Error::internal("a panic")
}

/// Adds the request id and the headers that tell what is left of the caller's limits.
pub(super) fn name_request(exchange: &HttpExchange, response: &mut Response<Bytes>) {
    allowance::name_rates(&exchange.rates, response.headers_mut());
    if let Ok(id) = HeaderValue::from_str(exchange.id.as_str()) {
        response.headers_mut().insert(&answers::REQUEST_ID, id.clone());
        if exchange.surface == Surface::Messages {
            response.headers_mut().insert(&answers::ANTHROPIC_REQUEST_ID, id);
        }
    }
}

/// Refuses a request on a reserve slot, without a warning: the log names the limit once a minute.
pub(super) async fn turn_away(
    app: &App,
    session: &mut ServerSession,
    exchange: &mut HttpExchange,
) -> RequestEnd {
    let error = Error::new(Kind::Unavailable, "There are too many connections; try again.")
        .retry_after(bounds::LIMIT_RETRY);
    exchange.line.error = Some(error.kind().row().word.to_string());
    let response = answers::error(exchange.surface, exchange.id.as_str(), &error);
    write_answer(app, session, exchange, response, false).await
}
