//! Chunks of a stream and whole chat completions, with the members that the gateway reads.

use serde_json::value::RawValue;

use crate::members::answer_object;
use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText, JsonWritten, TextOrList};

answer_object!(CompletionChunk, [
    "object", "system_fingerprint", "provider", "obfuscation", "prompt_filter_results",
    "time_info", "nvext", "kv_transfer_params", "request_id", "type", "usage_breakdown",
], {
    id: JsonText<'a>,
    created: JsonCount,
    model: JsonText<'a>,
    choices: Option<Vec<ChatChoice<'a>>>; JsonList,
    usage: Option<&'a RawValue>,
    service_tier: Option<&'a RawValue>,
    x_groq: Option<GroqUsage<'a>>; JsonObject,
    error: Option<&'a RawValue>,
    citations: Option<&'a RawValue>,
});
answer_object!(GroqUsage, ["id", "seed"], { usage: Option<&'a RawValue>, });
answer_object!(ChatChoice, ["native_finish_reason", "content_filter_results", "seed",
    "stop_reason", "matched_stop", "token_ids"], {
    index: JsonCount,
    delta: Option<CompletionDelta<'a>>; JsonObject,
    message: Option<CompletionDelta<'a>>; JsonObject,
    finish_reason: JsonText<'a>,
    logprobs: JsonPresence,
});
answer_object!(CompletionDelta, ["role", "channel"], {
    content: TextOrList<'a, ContentPiece<'a>>,
    reasoning_content: JsonText<'a>,
    reasoning: JsonText<'a>,
    refusal: JsonText<'a>,
    tool_calls: Option<Vec<ChatToolCall<'a>>>; JsonList,
    function_call: Option<ChatFunction<'a>>; JsonObject,
    reasoning_details: Option<Vec<ReasoningDetail<'a>>>; JsonList,
    annotations: Option<Vec<Annotation<'a>>>; JsonList,
    audio: JsonPresence,
    images: JsonPresence,
    executed_tools: JsonPresence,
    thought_signature: JsonPresence,
    extra_content: JsonPresence,
});
// OpenRouter's record of reasoning. Its text may also be in `reasoning`.
answer_object!(ReasoningDetail, ["type", "id", "index", "format"], {
    text: JsonText<'a>,
    summary: JsonText<'a>,
    signature: JsonText<'a>,
    data: JsonText<'a>,
});
answer_object!(Annotation, ["type", "index"], {
    url_citation: Option<UrlCitation<'a>>; JsonObject,
});
answer_object!(UrlCitation, [], {
    url: JsonText<'a>,
    title: JsonText<'a>,
    content: JsonText<'a>,
    start_index: JsonCount,
    end_index: JsonCount,
});
// A part of content that is a list. Mistral sends thinking in such parts.
answer_object!(ContentPiece, ["type", "closed"], {
    text: JsonText<'a>,
    thinking: TextOrList<'a, ThinkingPiece<'a>>,
    refusal: JsonText<'a>,
});
answer_object!(ThinkingPiece, ["type"], { text: JsonText<'a>, });
answer_object!(ChatToolCall, [], {
    index: JsonCount,
    id: JsonText<'a>,
    kind: JsonText<'a> = "type",
    function: Option<ChatFunction<'a>>; JsonObject,
    custom: Option<CustomCall<'a>>; JsonObject,
    extra_content: JsonPresence,
});
answer_object!(ChatFunction, [], {
    name: JsonText<'a>,
    arguments: JsonWritten<'a>,
});
answer_object!(CustomCall, [], { name: JsonText<'a>, input: JsonText<'a>, });
