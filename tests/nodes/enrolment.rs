//! Nodes over sockets: enrolment and rotation, manipulated signatures, reports of nodes, and
//! requests that they serve. `rerouter node` itself is in `processes`.

use serde_json::{Value, json};

use crate::support::client::{Answer, pairs};
use crate::support::documents::{chat_body, provider};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Setup};
use crate::support::localhost_is_ipv4;
use crate::support::node::{Node, next_second, now, report, send};
use crate::support::provider::{self as scripted, Provider};

/// A document with targets on nodes first, then a provider.
pub fn document(other: &str) -> String {
    format!(
        "providers:\n{}models:\n  nodes/qwen: {{ input_per_mtok: 1.0, output_per_mtok: 1.0 }}\n\
         recipes:\n  main:\n    rules:\n      \
         - {{ name: default, targets: [ {{ target: nodes/qwen }}, {{ target: other/m }} ] }}\n    \
         retry: {{ attempts: 4, on: [connect, timeout, 429, 5xx] }}\n  only:\n    \
         rules: [ {{ name: default, targets: [ {{ target: nodes/qwen }} ] }} ]\n\
         aliases: {{ auto: main, local: only }}\n",
        provider("other", other, "k")
    )
}

/// A gateway with `document`, and its other provider, which answers `elsewhere`.
pub async fn start() -> (Gateway, Provider) {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    (Setup::new(&document(&other.url())).start().await, other)
}

pub fn check_401(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 401, "{what}: {}", answer.text());
    envelope::management(answer, 401, "unauthorized");
    assert_eq!(answer.json().as_object().unwrap().len(), 2, "{what}");
    assert_eq!(
        answer.header_lines("www-authenticate"),
        ["Signature realm=\"pin-node-agent\""],
        "{what}"
    );
    assert!(answer.header("date").is_some(), "{what}: no Date to set a clock by");
}

#[tokio::test]
async fn a_node_is_enrolled_by_admins_and_its_secret_shown_once() {
    let (mut gateway, _other) = start().await;
    let admin = gateway.admin_key.clone();
    let manage = async |gateway: &Gateway, method: &str, path: &str, body: Option<Value>| {
        gateway.manage(method, path, &admin, body.as_ref()).await
    };
    let made =
        manage(&gateway, "POST", "/v1/nodes", Some(json!({"name": "rack", "models": ["qwen*"]})))
            .await;
    let record = made.json();
    let id = record["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (made.status, made.header("location"), made.header("cache-control")),
        (201, Some(format!("/v1/nodes/{id}").as_str()), Some("no-store"))
    );
    assert_eq!(
        (&record["state"], &record["models"], &record["generation"]),
        (&json!("pending"), &json!(["qwen*"]), &json!(1))
    );
    let secret = record["secret"].as_str().unwrap().to_owned();
    assert!(secret.starts_with("nod_") && secret.len() == 40);
    for (body, field) in [
        (json!({}), "name"),
        (json!({"name": "a", "models": []}), "models"),
        (json!({"name": "a", "models": ["a*b"]}), "models"),
        (json!({"name": "a", "endpoint": "ftp://x"}), "endpoint"),
        (json!({"name": "a", "secret": "x"}), "secret"),
    ] {
        let refused = manage(&gateway, "POST", "/v1/nodes", Some(body)).await;
        assert_eq!(
            (refused.status, &refused.json()["field"]),
            (400, &json!(field)),
            "{}",
            refused.text()
        );
    }
    assert_eq!(
        manage(&gateway, "POST", "/v1/nodes", Some(json!({"name": "rack"}))).await.status,
        409
    );
    let list = manage(&gateway, "GET", "/v1/nodes", None).await.json();
    assert_eq!(
        (
            &list["data"][0]["id"],
            list["data"].as_array().unwrap().len(),
            &list["data"][0]["secret"]
        ),
        (&json!(id), 1, &Value::Null)
    );
    gateway.restart().await;
    next_second().await;
    let node = Node { id: id.clone(), secret: secret.clone(), generation: 1 };
    assert_eq!(
        node.call(&gateway, "deregister", &json!({})).await.status,
        204,
        "a stored secret is good after a restart"
    );
    let stored = std::fs::read(gateway.dir().join("data/accounts.db")).unwrap();
    let wal = std::fs::read(gateway.dir().join("data/accounts.db-wal")).unwrap_or_default();
    assert!(
        ![stored, wal].concat().windows(secret.len()).any(|window| window == secret.as_bytes()),
        "it is sealed"
    );
    for _ in 0..2 {
        let gone = manage(&gateway, "DELETE", &format!("/v1/nodes/{id}"), None).await.status;
        assert!([204, 404].contains(&gone));
    }
    assert_eq!(manage(&gateway, "GET", &format!("/v1/nodes/{id}"), None).await.status, 404);
    check_401(&node.call(&gateway, "deregister", &json!({})).await, "a deleted node");
}

#[tokio::test]
async fn the_secret_before_ends_with_the_first_use_of_the_next() {
    let (gateway, _other) = start().await;
    let first = Node::enrol(&gateway, "rack", json!({})).await;
    let path = format!("/v1/nodes/{}/rotate", first.id);
    let rotated = gateway.manage("POST", &path, &gateway.admin_key, None).await;
    let second = Node::of(&rotated.json());
    assert_eq!((rotated.status, second.generation, second.id == first.id), (200, 2, true));
    assert_ne!(second.secret, first.secret);
    let leave = async |node: &Node| node.call(&gateway, "deregister", &json!({})).await;
    assert_eq!(leave(&first).await.status, 204, "until the next is used");
    check_401(
        &leave(&Node { generation: 2, ..first.clone() }).await,
        "the old secret as the new generation",
    );
    check_401(
        &leave(&Node { generation: 1, ..second.clone() }).await,
        "the new secret as the old generation",
    );
    check_401(&leave(&Node { generation: 3, ..second.clone() }).await, "a generation to come");
    assert_eq!(leave(&first).await.status, 204);
    assert_eq!(leave(&second).await.status, 204);
    check_401(&leave(&first).await, "the old secret after the new one was used");
    assert_eq!(second.shown(&gateway).await["previous_secret_expires_at"], Value::Null);
}

#[tokio::test]
async fn a_signature_that_is_bent_anywhere_is_401() {
    let (mut gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    let (path, body) = ("/v1/agent/events", json!({"events": []}).to_string());
    let body = body.as_bytes();
    let good = || node.sign(&gateway, path, body, now());
    let bent = |at: usize, from: &str, to: &str| {
        let mut headers = good();
        assert!(headers[at].1.contains(from), "{from}");
        headers[at].1 = headers[at].1.replacen(from, to, 1);
        headers
    };
    assert_eq!(send(&gateway, path, &good(), body).await.status, 202);
    let inputs = [
        ("\"@method\" \"@authority\"", "\"@authority\" \"@method\""),
        (" \"@query\"", ""),
        (" \"content-digest\"", ""),
        ("sig1=", "sig2="),
        (";created=", ";created=1"),
        (";nonce=\"", ";nonce=\"A"),
        (";keyid=\"node_", ";keyid=\"node-"),
        (".1\"", ".2\""),
        ("hmac-sha256", "hmac-sha1"),
        ("pin-node-agent", "pin-node-agen"),
        ("tag=", "expires=1;tag="),
        ("sig1=", "sig0=();created=1, sig1="),
    ];
    for (from, to) in inputs {
        check_401(&send(&gateway, path, &bent(1, from, to), body).await, &format!("{from} → {to}"));
    }
    check_401(&send(&gateway, path, &bent(0, "sha-256", "sha-512"), body).await, "another digest");
    check_401(
        &send(&gateway, path, &bent(2, "sig1=:", "sig1=:AAAA"), body).await,
        "another signature",
    );
    check_401(&send(&gateway, path, &good()[3..], body).await, "none");
    check_401(&send(&gateway, path, &good(), br#"{"events":[ ]}"#).await, "another body");
    check_401(&send(&gateway, "/v1/agent/heartbeat", &good(), body).await, "another path");
    check_401(&send(&gateway, "/v1/agent/events?a=1", &good(), body).await, "another query");
    let put = good();
    let put = pairs(&put);
    check_401(&gateway.send("PUT", path, &put, Some(body)).await, "another method");
    check_401(
        &gateway.send("POST", path, &[put.clone(), vec![put[1]]].concat(), Some(body)).await,
        "two inputs",
    );
    let elsewhere = Node { secret: node.secret.replace("nod_", "nod-"), ..node.clone() };
    check_401(&elsewhere.call(&gateway, "events", &json!({"events": []})).await, "another secret");

    let headers = good();
    assert_eq!(send(&gateway, path, &headers, body).await.status, 202);
    check_401(&send(&gateway, path, &headers, body).await, "twice");
    let unknown = node.sign(&gateway, "/v1/agent/tasks", body, now());
    assert_eq!(send(&gateway, "/v1/agent/tasks", &unknown, body).await.status, 404);
    check_401(&send(&gateway, "/v1/agent/tasks", &unknown, body).await, "twice, to nobody");
    let (mine, reasons) = (["pin"], ["profile", "missing", "key", "mac", "nonce", "digest"]);
    for reason in reasons {
        let labels = [format!("interface=\"{}\"", mine[0]), format!("reason=\"{reason}\"")];
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        assert!(gateway.metric("rerouter_auth_failures_total", &labels).await > 0.0, "{reason}");
    }
    gateway.kill_9();
    gateway.start_again().await;
    check_401(&send(&gateway, path, &headers, body).await, "twice, after a crash");
    next_second().await;
    assert_eq!(
        send(&gateway, path, &node.sign(&gateway, path, body, now()), body).await.status,
        202
    );
    // A node's signature is valid only on nodes' routes.
    let elsewhere = node.sign(&gateway, "/v1/nodes", body, now());
    assert_eq!(send(&gateway, "/v1/nodes", &elsewhere, body).await.status, 401);
}

#[tokio::test]
async fn an_enrolment_makes_no_address_one_that_nodes_may_serve_at() {
    let (gateway, _other) = start().await;
    let endpoints = [
        "http://169.254.169.254",
        "http://[fd00:ec2::254]",
        "http://168.63.129.16",
        "http://100.100.100.200",
        "http://[::ffff:169.254.169.254]",
        "http://0.0.0.0:9",
        "http://[::]:9",
    ];
    for (number, endpoint) in endpoints.into_iter().enumerate() {
        let node =
            Node::enrol(&gateway, &format!("rack-{number}"), json!({ "endpoint": endpoint })).await;
        let refused = node
            .call(
                &gateway,
                "register",
                &json!({"version": "1", "endpoint": endpoint, "models": []}),
            )
            .await;
        envelope::management(&refused, 403, "forbidden");
        assert_eq!(refused.json()["detail"], "No node may serve at this address.", "{endpoint}");
    }
}

#[tokio::test]
async fn what_a_node_tells_is_held_against_its_enrolment_and_its_epoch() {
    let (gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "rack", json!({"models": ["qwen*"]})).await;
    let state = async || node.shown(&gateway).await["state"].as_str().unwrap().to_owned();
    let register = |endpoint: &str, model: &str| {
        json!({
            "version": "1", "endpoint": endpoint, "models": [{"id": model}],
        })
    };
    let own = format!("http://{}", gateway.address());
    let metrics = format!("http://{}", gateway.metrics_address());
    for (endpoint, model) in [
        ("http://127.0.0.1:9", "llama"),
        ("http://192.0.2.1:9", "qwen"),
        ("http://169.254.169.254", "qwen"),
        ("http://[fd00:ec2::254]", "qwen"),
        ("http://metadata.example.com", "qwen"),
        ("http://0.0.0.0:9", "qwen"),
        (&own, "qwen"),
        (&own.replace("127.0.0.1", "localhost"), "qwen"),
        (&metrics, "qwen"),
    ] {
        if endpoint.contains("localhost") && !localhost_is_ipv4() {
            continue;
        }
        let refused = node.call(&gateway, "register", &register(endpoint, model)).await;
        envelope::management(&refused, 403, "forbidden");
    }
    for body in [
        json!({}),
        json!({"version": "1", "endpoint": "http://127.0.0.1:9"}),
        json!({"version": "1", "endpoint": "nowhere", "models": []}),
        json!({
            "version": "1", "endpoint": "http://127.0.0.1:9",
            "models": [{"id": "qwen"}, {"id": "qwen"}]
        }),
        json!({
            "version": "1", "endpoint": "http://127.0.0.1:9", "models": [{"id": "qwen", "size": 1}]
        }),
        json!({
            "version": "1", "endpoint": "http://127.0.0.1:9", "models": [], "max_concurrency": 0
        }),
    ] {
        envelope::management(&node.call(&gateway, "register", &body).await, 400, "invalid_request");
    }
    assert_eq!(
        node.call(&gateway, "heartbeat", &report(1, "ready", 0)).await.status,
        409,
        "not registered"
    );
    assert_eq!(state().await, "pending");
    let registered = node.call(&gateway, "register", &register("http://127.0.0.1:9", "qwen")).await;
    let told = registered.json();
    assert_eq!(
        (registered.status, &told["heartbeat_interval_s"], &told["lease_s"]),
        (200, &json!(10), &json!(30))
    );
    assert_eq!((&told["node"]["id"], &told["node"]["state"]), (&json!(node.id), &json!("ready")));
    node.beat(&gateway, 5, "ready", 1).await;
    for seq in [5, 4] {
        envelope::management(
            &node.call(&gateway, "heartbeat", &report(seq, "ready", 0)).await,
            409,
            "conflict",
        );
    }
    node.beat(&gateway, 6, "draining", 2).await;
    let shown = node.shown(&gateway).await;
    assert_eq!((&shown["state"], &shown["running"]), (&json!("draining"), &json!(2)));
    node.beat(&gateway, 7, "ready", 0).await;
    assert_eq!(gateway.metric("rerouter_nodes", &["state=\"ready\""]).await, 1.0);
    let more = json!({
        "seq": 8, "status": "ready", "running": 0, "queued": 0,
        "models": [{"id": "qwen"}, {"id": "qwen-large"}]
    });
    assert_eq!(node.call(&gateway, "heartbeat", &more).await.status, 200);
    assert_eq!(node.shown(&gateway).await["registered"]["models"][1]["id"], "qwen-large");
    let outside = json!({
        "seq": 9, "status": "ready", "running": 0, "queued": 0, "models": [{"id": "llama"}]
    });
    envelope::management(&node.call(&gateway, "heartbeat", &outside).await, 403, "forbidden");
    for bad in [
        json!({"seq": 9, "status": "ready"}),
        json!({"seq": 9, "status": "well", "running": 0, "queued": 0}),
        json!({"seq": -1, "status": "ready", "running": 0, "queued": 0}),
    ] {
        envelope::management(&node.call(&gateway, "heartbeat", &bad).await, 400, "invalid_request");
    }
    assert_eq!(
        node.call(&gateway, "register", &register("http://127.0.0.1:9", "qwen")).await.status,
        200
    );
    node.beat(&gateway, 1, "ready", 0).await;
    assert_eq!(node.call(&gateway, "deregister", &json!({})).await.status, 204);
    assert_eq!(state().await, "gone");
    assert_eq!(node.call(&gateway, "heartbeat", &report(2, "ready", 0)).await.status, 409);
}

#[tokio::test]
async fn nodes_sign_the_public_name_where_there_is_one() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let gateway = Setup::new(&document(&other.url()))
        .server("public_url: http://gw.example.com")
        .start()
        .await;
    let node = Node::enrol(&gateway, "rack", json!({"endpoint": "http://gw.example.com/v1"})).await;
    let body =
        json!({"version": "1", "endpoint": "http://gw.example.com", "models": []}).to_string();
    let register = async |authority: &str| {
        let headers = node.sign_for(authority, "/v1/agent/register", body.as_bytes(), now());
        send(&gateway, "/v1/agent/register", &headers, body.as_bytes()).await
    };
    check_401(&register(&gateway.host()).await, "the listener's address");
    check_401(&register("gw.example.com:80").await, "with the port that the scheme has anyway");
    let refused = register("gw.example.com").await;
    envelope::management(&refused, 403, "forbidden");
    assert!(
        refused.text().contains("gateway itself"),
        "signed well, but it would be a loop: {}",
        refused.text()
    );
}

#[tokio::test]
async fn an_event_is_told_once() {
    let (gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "rack", json!({})).await;
    let event = |id: &str| {
        json!({
            "id": id, "at": "2026-11-21T00:00:00Z", "level": "info", "message": "loaded\nwell",
            "data": {"a": 1}
        })
    };
    let events = node
        .call(&gateway, "events", &json!({"events": [event("a"), event("b"), event("a")]}))
        .await;
    assert_eq!((events.status, events.json()), (202, json!({"accepted": 2, "duplicates": 1})));
    let again = node.call(&gateway, "events", &json!({"events": [event("b"), event("c")]})).await;
    assert_eq!(again.json(), json!({"accepted": 1, "duplicates": 1}));
    envelope::management(
        &node.call(&gateway, "events", &json!({"events": [{"id": "d"}]})).await,
        400,
        "invalid_request",
    );
    let long = json!({
        "events": [{
            "id": "d", "at": "2026-11-21T00:00:00Z", "level": "info", "message": "x".repeat(1 << 20)
        }]
    });
    assert_eq!(node.call(&gateway, "events", &long).await.status, 413);
    assert!(
        gateway.log().contains(r"loaded\\nwell") && !gateway.log().contains("loaded\nwell"),
        "a line of the log is a line"
    );
}

#[tokio::test]
async fn requests_go_to_the_least_loaded_node_and_from_node_to_node() {
    let (mut gateway, other) = start().await;
    let key = gateway.create_key().await;
    let ask = async |gateway: &Gateway, model: &str| {
        gateway.chat(&key, chat_body(model, false).as_bytes()).await
    };
    let none = ask(&gateway, "local").await;
    envelope::openai(&none, 503, "server_error", Some("no_target"));
    assert!(none.text().contains("no_node"), "{}", none.text());
    assert_eq!(ask(&gateway, "auto").await.header("x-rerouter-provider"), Some("other"));

    let served = [
        Provider::always(scripted::completion("a")).await,
        Provider::start(|_, n| {
            if n == 1 { scripted::failure(500, "broken") } else { scripted::completion("b") }
        })
        .await,
    ];
    let (a, b) =
        (Node::enrol(&gateway, "a", json!({})).await, Node::enrol(&gateway, "b", json!({})).await);
    a.serve(
        &gateway,
        &format!("http://{}", served[0].address()),
        &["qwen"],
        json!({"api_key": "node-key-canary", "max_concurrency": 2}),
    )
    .await;
    b.serve(&gateway, &served[1].url(), &["qwen", "other"], json!({})).await;
    a.beat(&gateway, 2, "ready", 3).await;
    let first = ask(&gateway, "auto").await;
    assert_eq!(
        (first.status, first.header("x-rerouter-provider"), first.header("x-rerouter-model")),
        (200, Some("nodes"), Some("qwen"))
    );
    assert_eq!((served[0].count(), served[1].count()), (0, 1), "b has nothing to do");
    assert_eq!(served[1].last().header("authorization"), None);

    let second = ask(&gateway, "local").await;
    assert_eq!(
        (second.status, second.header("x-rerouter-attempts")),
        (200, Some("2")),
        "{}",
        second.text()
    );
    assert_eq!(served[0].last().target, "/v1/chat/completions");
    assert_eq!(served[0].last().header("authorization").as_deref(), Some("Bearer node-key-canary"));
    assert_eq!(served[0].last().json()["model"], "qwen");
    let capture = gateway.capture(&second.request_id()).await;
    let decision = &capture["decision"];
    assert_eq!(decision["plan"], json!([{"provider": "nodes", "model": "qwen"}]));
    assert_eq!(decision["served"], json!({"provider": "nodes", "model": "qwen", "node": a.id}));
    let tried: Vec<&Value> =
        decision["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["node"]).collect();
    assert_eq!(tried, [&json!(b.id), &json!(a.id)]);
    let health = &capture["inputs"]["health"];
    assert_eq!(health["nodes/qwen"]["nodes"], 2);
    assert_eq!(
        (&health[&a.id]["node"], &health[&b.id]["node"]["models"]),
        (&json!({"models": ["qwen"], "load": 3}), &json!(["qwen"]))
    );
    assert!(
        !capture.to_string().contains("node-key-canary")
            && !gateway.log().contains("node-key-canary")
    );
    assert!(
        gateway
            .metric("rerouter_upstream_attempts_total", &["provider=\"nodes\"", "outcome=\"ok\""])
            .await
            >= 2.0
    );

    for node in [&a, &b] {
        node.beat(&gateway, 9, "draining", 0).await;
    }
    assert_eq!(ask(&gateway, "auto").await.header("x-rerouter-provider"), Some("other"));
    assert_eq!(ask(&gateway, "local").await.status, 503);
    a.beat(&gateway, 10, "ready", 0).await;
    gateway.restart().await;
    assert_eq!(a.shown(&gateway).await["state"], "unreachable", "until it reports");
    next_second().await;
    assert_eq!(ask(&gateway, "local").await.status, 503);
    a.beat(&gateway, 11, "ready", 0).await;
    assert_eq!(ask(&gateway, "local").await.status, 200);
    let count = other.count();
    a.call(&gateway, "deregister", &json!({})).await;
    assert_eq!(ask(&gateway, "auto").await.status, 200);
    assert_eq!(other.count(), count + 1);

    let evaluated =
        gateway.manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, None).await.json();
    assert!(evaluated["evaluated"].as_u64().unwrap() >= 6, "{evaluated}");
    for name in ["changed", "unroutable", "rule_changed", "plan_changed", "assumed", "inexact"] {
        assert_eq!(evaluated[name], 0, "{name} of {evaluated}");
    }
}

#[tokio::test]
async fn streams_and_reroutes_go_to_nodes_too_and_nobody_reads_their_keys() {
    let (gateway, other) = start().await;
    let key = gateway.create_key().await;
    let quoting = scripted::failure(401, "no such key: node-key-canary");
    let served = [
        Provider::always(quoting).await,
        Provider::start(|request, _| {
            if request.json()["stream"] == true {
                scripted::stream("well")
            } else {
                scripted::completion("again")
            }
        })
        .await,
    ];
    let (a, b) =
        (Node::enrol(&gateway, "a", json!({})).await, Node::enrol(&gateway, "b", json!({})).await);
    a.serve(&gateway, &served[0].url(), &["qwen"], json!({"api_key": "node-key-canary"})).await;
    b.serve(&gateway, &served[1].url(), &["qwen"], json!({"api_key": "node-key-canary"})).await;
    b.beat(&gateway, 2, "ready", 1).await;
    let answer = gateway.chat(&key, chat_body("local", true).as_bytes()).await;
    assert_eq!(
        (answer.status, answer.text(), served[0].count()),
        (200, scripted::stream_body("well"), 1)
    );
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(
        (&capture["decision"]["served"]["node"], &capture["decision"]["attempts"][0]["error"]),
        (&json!(b.id), &json!("unauthorized"))
    );
    let path = format!("/v1/router/replay/{}/reroute", answer.request_id());
    let again = gateway.manage("POST", &path, &key.secret, None).await.json();
    assert_eq!(again["response"]["choices"][0]["message"]["content"], "again", "{again}");
    assert_eq!(
        again["decision"]["served"],
        json!({"provider": "nodes", "model": "qwen", "node": b.id})
    );
    b.beat(&gateway, 3, "draining", 0).await;
    let refused = gateway.chat(&key, chat_body("local", false).as_bytes()).await;
    assert_eq!(
        (refused.status, other.count()),
        (502, 0),
        "a node that refuses what it asked for itself"
    );
    let shown = [
        a.shown(&gateway).await.to_string(),
        refused.text(),
        capture.to_string(),
        gateway.log(),
        gateway.metrics().await,
    ];
    assert!(
        shown.iter().all(|text| !text.contains("node-key-canary") && !text.contains(&a.secret)),
        "{shown:?}"
    );
    for file in ["accounts.db", "accounts.db-wal"] {
        let stored = std::fs::read(gateway.dir().join("data").join(file)).unwrap_or_default();
        for secret in [b"node-key-canary".as_slice(), a.secret.as_bytes()] {
            assert!(!stored.windows(secret.len()).any(|window| window == secret), "{file}");
        }
    }
}

#[tokio::test]
async fn nodes_that_may_not_be_asked_take_no_attempts() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let gateway =
        Setup::new(&document(&other.url()).replace("attempts: 4", "attempts: 2")).start().await;
    let key = gateway.create_key().await;
    let limited = || {
        scripted::answer(
            429,
            &[("content-type", "application/json"), ("retry-after", "300")],
            b"{}",
        )
    };
    let served = [
        Provider::always(limited()).await,
        Provider::always(limited()).await,
        Provider::always(scripted::failure(500, "broken")).await,
    ];
    for (name, provider) in [("a", &served[0]), ("b", &served[1])] {
        Node::enrol(&gateway, name, json!({}))
            .await
            .serve(&gateway, &provider.url(), &["qwen"], json!({}))
            .await;
    }
    let both = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(
        (both.status == 200, served[0].count(), served[1].count()),
        (false, 1, 1),
        "{}",
        both.text()
    );
    Node::enrol(&gateway, "c", json!({}))
        .await
        .serve(&gateway, &served[2].url(), &["qwen"], json!({}))
        .await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(
        (answer.status, answer.header("x-rerouter-provider")),
        (200, Some("other")),
        "{}",
        answer.text()
    );
    assert_eq!(
        (answer.header("x-rerouter-attempts"), served[2].count(), other.count()),
        (Some("2"), 1, 1)
    );
    assert_eq!((served[0].count(), served[1].count()), (1, 1), "they are left alone");
}

#[tokio::test]
async fn what_nodes_are_doing_now_counts_for_a_document_that_names_them_first() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let live = format!(
        "providers:\n{}recipes:\n  \
         main: {{ rules: [ {{ name: default, targets: [ {{ target: other/m }} ] }} ] }}\n\
         aliases: {{ auto: main }}\n",
        provider("other", &other.url(), "k")
    );
    let gateway = Setup::new(&live).start().await;
    let key = gateway.create_key().await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.capture(&answer.request_id()).await;
    // A document that comes by the API names credentials by variables.
    let candidate = document(&other.url())
        .replace("aliases: { auto: main,", "aliases: { auto: only,")
        .replace("\"k\"", "\"${ANY_API_KEY}\"");
    let question = json!({ "document": candidate, "health": "current" });
    let unroutable = async || {
        let report = gateway
            .manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, Some(&question))
            .await
            .json();
        assert_eq!(report["evaluated"], 1, "{report}");
        report["unroutable"].clone()
    };
    assert_eq!(unroutable().await, 1, "no node serves it");
    Node::enrol(&gateway, "a", json!({}))
        .await
        .serve(&gateway, "http://127.0.0.1:9", &["qwen"], json!({}))
        .await;
    assert_eq!(unroutable().await, 0);
}
