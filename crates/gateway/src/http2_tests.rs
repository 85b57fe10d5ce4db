use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use h2::client::{Builder as Dialer, SendRequest};
use pingora::http::ResponseHeader;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::super::connection_limits::ConnectionLimiter;
use super::*;
use crate::accept::RESERVE_HEAD;
use crate::answers::UNREAD_TIME;
use rerouter_base::error::Error;

/// Answers each request with `length` bytes.
struct Answers {
    length: usize,
    done: AtomicUsize,
    standby: AtomicUsize,
    /// Number of streams that a limit refused.
    refused: AtomicUsize,
}

#[async_trait]
impl HttpService for Answers {
    async fn serve(
        &self,
        mut session: Box<ServerSession>,
        standby: bool,
        _: &ShutdownWatch,
    ) -> Option<Stream> {
        self.standby.fetch_add(usize::from(standby), Ordering::SeqCst);
        session.set_write_timeout(Some(UNREAD_TIME));
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
    _connection: JoinHandle<Result<(), h2::Error>>,
    answers: Arc<Answers>,
    _shutdown: watch::Sender<bool>,
}

struct Served {
    client: DuplexStream,
    serving: JoinHandle<()>,
    answers: Arc<Answers>,
    _shutdown: watch::Sender<bool>,
}

/// Starts a server whose answers have `length` bytes, behind a pipe of `pipe` bytes.
fn server(length: usize, pipe: usize) -> Served {
    let (client, server): (DuplexStream, DuplexStream) = tokio::io::duplex(pipe);
    let counts: [AtomicUsize; 3] = Default::default();
    let [done, standby, refused] = counts;
    let answers = Arc::new(Answers { length, done, standby, refused });
    let (shutdown, leaves) = watch::channel(false);
    let slot = Arc::new(ConnectionLimiter::new(2, 2)).take(None).unwrap();
    let service = answers.clone();
    let serving = tokio::spawn(async move {
        let deadline = Instant::now() + RESERVE_HEAD;
        let refused = |_| {
            service.refused.fetch_add(1, Ordering::SeqCst);
        };
        serve(&service, Box::new(server), slot, deadline, &leaves, &refused).await;
    });
    Served { client, serving, answers, _shutdown: shutdown }
}

/// Connects to a server whose answers have `length` bytes. The client's window is `window` bytes.
async fn connect(length: usize, window: u32) -> Scene {
    let Served { client, serving, answers, _shutdown } = server(length, 64 << 10);
    let (requests, connection) =
        Dialer::new().initial_window_size(window).handshake(client).await.unwrap();
    Scene { serving, requests, _connection: tokio::spawn(connection), answers, _shutdown }
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

/// The client opens large windows and then reads nothing from its socket.
#[tokio::test(start_paused = true)]
async fn few_answers_wait_in_a_connection_whose_socket_is_full() {
    const LENGTH: usize = 16 << 10;
    const PIPE: usize = 64 << 10;
    let Served { client, serving, answers, _shutdown } = server(LENGTH, PIPE);
    let (requests, connection) = Dialer::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 24)
        .handshake::<_, Bytes>(client)
        .await
        .unwrap();
    let mut connection = std::pin::pin!(connection);
    let mut held = Vec::new();
    let asking = async {
        for _ in 0..H2_STREAMS_OF_CLIENTS - 1 {
            let mut requests = requests.clone().ready().await.unwrap();
            let request = Request::get("https://localhost/").body(()).unwrap();
            held.push(requests.send_request(request, true).unwrap().0);
        }
        // The first answer has come, so all requests have been sent.
        let _first = held.remove(0).await;
    };
    tokio::select! {
        _ = &mut connection => panic!("the connection ended"),
        () = asking => {}
    }
    // Nobody polls the client's connection any more.
    let read = answers.done.load(Ordering::SeqCst);
    tokio::time::sleep(DRAIN_TIME).await;
    let done = answers.done.load(Ordering::SeqCst) - read;
    assert!(done <= (PIPE + H2_UNSENT) / LENGTH, "{done} answers wait in the connection");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_ends() {
    let mut scene = connect(1, 0).await;
    let began = Instant::now();
    let mut unread = scene.request().await.unwrap().into_body();
    assert_eq!(scene.answers.done.load(Ordering::SeqCst), 0, "it waits for the client");
    assert!(unread.data().await.unwrap().is_err(), "reset");
    let took = began.elapsed();
    assert!((UNREAD_TIME..UNREAD_TIME + 2 * DRAIN_TIME).contains(&took), "{took:?}");
    assert!(scene.request().await.is_ok(), "its connection stays");
}

/// There are two slots: the connection's, for its first stream, and one for a second stream.
#[tokio::test(start_paused = true)]
async fn each_further_stream_takes_a_slot_until_its_end() {
    let mut scene = connect(1, 0).await;
    let standby = |scene: &Scene| scene.answers.standby.load(Ordering::SeqCst);
    let mut first = scene.request().await.unwrap().into_body();
    let mut second = scene.request().await.unwrap().into_body();
    assert_eq!(standby(&scene), 0);
    let _third = scene.request().await.unwrap();
    assert_eq!((standby(&scene), scene.answers.refused.load(Ordering::SeqCst)), (1, 1));
    assert!(first.data().await.unwrap().is_err(), "the first ends");
    assert!(second.data().await.unwrap().is_err(), "the second ends");
    let _fourth = scene.request().await.unwrap();
    assert_eq!(standby(&scene), 1);
}
