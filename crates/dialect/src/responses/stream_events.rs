//! Events of a Responses stream (OpenAI), and the response that they make.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::stream::event::{
    EventFacts, EventKind, StreamError, inside, is_empty, read_error, unread,
};
use super::super::stream::merge::{each_object, extend};
use super::super::usage_object::PartialUsage;
use super::searches::searches;
use crate::wire::sse::{self, SseFields};

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ResponseEvent<'a> {
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    sequence_number: Option<&'a RawValue>,
    response: Option<&'a RawValue>,
    item: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ResponseObject<'a> {
    usage: Option<&'a RawValue>,
    service_tier: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct OutputItem<'a> {
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    content: Option<&'a RawValue>,
    summary: Option<&'a RawValue>,
}

/// Classifies an event by its data.
pub(crate) fn look(fields: &SseFields<'_>, data: &[u8]) -> EventFacts {
    if data.trim_ascii() == b"[DONE]" {
        return EventKind::Done.into();
    }
    let Ok(event) = serde_json::from_slice::<ResponseEvent<'_>>(data) else {
        return unread(fields, data);
    };
    let named = || fields.name.and_then(|name| std::str::from_utf8(name).ok());
    let kind = event.kind.as_deref().or_else(named).unwrap_or_default();
    let number = event.sequence_number.and_then(|number| number.get().parse().ok());
    let look = match kind {
        "response.completed" | "response.incomplete" => ended(EventKind::Done, event.response),
        "response.failed" => {
            let error = event.response.and_then(read_response).and_then(|response| response.error);
            ended(
                EventKind::Error(error.map_or_else(unexplained, |error| read_error(error.get()))),
                event.response,
            )
        }
        "error" => EventKind::Error(error(&event, data)).into(),
        // Servers that also have chat completions write errors in that dialect's form.
        "" if event.error.is_some() => EventKind::Error(error(&event, data)).into(),
        "response.output_item.added" | "response.output_item.done" => {
            match event.item.is_some_and(is_shell) {
                true => EventKind::Preamble.into(),
                false => EventKind::Content.into(),
            }
        }
        _ if kind.ends_with(".delta") => match event.delta {
            Some(delta) if is_empty(delta.get()) => EventKind::Preamble.into(),
            delta => EventFacts {
                bytes: delta.map_or(0, |delta| written(kind, delta)),
                ..EventKind::Content.into()
            },
        },
        _ if is_preamble(kind) => EventKind::Preamble.into(),
        _ if is_content(kind) => EventKind::Content.into(),
        _ => EventKind::Other.into(),
    };
    EventFacts { number, ..look }
}

/// Whether the event only reports progress.
fn is_preamble(kind: &str) -> bool {
    let beginnings = ["response.created", "response.queued", "response.in_progress"];
    let parts = ["response.content_part.added", "response.reasoning_summary_part.added"];
    beginnings.contains(&kind)
        || parts.contains(&kind)
        || kind.starts_with("response.mcp_list_tools.")
}

/// Whether the event is about a finished part, a partial image, or a running tool.
fn is_content(kind: &str) -> bool {
    let finished = kind.ends_with(".done") || kind.ends_with(".annotation.added");
    kind.starts_with("response.") && (finished || kind.contains("_call."))
}

/// Whether an item is empty or not written by the model.
fn is_shell(item: &RawValue) -> bool {
    let Ok(item) = serde_json::from_str::<OutputItem<'_>>(item.get()) else { return false };
    let empty = [item.content, item.summary].into_iter().flatten().all(|part| is_empty(part.get()));
    match item.kind.as_deref() {
        Some("message" | "reasoning") => empty,
        Some(kind) => kind == "mcp_list_tools",
        None => false,
    }
}

/// Approximate bytes of text that the model wrote; 0 for audio.
fn written(kind: &str, delta: &RawValue) -> u64 {
    if kind.contains(".audio.") { 0 } else { inside(delta.get().len()) }
}

fn read_response(raw: &RawValue) -> Option<ResponseObject<'_>> {
    serde_json::from_str(raw.get()).ok()
}

fn ended(seen: EventKind, response: Option<&RawValue>) -> EventFacts {
    let mut told = response
        .and_then(read_response)
        .and_then(|response| PartialUsage::of_event(response.usage, response.service_tier));
    if let Some((told, response)) = told.as_mut().zip(response) {
        told.count_searches(searches(response.get().as_bytes()));
    }
    EventFacts { told, all_told: true, ..seen.into() }
}

fn error(event: &ResponseEvent<'_>, data: &[u8]) -> StreamError {
    event
        .error
        .map_or_else(|| read_error(&String::from_utf8_lossy(data)), |error| read_error(error.get()))
}

fn unexplained() -> StreamError {
    StreamError { message: "The response failed.".into(), status: None }
}

/// Whether an oversized event with this beginning ends its stream. Such events repeat the answer.
pub(crate) fn is_end(start: &[u8]) -> bool {
    let fields = sse::fields(start);
    let ends = [&b"response.completed"[..], b"response.incomplete"];
    let data = fields.data.as_deref().unwrap_or_default();
    match fields.name {
        Some(name) => ends.contains(&name),
        None => ends.iter().any(|end| memchr::memmem::find(data, end).is_some()),
    }
}

/// Assembles the answer of a recorded stream.
pub(crate) fn assemble(stream: &[u8]) -> Value {
    let mut parts = ResponseAssembly::default();
    each_object(stream, |event| parts.take(event));
    parts.whole()
}

#[derive(Default)]
struct ResponseAssembly {
    response: Map<String, Value>,
    items: BTreeMap<u64, Map<String, Value>>,
    error: Option<Value>,
}

impl ResponseAssembly {
    fn take(&mut self, mut event: Map<String, Value>) {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(Value::Object(response)) = event.remove("response") {
            // The last response contains all earlier ones.
            self.response = response;
            return;
        }
        let index = event.get("output_index").and_then(Value::as_u64).unwrap_or(0);
        match kind.as_str() {
            "response.output_item.added" | "response.output_item.done" => {
                if let Some(Value::Object(item)) = event.remove("item") {
                    self.items.insert(index, item);
                }
            }
            "error" => {
                let error = event.remove("error").unwrap_or_else(|| {
                    event.retain(|name, _| !matches!(name.as_str(), "type" | "sequence_number"));
                    event.into()
                });
                self.error.get_or_insert(error);
            }
            _ => self.take_part(&kind, index, event),
        }
    }

    fn take_part(&mut self, kind: &str, index: u64, mut event: Map<String, Value>) {
        let Some(item) = self.items.get_mut(&index) else { return };
        let at = |name: &str| {
            event
                .get(name)
                .and_then(Value::as_u64)
                .and_then(|at| usize::try_from(at).ok())
                .unwrap_or(0)
        };
        let (content, summary) = (at("content_index"), at("summary_index"));
        let mut take = |name: &str| event.remove(name).unwrap_or_default();
        match kind {
            "response.content_part.added" | "response.content_part.done" => {
                put(item, "content", content, take("part"))
            }
            "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done" => {
                put(item, "summary", summary, take("part"))
            }
            "response.output_text.delta" => append(item, "content", content, "text", take("delta")),
            "response.output_text.annotation.added" => {
                append(item, "content", content, "annotations", vec![take("annotation")].into());
            }
            "response.refusal.delta" => append(item, "content", content, "refusal", take("delta")),
            "response.reasoning_text.delta" => {
                append(item, "content", content, "text", take("delta"))
            }
            "response.reasoning_summary_text.delta" => {
                append(item, "summary", summary, "text", take("delta"))
            }
            "response.function_call_arguments.delta" | "response.mcp_call_arguments.delta" => {
                add(item, "arguments", take("delta"))
            }
            "response.custom_tool_call_input.delta" => add(item, "input", take("delta")),
            "response.code_interpreter_call_code.delta" => add(item, "code", take("delta")),
            // Finished parts are known from deltas, or are repeated with their item.
            _ => {}
        }
    }

    fn whole(mut self) -> Value {
        let told = self
            .response
            .get("output")
            .and_then(Value::as_array)
            .is_some_and(|output| !output.is_empty());
        if !told && !self.items.is_empty() {
            let output: Vec<Value> = self.items.into_values().map(Value::from).collect();
            self.response.insert("output".into(), output.into());
        }
        if let Some(error) = self.error {
            self.response.insert("error".into(), error);
        }
        self.response.into()
    }
}

fn add(fields: &mut Map<String, Value>, name: &str, more: Value) {
    extend(fields.entry(name).or_insert(Value::Null), more);
}

/// The element at index `at` of an item's list; `None` if earlier elements are missing.
fn place<'a>(item: &'a mut Map<String, Value>, list: &str, at: usize) -> Option<&'a mut Value> {
    let places = item.entry(list).or_insert_with(|| json!([]));
    if !places.is_array() {
        *places = json!([]);
    }
    let places = places.as_array_mut()?;
    if places.len() == at {
        places.push(json!({}));
    }
    places.get_mut(at)
}

fn put(item: &mut Map<String, Value>, list: &str, at: usize, part: Value) {
    if let Some(place) = place(item, list, at) {
        *place = part;
    }
}

fn append(item: &mut Map<String, Value>, list: &str, at: usize, name: &str, more: Value) {
    if let Some(Value::Object(part)) = place(item, list, at) {
        add(part, name, more);
    }
}
