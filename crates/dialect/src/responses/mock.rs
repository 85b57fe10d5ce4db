//! Responses of the mock provider.

use serde_json::{Value, json};

use super::super::chat::mock::refusal;
use super::super::mock_answer::{MockAnswer, MockRules, joined, named};

pub const RULES: MockRules = MockRules {
    whole: |answer, _| Ok(whole(answer)),
    events,
    until_first_word: 5,
    error_event,
    refusal,
};

fn whole(answer: &MockAnswer<'_>) -> Value {
    let said = item(answer, "completed", json!([part(&answer.content)]));
    response(answer, "completed", json!([said]), usage(answer))
}

fn usage(answer: &MockAnswer<'_>) -> Value {
    let used = answer.usage;
    json!({
        "input_tokens": used.prompt_tokens, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": used.completion_tokens,
        "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": used.total_tokens,
    })
}

fn response(answer: &MockAnswer<'_>, status: &str, output: Value, usage: Value) -> Value {
    json!({
        "id": format!("resp_mock_{}", answer.mark), "object": "response", "created_at": 0,
        "status": status, "error": null, "incomplete_details": null, "instructions": null,
        "metadata": {}, "model": answer.model, "output": output, "parallel_tool_calls": true,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage,
    })
}

fn item_id(answer: &MockAnswer<'_>) -> String {
    format!("msg_mock_{}", answer.mark)
}

fn item(answer: &MockAnswer<'_>, status: &str, content: Value) -> Value {
    json!({
        "id": item_id(answer), "type": "message", "status": status, "role": "assistant",
        "content": content,
    })
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn events(answer: &MockAnswer<'_>) -> Vec<String> {
    let begun = response(answer, "in_progress", json!([]), Value::Null);
    let at = json!({ "item_id": item_id(answer), "output_index": 0, "content_index": 0 });
    let within = |more: Value| joined(at.clone(), more);
    let done = item(answer, "completed", json!([part(&answer.content)]));
    let mut events = vec![
        ("response.created", json!({ "response": begun })),
        ("response.in_progress", json!({ "response": begun })),
        (
            "response.output_item.added",
            json!({ "output_index": 0, "item": item(answer, "in_progress", json!([])) }),
        ),
        ("response.content_part.added", within(json!({ "part": part("") }))),
    ];
    events.extend(answer.words().map(|word| {
        ("response.output_text.delta", within(json!({ "delta": word, "logprobs": [] })))
    }));
    events.extend([
        ("response.output_text.done", within(json!({ "text": answer.content, "logprobs": [] }))),
        ("response.content_part.done", within(json!({ "part": part(&answer.content) }))),
        ("response.output_item.done", json!({ "output_index": 0, "item": done })),
        ("response.completed", json!({ "response": whole(answer) })),
    ]);
    let numbered = events.into_iter().enumerate();
    numbered
        .map(|(n, (name, data))| {
            named(name, &joined(json!({ "type": name, "sequence_number": n }), data))
        })
        .collect()
}

fn error_event(message: &str) -> String {
    let error = json!({
        "type": "error", "sequence_number": 0, "code": "server_error", "message": message,
        "param": null,
    });
    named("error", &error)
}
