//! Budgets through histories of requests, clients that leave, kills, orderly ends, upgrades,
//! failed starts, frozen gateways and a database out of reach, against the bill of a provider.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::billing::Draws;
use crate::support::client::Connection;
use crate::support::documents::in_order;
use crate::support::fleet::{MASTER_KEY, Proxy};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::postgres::Cluster;
use crate::support::{count, until};

/// A tenth of a cent a token.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n";
/// Nano-dollars a token.
const TOKEN: u64 = 1_000_000;
const MAX_TOKENS: u64 = 40;
/// At most this is reserved for a request: a token for each byte of its body, and the answer's.
const RESERVE: u64 = (250 + MAX_TOKENS) * TOKEN;
/// One budget that is soon spent, and one that never is.
const BUDGETS: [u64; 2] = [2 * RESERVE, 10_000 * RESERVE];
const LEASE: Duration = Duration::from_secs(2);

/// What a provider bills, by key.
type Bill = Arc<Mutex<HashMap<u64, u64>>>;

/// A provider that bills the prompt and a whole answer once it has read the request, and a stream
/// token by token.
async fn provider() -> (String, Bill) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let bill = Bill::default();
    let bills = Arc::clone(&bill);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let bill = Arc::clone(&bills);
            tokio::spawn(async move {
                let mut stream = stream;
                while serve(&mut stream, &bill).await.is_some() {}
            });
        }
    });
    (url, bill)
}

async fn serve(stream: &mut TcpStream, bill: &Bill) -> Option<()> {
    let body = read(stream).await?;
    let words = body["messages"][0]["content"].as_str()?.to_owned();
    let said: Vec<u64> = words.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [key, tokens, wait] = said[..] else { panic!("{words}") };
    let add = |tokens: u64| *bill.lock().unwrap().entry(key).or_default() += tokens * TOKEN;
    let usage = json!({
        "prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens,
    });
    if body["stream"] != true {
        add(7 + tokens);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let message = json!({"role": "assistant", "content": "x"});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "model",
            "choices": [choice], "usage": usage,
        })
        .to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
        let answer = format!("{head}{}\r\n\r\n{answer}", answer.len());
        return stream.write_all(answer.as_bytes()).await.ok();
    }
    add(7);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()?;
    let event = |choices: Value, usage: Option<&Value>| {
        let event = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "model",
            "choices": choices, "usage": usage,
        });
        format!("data: {event}\n\n")
    };
    for _ in 0..tokens {
        let choice = json!([{"index": 0, "delta": {"content": "x "}, "finish_reason": null}]);
        stream.write_all(event(choice, None).as_bytes()).await.ok()?;
        add(1);
        tokio::time::sleep(Duration::from_millis(wait / 4 + 10)).await;
    }
    let last = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
    let end = event(last, None) + &event(json!([]), Some(&usage)) + "data: [DONE]\n\n";
    stream.write_all(end.as_bytes()).await.ok()?;
    None
}

/// Reads a request, and returns its body.
async fn read(stream: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.expect("a length") {
                return serde_json::from_str(body).ok();
            }
        }
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
    }
}

/// What must be known of requests to judge the sums of one key.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    /// Most that streams cost which the client left.
    left: u64,
    /// Most that killed processes held.
    lost: u64,
}

struct History {
    gateways: Vec<Gateway>,
    ways: Vec<Proxy>,
    keys: Vec<Key>,
    bill: Bill,
    draws: Draws,
    allowed: [Allowed; 2],
    /// When requests were sent, by gateway and key.
    sent: Vec<(usize, usize, Instant)>,
    running: Vec<JoinHandle<()>>,
}

impl History {
    async fn begin(gateways: usize, is_shared: bool, seed: u64) -> History {
        let (url, bill) = provider().await;
        let routing = in_order(&[("a", &url)], PRICED);
        let mut history = History {
            gateways: Vec::new(),
            ways: Vec::new(),
            keys: Vec::new(),
            bill,
            draws: Draws(seed),
            allowed: [Allowed::default(); 2],
            sent: Vec::new(),
            running: Vec::new(),
        };
        let cluster = Cluster::shared();
        let database = if is_shared { cluster.database().await } else { String::new() };
        for _ in 0..gateways {
            let mut setup = Setup::new(&routing);
            if is_shared {
                let way = Proxy::start(cluster.port()).await;
                let port = format!(":{}/", way.port);
                let url = database.replace(&format!(":{}/", cluster.port()), &port);
                let store = format!("store: {{ url: '{url}', lease: {}s }}", LEASE.as_secs());
                setup = setup.server(&store).env("REROUTER_MASTER_KEY", MASTER_KEY);
                history.ways.push(way);
            }
            history.gateways.push(setup.start().await);
        }
        for budget in BUDGETS {
            let budget = json!({"budget": {"usd": budget as f64 / 1e9, "per": "month"}});
            history.keys.push(history.gateways[0].limited_key(budget).await);
        }
        history
    }

    /// Sends a request by a client that leaves after a while, or waits for the whole answer.
    fn ask(&mut self, gateway: usize) {
        let key = usize::from(self.draws.below(3) > 0);
        let (stream, leaves) = (self.draws.below(3) == 0, self.draws.below(3) == 0);
        let (tokens, wait) = (1 + self.draws.below(MAX_TOKENS), self.draws.below(80));
        let stays = Duration::from_millis(self.draws.below(100));
        let body = json!({
            "model": "auto", "max_tokens": MAX_TOKENS, "stream": stream,
            "messages": [{"role": "user", "content": format!("{key} {tokens} {wait}")}],
        });
        let request =
            self.gateways[gateway].chat_request(&self.keys[key], body.to_string().as_bytes());
        if stream && leaves {
            self.allowed[key].left += RESERVE;
        }
        self.sent.push((gateway, key, Instant::now()));
        let address = self.gateways[gateway].address();
        self.running.push(tokio::spawn(async move {
            let Some(mut connection) = Connection::try_open(address).await else { return };
            if leaves {
                let _sent = connection.try_send(&request).await;
                tokio::time::sleep(stays).await;
                connection.abandon();
            } else {
                let _answer = connection.try_exchange(&request).await;
            }
        }));
    }

    /// What this gateway held when it is killed now is lost: at most what was used at once in the
    /// last two spans of two seconds, which end with a write.
    fn loses(&mut self, gateway: usize) {
        for (by, key, at) in &self.sent {
            if *by == gateway && at.elapsed() < Duration::from_secs(8) {
                self.allowed[*key].lost += RESERVE;
            }
        }
    }

    async fn step(&mut self) {
        let gateway = usize::try_from(self.draws.below(self.gateways.len() as u64)).unwrap();
        for _ in 0..self.draws.below(6) {
            let by = usize::try_from(self.draws.below(self.gateways.len() as u64)).unwrap();
            self.ask(by);
        }
        tokio::time::sleep(Duration::from_millis(self.draws.below(120))).await;
        let one = &mut self.gateways[gateway];
        match self.draws.below(12) {
            0..=3 => tokio::time::sleep(Duration::from_millis(self.draws.below(900))).await,
            4 | 5 => {
                one.kill_9();
                self.loses(gateway);
                self.gateways[gateway].start_again().await;
            }
            6 | 7 => one.restart().await,
            8 => {
                one.upgrade().await;
                one.predecessor_ends().await;
            }
            9 => {
                // The data directory is in use.
                let failed = one.fail_to_start().await;
                assert!(failed.contains("in use"), "{failed}");
            }
            10 if !self.ways.is_empty() => {
                self.ways[gateway].close();
                tokio::time::sleep(Duration::from_millis(300 + self.draws.below(600))).await;
                self.ways[gateway].open();
            }
            _ => {
                one.signal("STOP");
                // Others take a process for dead after its lease.
                let long = self.draws.below(2) * LEASE.as_millis() as u64 * 3 / 2;
                tokio::time::sleep(Duration::from_millis(50 + long)).await;
                one.signal("CONT");
            }
        }
        let billed = self.bill.lock().unwrap().clone();
        for (key, budget) in BUDGETS.iter().enumerate() {
            let billed = billed.get(&(key as u64)).copied().unwrap_or(0);
            assert!(billed <= *budget, "key {key}: {billed} is billed of {budget}");
        }
    }

    /// The sums of a key at a gateway.
    async fn sums(&self, gateway: usize, key: usize) -> Option<[u64; 4]> {
        let gateway = &self.gateways[gateway];
        let path = format!("/v1/router/keys/{}", self.keys[key].id);
        let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await;
        let budget = &shown.json()["usage"]["budget"];
        let nano = |name: &str| budget[name].as_f64().map(|usd| (usd * 1e9).round() as u64);
        let (held, reserved) = (nano("held_usd")?, nano("reserved_usd")?);
        let sums = [nano("spent_usd")?, nano("lost_usd")?, held, reserved];
        assert!(sums.iter().sum::<u64>() <= BUDGETS[key], "{budget}");
        Some(sums)
    }

    /// Once no request runs: each gateway tells the same, nothing is held, and what is spent is
    /// what was billed, but for requests whose bill nobody was told.
    async fn end(mut self) {
        for running in std::mem::take(&mut self.running) {
            running.await.unwrap();
        }
        for key in 0..BUDGETS.len() {
            let [spent, lost] = until("all gateways to tell the same", async || {
                let mut told = Vec::new();
                for gateway in 0..self.gateways.len() {
                    told.push(self.sums(gateway, key).await?);
                }
                let [spent, lost, held, reserved] = told[0];
                let is_at_rest = held == 0 && reserved == 0;
                (is_at_rest && told.iter().all(|sums| *sums == told[0])).then_some([spent, lost])
            })
            .await;
            let billed = self.bill.lock().unwrap().get(&(key as u64)).copied().unwrap_or(0);
            let allowed = self.allowed[key];
            let told = format!("key {key}: billed {billed}, spent {spent}, lost {lost}");
            assert!(billed <= spent + lost, "{told}: too little");
            assert!(spent <= billed + allowed.left, "{told}: more than {allowed:?}");
            assert!(lost <= allowed.lost, "{told}: more than {allowed:?}");
        }
    }
}

async fn run(gateways: usize, is_shared: bool) {
    let seed = count("REROUTER_SEED", 1) * 1_000 + gateways as u64 + 3 * u64::from(is_shared);
    for round in 0..count("REROUTER_ROUNDS", 2).min(40) {
        let mut history = History::begin(gateways, is_shared, seed + 10 * round).await;
        for _ in 0..12 {
            history.step().await;
        }
        history.end().await;
    }
}

#[tokio::test]
async fn one_gateway_with_sqlite_spends_what_is_billed() {
    run(1, false).await;
}

#[tokio::test]
async fn one_gateway_with_postgres_spends_what_is_billed() {
    run(1, true).await;
}

#[tokio::test]
async fn three_gateways_spend_what_is_billed() {
    run(3, true).await;
}
