//! Messages of the mock provider, and its counts of tokens.

use serde_json::{Value, json};

use super::super::mock_answer::{MockAnswer, MockRules, joined, named};
use super::errors::{error_body, error_type};

pub const RULES: MockRules = MockRules {
    whole: |answer, _| Ok(whole(answer)),
    events,
    until_first_word: 4,
    error_event,
    refusal,
};

pub(crate) const COUNT_RULES: MockRules = MockRules {
    whole: |answer, _| Ok(json!({ "input_tokens": answer.usage.prompt_tokens })),
    ..RULES
};

fn whole(answer: &MockAnswer<'_>) -> Value {
    let used = answer.usage;
    let usage = json!({
        "input_tokens": used.prompt_tokens, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0, "output_tokens": used.completion_tokens,
    });
    let content = json!([{ "type": "text", "text": answer.content }]);
    message(answer, content, "end_turn".into(), usage)
}

fn message(answer: &MockAnswer<'_>, content: Value, stop: Value, usage: Value) -> Value {
    json!({
        "id": format!("msg_mock_{}", answer.mark), "type": "message", "role": "assistant",
        "model": answer.model, "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": usage,
    })
}

fn events(answer: &MockAnswer<'_>) -> Vec<String> {
    let begun = json!({
        "input_tokens": answer.usage.prompt_tokens, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0, "output_tokens": 1,
    });
    let mut events = vec![
        ("message_start", json!({ "message": message(answer, json!([]), Value::Null, begun) })),
        (
            "content_block_start",
            json!({ "index": 0, "content_block": { "type": "text", "text": "" } }),
        ),
        ("ping", json!({})),
    ];
    let delta = |word: &str| json!({ "index": 0, "delta": { "type": "text_delta", "text": word } });
    events.extend(answer.words().map(|word| ("content_block_delta", delta(word))));
    let end = json!({ "stop_reason": "end_turn", "stop_sequence": null });
    events.extend([
        ("content_block_stop", json!({ "index": 0 })),
        (
            "message_delta",
            json!({ "delta": end, "usage": { "output_tokens": answer.usage.completion_tokens } }),
        ),
        ("message_stop", json!({})),
    ]);
    events
        .into_iter()
        .map(|(name, data)| named(name, &joined(json!({ "type": name }), data)))
        .collect()
}

fn error_event(message: &str) -> String {
    named("error", &error_body("api_error", message))
}

fn refusal(status: u16, message: &str, _kind: &str) -> Value {
    error_body(error_type(status), message)
}
