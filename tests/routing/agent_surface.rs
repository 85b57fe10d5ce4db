//! Agents as models, the rest of it: which credentials call them, streams and reroutes in each
//! dialect, names; and what becomes of what strangers left behind.

use serde_json::{Value, json};

use crate::routing::agents::{CHAT, CLOUD_KEY, Scene, document, reviewer, speak};
use crate::support::documents::chat_body;
use crate::support::envelope;
use crate::support::gateway::{Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

/// Events as a provider writes them, each with its name.
fn events(events: &[Value]) -> String {
    events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect()
}

/// A stream of the endpoint that says `well`.
fn stream_of(target: &str) -> String {
    let usage = json!({"input_tokens": 3, "output_tokens": 2});
    match target {
        MESSAGES => events(&[
            json!({
                "type": "message_start",
                "message": {
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                    "content": [], "stop_reason": null, "usage": usage
                }
            }),
            json!({
                "type": "content_block_start", "index": 0,
                "content_block": {"type": "text", "text": ""}
            }),
            json!({
                "type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": "well"}
            }),
            json!({"type": "content_block_stop", "index": 0}),
            json!({
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                "usage": {"output_tokens": 2}
            }),
            json!({"type": "message_stop"}),
        ]),
        RESPONSES => {
            let response = |status: &str| {
                json!({
                    "id": "resp_1", "object": "response", "status": status, "output": [],
                    "usage": usage
                })
            };
            events(&[
                json!({
                    "type": "response.created", "sequence_number": 0,
                    "response": response("in_progress")
                }),
                json!({
                    "type": "response.output_text.delta", "sequence_number": 1, "item_id": "i",
                    "output_index": 0, "content_index": 0, "delta": "well"
                }),
                json!({
                    "type": "response.completed", "sequence_number": 2,
                    "response": response("completed")
                }),
            ])
        }
        _ => scripted::stream_body("well"),
    }
}

fn answer(request: &Received) -> Vec<Step> {
    if request.json()["stream"] != true {
        return speak(request);
    }
    let chunks = [stream_of(&request.target).into_bytes(), Vec::new()].map(Step::Chunk);
    [scripted::stream_head()].into_iter().chain(chunks).collect()
}

async fn scene(setup: impl FnOnce(Setup) -> Setup) -> Scene {
    let provider = Provider::start(|request, _| answer(request)).await;
    let gateway = setup(Setup::new(&document(&provider.url()))).start().await;
    let key = gateway.create_key().await;
    Scene { gateway, key, provider }
}

/// A request of each dialect for a model, and what of the agent its provider has to get.
fn requests(model: &str, stream: bool) -> [(&'static str, String, &'static str); 3] {
    [
        (CHAT, chat_body(model, stream), r#"{"role":"system","content":"Be \"brief\"."}"#),
        (
            MESSAGES,
            json!({"model": model, "max_tokens": 9,
                    "messages": [{"role": "user", "content": "Say."}], "stream": stream})
            .to_string(),
            r#""system":"Be \"brief\".""#,
        ),
        (
            RESPONSES,
            json!({"model": model, "input": "Say.", "stream": stream}).to_string(),
            r#""instructions":"Be \"brief\".""#,
        ),
    ]
}

#[tokio::test]
async fn agents_are_models_of_router_credentials_only() {
    let scene = scene(|setup| setup.env("AGENT_CLOUD_API_KEY", CLOUD_KEY)).await;
    let made = scene.gateway.manage("POST", "/v1/agents", CLOUD_KEY, Some(&reviewer())).await;
    assert_eq!((made.status, &made.json()["trusted"]), (201, &json!(true)), "{}", made.text());
    let own =
        scene.gateway.manage("POST", "/v1/api-keys", CLOUD_KEY, Some(&json!({}))).await.json();
    for (path, body, _) in requests("agent/reviewer", false) {
        let none = scene
            .gateway
            .send("POST", path, &[("content-type", "application/json")], Some(body.as_bytes()))
            .await;
        assert_eq!(none.status, 401, "{path}: {}", none.text());
        for secret in [CLOUD_KEY, own["key"].as_str().unwrap(), &scene.gateway.admin_key] {
            let key = Key { id: String::new(), secret: secret.to_owned() };
            let refused = scene.post_as(&key, path, &body).await;
            assert_eq!(refused.status, 401, "{path}: {}", refused.text());
        }
        assert_eq!(scene.provider.count(), 0);
    }
    scene.gateway.answers(401, "GET", "/v1/models/agent/reviewer", CLOUD_KEY, None).await;
    for (number, (path, body, _)) in requests("agent/reviewer", false).iter().enumerate() {
        assert_eq!(
            (scene.post(path, body).await.status, scene.provider.count()),
            (200, number + 1),
            "{path}"
        );
    }
}

#[tokio::test]
async fn streams_and_reroutes_of_each_dialect_go_through_the_agent() {
    let scene = scene(|setup| setup).await;
    let made = scene.make(&reviewer()).await;
    let mut captured = Vec::new();
    for (path, body, part) in requests("agent/reviewer", true) {
        let streamed = scene.post(path, &body).await;
        assert_eq!(
            (streamed.status, streamed.whole, streamed.text()),
            (200, true, stream_of(path)),
            "{path}"
        );
        let sent = scene.got();
        assert_eq!(
            (sent.matches(part).count(), sent.matches("\"look\"").count()),
            (1, 1),
            "{path}: {sent}"
        );
        let capture = scene.gateway.capture(&streamed.request_id()).await;
        assert_eq!(
            (&capture["request"]["body"], &capture["agent"], &capture["state"]),
            (&json!(body), &made["id"], &json!("completed"))
        );
        let rerouted = scene.reroute(&streamed.request_id(), "").await;
        assert_eq!(rerouted.status, 200, "{path}: {}", rerouted.text());
        assert_eq!(
            scene.got(),
            sent.replace(r#","stream":true"#, ""),
            "{path}: the agent's part is there once"
        );
        captured.push(streamed.request_id());
    }
    let asked = scene.provider.count();
    assert_eq!(
        scene.agents("PATCH", "/reviewer", &json!({"defaults": {"temperature": 0.5}})).await.status,
        200
    );
    for id in &captured {
        envelope::management(&scene.reroute(id, "").await, 409, "agent_gone");
    }
    assert_eq!(scene.provider.count(), asked);
}

#[tokio::test]
async fn an_agent_is_a_model_by_its_name_and_by_the_one_that_it_has_now() {
    let scene = scene(|setup| setup).await;
    let made = scene.make(&reviewer()).await;
    let id = made["id"].as_str().unwrap();
    let status = async |name: &str| {
        scene.post(CHAT, &chat_body(&format!("agent/{name}"), false)).await.status
    };
    assert_eq!((status("reviewer").await, status(id).await), (200, 404), "an id is no name");
    let renamed = scene.agents("PATCH", &format!("/{id}"), &json!({"name": "critic"})).await;
    assert_eq!((renamed.status, &renamed.json()["id"]), (200, &made["id"]), "{}", renamed.text());
    assert_eq!((status("reviewer").await, status("critic").await), (404, 200));
    assert!(scene.ids(&scene.key).await.contains(&"agent/critic".to_owned()));
    // Its former name is free, and another's.
    let other = scene.make(&json!({"name": "reviewer", "model": "auto"})).await;
    assert_ne!(other["id"], made["id"]);
    assert_eq!(scene.agents("PATCH", "/critic", &json!({"name": "reviewer"})).await.status, 409);
    assert_eq!((status("reviewer").await, status("critic").await), (200, 200));
    assert_eq!(scene.agents("DELETE", &format!("/{id}"), &json!({})).await.status, 204);
    assert_eq!((status("critic").await, status("reviewer").await), (404, 200));
}

/// What a stranger made of a public gateway whose AGENT was open is nobody's once it is enforced:
/// the key until somebody with a credential switches it on, the agent until somebody writes it, and
/// neither by the other.
#[tokio::test]
async fn what_a_stranger_left_behind_is_good_when_somebody_vouches_for_it() {
    let mut scene = scene(Setup::public).await;
    assert!(scene.gateway.log().contains("AGENT is OPEN"), "{}", scene.gateway.log());
    assert_eq!(scene.gateway.metric("rerouter_agent_open", &[]).await, 1.0);
    let written = scene.make(&reviewer()).await;
    assert_eq!(written["trusted"], false);
    let made = scene
        .gateway
        .send("POST", "/v1/api-keys", &[("content-type", "application/json")], Some(b"{}"))
        .await
        .json();
    let (id, theirs) =
        (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned());
    let model = async |scene: &Scene| {
        let mut statuses = Vec::new();
        for (path, body, _) in requests("agent/reviewer", false) {
            statuses.push(scene.post(path, &body).await.status);
        }
        statuses.push(
            scene
                .gateway
                .manage("GET", "/v1/models/agent/reviewer", &scene.key.secret, None)
                .await
                .status,
        );
        let is_listed = scene.ids(&scene.key).await.contains(&"agent/reviewer".to_owned());
        assert_eq!(is_listed, statuses[3] == 200);
        statuses
    };
    let lets_in =
        async |scene: &Scene| scene.gateway.manage("GET", "/v1/agents", &theirs, None).await.status;
    assert_eq!(model(&scene).await, [404; 4]);
    scene.gateway.set_env("AGENT_CLOUD_API_KEY", CLOUD_KEY);
    scene.gateway.restart().await;
    assert_eq!(scene.gateway.metric("rerouter_agent_open", &[]).await, 0.0);
    let path = format!("/v1/api-keys/{id}");
    let patch = async |scene: &Scene, path: &str, secret: &str, body: Value| {
        scene.gateway.manage("PATCH", path, secret, Some(&body)).await
    };
    assert_eq!((lets_in(&scene).await, model(&scene).await), (401, vec![404; 4]));
    // Not by itself, not by anything but that, and not by who only reads it.
    let read = scene.gateway.manage("GET", "/v1/agents/reviewer", CLOUD_KEY, None).await;
    assert_eq!(read.json(), written);
    envelope::agent(
        &patch(&scene, &path, &theirs, json!({"status": "active"})).await,
        401,
        "Unauthorized",
    );
    envelope::agent(
        &patch(&scene, "/v1/agents/reviewer", &theirs, json!({})).await,
        401,
        "Unauthorized",
    );
    let named = patch(&scene, &path, CLOUD_KEY, json!({"name": "a stranger's"})).await;
    assert_eq!(
        (named.status, &named.json()["status"]),
        (200, &json!("inactive")),
        "{}",
        named.text()
    );
    assert_eq!(
        (lets_in(&scene).await, model(&scene).await, scene.provider.count()),
        (401, vec![404; 4], 0)
    );
    let on = patch(&scene, &path, CLOUD_KEY, json!({"status": "active"})).await;
    assert_eq!((on.status, &on.json()["status"]), (200, &json!("active")), "{}", on.text());
    assert_eq!(
        (lets_in(&scene).await, model(&scene).await),
        (200, vec![404; 4]),
        "the key is good, the agent is what it was"
    );
    // What is written by the key from now on is written with a credential.
    let vouched = patch(&scene, "/v1/agents/reviewer", &theirs, json!({})).await;
    assert_eq!(
        (vouched.status, &vouched.json()["trusted"]),
        (200, &json!(true)),
        "{}",
        vouched.text()
    );
    assert_eq!((model(&scene).await, scene.provider.count()), (vec![200; 4], 3));
    scene.gateway.kill_9();
    scene.gateway.start_again().await;
    assert_eq!((lets_in(&scene).await, model(&scene).await), (200, vec![200; 4]));
    let audit = scene
        .gateway
        .manage("GET", "/v1/audit?action=key.update", &scene.gateway.admin_key, None)
        .await
        .json();
    assert_eq!(audit["data"][0]["target"]["id"], id, "{audit}");
}
