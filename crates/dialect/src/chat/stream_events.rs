//! Events of a chat completion stream, and the answer that they make.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::stream::event::{
    EventFacts, EventKind, inside, is_empty, place_of_text, read_error, unread,
};
use super::super::stream::merge::{each_object, extend, merge};
use super::super::usage_object::PartialUsage;
use crate::wire::sse::SseFields;

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ChatChunk<'a> {
    error: Option<&'a RawValue>,
    choices: Option<Vec<ChunkChoice<'a>>>,
    usage: Option<&'a RawValue>,
    service_tier: Option<&'a RawValue>,
    /// Groq reports its usage here.
    x_groq: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct GroqExtension<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ChunkChoice<'a> {
    index: Option<&'a RawValue>,
    finish_reason: Option<&'a RawValue>,
    delta: Option<ChatDelta<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ChatDelta<'a> {
    content: Option<&'a RawValue>,
    refusal: Option<&'a RawValue>,
    reasoning: Option<&'a RawValue>,
    reasoning_content: Option<&'a RawValue>,
    tool_calls: Option<&'a RawValue>,
    function_call: Option<&'a RawValue>,
    audio: Option<&'a RawValue>,
    images: Option<&'a RawValue>,
}

/// Classifies an event by its data.
pub(crate) fn look(fields: &SseFields<'_>, data: &[u8]) -> EventFacts {
    if data.trim_ascii() == b"[DONE]" {
        return EventKind::Done.into();
    }
    let Ok(chunk) = serde_json::from_slice::<ChatChunk<'_>>(data) else {
        return unread(fields, data);
    };
    let groq = || serde_json::from_str::<GroqExtension<'_>>(chunk.x_groq?.get()).ok()?.usage;
    let usage = chunk.usage.or_else(groq);
    let told = PartialUsage::of_event(usage, chunk.service_tier);
    let choices = chunk.choices.unwrap_or_default();
    let finished = choices.iter().any(|choice| choice.finish_reason.is_some());
    let begun = choices.iter().fold(0, |bits, choice| bits | choice.bit());
    let ended = choices
        .iter()
        .filter(|choice| choice.finish_reason.is_some())
        .fold(0, |bits, choice| bits | choice.bit());
    let deltas = || choices.iter().filter_map(|choice| choice.delta.as_ref());
    let bytes = deltas().map(ChatDelta::bytes).sum();
    let seen = if let Some(error) = chunk.error {
        EventKind::Error(read_error(error.get()))
    } else if fields.name == Some(b"error") {
        EventKind::Error(read_error(&String::from_utf8_lossy(data)))
    } else if finished || deltas().any(ChatDelta::says_something) {
        EventKind::Content
    } else if usage.is_some() && told.is_some() && choices.is_empty() {
        EventKind::Usage
    } else {
        EventKind::Preamble
    };
    // Some providers report the usage so far in every chunk.
    let all_told = finished || choices.is_empty() || matches!(seen, EventKind::Error(_));
    let text = match choices.as_slice() {
        [ChunkChoice { delta: Some(delta), .. }] => place_of_text(delta.text(), data),
        _ => None,
    };
    EventFacts { told, all_told, bytes, finished, choices: begun, ended, text, ..seen.into() }
}

impl ChunkChoice<'_> {
    /// The choice's bit in a set of indexes. No provider gives more than 128 answers at once.
    fn bit(&self) -> u128 {
        let index = self.index.and_then(|index| index.get().parse::<u32>().ok()).unwrap_or(0);
        1u128.checked_shl(index).unwrap_or(0)
    }
}

impl ChatDelta<'_> {
    fn parts(&self) -> impl Iterator<Item = &RawValue> {
        let texts = [self.content, self.refusal, self.reasoning, self.reasoning_content];
        let rest = [self.tool_calls, self.function_call, self.audio, self.images];
        texts.into_iter().chain(rest).flatten()
    }

    fn thoughts(&self) -> Option<&RawValue> {
        self.reasoning.or(self.reasoning_content)
    }

    /// The text that changes from delta to delta.
    fn text(&self) -> Option<&RawValue> {
        self.content.filter(|content| !is_empty(content.get())).or_else(|| self.thoughts())
    }

    fn says_something(&self) -> bool {
        self.parts().any(|part| !is_empty(part.get()))
    }

    /// Approximate bytes of text that the model wrote: strings without quotes, names and arguments
    /// of calls.
    fn bytes(&self) -> u64 {
        let texts = [self.content, self.refusal, self.thoughts()];
        let text: u64 = texts.into_iter().flatten().map(|part| inside(part.get().len())).sum();
        let calls: Vec<CallDelta<'_>> = self
            .tool_calls
            .and_then(|calls| serde_json::from_str(calls.get()).ok())
            .unwrap_or_default();
        let arguments: usize =
            calls.iter().filter_map(|call| call.function.as_ref()).map(FunctionDelta::bytes).sum();
        let old: Option<FunctionDelta<'_>> =
            self.function_call.and_then(|call| serde_json::from_str(call.get()).ok());
        text + (arguments + old.as_ref().map_or(0, FunctionDelta::bytes)) as u64
    }
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct FunctionDelta<'a> {
    name: Option<Cow<'a, str>>,
    arguments: Option<Cow<'a, str>>,
}

impl FunctionDelta<'_> {
    fn bytes(&self) -> usize {
        [&self.name, &self.arguments].into_iter().flatten().map(|text| text.len()).sum()
    }
}

/// Assembles the answer of a recorded stream. An incomplete last event and log probabilities are
/// left out.
pub(crate) fn assemble(stream: &[u8]) -> Value {
    let mut parts = ChatAssembly::default();
    each_object(stream, |event| parts.take(event));
    parts.whole()
}

#[derive(Default)]
struct ChatAssembly {
    top: Map<String, Value>,
    choices: BTreeMap<u64, ChoiceAssembly>,
}

#[derive(Default)]
struct ChoiceAssembly {
    message: Map<String, Value>,
    calls: BTreeMap<u64, Map<String, Value>>,
    finish_reason: Value,
}

impl ChatAssembly {
    fn take(&mut self, chunk: Map<String, Value>) {
        for (name, value) in chunk {
            match name.as_str() {
                "id" | "model" | "created" | "system_fingerprint" | "service_tier"
                    if !value.is_null() =>
                {
                    self.top.entry(name).or_insert(value);
                }
                "usage" | "error" if !value.is_null() => {
                    self.top.insert(name, value);
                }
                "choices" => {
                    let Value::Array(choices) = value else { continue };
                    for mut choice in choices {
                        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
                        let made = self.choices.entry(index).or_default();
                        if let Some(reason) = choice
                            .get_mut("finish_reason")
                            .map(Value::take)
                            .filter(|reason| !reason.is_null())
                        {
                            made.finish_reason = reason;
                        }
                        if let Some(Value::Object(delta)) = choice.get_mut("delta").map(Value::take)
                        {
                            made.add(delta);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn whole(mut self) -> Value {
        let mut take = |name: &str, other: Value| self.top.remove(name).unwrap_or(other);
        let mut whole = Map::new();
        whole.insert("id".into(), take("id", Value::Null));
        whole.insert("object".into(), "chat.completion".into());
        whole.insert("created".into(), take("created", Value::Null));
        whole.insert("model".into(), take("model", Value::Null));
        let choices: Vec<Value> =
            self.choices.into_iter().map(|(index, made)| made.whole(index)).collect();
        whole.insert("choices".into(), choices.into());
        whole.append(&mut self.top);
        whole.into()
    }
}

impl ChoiceAssembly {
    fn add(&mut self, delta: Map<String, Value>) {
        for (name, value) in delta {
            match (name.as_str(), value) {
                (_, Value::Null) => {
                    self.message.entry(name).or_insert(Value::Null);
                }
                ("tool_calls", Value::Array(calls)) => {
                    for call in calls {
                        self.add_call(call);
                    }
                }
                (
                    "content" | "refusal" | "reasoning" | "reasoning_content",
                    value @ (Value::String(_) | Value::Array(_)),
                ) => {
                    extend(self.message.entry(name).or_insert(Value::Null), value);
                }
                ("function_call" | "audio", Value::Object(fields)) => {
                    let before = self.message.entry(name).or_insert_with(|| json!({}));
                    if let Value::Object(before) = before {
                        merge(before, fields, &["arguments", "data", "transcript"]);
                    }
                }
                (_, Value::Array(more)) => {
                    extend(self.message.entry(name).or_insert(Value::Null), more.into())
                }
                (_, value) => {
                    self.message.insert(name, value);
                }
            }
        }
    }

    fn add_call(&mut self, call: Value) {
        let Value::Object(mut call) = call else { return };
        // Without an index, a call with a new id is another call.
        let known = call.get("index").and_then(Value::as_u64);
        let last = self.calls.last_key_value().map(|(index, _)| *index);
        let index = match (known, last) {
            (Some(index), _) => index,
            (None, None) => 0,
            (None, Some(last)) => {
                last.saturating_add(u64::from(call.get("id").is_some_and(Value::is_string)))
            }
        };
        call.remove("index");
        let function = call.remove("function");
        let made = self.calls.entry(index).or_default();
        merge(made, call, &[]);
        if let Some(Value::Object(function)) = function
            && let Value::Object(before) = made.entry("function").or_insert_with(|| json!({}))
        {
            merge(before, function, &["arguments"]);
        }
    }

    fn whole(mut self, index: u64) -> Value {
        let mut message = Map::new();
        message.insert(
            "role".into(),
            self.message.remove("role").unwrap_or_else(|| "assistant".into()),
        );
        message.insert("content".into(), self.message.remove("content").unwrap_or(Value::Null));
        message.append(&mut self.message);
        if !self.calls.is_empty() {
            let calls: Vec<Value> = self.calls.into_values().map(Value::from).collect();
            message.insert("tool_calls".into(), calls.into());
        }
        json!({ "index": index, "message": message, "finish_reason": self.finish_reason })
    }
}
