//! The verdict on a batch of a provider's answer, and the rules that it depends on.

use bytes::Bytes;
use http::HeaderMap;
use pingora::Error;
use pingora::protocols::http::HttpTask;

use super::answer_translation::AnswerPlan;
use rerouter_base::secret::Mask;
use rerouter_dialect::Dialect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// To the client at once, after the first content event.
    Relay,
    Collect,
}

pub(super) enum RelayVerdict {
    Hold,
    /// Write these tasks to the client, then fail with `then`, if any.
    Forward {
        tasks: Vec<HttpTask>,
        then: Option<Box<Error>>,
    },
    Collected,
    Abandon(Box<Error>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct WholeAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether the answer is an event stream.
    pub(super) stream: bool,
    /// The index of the attempt that answered; [`usize::MAX`] for our own answer.
    pub(super) index: usize,
}

/// The facts about the call that [`Relay::observe`](super::relay::Relay::observe) needs.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) mode: Mode,
    pub(super) has_next: bool,
    /// Whether the answer is captured. If not, streams are not copied; documents are, for their
    /// usage.
    pub(super) captured: bool,
    /// Largest copy for the capture, in bytes.
    pub(super) capture_limit: usize,
    /// The dialect of the provider's answer.
    pub(super) dialect: Dialect,
    /// How the answer is translated into the client's dialect, if that is another.
    pub(super) translation: Option<&'a AnswerPlan>,
    /// Set if we asked for the usage of a stream and the client did not: the usage is removed.
    pub(super) strip_usage: bool,
    /// Our credentials at the provider, which must not reach the client in an answer.
    pub(super) credentials: Option<&'a Mask>,
}
