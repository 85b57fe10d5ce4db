//! Management calls that take time. The call stops if the client leaves, and the client may read
//! lines of progress (NDJSON) before the answer.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderValue, Response, Version};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;

use super::exchange::HttpExchange;
use super::respond::{self, RequestEnd, RequestRefusal, StageAnswer, name_request};
use super::{answers, client_leaves};
use rerouter_base::error::{Error, Result};
use rerouter_core::api::{ProgressStep, ProgressStream};

/// Follows the work until its answer; stops the work if the client leaves. Before the first line
/// nothing is written, so that an early refusal has its own status.
pub(super) async fn follow(
    session: &mut ServerSession,
    exchange: &mut HttpExchange,
    mut slow: ProgressStream,
) -> Result<StageAnswer, RequestRefusal> {
    let (mut sent, mut dropped) = (None, 0);
    loop {
        let step = tokio::select! {
            biased;
            step = slow.steps.recv() => step,
            _ = client_leaves::left(session, &mut dropped) => {
                return Ok(StageAnswer::Written(RequestEnd::client_gone(sent.unwrap_or(0))));
            }
        };
        let done = match step {
            Some(ProgressStep::Line(_)) if !slow.lines => continue,
            Some(ProgressStep::Line(line)) => {
                if write_line(session, exchange, &mut sent, line.to_string()).await.is_err() {
                    return Ok(StageAnswer::Written(RequestEnd::client_gone(sent.unwrap_or(0))));
                }
                continue;
            }
            Some(ProgressStep::Answer(done)) => done,
            None => Err(Error::panicked("a slow answer never came")),
        };
        return finish(session, exchange, done, slow.lines, sent).await;
    }
}

/// Writes the answer: as a normal response if no line was written, else as the last line.
async fn finish(
    session: &mut ServerSession,
    exchange: &mut HttpExchange,
    done: Result<Response<Bytes>>,
    lines: bool,
    sent: Option<usize>,
) -> Result<StageAnswer, RequestRefusal> {
    let begun = sent.is_some();
    let response = match done {
        Ok(response) if !lines || (!begun && !response.status().is_success()) => {
            return Ok(StageAnswer::Whole(response));
        }
        Err(error) if !begun => return Err(error.into()),
        Ok(response) => response,
        Err(error) => respond::refuse(exchange, &error),
    };
    let line = String::from_utf8_lossy(response.body()).into_owned();
    Ok(StageAnswer::Written(last_line(session, exchange, sent, line).await))
}

async fn last_line(
    session: &mut ServerSession,
    exchange: &HttpExchange,
    mut sent: Option<usize>,
    line: String,
) -> RequestEnd {
    let written = write_line(session, exchange, &mut sent, line).await.is_ok();
    if !written || answers::in_time(session.finish_body()).await.is_err() {
        return RequestEnd::client_gone(sent.unwrap_or(0));
    }
    // For a client of HTTP/1.0 the close of the connection ends the lines.
    let framed = session.req_header().version != Version::HTTP_10;
    RequestEnd { status: 200, sent: sent.unwrap_or(0), reusable: framed }
}

/// Before the first line, also writes the response head.
async fn write_line(
    session: &mut ServerSession,
    exchange: &HttpExchange,
    sent: &mut Option<usize>,
    mut line: String,
) -> pingora::Result<()> {
    if sent.is_none() {
        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        if session.req_header().version == Version::HTTP_11 {
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        name_request(exchange, &mut response);
        let head = ResponseHeader::from(response.into_parts().0);
        answers::in_time(session.write_response_header(Box::new(head))).await?;
    }
    line.push('\n');
    let (count, length) = (sent.get_or_insert(0), line.len());
    session.write_response_body(Bytes::from(line), false).await?;
    *count += length;
    Ok(())
}
