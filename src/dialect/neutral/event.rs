//! The events of a stream in the neutral form.

use super::answer::{Failure, StopReason, TokenCounts};
use super::part::Seal;

/// What an event of a stream says. Parts come one after another or side by side, by their index.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    Start {
        id: String,
        model: String,
        created: Option<u64>,
        usage: Option<TokenCounts>,
    },
    PartStart {
        index: usize,
        part: PartKind,
    },
    Delta {
        index: usize,
        delta: Delta,
    },
    PartEnd {
        index: usize,
    },
    Stop(StopReason),
    Usage(TokenCounts),
    /// The stream is whole.
    End,
    Failed(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartKind {
    Text,
    Thinking,
    ToolCall { id: String, name: String },
    Refusal,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    Text(String),
    Thinking(String),
    Seal(Seal),
    /// A piece of the arguments' JSON text.
    Arguments(String),
    Refusal(String),
}
