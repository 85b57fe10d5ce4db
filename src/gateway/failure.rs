//! How attempts fail, and what each failure means to Pingora's retry loop.

use pingora::{Error, ErrorType};

use crate::routing::document::RetryOn;

/// Error type: no content came before the deadline for the first.
pub(super) const NO_FIRST_CONTENT: &str = "NoFirstContent";
/// Error type: the attempt took longer than its provider's total timeout.
pub(super) const OVER_TIME: &str = "OverTime";
/// Error type: the status of the answer calls for the next target.
pub(super) const BAD_STATUS: &str = "BadStatus";
/// Error type: an error inside a successful answer, before any content.
pub(super) const IN_BAND: &str = "InBandError";
/// Error type: the answer ended before its terminal event.
pub(super) const CUT: &str = "Cut";
/// Error type: the collected answer is larger than [`crate::bounds::COLLECT_BYTES`].
pub(super) const TOO_LARGE: &str = "TooLarge";

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
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

impl Failure {
    /// The word in `attempts[].error` and in the metric's `outcome`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Failure::Connect => "connect",
            Failure::Timeout => "timeout",
            Failure::RateLimited => "rate_limited",
            Failure::ServerError => "server_error",
            Failure::Unauthorized => "unauthorized",
            Failure::InBand => "in_band_error",
            Failure::Cut => "cut",
            Failure::TooLarge => "too_large",
            Failure::ClientGone => "client_gone",
            Failure::Internal => "internal",
            Failure::BreakerOpen => "breaker_open",
            Failure::CoolDown => "cooldown",
            Failure::Concurrency => "concurrency",
            Failure::NoNode => "no_node",
        }
    }

    /// The failures before the target is asked at all.
    pub(super) const BARRED: [Failure; 4] =
        [Failure::BreakerOpen, Failure::CoolDown, Failure::Concurrency, Failure::NoNode];

    /// Whether the target was not asked.
    pub(super) fn is_barred(self) -> bool {
        Self::BARRED.contains(&self)
    }

    /// Whether the recipe lets this failure go to the next target. A refused credential always
    /// does: it is ours. A connection that breaks before any content counts as one that failed.
    pub(super) fn fails_over(self, on: &RetryOn) -> bool {
        match self {
            Failure::Connect | Failure::Cut => on.connect,
            Failure::Timeout => on.timeout,
            Failure::RateLimited => on.rate_limited,
            Failure::ServerError | Failure::InBand => on.server_error,
            Failure::Unauthorized
            | Failure::BreakerOpen
            | Failure::CoolDown
            | Failure::Concurrency
            | Failure::NoNode => true,
            Failure::TooLarge | Failure::ClientGone | Failure::Internal => false,
        }
    }
}

/// An error of the provider's answer for Pingora's retry loop.
pub(super) fn fault(kind: &'static str, retry: bool) -> Box<Error> {
    let mut error = Error::explain(ErrorType::Custom(kind), "provider answer");
    error.as_up();
    error.set_retry(retry);
    error
}
