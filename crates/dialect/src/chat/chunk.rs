//! Chunks of a stream and whole chat completions, with the members that the gateway reads.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::neutral::answer::TokenCounts;
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
    #[serde(default)]
    pub(super) usage: Option<ChatUsage>,
    #[serde(default)]
    pub(super) x_groq: Option<GroqUsage>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct GroqUsage {
    #[serde(default)]
    pub(super) usage: Option<ChatUsage>,
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

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatUsage {
    pub(super) prompt_tokens: JsonCount,
    pub(super) completion_tokens: JsonCount,
    pub(super) prompt_tokens_details: Option<PromptDetails>,
    pub(super) completion_tokens_details: Option<CompletionDetails>,
    pub(super) prompt_cache_hit_tokens: JsonCount,
    pub(super) num_cached_tokens: JsonCount,
    pub(super) cached_tokens: JsonCount,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct PromptDetails {
    pub(super) cached_tokens: JsonCount,
    pub(super) cache_write_tokens: JsonCount,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct CompletionDetails {
    pub(super) reasoning_tokens: JsonCount,
}

impl ChatUsage {
    pub(super) fn counts(self) -> Option<TokenCounts> {
        let input = self.prompt_tokens.0?;
        let details = self.prompt_tokens_details.unwrap_or_default();
        let elsewhere = [self.prompt_cache_hit_tokens, self.num_cached_tokens, self.cached_tokens];
        let mut places = [details.cached_tokens].into_iter().chain(elsewhere);
        let reasoning = self.completion_tokens_details.unwrap_or_default().reasoning_tokens;
        Some(TokenCounts {
            input,
            cache_read: places.find_map(|count| count.0).unwrap_or(0),
            cache_written: details.cache_write_tokens.0.unwrap_or(0),
            output: self.completion_tokens.0.unwrap_or(0),
            reasoning: reasoning.0.unwrap_or(0),
        })
    }
}
