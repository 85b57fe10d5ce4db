//! The chat completion in the answer to a reroute. It has a fixed form, whatever the provider left
//! out or wrote differently. Correct members stay as they are.

use serde_json::{Map, Value, json};

use super::super::usage::Usage;
use super::super::usage_object::PartialUsage;

/// Values for members that the provider left out.
#[derive(Clone, Debug)]
pub struct CompletionDefaults<'a> {
    pub id: &'a str,
    /// Unix time in seconds.
    pub created: i64,
    pub model: &'a str,
    /// The estimated tokens of the prompt.
    pub prompt_tokens: u64,
    /// The usage of a stream, counted while it was relayed.
    pub usage: Option<Usage>,
}

/// Completes an answer. It then has `id`, `object`, `created`, `model`, `choices` and `usage`, each
/// of the right type.
pub fn shaped(answer: Value, defaults: &CompletionDefaults<'_>) -> Value {
    let mut rest = object(answer).unwrap_or_default();
    let mut take = |name: &str| rest.remove(name).unwrap_or_default();
    let (id, created, model) = (take("id"), take("created"), take("model"));
    let choices = match take("choices") {
        Value::Array(choices) => {
            choices.into_iter().filter_map(object).enumerate().map(choice).collect()
        }
        _ => Vec::new(),
    };
    let usage = usage(take("usage"), &choices, defaults);
    take("object");
    let mut shaped = Map::new();
    shaped.insert("id".into(), text_or(id, defaults.id));
    shaped.insert("object".into(), "chat.completion".into());
    shaped
        .insert("created".into(), if created.is_i64() { created } else { defaults.created.into() });
    shaped.insert("model".into(), text_or(model, defaults.model));
    shaped.insert("choices".into(), choices.into());
    shaped.insert("usage".into(), usage);
    shaped.append(&mut rest);
    shaped.into()
}

fn object(value: Value) -> Option<Map<String, Value>> {
    if let Value::Object(fields) = value { Some(fields) } else { None }
}

/// The value, if it is a non-empty string, otherwise `other`.
fn text_or(value: Value, other: &str) -> Value {
    if value.as_str().is_some_and(|text| !text.is_empty()) { value } else { other.into() }
}

fn choice((place, mut choice): (usize, Map<String, Value>)) -> Value {
    let mut take = |name: &str| choice.remove(name).unwrap_or_default();
    let (index, reason) = (take("index"), take("finish_reason"));
    let mut message = object(take("message")).unwrap_or_default();
    // Legacy completions have their text in this member.
    let text = take("text");
    let content = match message.remove("content").unwrap_or_default() {
        Value::Null if text.is_string() => text,
        content => content_text(content).into(),
    };
    let role = message.remove("role").unwrap_or_default();
    let calls =
        |name: &str| message.get(name).is_some_and(|calls| !calls.is_null() && *calls != json!([]));
    let ended = if calls("tool_calls") || calls("function_call") { "tool_calls" } else { "stop" };
    let mut said = Map::new();
    said.insert("role".into(), text_or(role, "assistant"));
    said.insert("content".into(), content);
    said.append(&mut message);
    let mut shaped = Map::new();
    shaped.insert("index".into(), if index.is_u64() { index } else { place.into() });
    shaped.insert("message".into(), said.into());
    shaped.insert("finish_reason".into(), text_or(reason, ended));
    shaped.append(&mut choice);
    shaped.into()
}

/// The text of `content`: parts are joined, other JSON is written as text.
fn content_text(content: Value) -> String {
    match content {
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Array(parts) => {
            let text = |part: &Value| {
                part.as_str().or_else(|| part.get("text")?.as_str()).map(str::to_owned)
            };
            parts.iter().filter_map(text).collect()
        }
        other => other.to_string(),
    }
}

/// The provider's usage if its counts are valid. Otherwise estimates complete it, and it is marked
/// so.
fn usage(written: Value, choices: &[Value], defaults: &CompletionDefaults<'_>) -> Value {
    let told = PartialUsage::read(&written.to_string());
    let ours = || {
        let estimate = || Usage::estimate(defaults.prompt_tokens, choices.iter().map(bytes).sum());
        defaults.usage.clone().filter(|usage| usage.estimated).unwrap_or_else(estimate)
    };
    let usage = match told {
        Some(told) if told.is_whole() => told.usage().unwrap_or_else(ours),
        Some(told) => told.completed_by(ours()),
        None => defaults.usage.clone().unwrap_or_else(ours),
    };
    let mut fields = object(written).unwrap_or_default();
    let counts = [
        ("prompt_tokens", usage.prompt_tokens),
        ("completion_tokens", usage.completion_tokens),
        ("total_tokens", usage.total_tokens),
    ];
    fields.extend(counts.map(|(name, count)| (name.to_owned(), count.into())));
    if usage.estimated {
        fields.insert("estimated".into(), true.into());
    } else if fields.get("estimated") != Some(&true.into()) {
        fields.remove("estimated");
    }
    fields.into()
}

/// Approximate bytes of text that the model wrote.
fn bytes(choice: &Value) -> u64 {
    let message = &choice["message"];
    let texts = ["content", "refusal", "reasoning_content", "reasoning"]
        .map(|name| message[name].as_str().unwrap_or_default().len());
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let called = calls.map(|call| &call["function"]).chain([&message["function_call"]]);
    let called = called.map(|call| {
        ["name", "arguments"].map(|name| call[name].as_str().unwrap_or_default().len())
    });
    (texts.iter().sum::<usize>() + called.flatten().sum::<usize>()) as u64
}

#[cfg(test)]
#[path = "completion_tests.rs"]
mod tests;
