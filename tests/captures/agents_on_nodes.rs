//! Captures of requests to nodes and agents are decided again with the same result, even after the
//! nodes and agents are gone.

use serde_json::{Value, json};

use crate::support::documents::{chat_body, provider};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::Node;
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// A document with targets on nodes before a provider, targets only on nodes, and a rule for an
/// agent.
fn document(other: &str) -> String {
    format!(
        "providers:\n{}models:\n  nodes/qwen: {{ input_per_mtok: 1.0, output_per_mtok: 1.0 }}\n\
         recipes:\n  main:\n    rules:\n      \
         - {{ name: wordy, when: \"agent == 'wordy' && prompt_tokens > 1000\", \
         targets: [ {{ target: other/long }} ] }}\n      \
         - {{ name: default, targets: [ {{ target: nodes/qwen }}, {{ target: other/m }} ] }}\n  \
         only:\n    rules: [ {{ name: default, targets: [ {{ target: nodes/qwen }} ] }} ]\n\
         aliases: {{ auto: main, local: only }}\n",
        provider("other", other, "k")
    )
}

struct Scene {
    gateway: Gateway,
    key: Key,
}

impl Scene {
    /// Sends a chat that must be answered with `status`. Returns the id of its capture.
    async fn ask(&self, model: &str, stream: bool, status: u16) -> String {
        let answer = self.gateway.chat(&self.key, chat_body(model, stream).as_bytes()).await;
        assert_eq!(answer.status, status, "{model}: {}", answer.text());
        answer.request_id()
    }

    async fn agent(&self, method: &str, path: &str, body: Value) {
        let headers = [("content-type", "application/json")];
        let answer = self
            .gateway
            .send(method, &format!("/v1/agents{path}"), &headers, Some(body.to_string().as_bytes()))
            .await;
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text());
    }

    async fn evaluate(&self, body: Value) -> Value {
        let told = self
            .gateway
            .answers(
                200,
                "POST",
                "/v1/router/replay/evaluate",
                &self.gateway.admin_key,
                Some(&body),
            )
            .await;
        told.json()
    }
}

#[tokio::test]
async fn what_nodes_served_to_agents_is_decided_again_as_it_was() {
    let other = Provider::always(scripted::completion("elsewhere")).await;
    let served = [(); 2].map(|()| {
        Provider::start(|request, _| {
            if request.json()["stream"] == true {
                scripted::stream("near")
            } else {
                scripted::completion("near")
            }
        })
    });
    let [first, second] = served;
    let served = [first.await, second.await];
    let gateway = Setup::new(&document(&other.url())).env("ANY_API_KEY", "k").start().await;
    let key = gateway.create_key().await;
    let nodes =
        [Node::enrol(&gateway, "a", json!({})).await, Node::enrol(&gateway, "b", json!({})).await];
    let scene = Scene { gateway, key };
    for (name, model, words) in
        [("brief", "auto", 1), ("wordy", "auto", 4000), ("near", "local", 1)]
    {
        scene
            .agent(
                "POST",
                "",
                json!({"name": name, "model": model, "instructions": "word ".repeat(words)}),
            )
            .await;
    }
    // No node serves yet. Recipes with only nodes find no target, and other requests go to the
    // provider.
    for model in ["local", "agent/near"] {
        scene.ask(model, false, 503).await;
    }
    for model in ["auto", "agent/brief"] {
        scene.ask(model, false, 200).await;
    }
    for (node, server) in nodes.iter().zip(&served) {
        node.serve(&scene.gateway, &server.url(), &["qwen"], json!({"max_concurrency": 4})).await;
    }
    nodes[0].beat(&scene.gateway, 2, "ready", 2).await;
    for _ in 0..3 {
        for (model, stream) in [
            ("auto", false),
            ("local", true),
            ("agent/brief", true),
            ("agent/near", false),
            ("agent/wordy", false),
        ] {
            scene.ask(model, stream, 200).await;
        }
    }
    let near = scene.ask("agent/near", true, 200).await;
    // Refused before any decision.
    scene.ask("agent/none", false, 404).await;
    let capture = scene.gateway.capture(&near).await;
    assert_eq!(
        (&capture["inputs"]["request"]["model"], &capture["inputs"]["request"]["name"]),
        (&json!("agent/near"), &json!("local"))
    );
    assert_eq!(
        (&capture["decision"]["recipe"], &capture["decision"]["served"]["node"]),
        (&json!("only"), &json!(nodes[1].id))
    );
    let path = format!("/v1/router/replay/{near}/reroute");
    scene.gateway.answers(200, "POST", &path, &scene.key.secret, None).await;

    // 2 were decided for the provider and 2 for no target before the nodes came, then 15 and 1.
    // Requests without a target or agent are decided again, to the same end.
    let (decided, near, far, refused) = (21, 13, 5, 3);
    let whole = until("the captures", async || {
        let told = scene.evaluate(json!({})).await;
        (told["evaluated"] == decided
            && told["skipped"]["replays"] == 1
            && told["unroutable_before"] == refused)
            .then_some(told)
    })
    .await;
    for name in ["changed", "rule_changed", "plan_changed", "unroutable", "inexact", "assumed"] {
        assert_eq!(whole[name], 0, "{name} of {whole}");
    }
    assert_eq!(
        (&whole["unroutable_before"], &whole["by_change"]),
        (&json!(refused), &json!([])),
        "{whole}"
    );
    let share = |target: &str| {
        whole["shift"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["target"] == target)
            .unwrap_or(&Value::Null)
            .clone()
    };
    let row = |target: &str, count: u64| json!({"target": target, "before": count, "after": count});
    assert_eq!(
        (share("nodes/qwen"), share("other/long"), share("other/m")),
        (row("nodes/qwen", near), row("other/long", 3), row("other/m", far - 3))
    );

    decided_again(scene, &nodes, &whole, &document(&other.url()), near).await;
}

/// The same captures give the same report, whatever happened to nodes and agents since. Under
/// another document, the changes are those counted by hand.
async fn decided_again(mut scene: Scene, nodes: &[Node; 2], whole: &Value, text: &str, near: u64) {
    for node in nodes {
        assert_eq!(node.call(&scene.gateway, "deregister", &json!({})).await.status, 204);
    }
    assert_eq!(scene.evaluate(json!({})).await, *whole, "the nodes have left");
    scene.gateway.restart().await;
    assert_eq!(scene.evaluate(json!({})).await, *whole, "restarted");
    for name in ["brief", "near", "wordy"] {
        scene
            .agent(
                "PATCH",
                &format!("/{name}"),
                json!({"model": "auto", "instructions": "Something else."}),
            )
            .await;
    }
    assert_eq!(scene.evaluate(json!({})).await, *whole, "the agents are others");
    for name in ["brief", "near", "wordy"] {
        scene.agent("DELETE", &format!("/{name}"), json!({})).await;
    }
    for node in nodes {
        scene
            .gateway
            .answers(
                204,
                "DELETE",
                &format!("/v1/nodes/{}", node.id),
                &scene.gateway.admin_key,
                None,
            )
            .await;
    }
    assert_eq!(scene.evaluate(json!({})).await, *whole, "agents and nodes are deleted");
    let given = text.replace("\"k\"", "\"${ANY_API_KEY}\"");
    let same = scene.evaluate(json!({ "document": given })).await;
    for name in [
        "evaluated",
        "changed",
        "rule_changed",
        "plan_changed",
        "unroutable",
        "unroutable_before",
        "inexact",
        "assumed",
        "skipped",
        "shift",
    ] {
        assert_eq!(same[name], whole[name], "{name} of the same document, given");
    }
    // Without nodes, the 13 requests that they served go to the provider (6) or find no target (7).
    let without =
        given.replace("{ target: nodes/qwen }, { target: other/m }", "{ target: other/m }");
    let told = scene.evaluate(json!({ "document": without })).await;
    assert_eq!(
        (&told["evaluated"], &told["changed"], &told["unroutable"], &told["inexact"]),
        (&json!(21), &json!(6), &json!(0), &json!(0)),
        "{told}"
    );
    let moved = &told["by_change"][0];
    assert_eq!(
        (&moved["from"], &moved["to"], &moved["count"]),
        (&json!("nodes/qwen"), &json!("other/m"), &json!(6)),
        "{told}"
    );
    assert_eq!(near, 13);
    assert_eq!(scene.evaluate(json!({})).await, *whole);
}
