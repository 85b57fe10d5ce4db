//! Credentials of a request that its provider repeats: the client gets them, and no capture
//! contains them.

use serde_json::{Value, json};

use crate::captures::on_disk::files;
use crate::support::client::find;
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider, Step};

/// The gateway's key for the provider.
const UPSTREAM: &str = "sk-canary-b1946ac92492d2347c6235b4d2611184";
const SECRET: &str = "canary-mcp-3c59dc048e8850243be8079a5c74d079";

fn event(name: &str, data: &Value) -> Step {
    Step::Chunk(format!("event: {name}\ndata: {data}\n\n").into_bytes())
}

/// Answers like the Responses API, which repeats the tools of its request. Refuses on demand, and
/// repeats the request.
fn echo(request: &scripted::Received) -> Vec<Step> {
    let asked = request.json();
    let response = |status: &str| {
        json!({"id": "resp_1", "object": "response", "status": status, "model": "m",
                "tools": asked["tools"],
        "output": [{"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": format!("it is {SECRET}, I think")}]}]})
    };
    if asked["input"] == "refuse" {
        let message = format!("Unknown parameter in {}", String::from_utf8_lossy(&request.body));
        return scripted::json_answer(
            400,
            &json!({
                "error": {
                    "message": message, "type": "invalid_request_error", "param": null, "code": null
                }
            }),
        );
    }
    if asked["stream"] != true {
        return scripted::json_answer(200, &response("completed"));
    }
    let mut steps = vec![
        scripted::stream_head(),
        event(
            "response.created",
            &json!({"type": "response.created", "response": response("in_progress")}),
        ),
    ];
    for piece in ["it is ", &SECRET[..12], &SECRET[12..], ", I think"] {
        steps.push(event(
            "response.output_text.delta",
            &json!({
                "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0,
                "content_index": 0, "delta": piece
            }),
        ));
    }
    steps.push(event(
        "response.completed",
        &json!({"type": "response.completed", "response": response("completed")}),
    ));
    steps.push(Step::Chunk(Vec::new()));
    steps
}

#[tokio::test]
async fn what_a_provider_says_again_is_in_no_capture() {
    let provider = Provider::start(|request, _| echo(request)).await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let mut ids = Vec::new();
    for (stream, input, status) in
        [(false, "hello", 200), (true, "hello", 200), (false, "refuse", 400)]
    {
        let tool = json!({
            "type": "mcp", "server_label": "s", "server_url": "https://mcp.example",
            "authorization": SECRET, "headers": {"x_api_key": SECRET}
        });
        let body =
            json!({"model": "auto", "stream": stream, "input": input, "tools": [tool]}).to_string();
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let answer = gateway.send("POST", "/v1/responses", &headers, Some(body.as_bytes())).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(
            answer.text().contains(&SECRET[12..]),
            "the client gets what its provider said: {}",
            answer.text()
        );
        let capture = gateway.capture(&answer.request_id()).await;
        let shown = capture.to_string();
        assert!(!shown.contains("canary-mcp") && !shown.contains(&SECRET[12..]), "{shown}");
        assert_eq!(
            (&capture["redacted"], &capture["not_replayable"]),
            (&json!(true), &json!("redacted"))
        );
        let kept = if stream {
            capture["response"]["assembled"].to_string()
        } else {
            capture["response"]["body"].to_string()
        };
        assert!(
            kept.contains(if status == 200 {
                "it is [redacted], I think"
            } else {
                "invalid_request_error"
            }),
            "the rest is kept: {shown}"
        );
        ids.push(answer.request_id());
    }
    let url = format!("http://{}", gateway.host());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", key.secret.as_str())];
    let exported =
        crate::captures::replay_cli::run(gateway.dir(), &["export"], &environment).await.well();
    assert!(
        ids.iter().all(|id| exported.contains(id)) && !exported.contains("canary-mcp"),
        "{exported}"
    );
    gateway.restart().await;
    for path in files(&gateway.dir().join("data")) {
        assert!(
            find(&std::fs::read(&path).unwrap(), b"canary-mcp").is_none(),
            "{}",
            path.display()
        );
    }
}

/// Repeats the credential of the call: escaped, and in a stream split over two events.
fn leak(request: &scripted::Received) -> Vec<Step> {
    let escaped = UPSTREAM.replacen('s', "\\u0073", 1);
    if request.json()["stream"] != true {
        let body = scripted::completion_body("it is KEY, I think").to_string();
        let json = [("content-type", "application/json")];
        return scripted::answer(200, &json, body.replace("KEY", &escaped).as_bytes());
    }
    let (first, second) = UPSTREAM.split_at(12);
    let mut steps = vec![scripted::stream_head()];
    for text in [first, second, "KEY"] {
        let event = scripted::content_event(text).replace("KEY", &escaped);
        steps.push(Step::Chunk(event.into_bytes()));
    }
    steps.push(Step::Chunk(scripted::last_events().into_bytes()));
    steps.push(Step::Chunk(Vec::new()));
    steps
}

#[tokio::test]
async fn what_a_provider_says_of_our_credential_is_masked_where_it_is_decoded_or_joined() {
    let provider = Provider::start(|request, _| leak(request)).await;
    let gateway = Setup::new(&in_order(&[("a", &provider.url())], ""))
        .env("UPSTREAM_API_KEY", UPSTREAM)
        .start()
        .await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let stars = "*".repeat(UPSTREAM.len());
    let mut ids = Vec::new();
    for stream in [false, true] {
        for path in ["/v1/messages", "/v1/responses", "/v1/chat/completions"] {
            let body = match path.ends_with("responses") {
                true => json!({"model": "auto", "stream": stream, "input": "Say it."}),
                false => json!({
                    "model": "auto", "stream": stream, "max_tokens": 99,
                    "messages": [{"role": "user", "content": "Say it."}],
                }),
            };
            let answer =
                gateway.send("POST", path, &headers, Some(body.to_string().as_bytes())).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            assert!(!answer.text().contains(UPSTREAM), "{path}: {}", answer.text());
            let id = answer.request_id();
            gateway.capture(&id).await;
            ids.push(id);
        }
    }
    let mut masked = 0;
    for id in &ids {
        for (method, path) in [
            ("GET", format!("{id}?with=conversation")),
            ("GET", format!("{id}/compare/{}", ids[0])),
            ("POST", format!("{id}/reroute")),
        ] {
            let path = format!("/v1/router/replay/{path}");
            let told = gateway.manage(method, &path, &gateway.admin_key, None).await;
            assert_eq!(told.status, 200, "{path}: {}", told.text());
            assert!(!told.text().contains(UPSTREAM), "{path}: {}", told.text());
            masked += usize::from(told.text().contains(&stars));
        }
    }
    // Bytes that are shown as they came are not decoded, so the credential in them stays escaped.
    assert!(masked >= 3 * ids.len() - 2, "{masked}: the others decode it, or join it");
    let url = format!("http://{}", gateway.host());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", &gateway.admin_key)];
    let exported =
        crate::captures::replay_cli::run(gateway.dir(), &["export"], &environment).await.well();
    assert!(exported.contains(&ids[5]) && !exported.contains(UPSTREAM), "{exported}");
}
