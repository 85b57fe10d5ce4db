//! Chat completions of the mock provider.

use serde_json::{Value, json};

use super::super::mock_answer::{MockAnswer, MockRules, unnamed};

pub const RULES: MockRules = MockRules {
    whole: |answer, _| Ok(whole(answer)),
    events,
    until_first_word: 2,
    error_event,
    refusal,
};

fn usage(answer: &MockAnswer<'_>) -> Value {
    let used = answer.usage;
    json!({
        "prompt_tokens": used.prompt_tokens, "completion_tokens": used.completion_tokens,
        "total_tokens": used.total_tokens,
    })
}

fn whole(answer: &MockAnswer<'_>) -> Value {
    let message = json!({ "role": "assistant", "content": answer.content });
    json!({
        "id": format!("chatcmpl-mock-{}", answer.mark), "object": "chat.completion",
        "created": 0, "model": answer.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": usage(answer),
    })
}

fn events(answer: &MockAnswer<'_>) -> Vec<String> {
    let chunk = |choices: Value| {
        json!({
            "id": format!("chatcmpl-mock-{}", answer.mark), "object": "chat.completion.chunk",
            "created": 0, "model": answer.model, "choices": choices,
        })
    };
    let delta = |delta: Value, finish: Value| {
        chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish }]))
    };
    let mut events =
        vec![unnamed(&delta(json!({ "role": "assistant", "content": "" }), Value::Null))];
    events.extend(
        answer.words().map(|word| unnamed(&delta(json!({ "content": word }), Value::Null))),
    );
    events.push(unnamed(&delta(json!({}), "stop".into())));
    if answer.include_usage {
        let mut last = chunk(json!([]));
        if let Some(last) = last.as_object_mut() {
            last.insert("usage".into(), usage(answer));
        }
        events.push(unnamed(&last));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

pub fn error_event(message: &str) -> String {
    unnamed(&json!({ "error": { "message": message, "type": "server_error", "code": 500 } }))
}

/// As OpenAI refuses at all its endpoints.
pub fn refusal(_status: u16, message: &str, kind: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": null, "code": null } })
}
