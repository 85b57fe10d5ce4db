//! How attempts fail, and what each failure is to Pingora's retry loop.

use pingora::{Error, ErrorType};

use crate::routing::RetryOn;

/// The deadline for the first content has passed: as an error type of Pingora, told apart in the retry rule.
pub(super) const NO_FIRST_CONTENT: &str = "NoFirstContent";
/// The attempt took longer than its provider's total.
pub(super) const OVER_TIME: &str = "OverTime";
/// The status of the answer calls for the next target.
pub(super) const BAD_STATUS: &str = "BadStatus";
/// An error inside a 200 event stream, before any content.
pub(super) const IN_BAND: &str = "InBandError";
/// The answer ended without its terminal event.
pub(super) const CUT: &str = "Cut";
/// The collected answer is larger than [`crate::bounds::COLLECT_BYTES`].
pub(super) const TOO_LARGE: &str = "TooLarge";

/// How an attempt failed, in the words of `attempts[].error` and of the metric's `outcome`.
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
    /// The breaker opened, or its probe was taken, after the decision.
    BreakerOpen,
    /// The target asked to be left alone after the decision.
    CoolDown,
    /// The provider's last place was taken after the decision.
    Concurrency,
    /// No node serves the model any more, or none that was not asked.
    NoNode,
}

impl Failure {
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

    /// Those by which the target was not asked at all: its permit was gone.
    pub(super) const BARRED: [Failure; 4] =
        [Failure::BreakerOpen, Failure::CoolDown, Failure::Concurrency, Failure::NoNode];

    /// Whether the target was not asked at all.
    pub(super) fn is_barred(self) -> bool {
        Self::BARRED.contains(&self)
    }

    /// Whether the recipe lets this failure go to the next target. A credential that a provider refuses is ours
    /// to mend, whatever the recipe says; a connection that breaks before any content is as good as none.
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

/// An error of the provider's answer, as Pingora's loop understands it.
pub(super) fn fault(kind: &'static str, retry: bool) -> Box<Error> {
    let mut error = Error::explain(ErrorType::Custom(kind), "provider answer");
    error.as_up();
    error.set_retry(retry);
    error
}
