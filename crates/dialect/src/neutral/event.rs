//! The events of a stream in the neutral form, and what reads and writes them.

use std::borrow::Cow;
use std::fmt::Debug;

use super::answer::{Citation, Failure, StopReason};
use super::seal::Seal;
use crate::usage_object::PartialUsage;

/// An event of a stream. Parts start in the order of their indexes, from 0. Several parts may be
/// open at once. A text part is never empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StreamEvent<'a> {
    Start {
        id: &'a str,
        model: &'a str,
        /// Unix time in seconds, 0 where the provider names none.
        created: u64,
        usage: Option<&'a PartialUsage>,
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
    /// A source of an open text part.
    Cited {
        index: usize,
        citation: Citation,
    },
    /// The seal of a thinking part.
    Sealed {
        index: usize,
        seal: Seal,
    },
    PartEnd {
        index: usize,
    },
    /// The next text begins a message of its own.
    NextMessage,
    /// A tool of the provider runs.
    Working,
    /// The answers that an event is about. Only the first one is read.
    Choices(Choices),
    Stop(StopReason),
    /// The whole usage so far. It replaces the previous one.
    Usage {
        told: &'a PartialUsage,
        is_final: bool,
    },
    /// The provider's number of the event.
    Sequence(u64),
    /// A part of the answer was left out, as the neutral form cannot represent it.
    Dropped(Lost),
    /// Members that the reader does not know, of the object at this path.
    Unknown {
        path: &'static str,
        names: &'a [Cow<'a, str>],
    },
    End,
    Failed(Failure),
    /// The reader has to give up: the answer exceeds its limits.
    TooLong,
}

/// Where a reader passes its events.
pub(crate) type Each<'a> = &'a mut dyn FnMut(StreamEvent<'_>);

/// The data of an event is not of the dialect.
pub(crate) struct Unreadable;

pub(crate) trait ReadEvents: Debug + Send + Sync {
    /// Reads the data of an event, or a whole answer of a dialect whose chunks are answers. `name`
    /// is the name of the event, if it has one.
    fn event(&mut self, name: &str, data: &str, each: Each<'_>) -> Result<(), Unreadable>;

    /// Ends the stream when the connection has ended. Most dialects have a last event.
    fn end(&mut self, _: Each<'_>) {}

    /// Bytes in memory.
    fn held(&self) -> usize {
        0
    }
}

pub(crate) trait WriteEvents: Debug + Send + Sync {
    fn write(&mut self, event: StreamEvent<'_>, out: &mut Vec<u8>);

    /// Bytes in memory.
    fn held(&self) -> usize {
        0
    }
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

/// The answers to one request that an event is about, as sets of bits by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) begun: u128,
    pub(crate) ended: u128,
    /// Bytes of text in other answers than the first.
    pub(crate) other_bytes: u64,
}

impl Choices {
    /// Notes the answer of this index, whose text in this event has so many bytes. No provider
    /// gives more than 128 answers at once.
    pub(crate) fn add(&mut self, index: u64, has_ended: bool, bytes: u64) {
        let bit = u32::try_from(index).ok().and_then(|index| 1u128.checked_shl(index));
        self.begun |= bit.unwrap_or(0);
        if has_ended {
            self.ended |= bit.unwrap_or(0);
        }
        if index > 0 {
            self.other_bytes += bytes;
        }
    }

    pub(crate) fn tell(self, each: Each<'_>) {
        if self != Choices::default() {
            each(StreamEvent::Choices(self));
        }
    }
}

/// Declares the parts of an answer that the neutral form, or a client's dialect, may lack.
macro_rules! lost {
    ($($lost:ident $word:literal $about:literal)*) => {
        /// A part of an answer that a client does not get.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Lost {
            $($lost,)*
        }

        impl Lost {
            pub const ALL: &'static [Lost] = &[$(Lost::$lost,)*];

            /// Its word in `x-rerouter-dropped`.
            pub fn word(self) -> &'static str {
                match self {
                    $(Lost::$lost => $word,)*
                }
            }

            /// What is lost, for the reference.
            pub fn about(self) -> &'static str {
                match self {
                    $(Lost::$lost => $about,)*
                }
            }
        }
    };
}

#[rustfmt::skip]
lost! {
    Audio "audio" "audio that the model made"
    Choices "choices" "other answers than the first"
    Citations "citations" "sources without a URL, or for a text that is over"
    Images "images" "images and files that the model made"
    Logprobs "logprobs" "log probabilities"
    PausedTurn "pause_turn" "a paused turn: chat and responses read it as cut at its length"
    ReasoningSignatures "reasoning_signatures" "a signature that no client sends back"
    ServerTools "server_tools" "calls and results of tools that the provider ran"
}

impl Lost {
    /// Whether the model made it, so that no failover is possible after it.
    pub(crate) fn is_content(self) -> bool {
        matches!(self, Lost::Audio | Lost::Images | Lost::ServerTools)
    }
}

pub(crate) fn drop_if(is_there: bool, lost: Lost, each: Each<'_>) {
    if is_there {
        each(StreamEvent::Dropped(lost));
    }
}

pub(crate) fn tell_unknown(path: &'static str, names: &[Cow<'_, str>], each: Each<'_>) {
    if !names.is_empty() {
        each(StreamEvent::Unknown { path, names });
    }
}
