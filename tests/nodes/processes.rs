//! `rerouter node` as a process next to scripted servers: it serves, leaves, and copes with the
//! behaviour of servers, gateways and other processes.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rerouter::internals::bounds;
use rerouter::internals::id::{Random, RequestId};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::nodes::enrolment::{document, start};
use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Setup};
use crate::support::node::{Node, report};
use crate::support::node_process::{Process, reported};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::tls_provider::TlsProvider;
use crate::support::until;

/// A short drain, so that tests do not wait.
const DRAIN: [&str; 2] = ["--drain", "1"];

/// A server with one model, which has `running` requests, and answers with `text`.
async fn server(text: &'static str, running: u32) -> Provider {
    Provider::start(move |request, _| match request.target.as_str() {
        "/v1/models" => scripted::json_answer(
            200,
            &json!({"object": "list", "data": [{"id": "qwen", "max_model_len": 4096}]}),
        ),
        "/metrics" => scripted::answer(
            200,
            &[],
            format!("vllm:num_requests_running{{model_name=\"qwen\"}} {running}.0\n").as_bytes(),
        ),
        _ => scripted::completion(text),
    })
    .await
}

#[tokio::test]
async fn two_node_processes_serve_survive_a_restart_and_leave() {
    let (mut gateway, other) = start().await;
    let key = gateway.create_key().await;
    let (busy, idle) = (server("busy", 3).await, server("idle", 0).await);
    let (a, b) = (
        Node::enrol(&gateway, "a", json!({"models": ["qwen"]})).await,
        Node::enrol(&gateway, "b", json!({})).await,
    );
    let (mut first, mut second) =
        (Process::start(&gateway, &a, &busy, &DRAIN), Process::start(&gateway, &b, &idle, &DRAIN));
    let shown = until("the first to report", async || reported(&gateway, &a, 3).await).await;
    assert_eq!(
        shown["registered"]["models"],
        json!([{"id": "qwen", "context": 4096, "capabilities": null}])
    );
    until("the second to report", async || reported(&gateway, &b, 0).await).await;
    let ask = async |gateway: &Gateway| {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(&gateway).await, "idle");
    gateway.restart().await;
    let restarted = Instant::now();
    until("both to report again", async || {
        let states =
            [a.shown(&gateway).await["state"].clone(), b.shown(&gateway).await["state"].clone()];
        (states == ["ready", "ready"]).then_some(())
    })
    .await;
    assert!(
        restarted.elapsed() < bounds::NODE_HEARTBEAT + Duration::from_secs(1),
        "back after {:?}",
        restarted.elapsed()
    );
    assert_eq!(ask(&gateway).await, "idle");
    assert_eq!(
        (second.end().await, b.shown(&gateway).await["state"].as_str()),
        (Some(0), Some("gone"))
    );
    assert_eq!(ask(&gateway).await, "busy");
    assert_eq!(
        (first.end().await, a.shown(&gateway).await["state"].as_str()),
        (Some(0), Some("gone"))
    );
    assert_eq!((ask(&gateway).await, other.count()), ("elsewhere".to_owned(), 1));
    // The server has no model that the node is enrolled for. The process says so and exits.
    let c = Node::enrol(&gateway, "c", json!({"models": ["llama"]})).await;
    let mut third = Process::start(&gateway, &c, &idle, &DRAIN);
    assert_eq!(third.left().await, Some(2));
}

/// A server that closes the connection after each answer. It holds a request that asks for it until
/// the gate opens.
async fn closing(text: &'static str, gate: &Arc<Notify>) -> Provider {
    let gate = Arc::clone(gate);
    Provider::start(move |request, _| match request.target.as_str() {
        "/v1/models" => {
            scripted::json_answer(200, &json!({"object": "list", "data": [{"id": "qwen"}]}))
        }
        "/v1/chat/completions" => {
            let mut steps = Vec::new();
            if request.json()["user"] == "hold" {
                steps.push(Step::Wait(Arc::clone(&gate)));
            }
            let body = scripted::completion_body(text).to_string();
            steps.extend(scripted::answer(
                200,
                &[("content-type", "application/json"), ("connection", "close")],
                body.as_bytes(),
            ));
            steps.push(Step::Cut);
            steps
        }
        _ => scripted::failure(404, "no such page"),
    })
    .await
}

/// Number of chats that reached the server.
fn chats(server: &Provider) -> usize {
    (0..server.count())
        .filter(|number| server.request(*number).target == "/v1/chat/completions")
        .count()
}

#[tokio::test]
async fn the_other_node_serves_when_the_server_of_one_and_then_its_process_is_gone() {
    let (gateway, other) = start().await;
    let key = gateway.create_key().await;
    let gates = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let mut servers =
        [Some(closing("one", &gates[0]).await), Some(closing("two", &gates[1]).await)];
    let nodes =
        [Node::enrol(&gateway, "a", json!({})).await, Node::enrol(&gateway, "b", json!({})).await];
    let [Some(one), Some(two)] = &servers else { panic!("both are there") };
    let mut processes = [
        Process::start(&gateway, &nodes[0], one, &DRAIN),
        Process::start(&gateway, &nodes[1], two, &DRAIN),
    ];
    for node in &nodes {
        until("both to report", async || reported(&gateway, node, 0).await).await;
    }
    let said = |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    let (plain, held) =
        (chat_body("auto", false), chat_body("auto", false).replacen('{', r#"{"user":"hold","#, 1));
    // While one server is busy, the other one is asked.
    let (first, second) = tokio::join!(gateway.chat(&key, held.as_bytes()), async {
        until("one to be asked", || {
            std::future::ready((chats(one) + chats(two) == 1).then_some(()))
        })
        .await;
        let answer = gateway.chat(&key, plain.as_bytes()).await;
        for gate in &gates {
            gate.notify_one();
        }
        answer
    });
    let (first, second) = (said(first), said(second));
    assert!(
        [("one", "two"), ("two", "one")].contains(&(first.as_str(), second.as_str())),
        "{first}, {second}"
    );
    // The server of the node that is asked first stops, and the gateway has not heard of it.
    let gone = usize::from(first == "two");
    drop(servers[gone].take());
    for _ in 0..3 {
        assert_eq!(said(gateway.chat(&key, plain.as_bytes()).await), second);
    }
    processes[gone].kill_9();
    assert_eq!(said(gateway.chat(&key, plain.as_bytes()).await), second);
    assert_eq!(
        (other.count(), nodes[1 - gone].shown(&gateway).await["state"].as_str()),
        (0, Some("ready"))
    );
}

/// A server that has one more model after the node has registered.
async fn server_that_grows() -> Provider {
    Provider::start(|request, number| match request.target.as_str() {
        "/v1/models" if number > 0 => {
            scripted::json_answer(200, &json!({"data": [{"id": "qwen"}, {"id": "llama"}]}))
        }
        "/v1/models" => scripted::json_answer(200, &json!({"data": [{"id": "qwen"}]})),
        _ => scripted::answer(200, &[], b"llamacpp:requests_processing 3\n"),
    })
    .await
}

#[tokio::test]
async fn a_model_that_the_node_is_not_enrolled_for_ends_nothing() {
    let (gateway, _other) = start().await;
    let server = server_that_grows().await;
    let (a, b) = (
        Node::enrol(&gateway, "a", json!({"models": ["qwen"]})).await,
        Node::enrol(&gateway, "b", json!({"models": ["ll*"]})).await,
    );
    let mut first = Process::start(&gateway, &a, &server, &DRAIN);
    let shown = until("the first to report", async || reported(&gateway, &a, 3).await).await;
    let models = |shown: &Value| {
        shown["registered"]["models"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!((models(&shown), first.runs()), (vec![json!("qwen")], true));
    let _second = Process::start(&gateway, &b, &server, &["--model", "llama", "--model", "none*"]);
    let shown = until("the second to report", async || reported(&gateway, &b, 3).await).await;
    assert_eq!(models(&shown), [json!("llama")]);
}

#[tokio::test]
async fn a_node_that_was_registered_does_not_end_when_it_is_refused() {
    let (gateway, _other) = start().await;
    let server = server_that_grows().await;
    let (a, b) = (
        Node::enrol(&gateway, "a", json!({"models": ["qwen"]})).await,
        Node::enrol(&gateway, "b", json!({"models": ["q*"]})).await,
    );
    let mut first = Process::start(&gateway, &a, &server, &DRAIN);
    until("the first to report", async || reported(&gateway, &a, 3).await).await;
    let small = server_of_one("qwen").await;
    let mut second = Process::start(&gateway, &b, &small, &DRAIN);
    until("the second to report", async || reported(&gateway, &b, 0).await).await;
    // The first node has to register again, and its server has more models than the node may
    // report.
    assert_eq!(a.call(&gateway, "deregister", &json!({})).await.status, 204);
    // The second node's secret has been rotated away.
    let rotated = gateway
        .manage("POST", &format!("/v1/nodes/{}/rotate", b.id), &gateway.admin_key, None)
        .await;
    assert_eq!(
        Node::of(&rotated.json())
            .call(&gateway, "heartbeat", &report(1_000_000, "ready", 0))
            .await
            .status,
        200
    );
    let shown = until("the first to be back", async || reported(&gateway, &a, 3).await).await;
    assert_eq!(
        (&shown["registered"]["epoch"], shown["registered"]["models"][0]["id"].as_str()),
        (&json!(2), Some("qwen"))
    );
    assert_eq!(shown["registered"]["models"].as_array().unwrap().len(), 1);
    // Each call is tried twice: a report, a registration, and another registration.
    until("the second to have tried again", async || {
        (gateway.metric("rerouter_auth_failures_total", &["reason=\"key\""]).await >= 6.0)
            .then_some(())
    })
    .await;
    assert!(first.runs() && second.runs());
}

/// A server with one model and no requests.
async fn server_of_one(model: &'static str) -> Provider {
    Provider::start(move |request, _| match request.target.as_str() {
        "/v1/models" => scripted::json_answer(200, &json!({"data": [{"id": model}]})),
        _ => scripted::answer(200, &[], b"llamacpp:requests_processing 0\n"),
    })
    .await
}

#[tokio::test]
async fn a_drain_that_the_gateway_has_not_heard_of_is_none() {
    let (mut gateway, _other) = start().await;
    let (server, node) = (server_of_one("qwen").await, Node::enrol(&gateway, "a", json!({})).await);
    let mut process = Process::start(&gateway, &node, &server, &["--drain", "60"]);
    until("it to report", async || reported(&gateway, &node, 0).await).await;
    gateway.kill_9();
    let asked = server.count();
    process.tell();
    // The node is idle, but stays because the gateway might send more.
    until("it to look four times", || {
        std::future::ready((server.count() >= asked + 8).then_some(()))
    })
    .await;
    assert!(process.runs());
    gateway.start_again().await;
    assert_eq!(
        (process.left().await, node.shown(&gateway).await["state"].as_str()),
        (Some(0), Some("gone"))
    );
}

#[tokio::test]
async fn what_the_environment_says_of_proxies_is_not_for_the_gateway_and_its_server() {
    let (gateway, _other) = start().await;
    let (server, node) = (server_of_one("qwen").await, Node::enrol(&gateway, "a", json!({})).await);
    let nobody = "http://127.0.0.1:9";
    let proxies = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"]
        .map(|name| (name, nobody));
    let mut process = Process::start_in(&gateway, &node, &server, &DRAIN, &proxies);
    until("it to report", async || reported(&gateway, &node, 0).await).await;
    assert_eq!(process.end().await, Some(0));
}

/// What the gateway accepted before it started is not known to it.
#[tokio::test]
async fn a_node_that_registers_in_the_second_in_which_its_gateway_starts_does_not_end() {
    let (real, _other) = start().await;
    let (server, node) = (server_of_one("qwen").await, Node::enrol(&real, "a", json!({})).await);
    let started = OnceLock::new();
    let gateway = Provider::start(move |request, _| {
        let signed = request.header("signature-input").unwrap();
        let (_, created) = signed.split_once("created=").unwrap();
        let created: i64 = created.split(';').next().unwrap().parse().unwrap();
        if created > *started.get_or_init(|| created) {
            return scripted::json_answer(200, &json!({"node": {"registered": {"epoch": 1}}}));
        }
        let id = RequestId::new(Timestamp::now(), &Random::seeded(1));
        let headers = [("content-type", "application/json"), ("x-request-id", id.as_str())];
        scripted::answer(401, &headers, b"{}")
    })
    .await;
    let [url, upstream] = [&gateway, &server].map(|at| format!("http://{}", at.address()));
    let options = ["--gateway", &url, "--upstream", &upstream, "--drain", "1"];
    let mut process = Process::of(&node, &options, &[]);
    until("a heartbeat", async || {
        (gateway.count() > 2 && gateway.last().target.ends_with("heartbeat")).then_some(())
    })
    .await;
    assert_eq!(process.end().await, Some(0));
}

#[tokio::test]
async fn a_drain_waits_where_the_load_is_not_known_and_leaves_a_node_that_another_has_taken_over() {
    let (gateway, _other) = start().await;
    let server = closing("one", &Arc::new(Notify::new())).await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    let mut process = Process::start(&gateway, &node, &server, &["--drain", "600"]);
    until("it to report", async || reported(&gateway, &node, 0).await).await;
    process.tell();
    let draining = async || {
        let shown = node.shown(&gateway).await;
        (shown["state"] == "draining").then(|| shown["lease_expires_at"].clone())
    };
    let lease = until("it to drain", async || draining().await).await;
    until("it to drain still", async || draining().await.filter(|next| *next != lease)).await;
    let body =
        json!({"version": "1", "endpoint": "http://127.0.0.1:9", "models": [{"id": "qwen"}]});
    assert_eq!(node.call(&gateway, "register", &body).await.status, 200);
    assert_eq!(node.call(&gateway, "heartbeat", &report(1, "ready", 0)).await.status, 200);
    assert_eq!(
        (process.left().await, node.shown(&gateway).await["state"].as_str()),
        (Some(0), Some("ready"))
    );
}

#[tokio::test]
async fn an_authority_of_one_s_own_vouches_for_nodes_and_gateway() {
    let (server, other) =
        (TlsProvider::start().await, Provider::always(scripted::completion("elsewhere")).await);
    let (ca, upstream) = (server.ca().to_str().unwrap().to_owned(), server.url());
    for (lines, status, text) in [
        (format!("nodes: {{ ca: {ca} }}"), 200, "HTTP/1.1 /v1/chat/completions"),
        (String::new(), 502, ""),
    ] {
        let gateway = Setup::new(&document(&other.url())).tls().server(&lines).start().await;
        let (url, its) = (
            format!("https://{}", gateway.tls().0),
            gateway.dir().join("ca.pem").to_str().unwrap().to_owned(),
        );
        let key = gateway.create_key().await;
        let node = Node::enrol(&gateway, "a", json!({})).await;
        let options = [
            "--gateway",
            &url,
            "--ca",
            &its,
            "--upstream",
            &upstream,
            "--upstream-ca",
            &ca,
            "--drain",
            "1",
        ];
        let mut process = Process::of(&node, &options, &[]);
        until("it to report", async || reported(&gateway, &node, 0).await).await;
        let answer = gateway.chat(&key, chat_body("local", false).as_bytes()).await;
        assert_eq!(answer.status, status, "{lines}: {}", answer.text());
        assert!(answer.text().contains(text), "{lines}: {}", answer.text());
        assert_eq!(process.end().await, Some(0));
    }
}

#[tokio::test]
async fn of_two_processes_of_one_node_the_first_gives_way() {
    let (gateway, _other) = start().await;
    let server = server("one", 3).await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    let epoch = async || node.shown(&gateway).await["registered"]["epoch"].as_u64();
    let mut first = Process::start(&gateway, &node, &server, &DRAIN);
    until("the first to report", async || reported(&gateway, &node, 3).await).await;
    let begun = epoch().await;
    let mut second = Process::start(&gateway, &node, &server, &DRAIN);
    until("the second to take it", async || (epoch().await > begun).then_some(())).await;
    // The first process may have lost the registration for another reason, so it tries once more.
    let taken = epoch().await;
    until("the first to take it back", async || (epoch().await > taken).then_some(())).await;
    assert_eq!(first.left().await, Some(2));
    assert!(second.runs() && node.shown(&gateway).await["state"] == "ready");
    assert_eq!(
        (second.end().await, node.shown(&gateway).await["state"].as_str()),
        (Some(0), Some("gone"))
    );
}
