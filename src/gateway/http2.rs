//! One connection of HTTP/2: its streams, and its end. Driven here and not by Pingora, which waits
//! for ever for its beginning, answers some heads without a word, and knows nothing of a connection
//! from its streams.

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

use super::door::Serves;
use super::http2_stream::Session;
use super::places::Place;
use crate::bounds;

/// A stream whose head has come.
type Begun = (Request<RecvStream>, SendResponse<Bytes>);

/// Serves a connection that has negotiated `h2`, to its end.
pub(super) async fn serve<S: Serves>(
    serves: &Arc<S>,
    stream: Stream,
    place: Place,
    deadline: Instant,
    shutdown: &ShutdownWatch,
) {
    let digest = Arc::new(Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    });
    let mut told = shutdown.clone();
    let opened = tokio::select! {
        opened = timeout_at(deadline, open(stream)) => opened,
        () = place.pressed() => return,
        _ = told.changed() => return,
    };
    let Ok(Some((connection, first))) = opened else { return };
    if place.keep() {
        let streams = Streams {
            serves,
            digest,
            shutdown,
            place,
            active: watch::channel(()).0,
            stuck: Arc::default(),
        };
        streams.drive(connection, first).await;
    }
}

/// The beginning of a connection, to its first whole request head.
async fn open(stream: Stream) -> Option<(Connection<Stream, Bytes>, Begun)> {
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
    serves: &'a Arc<S>,
    digest: Arc<Digest>,
    shutdown: &'a ShutdownWatch,
    place: Place,
    /// Each stream that is being answered is a receiver.
    active: watch::Sender<()>,
    /// A stream's answer is not being read.
    stuck: Arc<Notify>,
}

impl<S: Serves> Streams<'_, S> {
    async fn drive(&self, mut connection: Connection<Stream, Bytes>, first: Begun) {
        let mut told = self.shutdown.clone();
        let mut next = Some(first);
        // Told to the client: no more streams. Those that come all the same are answered, or
        // refused.
        let (mut leaving, mut refusing) = (false, false);
        loop {
            if let Some((request, mut respond)) = next.take() {
                match refusing {
                    true => respond.send_reset(Reason::REFUSED_STREAM),
                    false => self.answer(request, respond),
                }
            }
            if self.place.is_standby() && !refusing {
                connection.graceful_shutdown();
                (leaving, refusing) = (true, true);
            }
            let idle = async {
                self.active.closed().await;
                self.place.yields();
                sleep(if leaving { bounds::DRAIN_TIME } else { bounds::KEEP_ALIVE }).await;
            };
            // To return is to drop the connection, and with it answers that nobody has read.
            tokio::select! {
                biased;
                _ = told.changed(), if !leaving => {
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
                () = self.place.pressed() => return,
            }
        }
    }

    fn answer(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let session = Session::new(request, respond, self.digest.clone(), self.stuck.clone());
        let session = Box::new(ServerSession::new_custom(Box::new(session)));
        let (serves, shutdown, standby) =
            (self.serves.clone(), self.shutdown.clone(), self.place.is_standby());
        let active = self.active.subscribe();
        tokio::spawn(async move {
            serves.serve(session, standby, &shutdown).await;
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

    use super::super::places::Places;
    use super::*;
    use crate::error::Error;

    /// Answers each request with so many bytes.
    struct Answers {
        length: usize,
        done: AtomicUsize,
    }

    #[async_trait]
    impl Serves for Answers {
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

    /// A connection to a server of answers of `length` bytes; the client takes `window` of each.
    async fn connect(length: usize, window: u32) -> Scene {
        let (client, server): (DuplexStream, DuplexStream) = tokio::io::duplex(64 << 10);
        let answers = Arc::new(Answers { length, done: AtomicUsize::new(0) });
        let (shutdown, told) = watch::channel(false);
        let place = Arc::new(Places::new(1, 1)).take(None).unwrap();
        let serves = answers.clone();
        let serving = tokio::spawn(async move {
            let deadline = Instant::now() + bounds::RESERVE_HEAD;
            serve(&serves, Box::new(server), place, deadline, &told).await;
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
