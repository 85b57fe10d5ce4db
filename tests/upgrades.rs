//! A new process takes over from a running one under load, with long streams: no request fails, no
//! key made before or meanwhile is refused, none that was revoked is accepted. So too when a
//! certificate is replaced. And what becomes of an upgrade that fails, and of a drain.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::nodes;
use crate::support::client::{self, Answer, Connection, H2, Tls};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::Node;
use crate::support::postgres::Cluster;
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{count, until};

const CHAT: &str = "/v1/chat/completions";
const KEYS: &str = "/v1/router/keys";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A provider whose streams pause after their first event.
struct Slow {
    provider: Provider,
    /// Lets the streams go on that pause.
    gate: Arc<Notify>,
    /// How many have begun.
    begun: Arc<AtomicUsize>,
}

impl Slow {
    async fn start() -> Slow {
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

    async fn all_begun(&self, streams: usize) {
        until("the streams to begin", async || {
            (self.begun.load(Ordering::SeqCst) >= streams).then_some(())
        })
        .await;
    }
}

/// Where to send requests, without the processes behind it.
#[derive(Clone)]
struct Site {
    address: SocketAddr,
    admin: String,
}

impl Site {
    fn of(gateway: &Gateway) -> Site {
        Site { address: gateway.address(), admin: gateway.admin_key.clone() }
    }

    fn request(&self, method: &str, path: &str, credential: &str, body: Option<&[u8]>) -> Vec<u8> {
        let bearer = format!("Bearer {credential}");
        let headers = [("authorization", bearer.as_str()), JSON];
        client::request(method, path, &self.address.to_string(), &headers, body)
    }

    fn chat(&self, key: &Key) -> Vec<u8> {
        self.request("POST", CHAT, &key.secret, Some(chat_body("auto", false).as_bytes()))
    }

    /// On a connection of its own, which must not be refused, nor closed without an answer.
    async fn send(&self, request: &[u8]) -> Answer {
        let mut connection = Connection::try_open(self.address).await.expect("it accepts");
        connection.try_exchange(request).await.expect("an answer")
    }

    /// A change by the admin; once more where it is told to come back.
    async fn change(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
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

    async fn make_key(&self) -> Key {
        Key::of(&self.change("POST", KEYS, Some(&json!({ "name": "meanwhile" }))).await)
    }

    async fn revoke(&self, key: &Key) {
        let answer = self.change("DELETE", &format!("{KEYS}/{}", key.id), None).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
}

/// What clients under load share. Each panics at its first failure.
#[derive(Clone)]
struct Load {
    site: Site,
    stop: Arc<AtomicBool>,
    /// The ids of the requests that were answered.
    answered: Arc<Mutex<Vec<String>>>,
}

impl Load {
    fn on(gateway: &Gateway) -> Load {
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

    /// Begins with every kind of client.
    fn start(&self, key: &Arc<Key>, (address, tls): (SocketAddr, &Tls)) -> Vec<JoinHandle<()>> {
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

    async fn end(&self, clients: Vec<JoinHandle<()>>) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.expect("no request failed");
        }
        std::mem::take(&mut *self.answered.lock().unwrap())
    }
}

/// Long streams, half of them over HTTP/2 with TLS; all have begun.
async fn long_streams(gateway: &Gateway, key: &Key, slow: &Slow) -> Vec<JoinHandle<Answer>> {
    let before = slow.begun.load(Ordering::SeqCst);
    let (bearer, body) = (format!("Bearer {}", key.secret), chat_body("auto", true));
    let mut streams = Vec::new();
    for _ in 0..2 {
        let site = Site::of(gateway);
        let request = site.request("POST", CHAT, &key.secret, Some(body.as_bytes()));
        streams.push(tokio::spawn(async move { site.send(&request).await }));
        let (mut connection, bearer, body) =
            (H2::open(gateway.tls()).await, bearer.clone(), body.clone());
        streams.push(tokio::spawn(async move {
            let headers = [("authorization", bearer.as_str()), JSON];
            connection.send("POST", CHAT, &headers, body.as_bytes(), false).await
        }));
    }
    slow.all_begun(before + streams.len()).await;
    streams
}

/// Lets them go on to their ends, which all of them see.
async fn streams_end(slow: &Slow, streams: Vec<JoinHandle<Answer>>) -> Vec<String> {
    slow.gate.notify_waiters();
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
async fn idle(site: &Site, key: &Key) -> [Connection; 3] {
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
async fn answers_last(site: &Site, idle: [Connection; 3], doomed: &Key) {
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

async fn upgrades_under_load(setup: impl FnOnce(Setup) -> Setup) {
    let slow = Slow::start().await;
    let document = in_order(&[("a", &slow.provider.url())], "");
    let mut gateway = setup(Setup::new(&document).tls().threads(2)).start().await;
    let key = Arc::new(gateway.create_key().await);
    let load = Load::on(&gateway);
    let clients = load.start(&key, gateway.tls());
    let mut ids = Vec::new();
    let rounds = count("REROUTER_ROUNDS", 150).div_ceil(50);
    for _ in 0..rounds {
        let doomed = load.site.make_key().await;
        let streams = long_streams(&gateway, &key, &slow).await;
        let idle = idle(&load.site, &key).await;
        gateway.upgrade().await;
        answers_last(&load.site, idle, &doomed).await;
        ids.extend(streams_end(&slow, streams).await);
        // It ends when its requests have, not when it may.
        let drained = Instant::now();
        gateway.predecessors_end().await;
        assert!(drained.elapsed() < Duration::from_secs(30), "{:?}", drained.elapsed());
    }
    let answered = load.end(clients).await;
    assert!(answered.len() > 100, "{}", answered.len());
    // What either process answered is captured.
    ids.extend(answered.into_iter().rev().step_by(7).take(100));
    for id in ids {
        let capture = gateway.capture(&id).await;
        assert_eq!(capture["status"], 200, "{capture}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_a_new_process_takes_over() {
    upgrades_under_load(|setup| setup).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_with_postgresql() {
    let url = Cluster::shared().database().await;
    upgrades_under_load(|setup| setup.server(&format!("store: {{ url: '{url}' }}"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_while_a_certificate_is_replaced() {
    let slow = Slow::start().await;
    let setup = Setup::new(&in_order(&[("a", &slow.provider.url())], "")).tls().threads(2);
    let gateway = setup.start().await;
    let key = Arc::new(gateway.create_key().await);
    let (address, tls) = gateway.tls();
    let load = Load::on(&gateway);
    let clients = load.start(&key, (address, tls));
    for by_signal in [true, false] {
        let streams = long_streams(&gateway, &key, &slow).await;
        let before = tls.shown(address).await;
        let new = Tls::renew(gateway.dir());
        assert_ne!(before, new);
        if by_signal {
            gateway.hup().await;
        }
        until("the new certificate", async || (tls.shown(address).await == new).then_some(()))
            .await;
        for _ in 0..10 {
            assert_eq!(tls.shown(address).await, new, "once shown, always shown");
        }
        streams_end(&slow, streams).await;
    }
    assert!(load.end(clients).await.len() > 100);
}

/// A gateway, a key for it, and its provider.
async fn small() -> (Gateway, Key, Slow) {
    let slow = Slow::start().await;
    let gateway = Gateway::start(&in_order(&[("a", &slow.provider.url())], "")).await;
    let key = gateway.create_key().await;
    (gateway, key, slow)
}

/// It answers, and takes changes.
async fn goes_on(gateway: &Gateway, key: &Key) {
    let site = Site::of(gateway);
    assert_eq!(site.send(&site.chat(key)).await.status, 200);
    let made = site.make_key().await;
    site.revoke(&made).await;
    assert_eq!(site.send(&site.chat(&made)).await.status, 401);
}

#[tokio::test]
async fn an_upgrade_that_fails_changes_nothing() {
    let (mut gateway, key, _slow) = small().await;
    let process = gateway.process();
    let routing = std::fs::read_to_string(gateway.dir().join("routing.yaml")).unwrap();
    std::fs::write(gateway.dir().join("routing.yaml"), "aliases: 7\n").unwrap();
    let said = gateway.fail_to_upgrade().await;
    assert!(said.contains("routing.yaml:1:"), "{said}");
    std::fs::write(gateway.dir().join("routing.yaml"), &routing).unwrap();

    // One that leaves when it has all that it asked for.
    let path = gateway.dir().join("data/upgrade.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"rerouter upgrade 1\n").unwrap();
    let mut offer = String::new();
    BufReader::new(&stream).read_line(&mut offer).unwrap();
    assert!(offer.contains("Taken"), "{offer}");
    let site = Site::of(&gateway);
    assert_eq!(site.send(&site.chat(&key)).await.status, 200, "it answers meanwhile");
    let make = site.request("POST", KEYS, &site.admin, Some(b"{}"));
    let later = site.send(&make).await;
    assert_eq!((later.status, later.header("retry-after")), (503, Some("1")), "{later:?}");
    drop(stream);
    goes_on(&gateway, &key).await;

    // One of another version.
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"rerouter upgrade 2\n").unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    goes_on(&gateway, &key).await;
    assert_eq!(gateway.process(), process);
    gateway.upgrade().await;
    gateway.predecessors_end().await;
    goes_on(&gateway, &key).await;
}

#[tokio::test]
async fn without_a_gateway_that_answers_there_is_no_upgrade() {
    let (mut gateway, key, _slow) = small().await;
    // In its place one that says nothing.
    let path = gateway.dir().join("data/upgrade.sock");
    std::fs::remove_file(&path).unwrap();
    let silent = UnixListener::bind(&path).unwrap();
    let said = gateway.fail_to_upgrade().await;
    assert!(said.contains("it did not answer within"), "{said}");
    drop(silent);
    goes_on(&gateway, &key).await;
    gateway.stop().await;
    let said = gateway.fail_to_upgrade().await;
    assert!(said.contains("start without --upgrade"), "{said}");
}

#[tokio::test]
async fn sigquit_starts_a_process_that_takes_over() {
    let (gateway, key, slow) = small().await;
    let site = Site::of(&gateway);
    let request = site.request("POST", CHAT, &key.secret, Some(chat_body("auto", true).as_bytes()));
    let stream = {
        let site = site.clone();
        tokio::spawn(async move { site.send(&request).await })
    };
    slow.all_begun(1).await;
    gateway.signal("QUIT");
    let next = until("the new process", async || {
        let log = gateway.log();
        let (before, _) = log.split_once(" has taken over")?;
        before.rsplit_once("process ")?.1.parse::<u32>().ok()
    })
    .await;
    struct Ends(u32);
    impl Drop for Ends {
        fn drop(&mut self) {
            let id = self.0.to_string();
            let _sent = Command::new("sh").args(["-c", "kill -s KILL \"$0\"", &id]).status();
        }
    }
    let _next = Ends(next);
    assert_ne!(next, gateway.process());
    // To the process before, which has nothing to hand over any more.
    gateway.signal("QUIT");
    goes_on(&gateway, &key).await;
    streams_end(&slow, vec![stream]).await;
    until("the process before to end", async || {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", gateway.process())).unwrap();
        state.contains(") Z ").then_some(())
    })
    .await;
    goes_on(&gateway, &key).await;
}

#[tokio::test]
async fn a_node_serves_on_through_an_upgrade() {
    let (mut gateway, _other) = nodes::start().await;
    let key = gateway.create_key().await;
    let server = Provider::always(scripted::completion("here")).await;
    let node = Node::enrol(&gateway, "n", json!({})).await;
    node.serve(&gateway, &server.url(), &["qwen"], json!({})).await;
    let site = Site::of(&gateway);
    let body = chat_body("local", false);
    let request = site.request("POST", CHAT, &key.secret, Some(body.as_bytes()));
    let answer = site.send(&request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.upgrade().await;
    let answer = site.send(&request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.predecessors_end().await;
    assert_eq!(node.shown(&gateway).await["state"], "ready");
    // Its reports go on where they were.
    node.beat(&gateway, 2, "ready", 0).await;
}

#[tokio::test]
async fn a_drain_ends_with_its_last_request() {
    let (mut gateway, key, slow) = small().await;
    let site = Site::of(&gateway);
    let request = site.request("POST", CHAT, &key.secret, Some(chat_body("auto", true).as_bytes()));
    let stream = {
        let site = site.clone();
        tokio::spawn(async move { site.send(&request).await })
    };
    slow.all_begun(1).await;
    gateway.signal("TERM");
    until("new connections to be refused", async || {
        Connection::try_open(site.address).await.is_none().then_some(())
    })
    .await;
    let ids = streams_end(&slow, vec![stream]).await;
    let ended = Instant::now();
    gateway.ended().await;
    assert!(ended.elapsed() < Duration::from_secs(10), "{:?}", ended.elapsed());
    gateway.start_again().await;
    assert_eq!(gateway.capture(&ids[0]).await["status"], 200);
}
