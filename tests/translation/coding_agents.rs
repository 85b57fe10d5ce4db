//! Coding agents as clients: requests as Claude Code and Codex write them
//! (`tests/data/coding_agents.jsonl`), to a provider of their own API and to all others.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::recorded_answer::assemble;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::requests::endpoints::post;
use crate::support::client::Answer;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{Provider, Received};
use crate::translation::dialects::{TEXT, document, gateway, provider, said, stream};

/// A request of a coding agent.
#[derive(Deserialize)]
pub struct AgentRequest {
    pub name: String,
    path: String,
    headers: BTreeMap<String, String>,
    pub request: Box<RawValue>,
    /// Dialects that cannot carry it, each with the member in the way.
    refused: BTreeMap<String, String>,
}

impl AgentRequest {
    pub fn endpoint(&self) -> Endpoint {
        if self.path.starts_with("/v1/messages") { Endpoint::Messages } else { Endpoint::Responses }
    }

    /// The bytes, for the model `auto`.
    fn body(&self, model: &str) -> String {
        let text = self.request.get();
        let asked: Value = serde_json::from_str(text).unwrap();
        text.replacen(&asked["model"].to_string(), &json!(model).to_string(), 1)
    }

    async fn send(&self, gateway: &Gateway, key: &Key) -> Answer {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        post(gateway, key, &self.path, &headers, &self.body("auto")).await
    }
}

pub fn requests() -> Vec<AgentRequest> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/coding_agents.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let all: Vec<AgentRequest> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 11);
    all
}

/// Of six requests of Claude Code in three other dialects, and five of Codex.
const CARRIED: usize = 3 * 6 - 2 + 3 * 5 - 3;

/// That the client reads the text and the call of the provider, in a stream of its own dialect.
fn check_answer(asked: &AgentRequest, answer: &Answer, what: &str) {
    assert!(answer.status == 200 && answer.whole, "{what}: {}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/event-stream"), "{what}");
    let endpoint = asked.endpoint();
    let stop = if endpoint == Endpoint::Messages { "tool_use" } else { "completed" };
    let expected = (TEXT.to_owned(), json!({"city": "Paris"}), stop.to_owned(), [20, 7]);
    let read = assemble(endpoint, &answer.body);
    assert_eq!(said(endpoint, &read), expected, "{what}: {}", answer.text());
}

#[tokio::test]
async fn their_requests_pass_unchanged_to_a_provider_of_their_own_api() {
    for (client, protocol) in [(Endpoint::Messages, "anthropic"), (Endpoint::Responses, "openai")] {
        let upstream = provider(protocol).await;
        let (gateway, key) = gateway(&document(&[("a", protocol, &upstream.url())])).await;
        for asked in requests().iter().filter(|asked| asked.endpoint() == client) {
            let answer = asked.send(&gateway, &key).await;
            check_answer(asked, &answer, &asked.name);
            assert_eq!(answer.header("x-rerouter-dropped"), None, "{}", asked.name);
            let received = upstream.last();
            assert_eq!(String::from_utf8_lossy(&received.body), asked.body("model"));
            assert_eq!(received.target, asked.path, "{}", asked.name);
            for name in ["anthropic-beta", "anthropic-version", "openai-beta"] {
                assert_eq!(received.header(name), asked.headers.get(name).cloned());
            }
        }
    }
}

#[tokio::test]
async fn providers_of_other_apis_answer_them_or_the_feature_in_the_way_is_named() {
    let mut carried = 0;
    for (client, protocol, dialect) in [
        (Endpoint::Messages, "openai", "chat"),
        (Endpoint::Messages, "openai", "responses"),
        (Endpoint::Messages, "gemini", "gemini"),
        (Endpoint::Responses, "anthropic", "messages"),
        (Endpoint::Responses, "openai", "chat"),
        (Endpoint::Responses, "gemini", "gemini"),
    ] {
        let upstream = provider(protocol).await;
        let endpoint = if dialect == "chat" { "chat.completions" } else { dialect };
        let has = format!("    protocol: openai\n    endpoints: [{endpoint}]\n");
        let text = document(&[("a", protocol, &upstream.url())]);
        let text = text.replace("    protocol: openai\n", &has);
        let (gateway, key) = gateway(&text).await;
        for asked in requests().iter().filter(|asked| asked.endpoint() == client) {
            let what = format!("{} as {dialect}", asked.name);
            let answer = asked.send(&gateway, &key).await;
            if let Some(member) = asked.refused.get(dialect) {
                assert_eq!(answer.status, 400, "{what}: {}", answer.text());
                let named = format!("`{member}`");
                assert!(answer.text().contains(&named), "{what}: {}", answer.text());
                continue;
            }
            check_answer(asked, &answer, &what);
            let received = upstream.last();
            assert_eq!(received.header("anthropic-beta"), None, "{what}");
            assert_eq!(received.header("openai-beta"), None, "{what}");
            check_said(asked, &received, &what);
            carried += 1;
        }
    }
    assert_eq!(carried, CARRIED);
}

/// That the provider reads each text, call and tool of the client, whatever its words for them.
fn check_said(asked: &AgentRequest, received: &Received, what: &str) {
    let request: Value = serde_json::from_str(asked.request.get()).unwrap();
    let got = received.json().to_string();
    let mut texts = Vec::new();
    for member in ["system", "messages", "instructions", "input"] {
        texts_in(&request[member], &mut texts);
    }
    for tool in request["tools"].as_array().into_iter().flatten() {
        if tool["type"].is_null() || tool["type"] == "function" || tool["type"] == "custom" {
            texts.extend([&tool["name"], &tool["description"]].map(|text| text.to_string()));
        }
    }
    for text in &texts {
        // Without its quotes; a text within a text is escaped once more.
        let plain = &text[1..text.len() - 1];
        let within = json!(plain).to_string();
        let is_there = got.contains(plain) || got.contains(&within[1..within.len() - 1]);
        assert!(is_there, "{what}: {plain} is not in {got}");
    }
    assert!(texts.len() > 1, "{what}");
}

/// The texts that a conversation holds, and the names and arguments of its calls, as JSON.
fn texts_in(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| texts_in(one, texts)),
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), value) {
                    // Thinking goes back only to who sealed it.
                    ("summary", _) => {}
                    ("text" | "content" | "instructions" | "output" | "name", Value::String(_)) => {
                        texts.push(value.to_string());
                    }
                    ("command" | "file_path" | "old_string", _) => texts.push(value.to_string()),
                    ("input" | "content" | "output", _) => texts_in(value, texts),
                    _ => {}
                }
            }
        }
        Value::String(_) => texts.push(value.to_string()),
        _ => {}
    }
}

/// Codex's `apply_patch` takes free text, which no other API has.
#[tokio::test]
async fn codex_reads_a_patch_as_it_was_written() {
    const PATCH: &str = "*** Begin Patch\n*** Add File: a.txt\n+\"é\\n\"\n*** End Patch\n";
    let upstream = Provider::start(|received, _| {
        assert!(received.json()["tools"].to_string().contains("begin_patch"));
        stream(&patching_events(PATCH))
    })
    .await;
    let (gateway, key) = gateway(&document(&[("a", "anthropic", &upstream.url())])).await;
    let all = requests();
    let asked = all.iter().find(|asked| asked.name.starts_with("codex: the first")).unwrap();
    let answer = asked.send(&gateway, &key).await;
    assert!(answer.status == 200 && answer.whole, "{}", answer.text());
    let text = answer.text();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let pieces = of("response.custom_tool_call_input.delta");
    let pieces: Vec<&str> = pieces.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert!(pieces.len() > 5 && pieces.concat() == PATCH, "{pieces:?}");
    assert_eq!(of("response.custom_tool_call_input.done")[0]["input"], PATCH);
    let item = &of("response.output_item.done")[0]["item"];
    assert_eq!((&item["type"], &item["name"]), (&json!("custom_tool_call"), &json!("apply_patch")));
    assert_eq!((&item["input"], &item["call_id"]), (&json!(PATCH), &json!("toolu_1")));
    assert_eq!(&assemble(Endpoint::Responses, &answer.body)["output"][0], item);
}

/// A message that calls `apply_patch`, its arguments in pieces.
fn patching_events(patch: &str) -> Vec<String> {
    let arguments: Vec<char> = json!({ "input": patch }).to_string().chars().collect();
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
            "role": "assistant", "model": "served", "content": [], "stop_reason": null,
            "usage": {"input_tokens": 20, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block":
            {"type": "tool_use", "id": "toolu_1", "name": "apply_patch", "input": {}}}),
    ];
    events.extend(arguments.chunks(7).map(|piece| {
        let piece: String = piece.iter().collect();
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": piece}})
    }));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ]);
    let kind = |event: &Value| event["type"].as_str().unwrap().to_owned();
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", kind(event))).collect()
}
