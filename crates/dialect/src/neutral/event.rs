//! The events of a stream in the neutral form.

use super::answer::{Failure, StopReason, TokenCounts};
use super::seal::Seal;

/// What an event of a stream says. Parts start in the order of their indexes, from 0, and may be
/// open side by side. A part of text is never empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StreamEvent<'a> {
    Start {
        id: &'a str,
        model: &'a str,
        /// Unix time in seconds, 0 where the provider names none.
        created: u64,
        usage: Option<TokenCounts>,
    },
    PartStart {
        index: usize,
        part: PartKind<'a>,
    },
    /// More text of a part; for a tool call, a piece of the arguments' JSON text.
    Delta {
        index: usize,
        text: &'a str,
    },
    /// The seal of a part that is thinking.
    Sealed {
        index: usize,
        seal: Seal,
    },
    PartEnd {
        index: usize,
    },
    Stop(StopReason),
    /// The whole usage so far: a later one replaces it.
    Usage(TokenCounts),
    /// The answer has something that the neutral form has no place for.
    Dropped(&'static str),
    /// The stream is whole.
    End,
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind<'a> {
    Text,
    Thinking,
    Refusal,
    /// An empty id is one that the provider left out.
    ToolCall {
        id: &'a str,
        name: &'a str,
    },
    /// A call of a tool that takes free text: its deltas are the text.
    TextCall {
        id: &'a str,
        name: &'a str,
    },
}

/// The names of what answers have and the neutral form has not.
pub mod dropped {
    pub(crate) const AUDIO: &str = "audio";
    pub const CHOICES: &str = "choices";
    pub(crate) const CITATIONS: &str = "citations";
    pub(crate) const CUSTOM_TOOL_CALLS: &str = "custom_tool_calls";
    pub(crate) const IMAGES: &str = "images";
    pub(crate) const LOGPROBS: &str = "logprobs";
    pub(crate) const REASONING_SIGNATURES: &str = "reasoning_signatures";
    pub(crate) const SERVER_TOOLS: &str = "server_tools";
}
