//! What becomes of a batch of a provider's answer, and what is known of the call to judge it.

use bytes::Bytes;
use http::HeaderMap;
use pingora::Error;
use pingora::protocols::http::HttpTask;

use super::answer_translation::AnswerPlan;
use rerouter_base::secret::Mask;
use rerouter_dialect::Dialect;

/// Where the answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// To the client at once, after the first content event.
    Relay,
    Collect,
}

/// What to do after a batch of the answer.
pub(super) enum RelayVerdict {
    Hold,
    /// Write these to the client, then fail with `then`, if any.
    Forward {
        tasks: Vec<HttpTask>,
        then: Option<Box<Error>>,
    },
    /// The whole answer is in memory.
    Collected,
    /// Give this attempt up.
    Abandon(Box<Error>),
}

/// A whole answer kept in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct WholeAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether it is an event stream.
    pub(super) stream: bool,
    /// The attempt that gave it; none has the largest number, of an answer of ours.
    pub(super) index: usize,
}

/// What [`Relay::observe`] needs to know of the call.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) mode: Mode,
    /// Whether another target could still be tried.
    pub(super) has_next: bool,
    /// Whether the answer is captured. Without that no stream is copied; a document is, for its
    /// usage.
    pub(super) captured: bool,
    /// Largest copy for the capture, in bytes.
    pub(super) capture_limit: usize,
    /// The dialect of the provider's answer.
    pub(super) dialect: Dialect,
    /// How it becomes an answer in the client's, where that is another.
    pub(super) translation: Option<&'a AnswerPlan>,
    /// We asked for the usage of a stream, and the client did not: it is taken out.
    pub(super) strip_usage: bool,
    /// Our credentials at the provider, which its answer must not repeat.
    pub(super) credentials: Option<&'a Mask>,
}
