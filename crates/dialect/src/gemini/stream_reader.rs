//! Streams of `streamGenerateContent` with `alt=sse`. Each event is an answer with the next parts.
//! The stream ends with its connection.

use serde_json::json;
use serde_json::value::RawValue;

use crate::members::answer_object;
use crate::neutral::answer::{Citation, StopReason};
use crate::neutral::event::{
    Choices, Each, Lost, PartKind, ReadEvents, StreamEvent, Unreadable, drop_if, tell_unknown,
};
use crate::neutral::failure;
use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText};
use crate::neutral::open_parts::OpenParts;
use crate::neutral::seal;
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;

answer_object!(GeminiChunk, ["createTime", "automaticFunctionCallingHistory", "modelStatus"], {
    candidates: Option<Vec<GeminiCandidate<'a>>>; JsonList,
    feedback: Option<GeminiPromptFeedback<'a>> = "promptFeedback"; JsonObject,
    usage: Option<&'a RawValue> = "usageMetadata",
    model: JsonText<'a> = "modelVersion",
    id: JsonText<'a> = "responseId",
    error: Option<&'a RawValue>,
});
answer_object!(GeminiCandidate, [
    "safetyRatings", "tokenCount", "avgLogprobs",
], {
    index: JsonCount,
    content: Option<GeminiContent<'a>>; JsonObject,
    finish_reason: JsonText<'a> = "finishReason",
    finish_message: JsonText<'a> = "finishMessage",
    citations: JsonPresence = "citationMetadata",
    grounding: Option<Grounding<'a>> = "groundingMetadata"; JsonObject,
    logprobs: JsonPresence = "logprobsResult",
    url_context: JsonPresence = "urlContextMetadata",
});
// How the search is shown, and which text rests on which source.
answer_object!(Grounding, [
    "searchEntryPoint", "webSearchQueries", "groundingSupports", "retrievalMetadata",
    "retrievalQueries", "imageSearchQueries", "googleMapsWidgetContextToken",
], { chunks: Option<Vec<GroundingChunk<'a>>> = "groundingChunks"; JsonList, });
answer_object!(GroundingChunk, [], { web: Option<GroundingWeb<'a>>; JsonObject, });
answer_object!(GroundingWeb, ["domain"], { uri: JsonText<'a>, title: JsonText<'a>, });
answer_object!(GeminiContent, ["role"], { parts: Option<Vec<GeminiPart<'a>>>; JsonList, });
answer_object!(GeminiPart, ["videoMetadata", "partMetadata", "mediaResolution"], {
    text: JsonText<'a>,
    thought: JsonPresence,
    signature: JsonText<'a> = "thoughtSignature",
    call: Option<GeminiCall<'a>> = "functionCall"; JsonObject,
    inline_data: JsonPresence = "inlineData",
    file_data: JsonPresence = "fileData",
    code: JsonPresence = "executableCode",
    code_result: JsonPresence = "codeExecutionResult",
    tool_call: JsonPresence = "toolCall",
    tool_response: JsonPresence = "toolResponse",
});
answer_object!(GeminiCall, [], {
    id: JsonText<'a>,
    name: JsonText<'a>,
    args: Option<&'a RawValue>,
});
answer_object!(GeminiPromptFeedback, ["safetyRatings"], {
    reason: JsonText<'a> = "blockReason",
    message: JsonText<'a> = "blockReasonMessage",
});

#[derive(Clone, Copy, Debug, PartialEq)]
enum GeminiPartKey {
    Thinking,
    Text,
    Refusal,
    Call,
}

const TEXTS: [GeminiPartKey; 2] = [GeminiPartKey::Thinking, GeminiPartKey::Text];

#[derive(Debug, Default)]
pub(crate) struct GeminiStreamReader {
    started: bool,
    parts: OpenParts<GeminiPartKey>,
    stopped: bool,
}

impl ReadEvents for GeminiStreamReader {
    fn event(&mut self, name: &str, data: &str, each: Each<'_>) -> Result<(), Unreadable> {
        // Proxies send it, as chat completions end so.
        if data.trim_ascii() == "[DONE]" {
            return Ok(());
        }
        let chunk: GeminiChunk<'_> = serde_json::from_str(data).map_err(|_| Unreadable)?;
        let error = chunk.error.map(RawValue::get).filter(|error| *error != "null");
        let error = error.or((name == "error").then_some(data));
        if !self.started && error.is_none() {
            self.started = true;
            let (id, model) = (&chunk.id, &chunk.model);
            each(StreamEvent::Start { id, model, created: 0, usage: None });
        }
        let mut choices = Choices::default();
        for one in chunk.candidates.iter().flatten() {
            choices.add(one.index.0.unwrap_or(0), !one.finish_reason.is_empty(), one.bytes());
        }
        choices.tell(each);
        for candidate in chunk.candidates.iter().flatten() {
            if candidate.index.0.unwrap_or(0) == 0 {
                self.candidate(candidate, each);
            }
        }
        if let Some(feedback) = &chunk.feedback {
            self.feedback(feedback, each);
        }
        if let Some(told) = chunk.usage.and_then(|usage| PartialUsage::read(usage.get())) {
            // Every chunk has the usage so far.
            let is_final = self.stopped || choices.ended != 0 || error.is_some();
            each(StreamEvent::Usage { told: &told, is_final });
        }
        if let Some(error) = error {
            each(StreamEvent::Failed(failure::read_in_band(error)));
        }
        tell_unknown("", &chunk.others, each);
        Ok(())
    }

    fn end(&mut self, each: Each<'_>) {
        if self.stopped {
            self.parts.finish(each);
        }
    }
}

/// Reads a whole answer, which is a stream of one chunk.
pub(crate) fn read_whole(body: &str, each: Each<'_>) -> Result<(), Unreadable> {
    let chunk: GeminiChunk<'_> = serde_json::from_str(body).map_err(|_| Unreadable)?;
    let has_answer = chunk.candidates.is_some() || chunk.feedback.is_some();
    // An answer without a text may consist of its usage.
    let error = chunk.error.filter(|error| error.get() != "null");
    if !has_answer && chunk.usage.is_none() && error.is_none() {
        return Err(Unreadable);
    }
    let mut reader = GeminiStreamReader::default();
    reader.event("", body, each)?;
    if !reader.stopped {
        // The document is complete, so the answer is too. Clients need a stop reason.
        each(StreamEvent::Stop(StopReason::End));
    }
    reader.parts.finish(each);
    Ok(())
}

impl GeminiStreamReader {
    /// Reads why the prompt was blocked. That is a refusal.
    fn feedback(&mut self, feedback: &GeminiPromptFeedback<'_>, each: Each<'_>) {
        tell_unknown("promptFeedback.", &feedback.others, each);
        if feedback.reason.is_empty() || self.stopped {
            return;
        }
        let mut text = format!("The prompt was blocked: {}.", &*feedback.reason);
        if !feedback.message.is_empty() {
            text = format!("{text} {}", &*feedback.message);
        }
        // There is no candidate, so this is the whole answer.
        each(StreamEvent::Choices(Choices { begun: 1, ended: 1, other_bytes: 0 }));
        self.parts.end_all(each);
        self.parts.text(GeminiPartKey::Refusal, PartKind::Refusal, &text, each);
        self.stop(StopReason::Refusal, each);
    }

    fn stop(&mut self, stop: StopReason, each: Each<'_>) {
        self.stopped = true;
        each(StreamEvent::Stop(stop));
    }

    fn candidate(&mut self, candidate: &GeminiCandidate<'_>, each: Each<'_>) {
        let content = candidate.content.as_ref().and_then(|content| content.parts.as_deref());
        for part in content.unwrap_or_default() {
            self.part(part, each);
        }
        if let Some(content) = &candidate.content {
            tell_unknown("candidates.content.", &content.others, each);
        }
        if let Some(grounding) = &candidate.grounding {
            self.ground(grounding, each);
        }
        drop_if(candidate.citations.0, Lost::Citations, each);
        drop_if(candidate.url_context.0, Lost::ServerTools, each);
        drop_if(candidate.logprobs.0, Lost::Logprobs, each);
        tell_unknown("candidates.", &candidate.others, each);
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

    /// Reads the sources of the text.
    fn ground(&mut self, grounding: &Grounding<'_>, each: Each<'_>) {
        for chunk in grounding.chunks.iter().flatten() {
            let web = chunk.web.as_ref();
            let (url, title) = web.map_or(("", ""), |web| (&*web.uri, &*web.title));
            let (url, title) = (url.to_owned(), title.to_owned());
            let citation = Citation { url, title, ..Citation::default() };
            self.parts.cite(GeminiPartKey::Text, citation, each);
            tell_unknown("groundingChunks.", &chunk.others, each);
            tell_unknown("groundingChunks.web.", web.map_or(&[], |web| &web.others), each);
        }
        tell_unknown("groundingMetadata.", &grounding.others, each);
    }

    fn part(&mut self, part: &GeminiPart<'_>, each: Each<'_>) {
        tell_unknown("candidates.content.parts.", &part.others, each);
        if let Some(call) = &part.call {
            tell_unknown("candidates.content.parts.functionCall.", &call.others, each);
            self.parts.end_but(&TEXTS, None, each);
            // The signature has to go back with the call, so it becomes an empty thinking part
            // before the call.
            self.sign(&part.signature, each);
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
            self.parts.end_but(&TEXTS, Some(key), each);
            self.parts.text(key, kind, &part.text, each);
        }
        if part.thought.0 {
            self.sign(&part.signature, each);
        } else {
            let is_signed = !part.signature.is_empty();
            drop_if(is_signed, Lost::ReasoningSignatures, each);
        }
        drop_if(part.inline_data.0 || part.file_data.0, Lost::Images, each);
        let tools = [&part.code, &part.code_result, &part.tool_call, &part.tool_response];
        drop_if(tools.iter().any(|part| part.0), Lost::ServerTools, each);
    }

    fn sign(&mut self, signature: &str, each: Each<'_>) {
        if !signature.is_empty() {
            let value = json!({ "signature": signature });
            let seal = Seal { dialect: seal::GEMINI, value };
            self.parts.seal(GeminiPartKey::Thinking, seal, each);
        }
    }
}

impl GeminiCandidate<'_> {
    /// Approximate bytes of text that the model wrote.
    fn bytes(&self) -> u64 {
        let parts = self.content.as_ref().and_then(|content| content.parts.as_deref());
        let called = |part: &GeminiPart<'_>| {
            part.call.as_ref().and_then(|call| call.args).map_or(0, |args| args.get().len())
        };
        let parts = parts.unwrap_or_default().iter();
        parts.map(|part| (part.text.len() + called(part)) as u64).sum()
    }
}
