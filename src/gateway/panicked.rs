//! What becomes of a request in which we panic: that is the end of the request, and of nothing else. While it is served its session
//! has a place outside of what may panic, so that the client is answered.

use bytes::Bytes;
use pingora::protocols::http::ServerSession;

use super::edge::{Ended, answer};
use super::exchange::Exchange;
use super::reply;
use crate::app::App;
use crate::error::Error;

/// Ends a request that panicked: with 500 where the client has nothing yet, else cut off, so that nobody takes what it has for
/// whole. What there was of the request may be half done, and the connection with it: it is closed. Gives what was said, too.
pub(super) async fn end(
    app: &App,
    session: &mut ServerSession,
    exchange: &mut Exchange,
) -> (Ended, Bytes) {
    app.metrics.panic();
    let error = error();
    exchange.refused(&error);
    if let Some(head) = session.response_written().filter(|head| !head.status.is_informational()) {
        let (status, sent) = (head.status.as_u16(), session.body_bytes_sent());
        return (Ended { status, sent, reusable: false }, Bytes::new());
    }
    let response = reply::error(exchange.surface, exchange.id.as_str(), &error);
    let said = response.body().clone();
    (answer(session, exchange, response, false).await, said)
}

/// What the client is told.
pub(super) fn error() -> Error {
    Error::internal("a panic")
}
