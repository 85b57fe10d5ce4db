//! The events of a stream in the neutral form.

use super::answer::{Failure, StopReason, TokenCounts};
use super::seal::Seal;

/// An event of a stream. Parts start in the order of their indexes, from 0. Several parts may be
/// open at once. A text part is never empty.
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
    /// The seal of a thinking part.
    Sealed {
        index: usize,
        seal: Seal,
    },
    PartEnd {
        index: usize,
    },
    Stop(StopReason),
    /// The whole usage so far. It replaces the previous one.
    Usage(TokenCounts),
    /// A part of the answer was left out, as the neutral form cannot represent it.
    Dropped(&'static str),
    /// The stream is complete.
    End,
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind<'a> {
    Text,
    Thinking,
    Refusal,
    /// `id` is empty if the provider sent none.
    ToolCall {
        id: &'a str,
        name: &'a str,
    },
    /// A call of a tool that takes free text. Its deltas are that text.
    TextCall {
        id: &'a str,
        name: &'a str,
    },
}

/// Names of answer parts that the neutral form cannot represent.
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

/// Tells that a part of the answer is left out, if it is there.
pub(crate) fn drop_if(is_there: bool, name: &'static str, each: &mut impl FnMut(StreamEvent<'_>)) {
    if is_there {
        each(StreamEvent::Dropped(name));
    }
}
