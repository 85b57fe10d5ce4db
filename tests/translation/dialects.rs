//! Each client dialect through providers of other dialects, over real sockets: requests, answers
//! and streams.

use std::collections::HashMap;
use std::sync::Arc;

use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::neutral::AnswerContext;
use rerouter::internals::dialect::recorded_answer::assemble;
use serde_json::{Value, json};

use crate::requests::endpoints::post;
use crate::support::client::Answer;
use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};
use crate::support::recorded::{self, Exchange};

pub const UPSTREAM_KEY: &str = "sk-upstream-of-the-operator";
const ASKED: &str = "How is the weather in Paris?";
pub const TEXT: &str = "I will look.";

/// Providers in the order in which they are tried: name, protocol, URL.
pub fn document(providers: &[(&str, &str, &str)]) -> String {
    let urls: Vec<(&str, &str)> = providers.iter().map(|(name, _, url)| (*name, *url)).collect();
    let models: String = providers
        .iter()
        .map(|(name, ..)| {
            format!("  {name}/model: {{ input_per_mtok: 1.0, output_per_mtok: 10.0 }}\n")
        })
        .collect();
    let plain = in_order(&urls, &format!("models:\n{models}"));
    providers.iter().fold(plain, |text, (name, protocol, _)| {
        let of = |word: &str| format!("  {name}:\n    protocol: {word}\n");
        text.replace(&of("openai"), &of(protocol))
    })
}

pub async fn gateway(document: &str) -> (Gateway, Key) {
    let gateway = Setup::new(document).env("UPSTREAM_API_KEY", UPSTREAM_KEY).start().await;
    let key = gateway.create_key().await;
    (gateway, key)
}

fn path(endpoint: Endpoint) -> String {
    format!("/v1{}", endpoint.path())
}

/// A request with a system prompt, a question and a tool.
pub fn request(endpoint: Endpoint, stream: bool) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let mut body = match endpoint {
        Endpoint::ChatCompletions => json!({
            "messages": [
                {"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED},
            ],
            "tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}],
            "max_completion_tokens": 64, "seed": 7,
        }),
        Endpoint::Messages => json!({
            "system": "Be brief.", "messages": [{"role": "user", "content": ASKED}],
            "tools": [{"name": "look", "input_schema": schema}], "max_tokens": 64, "top_k": 5,
        }),
        _ => json!({
            "instructions": "Be brief.", "input": ASKED,
            "tools": [{"type": "function", "name": "look", "parameters": schema}],
            "max_output_tokens": 64,
        }),
    };
    body["model"] = "auto".into();
    body["stream"] = stream.into();
    if stream && endpoint == Endpoint::ChatCompletions {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// An answer of each protocol, and of OpenAI's other API, that says [`TEXT`] and calls `look`.
pub fn answer(protocol: &str) -> Value {
    match protocol {
        "responses" => json!({
            "id": "resp_1", "object": "response", "created_at": 1, "status": "completed",
            "model": "served", "error": null, "incomplete_details": null, "instructions": null,
            "metadata": {}, "parallel_tool_calls": true, "temperature": 1.0, "top_p": 1.0,
            "tool_choice": "auto", "tools": [],
            "output": [
                {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
                    "content": [{"type": "output_text", "text": TEXT, "annotations": []}]},
                {"id": "fc_1", "type": "function_call", "status": "completed",
                    "call_id": "call_1", "name": "look", "arguments": "{\"city\":\"Paris\"}"},
            ],
            "usage": {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 27},
        }),
        "openai" => json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "served",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
                "role": "assistant", "content": TEXT,
                "tool_calls": [{"id": "call_1", "type": "function",
                    "function": {"name": "look", "arguments": "{\"city\":\"Paris\"}"}}],
            }}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27},
        }),
        "anthropic" => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "served",
            "content": [{"type": "text", "text": TEXT},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"city": "Paris"}}],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 20, "output_tokens": 7},
        }),
        _ => json!({
            "responseId": "g1", "modelVersion": "served",
            "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model",
                "parts": [{"text": TEXT},
                    {"functionCall": {"name": "look", "args": {"city": "Paris"}}}]}}],
            "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 7,
                "totalTokenCount": 27},
        }),
    }
}

/// An event with the name of its type.
pub fn named(value: Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap())
}

/// The same as events.
pub fn events(protocol: &str) -> Vec<String> {
    let data = |value: Value| format!("data: {value}\n\n");
    match protocol {
        "openai" => {
            let chunk = |delta: Value, finish: Value| {
                data(json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                    "model": "served",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
            };
            let call = json!([{"index": 0, "id": "call_1", "type": "function",
                "function": {"name": "look", "arguments": "{\"city\":\"Paris\"}"}}]);
            let usage = json!({"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27});
            vec![
                chunk(json!({"role": "assistant", "content": ""}), Value::Null),
                chunk(json!({"content": TEXT}), Value::Null),
                chunk(json!({"tool_calls": call}), Value::Null),
                chunk(json!({}), "tool_calls".into()),
                data(json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                    "model": "served", "choices": [], "usage": usage})),
                "data: [DONE]\n\n".to_owned(),
            ]
        }
        "anthropic" => [
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
                "role": "assistant", "model": "served", "content": [], "stop_reason": null,
                "stop_sequence": null, "usage": {"input_tokens": 20, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": TEXT}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "content_block_start", "index": 1, "content_block":
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": "{\"city\":\"Paris\"}"}}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use",
                "stop_sequence": null}, "usage": {"input_tokens": 20, "output_tokens": 7}}),
            json!({"type": "message_stop"}),
        ]
        .into_iter()
        .map(named)
        .collect(),
        "responses" => response_events(&answer(protocol)).into_iter().map(named).collect(),
        _ => {
            let whole = answer(protocol);
            let mut first = whole.clone();
            first["candidates"][0]["content"]["parts"] = json!([{"text": TEXT}]);
            let first_candidate = first["candidates"][0].as_object_mut().unwrap();
            first_candidate.remove("finishReason");
            let mut last = whole;
            last["candidates"][0]["content"]["parts"].as_array_mut().unwrap().remove(0);
            vec![data(first), data(last)]
        }
    }
}

/// The events of a response whose items are a message and a call.
fn response_events(whole: &Value) -> Vec<Value> {
    let mut begun = whole.clone();
    begun["output"] = json!([]);
    begun["status"] = "in_progress".into();
    begun["usage"] = Value::Null;
    let (message, call) = (&whole["output"][0], &whole["output"][1]);
    let (part, arguments) = (&message["content"][0], &call["arguments"]);
    let opened = |item: &Value, member: &str, empty: Value| {
        let mut item = item.clone();
        item[member] = empty;
        item["status"] = "in_progress".into();
        item
    };
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": opened(message, "content", json!([]))}),
        json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0,
            "item_id": "msg_1", "part": {"type": "output_text", "text": "", "annotations": []}}),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
            "item_id": "msg_1", "delta": part["text"], "logprobs": []}),
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0,
            "item_id": "msg_1", "text": part["text"], "logprobs": []}),
        json!({"type": "response.content_part.done", "output_index": 0, "content_index": 0,
            "item_id": "msg_1", "part": part}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
        json!({"type": "response.output_item.added", "output_index": 1,
            "item": opened(call, "arguments", "".into())}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1,
            "item_id": "fc_1", "delta": arguments}),
        json!({"type": "response.function_call_arguments.done", "output_index": 1,
            "item_id": "fc_1", "name": "look", "arguments": arguments}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": call}),
        json!({"type": "response.completed", "response": whole}),
    ];
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    events
}

/// An event stream of these texts, each in a chunk of its own.
pub fn stream(events: &[String]) -> Vec<Step> {
    let chunks = events.iter().map(|event| Step::Chunk(event.clone().into_bytes()));
    std::iter::once(scripted::stream_head())
        .chain(chunks)
        .chain([Step::Chunk(Vec::new())])
        .collect()
}

/// A provider of this protocol that answers as it is asked, whole or as a stream.
pub async fn provider(protocol: &'static str) -> Provider {
    Provider::start(move |received, _| reply(protocol, received)).await
}

/// The dialect of a request to a provider of this protocol, as [`answer`] has it.
pub fn dialect(protocol: &'static str, received: &Received) -> &'static str {
    if received.target.contains("/responses") { "responses" } else { protocol }
}

pub fn reply(protocol: &'static str, received: &Received) -> Vec<Step> {
    let dialect = dialect(protocol, received);
    respond(protocol, received, &answer(dialect), &events(dialect))
}

/// An answer of a provider of this protocol, whole or as a stream.
pub fn respond(protocol: &str, received: &Received, whole: &Value, events: &[String]) -> Vec<Step> {
    let asks_stream = match protocol {
        "gemini" => received.target.contains("streamGenerateContent"),
        _ => received.json()["stream"] == true,
    };
    if asks_stream { stream(events) } else { scripted::json_answer(200, whole) }
}

/// What a client reads: text, the arguments of its call, why it stopped, tokens in and out.
pub type Said = (String, Value, String, [u64; 2]);

pub fn said(endpoint: Endpoint, answer: &Value) -> Said {
    let counts = |[input, output]: [&str; 2]| {
        [input, output]
            .map(|name| answer["usage"][name].as_u64().unwrap_or_else(|| panic!("{answer}")))
    };
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let parsed = |value: &Value| serde_json::from_str(value.as_str().unwrap()).unwrap();
    match endpoint {
        Endpoint::ChatCompletions => {
            let choice = &answer["choices"][0];
            let call = &choice["message"]["tool_calls"][0]["function"];
            assert_eq!(call["name"], "look", "{answer}");
            let tokens = counts(["prompt_tokens", "completion_tokens"]);
            let stop = text(&choice["finish_reason"]);
            (text(&choice["message"]["content"]), parsed(&call["arguments"]), stop, tokens)
        }
        Endpoint::Messages => {
            let call = &answer["content"][1];
            assert_eq!(
                (&call["type"], &call["name"]),
                (&json!("tool_use"), &json!("look")),
                "{answer}"
            );
            let tokens = counts(["input_tokens", "output_tokens"]);
            let stop = text(&answer["stop_reason"]);
            (text(&answer["content"][0]["text"]), call["input"].clone(), stop, tokens)
        }
        _ => {
            let call = &answer["output"][1];
            assert_eq!(call["name"], "look", "{answer}");
            let tokens = counts(["input_tokens", "output_tokens"]);
            let message = text(&answer["output"][0]["content"][0]["text"]);
            (message, parsed(&call["arguments"]), text(&answer["status"]), tokens)
        }
    }
}

/// What the provider of this protocol must have got.
fn check_request(received: &Received, protocol: &str, endpoint: Endpoint, streams: bool) {
    let body = received.json();
    let header = |name| received.header(name);
    let (target, credential) = match protocol {
        "openai" => ("/v1/chat/completions", ("authorization", format!("Bearer {UPSTREAM_KEY}"))),
        "anthropic" => ("/v1/messages", ("x-api-key", UPSTREAM_KEY.to_owned())),
        _ if streams => {
            let target = "/v1/models/model:streamGenerateContent?alt=sse";
            (target, ("x-goog-api-key", UPSTREAM_KEY.to_owned()))
        }
        _ => {
            let target = "/v1/models/model:generateContent";
            (target, ("x-goog-api-key", UPSTREAM_KEY.to_owned()))
        }
    };
    assert_eq!(received.target, target);
    assert_eq!(header(credential.0), Some(credential.1));
    assert_eq!((header("openai-beta"), header("anthropic-beta")), (None, None));
    let version = (protocol == "anthropic").then(|| "2023-06-01".to_owned());
    assert_eq!(header("anthropic-version"), version);
    assert_eq!(header("content-length"), Some(received.body.len().to_string()));
    let text = body.to_string();
    assert!(text.contains(ASKED) && text.contains("Be brief.") && text.contains("look"), "{text}");
    if protocol != "gemini" {
        assert_eq!(body["model"], "model", "{text}");
        assert_eq!(body["stream"] == true, streams, "{text}");
    }
    if protocol == "openai" {
        let asks = body["stream_options"]["include_usage"] == true;
        assert_eq!(asks, streams, "usage is asked for of {}: {text}", endpoint.as_str());
    }
}

async fn ask(gateway: &Gateway, key: &Key, endpoint: Endpoint, body: &Value) -> Answer {
    let headers = [
        ("openai-beta", "some=1"),
        ("anthropic-beta", "some-2"),
        ("anthropic-version", "2023-01-01"),
    ];
    let path = format!("{}?beta=true", path(endpoint));
    post(gateway, key, &path, &headers, &body.to_string()).await
}

/// The pairs of client and provider that need a translation.
pub const PAIRS: [(Endpoint, &str); 6] = [
    (Endpoint::ChatCompletions, "anthropic"),
    (Endpoint::ChatCompletions, "gemini"),
    (Endpoint::Responses, "anthropic"),
    (Endpoint::Responses, "gemini"),
    (Endpoint::Messages, "openai"),
    (Endpoint::Messages, "gemini"),
];

#[tokio::test]
async fn each_client_is_served_by_each_provider() {
    for (endpoint, protocol) in PAIRS {
        let upstream = provider(protocol).await;
        let (gateway, key) = gateway(&document(&[("a", protocol, &upstream.url())])).await;
        let stop = match endpoint {
            Endpoint::ChatCompletions => "tool_calls",
            Endpoint::Messages => "tool_use",
            _ => "completed",
        };
        let expected = (TEXT.to_owned(), json!({"city": "Paris"}), stop.to_owned(), [20, 7]);
        for streams in [false, true] {
            let what = format!("{} through {protocol}, stream: {streams}", endpoint.as_str());
            let answer = ask(&gateway, &key, endpoint, &request(endpoint, streams)).await;
            assert!(answer.status == 200 && answer.whole, "{what}: {}", answer.text());
            let content_type = answer.header("content-type").unwrap();
            let read = if streams {
                assert_eq!(content_type, "text/event-stream", "{what}");
                assemble(endpoint, &answer.body)
            } else {
                assert_eq!(content_type, "application/json", "{what}");
                answer.json()
            };
            assert_eq!(said(endpoint, &read), expected, "{what}: {}", answer.text());
            check_request(&upstream.last(), protocol, endpoint, streams);
            assert_eq!(answer.header("x-rerouter-provider"), Some("a"), "{what}");
            let dropped = match endpoint {
                Endpoint::ChatCompletions => (protocol == "anthropic").then_some("seed"),
                Endpoint::Messages => (protocol == "openai").then_some("top_k"),
                _ => None,
            };
            assert_eq!(answer.header("x-rerouter-dropped"), dropped, "{what}");
            // The capture has what the client saw.
            let capture = gateway.capture(&answer.request_id()).await;
            assert_eq!(capture["state"], "completed", "{what}: {capture}");
            assert_eq!(capture["usage"]["prompt_tokens"], 20, "{what}: {capture}");
            assert_eq!(capture["usage"]["completion_tokens"], 7, "{what}: {capture}");
            assert_eq!(capture["usage"]["estimated"], false, "{what}: {capture}");
            assert_eq!(capture["cost_usd"], json!(0.000_09), "{what}: {capture}");
            let kept = &capture["response"];
            assert_eq!(kept["body"], answer.text(), "{what}");
            let kept = if streams { kept["assembled"].clone() } else { answer.json() };
            assert_eq!(said(endpoint, &kept), expected, "{what}: {capture}");
            let asked = capture["request"]["body"].as_str().unwrap();
            assert_eq!(asked, request(endpoint, streams).to_string(), "{what}");
        }
    }
}

/// The same without the time of the gateway, which providers of messages do not name.
fn untimed(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\"created") {
        let end = at + rest[at..].find(':').unwrap() + 1;
        out.push_str(&rest[..end]);
        rest = rest[end..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    out + rest
}

#[tokio::test]
async fn every_recorded_answer_is_translated_as_it_comes() {
    let exchanges: Arc<HashMap<String, Exchange>> =
        Arc::new(recorded::all().into_iter().map(|known| (known.id.clone(), known)).collect());
    let known = Arc::clone(&exchanges);
    let upstream = Provider::start(move |received, _| {
        let exchange = &known[received.json()["model"].as_str().unwrap()];
        let content_type = [("content-type", &*exchange.content_type)];
        scripted::answer(exchange.status, &content_type, exchange.response.as_bytes())
    })
    .await;
    let url = upstream.url();
    let text = document(&[("rec", "openai", &url), ("ant", "anthropic", &url)]);
    let breaker = "    breaker: { consecutive: 1000000, min_requests: 1000000 }\n    api_key";
    let text = text.replace("    api_key", breaker) + "  \"rec/*\": {}\n  \"ant/*\": {}\n";
    let (gateway, key) = gateway(&text).await;
    let mut translated = 0;
    for exchange in exchanges.values() {
        let (name, clients) = match exchange.kind.as_str() {
            "chat" => ("rec", &[Endpoint::Messages][..]),
            "messages" => ("ant", &[Endpoint::ChatCompletions, Endpoint::Responses][..]),
            _ => continue,
        };
        for endpoint in clients.iter().copied() {
            let mut body = request(endpoint, exchange.stream);
            body["model"] = format!("{name}/{}", exchange.id).into();
            let answer = ask(&gateway, &key, endpoint, &body).await;
            assert_eq!(answer.status, exchange.status, "{}: {}", exchange.id, answer.text());
            let context = AnswerContext {
                id: answer.request_id(),
                model: exchange.id.clone(),
                created: 0,
                include_usage: true,
                ..AnswerContext::default()
            };
            let expected = exchange.translated(endpoint.dialect(), context);
            let expected = untimed(&String::from_utf8(expected).unwrap());
            assert_eq!(untimed(&answer.text()), expected, "{}", exchange.id);
            translated += 1;
        }
    }
    assert!(translated >= 200, "{translated}");
}
