//! Gateways on one database whose machines have different clocks. All of them use the database's
//! time, and report a wrong clock.

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::gateways::{BUSY, asked};
use crate::nodes::enrolment::document;
use crate::nodes::servers::vllm;
use crate::support::fleet::{MASTER_KEY, setup};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::moved_clock::{MovedClock, WALL};
use crate::support::node::Node;
use crate::support::node_process::{Process, reported};
use crate::support::postgres::Cluster;
use crate::support::until;

const KEYS: &str = "/v1/router/keys";
const APART_S: i64 = 45 * 60;

fn by(setup: Setup, clock: &MovedClock) -> Setup {
    clock.environment().into_iter().fold(setup, |setup, (name, value)| setup.env(name, value))
}

async fn key_until(gateway: &Gateway, seconds: i64) -> (Key, Timestamp) {
    let end = Timestamp::now() + SignedDuration::from_secs(seconds);
    let wanted = json!({"name": "a", "expires_at": end.to_string()});
    (gateway.make_key(KEYS, &gateway.admin_key, &wanted).await, end)
}

async fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.manage("GET", path, &gateway.admin_key, None).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

#[tokio::test]
async fn gateways_45_minutes_apart_judge_alike_and_say_whose_clock_is_wrong() {
    join_all([(APART_S, "45m ahead of"), (-APART_S, "45m behind")].map(apart)).await;
}

async fn apart((ahead, words): (i64, &str)) {
    let url = Cluster::shared().database().await;
    let dir = tempfile::tempdir().unwrap();
    let clock = MovedClock::new(dir.path(), "clock", WALL, ahead);
    let right = setup(&url, "10s", "").start().await;
    // Sessions end after 30 minutes without use.
    let before = right.session("ann@example.com").await;
    let wrong = by(setup(&url, "10s", ""), &clock).start().await;
    let sessions = [before, wrong.session("bob@example.com").await];
    let (lasting, _) = key_until(&right, 600).await;
    let (made_there, _) = key_until(&wrong, 600).await;
    let (ending, end) = key_until(&right, 10).await;
    for gateway in [&wrong, &right] {
        for session in &sessions {
            let me = gateway.manage("GET", "/v1/auth/me", session, None).await;
            assert_eq!(me.status, 200, "{words}: {}", me.text());
        }
        assert_eq!(asked(gateway, &lasting, BUSY).await, Some(200), "{words}");
        assert_eq!(asked(gateway, &made_there, BUSY).await, Some(200), "{words}");
        until("the key to end", async || {
            let status = asked(gateway, &ending, BUSY).await;
            // The gateways' times differ by no more than the round trip to the database.
            let early = Timestamp::now() + SignedDuration::from_secs(1) < end;
            assert!(status == Some(200) || !early, "{words}: {status:?} before its end");
            (status == Some(401)).then_some(())
        })
        .await;
    }
    says(&right, &wrong, (ahead, words)).await;
    clock.set(0);
    until("it to say so", async || {
        wrong.log().contains("the clock of this machine is right again").then_some(())
    })
    .await;
    assert_eq!(get(&wrong, "/health").await["clock"], Value::Null);
    assert_eq!(asked(&wrong, &lasting, BUSY).await, Some(200), "{words}");
}

/// The gateway with the wrong clock reports it, and the other one shows it in its list of gateways.
async fn says(right: &Gateway, wrong: &Gateway, (ahead, words): (i64, &str)) {
    let told = format!("{words} the store's");
    assert!(wrong.log().contains(&format!("the clock of this machine is {told}")));
    assert!(!right.log().contains("the clock of this machine"), "{}", right.log());
    let health = get(wrong, "/health").await;
    assert_eq!((&health["status"], &health["clock"]), (&json!("ok"), &json!(told)), "{health}");
    assert_eq!(get(right, "/health").await["clock"], Value::Null);
    for (gateway, offset) in [(wrong, ahead), (right, 0)] {
        let shown = gateway.metric("rerouter_clock_offset_seconds", &[]).await;
        assert!((shown - offset as f64).abs() < 4.0, "{words}: {shown}");
        let list = get(gateway, "/v1/gateways").await;
        for row in list["data"].as_array().unwrap() {
            let is_wrong = (row["self"] == true) == (offset == ahead);
            let offset = if is_wrong { ahead * 1_000 } else { 0 };
            let shown = row["clock_offset_ms"].as_i64().unwrap();
            assert!((shown - offset).abs() < 4_000, "{words}: {list}");
        }
    }
}

#[tokio::test]
async fn a_node_and_a_gateway_with_wrong_clocks_agree_on_the_time() {
    let url = Cluster::shared().database().await;
    let dir = tempfile::tempdir().unwrap();
    let [at_gateway, at_node] = [("gateway", APART_S), ("node", -600)]
        .map(|(name, ahead)| MovedClock::new(dir.path(), name, WALL, ahead));
    let setup = Setup::new(&document("http://127.0.0.1:9"))
        .server(&format!("store: {{ url: '{url}' }}"))
        .env("REROUTER_MASTER_KEY", MASTER_KEY);
    let gateway = by(setup, &at_gateway).start().await;
    // A node with the right time.
    let node = Node::enrol(&gateway, "a", json!({})).await;
    node.serve(&gateway, "http://127.0.0.1:9", &["qwen"], json!({})).await;
    let server = vllm().serve().await;
    let node = Node::enrol(&gateway, "b", json!({})).await;
    let environment = at_node.environment();
    // The server of the node is busy until the end.
    let drain = ["--drain", "1"];
    let mut process = Process::start_in(&gateway, &node, &server, &drain, &environment);
    until("it to report", async || reported(&gateway, &node, 3).await).await;
    assert_eq!(process.end().await, Some(0));
}
