//! Reads streams of messages into neutral events.

use serde_json::json;
use serde_json::value::RawValue;

use crate::members::answer_object;
use crate::neutral::answer::{Citation, StopReason};
use crate::neutral::event::{
    Each, Lost, PartKind, ReadEvents, StreamEvent, Unreadable, tell_unknown,
};
use crate::neutral::failure;
use crate::neutral::json_text::{JsonCount, JsonText, TextOrList};
use crate::neutral::open_parts::OpenParts;
use crate::neutral::seal;
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;
use crate::wire::sse::SSE_EVENT_BYTES;

answer_object!(MessageStreamEvent, ["context_management"], {
    kind: JsonText<'a> = "type",
    index: JsonCount,
    message: Option<MessageBody<'a>>; JsonObject,
    content_block: Option<MessageBlock<'a>>; JsonObject,
    delta: Option<BlockDelta<'a>>; JsonObject,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
});
answer_object!(MessageBody, ["role", "container", "context_management"], {
    kind: JsonText<'a> = "type",
    id: JsonText<'a>,
    model: JsonText<'a>,
    content: TextOrList<'a, MessageBlock<'a>>,
    stop_reason: JsonText<'a>,
    stop_sequence: JsonText<'a>,
    stop_details: Option<StopDetails<'a>>; JsonObject,
    usage: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
});
answer_object!(StopDetails, ["type", "category"], { explanation: JsonText<'a>, });
answer_object!(MessageBlock, ["caller"], {
    kind: JsonText<'a> = "type",
    text: JsonText<'a>,
    thinking: JsonText<'a>,
    signature: JsonText<'a>,
    data: JsonText<'a>,
    id: JsonText<'a>,
    name: JsonText<'a>,
    input: Option<&'a RawValue>,
    citations: Option<Vec<MessageCitation<'a>>>; JsonList,
});
answer_object!(BlockDelta, ["container", "estimated_tokens"], {
    kind: JsonText<'a> = "type",
    text: JsonText<'a>,
    thinking: JsonText<'a>,
    signature: JsonText<'a>,
    partial_json: JsonText<'a>,
    citation: Option<MessageCitation<'a>>; JsonObject,
    stop_reason: JsonText<'a>,
    stop_sequence: JsonText<'a>,
    stop_details: Option<StopDetails<'a>>; JsonObject,
});
answer_object!(MessageCitation, ["type", "encrypted_index", "file_id"], {
    url: JsonText<'a>,
    source: JsonText<'a>,
    title: JsonText<'a>,
    cited_text: JsonText<'a>,
});

#[derive(Debug, Default)]
pub(crate) struct MessagesStreamReader {
    parts: OpenParts<u64>,
    usage: Box<PartialUsage>,
    /// The signature of the open thinking block, as far as it has arrived.
    signature: String,
}

impl ReadEvents for MessagesStreamReader {
    fn event(&mut self, name: &str, data: &str, each: Each<'_>) -> Result<(), Unreadable> {
        let event: MessageStreamEvent<'_> = serde_json::from_str(data).map_err(|_| Unreadable)?;
        let kind = if event.kind.is_empty() { name } else { &*event.kind };
        let index = event.index.0.unwrap_or(0);
        tell_unknown("", &event.others, each);
        match (kind, &event.message, &event.content_block, &event.delta) {
            ("content_block_delta", _, _, Some(delta)) => self.delta(index, delta, each),
            ("content_block_start", _, Some(block), _) => self.block(index, block, each),
            ("content_block_stop", ..) => self.stop(index, each),
            ("message_start", Some(message), ..) => self.start(message, each),
            ("message_delta", _, _, delta) => {
                let delta = delta.as_ref();
                let stop = delta.and_then(|delta| stop(&delta.stop_reason, &delta.stop_sequence));
                if let Some(later) = event.usage.and_then(|usage| PartialUsage::read(usage.get())) {
                    self.usage.update(later);
                    each(StreamEvent::Usage { told: &self.usage, is_final: stop.is_some() });
                }
                let details = delta.and_then(|delta| delta.stop_details.as_ref());
                self.stopped(stop, details, each);
                let others = delta.map_or(&[][..], |delta| &delta.others);
                tell_unknown("message_delta.", others, each);
            }
            ("message_stop", ..) => self.parts.finish(each),
            ("error", ..) => {
                let raw = event.error.map_or(data, RawValue::get);
                each(StreamEvent::Failed(failure::read_in_band(raw)));
                return Ok(());
            }
            ("ping", ..) => {}
            // Servers with several APIs write errors in another one's form.
            ("", ..) if event.error.is_some() => {
                each(StreamEvent::Failed(failure::read_in_band(data)));
            }
            _ => tell_unknown("event.", &[kind.into()], each),
        }
        Ok(())
    }

    /// Bytes of the signature that has not fully arrived.
    fn held(&self) -> usize {
        self.signature.len()
    }
}

/// Reads a whole message, whose blocks are complete from the start.
pub(crate) fn read_whole(body: &str, each: Each<'_>) -> Result<(), Unreadable> {
    let message: MessageBody<'_> = serde_json::from_str(body).map_err(|_| Unreadable)?;
    // Empty content is `[]`, with a reason for the end.
    let is_empty = message.content.text().is_empty() && message.content.list().is_empty();
    let is_answer = !is_empty || !message.stop_reason.is_empty() || message.usage.is_some();
    match message.error {
        Some(error) if message.kind.0 == "error" || !is_answer => {
            each(StreamEvent::Failed(failure::read_in_band(error.get())));
        }
        _ if is_answer => MessagesStreamReader::default().whole(&message, each),
        _ => return Err(Unreadable),
    }
    Ok(())
}

impl MessagesStreamReader {
    fn whole(&mut self, message: &MessageBody<'_>, each: Each<'_>) {
        self.start(message, each);
        self.content(message, each);
        let stop = stop(&message.stop_reason, &message.stop_sequence);
        // The document is complete, so the answer is too. Clients need a stop reason.
        let stop = Some(stop.unwrap_or(StopReason::End));
        self.stopped(stop, message.stop_details.as_ref(), each);
        self.parts.finish(each);
    }

    fn content(&mut self, message: &MessageBody<'_>, each: Each<'_>) {
        // Some servers write a plain text as content.
        self.parts.text(0, PartKind::Text, message.content.text(), each);
        for (index, block) in (0..).zip(message.content.list()) {
            self.block(index, block, each);
            self.stop(index, each);
        }
    }

    /// The provider's explanation of a refusal becomes a part.
    fn stopped(
        &mut self,
        stop: Option<StopReason>,
        details: Option<&StopDetails<'_>>,
        each: Each<'_>,
    ) {
        if let Some(details) = details {
            self.parts.end_all(each);
            self.parts.text(u64::MAX, PartKind::Refusal, &details.explanation, each);
            self.parts.end(u64::MAX, each);
            tell_unknown("stop_details.", &details.others, each);
        }
        if stop == Some(StopReason::Pause) {
            each(StreamEvent::Dropped(Lost::PausedTurn));
        }
        if let Some(stop) = stop {
            each(StreamEvent::Stop(stop));
        }
    }

    fn start(&mut self, message: &MessageBody<'_>, each: Each<'_>) {
        let told = message.usage.and_then(|usage| PartialUsage::read(usage.get()));
        let is_told = told.is_some();
        *self.usage = told.unwrap_or_default();
        let usage = is_told.then_some(&*self.usage);
        each(StreamEvent::Start { id: &message.id, model: &message.model, created: 0, usage });
        tell_unknown("message.", &message.others, each);
    }

    fn block(&mut self, index: u64, block: &MessageBlock<'_>, each: Each<'_>) {
        match &*block.kind {
            "text" => {
                self.parts.text(index, PartKind::Text, &block.text, each);
                for citation in block.citations.iter().flatten() {
                    self.cite(index, citation, each);
                }
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
            // All of the block is lost, its other members too.
            _ => return each(StreamEvent::Dropped(Lost::ServerTools)),
        }
        tell_unknown("content.", &block.others, each);
    }

    fn delta(&mut self, index: u64, delta: &BlockDelta<'_>, each: Each<'_>) {
        match &*delta.kind {
            "text_delta" => self.parts.text(index, PartKind::Text, &delta.text, each),
            "thinking_delta" => self.parts.text(index, PartKind::Thinking, &delta.thinking, each),
            // Of a provider's tool, nothing is open.
            "input_json_delta" => self.parts.arguments(index, &delta.partial_json, each),
            "signature_delta" => self.sign(&delta.signature, each),
            "citations_delta" => {
                if let Some(citation) = &delta.citation {
                    self.cite(index, citation, each);
                }
            }
            _ => each(StreamEvent::Dropped(Lost::ServerTools)),
        }
        tell_unknown("content.", &delta.others, each);
    }

    /// Adds a source on the web to the block. A place in a document of the request has no URL.
    fn cite(&mut self, index: u64, cited: &MessageCitation<'_>, each: Each<'_>) {
        let url = if cited.url.is_empty() { &cited.source } else { &cited.url };
        let citation = Citation {
            url: url.to_string(),
            title: cited.title.to_string(),
            quote: cited.cited_text.to_string(),
            span: None,
        };
        self.parts.cite(index, citation, each);
        if !url.is_empty() {
            tell_unknown("content.citations.", &cited.others, each);
        }
    }

    fn sign(&mut self, more: &str, each: Each<'_>) {
        self.signature.push_str(more);
        if !more.is_empty() {
            each(StreamEvent::Working);
        }
        if self.signature.len() > SSE_EVENT_BYTES {
            self.signature.clear();
            each(StreamEvent::TooLong);
        }
    }

    fn stop(&mut self, index: u64, each: Each<'_>) {
        let signature = std::mem::take(&mut self.signature);
        if !matches!(&*signature, "" | seal::NONE) {
            let value = json!({ "signature": signature });
            self.parts.seal(index, Seal { dialect: seal::MESSAGES, value }, each);
        }
        self.parts.end(index, each);
    }
}

fn is_empty_object(raw: &str) -> bool {
    let inside = raw.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}

fn stop(word: &str, sequence: &str) -> Option<StopReason> {
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
