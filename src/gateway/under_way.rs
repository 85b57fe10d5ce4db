//! An attempt under way as the target's state and the metrics see it, and what its end says of the
//! target. Changes of breakers are logged here.

use std::sync::Arc;
use std::time::Duration;

use log::{info, warn};

use super::failure::Failure;
use super::relay::Relay;
use super::retry_after;
use crate::app::App;
use crate::id::NodeId;
use crate::routing::Target;
use crate::routing::health::{
    AttemptOutcome, AttemptPermit, BreakerChange, IsolatedCooldowns, PermitDenied, TripReason,
};
use crate::secret::Secret;

/// Holds the target's permit, and its place in the gauge of attempts, for as long as it lives.
pub(super) struct UnderWay {
    app: Arc<App>,
    target: Arc<Target>,
    /// Which of the nodes behind the target.
    node: Option<NodeId>,
    permit: Option<AttemptPermit>,
}

impl UnderWay {
    /// Asks for the permit; a replay or a shadow has what it learns `apart`.
    pub(super) fn begin(
        app: &Arc<App>,
        target: &Arc<Target>,
        node: Option<NodeId>,
        apart: Option<&Arc<IsolatedCooldowns>>,
    ) -> Result<Self, Failure> {
        let permit =
            AttemptPermit::take(target, app.clock.now(), apart).map_err(|barred| match barred {
                PermitDenied::BreakerOpen => Failure::BreakerOpen,
                PermitDenied::CoolDown => Failure::CoolDown,
                PermitDenied::Concurrency => Failure::Concurrency,
            })?;
        app.metrics.inflight(&target.provider.name, &target.model, 1);
        let change = permit.change();
        let under_way =
            UnderWay { app: app.clone(), target: target.clone(), node, permit: Some(permit) };
        under_way.tell(change, "");
        Ok(under_way)
    }

    /// The credential of this attempt.
    pub(super) fn key(&self) -> Option<&Secret> {
        self.permit.as_ref().and_then(AttemptPermit::key)
    }

    /// Notes the first content, `took` after the beginning. Again: nothing.
    pub(super) fn content(&mut self, took: Duration) {
        if let Some(permit) = self.permit.as_mut().filter(|permit| !permit.has_content()) {
            let change = permit.content(took, self.app.clock.now());
            self.tell(change, "");
        }
    }

    /// Ends the attempt, `took` after the beginning. Gives whether another key of the provider may do better.
    pub(super) fn end(mut self, failure: Option<Failure>, relay: &Relay, took: Duration) -> bool {
        let Some(permit) = self.permit.take() else { return false };
        let now = self.app.clock.now();
        // A refusal may have been passed on as an answer when there was no other target.
        let failure = failure.or_else(|| relay.refused());
        let ending = match failure {
            None => AttemptOutcome::Answered,
            Some(Failure::RateLimited) => {
                AttemptOutcome::Limited(retry_after::read(&relay.headers, now))
            }
            Some(Failure::ServerError) if relay.status == Some(503) => {
                AttemptOutcome::Unavailable(retry_after::read(&relay.headers, now))
            }
            // An error inside a stream may say the status that it would have been.
            Some(Failure::InBand) => match relay.tally.error().and_then(|error| error.status) {
                Some(401) => AttemptOutcome::Refused,
                Some(403) => AttemptOutcome::Forbidden,
                Some(429) => AttemptOutcome::Limited(None),
                Some(400..=499) => AttemptOutcome::Answered,
                _ => AttemptOutcome::Failed,
            },
            Some(Failure::Connect | Failure::ServerError | Failure::Cut) => AttemptOutcome::Failed,
            Some(Failure::Timeout) => AttemptOutcome::TimedOut,
            Some(Failure::Unauthorized) if relay.status == Some(403) => AttemptOutcome::Forbidden,
            Some(Failure::Unauthorized) => AttemptOutcome::Refused,
            Some(
                Failure::TooLarge
                | Failure::ClientGone
                | Failure::Internal
                | Failure::BreakerOpen
                | Failure::CoolDown
                | Failure::Concurrency
                | Failure::NoNode,
            ) => AttemptOutcome::Nothing,
        };
        let ended = permit.end(ending, took, now);
        self.tell(ended.change, failure.map_or("", Failure::as_str));
        ended.another_key
    }

    fn tell(&self, change: Option<BreakerChange>, last_error: &str) {
        tell(change, &self.target, self.node.as_ref(), last_error);
    }
}

/// Logs a change of a target's breaker, if there is one.
pub(super) fn tell(
    change: Option<BreakerChange>,
    target: &Target,
    node: Option<&NodeId>,
    error: &str,
) {
    let Some(change) = change else { return };
    let node = node.map(|node| format!(" at {node}")).unwrap_or_default();
    let breaker = format!("the breaker of {}/{}{node}", target.provider.name, target.model);
    match change {
        BreakerChange::Opened(why, time) => {
            let why = match why {
                TripReason::InARow(errors) => {
                    format!("{errors} errors in a row, the last: {error}")
                }
                TripReason::Share(errors, of) => {
                    format!("{errors} errors among {of} requests, the last: {error}")
                }
                TripReason::Tried => format!("the request that tried it failed: {error}"),
                TripReason::Check => format!("its health check failed: {error}"),
            };
            warn!("{breaker} is open for {time:?}: {why}");
        }
        BreakerChange::HalfOpen => info!("{breaker} is half-open: one request may try it"),
        BreakerChange::Closed => info!("{breaker} is closed: it answers again"),
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.app.metrics.inflight(&self.target.provider.name, &self.target.model, -1);
    }
}
