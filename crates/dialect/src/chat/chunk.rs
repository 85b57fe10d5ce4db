//! Chunks of a stream and whole chat completions, with the members that the gateway reads.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText, TextOrList};

/// A chunk or a whole completion.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CompletionChunk<'a> {
    pub(super) id: JsonText<'a>,
    pub(super) created: JsonCount,
    pub(super) model: JsonText<'a>,
    pub(super) choices: Option<Vec<ChatChoice<'a>>>,
    pub(super) usage: Option<&'a RawValue>,
    pub(super) x_groq: Option<GroqUsage<'a>>,
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct GroqUsage<'a> {
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ChatChoice<'a> {
    pub(super) index: JsonCount,
    pub(super) delta: Option<CompletionDelta<'a>>,
    /// The whole message of a completion that is no stream.
    pub(super) message: Option<CompletionDelta<'a>>,
    pub(super) finish_reason: JsonText<'a>,
    pub(super) logprobs: JsonPresence,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct CompletionDelta<'a> {
    pub(super) content: TextOrList<'a, ContentPiece<'a>>,
    pub(super) reasoning_content: JsonText<'a>,
    pub(super) reasoning: JsonText<'a>,
    pub(super) refusal: JsonText<'a>,
    pub(super) tool_calls: Option<Vec<ChatToolCall<'a>>>,
    pub(super) function_call: Option<ChatFunction<'a>>,
    pub(super) reasoning_details: Option<Vec<ReasoningDetail<'a>>>,
    pub(super) annotations: JsonPresence,
    pub(super) audio: JsonPresence,
    pub(super) images: JsonPresence,
    pub(super) executed_tools: JsonPresence,
    pub(super) thought_signature: JsonPresence,
}

/// OpenRouter's record of reasoning. Its text is also in `reasoning`.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ReasoningDetail<'a> {
    pub(super) signature: JsonText<'a>,
    pub(super) data: JsonText<'a>,
}

/// A part of content that is a list. Mistral sends thinking in such parts.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ContentPiece<'a> {
    pub(super) text: JsonText<'a>,
    pub(super) thinking: TextOrList<'a, ThinkingPiece<'a>>,
    pub(super) refusal: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ThinkingPiece<'a> {
    pub(super) text: JsonText<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ChatToolCall<'a> {
    pub(super) index: JsonCount,
    pub(super) id: JsonText<'a>,
    #[serde(rename = "type")]
    pub(super) kind: JsonText<'a>,
    pub(super) function: Option<ChatFunction<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct ChatFunction<'a> {
    pub(super) name: JsonText<'a>,
    pub(super) arguments: Option<&'a RawValue>,
}
