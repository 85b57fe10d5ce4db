//! What an upgrade must not disturb: clients under load, and streams that last until they may end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::client::{self, Answer, Connection, H2, Tls};
use super::documents::chat_body;
use super::gateway::{Gateway, Key};
use super::provider::{self as scripted, Provider, Step};
use super::until;

pub const CHAT: &str = "/v1/chat/completions";
pub const KEYS: &str = "/v1/router/keys";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A provider whose streams pause after their first event.
pub struct Slow {
    pub provider: Provider,
    /// Lets the streams go on that pause.
    gate: Arc<Notify>,
    /// How many have begun.
    begun: Arc<AtomicUsize>,
}

impl Slow {
    pub async fn start() -> Slow {
        let (gate, begun) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (opens, counts) = (Arc::clone(&gate), Arc::clone(&begun));
        let provider = Provider::start(move |request, _| {
            if request.json()["stream"] != true {
                return scripted::completion("a word");
            }
            counts.fetch_add(1, Ordering::SeqCst);
            let chunk = |text: String| Step::Chunk(text.into_bytes());
            vec![
                scripted::stream_head(),
                chunk(scripted::role_event() + &scripted::content_event("slowly")),
                Step::Wait(Arc::clone(&opens)),
                chunk(scripted::last_events()),
                Step::Chunk(Vec::new()),
            ]
        })
        .await;
        Slow { provider, gate, begun }
    }

    /// Lets the streams go on that have begun.
    pub fn go_on(&self) {
        self.gate.notify_waiters();
    }

    pub async fn all_begun(&self, streams: usize) {
        until("the streams to begin", async || {
            (self.begun.load(Ordering::SeqCst) >= streams).then_some(())
        })
        .await;
    }
}

/// Where to send requests, without the processes behind it.
#[derive(Clone)]
pub struct Site {
    pub address: SocketAddr,
    pub admin: String,
}

impl Site {
    pub fn of(gateway: &Gateway) -> Site {
        Site { address: gateway.address(), admin: gateway.admin_key.clone() }
    }

    pub fn request(
        &self,
        method: &str,
        path: &str,
        credential: &str,
        body: Option<&[u8]>,
    ) -> Vec<u8> {
        let bearer = format!("Bearer {credential}");
        let headers = [("authorization", bearer.as_str()), JSON];
        client::request(method, path, &self.address.to_string(), &headers, body)
    }

    pub fn chat(&self, key: &Key) -> Vec<u8> {
        self.request("POST", CHAT, &key.secret, Some(chat_body("auto", false).as_bytes()))
    }

    /// On a connection of its own, which must not be refused, nor closed without an answer.
    pub async fn send(&self, request: &[u8]) -> Answer {
        let mut connection = Connection::try_open(self.address).await.expect("it accepts");
        connection.try_exchange(request).await.expect("an answer")
    }

    /// A change by the admin; once more where it is told to come back.
    pub async fn change(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(|value| value.to_string().into_bytes());
        let request = self.request(method, path, &self.admin, body.as_deref());
        until("the change", async || {
            let answer = self.send(&request).await;
            if answer.status == 503 {
                assert_eq!(answer.header("retry-after"), Some("1"));
                return None;
            }
            Some(answer)
        })
        .await
    }

    pub async fn make_key(&self) -> Key {
        Key::of(&self.change("POST", KEYS, Some(&json!({ "name": "meanwhile" }))).await)
    }

    pub async fn revoke(&self, key: &Key) {
        let answer = self.change("DELETE", &format!("{KEYS}/{}", key.id), None).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
}

/// What clients under load share. Each panics at its first failure.
#[derive(Clone)]
pub struct Load {
    pub site: Site,
    stop: Arc<AtomicBool>,
    /// The ids of the requests that were answered.
    answered: Arc<Mutex<Vec<String>>>,
}

impl Load {
    pub fn on(gateway: &Gateway) -> Load {
        Load { site: Site::of(gateway), stop: Arc::default(), answered: Arc::default() }
    }

    /// Whether another request is to come, after a pause.
    async fn goes_on(&self, pause_ms: u64) -> bool {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        !self.stop.load(Ordering::SeqCst)
    }

    fn answered(&self, answer: &Answer) {
        assert!(answer.status == 200 && answer.whole, "{}: {}", answer.status, answer.text());
        self.answered.lock().unwrap().push(answer.request_id());
    }

    /// A connection for each request.
    async fn anew(self, key: Arc<Key>) {
        let request = self.site.chat(&key);
        while self.goes_on(10).await {
            self.answered(&self.site.send(&request).await);
        }
    }

    /// One connection for as long as the gateway keeps it.
    async fn kept(self, key: Arc<Key>, pause_ms: u64) {
        let (request, mut kept) = (self.site.chat(&key), None);
        while self.goes_on(pause_ms).await {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => Connection::try_open(self.site.address).await.expect("it accepts"),
            };
            let answer = connection.try_exchange(&request).await.expect("an answer");
            self.answered(&answer);
            kept = (answer.header("connection") != Some("close")).then_some(connection);
        }
    }

    /// Streams of HTTP/2 over TLS, on a connection for as long as it takes them.
    async fn over_h2(self, key: Arc<Key>, address: SocketAddr, tls: Tls) {
        let bearer = format!("Bearer {}", key.secret);
        let headers = [("authorization", bearer.as_str()), JSON];
        let body = chat_body("auto", false);
        let mut connection = H2::open((address, &tls)).await;
        while self.goes_on(10).await {
            match connection.try_send("POST", CHAT, &headers, body.as_bytes(), false).await {
                Some(answer) => self.answered(&answer),
                None => connection = H2::open((address, &tls)).await,
            }
        }
    }

    /// Keys that are accepted once they are made, and refused once they are revoked.
    async fn keys(self) {
        while self.goes_on(10).await {
            let key = self.site.make_key().await;
            self.answered(&self.site.send(&self.site.chat(&key)).await);
            self.site.revoke(&key).await;
            let refused = self.site.send(&self.site.chat(&key)).await;
            assert_eq!(refused.status, 401, "{}", refused.text());
        }
    }

    /// Begins with clients only that have a connection for each request.
    pub fn ask(&self, key: &Arc<Key>) -> Vec<JoinHandle<()>> {
        let ask = |_| tokio::spawn(self.clone().anew(Arc::clone(key)));
        (0..2).map(ask).collect()
    }

    /// Begins with every kind of client.
    pub fn start(&self, key: &Arc<Key>, (address, tls): (SocketAddr, &Tls)) -> Vec<JoinHandle<()>> {
        let more = || (self.clone(), Arc::clone(key));
        let mut clients = Vec::new();
        for pause_ms in [5, 20, 700] {
            let (load, key) = more();
            clients.push(tokio::spawn(load.kept(key, pause_ms)));
        }
        for _ in 0..2 {
            let (load, key) = more();
            clients.push(tokio::spawn(load.anew(key)));
            let (load, key) = more();
            clients.push(tokio::spawn(load.over_h2(key, address, tls.clone())));
        }
        clients.push(tokio::spawn(self.clone().keys()));
        clients
    }

    pub async fn end(&self, clients: Vec<JoinHandle<()>>) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.expect("no request failed");
        }
        std::mem::take(&mut *self.answered.lock().unwrap())
    }
}

/// Long streams of requests with this body, half of them over HTTP/2 with TLS; all have begun.
pub async fn long_streams(
    gateway: &Gateway,
    key: &Key,
    slow: &Slow,
    body: &str,
) -> Vec<JoinHandle<Answer>> {
    let before = slow.begun.load(Ordering::SeqCst);
    let bearer = format!("Bearer {}", key.secret);
    let mut streams = Vec::new();
    for _ in 0..2 {
        let site = Site::of(gateway);
        let request = site.request("POST", CHAT, &key.secret, Some(body.as_bytes()));
        streams.push(tokio::spawn(async move { site.send(&request).await }));
        let (mut connection, bearer, body) =
            (H2::open(gateway.tls()).await, bearer.clone(), body.to_owned());
        streams.push(tokio::spawn(async move {
            let headers = [("authorization", bearer.as_str()), JSON];
            connection.send("POST", CHAT, &headers, body.as_bytes(), false).await
        }));
    }
    slow.all_begun(before + streams.len()).await;
    streams
}

/// Lets them go on to their ends, which all of them see.
pub async fn streams_end(slow: &Slow, streams: Vec<JoinHandle<Answer>>) -> Vec<String> {
    slow.go_on();
    let mut ids = Vec::new();
    for stream in streams {
        let answer = stream.await.unwrap();
        assert!(answer.status == 200 && answer.whole, "{}: {}", answer.status, answer.text());
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
        ids.push(answer.request_id());
    }
    ids
}

/// Connections that were used once, before an upgrade.
pub async fn idle(site: &Site, key: &Key) -> [Connection; 3] {
    let mut idle = Vec::new();
    for _ in 0..3 {
        let mut connection = Connection::try_open(site.address).await.expect("it accepts");
        assert_eq!(connection.exchange(&site.chat(key)).await.status, 200);
        idle.push(connection);
    }
    idle.try_into().unwrap_or_else(|_| unreachable!())
}

/// The process before an upgrade answers once more on connections that it has. It knows what has
/// changed since, and changes nothing.
pub async fn answers_last(site: &Site, idle: [Connection; 3], doomed: &Key) {
    let [mut refuses, mut accepts, mut changes] = idle;
    let ask = async |connection: &mut Connection, request: &[u8]| {
        let answer = connection.exchange(request).await;
        assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
        answer
    };
    site.revoke(doomed).await;
    assert_eq!(ask(&mut refuses, &site.chat(doomed)).await.status, 401);
    let key = site.make_key().await;
    assert_eq!(ask(&mut accepts, &site.chat(&key)).await.status, 200);
    let path = format!("{KEYS}/{}", key.id);
    let later = ask(&mut changes, &site.request("DELETE", &path, &site.admin, None)).await;
    assert_eq!((later.status, later.header("retry-after")), (503, Some("1")), "{later:?}");
    site.revoke(&key).await;
}
