//! The session wrap: the session that Pingora's proxy gets instead of the client's. The wrap sends
//! the whole request body in every attempt, and decides which parts of each answer reach the client
//! and when ([`InferenceCall::observe`]).
//!
//! Without an inner session it is a memory session, as for reroutes and shadows: the answer is
//! collected.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, Stream};
use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, Method, Version};
use pingora::apps::HttpServerApp;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::protocols::Digest;
use pingora::protocols::http::custom::CustomMessageWrite;
use pingora::protocols::http::custom::server::Session;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::protocols::l4::socket::SocketAddr;
use pingora::server::ShutdownWatch;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::HttpProxy;
use tokio::time::Instant;

use super::ProxyHooks;
use super::call::{CALL, InferenceCall};
use super::cork::Cork;
use super::failure::{NO_FIRST_CONTENT, OVER_TIME};
use super::reading_on::ReadingOn;
use super::verdict::RelayVerdict;
use super::{answers, client_leaves};
use rerouter_base::bounds;

/// Runs a call through Pingora's proxy: upstream selection, failover, relaying. With a client's
/// session the answer is relayed to the client, without one it is collected. Returns the session.
pub(super) async fn proxy(
    proxy: &Arc<HttpProxy<ProxyHooks>>,
    session: Option<Box<ServerSession>>,
    call: &Arc<InferenceCall>,
    shutdown: &ShutdownWatch,
) -> Option<Box<ServerSession>> {
    let wrap = ServerSession::new_custom(Box::new(Wrap::new(session, call.clone())));
    let running = CALL.scope(call.clone(), proxy.process_new_http(wrap, shutdown));
    // A custom session yields no connection, so the edge keeps it. After a panic in the proxy or in
    // a hook the wrap is dropped, which also returns the session.
    if AssertUnwindSafe(running).catch_unwind().await.is_err() {
        call.panics();
    }
    call.take_session()
}

/// Resolves at `deadline`. Sleeps no longer than an idle connection does: tokio wakes itself up to
/// register a timer that is due before the one it waits for.
async fn reach(deadline: Instant) {
    loop {
        let next = deadline.min(Instant::now() + bounds::KEEP_ALIVE);
        tokio::time::sleep_until(next).await;
        if next == deadline {
            return;
        }
    }
}

/// The methods of a Pingora session for what no session here has: custom messages, a raw head, and
/// a retry buffer that may be cut.
macro_rules! no_custom_messages {
    () => {
        fn pseudo_raw_h1_request_header(&self) -> Bytes {
            Bytes::new()
        }

        fn retry_buffer_truncated(&self) -> bool {
            false
        }

        fn take_custom_message_reader(
            &mut self,
        ) -> Option<Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>> {
            None
        }

        fn restore_custom_message_reader(
            &mut self,
            _: Box<dyn Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>,
        ) -> Result<()> {
            Ok(())
        }

        fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
            None
        }

        fn restore_custom_message_writer(&mut self, _: Box<dyn CustomMessageWrite>) -> Result<()> {
            Ok(())
        }
    };
}
pub(super) use no_custom_messages;

struct Wrap {
    head: RequestHeader,
    call: Arc<InferenceCall>,
    inner: Option<Box<ServerSession>>,
    cork: Option<Cork>,
    /// Number of bytes that the client sent behind its request.
    dropped: usize,
    /// The body, until an HTTP/2 attempt has read it. A body that Pingora gets as a retry buffer
    /// would lose the answer of a provider that refuses before it took the whole body.
    unread: Option<Bytes>,
    /// Set when the client has left and the answer is read on.
    reading_on: Option<ReadingOn>,
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    drain_timeout: Option<Duration>,
}

impl Wrap {
    fn new(inner: Option<Box<ServerSession>>, call: Arc<InferenceCall>) -> Self {
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.method = Method::POST;
        Wrap {
            head: head.into(),
            call,
            inner,
            cork: None,
            dropped: 0,
            unread: None,
            reading_on: None,
            read_timeout: None,
            write_timeout: None,
            drain_timeout: None,
        }
    }
}

impl Wrap {
    /// Returns whether the answer ends with it.
    async fn write(&mut self, tasks: &mut Vec<HttpTask>) -> Result<bool> {
        let Some(inner) = self.inner.as_mut() else {
            let why = "a memory session forwards nothing";
            return Error::e_explain(ErrorType::InternalError, why);
        };
        if inner.req_header().version == Version::HTTP_10 {
            end_with_the_connection(tasks, inner);
        }
        let ends = tasks.iter().any(HttpTask::is_end);
        if self.call.app.is_leaving() {
            // Read when the head is written.
            inner.set_keepalive(None);
        }
        let written = {
            let (call, peer) = (&self.call, answers::peer(inner));
            let held = || (call.app.server.counted(peer), call.unread());
            let write = pin!(inner.response_duplex_vec(std::mem::take(tasks)));
            call.app.unread.write(held, write).await
        };
        match written {
            Some(Err(_)) if self.read_on() => Ok(ends),
            Some(written) => written,
            None => self.call.not_read(),
        }
    }

    /// Counts a part of an answer that has no client any more.
    fn pass_over(&mut self, tasks: &[HttpTask]) -> Result<bool> {
        let bytes = |task: &HttpTask| match task {
            HttpTask::Body(Some(bytes), _) => bytes.len(),
            _ => 0,
        };
        let bytes = tasks.iter().map(bytes).sum();
        let fits = self.reading_on.as_mut().is_some_and(|reading_on| reading_on.read(bytes));
        if fits { Ok(tasks.iter().any(HttpTask::is_end)) } else { client_gone() }
    }

    /// Begins to read on without the client, if the answer is one that is.
    fn read_on(&mut self) -> bool {
        self.reading_on = ReadingOn::begin().filter(|_| self.call.reads_on());
        self.reading_on.is_some()
    }
}

fn client_gone<T>() -> Result<T> {
    Err(Error::new_down(ErrorType::ConnectionClosed))
}

impl Drop for Wrap {
    fn drop(&mut self) {
        if let Some(session) = self.inner.take() {
            self.call.return_session(session);
        }
    }
}

/// A client of HTTP/1.0 knows no chunks (RFC 9112 section 6.1), so the close of the connection ends
/// a body without a length.
fn end_with_the_connection(tasks: &mut [HttpTask], session: &mut ServerSession) {
    for task in tasks {
        if let HttpTask::Header(head, _) = task
            && head.remove_header(&TRANSFER_ENCODING).is_some()
        {
            session.set_keepalive(None);
        }
    }
}

// A long block: Pingora's trait has some forty methods. Most of them call the inner session or do
// nothing.
#[async_trait]
impl Session for Wrap {
    fn req_header(&self) -> &RequestHeader {
        &self.head
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        &mut self.head
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        Ok(None)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        Ok(())
    }

    async fn write_response_header(&mut self, _: Box<ResponseHeader>, _: bool) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, "answers of our own are written by the edge")
    }

    async fn write_response_header_ref(&mut self, _: &ResponseHeader, _: bool) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, "answers of our own are written by the edge")
    }

    async fn write_body(&mut self, _: Bytes, _: bool) -> Result<()> {
        Error::e_explain(ErrorType::InternalError, "answers of our own are written by the edge")
    }

    async fn write_trailers(&mut self, _: HeaderMap) -> Result<()> {
        Ok(())
    }

    /// The only method that receives the answer, in batches.
    async fn response_duplex_vec(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        match self.call.observe(tasks) {
            RelayVerdict::Hold => Ok(false),
            RelayVerdict::Collected => Ok(true),
            RelayVerdict::Abandon(error) => Err(error),
            RelayVerdict::Forward { mut tasks, then } => {
                let end = if self.reading_on.is_some() {
                    self.pass_over(&tasks)?
                } else if tasks.is_empty() {
                    false
                } else {
                    self.write(&mut tasks).await?
                };
                match then {
                    Some(error) => Err(error),
                    None => {
                        if end {
                            self.call.complete();
                        }
                        Ok(end)
                    }
                }
            }
        }
    }

    fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.read_timeout = timeout;
    }

    fn get_read_timeout(&self) -> Option<Duration> {
        self.read_timeout
    }

    fn set_write_timeout(&mut self, timeout: Option<Duration>) {
        self.write_timeout = timeout;
    }

    fn get_write_timeout(&self) -> Option<Duration> {
        self.write_timeout
    }

    fn set_total_drain_timeout(&mut self, timeout: Option<Duration>) {
        self.drain_timeout = timeout;
    }

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        self.drain_timeout
    }

    fn request_summary(&self) -> String {
        format!("{} {}", self.call.id, self.head.uri.path())
    }

    fn response_written(&self) -> Option<&ResponseHeader> {
        self.inner.as_ref().and_then(|inner| inner.response_written())
    }

    async fn shutdown(&mut self, _code: u32, _reason: &str) {
        // Does nothing: the edge may still write, and closes the connection itself.
    }

    fn is_body_done(&mut self) -> bool {
        self.unread.is_none()
    }

    async fn finish(&mut self) -> Result<()> {
        // The edge finishes the client's session once the answer is whole.
        Ok(())
    }

    fn is_body_empty(&mut self) -> bool {
        self.call.request.body.is_empty()
    }

    /// Gives the body to an HTTP/2 attempt. Then waits for the first of three: the client leaves
    /// for good, the attempt's deadline passes, or its node's lease lapses.
    async fn read_body_or_idle(&mut self, _no_body_expected: bool) -> Result<Option<Bytes>> {
        if let Some(body) = self.unread.take() {
            return Ok(Some(body));
        }
        if let Some(cork) = self.cork.take() {
            cork.release().await;
        }
        let call = self.call.clone();
        let gone = async {
            if self.reading_on.is_none()
                && let Some(inner) = self.inner.as_mut()
            {
                match client_leaves::left(inner, &mut self.dropped).await {
                    Err(_) if self.read_on() => {}
                    result => return result,
                }
            }
            match &self.reading_on {
                Some(reading_on) => {
                    reach(reading_on.until).await;
                    client_gone()
                }
                None => std::future::pending().await,
            }
        };
        let (deadline, error) = match call.deadline() {
            (deadline, false) => (deadline, NO_FIRST_CONTENT),
            (deadline, true) => (deadline, OVER_TIME),
        };
        tokio::select! {
            biased;
            result = gone => result,
            () = call.node_lapsed() => {
                Error::e_explain(ErrorType::Custom(NO_FIRST_CONTENT), "the node's lease lapsed")
            }
            () = reach(deadline) => {
                Error::e_explain(ErrorType::Custom(error), "deadline of the attempt")
            }
        }
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.body_bytes_sent())
    }

    fn body_bytes_read(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.body_bytes_read())
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner.as_ref().and_then(|inner| inner.digest())
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner.as_mut().and_then(|inner| inner.digest_mut())
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        self.inner.as_ref().and_then(|inner| inner.client_addr())
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        self.inner.as_ref().and_then(|inner| inner.server_addr())
    }

    /// Pingora calls this once for each connected attempt, before it starts to stream.
    fn enable_retry_buffering(&mut self) {
        let (cork, http2) = self.call.attempt_connected();
        self.cork = cork;
        self.unread = http2.then(|| self.call.request.body.clone());
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        self.unread.is_none().then(|| self.call.request.body.clone())
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    no_custom_messages!();
}
