//! An attempt under way as the target's state and the metrics see it, and what its end says of the target.

use std::sync::Arc;
use std::time::Duration;

use super::failure::Failure;
use super::relay::Relay;
use super::retry_after;
use crate::app::App;
use crate::routing::health::{Barred, Ending, Permit};
use crate::routing::recipe::Target;
use crate::secret::Secret;

/// Holds the target's permit, and its place in the gauge of attempts, for as long as it lives.
pub(super) struct UnderWay {
    app: Arc<App>,
    target: Arc<Target>,
    permit: Option<Permit>,
}

impl UnderWay {
    /// Asks for the permit; `counted` says whether it is live traffic.
    pub(super) fn begin(app: &Arc<App>, target: &Arc<Target>, counted: bool) -> Result<Self, Failure> {
        let permit = Permit::take(target, app.clock.now(), counted).map_err(|barred| match barred {
            Barred::BreakerOpen => Failure::BreakerOpen,
            Barred::CoolDown => Failure::CoolDown,
            Barred::Concurrency => Failure::Concurrency,
        })?;
        app.metrics.inflight(&target.provider.name, &target.model, 1);
        Ok(UnderWay { app: app.clone(), target: target.clone(), permit: Some(permit) })
    }

    /// The credential of this attempt.
    pub(super) fn key(&self) -> Option<&Secret> {
        self.permit.as_ref().and_then(Permit::key)
    }

    /// Notes the first content, `took` after the beginning. Again: nothing.
    pub(super) fn content(&mut self, took: Duration) {
        if let Some(permit) = self.permit.as_mut().filter(|permit| !permit.has_content()) {
            permit.content(took, self.app.clock.now());
        }
    }

    /// Ends the attempt, `took` after the beginning. Gives whether another key of the provider may do better.
    pub(super) fn end(mut self, failure: Option<Failure>, relay: &Relay, took: Duration) -> bool {
        let Some(permit) = self.permit.take() else { return false };
        let now = self.app.clock.now();
        // A refusal may have been passed on as an answer when there was no other target.
        let ending = match failure.or_else(|| relay.refused()) {
            None => Ending::Answered,
            Some(Failure::RateLimited) => Ending::Limited(retry_after::read(&relay.headers, now)),
            Some(Failure::ServerError) if relay.status == Some(503) => Ending::Unavailable(retry_after::read(&relay.headers, now)),
            // An error inside a stream may say the status that it would have been.
            Some(Failure::InBand) => match relay.tally.error().and_then(|error| error.status) {
                Some(401) => Ending::Refused,
                Some(403) => Ending::Forbidden,
                Some(429) => Ending::Limited(None),
                Some(400..=499) => Ending::Answered,
                _ => Ending::Failed,
            },
            Some(Failure::Connect | Failure::ServerError | Failure::Cut) => Ending::Failed,
            Some(Failure::Timeout) => Ending::TimedOut,
            Some(Failure::Unauthorized) if relay.status == Some(403) => Ending::Forbidden,
            Some(Failure::Unauthorized) => Ending::Refused,
            Some(
                Failure::TooLarge
                | Failure::ClientGone
                | Failure::Internal
                | Failure::BreakerOpen
                | Failure::CoolDown
                | Failure::Concurrency
                | Failure::NoNode,
            ) => Ending::Nothing,
        };
        permit.end(ending, took, now)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.app.metrics.inflight(&self.target.provider.name, &self.target.model, -1);
    }
}
