//! Chunks of a stream and whole chat completions, with the members that the gateway reads.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::neutral::json_text::{JsonCount, JsonPresence, JsonText, TextOrList};

/// A chunk or a whole completion.
#[derive(Deserialize)]
pub(super) struct CompletionChunk<'a> {
    #[serde(borrow, default)]
    pub(super) id: JsonText<'a>,
    #[serde(default)]
    pub(super) created: JsonCount,
    #[serde(borrow, default)]
    pub(super) model: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) choices: Option<Vec<ChatChoice<'a>>>,
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) x_groq: Option<GroqUsage<'a>>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct GroqUsage<'a> {
    #[serde(borrow, default)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ChatChoice<'a> {
    #[serde(default)]
    pub(super) index: JsonCount,
    #[serde(borrow, default)]
    pub(super) delta: Option<CompletionDelta<'a>>,
    /// The whole message of a completion that is no stream.
    #[serde(borrow, default)]
    pub(super) message: Option<CompletionDelta<'a>>,
    #[serde(borrow, default)]
    pub(super) finish_reason: JsonText<'a>,
    #[serde(default)]
    pub(super) logprobs: JsonPresence,
}

#[derive(Deserialize)]
pub(super) struct CompletionDelta<'a> {
    #[serde(borrow, default)]
    pub(super) content: TextOrList<'a, ContentPiece<'a>>,
    #[serde(borrow, default)]
    pub(super) reasoning_content: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) reasoning: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) refusal: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) tool_calls: Option<Vec<ChatToolCall<'a>>>,
    #[serde(borrow, default)]
    pub(super) function_call: Option<ChatFunction<'a>>,
    #[serde(borrow, default)]
    pub(super) reasoning_details: Option<Vec<ReasoningDetail<'a>>>,
    #[serde(default)]
    pub(super) annotations: JsonPresence,
    #[serde(default)]
    pub(super) audio: JsonPresence,
    #[serde(default)]
    pub(super) images: JsonPresence,
    #[serde(default)]
    pub(super) executed_tools: JsonPresence,
    #[serde(default)]
    pub(super) thought_signature: JsonPresence,
}

/// OpenRouter's record of reasoning. Its text is also in `reasoning`.
#[derive(Deserialize)]
pub(super) struct ReasoningDetail<'a> {
    #[serde(borrow, default)]
    pub(super) signature: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) data: JsonText<'a>,
}

/// A part of content that is a list. Mistral sends thinking in such parts.
#[derive(Deserialize)]
pub(super) struct ContentPiece<'a> {
    #[serde(borrow, default)]
    pub(super) text: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) thinking: TextOrList<'a, ThinkingPiece<'a>>,
    #[serde(borrow, default)]
    pub(super) refusal: JsonText<'a>,
}

#[derive(Deserialize)]
pub(super) struct ThinkingPiece<'a> {
    #[serde(borrow, default)]
    pub(super) text: JsonText<'a>,
}

#[derive(Deserialize)]
pub(super) struct ChatToolCall<'a> {
    #[serde(default)]
    pub(super) index: JsonCount,
    #[serde(borrow, default)]
    pub(super) id: JsonText<'a>,
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) function: Option<ChatFunction<'a>>,
}

#[derive(Deserialize)]
pub(super) struct ChatFunction<'a> {
    #[serde(borrow, default)]
    pub(super) name: JsonText<'a>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
}
