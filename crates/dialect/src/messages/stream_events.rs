//! Events of a Messages stream (Anthropic), and the message that they make.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::stream::event::{
    EventFacts, EventKind, inside, is_empty, place_of_text, read_error, unread,
};
use super::super::stream::merge::{each_object, extend};
use super::super::usage_object::PartialUsage;
use crate::wire::sse::SseFields;

#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct MessageEvent<'a> {
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    message: Option<&'a RawValue>,
    content_block: Option<&'a RawValue>,
    delta: Option<&'a RawValue>,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// A `message`, `content_block` or `delta` object of an event.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct InnerObject<'a> {
    #[serde(rename = "type")]
    kind: Option<Cow<'a, str>>,
    usage: Option<&'a RawValue>,
    text: Option<&'a RawValue>,
    thinking: Option<&'a RawValue>,
    partial_json: Option<&'a RawValue>,
    signature: Option<&'a RawValue>,
    citation: Option<&'a RawValue>,
    stop_reason: Option<&'a RawValue>,
}

impl InnerObject<'_> {
    /// Texts that the model wrote.
    fn written(&self) -> impl Iterator<Item = &RawValue> {
        [self.text, self.thinking, self.partial_json]
            .into_iter()
            .flatten()
            .filter(|part| !is_empty(part.get()))
    }

    fn bytes(&self) -> u64 {
        self.written().map(|part| inside(part.get().len())).sum()
    }
}

/// Classifies an event by its data.
pub(crate) fn look(fields: &SseFields<'_>, data: &[u8]) -> EventFacts {
    let Ok(event) = serde_json::from_slice::<MessageEvent<'_>>(data) else {
        return unread(fields, data);
    };
    let named = || fields.name.and_then(|name| std::str::from_utf8(name).ok());
    let kind = event.kind.as_deref().or_else(named).unwrap_or_default();
    match kind {
        "message_start" => {
            let told = read(event.message).and_then(|message| message.told);
            EventFacts { told: told.map(Box::new), ..EventKind::Preamble.into() }
        }
        "content_block_start" => match read(event.content_block) {
            Some(block) if block.is_shell => EventKind::Preamble.into(),
            block => EventFacts {
                bytes: block.map_or(0, |block| block.bytes),
                ..EventKind::Content.into()
            },
        },
        "content_block_delta" => match read(event.delta) {
            Some(delta) if delta.is_empty => EventKind::Preamble.into(),
            delta => EventFacts {
                bytes: delta.as_ref().map_or(0, |delta| delta.bytes),
                text: delta.and_then(|delta| place_of_text(delta.text, data)),
                ..EventKind::Content.into()
            },
        },
        "message_delta" => {
            let told = event.usage.and_then(|usage| PartialUsage::read(usage.get()));
            let stops = read(event.delta).is_some_and(|delta| delta.stops);
            let seen = if stops { EventKind::Content } else { EventKind::Preamble };
            EventFacts { told: told.map(Box::new), all_told: stops, ..seen.into() }
        }
        "message_stop" => EventKind::Done.into(),
        "ping" | "content_block_stop" => EventKind::Preamble.into(),
        "error" => EventKind::Error(read_error(
            event
                .error
                .map_or_else(|| String::from_utf8_lossy(data), |error| error.get().into())
                .as_ref(),
        ))
        .into(),
        _ => EventKind::Other.into(),
    }
}

fn read(raw: Option<&RawValue>) -> Option<InnerFacts<'_>> {
    let inner = serde_json::from_str::<InnerObject<'_>>(raw?.get()).ok()?;
    Some(InnerFacts::of(inner))
}

/// The facts of an inner object.
struct InnerFacts<'a> {
    told: Option<PartialUsage>,
    bytes: u64,
    /// Whether it starts a block of text or thinking that is still empty.
    is_shell: bool,
    /// Whether it is a delta that adds nothing.
    is_empty: bool,
    stops: bool,
    /// The text, thinking or partial JSON of a delta.
    text: Option<&'a RawValue>,
}

impl<'a> InnerFacts<'a> {
    fn of(inner: InnerObject<'a>) -> Self {
        let known =
            [inner.text, inner.thinking, inner.partial_json, inner.signature, inner.citation];
        let any = known.iter().any(Option::is_some);
        let empty = known.into_iter().flatten().all(|part| is_empty(part.get()));
        InnerFacts {
            told: inner.usage.and_then(|usage| PartialUsage::read(usage.get())),
            bytes: inner.bytes(),
            is_shell: empty && matches!(inner.kind.as_deref(), Some("text" | "thinking")),
            is_empty: any && empty,
            stops: inner.stop_reason.is_some(),
            text: inner.text.or(inner.thinking).or(inner.partial_json),
        }
    }
}

/// Assembles the answer of a recorded stream.
pub(crate) fn assemble(stream: &[u8]) -> Value {
    let mut parts = MessageAssembly::default();
    each_object(stream, |event| parts.take(event));
    parts.whole()
}

#[derive(Default)]
struct MessageAssembly {
    message: Map<String, Value>,
    blocks: BTreeMap<u64, BlockAssembly>,
    error: Option<Value>,
}

#[derive(Default)]
struct BlockAssembly {
    fields: Map<String, Value>,
    /// The JSON of a tool's input, as far as it has arrived.
    input: String,
}

impl MessageAssembly {
    fn take(&mut self, mut event: Map<String, Value>) {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let index = event.get("index").and_then(Value::as_u64).unwrap_or(0);
        match (kind.as_str(), event.remove("delta")) {
            ("message_start", _) => {
                if let Some(Value::Object(message)) = event.remove("message") {
                    self.message = message;
                }
            }
            ("content_block_start", _) => {
                if let Some(Value::Object(fields)) = event.remove("content_block") {
                    self.blocks.insert(index, BlockAssembly { fields, input: String::new() });
                }
            }
            ("content_block_delta", Some(Value::Object(delta))) => {
                self.blocks.entry(index).or_default().add(delta)
            }
            ("message_delta", delta) => {
                if let Some(Value::Object(delta)) = delta {
                    self.message.extend(delta);
                }
                if let (Some(Value::Object(later)), Some(Value::Object(usage))) =
                    (event.remove("usage"), self.message.get_mut("usage"))
                {
                    usage.extend(later);
                }
                // Members beside `delta`, such as `context_management`.
                self.message.extend(event.into_iter().filter(|(name, _)| name != "type"));
            }
            ("error", _) => self.error = event.remove("error").or(self.error.take()),
            _ => {}
        }
    }

    fn whole(mut self) -> Value {
        let before = match self.message.get_mut("content").map(Value::take) {
            Some(Value::Array(content)) => content,
            _ => Vec::new(),
        };
        let content =
            before.into_iter().chain(self.blocks.into_values().map(BlockAssembly::whole)).collect();
        self.message.insert("content".into(), content);
        if let Some(error) = self.error {
            self.message.insert("error".into(), error);
        }
        self.message.into()
    }
}

impl BlockAssembly {
    fn add(&mut self, delta: Map<String, Value>) {
        for (name, value) in delta {
            match (name.as_str(), value) {
                ("type", _) => {}
                ("partial_json", Value::String(more)) => self.input.push_str(&more),
                ("citation", citation) => {
                    extend(
                        self.fields.entry("citations").or_insert(Value::Null),
                        vec![citation].into(),
                    );
                }
                (_, value) => extend(self.fields.entry(name).or_insert(Value::Null), value),
            }
        }
    }

    /// Finishes the block. Its input becomes JSON, or a string if it was cut off.
    fn whole(mut self) -> Value {
        if !self.input.is_empty() {
            let input = serde_json::from_str(&self.input).unwrap_or_else(|_| self.input.into());
            self.fields.insert("input".into(), input);
        }
        self.fields.into()
    }
}
