//! What a sender without a credential costs: CPU, bytes held while nobody reads the answer, and log
//! lines, by one try of everything that is open. Each has a bound in [`BOUNDS`]; what has none
//! fails. With `--nocapture` it prints the table of SECURITY.md.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rerouter::internals::api::{ROUTES, Route};
use rerouter::internals::console::PAGES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::support::client::{self, Connection, H2};
use crate::support::documents::{chat_body, in_order};
use crate::support::frames::{self, Frames};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

const MIB: usize = 1 << 20;
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: u16 = 4;
/// Streams of one connection.
const STREAMS: u32 = 99;

/// The most that one try may cost, in the profile of the tests: several times what it does.
struct Bound {
    what: &'static str,
    /// Microseconds of CPU.
    cpu: u64,
    /// KiB that are held while nobody reads the answer.
    held: usize,
    lines: usize,
}

const fn bound(what: &'static str, cpu: u64, held: usize, lines: usize) -> Bound {
    Bound { what, cpu, held, lines }
}

/// A log line is one of the access log. Warnings come once a minute, however many tries.
const BOUNDS: &[Bound] = &[
    // The open rows of both tables.
    bound("GET /health", 5_000, 64, 1),
    bound("GET /version", 5_000, 64, 1),
    bound("GET /openapi.json", 5_000, 64, 1),
    bound("POST /v1/auth/register", 400_000, 64, 1),
    bound("POST /v1/auth/login", 400_000, 64, 1),
    bound("GET /", 5_000, 64, 1),
    bound("GET /console", 5_000, 64, 1),
    bound("GET /console/assets/{digest}/{name}", 5_000, 64, 1),
    bound("GET /console/sign-in", 5_000, 64, 1),
    bound("POST /console/sign-in", 400_000, 64, 1),
    bound("GET /console/first-admin", 5_000, 64, 1),
    bound("POST /console/first-admin", 5_000, 64, 1),
    // AGENT without its key.
    bound("open POST /v1/agents", 50_000, 64, 1),
    // A page of 20 agents of 30 KiB. All answers together have the bound of an address.
    bound("open GET /v1/agents", 20_000, 1_024, 1),
    bound("open GET /v1/agents/{id}", 5_000, 64, 1),
    bound("open PATCH /v1/agents/{id}", 5_000, 64, 1),
    bound("open DELETE /v1/agents/{id}", 5_000, 64, 1),
    bound("open POST /v1/api-keys", 5_000, 64, 1),
    bound("open GET /v1/api-keys", 5_000, 64, 1),
    bound("open GET /v1/api-keys/{id}", 5_000, 64, 1),
    bound("open PATCH /v1/api-keys/{id}", 5_000, 64, 1),
    bound("open DELETE /v1/api-keys/{id}", 5_000, 64, 1),
    bound("open POST /v1/api-keys/{id}/rotate", 5_000, 64, 1),
    // All others, each with a key that is none.
    bound("a closed row, a key that is none", 5_000, 64, 1),
    bound("404", 5_000, 64, 1),
    bound("405", 5_000, 64, 1),
    bound("413", 5_000, 64, 1),
    bound("415", 5_000, 64, 1),
    bound("421, an unknown host", 5_000, 64, 1),
    bound("a login with a body that is no JSON", 5_000, 64, 1),
    bound("a body of 1 MiB to a closed row", 20_000, 64, 1),
    bound("a head that is none", 5_000, 64, 1),
    bound("a line without CRLF", 5_000, 64, 1),
    bound("a head of 64 KiB", 20_000, 64, 1),
    bound("two lengths", 5_000, 64, 1),
    bound("TLS where none is spoken", 5_000, 64, 1),
    bound("a connection and nothing", 5_000, 64, 0),
    bound("HTTP/2: a handshake and a request", 60_000, 64, 1),
    bound("HTTP/2: a request", 5_000, 64, 1),
    bound("HTTP/2: a head of 64 KiB", 50_000, 64, 1),
    bound("HTTP/2: no preface", 60_000, 64, 0),
    bound("HTTP/2: 99 streams opened and reset", 400_000, 64, 99),
    bound("HTTP/2: 1,000 pings and settings", 100_000, 64, 1),
    bound("TLS: HTTP/1 and a request", 60_000, 64, 1),
    bound("TLS: a handshake and nothing", 60_000, 64, 0),
    bound("TLS: no handshake", 20_000, 64, 0),
    bound("metrics: GET /metrics", 50_000, 64, 0),
    bound("metrics: GET /livez", 5_000, 64, 0),
    bound("metrics: GET /readyz", 5_000, 64, 0),
    bound("metrics: 404", 5_000, 64, 0),
    bound("metrics: 421, an unknown host", 5_000, 64, 0),
    bound("metrics: a head that is none", 5_000, 64, 0),
];

/// Of a process, by `/proc`: nanoseconds of CPU of the threads that it has.
fn cpu(process: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |task: std::fs::DirEntry| {
        let told = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        told.split(' ').next()?.parse::<u64>().ok()
    };
    tasks.flatten().filter_map(of).sum()
}

/// Bytes of memory that it has now.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// One row of the table.
struct Cost {
    what: String,
    /// Microseconds.
    cpu: u64,
    /// Bytes, where an answer was left unread.
    held: Option<usize>,
    lines: f64,
}

/// A gateway whose costs are measured.
struct Walk {
    gateway: Gateway,
    costs: Vec<Cost>,
}

impl Walk {
    async fn new(setup: Setup) -> Self {
        let walk = Walk { gateway: setup.start().await, costs: Vec::new() };
        // What is made at the first use.
        for path in ["/openapi.json", "/console/sign-in", "/console/assets/x/htmx.js"] {
            walk.gateway.send("GET", path, &[], None).await;
        }
        walk
    }

    /// The lines of the log, once everything before this has been written.
    async fn lines(&self) -> usize {
        let id = self.gateway.send("GET", "/health", &[], None).await.request_id();
        until("the access line", async || self.gateway.log().contains(&id).then_some(())).await;
        self.gateway.log().lines().count()
    }

    /// Tries it so often, one after the other.
    async fn tries(&mut self, what: &str, tries: usize, one: impl AsyncFn(&Gateway, usize)) {
        let process = self.gateway.process();
        let before = (self.lines().await, cpu(process));
        for n in 0..tries {
            one(&self.gateway, n).await;
        }
        let spent = cpu(process).saturating_sub(before.1) / 1_000 / tries as u64;
        // The line of this look is its own.
        let lines = (self.lines().await - before.0 - 1) as f64 / tries as f64;
        self.costs.push(Cost { what: what.to_owned(), cpu: spent, held: None, lines });
    }

    /// The same for bytes over plain HTTP/1, answered with one of these statuses.
    async fn plain(&mut self, what: &str, bytes: &[u8], statuses: &[u16]) {
        self.tries(what, 20, async |gateway, _| {
            let mut connection = gateway.connect().await;
            let answer = connection.try_exchange(bytes).await;
            let status = answer.map(|answer| answer.status);
            assert!(status.is_some_and(|status| statuses.contains(&status)), "{what}: {status:?}");
        })
        .await;
    }

    /// Leaves the answers to `head` unread on all streams of a connection.
    async fn unread(&mut self, method: &str, path: &str) {
        let process = self.gateway.process();
        let before = resident(process);
        let connection = unread(&self.gateway, method, path).await.expect("a connection");
        let held = resident(process).saturating_sub(before) / STREAMS as usize;
        drop(connection);
        self.costs.last_mut().expect("its other costs").held = Some(held);
    }
}

/// Asks by every stream of a connection whose windows stay at 0, until the last answer has begun.
async fn unread(gateway: &Gateway, method: &str, path: &str) -> Option<Frames> {
    let (address, tls) = gateway.tls();
    let authority = format!("localhost:{}", address.port());
    let fields =
        [(":method", method), (":scheme", "https"), (":path", path), (":authority", &authority)];
    let requests: Vec<u8> =
        (0..STREAMS).flat_map(|n| frames::request(2 * n + 1, &fields)).collect();
    let stream = tls.dial(address, b"h2").await?;
    let mut connection = Frames::open(stream, &[(INITIAL_WINDOW, 0)]).await;
    (connection.send(&requests).await && connection.all_begun(STREAMS as usize).await)
        .then_some(connection)
}

/// The path of a row, with something in its variable segments.
fn path(route: &Route) -> String {
    route.path.replace("{digest}/{name}", "x/htmx.js").replace(['{', '}'], "")
}

fn form(route: &Route) -> (&'static str, &'static str) {
    match route.path.starts_with("/console") {
        true => ("application/x-www-form-urlencoded", "email=x%40example.com&password=wrong-one"),
        false => ("application/json", r#"{"email":"x@example.com","password":"wrong-one"}"#),
    }
}

fn request(gateway: &Gateway, route: &Route, more: &[(&str, &str)]) -> Vec<u8> {
    let (kind, body) = form(route);
    let host = gateway.host();
    let origin = format!("http://{host}");
    let headers = [&[("content-type", kind), ("origin", &origin)], more].concat();
    let body = (route.method != "GET").then_some(body.as_bytes());
    client::request(route.method.as_str(), &path(route), &host, &headers, body)
}

fn name(route: &Route) -> String {
    format!("{} {}", route.method, route.path)
}

async fn open_rows(walk: &mut Walk) {
    for route in ROUTES.iter().chain(PAGES).filter(|route| route.policy.is_open()) {
        let hashes = route.method == "POST" && !route.path.ends_with("first-admin");
        // A proxy that is trusted says whose try it is, so that none is throttled.
        walk.tries(&name(route), if hashes { 4 } else { 20 }, async |gateway, n| {
            let client = format!("198.51.{n}.1");
            let asked = request(gateway, route, &[("x-forwarded-for", client.as_str())]);
            let asked = String::from_utf8(asked).unwrap();
            // An e-mail of its own each time, and a password that is none after the registration.
            let body = asked.replace("x@", &format!("{n}@")).replace("x%40", &format!("{n}%40"));
            let wrong = if route.path.ends_with("register") { "wrong-one" } else { "wrong-two" };
            let body = body.replace("wrong-one", wrong);
            let answer = gateway.connect().await.exchange(body.as_bytes()).await;
            let expected = match name(route).as_str() {
                "POST /v1/auth/register" => 201,
                "POST /v1/auth/login" | "POST /console/sign-in" => 401,
                _ => answer.status.min(499),
            };
            assert_eq!(answer.status, expected, "{}: {}", name(route), answer.text());
        })
        .await;
        walk.unread(route.method.as_str(), &path(route)).await;
    }
}

async fn closed_rows(walk: &mut Walk) {
    let closed: Vec<&Route> =
        ROUTES.iter().chain(PAGES).filter(|route| !route.policy.is_open()).collect();
    let open_agent = |route: &Route| {
        route.path.starts_with("/v1/agents") || route.path.starts_with("/v1/api-keys")
    };
    let (open, closed): (Vec<&Route>, Vec<&Route>) =
        closed.into_iter().partition(|route| open_agent(route));
    walk.tries("a closed row, a key that is none", closed.len(), async |gateway, n| {
        let asked = request(gateway, closed[n], &[("authorization", "Bearer rtr_none")]);
        let answer = gateway.connect().await.exchange(&asked).await;
        let refused = [303, 401, 403].contains(&answer.status);
        assert!(refused, "{}: {} {}", name(closed[n]), answer.status, answer.text());
    })
    .await;
    walk.unread("GET", "/v1/router/keys").await;
    for route in open {
        let what = format!("open {}", name(route));
        walk.tries(&what, 20, async |gateway, n| {
            let mut asked = request(gateway, route, &[]);
            if name(route) == "POST /v1/agents" {
                let text = "x".repeat(30 << 10);
                let agent = serde_json::json!({
                    "name": format!("a{n}"), "model": "auto", "instructions": text
                });
                let headers = [("content-type", "application/json")];
                let body = agent.to_string();
                asked = client::request(
                    "POST",
                    route.path,
                    &gateway.host(),
                    &headers,
                    Some(body.as_bytes()),
                );
            }
            let answer = gateway.connect().await.exchange(&asked).await;
            assert!(answer.status < 500, "{what}: {} {}", answer.status, answer.text());
        })
        .await;
        walk.unread(route.method.as_str(), &path(route)).await;
    }
}

async fn errors(walk: &mut Walk) {
    let host = walk.gateway.host();
    let plain = |method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>| {
        client::request(method, path, &host, headers, body)
    };
    walk.plain("404", &plain("GET", "/nothing", &[], None), &[404]).await;
    walk.unread("GET", "/nothing").await;
    walk.plain("405", &plain("PUT", "/health", &[], None), &[405]).await;
    let long =
        format!("POST /v1/auth/login HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000000\r\n\r\n");
    walk.plain("413", long.as_bytes(), &[413]).await;
    let typed = [("content-type", "text/plain")];
    walk.plain("415", &plain("POST", "/v1/auth/login", &typed, Some(b"{}")), &[415]).await;
    let unknown = client::request("GET", "/health", "nobody.example.com", &[], None);
    walk.plain("421, an unknown host", &unknown, &[421]).await;
    let typed = [("content-type", "application/json")];
    let what = "a login with a body that is no JSON";
    walk.plain(what, &plain("POST", "/v1/auth/login", &typed, Some(b"{\"a")), &[400]).await;
    let large = vec![b' '; MIB];
    let what = "a body of 1 MiB to a closed row";
    walk.plain(what, &plain("POST", "/v1/chat/completions", &typed, Some(&large)), &[401]).await;
    walk.plain("a head that is none", b"\0\r\n\r\n", &[400]).await;
    walk.plain("a line without CRLF", b"GET / HTTP/1.1\nhost: x\n\n", &[400]).await;
    let line = format!("GET / HTTP/1.1\r\nhost: {host}\r\nx: {}", "y".repeat(80 << 10));
    walk.plain("a head of 64 KiB", line.as_bytes(), &[431]).await;
    let twice = format!(
        "POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12"
    );
    walk.plain("two lengths", twice.as_bytes(), &[400]).await;
    walk.plain("TLS where none is spoken", &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3], &[400]).await;
    walk.tries("a connection and nothing", 20, async |gateway, _| {
        drop(TcpStream::connect(gateway.address()).await.unwrap());
    })
    .await;
}

/// Waits until the other side closes.
async fn closes(mut stream: impl AsyncReadExt + Unpin) {
    let mut piece = [0; 4096];
    let reading = async { while stream.read(&mut piece).await.is_ok_and(|n| n > 0) {} };
    timeout(Duration::from_secs(60), reading).await.expect("it closes");
}

async fn over_tls(walk: &mut Walk) {
    walk.tries("HTTP/2: a handshake and a request", 20, async |gateway, _| {
        let answer = H2::open(gateway.tls()).await.send("GET", "/health", &[], b"", false).await;
        assert_eq!(answer.status, 200);
    })
    .await;
    let kept = tokio::sync::Mutex::new(H2::open(walk.gateway.tls()).await);
    walk.tries("HTTP/2: a request", 20, async |_, _| {
        assert_eq!(kept.lock().await.send("GET", "/health", &[], b"", false).await.status, 200);
    })
    .await;
    let dial = async |gateway: &Gateway, protocol: &[u8]| {
        let (address, tls) = gateway.tls();
        tls.dial(address, protocol).await.expect("a handshake")
    };
    walk.tries("HTTP/2: a head of 64 KiB", 20, async |gateway, _| {
        let mut connection = Frames::open(dial(gateway, b"h2").await, &[]).await;
        let long = "y".repeat(80 << 10);
        let authority = format!("localhost:{}", gateway.tls().0.port());
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/health"),
            (":authority", authority.as_str()),
            ("x", long.as_str()),
        ];
        assert!(connection.send(&frames::request(1, &fields)).await);
        assert_eq!(connection.ended(1).await.and_then(|ended| ended.status), Some(431));
    })
    .await;
    walk.tries("HTTP/2: no preface", 20, async |gateway, _| {
        let mut stream = dial(gateway, b"h2").await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        closes(stream).await;
    })
    .await;
    walk.tries("HTTP/2: 99 streams opened and reset", 5, async |gateway, _| {
        let mut connection = Frames::open(dial(gateway, b"h2").await, &[]).await;
        let authority = format!("localhost:{}", gateway.tls().0.port());
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/health"),
            (":authority", authority.as_str()),
        ];
        let reset = |stream: u32| {
            let stream = stream.to_be_bytes();
            [&[0, 0, 4, 3, 0][..], &stream, &[0, 0, 0, 8]].concat()
        };
        let flood: Vec<u8> = (0..STREAMS)
            .flat_map(|n| [frames::request(2 * n + 1, &fields), reset(2 * n + 1)].concat())
            .collect();
        // It may have been told to go before all is sent.
        let _sent = connection.send(&flood).await;
        let last = 2 * STREAMS + 1;
        if connection.send(&frames::request(last, &fields)).await {
            let _ended = connection.ended(last).await;
        }
    })
    .await;
    walk.tries("HTTP/2: 1,000 pings and settings", 5, async |gateway, _| {
        let mut connection = Frames::open(dial(gateway, b"h2").await, &[]).await;
        let ping = [&[0, 0, 8, 6, 0, 0, 0, 0, 0][..], &[7; 8]].concat();
        let flood = [ping, frames::settings(&[(INITIAL_WINDOW, 9)])].concat().repeat(1_000);
        let _sent = connection.send(&flood).await;
        let authority = format!("localhost:{}", gateway.tls().0.port());
        let fields = [
            (":method", "HEAD"),
            (":scheme", "https"),
            (":path", "/version"),
            (":authority", authority.as_str()),
        ];
        if connection.send(&frames::request(1, &fields)).await {
            let _ended = connection.ended(1).await;
        }
    })
    .await;
    walk.tries("TLS: HTTP/1 and a request", 20, async |gateway, _| {
        let mut stream = dial(gateway, b"http/1.1").await;
        let asked = format!(
            "GET /health HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\n\r\n",
            gateway.tls().0.port()
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        closes(stream).await;
    })
    .await;
    walk.tries("TLS: a handshake and nothing", 20, async |gateway, _| {
        drop(dial(gateway, b"http/1.1").await);
    })
    .await;
    walk.tries("TLS: no handshake", 20, async |gateway, _| {
        let mut stream = TcpStream::connect(gateway.tls().0).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        closes(stream).await;
    })
    .await;
}

async fn metrics(walk: &mut Walk) {
    let address = walk.gateway.metrics_address();
    let host = address.to_string();
    let get = |path: &str, host: &str| client::request("GET", path, host, &[], None);
    for (what, asked, status) in [
        ("metrics: GET /metrics", get("/metrics", &host), 200),
        ("metrics: GET /livez", get("/livez", &host), 200),
        ("metrics: GET /readyz", get("/readyz", &host), 200),
        ("metrics: 404", get("/", &host), 404),
        ("metrics: 421, an unknown host", get("/livez", "nobody.example.com"), 421),
        ("metrics: a head that is none", b"\0\r\n\r\n".to_vec(), 400),
    ] {
        walk.tries(what, 20, async |_, _| {
            let mut connection = Connection::try_open(address).await.expect("it accepts");
            assert_eq!(connection.exchange(&asked).await.status, status, "{what}");
        })
        .await;
    }
}

/// The table of SECURITY.md.
fn table(costs: &[Cost]) -> String {
    let mut out =
        String::from("| one try | CPU, µs | held unread, KiB | log lines |\n|---|---|---|---|\n");
    for cost in costs {
        let held = cost.held.map_or("-".to_owned(), |held| (held >> 10).to_string());
        writeln!(out, "| {} | {} | {held} | {:.0} |", cost.what, cost.cpu, cost.lines).unwrap();
    }
    out
}

#[tokio::test]
async fn all_that_a_stranger_may_try_has_a_bound() {
    let provider = Provider::always(scripted::completion("well")).await;
    let setup = Setup::new(&in_order(&[("a", &provider.url())], "")).tls();
    let mut walk = Walk::new(setup.server("trusted_proxies: [127.0.0.1/32]")).await;
    open_rows(&mut walk).await;
    closed_rows(&mut walk).await;
    errors(&mut walk).await;
    over_tls(&mut walk).await;
    metrics(&mut walk).await;
    eprintln!("{}", table(&walk.costs));
    let measured: BTreeSet<&str> = walk.costs.iter().map(|cost| cost.what.as_str()).collect();
    let bounded: BTreeSet<&str> = BOUNDS.iter().map(|bound| bound.what).collect();
    assert_eq!(measured, bounded, "what was tried, against what has a bound");
    for cost in &walk.costs {
        let bound = BOUNDS.iter().find(|bound| bound.what == cost.what).unwrap();
        assert!(cost.cpu <= bound.cpu, "{}: {} µs of {}", cost.what, cost.cpu, bound.cpu);
        let held = cost.held.unwrap_or(0);
        assert!(held <= bound.held << 10, "{}: {held} bytes of {} KiB", cost.what, bound.held);
        // A warning a minute comes on top.
        let lines = bound.lines as f64 + 0.25;
        assert!(cost.lines <= lines, "{}: {} lines of {lines}", cost.what, cost.lines);
    }
    let warnings = walk.gateway.log().lines().filter(|line| line.contains("handshake")).count();
    assert!(warnings <= 2, "{warnings} warnings of handshakes");
}

async fn start(server: &str, url: &str) -> (Gateway, Key) {
    let setup = Setup::new(&in_order(&[("a", url)], "")).tls().threads(2).server(server);
    let gateway = setup.start().await;
    let key = gateway.create_key().await;
    (gateway, key)
}

async fn is_well(gateway: &Gateway, key: &Key) {
    assert_eq!(gateway.send("GET", "/health", &[], None).await.status, 200, "beside them");
    assert_eq!(gateway.chat(key, chat_body("auto", false).as_bytes()).await.status, 200);
}

#[tokio::test]
async fn answers_of_every_open_row_that_nobody_reads_stay_small() {
    const CONNECTIONS: usize = 60;
    let provider = Provider::always(scripted::completion("well")).await;
    let (gateway, key) = start("", &provider.url()).await;
    let before = resident(gateway.process());
    let rows = ROUTES.iter().chain(PAGES);
    for route in rows.filter(|route| route.policy.is_open() && route.method == "GET") {
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            held.extend(unread(&gateway, "GET", &path(route)).await);
        }
        assert_eq!(held.len(), CONNECTIONS, "{}", route.path);
        let grown = resident(gateway.process()).saturating_sub(before);
        eprintln!("{}: {CONNECTIONS} × {STREAMS} unread: {} MiB more", route.path, grown / MIB);
        assert!(grown < 100 * MIB, "{}: {} MiB more", route.path, grown / MIB);
        is_well(&gateway, &key).await;
    }
}

/// A provider of answers of 100 MiB, and how many of them have been cut.
async fn endless() -> (SocketAddr, &'static AtomicU64) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cut: &AtomicU64 = Box::leak(Box::default());
    tokio::spawn(async move {
        let piece: &[u8] = Box::leak(vec![b'x'; MIB].into_boxed_slice());
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                if stream.read(&mut head).await.is_ok_and(|n| n > 0) {
                    let said = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                        content-length: 104857600\r\n\r\ndata: {\"choices\":[{\"delta\":\
                        {\"content\":\"x\"}}]}\n\n";
                    let mut sent = stream.write_all(said).await;
                    for _ in 0..99 {
                        if sent.is_ok() {
                            sent = stream.write_all(piece).await;
                        }
                    }
                    cut.fetch_add(u64::from(sent.is_err()), Ordering::SeqCst);
                }
            });
        }
    });
    (address, cut)
}

#[tokio::test]
async fn answers_of_100_mib_that_nobody_reads_stay_small_and_end() {
    const CLIENTS: usize = 160;
    /// More cannot wait for one address, even without copies.
    const WAITING: usize = 128;
    let (address, cut) = endless().await;
    let (gateway, key) = start("", &format!("http://{address}/v1")).await;
    let before = resident(gateway.process());
    let asked = gateway.chat_request(&key, chat_body("auto", true).as_bytes());
    let mut held = Vec::new();
    for _ in 0..CLIENTS {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(gateway.address()).await.unwrap();
        stream.write_all(&asked).await.unwrap();
        held.push(stream);
    }
    // More cannot wait: the oldest end at once.
    until("the oldest to end", async || {
        (cut.load(Ordering::SeqCst) as usize >= CLIENTS - WAITING).then_some(())
    })
    .await;
    let grown = resident(gateway.process()).saturating_sub(before);
    eprintln!("{CLIENTS} answers of 100 MiB, unread: {} MiB more", grown / MIB);
    assert!(grown < 256 * MIB, "{} MiB more", grown / MIB);
    assert_eq!(gateway.send("GET", "/health", &[], None).await.status, 200);
    drop(held);
}

/// The connection of a client that reads nothing ends, with TLS or without.
#[tokio::test]
async fn a_whole_answer_that_nobody_reads_ends_its_connection_within_seconds() {
    let provider = Provider::always(scripted::completion("well")).await;
    let (gateway, _) =
        start("limits: { connections: 60, connections_per_address: 60 }", &provider.url()).await;
    let text = "x".repeat(30 << 10);
    for n in 0..100 {
        let agent =
            serde_json::json!({"name": format!("a{n}"), "model": "auto", "instructions": text});
        let headers = [("content-type", "application/json")];
        let made =
            gateway.send("POST", "/v1/agents", &headers, Some(agent.to_string().as_bytes())).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    let list = client::request("GET", "/v1/agents?limit=100", &gateway.host(), &[], None);
    let whole = gateway.connect().await.exchange(&list).await;
    assert!(whole.status == 200 && whole.body.len() > 2 * MIB, "{}", whole.body.len());
    let mut held = Vec::new();
    for _ in 0..16 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(gateway.address()).await.unwrap();
        stream.write_all(&list).await.unwrap();
        held.push(stream);
    }
    // The gateway has closed its ends, though nothing was read: their state is no longer
    // ESTABLISHED there.
    let port = format!(":{:04X}", gateway.address().port());
    until("the connections to end", async || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let open = sockets.lines().filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, _, state) = (fields.next()?, fields.next()?, fields.next()?);
            (local.ends_with(&port) && state == "01").then_some(())
        });
        (open.count() == 0).then_some(())
    })
    .await;
}
