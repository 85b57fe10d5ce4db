//! Streams of `streamGenerateContent` with `alt=sse`. Each event is an answer with the next parts.
//! The stream ends with its connection.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::neutral::answer::StopReason;
use crate::neutral::event::{PartKind, StreamEvent, drop_if, dropped};
use crate::neutral::failure;
use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText};
use crate::neutral::open_parts::OpenParts;
use crate::neutral::seal;
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct GeminiChunk<'a> {
    candidates: Option<Vec<GeminiCandidate<'a>>>,
    prompt_feedback: Option<GeminiPromptFeedback<'a>>,
    usage_metadata: Option<&'a RawValue>,
    model_version: JsonText<'a>,
    response_id: JsonText<'a>,
    error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct GeminiCandidate<'a> {
    index: JsonCount,
    content: Option<GeminiContent<'a>>,
    finish_reason: JsonText<'a>,
    finish_message: JsonText<'a>,
    citation_metadata: JsonPresence,
    grounding_metadata: JsonPresence,
    logprobs_result: JsonPresence,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct GeminiContent<'a> {
    parts: Option<Vec<GeminiPart<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct GeminiPart<'a> {
    text: JsonText<'a>,
    thought: JsonPresence,
    thought_signature: JsonText<'a>,
    function_call: Option<GeminiCall<'a>>,
    inline_data: JsonPresence,
    executable_code: JsonPresence,
    code_execution_result: JsonPresence,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct GeminiCall<'a> {
    id: JsonText<'a>,
    name: JsonText<'a>,
    args: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct GeminiPromptFeedback<'a> {
    block_reason: JsonText<'a>,
    block_reason_message: JsonText<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum GeminiPartKey {
    Thinking,
    Text,
    Refusal,
    Call,
}

#[derive(Debug, Default)]
pub(crate) struct GeminiStreamReader {
    started: bool,
    parts: OpenParts<GeminiPartKey>,
    stopped: bool,
}

impl GeminiStreamReader {
    /// Reads the data of an event.
    pub(crate) fn event(&mut self, data: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
        let Ok(chunk) = serde_json::from_str::<GeminiChunk<'_>>(data) else {
            return each(StreamEvent::Failed(failure::unreadable()));
        };
        if let Some(error) = chunk.error.filter(|error| error.get() != "null") {
            return each(StreamEvent::Failed(failure::read_in_band(error.get())));
        }
        if !self.started {
            self.started = true;
            each(StreamEvent::Start {
                id: &chunk.response_id,
                model: &chunk.model_version,
                created: 0,
                usage: None,
            });
        }
        if let Some(usage) = chunk.usage_metadata.and_then(|usage| PartialUsage::read(usage.get()))
        {
            each(StreamEvent::Usage(usage.token_counts()));
        }
        for candidate in chunk.candidates.iter().flatten() {
            if candidate.index.0.unwrap_or(0) == 0 {
                self.candidate(candidate, each);
            } else {
                each(StreamEvent::Dropped(dropped::CHOICES));
            }
        }
        let blocked = chunk.prompt_feedback.filter(|feedback| !feedback.block_reason.is_empty());
        if let Some(feedback) = blocked.filter(|_| !self.stopped) {
            let mut text = format!("The prompt was blocked: {}.", &*feedback.block_reason);
            if !feedback.block_reason_message.is_empty() {
                text = format!("{text} {}", &*feedback.block_reason_message);
            }
            self.parts.end_all(each);
            self.parts.text(GeminiPartKey::Refusal, PartKind::Refusal, &text, each);
            self.stop(StopReason::Refusal, each);
        }
    }

    /// Ends the stream when the connection has ended.
    pub(crate) fn end(&mut self, each: &mut impl FnMut(StreamEvent<'_>)) {
        if self.stopped {
            self.done(each);
        }
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn done(&mut self, each: &mut impl FnMut(StreamEvent<'_>)) {
        self.parts.end_all(each);
        each(StreamEvent::End);
    }

    fn stop(&mut self, stop: StopReason, each: &mut impl FnMut(StreamEvent<'_>)) {
        self.stopped = true;
        each(StreamEvent::Stop(stop));
    }

    fn candidate(
        &mut self,
        candidate: &GeminiCandidate<'_>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        let content = candidate.content.as_ref().and_then(|content| content.parts.as_deref());
        for part in content.unwrap_or_default() {
            self.part(part, each);
        }
        drop_if(candidate.citation_metadata.0, dropped::CITATIONS, each);
        drop_if(candidate.grounding_metadata.0, dropped::CITATIONS, each);
        drop_if(candidate.logprobs_result.0, dropped::LOGPROBS, each);
        match &*candidate.finish_reason {
            "" => {}
            "STOP" => self.stop(StopReason::End, each),
            "MAX_TOKENS" => self.stop(StopReason::MaxTokens, each),
            "MALFORMED_FUNCTION_CALL"
            | "UNEXPECTED_TOOL_CALL"
            | "TOO_MANY_TOOL_CALLS"
            | "MISSING_THOUGHT_SIGNATURE"
            | "MALFORMED_RESPONSE" => {
                let (reason, more) = (&*candidate.finish_reason, &*candidate.finish_message);
                let message = format!("The model's answer is not usable: {reason}. {more}");
                each(StreamEvent::Failed(failure::internal(message.trim_end())));
            }
            // Safety filters of various names, and reasons of later versions.
            _ => self.stop(StopReason::Refusal, each),
        }
    }

    fn part(&mut self, part: &GeminiPart<'_>, each: &mut impl FnMut(StreamEvent<'_>)) {
        if let Some(call) = &part.function_call {
            self.end_texts(None, each);
            // The signature has to go back with the call, so it becomes an empty thinking part
            // before the call.
            self.sign(&part.thought_signature, each);
            self.parts.end(GeminiPartKey::Thinking, each);
            let kind = PartKind::ToolCall { id: &call.id, name: &call.name };
            self.parts.start(GeminiPartKey::Call, kind, each);
            let arguments = call.args.map(RawValue::get).filter(|args| *args != "null");
            self.parts.arguments(GeminiPartKey::Call, arguments.unwrap_or_default(), each);
            return self.parts.end(GeminiPartKey::Call, each);
        }
        let (key, kind) = if part.thought.0 {
            (GeminiPartKey::Thinking, PartKind::Thinking)
        } else {
            (GeminiPartKey::Text, PartKind::Text)
        };
        if !part.text.is_empty() {
            self.end_texts(Some(key), each);
            self.parts.text(key, kind, &part.text, each);
        }
        if part.thought.0 {
            self.sign(&part.thought_signature, each);
        } else {
            let is_signed = !part.thought_signature.is_empty();
            drop_if(is_signed, dropped::REASONING_SIGNATURES, each);
        }
        drop_if(part.inline_data.0, dropped::IMAGES, each);
        let has_run = part.executable_code.0 || part.code_execution_result.0;
        drop_if(has_run, dropped::SERVER_TOOLS, each);
    }

    fn sign(&mut self, signature: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
        if !signature.is_empty() {
            let value = json!({ "signature": signature });
            let seal = Seal { dialect: seal::GEMINI, value };
            self.parts.seal(GeminiPartKey::Thinking, seal, each);
        }
    }

    fn end_texts(&mut self, but: Option<GeminiPartKey>, each: &mut impl FnMut(StreamEvent<'_>)) {
        for key in [GeminiPartKey::Thinking, GeminiPartKey::Text] {
            if Some(key) != but {
                self.parts.end(key, each);
            }
        }
    }
}
