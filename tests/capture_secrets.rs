//! Credentials of a request that its provider says again: the client gets them, and no capture
//! holds them.

use serde_json::{Value, json};

use crate::captures::files;
use crate::support::client::find;
use crate::support::documents::in_order;
use crate::support::gateway::Gateway;
use crate::support::provider::{self as scripted, Provider, Step};

const SECRET: &str = "canary-mcp-3c59dc048e8850243be8079a5c74d079";

fn event(name: &str, data: &Value) -> Step {
    Step::Chunk(format!("event: {name}\ndata: {data}\n\n").into_bytes())
}

/// Answers as the Responses API does, which says the tools of its request; refuses where it is told
/// to, in the request's words.
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
    let exported = crate::replay_cli::run(gateway.dir(), &["export"], &environment).await.well();
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
