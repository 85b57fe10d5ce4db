//! A whole answer in the neutral form.

use super::part::Part;

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub id: String,
    pub model: String,
    /// Unix time in seconds.
    pub created: Option<u64>,
    pub content: Vec<Part>,
    pub stop: StopReason,
    /// None where the provider named none.
    pub usage: Option<TokenCounts>,
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    End,
    MaxTokens,
    /// The sequence that was met, where the dialect names it.
    Sequence(Option<String>),
    ToolCalls,
    /// The model or a filter of the provider refused.
    Refusal,
    /// The provider paused a long turn; the client may send it back to go on.
    Pause,
    /// The stream ended before the model said why.
    Unknown,
}

/// Tokens as billed. `input` has the cached ones in it, `output` the reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    pub input: u64,
    pub cache_read: u64,
    pub cache_written: u64,
    pub output: u64,
    pub reasoning: u64,
}

/// An error answer of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: u16,
    /// OpenAI's or Anthropic's `type`, Gemini's `status`, in the neutral words of the writer.
    pub kind: FailureKind,
    pub code: Option<String>,
    pub message: String,
    pub param: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    InvalidRequest,
    Authentication,
    Permission,
    NotFound,
    TooLarge,
    RateLimit,
    Overloaded,
    Timeout,
    Internal,
}
