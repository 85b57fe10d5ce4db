//! Reads streams of responses into neutral events. Deltas are read as they arrive. Facts that
//! appear only at the end of an item or of the response are read there.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::searches::searches;
use crate::members::answer_object;
use crate::neutral::answer::{Citation, StopReason};
use crate::neutral::event::{
    Each, Lost, PartKind, ReadEvents, StreamEvent, Unreadable, drop_if, tell_unknown,
};
use crate::neutral::failure;
use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText, JsonWritten};
use crate::neutral::normalizer::ANSWER_PARTS;
use crate::neutral::open_parts::OpenParts;
use crate::neutral::seal;
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;
use crate::wire::sse::{self, Splitter};

// Of the members that are not read, some repeat the request or what other events tell.
answer_object!(ResponseStreamEvent, [
    "item_id", "obfuscation", "annotation", "annotation_index", "logprobs", "part", "text",
    "arguments", "refusal", "input", "name", "code", "partial_image_b64", "partial_image_index",
    "size", "quality", "background", "output_format", "encrypted_content", "message", "param",
], {
    kind: JsonText<'a> = "type",
    sequence_number: JsonCount,
    output_index: JsonCount,
    content_index: JsonCount,
    summary_index: JsonCount,
    delta: JsonText<'a>,
    item: Option<ResponseItem<'a>>; JsonObject,
    response: Option<ResponseBody<'a>>; JsonObject,
    error: Option<&'a RawValue>,
});
answer_object!(ResponseBody, [
    "object", "background", "billing", "completed_at", "content_filters", "conversation",
    "cost_token", "expires_at", "frequency_penalty", "instructions", "max_output_tokens",
    "max_tool_calls", "metadata", "moderation", "parallel_tool_calls", "presence_penalty",
    "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_retention", "reasoning",
    "safety_identifier", "store", "temperature", "text", "tool_choice", "tools", "tool_usage",
    "top_logprobs", "top_p", "truncation", "user", "incomplete", "output_text",
], {
    id: JsonText<'a>,
    model: JsonText<'a>,
    created_at: JsonCount,
    status: JsonText<'a>,
    incomplete_details: Option<IncompleteDetails<'a>>; JsonObject,
    error: Option<&'a RawValue>,
    output: Option<Vec<ResponseItem<'a>>>; JsonList,
    usage: Option<&'a RawValue>,
    service_tier: Option<&'a RawValue>,
});
answer_object!(IncompleteDetails, [], { reason: JsonText<'a>, });
// The other members of a provider's tool are lost with the item.
answer_object!(ResponseItem, ["status", "role", "phase", "format"], {
    kind: JsonText<'a> = "type",
    id: JsonText<'a>,
    call_id: JsonText<'a>,
    name: JsonText<'a>,
    arguments: JsonWritten<'a>,
    input: JsonText<'a>,
    content: Option<Vec<OutputContent<'a>>>; JsonList,
    summary: Option<Vec<OutputContent<'a>>>; JsonList,
    encrypted_content: JsonText<'a>,
});
answer_object!(OutputContent, ["type"], {
    text: JsonText<'a>,
    refusal: JsonText<'a>,
    annotations: Option<Vec<OutputAnnotation<'a>>>; JsonList,
    logprobs: JsonPresence,
});
answer_object!(OutputAnnotation, ["type", "file_id", "container_id", "filename", "index"], {
    url: JsonText<'a>,
    title: JsonText<'a>,
    start_index: JsonCount,
    end_index: JsonCount,
});

/// A part by the index of its item, and by its index in the item's content.
type PartKey = (u64, u64);

#[derive(Debug, Default)]
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

impl ReadEvents for ResponsesStreamReader {
    fn event(&mut self, name: &str, data: &str, each: Each<'_>) -> Result<(), Unreadable> {
        if data.trim_ascii() == "[DONE]" {
            each(StreamEvent::End);
            return Ok(());
        }
        let event: ResponseStreamEvent<'_> = serde_json::from_str(data).map_err(|_| Unreadable)?;
        let kind = if event.kind.is_empty() { name } else { &*event.kind };
        let index = event.output_index.0.unwrap_or(0);
        if let Some(item) = &event.item {
            item.tell_unknown(each);
        }
        let content = event.content_index.0.unwrap_or(0);
        tell_unknown("", &event.others, each);
        if let Some(number) = event.sequence_number.0 {
            each(StreamEvent::Sequence(number));
        }
        match (kind, &event.item, &event.response) {
            ("response.output_text.delta", ..) => {
                self.text(index, content, PartKind::Text, &event.delta, each);
            }
            ("response.refusal.delta", ..) => {
                self.text(index, content, PartKind::Refusal, &event.delta, each);
            }
            (
                "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta",
                ..,
            ) => {
                self.text(index, 0, PartKind::ToolCall { id: "", name: "" }, &event.delta, each);
            }
            ("response.reasoning_summary_text.delta" | "response.reasoning_text.delta", ..) => {
                let piece = event.summary_index.0.unwrap_or(content);
                self.thought(index, piece, &event.delta, each);
            }
            ("response.output_item.added", Some(item), _) => self.added(index, item, each),
            ("response.output_item.done", Some(item), _) => self.item_done(index, item, each),
            ("response.created" | "response.in_progress" | "response.queued", _, response) => {
                if let Some(response) = response {
                    start(response, each);
                }
            }
            (
                "response.completed"
                | "response.incomplete"
                | "response.failed"
                | "response.cancelled",
                _,
                Some(response),
            ) => self.finish(response, kind, data, each),
            ("response.completed" | "response.incomplete", ..) => {
                each(StreamEvent::Stop(StopReason::End));
                each(StreamEvent::End);
            }
            ("response.failed", ..) => each(StreamEvent::Failed(failure::unfinished())),
            ("error", ..) => {
                let raw = event.error.map_or(data, RawValue::get);
                each(StreamEvent::Failed(failure::read_in_band(raw)));
                return Ok(());
            }
            // Servers that also have chat completions write errors in that dialect's form.
            ("", ..) if let Some(error) = event.error => {
                each(StreamEvent::Failed(failure::read_in_band(error.get())));
            }
            _ if is_progress(kind) => each(StreamEvent::Working),
            _ if is_repeated(kind) => {}
            _ => tell_unknown("event.", &[kind.into()], each),
        }
        Ok(())
    }
}

/// Whether the event tells that a tool of the provider runs, or something that a later event
/// repeats.
fn is_progress(kind: &str) -> bool {
    kind.starts_with("response.")
        && (kind.contains("_call.") || kind.contains("_call_") || kind.contains(".audio."))
        || kind.ends_with(".annotation.added")
}

/// Whether the event says nothing that the others do not.
fn is_repeated(kind: &str) -> bool {
    kind.starts_with("response.")
        && (kind.ends_with(".done")
            || kind.ends_with("_part.added")
            || kind.starts_with("response.mcp_list_tools."))
        || kind == "keepalive"
}

/// Reads a whole response, whose output items are complete.
pub(crate) fn read_whole(body: &str, each: Each<'_>) -> Result<(), Unreadable> {
    let response: ResponseBody<'_> = serde_json::from_str(body).map_err(|_| Unreadable)?;
    let error = response.error.filter(|error| error.get() != "null");
    let is_empty = response.output.is_none() && response.usage.is_none();
    if is_empty && error.is_none() && response.status.is_empty() {
        return Err(Unreadable);
    }
    start(&response, each);
    ResponsesStreamReader::default().finish(&response, "", body, each);
    Ok(())
}

fn start(response: &ResponseBody<'_>, each: Each<'_>) {
    each(StreamEvent::Start {
        id: &response.id,
        model: &response.model,
        created: response.created_at.0.unwrap_or(0),
        usage: None,
    });
    tell_unknown("response.", &response.others, each);
}

impl ResponsesStreamReader {
    /// Reads the final response: the items that no event contained, and the reason for the end.
    /// `data` is that of the event, and `kind` its type.
    fn finish(&mut self, response: &ResponseBody<'_>, kind: &str, data: &str, each: Each<'_>) {
        for (index, item) in (0..).zip(response.output.iter().flatten()) {
            item.tell_unknown(each);
            let known = self.items.iter().find(|known| known.is(index, &item.id));
            if known.is_none_or(|known| !known.done) {
                self.item_done(known.map_or(index, |known| known.index), item, each);
            }
        }
        self.parts.end_all(each);
        if let Some(mut told) = PartialUsage::of_event(response.usage, response.service_tier) {
            told.count_searches(searches(data.as_bytes()));
            each(StreamEvent::Usage { told: &told, is_final: true });
        }
        tell_unknown("response.", &response.others, each);
        let reason = response.incomplete_details.as_ref().map_or("", |details| &details.reason);
        let details = response.incomplete_details.as_ref();
        tell_unknown("incomplete_details.", details.map_or(&[], |details| &details.others), each);
        let error = response.error.filter(|error| !matches!(error.get(), "null" | "{}"));
        if let Some(error) = error {
            return each(StreamEvent::Failed(failure::read_in_band(error.get())));
        }
        each(match (&*response.status, reason) {
            ("failed" | "cancelled", _) => StreamEvent::Failed(failure::unfinished()),
            _ if kind == "response.failed" => StreamEvent::Failed(failure::unfinished()),
            ("queued" | "in_progress", _) => StreamEvent::Stop(StopReason::Unfinished),
            ("incomplete", "content_filter") => StreamEvent::Stop(StopReason::Refusal),
            ("incomplete", _) => StreamEvent::Stop(StopReason::MaxTokens),
            _ => StreamEvent::Stop(StopReason::End),
        });
        each(StreamEvent::End);
    }

    /// `None` if the limit on an answer's parts is exceeded.
    fn item(&mut self, index: u64) -> Option<&mut ItemProgress> {
        let known = self.items.iter().rposition(|item| item.index == index);
        let at = known.unwrap_or(self.items.len());
        if at > ANSWER_PARTS {
            return None;
        }
        if known.is_none() {
            self.items.push(ItemProgress { index, ..ItemProgress::default() });
        }
        self.items.get_mut(at)
    }

    fn added(&mut self, index: u64, item: &ResponseItem<'_>, each: Each<'_>) {
        let Some(progress) = self.item(index) else { return };
        progress.id = short(&item.id);
        match &*item.kind {
            "function_call" => {
                let call = PartKind::ToolCall { id: &item.call_id, name: &item.name };
                self.parts.start((index, 0), call, each);
            }
            "custom_tool_call" => {
                let call = PartKind::TextCall { id: &item.call_id, name: &item.name };
                self.parts.start((index, 0), call, each);
            }
            "message" => each(StreamEvent::NextMessage),
            "reasoning" | "mcp_list_tools" => {}
            _ => each(StreamEvent::Working),
        }
    }

    fn text(&mut self, index: u64, content: u64, part: PartKind<'_>, text: &str, each: Each<'_>) {
        if text.is_empty() {
            return;
        }
        let Some(item) = self.item(index) else {
            return each(StreamEvent::TooLong);
        };
        if !item.contents.contains(&content) {
            if item.contents.len() >= ANSWER_PARTS {
                return each(StreamEvent::TooLong);
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
    fn thought(&mut self, index: u64, piece: u64, text: &str, each: Each<'_>) {
        if text.is_empty() {
            return;
        }
        let Some(item) = self.item(index) else {
            return each(StreamEvent::TooLong);
        };
        let before = item.summary.replace(piece);
        if before.is_some_and(|before| before != piece) {
            self.text(index, 0, PartKind::Thinking, "\n\n", each);
        }
        self.text(index, 0, PartKind::Thinking, text, each);
    }

    /// Reads the parts of a finished item that its deltas lacked, and ends the item.
    fn item_done(&mut self, index: u64, item: &ResponseItem<'_>, each: Each<'_>) {
        let contents = item.content.as_deref().unwrap_or_default();
        match &*item.kind {
            "message" => {
                if !self.items.iter().any(|known| known.index == index) {
                    each(StreamEvent::NextMessage);
                }
                self.message_done(index, contents, each);
            }
            "reasoning" => {
                if !self.has_text(index, 0) {
                    let summary = item.summary.as_deref().unwrap_or_default();
                    for (piece, thought) in (0..).zip(summary.iter().chain(contents)) {
                        self.thought(index, piece, &thought.text, each);
                    }
                }
                if !matches!(&*item.encrypted_content, "" | seal::NONE) {
                    let value =
                        json!({ "id": &*item.id, "encrypted_content": &*item.encrypted_content });
                    self.parts.seal((index, 0), Seal { dialect: seal::RESPONSES, value }, each);
                }
                self.parts.end((index, 0), each);
            }
            kind @ ("function_call" | "custom_tool_call") => {
                if !self.items.iter().any(|known| known.index == index) {
                    self.added(index, item, each);
                }
                if !self.has_text(index, 0) {
                    let is_text = kind == "custom_tool_call";
                    let said = if is_text { &item.input.0 } else { &item.arguments.0 };
                    self.parts.arguments((index, 0), said, each);
                }
                self.parts.end((index, 0), each);
            }
            _ => each(StreamEvent::Dropped(Lost::ServerTools)),
        }
        if let Some(progress) = self.item(index) {
            progress.id = short(&item.id);
            progress.done = true;
        }
    }

    fn message_done(&mut self, index: u64, contents: &[OutputContent<'_>], each: Each<'_>) {
        for (content, said) in (0..).zip(contents) {
            if !self.has_text(index, content) {
                self.text(index, content, PartKind::Text, &said.text, each);
                self.text(index, content, PartKind::Refusal, &said.refusal, each);
            }
            for cited in said.annotations.iter().flatten() {
                let citation = Citation {
                    url: cited.url.to_string(),
                    title: cited.title.to_string(),
                    quote: String::new(),
                    span: cited.start_index.0.zip(cited.end_index.0),
                };
                self.parts.cite((index, content), citation, each);
            }
            self.parts.end((index, content), each);
            drop_if(said.logprobs.0, Lost::Logprobs, each);
        }
    }

    fn has_text(&self, index: u64, content: u64) -> bool {
        let item = self.items.iter().rev().find(|item| item.index == index);
        item.is_some_and(|item| item.contents.contains(&content))
    }
}

impl ResponseItem<'_> {
    /// Tells the members that nobody knows, of an item that is not lost as a whole.
    fn tell_unknown(&self, each: Each<'_>) {
        let known = ["message", "reasoning", "function_call", "custom_tool_call"];
        if known.contains(&&*self.kind) {
            tell_unknown("output.", &self.others, each);
            for said in self.content.iter().chain(&self.summary).flatten() {
                tell_unknown("output.content.", &said.others, each);
                for cited in said.annotations.iter().flatten() {
                    tell_unknown("output.content.annotations.", &cited.others, each);
                }
            }
        }
    }
}

/// An id as it is kept: no real one is longer.
fn short(id: &str) -> String {
    id.chars().take(256).collect()
}

impl ItemProgress {
    /// Whether this is the item with this id, or with this index if either has no id. The final
    /// response may list fewer items than the events did, so indexes differ.
    fn is(&self, index: u64, id: &str) -> bool {
        if self.id.is_empty() || id.is_empty() { self.index == index } else { self.id == short(id) }
    }
}

/// Whether an oversized event with this beginning ends its stream. Such events repeat the answer.
pub(super) fn is_end(start: &[u8]) -> bool {
    let fields = sse::fields(start);
    let ends = [&b"response.completed"[..], b"response.incomplete"];
    let data = fields.data.as_deref().unwrap_or_default();
    match fields.name {
        Some(name) => ends.contains(&name),
        None => ends.iter().any(|end| memchr::memmem::find(data, end).is_some()),
    }
}

/// The whole response in the last event of a stream.
pub(super) fn last_response(stream: &[u8]) -> Option<Value> {
    let (mut last, mut splitter) = (None, Splitter::with_limit(stream.len()));
    splitter.feed(stream, |event| {
        if is_end(event.bytes()) {
            let data = sse::fields(event.bytes()).data;
            let event = data.and_then(|data| serde_json::from_slice::<Value>(&data).ok());
            let response = event.and_then(|mut event| Some(event.get_mut("response")?.take()));
            last = response.or(last.take());
        }
    });
    last.filter(Value::is_object)
}
