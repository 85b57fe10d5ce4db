//! The guard of an attempt: it holds the target's permit, and reports the end of the attempt to the
//! health of the target. Changes of breakers are logged here.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use log::{info, warn};

use super::failure::AttemptFailure;
use super::relay::Relay;
use super::retry_after;
use rerouter_base::id::NodeId;
use rerouter_core::app::App;
use rerouter_routing::Target;
use rerouter_routing::health::{
    AttemptOutcome, AttemptPermit, BreakerChange, IsolatedCooldowns, PermitRefusal, TripReason,
};

/// Holds the permit of the target and counts in the gauge of attempts in flight, until it is
/// dropped.
pub(super) struct AttemptGuard {
    app: Arc<App>,
    target: Arc<Target>,
    node: Option<NodeId>,
    permit: Option<AttemptPermit>,
}

impl AttemptGuard {
    /// With `apart`, the target's health as this attempt finds it is noted there only, as for a
    /// replay or a shadow.
    pub(super) fn begin(
        app: &Arc<App>,
        target: &Arc<Target>,
        node: Option<NodeId>,
        apart: Option<&Arc<IsolatedCooldowns>>,
    ) -> Result<Self, AttemptFailure> {
        let permit =
            AttemptPermit::take(target, app.clock.now(), apart).map_err(|barred| match barred {
                PermitRefusal::BreakerOpen => AttemptFailure::BreakerOpen,
                PermitRefusal::CoolDown => AttemptFailure::CoolDown,
                PermitRefusal::Concurrency => AttemptFailure::Concurrency,
            })?;
        target.meters(&app.metrics).inflight(1);
        let change = permit.change();
        let guard =
            AttemptGuard { app: app.clone(), target: target.clone(), node, permit: Some(permit) };
        guard.log(change, "");
        Ok(guard)
    }

    /// The headers of this attempt's request, with the key that it uses.
    pub(super) fn headers(&self) -> Option<&HeaderMap> {
        self.permit.as_ref().and_then(AttemptPermit::headers)
    }

    /// Notes the first content, `took` after the start. Further calls do nothing.
    pub(super) fn content(&mut self, took: Duration) {
        if let Some(permit) = self.permit.as_mut().filter(|permit| !permit.has_content()) {
            let change = permit.content(took, self.app.clock.now());
            self.log(change, "");
        }
    }

    /// Ends the attempt, `took` after the start. Returns whether another key of the provider may
    /// succeed.
    pub(super) fn end(
        mut self,
        failure: Option<AttemptFailure>,
        relay: &Relay,
        took: Duration,
    ) -> bool {
        let Some(permit) = self.permit.take() else { return false };
        let now = self.app.clock.now();
        // A refusal may have been passed on as an answer because there was no other target.
        let failure = failure.or_else(|| relay.refused());
        let ending = match failure {
            None => AttemptOutcome::Answered,
            Some(AttemptFailure::RateLimited) => {
                AttemptOutcome::Limited(retry_after::read(&relay.headers, now))
            }
            Some(AttemptFailure::ServerError) if relay.status == Some(503) => {
                AttemptOutcome::Unavailable(retry_after::read(&relay.headers, now))
            }
            // The error in an answer may name a status.
            Some(AttemptFailure::InBand) => match relay.error_status() {
                Some(401) => AttemptOutcome::Refused,
                Some(403) => AttemptOutcome::Forbidden,
                Some(429) => AttemptOutcome::Limited(None),
                Some(400..=499) => AttemptOutcome::Answered,
                _ => AttemptOutcome::Failed,
            },
            Some(AttemptFailure::Connect | AttemptFailure::ServerError | AttemptFailure::Cut) => {
                AttemptOutcome::Failed
            }
            Some(AttemptFailure::Timeout) => AttemptOutcome::TimedOut,
            Some(AttemptFailure::Unauthorized) if relay.status == Some(403) => {
                AttemptOutcome::Forbidden
            }
            Some(AttemptFailure::Unauthorized) => AttemptOutcome::Refused,
            Some(
                AttemptFailure::TooLarge
                | AttemptFailure::ClientGone
                | AttemptFailure::Internal
                | AttemptFailure::BreakerOpen
                | AttemptFailure::CoolDown
                | AttemptFailure::Concurrency
                | AttemptFailure::NoNode,
            ) => AttemptOutcome::Nothing,
        };
        let ended = permit.end(ending, took, now);
        self.log(ended.change, failure.map_or("", AttemptFailure::as_str));
        ended.another_key
    }

    fn log(&self, change: Option<BreakerChange>, last_error: &str) {
        log_change(change, &self.target, self.node.as_ref(), last_error);
    }
}

pub(super) fn log_change(
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
                TripReason::Tried => format!("its probe failed: {error}"),
                TripReason::Check => format!("its health check failed: {error}"),
            };
            warn!("{breaker} is open for {time:?}: {why}");
        }
        BreakerChange::HalfOpen => info!("{breaker} is half-open: one request probes it"),
        BreakerChange::Closed => info!("{breaker} is closed: it answers again"),
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        self.target.meters(&self.app.metrics).inflight(-1);
    }
}
