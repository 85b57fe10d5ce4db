//! Reads streams of chat completions into neutral events. Providers differ: reasoning is in
//! `reasoning_content`, `reasoning` or parts of the content; tool calls may lack an index or id;
//! usage comes with the last content, alone, or in `x_groq`.

use serde_json::value::RawValue;

use super::chunk::{
    ChatChoice, ChatFunction, CompletionChunk, CompletionDelta, ContentPiece, ReasoningDetail,
    UrlCitation,
};
use crate::neutral::answer::{Citation, StopReason};
use crate::neutral::event::{
    Choices, Each, Lost, PartKind, ReadEvents, StreamEvent, Unreadable, drop_if, tell_unknown,
};
use crate::neutral::failure;
use crate::neutral::json_text::JsonText;
use crate::neutral::normalizer::ANSWER_PARTS;
use crate::neutral::open_parts::OpenParts;
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;
use crate::wire::sse::SSE_EVENT_BYTES;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ChatPart {
    Thinking,
    Text,
    Refusal,
    /// A tool call, by its position among the calls.
    Call(usize),
}

const TEXTS: [ChatPart; 3] = [ChatPart::Thinking, ChatPart::Text, ChatPart::Refusal];

#[derive(Debug, Default)]
struct ToolCallProgress {
    index: Option<u64>,
    id: String,
    /// A call starts when its name is known.
    started: bool,
    /// Arguments that arrived before the name.
    early: String,
}

#[derive(Debug, Default)]
pub(crate) struct ChatStreamReader {
    started: bool,
    parts: OpenParts<ChatPart>,
    calls: Vec<ToolCallProgress>,
    /// Bytes of arguments that wait for the names of their tools.
    early: usize,
    /// Number of sources that were read from the lists of the chunks.
    cited: usize,
    counted: bool,
    stopped: bool,
}

impl ReadEvents for ChatStreamReader {
    fn event(&mut self, name: &str, data: &str, each: Each<'_>) -> Result<(), Unreadable> {
        if data.trim_ascii() == "[DONE]" {
            if self.counted && !self.stopped {
                // Some providers name no reason, but count the whole answer.
                each(StreamEvent::Stop(StopReason::End));
            }
            self.parts.finish(each);
            return Ok(());
        }
        let chunk: CompletionChunk<'_> = serde_json::from_str(data).map_err(|_| Unreadable)?;
        if name == "error" && chunk.error.is_none() {
            each(StreamEvent::Failed(failure::read_in_band(data)));
        } else {
            self.take(&chunk, false, each);
        }
        Ok(())
    }

    fn end(&mut self, each: Each<'_>) {
        if self.stopped {
            self.parts.finish(each);
        }
    }

    fn held(&self) -> usize {
        self.early
    }
}

/// Reads a whole chat completion, whose message is one large delta.
pub(crate) fn read_whole(body: &str, each: Each<'_>) -> Result<(), Unreadable> {
    let chunk: CompletionChunk<'_> = serde_json::from_str(body).map_err(|_| Unreadable)?;
    let error = chunk.error.filter(|error| error.get() != "null");
    // An answer without a text may consist of its usage.
    if chunk.choices.is_none() && error.is_none() && chunk.usage.is_none() {
        return Err(Unreadable);
    }
    let mut reader = ChatStreamReader::default();
    reader.take(&chunk, true, each);
    if !reader.stopped {
        // The document is complete, so the answer is too. Clients need a stop reason.
        each(StreamEvent::Stop(StopReason::End));
    }
    reader.parts.finish(each);
    Ok(())
}

impl ChatStreamReader {
    fn take(&mut self, chunk: &CompletionChunk<'_>, whole: bool, each: Each<'_>) {
        let error = chunk.error.filter(|error| error.get() != "null");
        if !self.started && error.is_none() {
            self.started = true;
            let (id, model) = (&chunk.id, &chunk.model);
            let created = chunk.created.0.unwrap_or(0);
            each(StreamEvent::Start { id, model, created, usage: None });
        }
        let mut choices = Choices::default();
        for choice in chunk.choices.iter().flatten() {
            let bytes = choice.said(whole).map_or(0, CompletionDelta::bytes);
            choices.add(choice.index.0.unwrap_or(0), !choice.finish_reason.is_empty(), bytes);
        }
        choices.tell(each);
        for choice in chunk.choices.iter().flatten() {
            if choice.index.0.unwrap_or(0) == 0 {
                self.choice(choice, whole, each);
            }
        }
        let urls = chunk.citations.map_or("", RawValue::get);
        let urls: Vec<JsonText<'_>> = serde_json::from_str(urls).unwrap_or_default();
        for url in urls.iter().skip(self.cited) {
            self.cited += 1;
            let citation = Citation { url: url.to_string(), ..Citation::default() };
            self.parts.cite(ChatPart::Text, citation, each);
        }
        let usage = chunk.usage.or_else(|| chunk.x_groq.as_ref()?.usage);
        if let Some(told) = PartialUsage::of_event(usage, chunk.service_tier) {
            self.counted |= told.counts();
            // Some providers report the usage so far in every chunk.
            let is_final = choices.ended != 0 || choices.begun == 0 || error.is_some();
            each(StreamEvent::Usage { told: &told, is_final });
        }
        if let Some(error) = error {
            each(StreamEvent::Failed(failure::read_in_band(error.get())));
        } else if chunk.choices.iter().flatten().any(ChatChoice::has_failed) {
            each(StreamEvent::Failed(failure::unfinished()));
        }
        tell_unknown("", &chunk.others, each);
        if let Some(groq) = &chunk.x_groq {
            tell_unknown("x_groq.", &groq.others, each);
        }
    }

    fn choice(&mut self, choice: &ChatChoice<'_>, whole: bool, each: Each<'_>) {
        if let Some(delta) = choice.said(whole) {
            self.delta(delta, whole || choice.delta.is_none(), each);
        }
        drop_if(choice.logprobs.0, Lost::Logprobs, each);
        tell_unknown("choices.", &choice.others, each);
        if let Some(stop) = stop_reason(&choice.finish_reason) {
            self.stopped = true;
            each(StreamEvent::Stop(stop));
        }
    }

    fn delta(&mut self, delta: &CompletionDelta<'_>, whole: bool, each: Each<'_>) {
        let thoughts = [&delta.reasoning_content, &delta.reasoning];
        let details = delta.reasoning_details.as_deref().unwrap_or_default();
        let details_text = || details.iter().flat_map(|detail| [&detail.text, &detail.summary]);
        match thoughts.into_iter().find(|text| !text.is_empty()) {
            Some(text) => self.text(ChatPart::Thinking, PartKind::Thinking, text, each),
            None => details_text().for_each(|text| {
                self.text(ChatPart::Thinking, PartKind::Thinking, text, each);
            }),
        }
        self.text(ChatPart::Text, PartKind::Text, delta.content.text(), each);
        delta.content.list().iter().for_each(|piece| self.piece(piece, each));
        self.text(ChatPart::Refusal, PartKind::Refusal, &delta.refusal, each);
        for annotation in delta.annotations.iter().flatten() {
            let cited = annotation.url_citation.as_ref();
            self.parts.cite(ChatPart::Text, cited.map(citation).unwrap_or_default(), each);
            tell_unknown("choices.message.annotations.", &annotation.others, each);
            let others = cited.map_or(&[][..], |cited| &cited.others);
            tell_unknown("choices.message.annotations.url_citation.", others, each);
        }
        for (place, call) in (0..).zip(delta.tool_calls.iter().flatten()) {
            tell_unknown("choices.message.tool_calls.", &call.others, each);
            drop_if(call.extra_content.0, Lost::ReasoningSignatures, each);
            // In a whole completion each element of the list is a call.
            let index = if whole { Some(place) } else { call.index.0 };
            if let Some(custom) = &call.custom {
                tell_unknown("choices.message.tool_calls.custom.", &custom.others, each);
                let kind = PartKind::TextCall { id: &call.id, name: &custom.name };
                self.call(index, kind, &custom.input, each);
            } else {
                self.function(index, &call.id, call.function.as_ref(), each);
            }
        }
        // OpenAI's form before tool calls: a single call without an id.
        if let Some(function) = &delta.function_call {
            self.function(Some(0), "", Some(function), each);
        }
        for (present, lost) in [
            (delta.audio.0, Lost::Audio),
            (delta.images.0, Lost::Images),
            (delta.executed_tools.0, Lost::ServerTools),
            // Google's form of signatures.
            (delta.thought_signature.0 || delta.extra_content.0, Lost::ReasoningSignatures),
        ] {
            drop_if(present, lost, each);
        }
        tell_unknown("choices.message.", &delta.others, each);
        for detail in details {
            // The gateway's own, in an answer that it translated.
            match Seal::from_text(&detail.data) {
                Some(seal) => self.parts.seal(ChatPart::Thinking, seal, each),
                None => drop_if(detail.is_sealed(), Lost::ReasoningSignatures, each),
            }
            tell_unknown("choices.message.reasoning_details.", &detail.others, each);
        }
    }

    fn piece(&mut self, piece: &ContentPiece<'_>, each: Each<'_>) {
        self.text(ChatPart::Thinking, PartKind::Thinking, piece.thinking.text(), each);
        for thought in piece.thinking.list() {
            self.text(ChatPart::Thinking, PartKind::Thinking, &thought.text, each);
            tell_unknown("choices.message.content.thinking.", &thought.others, each);
        }
        self.text(ChatPart::Text, PartKind::Text, &piece.text, each);
        self.text(ChatPart::Refusal, PartKind::Refusal, &piece.refusal, each);
        tell_unknown("choices.message.content.", &piece.others, each);
    }

    /// Open texts of other kinds end first.
    fn text(&mut self, key: ChatPart, part: PartKind<'_>, text: &str, each: Each<'_>) {
        if text.is_empty() {
            return;
        }
        self.parts.end_but(&TEXTS, Some(key), each);
        self.parts.text(key, part, text, each);
    }

    fn function(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: Option<&ChatFunction<'_>>,
        each: Each<'_>,
    ) {
        let name = function.map_or("", |function| &function.name);
        let text = function.map_or("", |function| &function.arguments.0);
        self.call(index, PartKind::ToolCall { id, name }, text, each);
        let others = function.map_or(&[][..], |function| &function.others);
        tell_unknown("choices.message.tool_calls.function.", others, each);
    }

    /// Adds to a call, with its id and name as far as they are told.
    fn call(&mut self, index: Option<u64>, kind: PartKind<'_>, text: &str, each: Each<'_>) {
        let (PartKind::ToolCall { id, name } | PartKind::TextCall { id, name }) = kind else {
            return;
        };
        let number = self.number_of_call(index, id, name);
        if number > ANSWER_PARTS {
            return each(StreamEvent::TooLong);
        }
        if self.calls.len() == number {
            self.calls.push(ToolCallProgress { index, ..ToolCallProgress::default() });
        }
        let Some(call) = self.calls.get_mut(number) else { return };
        if call.id.is_empty() {
            // A longer id is cut: no real one is.
            call.id = id.chars().take(1_024).collect();
        }
        let key = ChatPart::Call(number);
        if call.started {
            return self.parts.arguments(key, text, each);
        }
        self.early += text.len();
        if self.early > SSE_EVENT_BYTES {
            return each(StreamEvent::TooLong);
        }
        call.early.push_str(text);
        if name.is_empty() {
            return each(StreamEvent::Working);
        }
        call.started = true;
        let (id, early) = (call.id.clone(), std::mem::take(&mut call.early));
        self.early = self.early.saturating_sub(early.len());
        let kind = match kind {
            PartKind::TextCall { .. } => PartKind::TextCall { id: &id, name },
            _ => PartKind::ToolCall { id: &id, name },
        };
        self.parts.end_but(&TEXTS, None, each);
        self.parts.start(key, kind, each);
        self.parts.arguments(key, &early, each);
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

impl<'a> ChatChoice<'a> {
    fn has_failed(&self) -> bool {
        self.index.0.unwrap_or(0) == 0 && FAILURES.contains(&&*self.finish_reason)
    }

    /// What it says. A whole completion has a message, a chunk a delta; some have the other too.
    fn said(&self, whole: bool) -> Option<&CompletionDelta<'a>> {
        let (delta, message) = (self.delta.as_ref(), self.message.as_ref());
        if whole { message.or(delta) } else { delta.or(message) }
    }
}

impl CompletionDelta<'_> {
    /// Approximate bytes of text that the model wrote.
    fn bytes(&self) -> u64 {
        let content = self.content.bytes(|piece| {
            let thoughts = piece.thinking.bytes(|thought| thought.text.len());
            thoughts + piece.text.len() + piece.refusal.len()
        });
        let thoughts = self.reasoning_content.len().max(self.reasoning.len());
        let calls = self.tool_calls.iter().flatten().filter_map(|call| call.function.as_ref());
        let calls = calls.map(|function| function.name.len() + function.arguments.0.len());
        (content + thoughts + self.refusal.len() + calls.sum::<usize>()) as u64
    }
}

impl ReasoningDetail<'_> {
    fn is_sealed(&self) -> bool {
        !self.signature.is_empty() || !self.data.is_empty()
    }
}

fn citation(cited: &UrlCitation<'_>) -> Citation {
    Citation {
        url: cited.url.to_string(),
        title: cited.title.to_string(),
        quote: cited.content.to_string(),
        span: cited.start_index.0.zip(cited.end_index.0),
    }
}

/// Values of `finish_reason` that are errors: of Mistral and OpenRouter, DeepSeek, vLLM and SGLang.
const FAILURES: [&str; 3] = ["error", "insufficient_system_resource", "abort"];

fn stop_reason(word: &str) -> Option<StopReason> {
    Some(match word {
        "" => return None,
        "length" | "max_tokens" | "model_length" => StopReason::MaxTokens,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "content_filter" => StopReason::Refusal,
        _ => StopReason::End,
    })
}
