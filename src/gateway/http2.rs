//! One HTTP/2 connection: its streams and its end. Pingora does not drive it: that has no deadline
//! for the start of the connection, answers some heads without logging them, and knows no idle
//! timeout.

use std::sync::Arc;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use pingora::protocols::http::ServerSession;
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::connection_limits::ConnectionSlot;
use super::http2_stream::Http2Session;
use super::service::HttpService;
use crate::bounds;

/// A stream whose head has been read.
type NewStream = (Request<RecvStream>, SendResponse<Bytes>);

/// HttpService a connection that has negotiated `h2`, until it closes.
pub(super) async fn serve<S: HttpService>(
    service: &Arc<S>,
    stream: Stream,
    slot: ConnectionSlot,
    deadline: Instant,
    shutdown: &ShutdownWatch,
) {
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let mut leaves = shutdown.clone();
    let opened = tokio::select! {
        opened = timeout_at(deadline, open(stream)) => opened,
        () = slot.revoked() => return,
        _ = leaves.changed() => return,
    };
    let Ok(Some((connection, first))) = opened else { return };
    if slot.keep() {
        let streams = Streams {
            service,
            digest,
            shutdown,
            slot,
            active: watch::channel(()).0,
            stuck: Arc::default(),
        };
        streams.drive(connection, first).await;
    }
}

/// Opens a connection, up to its first request head.
async fn open(stream: Stream) -> Option<(Connection<Stream, Bytes>, NewStream)> {
    let mut options = Builder::new();
    options
        .max_header_list_size(bounds::H2_HEAD_BYTES)
        .max_concurrent_streams(bounds::H2_STREAMS_OF_CLIENTS);
    let mut connection = options.handshake(stream).await.ok()?;
    let first = connection.accept().await?.ok()?;
    Some((connection, first))
}

/// The streams of one connection.
struct Streams<'a, S> {
    service: &'a Arc<S>,
    digest: Arc<Digest>,
    shutdown: &'a ShutdownWatch,
    slot: ConnectionSlot,
    /// Each stream that is being answered holds a receiver.
    active: watch::Sender<()>,
    /// Notified when the client does not read an answer.
    stuck: Arc<Notify>,
}

impl<S: HttpService> Streams<'_, S> {
    async fn drive(&self, mut connection: Connection<Stream, Bytes>, first: NewStream) {
        let mut leaves = self.shutdown.clone();
        let mut next = Some(first);
        // `leaving`: the client was told to open no more streams. `refusing`: those that come all
        // the same are refused, not answered.
        let (mut leaving, mut refusing) = (false, false);
        loop {
            if let Some((request, mut respond)) = next.take() {
                match refusing {
                    true => respond.send_reset(Reason::REFUSED_STREAM),
                    false => self.answer(request, respond),
                }
            }
            if self.slot.is_reserve() && !refusing {
                connection.graceful_shutdown();
                (leaving, refusing) = (true, true);
            }
            let idle = async {
                self.active.closed().await;
                self.slot.release();
                sleep(if leaving { bounds::DRAIN_TIME } else { bounds::KEEP_ALIVE }).await;
            };
            // Returning drops the connection, with the answers that the client has not read.
            tokio::select! {
                biased;
                _ = leaves.changed(), if !leaving => {
                    connection.graceful_shutdown();
                    leaving = true;
                }
                () = self.stuck.notified(), if !refusing => {
                    connection.graceful_shutdown();
                    (leaving, refusing) = (true, true);
                }
                begun = connection.accept() => match begun {
                    Some(Ok(begun)) => next = Some(begun),
                    _ => return,
                },
                () = idle => return,
                () = self.slot.revoked() => return,
            }
        }
    }

    fn answer(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let session = Http2Session::new(request, respond, self.digest.clone(), self.stuck.clone());
        let session = Box::new(ServerSession::new_custom(Box::new(session)));
        let (service, shutdown, standby) =
            (self.service.clone(), self.shutdown.clone(), self.slot.is_reserve());
        let active = self.active.subscribe();
        tokio::spawn(async move {
            service.serve(session, standby, &shutdown).await;
            drop(active);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use h2::client::{Builder as Dialer, SendRequest};
    use pingora::http::ResponseHeader;
    use tokio::io::DuplexStream;
    use tokio::task::JoinHandle;

    use super::super::connection_limits::ConnectionLimiter;
    use super::*;
    use crate::error::Error;

    /// Answers each request with `length` bytes.
    struct Answers {
        length: usize,
        done: AtomicUsize,
    }

    #[async_trait]
    impl HttpService for Answers {
        async fn serve(
            &self,
            mut session: Box<ServerSession>,
            _: bool,
            _: &ShutdownWatch,
        ) -> Option<Stream> {
            session.set_write_timeout(Some(bounds::KEEP_ALIVE));
            let head = ResponseHeader::build(200, None).unwrap();
            session.write_response_header(Box::new(head)).await.unwrap();
            let written = session.write_response_body(vec![b'x'; self.length].into(), true).await;
            if written.is_err() {
                session.shutdown().await;
            }
            self.done.fetch_add(1, Ordering::SeqCst);
            None
        }

        async fn refuse(&self, _: &mut ServerSession, _: &[u8], _: Error) {}
    }

    struct Scene {
        serving: JoinHandle<()>,
        requests: SendRequest<Bytes>,
        connection: JoinHandle<Result<(), h2::Error>>,
        answers: Arc<Answers>,
        _shutdown: watch::Sender<bool>,
    }

    /// Connects to a server of answers of `length` bytes, of which the client reads `window`.
    async fn connect(length: usize, window: u32) -> Scene {
        let (client, server): (DuplexStream, DuplexStream) = tokio::io::duplex(64 << 10);
        let answers = Arc::new(Answers { length, done: AtomicUsize::new(0) });
        let (shutdown, leaves) = watch::channel(false);
        let slot = Arc::new(ConnectionLimiter::new(1, 1)).take(None).unwrap();
        let service = answers.clone();
        let serving = tokio::spawn(async move {
            let deadline = Instant::now() + bounds::RESERVE_HEAD;
            serve(&service, Box::new(server), slot, deadline, &leaves).await;
        });
        let (requests, connection) =
            Dialer::new().initial_window_size(window).handshake(client).await.unwrap();
        Scene {
            serving,
            requests,
            connection: tokio::spawn(connection),
            answers,
            _shutdown: shutdown,
        }
    }

    impl Scene {
        async fn request(&mut self) -> Result<http::Response<RecvStream>, h2::Error> {
            let request = Request::get("https://localhost/").body(()).unwrap();
            let mut requests = self.requests.clone().ready().await?;
            requests.send_request(request, true)?.0.await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends() {
        let mut scene = connect(5, 65_535).await;
        let began = Instant::now();
        let mut body = scene.request().await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "xxxxx");
        scene.serving.await.unwrap();
        assert!(
            (bounds::KEEP_ALIVE..bounds::KEEP_ALIVE * 2).contains(&began.elapsed()),
            "{:?}",
            began.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn small_answers_that_nobody_reads_wait_in_their_connection_and_end_with_it() {
        let mut scene = connect(bounds::H2_UNREAD, 0).await;
        let began = Instant::now();
        let mut held = Vec::new();
        for _ in 0..bounds::H2_STREAMS_OF_CLIENTS - 1 {
            held.push(scene.request().await.unwrap());
        }
        assert_eq!(
            scene.answers.done.load(Ordering::SeqCst),
            held.len(),
            "nobody waits for the client"
        );
        scene.serving.await.unwrap();
        assert!(
            (bounds::KEEP_ALIVE..bounds::KEEP_ALIVE * 2).contains(&began.elapsed()),
            "{:?}",
            began.elapsed()
        );
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_that_nobody_reads_ends_its_connection() {
        let mut scene = connect(bounds::H2_UNREAD + 1, 0).await;
        let began = Instant::now();
        let mut unread = scene.request().await.unwrap().into_body();
        assert_eq!(scene.answers.done.load(Ordering::SeqCst), 0, "it waits for the client");
        assert!(unread.data().await.unwrap().is_err(), "reset");
        assert!(scene.request().await.is_err(), "no more streams");
        scene.serving.await.unwrap();
        let took = began.elapsed();
        assert!(
            (bounds::KEEP_ALIVE..bounds::KEEP_ALIVE + 2 * bounds::DRAIN_TIME).contains(&took),
            "{took:?}"
        );
        let _gone = scene.connection.await.unwrap();
    }
}
