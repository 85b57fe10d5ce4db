//! Checks the framing of chunked request bodies. Pingora's reader accepts a bare line feed or
//! carriage return as the end of a line; other readers do not. This check sees the bytes before
//! Pingora does, and fails the body at the first such line end.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::{SslDigest, TlsRef};
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Position of the next byte in a chunked body (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// In the size of a chunk; the value is the size so far.
    Size(Option<u64>),
    /// In the chunk extension; the value is the size of the chunk.
    Extension(u64),
    /// After the carriage return of the size line; the value is the size of the chunk.
    SizeEnd(u64),
    /// In the data; the value is the number of bytes left.
    Data(u64),
    DataEnd,
    /// After the carriage return behind the data.
    DataFeed,
    /// In a line of the trailer section; the value tells whether the line has any bytes.
    Trailer(bool),
    /// After the carriage return of a trailer line.
    TrailerEnd(bool),
    #[default]
    Over,
}

#[derive(Debug)]
pub(super) struct ChunkFraming(ChunkState);

impl ChunkFraming {
    pub(super) fn new() -> Self {
        ChunkFraming(ChunkState::Size(None))
    }

    /// Returns `false` if the framing is broken.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((byte, rest)) = bytes.split_first() {
            if let ChunkState::Data(left) = self.0 {
                let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                bytes = bytes.get(here..).unwrap_or_default();
                let left = left - here as u64;
                self.0 = if left == 0 { ChunkState::DataEnd } else { ChunkState::Data(left) };
                continue;
            }
            let Some(next) = self.next(*byte) else { return false };
            self.0 = next;
            bytes = rest;
        }
        true
    }

    fn next(&self, byte: u8) -> Option<ChunkState> {
        Some(match (self.0, byte) {
            (ChunkState::Size(size), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = u64::from(char::from(byte).to_digit(16)?);
                ChunkState::Size(Some(size.unwrap_or(0).checked_mul(16)?.checked_add(digit)?))
            }
            (ChunkState::Size(Some(size)) | ChunkState::Extension(size), b'\r') => {
                ChunkState::SizeEnd(size)
            }
            (ChunkState::Size(Some(size)), b';' | b' ' | b'\t') => ChunkState::Extension(size),
            (ChunkState::Extension(size), byte) if byte != b'\n' => ChunkState::Extension(size),
            (ChunkState::SizeEnd(0), b'\n') => ChunkState::Trailer(false),
            (ChunkState::SizeEnd(size), b'\n') => ChunkState::Data(size),
            (ChunkState::DataEnd, b'\r') => ChunkState::DataFeed,
            (ChunkState::DataFeed, b'\n') => ChunkState::Size(None),
            (ChunkState::Trailer(filled), b'\r') => ChunkState::TrailerEnd(filled),
            (ChunkState::Trailer(_), byte) if byte != b'\n' => ChunkState::Trailer(true),
            (ChunkState::TrailerEnd(true), b'\n') => ChunkState::Trailer(false),
            (ChunkState::TrailerEnd(false), b'\n') | (ChunkState::Over, _) => ChunkState::Over,
            _ => return None,
        })
    }
}

/// A connection whose current request has a chunked body.
#[derive(Debug)]
pub(super) struct ChunkedStream {
    inner: Stream,
    chunks: ChunkFraming,
}

impl ChunkedStream {
    /// Wraps a connection whose body has been read as far as `chunks` says.
    pub(super) fn new(inner: Stream, chunks: ChunkFraming) -> Self {
        ChunkedStream { inner, chunks }
    }

    /// The connection itself, unwrapped if it was wrapped.
    pub(super) fn open(stream: Stream) -> Option<Stream> {
        if !stream.as_any().is::<ChunkedStream>() {
            return Some(stream);
        }
        stream.into_any().downcast::<ChunkedStream>().ok().map(|framed| framed.inner)
    }
}

impl AsyncRead for ChunkedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, into))?;
        match self.chunks.read(into.filled().get(before..).unwrap_or_default()) {
            true => Poll::Ready(Ok(())),
            false => Poll::Ready(Err(Error::new(
                ErrorKind::InvalidData,
                "a line of the body ends without CRLF",
            ))),
        }
    }
}

impl AsyncWrite for ChunkedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

// The other traits that Pingora requires of a connection.

#[async_trait]
impl Shutdown for ChunkedStream {
    async fn shutdown(&mut self) {
        self.inner.shutdown().await;
    }
}

impl UniqueID for ChunkedStream {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for ChunkedStream {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.inner.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for ChunkedStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for ChunkedStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for ChunkedStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

impl Peek for ChunkedStream {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a body is accepted, in one piece and byte by byte.
    fn accepted(body: &str) -> bool {
        let mut bytewise = ChunkFraming::new();
        let by_bytes = body.bytes().all(|byte| bytewise.read(&[byte]));
        let mut whole = ChunkFraming::new();
        assert_eq!(whole.read(body.as_bytes()), by_bytes, "{body:?}");
        assert!(!by_bytes || whole.0 == bytewise.0);
        by_bytes
    }

    #[test]
    fn lines_end_with_crlf() {
        for good in [
            "0\r\n\r\n",
            "2\r\nab\r\n0\r\n\r\n",
            "2;\r\n\n\n\r\n0\r\n\r\n",
            "2;a=b ;c=\"d\"\r\n\r\n\r\n00\r\n\r\n",
            "A \t;x\r\n0123456789\r\n000a\r\n0123456789\r\n\
            0;last\r\nx: y\r\nz:\r\n\r\nwhatever\ncomes",
        ] {
            assert!(accepted(good), "{good:?}");
        }
        for bad in [
            "2\nab\r\n0\r\n\r\n",
            "2;\nfoo\r\nab\r\n0\r\n\r\n",
            "2;a\rb\r\nab\r\n0\r\n\r\n",
            "2\r\nab\n0\r\n\r\n",
            "2\r\nab\r0\r\n\r\n",
            "2\r\nabc\r\n0\r\n\r\n",
            "0\n\r\n",
            "0\r\n\n",
            "0\r\nx: y\n\r\n",
            "0\r\nx: y\rz\r\n\r\n",
            "\r\n0\r\n\r\n",
            ";x\r\n",
            "g\r\n",
            "-1\r\n",
            "fffffffffffffffff\r\n",
        ] {
            assert!(!accepted(bad), "{bad:?}");
        }
    }
}
