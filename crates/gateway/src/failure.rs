//! How attempts fail, and what each failure means to Pingora's retry loop.

use pingora::{Error, ErrorType};

use rerouter_routing::RetryOn;

/// Error type: no content came before the deadline for the first content.
pub(super) const NO_FIRST_CONTENT: &str = "NoFirstContent";
/// Error type: the attempt took longer than the total timeout of its provider.
pub(super) const OVER_TIME: &str = "OverTime";
/// Error type: the status of the answer calls for the next target.
pub(super) const BAD_STATUS: &str = "BadStatus";
/// Error type: an error inside a successful answer, before any content.
pub(super) const IN_BAND: &str = "InBandError";
/// Error type: the answer ended before its terminal event.
pub(super) const CUT: &str = "Cut";
/// Error type: the collected answer is larger than
/// [`COLLECT_BYTES`](rerouter_dialect::neutral::answer_builder::COLLECT_BYTES).
pub(super) const TOO_LARGE: &str = "TooLarge";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptFailure {
    Connect,
    Timeout,
    RateLimited,
    ServerError,
    Unauthorized,
    InBand,
    Cut,
    TooLarge,
    ClientGone,
    Internal,
    /// The breaker opened after the decision, or its probe was taken.
    BreakerOpen,
    /// The target's cooldown began after the decision.
    CoolDown,
    /// The provider's concurrency limit was reached after the decision.
    Concurrency,
    /// No node serves the model any more, or all were asked.
    NoNode,
}

impl AttemptFailure {
    /// The word in `attempts[].error` and in the metric's `outcome`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            AttemptFailure::Connect => "connect",
            AttemptFailure::Timeout => "timeout",
            AttemptFailure::RateLimited => "rate_limited",
            AttemptFailure::ServerError => "server_error",
            AttemptFailure::Unauthorized => "unauthorized",
            AttemptFailure::InBand => "in_band_error",
            AttemptFailure::Cut => "cut",
            AttemptFailure::TooLarge => "too_large",
            AttemptFailure::ClientGone => "client_gone",
            AttemptFailure::Internal => "internal",
            AttemptFailure::BreakerOpen => "breaker_open",
            AttemptFailure::CoolDown => "cooldown",
            AttemptFailure::Concurrency => "concurrency",
            AttemptFailure::NoNode => "no_node",
        }
    }

    /// The failures that occur before the target is asked.
    pub(super) const BARRED: [AttemptFailure; 4] = [
        AttemptFailure::BreakerOpen,
        AttemptFailure::CoolDown,
        AttemptFailure::Concurrency,
        AttemptFailure::NoNode,
    ];

    pub(super) fn is_barred(self) -> bool {
        Self::BARRED.contains(&self)
    }

    /// Whether the recipe lets this failure go to the next target. A refused credential always
    /// does, because the client is not at fault. A connection that breaks before any content counts
    /// as a failed connection.
    pub(super) fn fails_over(self, on: &RetryOn) -> bool {
        match self {
            AttemptFailure::Connect | AttemptFailure::Cut => on.connect,
            AttemptFailure::Timeout => on.timeout,
            AttemptFailure::RateLimited => on.rate_limited,
            AttemptFailure::ServerError | AttemptFailure::InBand => on.server_error,
            AttemptFailure::Unauthorized
            | AttemptFailure::BreakerOpen
            | AttemptFailure::CoolDown
            | AttemptFailure::Concurrency
            | AttemptFailure::NoNode => true,
            AttemptFailure::TooLarge | AttemptFailure::ClientGone | AttemptFailure::Internal => {
                false
            }
        }
    }
}

pub(super) fn fault(kind: &'static str, retry: bool) -> Box<Error> {
    let mut error = Error::explain(ErrorType::Custom(kind), "provider answer");
    error.as_up();
    error.set_retry(retry);
    error
}
