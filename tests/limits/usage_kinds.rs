//! Kinds of usage in every dialect, whole and streamed: what captures, sums, metrics and
//! evaluations say of them.

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};

/// The usage object of each dialect, by the end of the path. All say the same: a prompt of 1,000
/// tokens, 400 of them cached and 300 written to the cache, 50 tokens of the answer, and 7 of
/// something that nobody knows.
const USAGES: [(&str, &str); 4] = [
    (
        "/chat/completions",
        r#"{"prompt_tokens":1000,"completion_tokens":50,"total_tokens":1050,"puzzles":7,
        "prompt_tokens_details":{"cached_tokens":400,"cache_write_tokens":300}}"#,
    ),
    (
        "/messages",
        r#"{"input_tokens":300,"cache_read_input_tokens":400,"cache_creation_input_tokens":300,
        "cache_creation":{"ephemeral_5m_input_tokens":300,"ephemeral_1h_input_tokens":0},
        "output_tokens":50,"puzzles":7}"#,
    ),
    (
        "/responses",
        r#"{"input_tokens":1000,"output_tokens":50,"total_tokens":1050,"puzzles":7,
        "input_tokens_details":{"cached_tokens":400,"cache_write_tokens":300}}"#,
    ),
    (
        "Content",
        r#"{"promptTokenCount":1000,"candidatesTokenCount":50,"totalTokenCount":1050,"puzzles":7,
        "cachedContentTokenCount":400}"#,
    ),
];

fn events(all: &[Value]) -> Vec<Step> {
    let events = all.iter().map(|event| {
        let name = event["type"].as_str().map(|name| format!("event: {name}\n"));
        Step::Chunk(format!("{}data: {event}\n\n", name.unwrap_or_default()).into_bytes())
    });
    std::iter::once(scripted::stream_head()).chain(events).chain([Step::Chunk(vec![])]).collect()
}

/// The answer of a provider of each dialect. It bills at the tier that `user` names, if any.
fn answer(received: &Received) -> Vec<Step> {
    let path = received.target.split('?').next().unwrap();
    let (end, usage) = USAGES.iter().find(|(end, _)| path.ends_with(end)).unwrap();
    let (usage, asked): (Value, Value) = (serde_json::from_str(usage).unwrap(), received.json());
    let (tier, is_stream) = (&asked["user"], asked["stream"] == true);
    match (*end, is_stream) {
        ("/chat/completions", false) => {
            let mut body = scripted::completion_body("well");
            (body["usage"], body["service_tier"]) = (usage, tier.clone());
            scripted::json_answer(200, &body)
        }
        ("/chat/completions", true) => {
            let chunk = |choices: Value, usage: Value| {
                json!({
                    "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                    "service_tier": tier, "choices": choices, "usage": usage,
                })
            };
            let said = json!([{"index": 0, "delta": {"content": "well"}, "finish_reason": "stop"}]);
            events(&[chunk(said, Value::Null), chunk(json!([]), usage)])
        }
        ("/messages", is_stream) => {
            let mut body = json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "well"}], "stop_reason": "end_turn",
                "usage": usage,
            });
            if !is_stream {
                return scripted::json_answer(200, &body);
            }
            body["content"] = json!([]);
            let text = json!({"type": "text_delta", "text": "well"});
            events(&[
                json!({"type": "message_start", "message": body}),
                json!({
                    "type": "content_block_start", "index": 0,
                    "content_block": {"type": "text", "text": ""},
                }),
                json!({"type": "content_block_delta", "index": 0, "delta": text}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({
                    "type": "message_delta", "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": 50},
                }),
                json!({"type": "message_stop"}),
            ])
        }
        ("/responses", is_stream) => {
            let body = json!({
                "id": "resp_1", "object": "response", "created_at": 1, "status": "completed",
                "model": "m", "output": [{
                    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": "well", "annotations": []}],
                }],
                "service_tier": tier, "usage": usage,
            });
            match is_stream {
                false => scripted::json_answer(200, &body),
                true => events(&[json!({"type": "response.completed", "response": body})]),
            }
        }
        _ => {
            let body = json!({
                "candidates": [{
                    "index": 0, "finishReason": "STOP",
                    "content": {"role": "model", "parts": [{"text": "well"}]},
                }],
                "usageMetadata": usage,
            });
            match path.ends_with("streamGenerateContent") {
                false => scripted::json_answer(200, &body),
                true => events(&[body]),
            }
        }
    }
}

/// A provider of each dialect with a model at these prices, and one with a cold cache.
fn document(provider: &Provider) -> String {
    let root = format!("http://{}", provider.address());
    let prices = "input_per_mtok: 10, output_per_mtok: 20, cached_input_per_mtok: 1, \
        cache_write_per_mtok: 12.5, tiers: [ { above: 5000, input_per_mtok: 30 } ], \
        multipliers: { service_tier: { flex: 0.5, priority: 2 } }";
    format!(
        "prices: none\nproviders:\n  \
         openai: {{ protocol: openai, base_url: {root}/v1 }}\n  \
         anthropic: {{ protocol: anthropic, base_url: {root} }}\n  \
         gemini: {{ protocol: gemini, base_url: {root}/v1beta, api_key: k }}\n\
         models:\n  openai/m: {{ {prices} }}\n  anthropic/m: {{ {prices} }}\n  \
         gemini/m: {{ {prices} }}\n  openai/other: {{ {prices} }}\n\
         recipes: {{ r: {{ rules: [ {{ name: x, targets: [ {{ target: openai/m }} ] }} ] }} }}\n\
         aliases: {{ auto: r }}\n"
    )
}

async fn send(gateway: &Gateway, key: &Key, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = body.to_string();
    gateway.send("POST", path, &headers, Some(body.as_bytes())).await
}

#[tokio::test]
async fn unknown_usage_is_kept_and_counted_and_every_kind_has_its_price() {
    let provider = Provider::start(|received, _| answer(received)).await;
    let gateway = Setup::new(&document(&provider)).start().await;
    let key = gateway.create_key().await;
    let messages = json!([{"role": "user", "content": "hello"}]);
    let chat = |model: &str| json!({"model": model, "messages": messages, "max_tokens": 99});
    let ways = [
        ("/v1/chat/completions", chat("openai/m")),
        ("/v1/messages", chat("anthropic/m")),
        ("/v1/responses", json!({"model": "openai/m", "input": "hello"})),
        ("/v1/chat/completions", chat("gemini/m")),
        // Translated.
        ("/v1/chat/completions", chat("anthropic/m")),
        ("/v1/messages", chat("openai/m")),
    ];
    let mut billed = 0.0;
    for (path, body) in &ways {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = stream.into();
            if stream && *path == "/v1/chat/completions" {
                body["stream_options"] = json!({"include_usage": true});
            }
            let answered = send(&gateway, &key, path, &body).await;
            assert_eq!(answered.status, 200, "{path} {body}: {}", answered.text());
            let capture = gateway.capture(&answered.request_id()).await;
            let usage = &capture["usage"];
            assert_eq!(usage["unknown"], json!({"puzzles": 7}), "{path} {body}: {capture:#}");
            let written = if body["model"] == "gemini/m" { 0.0 } else { 300.0 };
            let cost = (600.0 - written) * 10.0 + 400.0 + written * 12.5 + 50.0 * 20.0;
            assert_eq!(capture["cost_usd"], json!(cost / 1e6), "{path} {body}: {usage}");
            assert_eq!(usage["cache_write_tokens"].as_f64().unwrap_or(0.0), written);
            billed += cost;
        }
    }
    let asked = gateway.manage("GET", "/v1/router/usage", &gateway.admin_key, None).await.json();
    let sums = &asked["data"][0];
    let count = 2 * ways.len() as u64;
    for (name, sum) in [
        ("requests", count),
        ("unknown_usage", count),
        ("unpriced_requests", 0),
        ("prompt_tokens", 1_000 * count),
        ("cached_tokens", 400 * count),
        ("cache_write_tokens", 300 * (count - 2)),
    ] {
        assert_eq!(sums[name], json!(sum), "{name}: {sums}");
    }
    assert_eq!(sums["cost_usd"], json!(billed / 1e6));
    let unknown = gateway.metric("rerouter_usage_unknown_total", &[]).await;
    assert_eq!(unknown, count as f64);
    let written = gateway.metric("rerouter_tokens_total", &["kind=\"cache_write\""]).await;
    assert_eq!(written, (300 * (count - 2)) as f64);

    // The live document costs what it cost. Another target has cached nothing, but writes to its
    // cache what the first one read.
    let evaluate = async |document: Option<&str>| {
        let asked = json!({"document": document});
        let path = "/v1/router/replay/evaluate";
        gateway.manage("POST", path, &gateway.admin_key, Some(&asked)).await.json()
    };
    let report = evaluate(None).await;
    for side in ["before", "after", "after_warm", "after_cold"] {
        assert_eq!(report["cost"][side], sums["cost_usd"], "{report:#}");
    }
    assert_eq!(report["cost"]["unknown_usage"], json!(count), "{report:#}");
}

#[tokio::test]
async fn the_tier_that_the_answer_names_multiplies_its_price() {
    let provider = Provider::start(|received, _| answer(received)).await;
    let gateway = Setup::new(&document(&provider)).start().await;
    let key = gateway.create_key().await;
    let rich = gateway.limited_key(json!({"budget": {"usd": 5, "per": "day"}})).await;
    let cost = async |path: &str, body: Value| {
        let answered = send(&gateway, &key, path, &body).await;
        assert_eq!(answered.status, 200, "{}", answered.text());
        let capture = gateway.capture(&answered.request_id()).await;
        let cost = capture["cost_usd"].as_f64().unwrap();
        ((cost * 1e9).round() as u64, capture["usage"]["modes"].clone())
    };
    let usual = 8_150_000;
    let chat = |asked: Value, named: Value| {
        let mut body: Value = serde_json::from_str(&chat_body("openai/m", false)).unwrap();
        (body["service_tier"], body["user"]) = (asked, named);
        body
    };
    for (asked, named, factor, mode) in [
        // Twice the cost, so that half of it is whole.
        (json!("priority"), json!("priority"), 4, json!({"service_tier": "priority"})),
        (json!("priority"), json!("default"), 2, Value::Null),
        (json!("auto"), json!("flex"), 1, json!({"service_tier": "flex"})),
        (json!("flex"), Value::Null, 1, json!({"service_tier": "flex"})),
        (json!("deluxe"), json!("deluxe"), 2, json!({"service_tier": "deluxe"})),
    ] {
        let body = chat(asked.clone(), named.clone());
        let input = json!({"model": "openai/m", "input": "x", "user": named, "stream": true,
            "service_tier": asked});
        for (path, body) in [("/v1/chat/completions", body), ("/v1/responses", input)] {
            let found = cost(path, body).await;
            assert_eq!(found, (usual * factor / 2, mode.clone()), "{path} {asked} {named}");
        }
    }
    // A budget cannot pay what has no known price.
    for (asked, status) in [("priority", 200), ("auto", 200), ("default", 200), ("deluxe", 400)] {
        let body = chat(json!(asked), Value::Null).to_string();
        let answered = gateway.chat(&rich, body.as_bytes()).await;
        assert_eq!(answered.status, status, "{asked}: {}", answered.text());
        if status == 400 {
            let said = answered.text();
            assert!(said.contains("service_tier") && said.contains("deluxe"), "{said}");
        }
    }
}
