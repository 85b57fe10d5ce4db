//! Reads streams of messages into neutral events.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::neutral::answer::StopReason;
use crate::neutral::event::{PartKind, StreamEvent, drop_if, dropped};
use crate::neutral::failure;
use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText, TextOrList};
use crate::neutral::open_parts::OpenParts;
use crate::neutral::seal;
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;
use crate::wire::sse::SSE_EVENT_BYTES;

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MessageStreamEvent<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
    index: JsonCount,
    message: Option<MessageBody<'a>>,
    content_block: Option<MessageBlock<'a>>,
    delta: Option<BlockDelta<'a>>,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct MessageBody<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
    id: JsonText<'a>,
    model: JsonText<'a>,
    content: TextOrList<'a, MessageBlock<'a>>,
    stop_reason: JsonText<'a>,
    stop_sequence: JsonText<'a>,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct MessageBlock<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
    text: JsonText<'a>,
    thinking: JsonText<'a>,
    signature: JsonText<'a>,
    data: JsonText<'a>,
    id: JsonText<'a>,
    name: JsonText<'a>,
    input: Option<&'a RawValue>,
    citations: JsonPresence,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct BlockDelta<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
    text: JsonText<'a>,
    thinking: JsonText<'a>,
    signature: JsonText<'a>,
    partial_json: JsonText<'a>,
    stop_reason: JsonText<'a>,
    stop_sequence: JsonText<'a>,
}

#[derive(Debug, Default)]
pub(crate) struct MessagesStreamReader {
    parts: OpenParts<u64>,
    usage: Box<PartialUsage>,
    /// The signature of the open thinking block, as far as it has arrived.
    signature: String,
}

impl MessagesStreamReader {
    /// Reads the data of an event.
    pub(crate) fn event(&mut self, data: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
        let Ok(event) = serde_json::from_str::<MessageStreamEvent<'_>>(data) else {
            return each(StreamEvent::Failed(failure::unreadable()));
        };
        let index = event.index.0.unwrap_or(0);
        match (&*event.kind, &event.message, &event.content_block, &event.delta) {
            ("content_block_delta", _, _, Some(delta)) => self.delta(index, delta, each),
            ("content_block_start", _, Some(block), _) => self.block(index, block, each),
            ("content_block_stop", ..) => self.stop(index, each),
            ("message_start", Some(message), ..) => self.start(message, each),
            ("message_delta", _, _, delta) => {
                if let Some(later) = event.usage.and_then(|usage| PartialUsage::read(usage.get())) {
                    self.usage.update(later);
                    each(StreamEvent::Usage(self.usage.token_counts()));
                }
                if let Some(stop) = delta
                    .as_ref()
                    .and_then(|delta| stop_reason(&delta.stop_reason, &delta.stop_sequence))
                {
                    each(StreamEvent::Stop(stop));
                }
            }
            ("message_stop", ..) => {
                self.parts.end_all(each);
                each(StreamEvent::End);
            }
            ("error", ..) => {
                let raw = event.error.map_or(data, RawValue::get);
                each(StreamEvent::Failed(failure::read_in_band(raw)));
            }
            _ => {}
        }
    }

    /// Bytes of the signature that has not fully arrived.
    pub(crate) fn held(&self) -> usize {
        self.signature.len()
    }

    pub(super) fn whole(
        &mut self,
        message: &MessageBody<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        if let Some(error) = message.error.filter(|_| message.kind.0 == "error") {
            return each(StreamEvent::Failed(failure::read_in_band(error.get())));
        }
        self.start(message, each);
        match &message.content {
            TextOrList::Nothing => {}
            // Some servers write a plain text as content.
            TextOrList::Text(text) => self.parts.text(0, PartKind::Text, text, each),
            TextOrList::List(blocks) => {
                for (index, block) in (0..).zip(blocks) {
                    self.block(index, block, each);
                    self.stop(index, each);
                }
            }
        }
        self.parts.end_all(each);
        let stop = stop_reason(&message.stop_reason, &message.stop_sequence);
        // The document is complete, so the answer is too. Clients need a stop reason.
        each(StreamEvent::Stop(stop.unwrap_or(StopReason::End)));
        each(StreamEvent::End);
    }

    fn start(&mut self, message: &MessageBody<'_>, each: &mut impl FnMut(StreamEvent<'_>)) {
        let told = message.usage.and_then(|usage| PartialUsage::read(usage.get()));
        let usage = told.as_ref().map(PartialUsage::token_counts);
        *self.usage = told.unwrap_or_default();
        each(StreamEvent::Start { id: &message.id, model: &message.model, created: 0, usage });
    }

    fn block(
        &mut self,
        index: u64,
        block: &MessageBlock<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        match &*block.kind {
            "text" => {
                self.parts.text(index, PartKind::Text, &block.text, each);
                drop_if(block.citations.0, dropped::CITATIONS, each);
            }
            "thinking" => {
                self.parts.text(index, PartKind::Thinking, &block.thinking, each);
                self.sign(&block.signature, each);
            }
            "redacted_thinking" => {
                let value = json!({ "redacted": &*block.data });
                self.parts.seal(index, Seal { dialect: seal::MESSAGES, value }, each);
            }
            "tool_use" => {
                let call = PartKind::ToolCall { id: &block.id, name: &block.name };
                self.parts.start(index, call, each);
                // The input is empty if deltas with it follow.
                let input = block.input.map_or("{}", RawValue::get);
                if !is_empty_object(input) {
                    self.parts.arguments(index, input, each);
                }
            }
            "container_upload" | "fallback" => {}
            _ => each(StreamEvent::Dropped(dropped::SERVER_TOOLS)),
        }
    }

    fn delta(
        &mut self,
        index: u64,
        delta: &BlockDelta<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        match &*delta.kind {
            "text_delta" => self.parts.text(index, PartKind::Text, &delta.text, each),
            "thinking_delta" => self.parts.text(index, PartKind::Thinking, &delta.thinking, each),
            "input_json_delta" => self.parts.arguments(index, &delta.partial_json, each),
            "signature_delta" => self.sign(&delta.signature, each),
            "citations_delta" => each(StreamEvent::Dropped(dropped::CITATIONS)),
            _ => {}
        }
    }

    fn sign(&mut self, more: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
        self.signature.push_str(more);
        if self.signature.len() > SSE_EVENT_BYTES {
            self.signature.clear();
            each(StreamEvent::Failed(failure::too_long()));
        }
    }

    fn stop(&mut self, index: u64, each: &mut impl FnMut(StreamEvent<'_>)) {
        if !self.signature.is_empty() {
            let value = json!({ "signature": std::mem::take(&mut self.signature) });
            self.parts.seal(index, Seal { dialect: seal::MESSAGES, value }, each);
        }
        self.parts.end(index, each);
    }
}

fn is_empty_object(raw: &str) -> bool {
    let inside = raw.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}

fn stop_reason(word: &str, sequence: &str) -> Option<StopReason> {
    Some(match word {
        "" => return None,
        "max_tokens" | "model_context_window_exceeded" => StopReason::MaxTokens,
        "stop_sequence" => {
            StopReason::Sequence((!sequence.is_empty()).then(|| sequence.to_owned()))
        }
        "tool_use" => StopReason::ToolCalls,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Pause,
        _ => StopReason::End,
    })
}
