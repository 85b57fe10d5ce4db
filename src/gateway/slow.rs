//! Answers of `api/` that take their time: the client is watched while it waits, and may read lines of progress.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderValue, Response, Version};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;

use super::admission::Admission;
use super::edge::{Edge, Ended, answer, for_handler, name_request, refuse};
use super::exchange::Exchange;
use super::reply;
use crate::api::{Slow, SlowHandler, Step, Takes};
use crate::body_memory::BodyClass;
use crate::error::{Error, Kind, Result};

/// Answers a call whose work ends when the client leaves.
pub(super) async fn run(
    edge: &Edge,
    session: &mut ServerSession,
    exchange: &mut Exchange,
    (handler, takes): (SlowHandler, Takes),
    admitted: &Admission,
) -> Ended {
    let mut held = edge.app.body_memory.begin(BodyClass::Management);
    let body = match edge.management_body(session, takes, &mut held).await {
        Ok(body) => body,
        Err(error) => {
            let framed = error.kind() == Kind::UnsupportedMediaType;
            return refuse(session, exchange, error, framed).await;
        }
    };
    let fresh = match edge.still_good(exchange, session, admitted) {
        Ok(fresh) => fresh,
        Err(error) => return refuse(session, exchange, error, true).await,
    };
    let principal = fresh.as_ref().unwrap_or(admitted.principal());
    exchange.line.bytes_in = body.len() as u64;
    let request = for_handler(session, exchange, admitted, body);
    let slow = match handler(&edge.app, principal, &request).await {
        Ok(slow) => slow,
        Err(error) => return refuse(session, exchange, error, true).await,
    };
    drop((request, held));
    follow(session, exchange, slow).await
}

/// Nothing is written until there is something to write: what is refused before the first line has its own status.
async fn follow(session: &mut ServerSession, exchange: &mut Exchange, mut slow: Slow) -> Ended {
    let mut sent = None;
    loop {
        let step = tokio::select! {
            biased;
            step = slow.steps.recv() => step,
            // The client is gone, or talks out of turn: nobody reads what is being worked out.
            _ = session.read_body_or_idle(true) => {
                return Ended { status: 499, sent: sent.unwrap_or(0), reusable: false };
            }
        };
        let done = match step {
            Some(Step::Line(_)) if !slow.lines => continue,
            Some(Step::Line(line)) => {
                if write_line(session, exchange, &mut sent, line.to_string()).await.is_err() {
                    return Ended { status: 200, sent: sent.unwrap_or(0), reusable: false };
                }
                continue;
            }
            Some(Step::Answer(done)) => done,
            None => Err(Error::panicked("a slow answer never came")),
        };
        return finish(session, exchange, done, slow.lines, sent).await;
    }
}

async fn finish(
    session: &mut ServerSession,
    exchange: &mut Exchange,
    done: Result<Response<Bytes>>,
    lines: bool,
    sent: Option<usize>,
) -> Ended {
    let begun = sent.is_some();
    match done {
        Ok(response) if !lines || (!begun && !response.status().is_success()) => {
            answer(session, exchange, response, true).await
        }
        Err(error) if !begun => refuse(session, exchange, error, true).await,
        Ok(response) => {
            last_line(session, exchange, sent, &String::from_utf8_lossy(response.body())).await
        }
        Err(error) => {
            exchange.refused(&error);
            let rendered = reply::error(exchange.surface, exchange.id.as_str(), &error);
            last_line(session, exchange, sent, &String::from_utf8_lossy(rendered.body())).await
        }
    }
}

async fn last_line(
    session: &mut ServerSession,
    exchange: &Exchange,
    mut sent: Option<usize>,
    line: &str,
) -> Ended {
    let written = write_line(session, exchange, &mut sent, line.to_owned()).await.is_ok();
    let ended = written && session.finish_body().await.is_ok();
    // To a client of HTTP/1.0 the end of the connection is the end of the lines.
    let framed = session.req_header().version != Version::HTTP_10;
    Ended { status: 200, sent: sent.unwrap_or(0), reusable: ended && framed }
}

/// Writes a line, the head before the first.
async fn write_line(
    session: &mut ServerSession,
    exchange: &Exchange,
    sent: &mut Option<usize>,
    mut line: String,
) -> pingora::Result<()> {
    if sent.is_none() {
        let mut response = Response::new(Bytes::new());
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
        if session.req_header().version == Version::HTTP_11 {
            response.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        name_request(exchange, &mut response);
        let head = ResponseHeader::from(response.into_parts().0);
        session.write_response_header(Box::new(head)).await?;
    }
    line.push('\n');
    *sent.get_or_insert(0) += line.len();
    session.write_response_body(Bytes::from(line), false).await
}
