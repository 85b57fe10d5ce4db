//! One HTTP/2 stream as a Pingora session: the edge reads a request from the stream and writes the
//! answer to it.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, Request, Response};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::HttpTask;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session;
use pingora::protocols::http::date::get_cached_date;
use pingora::protocols::l4::socket::SocketAddr;
use pingora::{Error, ErrorType, OrErr, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::wrap::no_custom_messages;

/// Most answer bytes that one HTTP/2 connection queues for its socket. Further bytes wait in their
/// calls.
pub(super) const H2_UNSENT: usize = 64 << 10;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

pub(super) struct Http2Session {
    head: RequestHeader,
    body: RecvStream,
    read: usize,
    respond: SendResponse<Bytes>,
    written: Option<Box<ResponseHeader>>,
    writer: Option<SendStream<Bytes>>,
    sent: usize,
    ended: bool,
    write_timeout: Option<Duration>,
    digest: Arc<Digest>,
    /// A permit for each byte of an answer that may wait in the connection.
    unsent: Arc<Semaphore>,
}

/// Bytes queued in the connection until its socket takes them.
struct Unsent {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Http2Session {
    pub(super) fn new(
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        digest: Arc<Digest>,
        unsent: Arc<Semaphore>,
    ) -> Self {
        let (head, body) = request.into_parts();
        Http2Session {
            head: head.into(),
            body,
            read: 0,
            respond,
            written: None,
            writer: None,
            sent: 0,
            ended: false,
            write_timeout: None,
            digest,
            unsent,
        }
    }

    fn write_head(&mut self, mut head: Box<ResponseHeader>, end: bool) -> Result<()> {
        // An answer has only one head.
        if self.ended || self.written.is_some() {
            return Ok(());
        }
        if head.status.is_informational() {
            let interim = Response::from_parts(head.as_owned_parts(), ());
            let sent = self.respond.send_informational(interim);
            return sent
                .or_err(ErrorType::WriteError, "in an interim answer")
                .map_err(Error::into_down);
        }
        head.insert_header(DATE, get_cached_date())?;
        // HTTP/2 forbids connection-specific headers (RFC 9113 section 8.2.2).
        for name in [&TRANSFER_ENCODING, &CONNECTION, &UPGRADE, &KEEP_ALIVE, &PROXY_CONNECTION] {
            head.remove_header(name);
        }
        let response = Response::from_parts(head.as_owned_parts(), ());
        let writer = self
            .respond
            .send_response(response, end)
            .or_err(ErrorType::WriteError, "while writing a head")
            .map_err(Error::into_down)?;
        self.written = Some(head);
        self.writer = Some(writer);
        self.ended = end;
        Ok(())
    }

    fn writer(&mut self) -> Result<&mut SendStream<Bytes>> {
        self.writer
            .as_mut()
            .ok_or_else(|| Error::explain(ErrorType::H2Error, "a body before its head"))
    }

    /// Writes as much of `data` as the client takes now.
    async fn write_some(&mut self, data: &mut Bytes, end: bool) -> Result<()> {
        let writer = self.writer()?;
        writer.reserve_capacity(data.len());
        // The capacity left by the last piece: `poll_capacity` waits until there is more.
        let mut room = writer.capacity();
        if room == 0 {
            let more = poll_fn(|cx| writer.poll_capacity(cx)).await;
            let more =
                more.ok_or_else(|| Error::explain(ErrorType::H2Error, "the stream is closed"))?;
            room = more.or_err(ErrorType::H2Error, "while waiting for the client")?;
        }
        let room = room.min(data.len()).min(H2_UNSENT / 4);
        if room == 0 {
            // The client has shrunk its window.
            return Ok(());
        }
        let permits = u32::try_from(room).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.unsent).acquire_many_owned(permits).await;
        let _permit = permit.or_err(ErrorType::InternalError, "while waiting for the socket")?;
        let piece = Bytes::from_owner(Unsent { bytes: data.split_to(room), _permit });
        let (length, last) = (piece.len(), data.is_empty() && end);
        self.writer()?
            .send_data(piece, last)
            .or_err(ErrorType::WriteError, "while writing a body")?;
        self.sent += length;
        self.ended = last;
        Ok(())
    }

    async fn write(&mut self, mut data: Bytes, end: bool) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        if data.is_empty() {
            return if end { self.end() } else { Ok(()) };
        }
        // One timeout for the whole body: a client that reads a byte now and then counts as not
        // reading.
        let patience = self.write_timeout;
        let writing = async {
            while !data.is_empty() {
                self.write_some(&mut data, end).await?;
            }
            Ok(())
        };
        let written = match patience {
            Some(patience) => timeout(patience, writing).await,
            None => Ok(writing.await),
        };
        written.unwrap_or_else(|_| {
            Error::e_explain(ErrorType::WriteTimedout, "the client does not read")
        })
    }

    fn end(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.as_mut().filter(|_| !self.ended) {
            writer
                .send_data(Bytes::new(), true)
                .or_err(ErrorType::WriteError, "while ending a body")?;
            self.ended = true;
        }
        Ok(())
    }

    /// Resolves when the client resets the stream or leaves.
    async fn left(&mut self) -> Result<Reason> {
        let left = match self.writer.as_mut() {
            Some(writer) => poll_fn(|cx| writer.poll_reset(cx)).await,
            None => poll_fn(|cx| self.respond.poll_reset(cx)).await,
        };
        left.or_err(ErrorType::H2Error, "while waiting for the client")
    }

    async fn task(&mut self, task: HttpTask) -> Result<bool> {
        match task {
            HttpTask::Header(head, end) => self.write_head(head, end).map(|()| end),
            HttpTask::Body(data, end) => {
                if let Some(data) = data.filter(|data| !data.is_empty()) {
                    self.write(data, end).await.map_err(Error::into_down)?;
                }
                Ok(end)
            }
            HttpTask::Trailer(trailers) => {
                if let Some(trailers) = trailers {
                    self.write_trailers(*trailers).await?;
                }
                Ok(true)
            }
            HttpTask::Done => Ok(true),
            HttpTask::UpgradedBody(..) => {
                Error::e_explain(ErrorType::InternalError, "nothing is upgraded")
            }
            HttpTask::Failed(error) => Err(error),
        }
    }
}

// A long block: Pingora's trait has some forty methods.
#[async_trait]
impl Session for Http2Session {
    fn req_header(&self) -> &RequestHeader {
        &self.head
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.head
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        let data = self
            .body
            .data()
            .await
            .transpose()
            .or_err(ErrorType::ReadError, "while reading a body")?;
        if let Some(data) = &data {
            self.read += data.len();
            // This fails if the stream is over, and then no more data comes.
            let _over = self.body.flow_control().release_capacity(data.len());
        }
        Ok(data)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        while self.read_body_bytes().await?.is_some() {}
        Ok(())
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>, end: bool) -> Result<()> {
        self.write_head(head, end)
    }

    async fn write_response_header_ref(&mut self, head: &ResponseHeader, end: bool) -> Result<()> {
        self.write_head(Box::new(head.clone()), end)
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.write(data, end).await.map_err(Error::into_down)
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        if !self.ended {
            self.writer()?
                .send_trailers(trailers)
                .or_err(ErrorType::WriteError, "while writing trailers")
                .map_err(Error::into_down)?;
            self.ended = true;
        }
        Ok(())
    }

    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        let mut end = false;
        for task in tasks {
            end |= self.task(task).await?;
        }
        if end {
            self.end().map_err(Error::into_down)?;
        }
        Ok(end)
    }

    fn set_read_timeout(&mut self, _: Option<Duration>) {
        // Each reader sets its own deadline.
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.write_timeout
    }

    fn set_total_drain_timeout(&mut self, _: Option<Duration>) {}

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        None
    }

    fn request_summary(&self) -> String {
        format!("{} {}", self.head.method, self.head.uri.path())
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.written.as_deref()
    }

    async fn shutdown(&mut self, _code: u32, _reason: &str) {
        if !self.ended {
            self.respond.send_reset(Reason::INTERNAL_ERROR);
        }
    }

    fn is_body_done(&mut self) -> bool {
        self.is_body_empty() || self.body.is_end_stream()
    }

    async fn finish(&mut self) -> Result<()> {
        self.end().map_err(Error::into_down)
    }

    fn is_body_empty(&mut self) -> bool {
        let empty = |length: &http::HeaderValue| length.as_bytes() == b"0";
        self.read == 0
            && (self.body.is_end_stream()
                || self.head.headers.get(CONTENT_LENGTH).is_some_and(empty))
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        if !no_body_expected && !self.is_body_done() {
            return self.read_body_bytes().await;
        }
        let reason = self.left().await?;
        Error::e_explain(ErrorType::H2Error, format!("the client has reset the stream: {reason}"))
    }

    fn body_bytes_sent(&self) -> usize {
        self.sent
    }

    fn body_bytes_read(&self) -> usize {
        self.read
    }

    fn digest(&self) -> Option<&Digest> {
        Some(&self.digest)
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        Arc::get_mut(&mut self.digest)
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref()?.peer_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.digest.socket_digest.as_ref()?.local_addr()
    }

    fn enable_retry_buffering(&mut self) {}

    fn get_retry_buffer(&self) -> Option<Bytes> {
        None
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    no_custom_messages!();
}
