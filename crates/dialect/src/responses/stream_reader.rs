//! Reads streams of responses into neutral events. Deltas are read as they arrive. Facts that
//! appear only at the end of an item or of the response are read there.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::neutral::answer::StopReason;
use crate::neutral::event::{PartKind, StreamEvent, drop_if, dropped};
use crate::neutral::failure;
use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText};
use crate::neutral::normalizer::ANSWER_PARTS;
use crate::neutral::open_parts::OpenParts;
use crate::neutral::seal;
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ResponseStreamEvent<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
    output_index: JsonCount,
    content_index: JsonCount,
    summary_index: JsonCount,
    delta: JsonText<'a>,
    item: Option<ResponseItem<'a>>,
    response: Option<ResponseBody<'a>>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(crate) struct ResponseBody<'a> {
    id: JsonText<'a>,
    model: JsonText<'a>,
    created_at: JsonCount,
    status: JsonText<'a>,
    incomplete_details: Option<IncompleteDetails<'a>>,
    error: Option<&'a RawValue>,
    output: Option<Vec<ResponseItem<'a>>>,
    usage: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct IncompleteDetails<'a> {
    reason: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ResponseItem<'a> {
    #[serde(rename = "type")]
    kind: JsonText<'a>,
    id: JsonText<'a>,
    call_id: JsonText<'a>,
    name: JsonText<'a>,
    arguments: JsonText<'a>,
    content: Option<Vec<OutputContent<'a>>>,
    summary: Option<Vec<OutputContent<'a>>>,
    encrypted_content: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct OutputContent<'a> {
    text: JsonText<'a>,
    refusal: JsonText<'a>,
    annotations: JsonPresence,
    logprobs: JsonPresence,
}

/// A part by the index of its item, and by its index in the item's content.
type PartKey = (u64, u64);

/// The state of an output item.
#[derive(Debug)]
struct ItemProgress {
    index: u64,
    id: String,
    done: bool,
    /// Indexes of the contents that have text, and of the last summary with text.
    contents: Vec<u64>,
    summary: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct ResponsesStreamReader {
    parts: OpenParts<PartKey>,
    items: Vec<ItemProgress>,
}

impl ResponsesStreamReader {
    /// Reads the data of an event.
    pub(crate) fn event(&mut self, data: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
        let Ok(event) = serde_json::from_str::<ResponseStreamEvent<'_>>(data) else {
            return each(StreamEvent::Failed(failure::unreadable()));
        };
        let index = event.output_index.0.unwrap_or(0);
        let content = event.content_index.0.unwrap_or(0);
        match (&*event.kind, &event.item, &event.response) {
            ("response.output_text.delta", ..) => {
                self.text(index, content, PartKind::Text, &event.delta, each);
            }
            ("response.refusal.delta", ..) => {
                self.text(index, content, PartKind::Refusal, &event.delta, each);
            }
            ("response.function_call_arguments.delta", ..) => {
                self.text(index, 0, PartKind::ToolCall { id: "", name: "" }, &event.delta, each);
            }
            ("response.reasoning_summary_text.delta" | "response.reasoning_text.delta", ..) => {
                let piece = event.summary_index.0.unwrap_or(content);
                self.thought(index, piece, &event.delta, each);
            }
            ("response.output_item.added", Some(item), _) => self.added(index, item, each),
            ("response.output_item.done", Some(item), _) => self.item_done(index, item, each),
            ("response.created", _, Some(response)) => self.start(response, each),
            (
                "response.completed"
                | "response.incomplete"
                | "response.failed"
                | "response.cancelled",
                _,
                Some(response),
            ) => self.finish(response, each),
            ("error", ..) => {
                let raw = event.error.map_or(data, RawValue::get);
                each(StreamEvent::Failed(failure::read_in_band(raw)));
            }
            _ => {}
        }
    }

    pub(super) fn start(
        &mut self,
        response: &ResponseBody<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        each(StreamEvent::Start {
            id: &response.id,
            model: &response.model,
            created: response.created_at.0.unwrap_or(0),
            usage: None,
        });
    }

    /// Reads the final response: the items that no event contained, and the reason for the end.
    pub(super) fn finish(
        &mut self,
        response: &ResponseBody<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        if let Some(error) = response.error.filter(|error| error.get() != "null") {
            return each(StreamEvent::Failed(failure::read_in_band(error.get())));
        }
        for (index, item) in (0..).zip(response.output.iter().flatten()) {
            if !self.items.iter().any(|known| known.done && known.is(index, &item.id)) {
                self.item_done(index, item, each);
            }
        }
        self.parts.end_all(each);
        if let Some(usage) = response.usage.and_then(|usage| PartialUsage::read(usage.get())) {
            each(StreamEvent::Usage(usage.token_counts()));
        }
        let reason = response.incomplete_details.as_ref().map_or("", |details| &details.reason);
        each(match (&*response.status, reason) {
            ("failed" | "cancelled", _) => {
                StreamEvent::Failed(failure::internal("The provider did not finish its answer."))
            }
            ("queued" | "in_progress", _) => StreamEvent::Stop(StopReason::Unfinished),
            ("incomplete", "content_filter") => StreamEvent::Stop(StopReason::Refusal),
            ("incomplete", _) => StreamEvent::Stop(StopReason::MaxTokens),
            _ => StreamEvent::Stop(StopReason::End),
        });
        each(StreamEvent::End);
    }

    /// The item of this index. `None` if the limit on an answer's parts is exceeded.
    fn item(&mut self, index: u64) -> Option<&mut ItemProgress> {
        let known = self.items.iter().rposition(|item| item.index == index);
        let at = known.unwrap_or(self.items.len());
        if at > ANSWER_PARTS {
            return None;
        }
        if known.is_none() {
            self.items.push(ItemProgress {
                index,
                id: String::new(),
                done: false,
                contents: Vec::new(),
                summary: None,
            });
        }
        self.items.get_mut(at)
    }

    fn added(
        &mut self,
        index: u64,
        item: &ResponseItem<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        let Some(progress) = self.item(index) else { return };
        progress.id = item.id.to_string();
        if &*item.kind == "function_call" {
            let call = PartKind::ToolCall { id: &item.call_id, name: &item.name };
            self.parts.start((index, 0), call, each);
        }
    }

    /// Adds text to a part, or arguments to a call.
    fn text(
        &mut self,
        index: u64,
        content: u64,
        part: PartKind<'_>,
        text: &str,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        if text.is_empty() {
            return;
        }
        let Some(item) = self.item(index) else {
            return each(StreamEvent::Failed(failure::too_long()));
        };
        if !item.contents.contains(&content) {
            if item.contents.len() >= ANSWER_PARTS {
                return each(StreamEvent::Failed(failure::too_long()));
            }
            item.contents.push(content);
        }
        if let PartKind::ToolCall { .. } = part {
            self.parts.arguments((index, content), text, each);
        } else {
            self.parts.text((index, content), part, text, each);
        }
    }

    /// Adds text of a summary or of the reasoning itself. A blank line separates pieces.
    fn thought(
        &mut self,
        index: u64,
        piece: u64,
        text: &str,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        if text.is_empty() {
            return;
        }
        let Some(item) = self.item(index) else {
            return each(StreamEvent::Failed(failure::too_long()));
        };
        let before = item.summary.replace(piece);
        if before.is_some_and(|before| before != piece) {
            self.text(index, 0, PartKind::Thinking, "\n\n", each);
        }
        self.text(index, 0, PartKind::Thinking, text, each);
    }

    /// Reads the parts of a finished item that its deltas lacked, and ends the item.
    fn item_done(
        &mut self,
        index: u64,
        item: &ResponseItem<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        let contents = item.content.as_deref().unwrap_or_default();
        match &*item.kind {
            "message" => self.message_done(index, contents, each),
            "reasoning" => {
                if !self.has_text(index, 0) {
                    let summary = item.summary.as_deref().unwrap_or_default();
                    for (piece, thought) in (0..).zip(summary.iter().chain(contents)) {
                        self.thought(index, piece, &thought.text, each);
                    }
                }
                if !item.encrypted_content.is_empty() {
                    let value =
                        json!({ "id": &*item.id, "encrypted_content": &*item.encrypted_content });
                    self.parts.seal((index, 0), Seal { dialect: seal::RESPONSES, value }, each);
                }
                self.parts.end((index, 0), each);
            }
            "function_call" => {
                if !self.items.iter().any(|known| known.index == index) {
                    self.added(index, item, each);
                }
                if !self.has_text(index, 0) {
                    self.parts.arguments((index, 0), &item.arguments, each);
                }
                self.parts.end((index, 0), each);
            }
            "custom_tool_call" => each(StreamEvent::Dropped(dropped::CUSTOM_TOOL_CALLS)),
            _ => each(StreamEvent::Dropped(dropped::SERVER_TOOLS)),
        }
        if let Some(progress) = self.item(index) {
            progress.id = item.id.to_string();
            progress.done = true;
        }
    }

    fn message_done(
        &mut self,
        index: u64,
        contents: &[OutputContent<'_>],
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        for (content, said) in (0..).zip(contents) {
            if !self.has_text(index, content) {
                self.text(index, content, PartKind::Text, &said.text, each);
                self.text(index, content, PartKind::Refusal, &said.refusal, each);
            }
            self.parts.end((index, content), each);
            drop_if(said.annotations.0, dropped::CITATIONS, each);
            drop_if(said.logprobs.0, dropped::LOGPROBS, each);
        }
    }

    fn has_text(&self, index: u64, content: u64) -> bool {
        let item = self.items.iter().rev().find(|item| item.index == index);
        item.is_some_and(|item| item.contents.contains(&content))
    }
}

impl ItemProgress {
    /// Whether this is the item with this id, or with this index if either has no id. The final
    /// response may list fewer items than the events did, so indexes differ.
    fn is(&self, index: u64, id: &str) -> bool {
        if self.id.is_empty() || id.is_empty() { self.index == index } else { self.id == id }
    }
}
