//! Renders a capture as a conversation: the same JSON for every dialect, for people who read it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::record::{Capture, Head};
use rerouter_dialect::Dialect;
use rerouter_dialect::embeddings::recorded::{EmbeddingInput, inputs, vectors};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::feature::Feature;
use rerouter_dialect::messages;
use rerouter_dialect::neutral::answer::StopReason;
use rerouter_dialect::neutral::failure;
use rerouter_dialect::neutral::part::{Base64, Part, Source};
use rerouter_dialect::neutral::request::{Request, Speaker, Turn};
use rerouter_dialect::recorded_answer::read_recorded;
use rerouter_dialect::request_translation::read_request;

/// Longest value of a setting that is shown, in bytes.
const SETTING_BYTES: usize = 120;
/// Members of requests that are texts, however short.
const TEXTS: [&str; 4] = ["input", "instructions", "prompt", "system"];
/// What a request may hold and the neutral form has no place for.
const UNSHOWN: [Feature; 9] = [
    Feature::ProviderFiles,
    Feature::OtherContent,
    Feature::ServerToolHistory,
    Feature::Functions,
    Feature::StoredState,
    Feature::Compaction,
    Feature::ServerTools,
    Feature::Citations,
    Feature::McpTerms,
];

impl Capture {
    /// Request and answer as a conversation: `{"request", "answer"}`, each null where its body was
    /// not kept. What cannot be read of a body is named in `problem`.
    pub fn conversation(&self) -> Value {
        let (head, bodies) = (&self.head, &self.bodies);
        let endpoint = Endpoint::named(&head.endpoint).unwrap_or_default();
        let kept = head.request_captured;
        let request =
            (kept && !bodies.request.is_empty()).then(|| asked(head, endpoint, &bodies.request));
        let answer = (kept && !bodies.response.is_empty())
            .then(|| answered(head, endpoint, &bodies.response));
        json!({ "request": request, "answer": answer })
    }
}

fn asked(head: &Head, endpoint: Endpoint, body: &[u8]) -> Value {
    let mut request = Request::default();
    let mut problem = None;
    if endpoint.dialect() == Dialect::Embeddings {
        match inputs(body) {
            Some(inputs) => return embedded(&inputs, settings(body)),
            None => problem = Some("`input` is missing.".to_owned()),
        }
    } else {
        match read_request(endpoint.dialect(), body) {
            Ok(read) => request = read,
            Err(_) if head.request_truncated => {
                problem = Some("The body was cut off when it was captured.".to_owned());
            }
            Err(malformed) => problem = Some(format!("{} has another shape.", malformed.0)),
        }
    }
    let unshown: Vec<String> = request
        .uses
        .iter()
        .filter(|used| {
            let in_chat = used.feature == Feature::Thinking && endpoint.dialect() == Dialect::Chat;
            UNSHOWN.contains(&used.feature) || in_chat
        })
        .map(|used| used.member())
        .collect();
    let tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            })
        })
        .collect();
    json!({
        "system": request.system,
        "messages": request.turns.iter().map(turn).collect::<Vec<_>>(),
        "tools": tools,
        "settings": settings(body),
        "unshown": unshown,
        "problem": problem,
    })
}

fn embedded(inputs: &[EmbeddingInput], settings: Value) -> Value {
    let part = |input: &EmbeddingInput| match input {
        EmbeddingInput::Text(text) => json!({ "type": "text", "text": text }),
        EmbeddingInput::Tokens(count) => json!({ "type": "tokens", "count": count }),
        EmbeddingInput::Other => json!({ "type": "file" }),
    };
    let content: Vec<Value> = inputs.iter().map(part).collect();
    json!({
        "system": [], "messages": [{ "role": "user", "content": content }], "tools": [],
        "settings": settings, "unshown": [], "problem": null,
    })
}

/// The short members of a request's body, as `temperature`.
fn settings(body: &[u8]) -> Value {
    let members: BTreeMap<String, &RawValue> = serde_json::from_slice(body).unwrap_or_default();
    let shown = members.into_iter().filter_map(|(name, value)| {
        let text = value.get();
        let short = text.len() <= SETTING_BYTES && !text.starts_with(['{', '[']);
        let shown = short && !TEXTS.contains(&name.as_str());
        Some((name, serde_json::from_str::<Value>(text).ok()?)).filter(|_| shown)
    });
    Value::Object(shown.collect())
}

fn turn(turn: &Turn) -> Value {
    let role = match turn.speaker {
        Speaker::System => "system",
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
    };
    json!({ "role": role, "content": parts(&turn.content) })
}

fn parts(content: &[Part]) -> Vec<Value> {
    content.iter().map(part).collect()
}

fn part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Refusal(text) => json!({ "type": "refusal", "text": text }),
        Part::Thinking(thinking) => json!({ "type": "thinking", "text": thinking.text }),
        Part::Image(image) => source("image", &image.source, None),
        Part::File(file) => source("file", &file.source, file.name.as_deref()),
        Part::Audio { data, format } => {
            json!({ "type": "audio", "media_type": format, "bytes": bytes(data) })
        }
        Part::ToolCall(call) | Part::TextCall(call) => json!({
            "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments,
        }),
        Part::ToolResult(result) => json!({
            "type": "tool_result", "id": result.call_id, "is_error": result.is_error,
            "content": parts(&result.content),
        }),
    }
}

fn source(kind: &str, source: &Source, name: Option<&str>) -> Value {
    match source {
        Source::Url(url) => json!({ "type": kind, "name": name, "url": url }),
        Source::Inline { media_type, data } => {
            json!({ "type": kind, "name": name, "media_type": media_type, "bytes": bytes(data) })
        }
        Source::Text(text) => json!({ "type": kind, "name": name, "text": text }),
    }
}

/// The bytes that base64 stands for.
fn bytes(data: &Base64) -> usize {
    data.0.trim_end_matches('=').len() * 3 / 4
}

/// An answer that is no text of a model.
fn plain(content: Vec<Value>, problem: Option<String>) -> Value {
    json!({ "content": content, "stop": null, "unshown": [], "problem": problem })
}

fn answered(head: &Head, endpoint: Endpoint, body: &[u8]) -> Value {
    if head.status >= 400 && !head.answers_in_events() {
        return plain(Vec::new(), Some(failure::read(head.status, body).message));
    }
    if endpoint.counts() {
        let tokens = messages::counted(body);
        let tokens = tokens.map(|count| json!({ "type": "tokens", "count": count }));
        return plain(tokens.into_iter().collect(), None);
    }
    if let Some((count, numbers)) =
        vectors(body).filter(|_| endpoint.dialect() == Dialect::Embeddings)
    {
        let vectors = json!({ "type": "vectors", "count": count, "numbers": numbers });
        return plain(vec![vectors], None);
    }
    let read = read_recorded(endpoint.dialect(), body, head.answers_in_events());
    let stop = match &read.answer.stop {
        StopReason::End => "end",
        StopReason::MaxTokens => "max_tokens",
        StopReason::Sequence(_) => "stop_sequence",
        StopReason::ToolCalls => "tool_calls",
        StopReason::Refusal => "refusal",
        StopReason::Pause => "pause",
        StopReason::Unfinished => "unfinished",
    };
    let cut = "The body was cut off when it was captured.";
    let problem = read.failure.map(|failure| match head.response_truncated {
        true => cut.to_owned(),
        false => failure.message,
    });
    json!({
        "content": parts(&read.answer.content), "stop": stop, "unshown": read.dropped,
        "problem": problem,
    })
}

#[cfg(test)]
#[path = "conversation_json_tests.rs"]
mod tests;
