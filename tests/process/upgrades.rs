//! A new process takes over from a running one under load, with long streams: no request fails, no
//! key made before or meanwhile is refused, none that was revoked is accepted. So too when a
//! certificate is replaced. And what becomes of an upgrade that fails, and of a drain.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::nodes::enrolment;
use crate::support::client::{Connection, Tls};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::{Node, next_second};
use crate::support::postgres::{self, Cluster};
use crate::support::provider::{self as scripted, Provider};
use crate::support::upgrading::{
    CHAT, KEYS, Load, Site, Slow, answers_last, idle, long_streams, streams_end,
};
use crate::support::{count, until};

/// The threads of the next process, and whether each accepts for itself.
fn set_threads(gateway: &Gateway, (threads, isolate): (usize, bool)) {
    let path = gateway.dir().join("rerouter.yaml");
    let document = std::fs::read_to_string(&path).unwrap();
    let others = document.lines().filter(|line| !line.contains("threads:"));
    let others: Vec<&str> = others.collect();
    let more = format!("threads: {threads}\nisolate_threads: {isolate}\n");
    std::fs::write(path, others.join("\n") + "\n" + &more).unwrap();
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
    // Processes inherit fewer sockets than they have threads, or more.
    for (_, threads) in (0..rounds).zip([(3, true), (1, true), (2, false)].into_iter().cycle()) {
        set_threads(&gateway, threads);
        let doomed = load.site.make_key().await;
        let streams = long_streams(&gateway, &key, &slow, &chat_body("auto", true)).await;
        let idle = idle(&load.site, &key).await;
        gateway.upgrade().await;
        answers_last(&load.site, idle, &doomed).await;
        ids.extend(streams_end(&slow, streams).await);
        // It ends when its requests have, not when it may.
        let drained = Instant::now();
        gateway.predecessor_ends().await;
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
    let listener = address.to_string();
    let days_left = async || {
        let name = "rerouter_certificate_expiration_timestamp_seconds";
        let now = jiff::Timestamp::now().as_second() as f64;
        ((gateway.metric(name, &[&listener]).await - now) / 86_400.0).round()
    };
    assert_eq!(days_left().await, 2.0);
    for by_signal in [true, false] {
        let streams = long_streams(&gateway, &key, &slow, &chat_body("auto", true)).await;
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
        assert_eq!(days_left().await, 3.0);
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

/// A stream that has begun, on a connection whose process may end.
async fn streaming(site: &Site, key: &Key, slow: &Slow) -> Connection {
    let body = chat_body("auto", true);
    let request = site.request("POST", CHAT, &key.secret, Some(body.as_bytes()));
    let mut connection = Connection::try_open(site.address).await.expect("it accepts");
    connection.send(&request).await;
    slow.all_begun(1).await;
    connection
}

/// It answers, and takes changes.
async fn goes_on(gateway: &Gateway, key: &Key) {
    let site = Site::of(gateway);
    assert_eq!(site.send(&site.chat(key)).await.status, 200);
    let made = site.make_key().await;
    site.revoke(&made).await;
    assert_eq!(site.send(&site.chat(&made)).await.status, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_loses_no_request_of_busy_connections() {
    let (mut gateway, key, _slow) = small().await;
    let site = Site::of(&gateway);
    let (request, stopped) = (site.chat(&key), Arc::new(AtomicBool::new(false)));
    let answers = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (request, address, stopped) = (request.clone(), site.address, stopped.clone());
            let answers = answers.clone();
            tokio::spawn(async move {
                let mut connection = Connection::try_open(address).await.expect("it accepts");
                loop {
                    let answer = connection.try_exchange(&request).await.expect("an answer");
                    assert_eq!(answer.status, 200);
                    answers.fetch_add(1, Ordering::AcqRel);
                    if answer.header("connection") == Some("close") {
                        return assert!(stopped.load(Ordering::Acquire));
                    }
                }
            })
        })
        .collect();
    until("answers", async || (answers.load(Ordering::Acquire) > 80).then_some(())).await;
    stopped.store(true, Ordering::Release);
    gateway.signal("TERM");
    for client in clients {
        client.await.unwrap();
    }
    assert!(gateway.ended().await.success());
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
    stream.write_all(b"rerouter upgrade 2\n").unwrap();
    let mut offer = String::new();
    BufReader::new(&stream).read_line(&mut offer).unwrap();
    assert!(offer.contains("listeners"), "{offer}");
    let site = Site::of(&gateway);
    assert_eq!(site.send(&site.chat(&key)).await.status, 200, "it answers meanwhile");
    let make = site.request("POST", KEYS, &site.admin, Some(b"{}"));
    let later = site.send(&make).await;
    assert_eq!((later.status, later.header("retry-after")), (503, Some("1")), "{later:?}");
    drop(stream);
    goes_on(&gateway, &key).await;

    // One of another version.
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"rerouter upgrade 3\n").unwrap();
    assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0);
    goes_on(&gateway, &key).await;
    assert_eq!(gateway.process(), process);
    gateway.upgrade().await;
    gateway.predecessor_ends().await;
    goes_on(&gateway, &key).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_fails_to_take_over_takes_no_connection() {
    let (gateway, key, _slow) = small().await;
    set_threads(&gateway, (64, true));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let path = gateway.dir().join("rerouter.yaml");
    let document = std::fs::read_to_string(&path).unwrap();
    let metrics = document.lines().find(|line| line.starts_with("metrics:")).unwrap();
    let other = format!("metrics: {{ address: '{}' }}", taken.local_addr().unwrap());
    std::fs::write(&path, document.replace(metrics, &other)).unwrap();
    let (site, ended) = (Site::of(&gateway), AtomicBool::new(false));
    let ask = async {
        while !ended.load(Ordering::Acquire) {
            assert_eq!(site.send(&site.chat(&key)).await.status, 200);
        }
    };
    let fail = async {
        for _ in 0..3 {
            let said = gateway.fail_to_upgrade().await;
            assert!(said.contains("cannot listen"), "{said}");
        }
        ended.store(true, Ordering::Release);
    };
    tokio::join!(ask, fail);
}

/// As if the running gateway did not know the last two steps. It cannot work beside the first of
/// them.
const STEP_BACK: &str = "UPDATE schema_steps SET number = number - 2, compatible = compatible - 1";
const STEP_ON: &str = "UPDATE schema_steps SET number = number + 2, compatible = compatible + 1";

#[tokio::test]
async fn an_upgrade_that_changes_tables_below_the_gateway_that_runs_is_refused() {
    let slow = Slow::start().await;
    let url = Cluster::shared().database().await;
    for store in ["sqlite", &url] {
        let setup = Setup::new(&in_order(&[("a", &slow.provider.url())], ""));
        let mut gateway = setup.server(&format!("store: {{ url: '{store}' }}")).start().await;
        let key = gateway.create_key().await;
        let step = async |statement: &str| match store {
            "sqlite" => {
                let file = rusqlite::Connection::open(gateway.dir().join("data/accounts.db"));
                file.unwrap().execute(statement, []).unwrap();
            }
            url => _ = postgres::run(url, statement).await,
        };
        step(STEP_BACK).await;
        let said = gateway.fail_to_upgrade().await;
        assert!(said.contains("stop that one, then start this one"), "{said}");
        step(STEP_ON).await;
        assert!(!gateway.log().contains("no upgrade:"), "nothing was asked: {}", gateway.log());
        goes_on(&gateway, &key).await;
        gateway.upgrade().await;
        goes_on(&gateway, &key).await;
    }
}

#[tokio::test]
async fn an_upgrade_does_not_move_a_store_to_postgresql() {
    let (gateway, key, _slow) = small().await;
    let url = Cluster::shared().database().await;
    gateway.add_to_server(&format!("store: {{ url: '{url}' }}"));
    let said = gateway.fail_to_upgrade().await;
    assert!(said.contains("has its store in SQLite"), "{said}");
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
    assert!(said.contains("did not answer within"), "{said}");
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
async fn while_the_process_before_drains_there_is_no_second_upgrade() {
    let (mut gateway, key, slow) = small().await;
    let first = gateway.process();
    let _lost = streaming(&Site::of(&gateway), &key, &slow).await;
    gateway.upgrade().await;
    let why = format!("process {first} still ends its requests after the last upgrade: try again");
    // At once: the process that has just taken over is asked, and does not end.
    gateway.signal("QUIT");
    until("the refusal", async || (gateway.log().matches(&why).count() == 2).then_some(())).await;
    for _ in 0..2 {
        let said = gateway.fail_to_upgrade().await;
        // By the new process, and by the one that goes on.
        assert_eq!(said.matches(&why).count(), 2, "{said}");
        goes_on(&gateway, &key).await;
    }
    assert!(gateway.predecessor_runs());
    slow.go_on();
    gateway.predecessor_ends().await;
    // At once.
    gateway.upgrade().await;
    gateway.predecessor_ends().await;
    goes_on(&gateway, &key).await;
}

/// How often each process has renewed its lease, the oldest process first.
async fn renewals(url: &str) -> Vec<u64> {
    let rows = postgres::run(url, "SELECT renewals FROM gateways ORDER BY process").await;
    rows.into_iter().map(|row| row.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_before_is_killed_when_it_has_just_renewed_its_lease() {
    for _ in 0..3 {
        let url = Cluster::shared().database().await;
        let slow = Slow::start().await;
        let document = in_order(&[("a", &slow.provider.url())], "");
        let store = format!("store: {{ url: '{url}', lease: 4s }}");
        let mut gateway = Setup::new(&document).threads(2).server(&store).start().await;
        let key = Arc::new(gateway.create_key().await);
        let load = Load::on(&gateway);
        let _lost = streaming(&load.site, &key, &slow).await;
        gateway.upgrade().await;
        until("the drain", async || gateway.log().contains("draining: ").then_some(())).await;
        let before = renewals(&url).await[0];
        until("two renewals", async || (renewals(&url).await[0] >= before + 2).then_some(())).await;
        gateway.kill_9_predecessor();
        let clients = load.ask(&key);
        until("its row to go", async || (renewals(&url).await.len() == 1).then_some(())).await;
        load.end(clients).await;
        gateway.upgrade().await;
        gateway.predecessor_ends().await;
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_node_serves_on_through_an_upgrade() {
    let (mut gateway, _other) = enrolment::start().await;
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
    gateway.predecessor_ends().await;
    assert_eq!(node.shown(&gateway).await["state"], "ready");
    // Its reports go on where they were.
    next_second().await;
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
