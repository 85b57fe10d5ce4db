//! Captures of every dialect as conversations.

use bytes::Bytes;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::capture::fixtures::capture;
use rerouter_base::id::{Random, UserId};

fn called(endpoint: &str, request: &[u8], response: &[u8]) -> Capture {
    let mut capture = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
    capture.head.endpoint = endpoint.to_owned();
    capture.bodies.request = Bytes::copy_from_slice(request);
    capture.bodies.response = Bytes::copy_from_slice(response);
    capture
}

fn read(endpoint: &str, request: &Value, response: &Value) -> Value {
    let (request, response) = (request.to_string(), response.to_string());
    json!(called(endpoint, request.as_bytes(), response.as_bytes()).conversation())
}

#[test]
fn every_dialect_gives_the_same_conversation() {
    let chat = read(
        "chat.completions",
        &json!({"model": "m", "temperature": 0.5, "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "Which?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
                "function": {"name": "look", "arguments": "{\"at\":1}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"}],
            "tools": [{"type": "function", "function": {"name": "look",
                "parameters": {"type": "object"}}}]}),
        &json!({"id": "x", "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "reasoning_content": "Hm.", "content": "A cat."}}]}),
    );
    let messages = read(
        "messages",
        &json!({"model": "m", "temperature": 0.5, "system": "Be short.", "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Which?"}, {"type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "c1", "name": "look", "input": {"at":1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "a cat"}]}],
            "tools": [{"name": "look", "input_schema": {"type": "object"}}]}),
        &json!({"id": "x", "model": "m", "type": "message", "role": "assistant",
            "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
            "content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "text", "text": "A cat."}]}),
    );
    let responses = read(
        "responses",
        &json!({"model": "m", "temperature": 0.5, "instructions": "Be short.", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Which?"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"at\":1}"},
            {"type": "function_call_output", "call_id": "c1", "output": "a cat"}],
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}]}),
        &json!({"id": "x", "model": "m", "object": "response", "status": "completed", "output": [
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "A cat.", "annotations": []}]}]}),
    );
    let expected = json!([
        {"role": "user", "content": [{"type": "text", "text": "Which?"},
            {"type": "image", "name": null, "media_type": "image/png", "bytes": 3}]},
        {"role": "assistant", "content": [
            {"type": "tool_call", "id": "c1", "name": "look", "arguments": "{\"at\":1}"}]},
        {"role": "user", "content": [{"type": "tool_result", "id": "c1", "is_error": false,
            "content": [{"type": "text", "text": "a cat"}]}]},
    ]);
    for (dialect, read) in [("chat", chat), ("messages", messages), ("responses", responses)] {
        let request = &read["request"];
        assert_eq!(request["system"], json!(["Be short."]), "{dialect}: {read:#}");
        assert_eq!(request["messages"], expected, "{dialect}");
        assert_eq!(
            request["tools"],
            json!([{"name": "look", "description": null, "parameters": {"type": "object"}}])
        );
        assert_eq!(request["settings"], json!({"model": "m", "temperature": 0.5}), "{dialect}");
        assert_eq!((&request["problem"], &request["unshown"]), (&Value::Null, &json!([])));
        let answer = &read["answer"];
        assert_eq!(
            answer["content"],
            json!([{"type": "thinking", "text": "Hm."}, {"type": "text", "text": "A cat."}]),
            "{dialect}"
        );
        assert_eq!((&answer["stop"], &answer["problem"]), (&json!("end"), &Value::Null));
    }
}

#[test]
fn streams_are_put_together_also_where_they_break_off() {
    let event = |text: &str| {
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": text}}]}))
    };
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
        data: [DONE]\n\n";
    let text: String = ["On", "e ", "two."].map(event).concat();
    let mut capture = called("chat.completions", b"{}", (text.clone() + end).as_bytes());
    capture.head.response_stream = true;
    let answer = &json!(capture.conversation())["answer"];
    assert_eq!(answer["content"], json!([{"type": "text", "text": "One two."}]));
    assert_eq!((&answer["stop"], &answer["problem"]), (&json!("end"), &Value::Null));
    // The client left, or the provider broke off.
    (capture.head.status, capture.bodies.response) = (499, Bytes::from(text.clone()));
    let answer = &json!(capture.conversation())["answer"];
    assert_eq!(answer["content"], json!([{"type": "text", "text": "One two."}]));
    assert!(answer["problem"].as_str().unwrap().contains("ended before"), "{answer}");
    capture.head.response_truncated = true;
    assert!(
        json!(capture.conversation())["answer"]["problem"].as_str().unwrap().contains("cut off")
    );
    // An event that is not valid text.
    capture.bodies.response = Bytes::from([text.as_bytes(), b"data: \xff\xfe\n\n"].concat());
    let answer = &json!(capture.conversation())["answer"];
    assert_eq!(answer["content"], json!([{"type": "text", "text": "One two."}]));
}

#[test]
fn embeddings_counts_errors_and_lost_bodies_are_told() {
    let read = read(
        "embeddings",
        &json!({"model": "m", "input": ["a", "b"]}),
        &json!({"data": [{"embedding": [1, 2]}, {"embedding": [3, 4]}]}),
    );
    assert_eq!(
        read["request"]["messages"],
        json!([{"role": "user", "content": [{"type": "text", "text": "a"},
            {"type": "text", "text": "b"}]}])
    );
    assert_eq!(read["answer"]["content"], json!([{"type": "vectors", "count": 2, "numbers": 2}]));
    let counted =
        json!(called("messages.count_tokens", b"{}", b"{\"input_tokens\":12}").conversation());
    assert_eq!(counted["answer"]["content"], json!([{"type": "tokens", "count": 12}]));
    let mut refused =
        called("chat.completions", b"{\"messages\":[{", b"{\"error\":{\"message\":\"Too much.\"}}");
    refused.head.status = 429;
    let read = json!(refused.conversation());
    assert_eq!(read["answer"]["problem"], "Too much.");
    assert!(read["request"]["problem"].as_str().unwrap().contains("shape"), "{read}");
    refused.head.request_truncated = true;
    assert!(
        json!(refused.conversation())["request"]["problem"].as_str().unwrap().contains("cut off")
    );
    refused.head.request_captured = false;
    assert_eq!(json!(refused.conversation()), json!({"request": null, "answer": null}));
}

/// A recorded exchange with a real provider.
#[derive(Deserialize)]
struct RecordedCall {
    id: String,
    kind: String,
    status: u16,
    content_type: String,
    request: Box<RawValue>,
    response: String,
}

#[test]
fn every_recorded_answer_can_be_read() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let mut calls = 0;
    for kind in ["chat", "messages", "responses", "embeddings"] {
        let text = std::fs::read_to_string(data.join(format!("recorded_{kind}.jsonl"))).unwrap();
        for line in text.lines() {
            let call: RecordedCall = serde_json::from_str(line).unwrap();
            let endpoint = if call.kind == "chat" { "chat.completions" } else { &call.kind };
            let mut capture =
                called(endpoint, call.request.get().as_bytes(), call.response.as_bytes());
            capture.head.status = call.status;
            capture.head.response_stream = call.content_type.starts_with("text/event-stream");
            let read = json!(capture.conversation());
            let answer = &read["answer"];
            if call.status < 400 {
                let said = answer["content"].as_array().is_some_and(|parts| !parts.is_empty());
                let stopped = ["max_tokens", "refusal", "unfinished"];
                let stopped = stopped.map(Value::from).contains(&answer["stop"]);
                assert!(said || stopped || !answer["problem"].is_null(), "{}: {answer}", call.id);
            } else {
                assert!(answer["problem"].is_string(), "{}: {answer}", call.id);
            }
            calls += 1;
        }
    }
    assert_eq!(calls, 231);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_have_a_problem(
        endpoint in prop::sample::select(Endpoint::ALL.to_vec()),
        request in prop::collection::vec(any::<u8>(), 1..60),
        words in "[ -~\\n]{0,80}",
        stream: bool,
        status in 200_u16..600,
    ) {
        let mut capture = called(endpoint.as_str(), &request, words.as_bytes());
        capture.head.response_stream = stream;
        capture.head.status = status;
        let read = json!(capture.conversation());
        prop_assert!(read["request"]["problem"].is_string() || read["request"].is_null());
        prop_assert_eq!(words.is_empty(), read["answer"].is_null());
    }
}
