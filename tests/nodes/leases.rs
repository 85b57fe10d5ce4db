//! Leases, registrations and endpoints over sockets: a lease that ends by a clock that the test
//! moves, processes of one node that come and go, and requests that run meanwhile.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rerouter::internals::clock::Clock;
use rerouter::internals::store::Faults;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::nodes::enrolment::{document, start};
use crate::process::plugin::{ADMIN, Host};
use crate::support::client::{Answer, pairs};
use crate::support::documents::chat_body;
use crate::support::envelope;
use crate::support::gateway::Gateway;
use crate::support::node::{Node, next_second, now, report, send};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::until;

/// A gateway whose clock belongs to the test, with an enrolled node.
struct World {
    host: Host,
    clock: Clock,
    node: Node,
    key: String,
}

impl World {
    async fn call(&self, name: &str, body: &Value) -> Answer {
        let (target, body) = (format!("/v1/agent/{name}"), body.to_string());
        let headers = self.node.sign_for(
            &self.host.address().to_string(),
            &target,
            body.as_bytes(),
            self.clock.now().as_second(),
        );
        let headers = pairs(&headers);
        self.host.send(&target, &headers, body.as_bytes()).await
    }

    async fn state(&self) -> String {
        let shown = self
            .host
            .ask("GET", &format!("/v1/nodes/{}", self.node.id), Some(ADMIN), None)
            .await
            .json();
        shown["state"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, model: &str) -> Answer {
        self.host
            .ask("POST", "/v1/chat/completions", Some(&self.key), Some(&chat_body(model, false)))
            .await
    }
}

impl World {
    /// A gateway with a key and an enrolled node.
    async fn new(dir: &std::path::Path, other: &Provider, faults: Faults) -> World {
        let clock = Clock::manual(Timestamp::now());
        let host =
            Host::start_at(dir, other.address(), &document(&other.url()), faults, clock.clone())
                .await;
        let node = Node::of(
            &host.ask("POST", "/v1/nodes", Some(ADMIN), Some(r#"{"name":"a"}"#)).await.json(),
        );
        let key =
            host.ask("POST", "/v1/router/keys", Some(ADMIN), Some(r#"{"name":"a"}"#)).await.json()
                ["key"]
                .as_str()
                .unwrap()
                .to_owned();
        World { host, clock, node, key }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_runs_out_and_the_next_report_begins_another() {
    let dir = tempfile::tempdir().unwrap();
    let (other, served) = (
        Provider::always(scripted::completion("elsewhere")).await,
        Provider::always(scripted::completion("here")).await,
    );
    let world = World::new(dir.path(), &other, Faults::default()).await;
    let registration =
        json!({"version": "1", "endpoint": served.url(), "models": [{"id": "qwen"}]});
    assert_eq!(world.call("register", &registration).await.status, 200);
    assert_eq!(world.call("heartbeat", &report(1, "ready", 0)).await.status, 200);
    let asked = || (served.count(), other.count());
    for (second, state, counts) in [
        (0, "ready", (1, 0)),
        (29, "ready", (2, 0)),
        (1, "unreachable", (2, 1)),
        (3_600, "unreachable", (2, 2)),
    ] {
        world.clock.advance(Duration::from_secs(second));
        let answer = world.ask("auto").await;
        assert_eq!(
            (answer.status, world.state().await.as_str(), asked()),
            (200, state, counts),
            "{}",
            answer.text()
        );
    }
    let refused = world.ask("local").await;
    envelope::openai(&refused, 503, "server_error", Some("no_target"));
    assert!(refused.text().contains("no_node"), "{}", refused.text());
    // An accepted report of the same registration renews the lease. A refused report does not.
    assert_eq!(world.call("heartbeat", &report(1, "ready", 0)).await.status, 409);
    assert_eq!(
        (world.ask("local").await.status, world.state().await.as_str()),
        (503, "unreachable")
    );
    assert_eq!(world.call("heartbeat", &report(2, "ready", 0)).await.status, 200);
    assert_eq!(
        (world.ask("local").await.status, world.state().await.as_str(), asked()),
        (200, "ready", (3, 2))
    );
    let metrics = world.host.metrics().await;
    assert!(
        metrics.contains("rerouter_nodes{state=\"ready\"} 1")
            && metrics.contains("rerouter_nodes{state=\"unreachable\"} 0"),
        "{metrics}"
    );
    world.host.stop().await;
}

/// A dead machine sends nothing on its connections, neither an end nor a reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_at_a_node_that_is_not_heard_of_any_more_moves_on_before_its_first_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (other, dead) = (
        Provider::always(scripted::completion("elsewhere")).await,
        Provider::always(vec![Step::Hang]).await,
    );
    let world = World::new(dir.path(), &other, Faults::default()).await;
    let registration = json!({"version": "1", "endpoint": dead.url(), "models": [{"id": "qwen"}]});
    assert_eq!(world.call("register", &registration).await.status, 200);
    let began = std::time::Instant::now();
    let (answer, ()) = tokio::join!(world.ask("auto"), async {
        until("the node to be asked", || std::future::ready((dead.count() == 1).then_some(())))
            .await;
        world.clock.advance(Duration::from_secs(29));
        assert_eq!(
            (world.call("heartbeat", &report(1, "ready", 0)).await.status, other.count()),
            (200, 0)
        );
        world.clock.advance(Duration::from_secs(29));
        assert_eq!(
            (world.state().await.as_str(), other.count()),
            ("ready", 0),
            "it is heard of still"
        );
        world.clock.advance(Duration::from_secs(1));
    });
    assert_eq!((answer.status, other.count(), dead.count()), (200, 1, 1), "{}", answer.text());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // If no other target can take the request, the gateway waits, because the node may still
    // answer.
    assert_eq!(world.call("heartbeat", &report(2, "ready", 0)).await.status, 200);
    let alone = async { tokio::time::timeout(Duration::from_secs(3), world.ask("local")).await };
    let (waits, ()) = tokio::join!(alone, async {
        until("the node to be asked", || std::future::ready((dead.count() == 2).then_some(())))
            .await;
        world.clock.advance(Duration::from_secs(31));
    });
    assert!(waits.is_err(), "it is waited for");
    world.host.stop().await;
}

/// Sends signed content again. Returns the status.
async fn deliver(world: &World, headers: &[(&'static str, String)], body: &str) -> u16 {
    let headers = pairs(headers);
    world.host.send("/v1/agent/heartbeat", &headers, body.as_bytes()).await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_clock_is_set_back_hears_its_nodes_and_takes_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let world = World::new(dir.path(), &other, Faults::default()).await;
    let registration = json!({"version": "1", "endpoint": other.url(), "models": [{"id": "qwen"}]});
    assert_eq!(world.call("register", &registration).await.status, 200);
    let began = world.clock.now();
    let Clock::Manual(at) = &world.clock else { panic!("a clock of the test's own") };
    let set = |hours: i64| {
        at.store(
            began.as_microsecond() + hours * 3_600_000_000,
            std::sync::atomic::Ordering::Release,
        )
    };
    let signed = |seq: u64| {
        let body = report(seq, "ready", 0).to_string();
        let authority = world.host.address().to_string();
        (
            world.node.sign_for(
                &authority,
                "/v1/agent/heartbeat",
                body.as_bytes(),
                world.clock.now().as_second(),
            ),
            body,
        )
    };
    let mut sent = Vec::new();
    // The clock moves by an hour, by two days, and back. The time 0 comes twice.
    for (seq, hours) in [(1, 0), (2, 1), (3, 48), (4, 1), (5, 0)] {
        set(hours);
        let (headers, body) = signed(seq);
        assert_eq!(deliver(&world, &headers, &body).await, 200, "{hours} hours");
        assert_eq!(world.state().await, "ready", "{hours} hours");
        sent.push((hours, headers, body));
        for (then, headers, body) in &sent {
            set(*then);
            assert_eq!(
                deliver(&world, headers, body).await,
                401,
                "of {then} hours, sent again after {hours}"
            );
        }
    }
    // At a time before its registration, the node has to register again.
    set(-1);
    assert_eq!(world.call("heartbeat", &report(6, "ready", 0)).await.status, 409);
    assert_eq!(world.call("register", &registration).await.status, 200);
    assert_eq!(
        (
            world.call("heartbeat", &report(1, "ready", 0)).await.status,
            world.state().await.as_str()
        ),
        (200, "ready")
    );
    world.host.stop().await;
}

/// Registers, and returns the epoch of the registration.
async fn register(gateway: &Gateway, node: &Node, endpoint: &str, extra: Value) -> u64 {
    let mut body = json!({"version": "1", "endpoint": endpoint, "models": [{"id": "qwen"}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let answer = node.call(gateway, "register", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["node"]["registered"]["epoch"].as_u64().unwrap()
}

fn of_epoch(epoch: u64, mut body: Value) -> Value {
    body["epoch"] = epoch.into();
    body
}

#[tokio::test]
async fn a_process_that_another_has_taken_over_from_changes_nothing() {
    let (mut gateway, _other) = start().await;
    let key = gateway.create_key().await;
    let served = Provider::always(scripted::completion("here")).await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    let old = register(&gateway, &node, &served.url(), json!({})).await;
    let beat = async |gateway: &Gateway, body: Value| node.call(gateway, "heartbeat", &body).await;
    assert_eq!(beat(&gateway, of_epoch(old, report(7, "ready", 0))).await.status, 200);
    // Calls that the old process signed, and that arrive late.
    let late = |name: &str, body: &Value| {
        let (path, body) = (format!("/v1/agent/{name}"), body.to_string());
        (node.sign(&gateway, &path, body.as_bytes(), now() - 2), path, body)
    };
    let late = [late("heartbeat", &report(9, "draining", 0)), late("deregister", &json!({}))];
    let new = register(&gateway, &node, &served.url(), json!({})).await;
    assert_eq!(new, old + 1);
    assert_eq!(
        beat(&gateway, of_epoch(new, report(1, "ready", 0))).await.status,
        200,
        "it counts from anew"
    );
    let state =
        async |gateway: &Gateway| node.shown(gateway).await["state"].as_str().unwrap().to_owned();
    for (headers, path, body) in &late {
        envelope::management(
            &send(&gateway, path, headers, body.as_bytes()).await,
            409,
            "conflict",
        );
        assert_eq!(state(&gateway).await, "ready", "{path}");
    }
    for seq in [8, 2] {
        envelope::management(
            &beat(&gateway, of_epoch(old, report(seq, "draining", 3))).await,
            409,
            "conflict",
        );
    }
    envelope::management(
        &node.call(&gateway, "deregister", &json!({ "epoch": old })).await,
        409,
        "conflict",
    );
    let shown = node.shown(&gateway).await;
    assert_eq!(
        (&shown["state"], &shown["running"], &shown["registered"]["epoch"]),
        (&json!("ready"), &json!(0), &json!(new))
    );
    assert_eq!(gateway.chat(&key, chat_body("local", false).as_bytes()).await.status, 200);
    assert_eq!(
        beat(&gateway, of_epoch(new, report(2, "ready", 0))).await.status,
        200,
        "the old one's number was not taken"
    );

    // The same holds after a restart, when only the registrations are known.
    gateway.restart().await;
    next_second().await;
    envelope::management(
        &beat(&gateway, of_epoch(old, report(20, "ready", 0))).await,
        409,
        "conflict",
    );
    assert_eq!(
        (
            state(&gateway).await.as_str(),
            gateway.chat(&key, chat_body("local", false).as_bytes()).await.status
        ),
        ("unreachable", 503)
    );
    assert_eq!(
        beat(&gateway, of_epoch(new, report(3, "ready", 0))).await.status,
        200,
        "back with one report"
    );
    assert_eq!(
        (
            state(&gateway).await.as_str(),
            gateway.chat(&key, chat_body("local", false).as_bytes()).await.status
        ),
        ("ready", 200)
    );
    for bad in [json!({"epoch": "1"}), json!({"epoch": 1, "other": 1})] {
        envelope::management(
            &node.call(&gateway, "deregister", &bad).await,
            400,
            "invalid_request",
        );
    }
    assert_eq!(node.call(&gateway, "deregister", &json!({ "epoch": new })).await.status, 204);
    assert_eq!(state(&gateway).await, "gone");
}

#[tokio::test]
async fn a_place_is_taken_until_its_request_ends_whatever_the_node_says_meanwhile() {
    let (gateway, other) = start().await;
    let key = gateway.create_key().await;
    let gate = Arc::new(Notify::new());
    let waits = Step::Wait(Arc::clone(&gate));
    let served = Provider::start(move |_, number| {
        let answer = scripted::completion("here");
        if number == 0 { [vec![waits.clone()], answer].concat() } else { answer }
    })
    .await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    let one_place = json!({"max_concurrency": 1});
    register(&gateway, &node, &served.url(), one_place.clone()).await;
    let ask = async || {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let inflight = async || node.shown(&gateway).await["inflight"].as_u64().unwrap();
    let (held, ()) = tokio::join!(ask(), async {
        until("the request to be there", || {
            std::future::ready((served.count() == 1).then_some(()))
        })
        .await;
        assert_eq!((ask().await.as_str(), inflight().await), ("elsewhere", 1));
        assert_eq!(node.call(&gateway, "deregister", &json!({})).await.status, 204);
        assert_eq!((ask().await.as_str(), inflight().await), ("elsewhere", 1));
        register(&gateway, &node, &served.url(), one_place.clone()).await;
        assert_eq!(
            (ask().await.as_str(), inflight().await),
            ("elsewhere", 1),
            "a new registration has no new place"
        );
        node.beat(&gateway, 1, "ready", 1).await;
        assert_eq!((ask().await.as_str(), served.count(), other.count()), ("elsewhere", 1, 4));
        gate.notify_one();
    });
    assert_eq!(held, "here", "what was under way came to its end");
    until("the place to be free", async || (inflight().await == 0).then_some(())).await;
    assert_eq!(ask().await, "here");
}
