//! Connections of those who want no answer: how many there may be, how long they last, and who is
//! still served meanwhile.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::support::client::{self, Answer, Connection, H2};
use crate::support::documents::{chat_body, in_order};
use crate::support::envelope;
use crate::support::frames::{self, Frames};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

const MIB: usize = 1 << 20;
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: u16 = 4;
/// As many connections as wait for their one request where there is no place left, of few.
const RESERVE: usize = 16;

async fn start(setup: impl FnOnce(Setup) -> Setup) -> (Gateway, Provider) {
    let provider = Provider::always(scripted::completion("well")).await;
    let gateway = setup(Setup::new(&in_order(&[("a", &provider.url())], ""))).start().await;
    (gateway, provider)
}

/// Memory that a process has now, in bytes.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn get(path: &str, gateway: &Gateway) -> Vec<u8> {
    client::request("GET", path, &gateway.host(), &[], None)
}

fn chat(gateway: &Gateway, key: &Key) -> Vec<u8> {
    gateway.chat_request(key, chat_body("auto", false).as_bytes())
}

fn h2_request(stream: u32, path: &str, address: SocketAddr) -> Vec<u8> {
    let authority = format!("localhost:{}", address.port());
    frames::request(
        stream,
        &[(":method", "GET"), (":scheme", "https"), (":path", path), (":authority", &authority)],
    )
}

#[tokio::test]
async fn idle_threads_hold_no_huge_pages() {
    let (gateway, _provider) = start(|setup| setup).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.process())).unwrap();
    // proc_pid_status(5): since Linux 5.0.
    assert!(status.contains("THP_enabled:\t0"), "{status}");
}

#[tokio::test]
async fn streams_that_nobody_reads_shut_nobody_out() {
    const CONNECTIONS: usize = 206;
    const STREAMS: u32 = 99;
    let (gateway, _provider) = start(Setup::tls).await;
    let key = gateway.create_key().await;
    let before = resident(gateway.process());
    let (address, tls) = gateway.tls();
    let last = 2 * STREAMS - 1;
    let requests: Vec<u8> =
        (0..STREAMS).flat_map(|n| h2_request(2 * n + 1, "/version", address)).collect();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = tls.dial(address, b"h2").await.expect("a handshake");
        let mut connection = Frames::open(stream, &[(INITIAL_WINDOW, 0)]).await;
        assert!(connection.send(&requests).await);
        assert!(connection.begun(last).await, "an answer that has begun");
        held.push(connection);
    }
    let grown = resident(gateway.process()).saturating_sub(before);
    eprintln!("{CONNECTIONS} connections of {STREAMS} streams each: {} MiB more", grown / MIB);
    for request in [get("/version", &gateway), chat(&gateway, &key)] {
        let answer = gateway.connect().await.try_exchange(&request).await;
        assert_eq!(answer.map(|answer| answer.status), Some(200), "beside them");
    }
    assert!(grown < 100 * MIB, "{} MiB more", grown / MIB);
}

/// Those that the other side has not closed, after it had time to. What it says is read away.
async fn still_open<S: AsyncReadExt + Unpin>(held: &mut Vec<S>) -> usize {
    let mut open = Vec::new();
    for mut stream in held.drain(..) {
        let mut piece = [0; 4096];
        let closed = loop {
            match timeout(Duration::from_millis(1), stream.read(&mut piece)).await {
                Ok(Ok(n)) if n > 0 => {}
                Ok(_) => break true,
                Err(_) => break false,
            }
        };
        if !closed {
            open.push(stream);
        }
    }
    *held = open;
    held.len()
}

async fn at_most<S: AsyncReadExt + Unpin>(most: usize, held: &mut Vec<S>, what: &str) {
    let start = Instant::now();
    loop {
        let open = still_open(held).await;
        if open <= most {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{open} of {what} are open");
    }
}

async fn half_a_handshake(address: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    // The head of a record of 512 bytes, and the first of a ClientHello in it.
    stream.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).await.ok()?;
    Some(stream)
}

#[tokio::test]
async fn connections_with_tls_are_counted_from_the_first_byte_on() {
    const TRIED: usize = 600;
    const LIMIT: usize = 50;
    let limits = format!(
        "limits: {{ connections: {LIMIT}, connections_per_address: {LIMIT}, header_timeout: 60s }}"
    );
    let (gateway, _provider) = start(|setup| setup.tls().server(&limits)).await;
    let (address, tls) = gateway.tls();

    let mut held = Vec::new();
    for _ in 0..TRIED {
        held.extend(half_a_handshake(address).await);
    }
    at_most(LIMIT + RESERVE, &mut held, "half a TLS handshake").await;
    assert_eq!(
        gateway.send("GET", "/health", &[], None).await.status,
        200,
        "beside half handshakes"
    );
    drop(held);

    let mut held = Vec::new();
    for _ in 0..TRIED {
        held.extend(tls.dial(address, b"h2").await);
    }
    at_most(LIMIT + RESERVE, &mut held, "silent after ALPN h2").await;
    assert_eq!(gateway.send("GET", "/health", &[], None).await.status, 200, "beside silent ones");
    drop(held);

    let mut held = Vec::new();
    for _ in 0..TRIED {
        if let Some(mut stream) = tls.dial(address, b"h2").await {
            let opening =
                [frames::PREFACE, &frames::settings(&[]), &h2_request(1, "/version", address)]
                    .concat();
            if stream.write_all(&opening).await.is_ok() && stream.flush().await.is_ok() {
                held.push(stream);
            }
        }
    }
    at_most(LIMIT + RESERVE, &mut held, "idle HTTP/2").await;
    assert_eq!(gateway.send("GET", "/health", &[], None).await.status, 200, "beside idle ones");
}

/// Until the other side closes.
async fn lasted(mut stream: impl AsyncReadExt + Unpin, what: &str) -> Duration {
    let start = Instant::now();
    let ending = async {
        let mut piece = [0; 4096];
        while stream.read(&mut piece).await.is_ok_and(|n| n > 0) {}
    };
    timeout(Duration::from_secs(10), ending)
        .await
        .unwrap_or_else(|_| panic!("{what} is open after ten seconds"));
    start.elapsed()
}

#[tokio::test]
async fn a_connection_has_one_deadline_for_its_first_request() {
    let (gateway, _provider) =
        start(|setup| setup.tls().server("limits: { header_timeout: 500ms }")).await;
    let (address, tls) = gateway.tls();
    let plain = async |bytes: &[u8]| {
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    };
    let over = async |protocol: &[u8], bytes: &[u8]| -> TlsStream<TcpStream> {
        let mut stream = tls.dial(address, protocol).await.expect("a handshake");
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let mut kept = gateway.connect().await;
    assert_eq!(kept.exchange(&get("/health", &gateway)).await.status, 200);
    let mut kept_h2 = H2::open(gateway.tls()).await;
    assert_eq!(kept_h2.send("GET", "/health", &[], b"", false).await.status, 200);
    let settings = frames::settings(&[]);
    lasted(plain(b"").await, "a silent connection").await;
    lasted(plain(b"GET /health HTTP/1.1\r\nho").await, "half a head").await;
    lasted(TcpStream::connect(address).await.unwrap(), "a silent connection where TLS is spoken")
        .await;
    lasted(half_a_handshake(address).await.unwrap(), "half a handshake").await;
    lasted(over(b"http/1.1", b"").await, "silence after the handshake").await;
    lasted(
        over(b"http/1.1", b"GET /health HTTP/1.1\r\nho").await,
        "half a head after the handshake",
    )
    .await;
    lasted(over(b"h2", b"").await, "ALPN h2 and silence").await;
    lasted(over(b"h2", b"PRI * HTTP").await, "a part of the preface").await;
    lasted(over(b"h2", frames::PREFACE).await, "the preface alone").await;
    lasted(over(b"h2", &[frames::PREFACE, &settings].concat()).await, "HTTP/2 without a stream")
        .await;
    let begun = [frames::PREFACE, &settings, &frames::begun_request(1)].concat();
    lasted(over(b"h2", &begun).await, "HTTP/2 with half a head").await;
    assert_eq!(
        kept.exchange(&get("/health", &gateway)).await.status,
        200,
        "who asked in time stays"
    );
    assert_eq!(
        kept_h2.send("GET", "/health", &[], b"", false).await.status,
        200,
        "who asked in time stays"
    );
}

/// Connections that have asked once, and are kept.
async fn occupy(gateway: &Gateway, count: usize) -> Vec<Connection> {
    let mut held = Vec::new();
    while held.len() < count {
        let mut connection = gateway.connect().await;
        let answer = connection.exchange(&get("/health", gateway)).await;
        // From the reserve, as long as somebody else's connection is not gone.
        if answer.header("connection") != Some("close") {
            held.push(connection);
        }
    }
    held
}

fn unavailable(answer: &Answer) {
    envelope::openai(answer, 503, "server_error", Some("overloaded"));
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

#[tokio::test]
async fn health_and_management_are_answered_where_there_is_no_place_left() {
    let limits = "limits: { connections: 4, connections_per_address: 4 }";
    let (gateway, provider) = start(|setup| setup.tls().server(limits)).await;
    let key = gateway.create_key().await;
    let mut held = occupy(&gateway, 4).await;
    // And those that say nothing press into the reserve.
    let mut silent = Vec::new();
    for _ in 0..3 * RESERVE {
        silent.push(TcpStream::connect(gateway.address()).await.unwrap());
        silent.push(TcpStream::connect(gateway.tls().0).await.unwrap());
    }
    // And those that ask for what is open, and never say all of it.
    for head in [
        "GET /health HTTP/1.1",
        "POST /v1/auth/login HTTP/1.1\r\ncontent-type: application/json",
        "POST /v1/nothing HTTP/1.1",
    ] {
        for _ in 0..RESERVE {
            let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
            let begun =
                format!("{head}\r\nhost: {}\r\ncontent-length: 10\r\n\r\n{{", gateway.host());
            stream.write_all(begun.as_bytes()).await.unwrap();
            silent.push(stream);
        }
    }
    at_most(RESERVE, &mut silent, "those in the reserve").await;
    for path in ["/health", "/version"] {
        let mut connection = gateway.connect().await;
        let answer = connection.exchange(&get(path, &gateway)).await;
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{path}");
        assert!(connection.is_closed().await, "{path}");
        assert_eq!(
            H2::open(gateway.tls()).await.send("GET", path, &[], b"", false).await.status,
            200,
            "{path}"
        );
    }
    gateway.answers(200, "GET", "/v1/router/keys", &gateway.admin_key, None).await;
    let bearer = format!("Bearer {}", gateway.admin_key);
    let over_tls = H2::open(gateway.tls())
        .await
        .send("GET", "/v1/router/keys", &[("authorization", &bearer)], b"", false)
        .await;
    assert_eq!(over_tls.status, 200, "{}", over_tls.text());
    envelope::management(
        &gateway.manage("GET", "/v1/router/keys", "wrong", None).await,
        401,
        "unauthorized",
    );
    envelope::management(
        &gateway.send("GET", "/openapi.json", &[], None).await,
        503,
        "unavailable",
    );
    unavailable(&gateway.chat(&key, chat_body("auto", false).as_bytes()).await);
    assert_eq!(provider.count(), 0);
    // Who has a place is served as ever.
    assert_eq!(held[0].exchange(&chat(&gateway, &key)).await.status, 200);
    assert!(gateway.metric("rerouter_connections_refused_total", &[]).await > 0.0);
    held.remove(0).abandon();
    until("the place that became free", async || {
        (gateway.chat(&key, chat_body("auto", false).as_bytes()).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_address_has_its_share_of_connections_and_a_trusted_proxy_all() {
    for (proxies, served) in [("[10.0.0.0/8]", false), ("[127.0.0.1/32]", true)] {
        let server = format!(
            "trusted_proxies: {proxies}\nlimits: {{ connections: 100, connections_per_address: 3 }}"
        );
        let (gateway, _provider) = start(|setup| setup.server(&server)).await;
        let key = gateway.create_key().await;
        let held = occupy(&gateway, 3).await;
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        if served {
            assert_eq!(answer.status, 200, "{}", answer.text());
        } else {
            unavailable(&answer);
        }
        let elsewhere = IpAddr::from(Ipv4Addr::new(127, 0, 0, 2));
        let mut connection =
            Connection::try_open_from(elsewhere, gateway.address()).await.expect("it accepts");
        assert_eq!(
            connection.exchange(&chat(&gateway, &key)).await.status,
            200,
            "of another address"
        );
        drop(held);
    }
}

#[tokio::test]
async fn few_descriptors_are_few_connections_and_health_is_answered_all_the_same() {
    let (gateway, _provider) = start(|setup| setup.descriptors("256")).await;
    let warned = gateway
        .log()
        .lines()
        .any(|line| line.contains("WARN") && line.contains("limits.connections"));
    assert!(warned, "{}", gateway.log());
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(gateway.address()).await.unwrap());
    }
    // There are 48 places, of which an address has a quarter.
    until("the silent ones to be counted", async || {
        let refused = gateway.metric("rerouter_connections_refused_total", &[]).await;
        (refused == 288.0).then_some(())
    })
    .await;
    for _ in 0..10 {
        assert_eq!(gateway.send("GET", "/health", &[], None).await.status, 200);
        let metrics = gateway.metrics_address();
        let mut connection = Connection::try_open(metrics).await.expect("the metrics listener");
        assert_eq!(
            connection
                .exchange(&client::request("GET", "/livez", &metrics.to_string(), &[], None))
                .await
                .status,
            200
        );
    }
    drop(silent);
    // The soft limit is only where one begins.
    let (gateway, _provider) = start(|setup| setup.descriptors("256:")).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.process())).unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .expect("the limit of open files");
    let numbers: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
}

#[tokio::test]
async fn the_metrics_listener_has_the_same_deadline_and_places_of_its_own() {
    let (gateway, _provider) =
        start(|setup| setup.server("limits: { header_timeout: 500ms }")).await;
    let metrics = gateway.metrics_address();
    let dripping = async {
        let mut stream = TcpStream::connect(metrics).await.unwrap();
        let start = Instant::now();
        for byte in b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-slow: 0123456789\r\n\r\n" {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            let mut piece = [0; 256];
            if timeout(Duration::from_millis(200), stream.read(&mut piece)).await.is_ok() {
                break;
            }
        }
        start.elapsed()
    };
    let lasted = dripping.await;
    assert!(lasted < Duration::from_secs(5), "a head of one byte at a time lasted {lasted:?}");
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(metrics).await.unwrap());
        let mut connection = Connection::try_open(metrics).await.expect("the metrics listener");
        assert_eq!(
            connection
                .exchange(&client::request("GET", "/livez", &metrics.to_string(), &[], None))
                .await
                .status,
            200
        );
    }
    assert_eq!(gateway.send("GET", "/health", &[], None).await.status, 200);
}

#[tokio::test]
async fn failed_handshakes_are_few_lines_in_the_log() {
    let (gateway, _provider) = start(Setup::tls).await;
    for _ in 0..50 {
        let mut stream = TcpStream::connect(gateway.tls().0).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        lasted(stream, "no handshake").await;
    }
    let log = gateway.log();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.to_ascii_lowercase().contains("handshake")).collect();
    assert!((1..=2).contains(&lines.len()), "{} lines: {lines:?}", lines.len());
    assert!(!lines.iter().any(|line| line.contains("ERROR")), "{lines:?}");
}
