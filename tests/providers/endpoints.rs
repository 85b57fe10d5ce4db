//! Providers that have not all endpoints of their protocol: which one is asked instead, and what
//! only the form of responses can carry.

use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::recorded_answer::assemble;
use serde_json::{Value, json};

use crate::requests::endpoints::post;
use crate::support::client::Answer;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider};
use crate::translation::dialects::{document, events, gateway, provider, request, stream};

const TEXT: &str = "I will look.";

/// A document with one provider of these endpoints.
fn with_endpoints(protocol: &str, url: &str, endpoints: &str) -> String {
    let line = format!("protocol: {protocol}\n    endpoints: [{endpoints}]\n");
    document(&[("a", protocol, url)]).replacen(&format!("protocol: {protocol}\n"), &line, 1)
}

fn response() -> Value {
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed",
        "model": "served", "output": [
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": TEXT, "annotations": []}]},
            {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1",
                "name": "look", "arguments": "{\"city\":\"Paris\"}"},
        ],
        "usage": {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27},
    })
}

/// A provider of responses.
async fn of_responses() -> Provider {
    Provider::start(|received, _| {
        let named = |kind: &str, response: Value| {
            let data = json!({"type": kind, "response": response, "sequence_number": 0});
            format!("event: {kind}\ndata: {data}\n\n")
        };
        if received.json()["stream"] == true {
            let mut begun = response();
            begun["output"] = json!([]);
            let delta = json!({"type": "response.output_text.delta", "output_index": 0,
                "content_index": 0, "item_id": "msg_1", "delta": TEXT, "sequence_number": 1});
            stream(&[
                named("response.created", begun),
                format!("event: response.output_text.delta\ndata: {delta}\n\n"),
                named("response.completed", response()),
            ])
        } else {
            scripted::json_answer(200, &response())
        }
    })
    .await
}

fn read(endpoint: Endpoint, answer: &Answer, streams: bool) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let whole = if streams { assemble(endpoint, &answer.body) } else { answer.json() };
    whole.to_string()
}

async fn ask(gateway: &Gateway, key: &Key, endpoint: Endpoint, body: &Value) -> Answer {
    post(gateway, key, &format!("/v1{}", endpoint.path()), &[], &body.to_string()).await
}

#[tokio::test]
async fn every_client_is_served_by_a_provider_of_responses_alone() {
    let upstream = of_responses().await;
    let (gateway, key) = gateway(&with_endpoints("openai", &upstream.url(), "responses")).await;
    for endpoint in [Endpoint::ChatCompletions, Endpoint::Messages, Endpoint::Responses] {
        for streams in [false, true] {
            let answer = ask(&gateway, &key, endpoint, &request(endpoint, streams)).await;
            let said = read(endpoint, &answer, streams);
            assert!(said.contains(TEXT) && said.contains("Paris"), "{}: {said}", endpoint.as_str());
            let received = upstream.last();
            assert_eq!(received.target, "/v1/responses", "{}", endpoint.as_str());
            let body = received.json();
            assert_eq!((&body["model"], &body["max_output_tokens"]), (&json!("model"), &json!(64)));
            assert_eq!(body["stream"] == true, streams, "{body}");
            assert_eq!(body["tools"][0]["name"], "look", "{body}");
            let capture = gateway.capture(&answer.request_id()).await;
            assert_eq!(capture["usage"]["total_tokens"], 27, "{capture}");
        }
    }
    let body = json!({"model": "auto", "input": "a"});
    let refused = ask(&gateway, &key, Endpoint::Embeddings, &body).await;
    assert!(refused.status == 400 && refused.text().contains("a/model: endpoint"));
}

#[tokio::test]
async fn responses_are_chat_completions_where_the_provider_has_no_others() {
    let upstream = provider("openai").await;
    let url = upstream.url();
    let (gateway, key) = gateway(&with_endpoints("openai", &url, "chat.completions")).await;
    let endpoint = Endpoint::Responses;
    for streams in [false, true] {
        let answer = ask(&gateway, &key, endpoint, &request(endpoint, streams)).await;
        let said = read(endpoint, &answer, streams);
        assert!(said.contains(TEXT) && said.contains("Paris"), "{said}");
        assert_eq!(upstream.last().target, "/v1/chat/completions");
    }
    // A preset that is known to have no others needs no word.
    let preset =
        document(&[("a", "openai", &url)]).replacen("protocol: openai\n", "preset: deepseek\n", 1);
    gateway.write_routing(&preset).await;
    let answer = ask(&gateway, &key, endpoint, &request(endpoint, false)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(upstream.last().target, "/v1/chat/completions");
    // Both: each in its own words, and others in the first.
    let both = with_endpoints("openai", &url, "responses, chat.completions");
    gateway.write_routing(&both).await;
    for (endpoint, target) in [
        (Endpoint::ChatCompletions, "/v1/chat/completions"),
        (Endpoint::Responses, "/v1/responses"),
        (Endpoint::Messages, "/v1/responses"),
    ] {
        ask(&gateway, &key, endpoint, &request(endpoint, false)).await;
        assert_eq!(upstream.last().target, target);
    }
}

#[tokio::test]
async fn mcp_servers_go_there_and_back() {
    let (upstream, claude) = (of_responses().await, provider("anthropic").await);
    let (url, claude_url) = (upstream.url(), claude.url());
    let (gateway, key) = gateway(&with_endpoints("openai", &url, "responses")).await;
    let server = json!({"type": "url", "name": "wiki", "url": "https://mcp.example.com/mcp",
        "authorization_token": "of-the-server", "tool_configuration": {"allowed_tools": ["ask"]}});
    let mut body = request(Endpoint::Messages, false);
    body["mcp_servers"] = json!([server]);
    let answer = ask(&gateway, &key, Endpoint::Messages, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mcp = json!({"type": "mcp", "server_label": "wiki", "authorization": "of-the-server",
        "server_url": "https://mcp.example.com/mcp", "allowed_tools": ["ask"],
        "require_approval": "never"});
    assert_eq!(upstream.last().json()["tools"][1], mcp);
    let capture = gateway.capture(&answer.request_id()).await;
    assert!(!capture.to_string().contains("of-the-server"), "{capture}");

    gateway.write_routing(&document(&[("c", "anthropic", &claude_url)])).await;
    let mut body = request(Endpoint::Responses, false);
    body["tools"].as_array_mut().unwrap().push(mcp.clone());
    let answer = ask(&gateway, &key, Endpoint::Responses, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let received = claude.last();
    assert_eq!(received.header("anthropic-beta").as_deref(), Some("mcp-client-2025-11-20"));
    let sent = received.json();
    let toolset = json!({"type": "mcp_toolset", "mcp_server_name": "wiki",
        "default_config": {"enabled": false}, "configs": {"ask": {"enabled": true}}});
    assert_eq!((sent["tools"].as_array().unwrap().len(), &sent["tools"][1]), (2, &toolset));
    let server = json!({"type": "url", "name": "wiki", "url": "https://mcp.example.com/mcp",
        "authorization_token": "of-the-server"});
    assert_eq!(sent["mcp_servers"], json!([server]));
    // Without it no beta is asked for.
    ask(&gateway, &key, Endpoint::Responses, &request(Endpoint::Responses, false)).await;
    assert_eq!(claude.last().header("anthropic-beta"), None);
    // A client that wants to approve of calls has to be asked.
    body["tools"][1].as_object_mut().unwrap().remove("require_approval");
    let refused = ask(&gateway, &key, Endpoint::Responses, &body).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("tools.require_approval"), "{}", refused.text());
}

#[tokio::test]
async fn a_tool_that_takes_free_text_is_one_for_its_client_again() {
    let patch = "*** Begin \"Patch\"\n+é😀";
    let input = json!({"input": patch});
    let upstream = Provider::start(move |received, _| {
        let call = json!({"type": "tool_use", "id": "toolu_1", "name": "apply_patch"});
        if received.json()["stream"] == true {
            let mut block = call;
            block["input"] = json!({});
            let named = |value: Value| {
                format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
            };
            let mut all = events("anthropic");
            all.truncate(1);
            all.push(named(json!({"type": "content_block_start", "index": 0,
                "content_block": block})));
            let text = input.to_string();
            let letters: Vec<char> = text.chars().collect();
            for piece in letters.chunks(3) {
                let piece: String = piece.iter().collect();
                all.push(named(json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": piece}})));
            }
            all.push(named(json!({"type": "content_block_stop", "index": 0})));
            all.extend(events("anthropic").split_off(7));
            stream(&all)
        } else {
            let mut call = call;
            call["input"] = input.clone();
            scripted::json_answer(
                200,
                &json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "model": "served",
                    "content": [call], "stop_reason": "tool_use", "stop_sequence": null,
                    "usage": {"input_tokens": 20, "output_tokens": 7},
                }),
            )
        }
    })
    .await;
    let (gateway, key) = gateway(&document(&[("a", "anthropic", &upstream.url())])).await;
    for streams in [false, true] {
        let mut body = json!({"model": "auto", "stream": streams, "tools": [
            {"type": "custom", "name": "apply_patch", "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}},
        ]});
        body["input"] = json!([
            {"role": "user", "content": "Edit it."},
            {"type": "custom_tool_call", "call_id": "c0", "name": "apply_patch", "input": "old"},
            {"type": "custom_tool_call_output", "call_id": "c0", "output": "done"},
        ]);
        let endpoint = Endpoint::Responses;
        let answer = ask(&gateway, &key, endpoint, &body).await;
        assert_eq!(answer.header("x-rerouter-dropped"), None, "{}", answer.text());
        let said: Value = serde_json::from_str(&read(endpoint, &answer, streams)).unwrap();
        let item = &said["output"][0];
        assert_eq!(
            (&item["type"], &item["name"]),
            (&json!("custom_tool_call"), &json!("apply_patch"))
        );
        assert_eq!((&item["input"], &item["call_id"]), (&json!(patch), &json!("toolu_1")));
        if streams {
            let text = answer.text();
            let deltas: String = text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .map(|data| serde_json::from_str::<Value>(data).unwrap())
                .filter(|event| event["type"] == "response.custom_tool_call_input.delta")
                .map(|event| event["delta"].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(deltas, patch, "{text}");
        }
        let sent = upstream.last().json();
        assert_eq!(sent["tools"][0]["input_schema"]["required"], json!(["input"]), "{sent}");
        assert!(
            sent["tools"][0]["description"].as_str().unwrap().ends_with("start: /a/"),
            "{sent}"
        );
        assert_eq!(sent["messages"][1]["content"][0]["input"], json!({"input": "old"}), "{sent}");

        let mut body = json!({"model": "auto", "stream": streams,
            "messages": [{"role": "user", "content": "Edit it."}],
            "tools": [{"type": "custom", "custom": {"name": "apply_patch"}}]});
        body["tool_choice"] = json!({"type": "custom", "custom": {"name": "apply_patch"}});
        let answer = ask(&gateway, &key, Endpoint::ChatCompletions, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        if streams {
            let pieces: String = answer
                .text()
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
                .filter_map(|chunk| {
                    let call = &chunk["choices"][0]["delta"]["tool_calls"][0];
                    Some(call["custom"]["input"].as_str()?.to_owned())
                })
                .collect();
            assert_eq!(pieces, patch, "{}", answer.text());
        } else {
            let call = &answer.json()["choices"][0]["message"]["tool_calls"][0];
            let custom = json!({"name": "apply_patch", "input": patch});
            assert_eq!((&call["type"], &call["custom"]), (&json!("custom"), &custom));
        }
        let choice = &upstream.last().json()["tool_choice"];
        assert_eq!(choice, &json!({"type": "tool", "name": "apply_patch"}));
    }
}

#[tokio::test]
async fn endpoints_are_checked_with_the_document() {
    let gateway =
        Gateway::start("providers: { demo: { protocol: mock } }\nrecipes: {}\naliases: {}\n").await;
    for (settings, told) in [
        (
            "protocol: anthropic, base_url: 'https://x', endpoints: [responses]",
            "`anthropic` has no such endpoint",
        ),
        (
            "protocol: gemini, base_url: 'https://x', endpoints: [messages]",
            "`gemini` has no such endpoint",
        ),
        (
            "protocol: openai, base_url: 'https://x', endpoints: []",
            "must have at least one endpoint",
        ),
        (
            "protocol: openai, base_url: 'https://x', endpoints: [responses, responses]",
            "is a duplicate",
        ),
        ("protocol: openai, base_url: 'https://x', endpoints: [response]", "must be one of"),
    ] {
        let text = format!("providers: {{ p: {{ {settings} }} }}\nrecipes: {{}}\naliases: {{}}\n");
        let bearer = format!("Bearer {}", gateway.admin_key);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        let target = "/v1/router/config/validate";
        let answer = gateway.send("POST", target, &headers, Some(text.as_bytes())).await;
        assert!(answer.text().contains(told), "{settings}: {}", answer.text());
    }
}
