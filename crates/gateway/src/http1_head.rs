//! Reads the head of an HTTP/1 request under one deadline. Pingora only parses the head. Pingora's
//! own reader has no deadline for the head, accepts bare line feeds, and reads up to a megabyte.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf, BytesMut};
use pingora::ErrorType;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::chunked_body::{ChunkFraming, ChunkedStream};
use super::framing::HEAD_BYTES;
use super::intake::{DISCARD_BYTES, DRAIN_TIME};
use super::{framing, intake};
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};

#[derive(Clone, Copy)]
pub(super) enum HeadDeadline {
    /// The first head of a connection must be complete at this instant.
    First(Instant),
    /// A later head must begin within the keep-alive time, and be complete this long after its
    /// first byte.
    Next(Duration),
}

pub(super) enum HeadRead {
    Request(Box<ServerSession>),
    /// No request came: the client left or sent nothing in time, or the gateway shuts down.
    Closed,
    /// Bytes that are not a request head, and the error to answer with.
    Malformed(Box<ServerSession>, BytesMut, Error),
}

/// Once `closing` resolves, a head that has not begun is no longer awaited.
pub(super) async fn read(
    mut stream: Stream,
    deadline: HeadDeadline,
    closing: impl Future<Output = ()>,
) -> HeadRead {
    let until = match deadline {
        HeadDeadline::First(deadline) => deadline,
        HeadDeadline::Next(_) => Instant::now() + bounds::KEEP_ALIVE,
    };
    let first = tokio::select! {
        biased;
        first = timeout_at(until, first_bytes(&mut stream)) => first,
        () = closing => return HeadRead::Closed,
    };
    let Ok(Some(first)) = first else { return HeadRead::Closed };
    let deadline = match deadline {
        HeadDeadline::First(deadline) => deadline,
        HeadDeadline::Next(time) => Instant::now() + time,
    };
    // Boxed: a session is large, and most connections are idle at any moment.
    Box::pin(read_rest(stream, first, deadline)).await
}

/// Waits for the first bytes, without a buffer on the heap until they come.
async fn first_bytes(stream: &mut Stream) -> Option<BytesMut> {
    std::future::poll_fn(|cx| {
        let mut room = [const { MaybeUninit::<u8>::uninit() }; 4096];
        let mut came = ReadBuf::uninit(&mut room);
        match Pin::new(&mut *stream).poll_read(cx, &mut came) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) if !came.filled().is_empty() => {
                Poll::Ready(Some(BytesMut::from(came.filled())))
            }
            Poll::Ready(_) => Poll::Ready(None),
        }
    })
    .await
}

async fn read_rest(mut stream: Stream, mut bytes: BytesMut, deadline: Instant) -> HeadRead {
    let late = |_| Error::new(Kind::Timeout, "The request head did not arrive in time.");
    let read = timeout_at(deadline, complete(&mut stream, &mut bytes)).await.map_err(late);
    let whole = match read.flatten() {
        Ok(Some(whole)) => whole,
        Ok(None) => return HeadRead::Closed,
        Err(error) => {
            return HeadRead::Malformed(Box::new(ServerSession::new_http1(stream)), bytes, error);
        }
    };
    if whole.chunked {
        let mut chunks = ChunkFraming::new();
        if !chunks.read(bytes.get(whole.end..).unwrap_or_default()) {
            let error = Error::new(Kind::InvalidRequest, "The body is not framed as announced.");
            return HeadRead::Malformed(Box::new(ServerSession::new_http1(stream)), bytes, error);
        }
        stream = Box::new(ChunkedStream::new(stream, chunks));
    }
    parse(stream, bytes, deadline).await
}

async fn parse(stream: Stream, bytes: BytesMut, deadline: Instant) -> HeadRead {
    let line = BytesMut::from(first_line(&bytes));
    let mut session = Box::new(ServerSession::new_http1(stream));
    session.set_keepalive(Some(bounds::KEEP_ALIVE.as_secs()));
    session.set_pipelined_prefix(bytes);
    match timeout_at(deadline, session.read_request()).await {
        Ok(Ok(true)) => HeadRead::Request(session),
        Ok(Err(error)) if *error.etype() == ErrorType::InvalidHTTPHeader => {
            let error = Error::new(Kind::InvalidRequest, "The request head is not HTTP/1.1.")
                .because(intake::kind_of(&error));
            HeadRead::Malformed(session, line, error)
        }
        _ => HeadRead::Closed,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CompleteHead {
    /// Length of the head in bytes.
    end: usize,
    /// Whether the head has a `Transfer-Encoding`.
    chunked: bool,
}

/// Looks for the end of a head that arrives in pieces.
#[derive(Default)]
struct HeadScan {
    /// Offset of the last, unfinished line.
    line: usize,
    /// Number of bytes scanned so far.
    seen: usize,
    chunked: bool,
}

/// Reads until the head is complete; `None` if the client closes the connection first.
async fn complete(stream: &mut Stream, bytes: &mut BytesMut) -> Result<Option<CompleteHead>> {
    let mut scan = HeadScan::default();
    loop {
        if let Some(whole) = scan.look(bytes)? {
            return Ok(Some(whole));
        }
        bytes.reserve(4096);
        match stream.read_buf(bytes).await {
            Ok(length) if length > 0 => {}
            _ => return Ok(None),
        }
    }
}

impl HeadScan {
    /// A line must end with CRLF: readers differ on a bare line feed (RFC 9112 section 2.2).
    fn look(&mut self, bytes: &mut BytesMut) -> Result<Option<CompleteHead>> {
        if self.line == 0 {
            // Empty lines before a request are skipped (RFC 9112 section 2.2).
            while bytes.starts_with(b"\r\n") {
                bytes.advance(2);
                self.seen = 0;
            }
            if bytes.first().is_some_and(|byte| !byte.is_ascii_alphabetic() && *byte != b'\r') {
                return Err(Error::new(Kind::InvalidRequest, "The request head is not HTTP/1.1."));
            }
        }
        let from = std::mem::replace(&mut self.seen, bytes.len());
        for at in memchr::memchr_iter(b'\n', bytes.get(from..).unwrap_or_default()) {
            let at = from + at;
            let line = bytes.get(self.line..at).unwrap_or_default();
            let Some(line) = line.strip_suffix(b"\r") else {
                return Err(Error::new(
                    Kind::InvalidRequest,
                    "A line of the request head ends without CRLF.",
                ));
            };
            self.line = at + 1;
            if line.is_empty() {
                let whole = CompleteHead { end: self.line, chunked: self.chunked };
                return within_bounds(self.line).map(|()| Some(whole));
            }
            self.chunked |=
                line.get(..17).is_some_and(|name| name.eq_ignore_ascii_case(b"transfer-encoding"));
        }
        within_bounds(bytes.len()).map(|()| None)
    }
}

fn within_bounds(length: usize) -> Result<()> {
    if length > HEAD_BYTES { Err(framing::too_large()) } else { Ok(()) }
}

/// The first line, or as much of it as has come.
pub(super) fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default()
}

/// Closes a connection on which the client may still be sending. Reads and drops these bytes for a
/// while: unread bytes would reset the connection before the client has read its answer.
pub(super) async fn linger(mut session: Box<ServerSession>) {
    let _late = timeout(DRAIN_TIME, session.shutdown()).await;
    let ServerSession::H1(http1) = *session else { return };
    let mut stream = http1.into_inner();
    let reading = async {
        let mut left = DISCARD_BYTES;
        let mut dropped = BytesMut::with_capacity(16 << 10);
        while let Ok(length) = stream.read_buf(&mut dropped).await {
            left = left.saturating_sub(length);
            if length == 0 || left == 0 {
                return;
            }
            dropped.clear();
        }
    };
    let _late = timeout(DRAIN_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the scan, in one piece and byte by byte.
    fn look(text: &str) -> Option<Result<CompleteHead, Kind>> {
        let (mut scan, mut bytes) = (HeadScan::default(), BytesMut::new());
        let mut bytewise = None;
        for byte in text.bytes() {
            bytes.extend_from_slice(&[byte]);
            bytewise = scan.look(&mut bytes).map_err(|error| error.kind()).transpose();
            if bytewise.is_some() {
                break;
            }
        }
        let at_once = HeadScan::default()
            .look(&mut BytesMut::from(text))
            .map_err(|error| error.kind())
            .transpose();
        assert_eq!(at_once, bytewise, "{text:?}");
        at_once
    }

    #[test]
    fn a_head_ends_with_an_empty_line_and_each_line_with_crlf() {
        let whole = |end, chunked| Some(Ok(CompleteHead { end, chunked }));
        assert_eq!(look("GET / HTTP/1.1\r\n\r\n"), whole(18, false));
        assert_eq!(look("\r\n\r\nGET / HTTP/1.1\r\n\r\nGET"), whole(18, false));
        assert_eq!(look("GET / HTTP/1.1\r\nTransfer-encodinG: chunked\r\n\r\n\n"), whole(46, true));
        for partial in ["", "\r", "\r\n", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: a\r\n\r"] {
            assert_eq!(look(partial), None, "{partial:?}");
        }
        for bad in [
            "\nGET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\n\r\n",
            "GET / HTTP/1.1\r\n\n",
            "GET / HTTP/1.1\n\n",
            "GET / HTTP/1.1\r\nhost: a\n\r\n",
            "\u{16}\u{3}\u{1}",
        ] {
            assert_eq!(look(bad), Some(Err(Kind::InvalidRequest)), "{bad:?}");
        }
    }

    #[test]
    fn a_head_is_bounded_whether_it_ends_or_not() {
        let head =
            |length: usize| format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(length - 23));
        let look = |text: &str| {
            HeadScan::default().look(&mut BytesMut::from(text)).map_err(|error| error.kind())
        };
        assert!(look(&head(HEAD_BYTES)).is_ok_and(|whole| whole.is_some()));
        assert_eq!(look(&head(HEAD_BYTES + 1)), Err(Kind::HeadersTooLarge));
        assert_eq!(look(&"A".repeat(HEAD_BYTES + 1)), Err(Kind::HeadersTooLarge));
    }
}
