//! The lines between chunks of a request body. Pingora reads them, and takes what some readers end
//! a line by and others do not: a line feed or a carriage return alone. This looks at the bytes on
//! their way to it, and ends the body where it finds one.

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

/// Where in a chunked body the next byte is (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// In a chunk's size, of which so much has come.
    Size(Option<u64>),
    /// In what may stand behind the size.
    Extension(u64),
    /// Behind the carriage return of that line.
    SizeEnd(u64),
    /// Before so many bytes of data.
    Data(u64),
    /// Behind them.
    DataEnd,
    /// Behind the carriage return there.
    DataFeed,
    /// In a line of the trailer section; whether it has anything in it.
    Trailer(bool),
    /// Behind the carriage return of that.
    TrailerEnd(bool),
    /// Behind the body.
    #[default]
    Over,
}

/// A reader of the lines between chunks, and of nothing else.
#[derive(Debug)]
pub(super) struct Chunks(At);

impl Chunks {
    /// Before the first size.
    pub(super) fn new() -> Self {
        Chunks(At::Size(None))
    }

    /// Whether the body is well framed so far, with these bytes as the next.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((byte, rest)) = bytes.split_first() {
            if let At::Data(left) = self.0 {
                let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
                bytes = bytes.get(here..).unwrap_or_default();
                let left = left - here as u64;
                self.0 = if left == 0 { At::DataEnd } else { At::Data(left) };
                continue;
            }
            let Some(next) = self.next(*byte) else { return false };
            self.0 = next;
            bytes = rest;
        }
        true
    }

    fn next(&self, byte: u8) -> Option<At> {
        Some(match (self.0, byte) {
            (At::Size(size), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = u64::from(char::from(byte).to_digit(16)?);
                At::Size(Some(size.unwrap_or(0).checked_mul(16)?.checked_add(digit)?))
            }
            (At::Size(Some(size)) | At::Extension(size), b'\r') => At::SizeEnd(size),
            (At::Size(Some(size)), b';' | b' ' | b'\t') => At::Extension(size),
            (At::Extension(size), byte) if byte != b'\n' => At::Extension(size),
            (At::SizeEnd(0), b'\n') => At::Trailer(false),
            (At::SizeEnd(size), b'\n') => At::Data(size),
            (At::DataEnd, b'\r') => At::DataFeed,
            (At::DataFeed, b'\n') => At::Size(None),
            (At::Trailer(filled), b'\r') => At::TrailerEnd(filled),
            (At::Trailer(_), byte) if byte != b'\n' => At::Trailer(true),
            (At::TrailerEnd(true), b'\n') => At::Trailer(false),
            (At::TrailerEnd(false), b'\n') | (At::Over, _) => At::Over,
            _ => return None,
        })
    }
}

/// A connection whose next body is chunked. There is one for such a request only: others are not
/// looked at again.
#[derive(Debug)]
pub(super) struct Framed {
    inner: Stream,
    chunks: Chunks,
}

impl Framed {
    /// Around a connection whose body has been read as far as `chunks` has.
    pub(super) fn around(inner: Stream, chunks: Chunks) -> Self {
        Framed { inner, chunks }
    }

    /// The connection itself, if this is one of these.
    pub(super) fn open(stream: Stream) -> Option<Stream> {
        if !stream.as_any().is::<Framed>() {
            return Some(stream);
        }
        stream.into_any().downcast::<Framed>().ok().map(|framed| framed.inner)
    }
}

impl AsyncRead for Framed {
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

impl AsyncWrite for Framed {
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

// What Pingora asks of a connection beside its bytes.

#[async_trait]
impl Shutdown for Framed {
    async fn shutdown(&mut self) {
        self.inner.shutdown().await;
    }
}

impl UniqueID for Framed {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Framed {
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

impl GetTimingDigest for Framed {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for Framed {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for Framed {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

impl Peek for Framed {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it is taken, in one piece and byte by byte.
    fn taken(body: &str) -> bool {
        let mut bytewise = Chunks::new();
        let by_bytes = body.bytes().all(|byte| bytewise.read(&[byte]));
        let mut whole = Chunks::new();
        assert_eq!(whole.read(body.as_bytes()), by_bytes, "{body:?}");
        assert!(!by_bytes || whole.0 == bytewise.0);
        by_bytes
    }

    #[test]
    fn lines_end_with_both() {
        for good in [
            "0\r\n\r\n",
            "2\r\nab\r\n0\r\n\r\n",
            "2;\r\n\n\n\r\n0\r\n\r\n",
            "2;a=b ;c=\"d\"\r\n\r\n\r\n00\r\n\r\n",
            "A \t;x\r\n0123456789\r\n000a\r\n0123456789\r\n0;last\r\nx: y\r\nz:\r\n\r\nwhatever\ncomes",
        ] {
            assert!(taken(good), "{good:?}");
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
            assert!(!taken(bad), "{bad:?}");
        }
    }
}
