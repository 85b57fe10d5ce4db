//! Reads streams of chat completions into neutral events. Providers differ: reasoning is in
//! `reasoning_content`, `reasoning` or parts of the content; tool calls may lack an index or id;
//! usage comes with the last content, alone, or in `x_groq`.

use serde_json::value::RawValue;

use super::chunk::{
    ChatChoice, ChatFunction, CompletionChunk, CompletionDelta, ContentPiece, ReasoningDetail,
};
use crate::neutral::answer::StopReason;
use crate::neutral::answer_builder::COLLECT_BYTES;
use crate::neutral::event::{PartKind, StreamEvent, drop_if, dropped};
use crate::neutral::failure;
use crate::neutral::json_text::{JsonText, TextOrList};
use crate::neutral::normalizer::ANSWER_PARTS;
use crate::neutral::open_parts::OpenParts;
use crate::usage_object::PartialUsage;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ChatPart {
    Thinking,
    Text,
    Refusal,
    /// A tool call, by its position among the calls.
    Call(usize),
}

/// The state of a tool call.
#[derive(Debug, Default)]
struct ToolCallProgress {
    index: Option<u64>,
    id: String,
    /// Whether the call has started. It starts when its name is known.
    started: bool,
    /// Arguments that arrived before the name.
    early: String,
}

#[derive(Debug, Default)]
pub(crate) struct ChatStreamReader {
    started: bool,
    parts: OpenParts<ChatPart>,
    calls: Vec<ToolCallProgress>,
    stopped: bool,
}

impl ChatStreamReader {
    /// Reads the data of an event.
    pub(crate) fn event(&mut self, data: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
        if data.trim_ascii() == "[DONE]" {
            return self.done(each);
        }
        match serde_json::from_str::<CompletionChunk<'_>>(data) {
            Ok(chunk) => self.take(&chunk, each),
            Err(_) => each(StreamEvent::Failed(failure::unreadable())),
        }
    }

    /// Ends the stream when the connection has ended. Some providers send no `[DONE]`.
    pub(crate) fn end(&mut self, each: &mut impl FnMut(StreamEvent<'_>)) {
        if self.stopped {
            self.done(each);
        }
    }

    /// Bytes of arguments that wait for the name of their tool.
    pub(crate) fn held(&self) -> usize {
        self.calls.iter().map(|call| call.early.len()).sum()
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn done(&mut self, each: &mut impl FnMut(StreamEvent<'_>)) {
        self.parts.end_all(each);
        each(StreamEvent::End);
    }

    pub(super) fn take(
        &mut self,
        chunk: &CompletionChunk<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
            return each(StreamEvent::Failed(failure::read_in_band(error.get())));
        }
        if !self.started {
            self.started = true;
            each(StreamEvent::Start {
                id: &chunk.id,
                model: &chunk.model,
                created: chunk.created.0.unwrap_or(0),
                usage: None,
            });
        }
        for choice in chunk.choices.iter().flatten() {
            if choice.index.0.unwrap_or(0) == 0 {
                self.choice(choice, each);
            } else {
                each(StreamEvent::Dropped(dropped::CHOICES));
            }
        }
        let usage = chunk.usage.or_else(|| chunk.x_groq.as_ref()?.usage);
        if let Some(usage) = usage.and_then(|usage| PartialUsage::read(usage.get())) {
            each(StreamEvent::Usage(usage.token_counts()));
        }
    }

    fn choice(&mut self, choice: &ChatChoice<'_>, each: &mut impl FnMut(StreamEvent<'_>)) {
        if let Some(delta) = choice.delta.as_ref().or(choice.message.as_ref()) {
            self.delta(delta, choice.delta.is_none(), each);
        }
        drop_if(choice.logprobs.0, dropped::LOGPROBS, each);
        if let Some(stop) = stop_reason(&choice.finish_reason) {
            self.stopped = true;
            each(StreamEvent::Stop(stop));
        }
    }

    fn delta(
        &mut self,
        delta: &CompletionDelta<'_>,
        whole: bool,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        let thoughts = [&delta.reasoning_content, &delta.reasoning];
        if let Some(text) = thoughts.into_iter().find(|text| !text.is_empty()) {
            self.text(ChatPart::Thinking, PartKind::Thinking, text, each);
        }
        match &delta.content {
            TextOrList::Nothing => {}
            TextOrList::Text(text) => self.text(ChatPart::Text, PartKind::Text, text, each),
            TextOrList::List(pieces) => {
                pieces.iter().for_each(|piece| self.piece(piece, each));
            }
        }
        self.text(ChatPart::Refusal, PartKind::Refusal, &delta.refusal, each);
        for (place, call) in (0..).zip(delta.tool_calls.iter().flatten()) {
            if call.kind.0 == "custom" {
                each(StreamEvent::Dropped(dropped::CUSTOM_TOOL_CALLS));
            } else {
                // In a whole completion each element of the list is a call.
                let index = if whole { Some(place) } else { call.index.0 };
                self.call(index, &call.id, call.function.as_ref(), each);
            }
        }
        // OpenAI's form before tool calls: a single call without an id.
        if let Some(function) = &delta.function_call {
            self.call(Some(0), "", Some(function), each);
        }
        let sealed =
            |detail: &ReasoningDetail<'_>| !detail.signature.is_empty() || !detail.data.is_empty();
        for (present, name) in [
            (delta.annotations.0, dropped::CITATIONS),
            (delta.audio.0, dropped::AUDIO),
            (delta.images.0, dropped::IMAGES),
            (delta.executed_tools.0, dropped::SERVER_TOOLS),
            (delta.thought_signature.0, dropped::REASONING_SIGNATURES),
            (delta.reasoning_details.iter().flatten().any(sealed), dropped::REASONING_SIGNATURES),
        ] {
            drop_if(present, name, each);
        }
    }

    fn piece(&mut self, piece: &ContentPiece<'_>, each: &mut impl FnMut(StreamEvent<'_>)) {
        match &piece.thinking {
            TextOrList::Nothing => {}
            TextOrList::Text(text) => {
                self.text(ChatPart::Thinking, PartKind::Thinking, text, each);
            }
            TextOrList::List(pieces) => {
                for thought in pieces {
                    self.text(ChatPart::Thinking, PartKind::Thinking, &thought.text, each);
                }
            }
        }
        self.text(ChatPart::Text, PartKind::Text, &piece.text, each);
        self.text(ChatPart::Refusal, PartKind::Refusal, &piece.refusal, each);
    }

    /// Adds text. Open texts of other kinds end first.
    fn text(
        &mut self,
        key: ChatPart,
        part: PartKind<'_>,
        text: &str,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        if text.is_empty() {
            return;
        }
        self.end_texts(Some(key), each);
        self.parts.text(key, part, text, each);
    }

    fn end_texts(&mut self, but: Option<ChatPart>, each: &mut impl FnMut(StreamEvent<'_>)) {
        for key in [ChatPart::Thinking, ChatPart::Text, ChatPart::Refusal] {
            if Some(key) != but {
                self.parts.end(key, each);
            }
        }
    }

    fn call(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: Option<&ChatFunction<'_>>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        let name = function.map_or("", |function| &function.name);
        let number = self.number_of_call(index, id, name);
        if number > ANSWER_PARTS {
            return each(StreamEvent::Failed(failure::too_long()));
        }
        if self.calls.len() == number {
            self.calls.push(ToolCallProgress { index, ..ToolCallProgress::default() });
        }
        let Some(call) = self.calls.get_mut(number) else { return };
        if call.id.is_empty() {
            call.id = id.to_owned();
        }
        let raw = function.and_then(|function| function.arguments).map_or("", RawValue::get);
        // Some servers write an object instead of a string.
        let text = match serde_json::from_str::<JsonText<'_>>(raw) {
            Ok(text) if raw.starts_with('"') => text,
            _ if raw.starts_with('{') => JsonText(raw.into()),
            _ => JsonText::default(),
        };
        let key = ChatPart::Call(number);
        if call.started {
            return self.parts.arguments(key, &text, each);
        }
        call.early.push_str(&text);
        if call.early.len() > COLLECT_BYTES {
            return each(StreamEvent::Failed(failure::too_long()));
        }
        if !name.is_empty() {
            call.started = true;
            let (id, early) = (call.id.clone(), std::mem::take(&mut call.early));
            self.end_texts(None, each);
            self.parts.start(key, PartKind::ToolCall { id: &id, name }, each);
            self.parts.arguments(key, &early, each);
        }
    }

    /// The position of the call that a delta belongs to. Some servers write no index, or 0 for each
    /// call. Then a different id with a name begins another call.
    fn number_of_call(&self, index: Option<u64>, id: &str, name: &str) -> usize {
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1),
        };
        let Some(number) = known else { return self.calls.len() };
        let other = self.calls.get(number).is_some_and(|call| {
            let begun = call.started && !name.is_empty();
            begun && (id != call.id || id.is_empty() && index.is_none())
        });
        if other { self.calls.len() } else { number }
    }
}

fn stop_reason(word: &str) -> Option<StopReason> {
    Some(match word {
        "" => return None,
        "length" | "max_tokens" | "model_length" => StopReason::MaxTokens,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "content_filter" => StopReason::Refusal,
        _ => StopReason::End,
    })
}
