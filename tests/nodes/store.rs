//! Nodes while the store takes no writes: they go on serving, and each signed request is still
//! accepted only once.

use std::time::Duration;

use rerouter::internals::store::Faults;
use serde_json::{Value, json};

use crate::captures::on_disk::{Disk, limit};
use crate::nodes::enrolment::{check_401, document, start};
use crate::process::plugin::{ADMIN, Host};
use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::envelope;
use crate::support::fleet::MASTER_KEY;
use crate::support::gateway::{Gateway, Setup};
use crate::support::moved_clock::{MovedClock, TIMERS};
use crate::support::node::{Node, next_second, now, report, send};
use crate::support::postgres::Cluster;
use crate::support::provider::{self as scripted, Provider};
use crate::support::{count, until};

const REPORT: &str = "/v1/agent/heartbeat";

/// A report, and the headers to send with it.
struct Signed {
    headers: Vec<(&'static str, String)>,
    body: String,
}

fn signed(gateway: &Gateway, node: &Node, seq: u64) -> Signed {
    let body = report(seq, "ready", 0).to_string();
    Signed { headers: node.sign(gateway, REPORT, body.as_bytes(), now()), body }
}

async fn deliver(gateway: &Gateway, signed: &Signed) -> Answer {
    send(gateway, REPORT, &signed.headers, signed.body.as_bytes()).await
}

/// Sends signed reports until one is accepted.
async fn beat(gateway: &Gateway, node: &Node, seq: u64) {
    until("a report to be taken", async || {
        let answer = deliver(gateway, &signed(gateway, node, seq)).await;
        assert!([200, 401].contains(&answer.status), "{}", answer.text());
        (answer.status == 200).then_some(())
    })
    .await;
}

fn event(id: &str) -> Value {
    json!({
        "events": [{
            "id": id, "at": "2026-11-21T00:00:00Z", "level": "info", "message": format!("event-{id}\
                -was-told")
        }]
    })
}

#[tokio::test]
async fn a_disk_without_room_stops_no_traffic_to_nodes_and_makes_nothing_good_twice() {
    without_room(true).await;
}

#[tokio::test]
async fn files_that_may_not_grow_stop_no_traffic_to_nodes_and_make_nothing_good_twice() {
    without_room(false).await;
}

async fn without_room(may_mount: bool) {
    let (mut gateway, other) = start().await;
    gateway.kill_9();
    let mut disk = Disk::under(&mut gateway, may_mount).await;
    let key = gateway.create_key().await;
    let served = Provider::always(scripted::completion("a")).await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    node.serve(&gateway, &served.url(), &["qwen"], json!({})).await;
    let kept = signed(&gateway, &node, 2);
    assert_eq!(deliver(&gateway, &kept).await.status, 200);
    disk.fill();
    let refused =
        gateway.manage("POST", "/v1/nodes", &gateway.admin_key, Some(&json!({"name": "b"}))).await;
    envelope::management(&refused, 503, "unavailable");

    let aside = signed(&gateway, &node, 3);
    let taken = deliver(&gateway, &aside).await;
    assert_eq!((taken.status, &taken.json()["lease_s"]), (200, &json!(30)), "{}", taken.text());
    let replays = async |gateway: &Gateway, state: &str| {
        check_401(
            &deliver(gateway, &aside).await,
            &format!("taken while the store took nothing, {state}"),
        );
        check_401(&deliver(gateway, &kept).await, &format!("taken before, {state}"));
    };
    replays(&gateway, "and sent again meanwhile").await;
    assert_eq!(deliver(&gateway, &signed(&gateway, &node, 4)).await.status, 200);
    let registration =
        json!({"version": "1", "endpoint": served.url(), "models": [{"id": "qwen"}]});
    for (name, body) in
        [("register", registration), ("events", event("early")), ("deregister", json!({}))]
    {
        envelope::management(&node.call(&gateway, name, &body).await, 503, "unavailable");
    }
    assert_eq!((node.shown(&gateway).await["state"].as_str(), served.count()), (Some("ready"), 0));
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!((answer.status, served.count(), other.count()), (200, 1, 0), "{}", answer.text());

    disk.empty();
    replays(&gateway, "and sent again when it takes all").await;
    beat(&gateway, &node, 5).await;
    disk.fill();
    assert_eq!(deliver(&gateway, &signed(&gateway, &node, 6)).await.status, 200);
    // The gateway also starts with a full disk.
    gateway.kill_9();
    gateway.start_again().await;
    if let Disk::Limited(process) = &mut disk {
        *process = gateway.process();
    }
    replays(&gateway, "and sent again after a crash").await;
    beat(&gateway, &node, 7).await;
    assert_eq!(node.shown(&gateway).await["state"], "ready");
    assert_eq!(gateway.chat(&key, chat_body("local", false).as_bytes()).await.status, 200);
    disk.empty();
    gateway.restart().await;
    replays(&gateway, "and sent again after another start").await;
    assert_eq!(
        gateway.chat(&key, chat_body("local", false).as_bytes()).await.status,
        503,
        "it has not reported yet"
    );
    beat(&gateway, &node, 8).await;
    assert_eq!(gateway.chat(&key, chat_body("local", false).as_bytes()).await.status, 200);
}

/// A lease does not end while the gateway has no database, because the node may be reporting to
/// another gateway.
#[tokio::test]
async fn a_gateway_that_goes_on_without_its_database_holds_its_nodes() {
    let cluster = Cluster::start(&[]);
    let url = cluster.database().await;
    let dir = tempfile::tempdir().unwrap();
    let clock = MovedClock::new(dir.path(), "timers", TIMERS, 0);
    let setup = Setup::new(&document("http://127.0.0.1:9"))
        .server(&format!("store: {{ url: '{url}', lease: 2s, on_lease_lost: serve_stale }}"))
        .env("REROUTER_MASTER_KEY", MASTER_KEY);
    let environment = clock.environment().into_iter();
    let gateway =
        environment.fold(setup, |setup, (name, value)| setup.env(name, value)).start().await;
    let key = gateway.create_key().await;
    let served = Provider::always(scripted::completion("a")).await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    node.serve(&gateway, &served.url(), &["qwen"], json!({})).await;
    let before = signed(&gateway, &node, 2);
    assert_eq!(deliver(&gateway, &before).await.status, 200);
    drop(cluster);
    until("the end of its lease", async || {
        (gateway.metric("rerouter_lease_seconds", &[]).await == 0.0).then_some(())
    })
    .await;
    // A report is accepted only once.
    let meanwhile = signed(&gateway, &node, 3);
    let taken = deliver(&gateway, &meanwhile).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    for (signed, what) in [(&meanwhile, "without the database"), (&before, "with it")] {
        check_401(&deliver(&gateway, signed).await, &format!("taken {what}, and sent again"));
    }
    // More time than a node's lease passes without a report.
    let end = |shown: &Value| shown["lease_expires_at"].as_str().unwrap().to_owned();
    for passed in [20, 40, 60] {
        let before = end(&node.shown(&gateway).await);
        clock.set(passed);
        let shown = until("the lease to begin anew", async || {
            Some(node.shown(&gateway).await).filter(|shown| end(shown) > before)
        })
        .await;
        assert_eq!(shown["state"], "ready", "after {passed} s");
        let answer = gateway.chat(&key, chat_body("local", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "after {passed} s: {}", answer.text());
    }
    assert_eq!(served.count(), 3);
}

/// Enrols a node at this host.
async fn enrol(host: &Host) -> Node {
    Node::of(&host.ask("POST", "/v1/nodes", Some(ADMIN), Some(r#"{"name":"a"}"#)).await.json())
}

async fn call(host: &Host, node: &Node, name: &str, body: &Value) -> Answer {
    let (target, body) = (format!("/v1/agent/{name}"), body.to_string());
    let headers = node.sign_for(&host.address().to_string(), &target, body.as_bytes(), now());
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    host.send(&target, &headers, body.as_bytes()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_end_a_secret_is_not_taken_while_the_store_fails() {
    let dir = tempfile::tempdir().unwrap();
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let faults = Faults::default();
    let host =
        Host::start_failing(dir.path(), other.address(), &document(&other.url()), faults.clone())
            .await;
    let node = enrol(&host).await;
    let registration =
        json!({"version": "1", "endpoint": "http://127.0.0.1:9", "models": [{"id": "qwen"}]});
    assert_eq!(call(&host, &node, "register", &registration).await.status, 200);
    faults.fail_every_write();
    assert_eq!(call(&host, &node, "heartbeat", &report(1, "ready", 0)).await.status, 200);
    faults.clear();
    assert_eq!(call(&host, &node, "heartbeat", &report(1_000, "ready", 0)).await.status, 200);
    // The first use of a new secret ends the old one. Unless that is stored, a restart would revive
    // the old secret.
    let rotated =
        host.ask("POST", &format!("/v1/nodes/{}/rotate", node.id), Some(ADMIN), None).await;
    let next = Node::of(&rotated.json());
    faults.fill_accounts();
    assert_eq!(call(&host, &next, "heartbeat", &report(1_001, "ready", 0)).await.status, 503);
    assert_eq!(
        call(&host, &node, "heartbeat", &report(1_002, "ready", 0)).await.status,
        200,
        "the one before is good still"
    );
    faults.clear();
    assert_eq!(call(&host, &next, "heartbeat", &report(1_003, "ready", 0)).await.status, 200);
    assert_eq!(call(&host, &node, "heartbeat", &report(1_004, "ready", 0)).await.status, 401);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_stops_no_traffic_to_nodes_and_makes_nothing_good_twice() {
    let dir = tempfile::tempdir().unwrap();
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let faults = Faults::default();
    let host =
        Host::start_failing(dir.path(), other.address(), &document(&other.url()), faults.clone())
            .await;
    let node = enrol(&host).await;
    let registration =
        json!({"version": "1", "endpoint": "http://127.0.0.1:9", "models": [{"id": "qwen"}]});
    assert_eq!(call(&host, &node, "register", &registration).await.status, 200);
    faults.stall_writes();
    let body = report(1, "ready", 0).to_string();
    let headers = node.sign_for(&host.address().to_string(), REPORT, body.as_bytes(), now());
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let began = std::time::Instant::now();
    assert_eq!(host.send(REPORT, &headers, body.as_bytes()).await.status, 200);
    assert!(
        began.elapsed() < rerouter::internals::bounds::NODE_CALLBACK_TIMEOUT,
        "the agent waits no longer: {:?}",
        began.elapsed()
    );
    assert_eq!(host.send(REPORT, &headers, body.as_bytes()).await.status, 401, "while it hangs");
    let registers = call(&host, &node, "register", &registration);
    let waits = tokio::time::timeout(Duration::from_secs(1), registers).await;
    assert!(waits.is_err(), "what has to last is not taken");
    faults.clear();
    assert_eq!(
        host.send(REPORT, &headers, body.as_bytes()).await.status,
        401,
        "when it is well again"
    );
    until("a report to be taken", async || {
        (call(&host, &node, "heartbeat", &report(now() as u64, "ready", 0)).await.status == 200)
            .then_some(())
    })
    .await;
    host.stop().await;
}

#[tokio::test]
async fn an_event_is_told_once_whatever_became_of_the_process() {
    let (mut gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    let tell = async |gateway: &Gateway, id: &str| node.call(gateway, "events", &event(id)).await;
    assert_eq!(tell(&gateway, "one").await.json(), json!({"accepted": 1, "duplicates": 0}));
    gateway.kill_9();
    gateway.start_again().await;
    next_second().await;
    let again = tell(&gateway, "one").await;
    assert_eq!((again.status, again.json()), (202, json!({"accepted": 0, "duplicates": 1})));
    let process = gateway.process();
    limit(process, "4096");
    for _ in 0..2 {
        envelope::management(&tell(&gateway, "two").await, 503, "unavailable");
    }
    limit(process, "unlimited");
    assert_eq!(
        tell(&gateway, "two").await.json(),
        json!({"accepted": 1, "duplicates": 0}),
        "what was refused is not remembered"
    );
    gateway.restart().await;
    next_second().await;
    assert_eq!(tell(&gateway, "two").await.json(), json!({"accepted": 0, "duplicates": 1}));
    let other = Node::enrol(&gateway, "b", json!({})).await;
    assert_eq!(
        other.call(&gateway, "events", &event("two")).await.json()["accepted"],
        1,
        "another node's"
    );
    let log = gateway.log();
    assert_eq!(
        (log.matches("event-one-was-told").count(), log.matches("event-two-was-told").count()),
        (1, 2)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_copies_that_come_at_once_one_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let host = Host::start_failing(
        dir.path(),
        other.address(),
        &document(&other.url()),
        Faults::default(),
    )
    .await;
    let node = enrol(&host).await;
    let registration =
        json!({"version": "1", "endpoint": "http://127.0.0.1:9", "models": [{"id": "qwen"}]});
    assert_eq!(call(&host, &node, "register", &registration).await.status, 200);
    for seq in 1..=count("REROUTER_ROUNDS", 40) {
        let body = report(seq, "ready", 0).to_string();
        let headers = node.sign_for(&host.address().to_string(), REPORT, body.as_bytes(), now());
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let copies = (0..5).map(|_| host.send(REPORT, &headers, body.as_bytes()));
        let mut statuses: Vec<u16> =
            futures::future::join_all(copies).await.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        // A copy that is accepted twice would be refused by its number with another status.
        assert_eq!(statuses, [200, 401, 401, 401, 401]);
    }
    host.stop().await;
}
