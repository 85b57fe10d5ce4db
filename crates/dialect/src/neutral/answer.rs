//! A whole answer in the neutral form.

use super::part::Part;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// As the provider gave it.
    pub id: String,
    pub model: String,
    /// Unix time in seconds.
    pub created: u64,
    pub content: Vec<Part>,
    pub stop: StopReason,
    /// None where the provider named none.
    pub usage: Option<TokenCounts>,
}

/// Why the model stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The provider still works at the answer.
    #[default]
    Unfinished,
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

impl TokenCounts {
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// An error answer of a provider, or why an answer could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub status: u16,
    pub kind: FailureKind,
    /// The `code` of an error of OpenAI.
    pub code: Option<String>,
    /// In the provider's words.
    pub message: String,
    /// The member of the request that it is about.
    pub param: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    InvalidRequest,
    Authentication,
    Billing,
    Permission,
    NotFound,
    TooLarge,
    RateLimit,
    Overloaded,
    Timeout,
    Internal,
}

/// What the gateway knows of a call, for what the provider's answer leaves out.
#[derive(Clone, Debug, Default)]
pub struct AnswerContext {
    /// The call's own id, from which ids are made.
    pub id: String,
    pub model: String,
    /// Unix time in seconds.
    pub created: u64,
    /// A chat client asked for the usage of its stream.
    pub include_usage: bool,
    /// The client's tools that take free text.
    pub text_tools: Vec<String>,
}
