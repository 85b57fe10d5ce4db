//! The head of a request over HTTP/1, from its first byte to its last, under one deadline. It is
//! read here and not by Pingora, which has no deadline for it, takes bare line feeds for ends of
//! lines, and goes on to a megabyte.

use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::Poll;

use bytes::{Buf, BytesMut};
use pingora::ErrorType;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::chunks::{Chunks, Framed};
use super::{gate, intake};
use crate::bounds;
use crate::error::{Error, Kind, Result};

/// Until when a head may come.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// The first of a connection: all of it until then.
    Until(Instant),
    /// Another one: begun within the time that an idle connection has, and whole so long after it
    /// began.
    Idle(Duration),
}

/// What came.
pub(super) enum Came {
    /// A request whose head has been read.
    Request(Box<ServerSession>),
    /// Nothing, or nobody is there to be answered.
    Nothing,
    /// What is no request, as far as it came.
    Wrong(Box<ServerSession>, BytesMut, Error),
}

/// Waits for a request head.
pub(super) async fn read(mut stream: Stream, patience: Patience, shutdown: &ShutdownWatch) -> Came {
    let until = match patience {
        Patience::Until(deadline) => deadline,
        Patience::Idle(_) => Instant::now() + bounds::KEEP_ALIVE,
    };
    let mut shutdown = shutdown.clone();
    let first = tokio::select! {
        _ = shutdown.changed() => return Came::Nothing,
        first = timeout_at(until, first_bytes(&mut stream)) => first,
    };
    let Ok(Some(first)) = first else { return Came::Nothing };
    let deadline = match patience {
        Patience::Until(deadline) => deadline,
        Patience::Idle(time) => Instant::now() + time,
    };
    // Boxed from here on: a session is large, and most connections are silent at any moment.
    Box::pin(go_on(stream, first, deadline)).await
}

/// The first bytes, in no more memory than they need: none while there are none.
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

async fn go_on(mut stream: Stream, mut bytes: BytesMut, deadline: Instant) -> Came {
    let whole = match timeout_at(deadline, whole(&mut stream, &mut bytes)).await {
        Ok(Ok(Some(whole))) => whole,
        Ok(Ok(None)) => return Came::Nothing,
        Ok(Err(error)) => {
            return Came::Wrong(Box::new(ServerSession::new_http1(stream)), bytes, error);
        }
        Err(_) => {
            let error = Error::new(Kind::Timeout, "The request head did not arrive in time.");
            return Came::Wrong(Box::new(ServerSession::new_http1(stream)), bytes, error);
        }
    };
    if whole.chunked {
        let mut chunks = Chunks::new();
        if !chunks.read(bytes.get(whole.end..).unwrap_or_default()) {
            let error = Error::new(Kind::InvalidRequest, "The body is not framed as announced.");
            return Came::Wrong(Box::new(ServerSession::new_http1(stream)), bytes, error);
        }
        stream = Box::new(Framed::around(stream, chunks));
    }
    parse(stream, bytes, deadline).await
}

/// Has Pingora parse what has come.
async fn parse(stream: Stream, bytes: BytesMut, deadline: Instant) -> Came {
    let line = BytesMut::from(first_line(&bytes));
    let mut session = Box::new(ServerSession::new_http1(stream));
    session.set_keepalive(Some(bounds::KEEP_ALIVE.as_secs()));
    session.set_pipelined_prefix(bytes);
    match timeout_at(deadline, session.read_request()).await {
        Ok(Ok(true)) => Came::Request(session),
        Ok(Err(error)) if *error.etype() == ErrorType::InvalidHTTPHeader => {
            let error = Error::new(Kind::InvalidRequest, "The request head is not HTTP/1.1.")
                .because(intake::kind_of(&error));
            Came::Wrong(session, line, error)
        }
        _ => Came::Nothing,
    }
}

/// A head that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Whole {
    /// Where it ends.
    end: usize,
    /// Whether it says how the body is coded for transfer.
    chunked: bool,
}

/// How far a head has been looked at.
#[derive(Default)]
struct Scan {
    /// Where the line begins that has not ended.
    line: usize,
    /// What has been looked at.
    seen: usize,
    chunked: bool,
}

/// Reads until the head is whole; `None` where the other side has left.
async fn whole(stream: &mut Stream, bytes: &mut BytesMut) -> Result<Option<Whole>> {
    let mut scan = Scan::default();
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

impl Scan {
    /// Looks at what is new. A line ends with CRLF: a line feed alone ends it for some readers and
    /// not for others (RFC 9112 section 2.2).
    fn look(&mut self, bytes: &mut BytesMut) -> Result<Option<Whole>> {
        if self.line == 0 {
            // Empty lines before a request are left out, as RFC 9112 has it.
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
                let whole = Whole { end: self.line, chunked: self.chunked };
                return within_bounds(self.line).map(|()| Some(whole));
            }
            self.chunked |=
                line.get(..17).is_some_and(|name| name.eq_ignore_ascii_case(b"transfer-encoding"));
        }
        within_bounds(bytes.len()).map(|()| None)
    }
}

fn within_bounds(length: usize) -> Result<()> {
    if length > bounds::HEAD_BYTES { Err(gate::too_large()) } else { Ok(()) }
}

/// As much of the first line as has come.
pub(super) fn first_line(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default()
}

/// Ends a connection on which bytes may still come: those that are read away do not reset it, so
/// that the client sees its answer.
pub(super) async fn linger(mut session: Box<ServerSession>) {
    session.shutdown().await;
    let ServerSession::H1(http1) = *session else { return };
    let mut stream = http1.into_inner();
    let reading = async {
        let mut left = bounds::DISCARD_BYTES;
        let mut away = BytesMut::with_capacity(16 << 10);
        while let Ok(length) = stream.read_buf(&mut away).await {
            left = left.saturating_sub(length);
            if length == 0 || left == 0 {
                return;
            }
            away.clear();
        }
    };
    // Whoever sends on after that is reset.
    let _late = timeout(bounds::DRAIN_TIME, reading).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How it ends, in one piece and byte by byte.
    fn look(text: &str) -> Option<Result<Whole, Kind>> {
        let (mut scan, mut bytes) = (Scan::default(), BytesMut::new());
        let mut bytewise = None;
        for byte in text.bytes() {
            bytes.extend_from_slice(&[byte]);
            bytewise = scan.look(&mut bytes).map_err(|error| error.kind()).transpose();
            if bytewise.is_some() {
                break;
            }
        }
        let at_once = Scan::default()
            .look(&mut BytesMut::from(text))
            .map_err(|error| error.kind())
            .transpose();
        assert_eq!(at_once, bytewise, "{text:?}");
        at_once
    }

    #[test]
    fn a_head_ends_with_an_empty_line_and_each_line_with_both() {
        let whole = |end, chunked| Some(Ok(Whole { end, chunked }));
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
    fn a_head_has_a_bound_whether_it_ends_or_not() {
        let head =
            |length: usize| format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(length - 23));
        let look = |text: &str| {
            Scan::default().look(&mut BytesMut::from(text)).map_err(|error| error.kind())
        };
        assert!(look(&head(bounds::HEAD_BYTES)).is_ok_and(|whole| whole.is_some()));
        assert_eq!(look(&head(bounds::HEAD_BYTES + 1)), Err(Kind::HeadersTooLarge));
        assert_eq!(look(&"A".repeat(bounds::HEAD_BYTES + 1)), Err(Kind::HeadersTooLarge));
    }
}
