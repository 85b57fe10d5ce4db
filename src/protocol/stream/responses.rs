//! Events of a Responses stream (OpenAI), and the one response that a recorded one amounts to.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::sse::{self, Fields};
use super::super::usage::Told;
use super::{Look, Seen, StreamError, extend, inside, is_empty, read_error, unread};

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    sequence_number: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
}

/// What an event's data is.
pub(super) fn look(fields: &Fields<'_>, data: &[u8]) -> Look {
    if data.trim_ascii() == b"[DONE]" {
        return Seen::Done.into();
    }
    let Ok(event) = serde_json::from_slice::<Data<'_>>(data) else { return unread(fields, data) };
    let named = || fields.name.and_then(|name| std::str::from_utf8(name).ok());
    let kind = event.kind.as_deref().or_else(named).unwrap_or_default();
    let number = event.sequence_number.and_then(|number| number.get().parse().ok());
    let look = match kind {
        "response.completed" | "response.incomplete" => ended(Seen::Done, event.response),
        "response.failed" => {
            let error = event.response.and_then(read_response).and_then(|response| response.error);
            ended(
                Seen::Error(error.map_or_else(unexplained, |error| read_error(error.get()))),
                event.response,
            )
        }
        "error" => Seen::Error(error(&event, data)).into(),
        // Servers that speak this protocol beside chat completions write errors as there.
        "" if event.error.is_some() => Seen::Error(error(&event, data)).into(),
        "response.output_item.added" | "response.output_item.done" => {
            match event.item.is_some_and(is_shell) {
                true => Seen::Preamble.into(),
                false => Seen::Content.into(),
            }
        }
        _ if kind.ends_with(".delta") => match event.delta {
            Some(delta) if is_empty(delta.get()) => Seen::Preamble.into(),
            delta => Look {
                bytes: delta.map_or(0, |delta| written(kind, delta)),
                ..Seen::Content.into()
            },
        },
        _ if is_preamble(kind) => Seen::Preamble.into(),
        _ if is_content(kind) => Seen::Content.into(),
        _ => Seen::Other.into(),
    };
    Look { number, ..look }
}

/// Events that say that work goes on, and nothing of its result.
fn is_preamble(kind: &str) -> bool {
    let beginnings = ["response.created", "response.queued", "response.in_progress"];
    let parts = ["response.content_part.added", "response.reasoning_summary_part.added"];
    beginnings.contains(&kind)
        || parts.contains(&kind)
        || kind.starts_with("response.mcp_list_tools.")
}

/// Events of parts that are finished, of pictures on their way, and of tools that the model has set to work.
fn is_content(kind: &str) -> bool {
    let finished = kind.ends_with(".done") || kind.ends_with(".annotation.added");
    kind.starts_with("response.") && (finished || kind.contains("_call."))
}

/// An item that has yet to be written, or that the model had no part in.
fn is_shell(item: &RawValue) -> bool {
    let Ok(item) = serde_json::from_str::<Item<'_>>(item.get()) else { return false };
    let empty = [item.content, item.summary].into_iter().flatten().all(|part| is_empty(part.get()));
    match item.kind.as_deref() {
        Some("message" | "reasoning") => empty,
        Some(kind) => kind == "mcp_list_tools",
        None => false,
    }
}

/// About what the model wrote: sound and pictures are no text.
fn written(kind: &str, delta: &RawValue) -> u64 {
    if kind.contains(".audio.") { 0 } else { inside(delta.get()) }
}

fn read_response(raw: &RawValue) -> Option<Response<'_>> {
    serde_json::from_str(raw.get()).ok()
}

fn ended(seen: Seen, response: Option<&RawValue>) -> Look {
    let told =
        response.and_then(read_response).and_then(|response| Told::read(response.usage?.get()));
    Look { told, all_told: true, ..seen.into() }
}

fn error(event: &Data<'_>, data: &[u8]) -> StreamError {
    event
        .error
        .map_or_else(|| read_error(&String::from_utf8_lossy(data)), |error| read_error(error.get()))
}

fn unexplained() -> StreamError {
    StreamError { message: "The response failed.".into(), status: None }
}

/// Whether an event that begins like this is the last of its stream: those repeat the whole answer, pictures and all.
pub(super) fn is_end(start: &[u8]) -> bool {
    let fields = sse::fields(start);
    let ends = [&b"response.completed"[..], b"response.incomplete"];
    let data = fields.data.as_deref().unwrap_or_default();
    match fields.name {
        Some(name) => ends.contains(&name),
        None => ends.iter().any(|end| memchr::memmem::find(data, end).is_some()),
    }
}

/// A response in the making.
#[derive(Default)]
pub(super) struct Parts {
    response: Map<String, Value>,
    items: BTreeMap<u64, Map<String, Value>>,
    error: Option<Value>,
}

impl Parts {
    pub(super) fn take(&mut self, mut event: Map<String, Value>) {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(Value::Object(response)) = event.remove("response") {
            // The last one holds all that came before it.
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
            // What is done is there already, piece by piece; or comes again with its item.
            _ => {}
        }
    }

    pub(super) fn whole(mut self) -> Value {
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

/// The place `at` of a list within an item; none where places before it are missing.
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
