//! Turns messages into chat completions.

use serde_json::{Map, Value, json};

/// Turns a message into a chat completion: text, thinking, tool calls, stop reason and usage. Parts
/// that a chat completion has no field for (citations, results of server tools) are left out.
/// Fields that the message lacks stay absent.
pub(crate) fn as_chat_completion(message: &Value) -> Value {
    let blocks =
        message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = |kind: &str, field: &str| -> Option<String> {
        let of_kind =
            blocks.iter().filter(|block| block.get("type").and_then(Value::as_str) == Some(kind));
        let texts: Vec<&str> = of_kind.filter_map(|block| block.get(field)?.as_str()).collect();
        (!texts.is_empty()).then(|| texts.concat())
    };
    let mut said = Map::new();
    said.insert("role".into(), "assistant".into());
    // Some servers write a plain text as content.
    let text = message.get("content").and_then(Value::as_str).map(str::to_owned);
    said.insert("content".into(), text.or_else(|| texts("text", "text")).into());
    if let Some(thoughts) = texts("thinking", "thinking") {
        said.insert("reasoning_content".into(), thoughts.into());
    }
    let calls: Vec<Value> = blocks.iter().filter_map(call).collect();
    if !calls.is_empty() {
        said.insert("tool_calls".into(), calls.into());
    }
    let choice = json!({
        "index": 0, "message": said, "finish_reason": finish_reason(message.get("stop_reason")),
    });
    json!({
        "id": message.get("id"), "object": "chat.completion", "model": message.get("model"),
        "choices": [choice], "usage": message.get("usage").map(usage),
    })
}

fn call(block: &Value) -> Option<Value> {
    if block.get("type")?.as_str()? != "tool_use" {
        return None;
    }
    let arguments = block.get("input").map_or_else(|| "{}".to_owned(), Value::to_string);
    let function = json!({ "name": block.get("name"), "arguments": arguments });
    Some(json!({ "id": block.get("id"), "type": "function", "function": function }))
}

fn finish_reason(stop: Option<&Value>) -> Value {
    match stop.and_then(Value::as_str) {
        None => Value::Null,
        Some("max_tokens" | "model_context_window_exceeded") => "length".into(),
        Some("tool_use") => "tool_calls".into(),
        Some("refusal") => "content_filter".into(),
        Some(_) => "stop".into(),
    }
}

/// Prompt tokens are the sum of new tokens, cache reads and cache writes.
fn usage(written: &Value) -> Value {
    let count = |name: &str| written.get(name).and_then(Value::as_u64);
    let cached = count("cache_read_input_tokens");
    let beside = [cached, count("cache_creation_input_tokens")].into_iter().flatten();
    let prompt = count("input_tokens").map(|fresh| beside.fold(fresh, u64::saturating_add));
    let completion = count("output_tokens");
    let total =
        prompt.zip(completion).map(|(prompt, completion)| prompt.saturating_add(completion));
    let mut usage = Map::new();
    for (name, count) in
        [("prompt_tokens", prompt), ("completion_tokens", completion), ("total_tokens", total)]
    {
        usage.extend(count.map(|count| (name.to_owned(), count.into())));
    }
    if let Some(cached) = cached {
        usage.insert("prompt_tokens_details".into(), json!({ "cached_tokens": cached }));
    }
    usage.into()
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
