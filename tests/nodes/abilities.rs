//! What nodes report about their models: requests go to nodes that can take them, captures are
//! decided again in the same way, and operators and clients see the reported data.

use serde_json::{Value, json};

use crate::nodes::enrolment::{document, start};
use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key};
use crate::support::node::Node;
use crate::support::provider::{self as scripted, Provider};

/// A request with `words` words, and the fields of `extra`.
fn body(model: &str, words: usize, extra: Value) -> Vec<u8> {
    let mut body =
        json!({"model": model, "messages": [{"role": "user", "content": "word ".repeat(words)}]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

fn tools() -> Value {
    json!({
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    })
}

fn picture(model: &str) -> Vec<u8> {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    json!({
        "model": model, "messages": [{
            "role": "user", "content": [image, {"type": "text", "text": "what is it?"}]
        }]
    })
    .to_string()
    .into_bytes()
}

/// Enrols a node, which serves one model with these properties.
async fn serve(gateway: &Gateway, name: &str, provider: &Provider, said: Value) -> Node {
    let node = Node::enrol(gateway, name, json!({})).await;
    let mut model = json!({"id": "qwen"});
    model.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
    let answer = node
        .call(
            gateway,
            "register",
            &json!({"version": "1", "endpoint": provider.url(), "models": [model]}),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    node
}

/// The content of an answer, or the text of a refusal.
fn said(answer: &Answer) -> String {
    match answer.status {
        200 => answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
        _ => answer.text(),
    }
}

#[tokio::test]
async fn requests_go_to_nodes_that_can_take_them_and_to_no_others() {
    let (mut gateway, other) = start().await;
    let key = gateway.create_key().await;
    let small = Provider::always(scripted::completion("small")).await;
    let large = Provider::always(scripted::completion("large")).await;
    let nodes = [
        serve(
            &gateway,
            "small",
            &small,
            json!({"context": 500, "capabilities": ["tools", "vision"]}),
        )
        .await,
        serve(
            &gateway,
            "large",
            &large,
            json!({"context": 5_000, "capabilities": ["tools", "json"]}),
        )
        .await,
    ];
    // The less busy node is asked first if both can serve.
    nodes[0].beat(&gateway, 1, "ready", 0).await;
    nodes[1].beat(&gateway, 1, "ready", 5).await;
    let ask = async |gateway: &Gateway, key: &Key, body: &[u8]| gateway.chat(key, body).await;
    for (body, wanted) in [
        (body("auto", 10, json!({})), "small"),
        (body("auto", 10, tools()), "small"),
        (body("auto", 10, json!({"max_tokens": 600})), "large"),
        (body("auto", 1_000, json!({})), "large"),
        (body("auto", 1_000, tools()), "large"),
        (body("auto", 10, json!({"response_format": {"type": "json_object"}})), "large"),
        (picture("auto"), "small"),
        (body("auto", 10, json!({"max_tokens": 6_000})), "elsewhere"),
        (body("auto", 20_000, json!({})), "elsewhere"),
    ] {
        let answer = ask(&gateway, &key, &body).await;
        assert_eq!(
            said(&answer),
            wanted,
            "{}",
            String::from_utf8_lossy(&body[..body.len().min(200)])
        );
        let capture = gateway.capture(&answer.request_id()).await;
        let first = &capture["decision"]["candidates"][0];
        let speaks = (wanted == "elsewhere").then_some("context");
        assert_eq!(
            (first["eligible"].as_bool(), first["reason"].as_str()),
            (Some(speaks.is_none()), speaks)
        );
        assert_eq!(
            capture["decision"]["attempts"].as_array().unwrap().len(),
            1,
            "nobody else was asked: {capture}"
        );
    }
    let long = ask(&gateway, &key, &body("local", 20_000, json!({}))).await;
    envelope::openai(&long, 400, "invalid_request_error", Some("context_length_exceeded"));
    let blind =
        [picture("local"), body("local", 10, json!({"response_format": {"type": "json_object"}}))];
    nodes[0].beat(&gateway, 2, "draining", 0).await;
    let refused = ask(&gateway, &key, &blind[0]).await;
    envelope::openai(&refused, 400, "invalid_request_error", Some("unsupported_feature"));
    assert!(refused.text().contains("nodes/qwen: capability"), "{}", refused.text());
    assert_eq!(said(&ask(&gateway, &key, &blind[1]).await), "large");
    let decided = gateway
        .send(
            "POST",
            "/v1/router/decide",
            &[
                ("authorization", &format!("Bearer {}", key.secret)),
                ("content-type", "application/json"),
            ],
            Some(&picture("auto")),
        )
        .await;
    assert_eq!(decided.json()["candidates"][0]["reason"], "capability", "{}", decided.text());
    assert_eq!((small.count(), large.count(), other.count()), (3, 5, 2));

    // Captures are decided again in the same way, even if nodes report something else or nothing,
    // and after a restart.
    let again = async |gateway: &Gateway, state: &str| {
        let report = gateway
            .manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, None)
            .await
            .json();
        // Two found no target, and find none again.
        let counts = [&report["evaluated"], &report["unroutable_before"]];
        assert_eq!(counts, [12, 2], "{state}: {report}");
        for name in ["changed", "unroutable", "rule_changed", "plan_changed", "assumed", "inexact"]
        {
            assert_eq!(report[name], 0, "{state}: {name} of {report}");
        }
    };
    again(&gateway, "as it is").await;
    let more =
        json!({"seq": 3, "status": "ready", "running": 0, "queued": 0, "models": [{"id": "qwen"}]});
    assert_eq!(nodes[0].call(&gateway, "heartbeat", &more).await.status, 200);
    assert_eq!(
        said(&ask(&gateway, &key, &body("local", 20_000, json!({}))).await),
        "small",
        "what is not said is no bound"
    );
    nodes[1].call(&gateway, "deregister", &json!({})).await;
    gateway.restart().await;
    let report =
        gateway.manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, None).await.json();
    assert_eq!(
        (&report["evaluated"], &report["changed"], &report["plan_changed"]),
        (&json!(13), &json!(0), &json!(0)),
        "{report}"
    );
}

#[tokio::test]
async fn a_context_is_a_number_from_one() {
    let (gateway, _other) = start().await;
    let node = Node::enrol(&gateway, "a", json!({})).await;
    for context in [json!(0), json!(-1), json!("4096"), json!(1.5)] {
        let body = json!({
            "version": "1", "endpoint": "http://127.0.0.1:9",
            "models": [{"id": "qwen", "context": context}]
        });
        envelope::management(&node.call(&gateway, "register", &body).await, 400, "invalid_request");
    }
}

#[tokio::test]
async fn operators_and_clients_are_shown_targets_on_nodes() {
    let (gateway, other) = start().await;
    let key = gateway.create_key().await;
    let listed = async || {
        gateway.manage("GET", "/v1/router/providers", &gateway.admin_key, None).await.json()
    };
    let empty = listed().await;
    assert_eq!(
        (&empty["data"][0]["id"], &empty["data"][1]["id"]),
        (&json!("other"), &json!("nodes"))
    );
    let target = &empty["data"][1]["targets"][0];
    assert_eq!(
        (&target["model"], &target["breaker"], &target["nodes"]),
        (&json!("qwen"), &json!("closed"), &json!([]))
    );

    let broken = Provider::always(scripted::failure(500, "broken")).await;
    let well = Provider::always(scripted::completion("well")).await;
    let (a, b) =
        (Node::enrol(&gateway, "a", json!({})).await, Node::enrol(&gateway, "b", json!({})).await);
    a.serve(&gateway, &broken.url(), &["qwen", "unheard-of"], json!({"max_concurrency": 2})).await;
    b.serve(&gateway, &well.url(), &["qwen"], json!({"max_concurrency": 3})).await;
    b.beat(&gateway, 2, "ready", 9).await;
    for _ in 0..6 {
        let answer = gateway.chat(&key, chat_body("local", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let shown = listed().await;
    assert_eq!(
        (shown["data"].as_array().unwrap().len(), &shown["data"][1]["protocol"]),
        (2, &json!("openai"))
    );
    let target = &shown["data"][1]["targets"][0];
    assert_eq!(
        (&target["breaker"], &target["retry_at"], &target["max_concurrency"], &target["inflight"]),
        (&json!("closed"), &Value::Null, &json!(5), &json!(0)),
        "one of them may be asked: {target}"
    );
    let failed = broken.count() as u64;
    assert_eq!(
        (&target["requests_1m"], &target["errors_1m"]),
        (&json!(6 + failed), &json!(failed))
    );
    let each = |id: &str| {
        target["nodes"].as_array().unwrap().iter().find(|node| node["id"] == id).unwrap().clone()
    };
    let (first, second) = (each(&a.id), each(&b.id));
    assert_eq!(
        (&first["name"], &first["state"], &first["breaker"]),
        (&json!("a"), &json!("ready"), &json!("open"))
    );
    assert!(first["retry_at"].is_string() && second["ewma_ms"].is_number(), "{target}");
    assert_eq!(
        (&second["breaker"], &second["max_concurrency"], &second["errors_1m"]),
        (&json!("closed"), &json!(3), &json!(0))
    );
    b.beat(&gateway, 3, "draining", 0).await;
    let target = &listed().await["data"][1]["targets"][0];
    assert_eq!(
        (&target["breaker"], &target["max_concurrency"]),
        (&json!("open"), &json!(2)),
        "of those that are ready"
    );
    let page = gateway
        .manage("GET", "/v1/router/providers?limit=1&after=other", &gateway.admin_key, None)
        .await
        .json();
    assert_eq!((&page["data"][0]["id"], &page["has_more"]), (&json!("nodes"), &json!(false)));

    // Clients can ask for names in the document, but not for names that only a node reports.
    let bearer = format!("Bearer {}", key.secret);
    let models =
        gateway.send("GET", "/v1/models", &[("authorization", &bearer)], None).await.json();
    let model = |id: &str| {
        models["data"].as_array().unwrap().iter().find(|model| model["id"] == id).cloned()
    };
    assert_eq!(model("nodes/qwen").map(|model| model["owned_by"].clone()), Some(json!("nodes")));
    assert_eq!((model("local").is_some(), model("nodes/unheard-of")), (true, None));
    assert_eq!(
        gateway
            .send("GET", "/v1/models/nodes%2Fqwen", &[("authorization", &bearer)], None)
            .await
            .status,
        200
    );
    let unknown = gateway.chat(&key, chat_body("nodes/unheard-of", false).as_bytes()).await;
    envelope::openai(&unknown, 404, "invalid_request_error", Some("model_not_found"));

    // A document without targets on nodes has no provider `nodes`.
    let plain = document(&other.url()).replace("nodes/qwen", "other/qwen");
    gateway.write_routing(&plain).await;
    assert_eq!(listed().await["data"].as_array().unwrap().len(), 1);
}

/// As `document`, with a recipe for each strategy, all with the same targets.
fn strategies(other: &str) -> String {
    let recipe = |name: &str, extra: &str, weights: [&str; 2]| {
        let [a, b] = weights;
        format!(
            "  {name}:\n    rules: [ {{ name: default, strategy: {name}{extra}, \
             targets: [ {{ target: nodes/qwen{a} }}, {{ target: nodes/llama{b} }}, \
             {{ target: other/m }} ] }} ]\n"
        )
    };
    let (plain, weights) = (["", ""], [", weight: 3", ", weight: 2"]);
    let recipes = [
        recipe("least_latency", "", plain),
        recipe("least_busy", "", plain),
        recipe("weighted", "", weights),
        recipe("sticky", ", key: \"string(prompt_tokens)\"", plain),
    ];
    let aliases = "aliases: { least_latency: least_latency, least_busy: least_busy, \
        weighted: weighted, sticky: sticky, plain: plain }\n";
    let plain = "  plain: { rules: [ { name: default, targets: [ { target: other/m } ] } ] }\n";
    format!(
        "providers:\n{}recipes:\n{}{plain}{aliases}",
        crate::support::documents::provider("other", other, "k"),
        recipes.concat()
    )
}

#[tokio::test]
async fn every_strategy_over_nodes_decides_again_as_it_did() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let mut gateway = crate::support::gateway::Setup::new(&strategies(&other.url())).start().await;
    let key = gateway.create_key().await;
    let served = [
        Provider::always(scripted::completion("a")).await,
        Provider::always(scripted::completion("b")).await,
    ];
    let mut nodes = Vec::new();
    for (name, provider, models) in
        [("a", &served[0], &["qwen", "unasked"][..]), ("b", &served[1], &["qwen", "llama"])]
    {
        let node = Node::enrol(&gateway, name, json!({})).await;
        node.serve(&gateway, &provider.url(), models, json!({})).await;
        nodes.push(node);
    }
    let names = ["least_latency", "least_busy", "weighted", "sticky", "plain"];
    let mut asked = 0;
    for round in 0..6_u32 {
        for name in names {
            let answer = gateway.chat(&key, &body(name, 1 + round as usize, json!({}))).await;
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
            asked += 1;
            let capture = gateway.capture(&answer.request_id()).await;
            let health = &capture["inputs"]["health"];
            let facts = |node: &Node| &health[&node.id]["node"]["models"];
            if name == "plain" {
                assert_eq!(
                    (facts(&nodes[0]), facts(&nodes[1])),
                    (&Value::Null, &Value::Null),
                    "no node is asked by it: {health}"
                );
            } else if round < 3 {
                assert_eq!(
                    (facts(&nodes[0]), facts(&nodes[1])),
                    (&json!(["qwen"]), &json!(["qwen", "llama"])),
                    "{health}"
                );
            }
            assert!(
                health["nodes/qwen"].is_object() && health["nodes/llama"].is_object(),
                "{health}"
            );
        }
        let beat = if round < 2 { "ready" } else { "draining" };
        nodes[0].beat(&gateway, 2 + u64::from(round), beat, 3).await;
        nodes[1].beat(&gateway, 2 + u64::from(round), "ready", 2 * round).await;
    }
    assert!(served[0].count() > 0 && served[1].count() > 0 && other.count() >= 6);
    for state in ["as it is", "restarted, with nobody there"] {
        let report = gateway
            .manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, None)
            .await
            .json();
        assert_eq!(report["evaluated"], asked, "{state}: {report}");
        for name in ["changed", "unroutable", "rule_changed", "plan_changed", "assumed", "inexact"]
        {
            assert_eq!(report[name], 0, "{state}: {name} of {report}");
        }
        gateway.restart().await;
    }
}
