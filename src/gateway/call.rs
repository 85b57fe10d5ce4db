//! One inference call as Pingora's hooks and the session wrap share it: the plan to walk, the body to send, and
//! the progress of the attempts. The lock is held for the handling of one batch, never across an await.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use pingora::protocols::http::{HttpTask, ServerSession};
use tokio::time::Instant;

use super::failure::Failure;
use super::relay::{Mode, Relay, Rules, Verdict};
use crate::app::{App, Live};
use crate::capture::record::Attempt;
use crate::id::RequestId;
use crate::limits::Slot;
use crate::protocol::openai::{self, Usage};
use crate::routing::decide::Decision;
use crate::routing::document::RetryOn;
use crate::routing::recipe::Target;

/// Counts a target's attempt as under way for as long as it lives.
pub(super) struct InFlight {
    app: Arc<App>,
    target: Arc<Target>,
}

impl InFlight {
    pub(super) fn begin(app: &Arc<App>, target: &Arc<Target>) -> Self {
        app.health.begin(&target.name);
        app.metrics.inflight(&target.provider.name, &target.model, 1);
        InFlight { app: app.clone(), target: target.clone() }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.app.health.end(&self.target.name);
        self.app.metrics.inflight(&self.target.provider.name, &self.target.model, -1);
    }
}

/// What a call is made of; see the module.
pub(super) struct Call {
    pub(super) id: RequestId,
    pub(super) live: Arc<Live>,
    pub(super) mode: Mode,
    /// The plan, resolved, no longer than the recipe's attempts.
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) retry_on: RetryOn,
    /// Appended to a provider's base path.
    pub(super) endpoint_path: &'static str,
    /// Headers of the client that providers see.
    pub(super) forward: HeaderMap,
    /// What is left of the caller's rates, as headers of the answer.
    pub(super) rates: HeaderMap,
    pub(super) decision: Arc<Decision>,
    pub(super) capture_limit: usize,
    pub(super) body: Bytes,
    pub(super) model: Range<usize>,
    pub(super) state: Mutex<Progress>,
    pub(super) home: Mutex<Option<Box<ServerSession>>>,
}

/// How far the call has come.
#[derive(Default)]
pub(super) struct Progress {
    /// The target in use, or to use next.
    pub(super) index: usize,
    pub(super) attempts: Vec<Attempt>,
    /// What abandoned attempts said that they used, by target.
    pub(super) lost: Vec<(usize, Usage)>,
    started: Option<Instant>,
    pub(super) in_flight: Option<InFlight>,
    deadline: Option<Instant>,
    /// A pooled connection that turned out dead was replaced once for this target.
    stale_replaced: bool,
    pub(super) failure: Option<Failure>,
    pub(super) relay: Relay,
    /// The caller's place among the requests at once.
    pub(super) slot: Option<Slot>,
}

impl Call {
    pub(super) fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn come_home(&self, session: Box<ServerSession>) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    pub(super) fn take_home(&self) -> Option<Box<ServerSession>> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn client_body(&self) -> Bytes {
        self.body.clone()
    }

    pub(super) fn body_is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// The target of the attempt under way.
    pub(super) fn target(&self) -> Option<Arc<Target>> {
        self.targets.get(self.state().index).cloned()
    }

    /// The client's bytes with the model that this target serves.
    pub(super) fn body_for(&self, target: &Target) -> Bytes {
        openai::rename_model(&self.body, &self.model, &target.model)
    }

    /// A new attempt begins: what an abandoned one left behind is gone.
    pub(super) fn begin_attempt(&self) -> Option<Arc<Target>> {
        let mut state = self.state();
        let target = self.targets.get(state.index).cloned()?;
        state.started = Some(Instant::now());
        state.relay.target = state.index;
        state.deadline = Some(Instant::now() + target.provider.timeouts.first_byte);
        state.relay.reset();
        Some(target)
    }

    /// The attempt has its connection; its first content is awaited from here.
    pub(super) fn attempt_connected(&self) {
        let first_byte = self.target().map(|target| target.provider.timeouts.first_byte);
        let mut state = self.state();
        state.relay.reset();
        if let Some(first_byte) = first_byte {
            state.deadline = Some(Instant::now() + first_byte);
        }
    }

    /// When the attempt is over time, and whether that is its total (or still its first content).
    pub(super) fn deadline(&self) -> (Instant, bool) {
        let state = self.state();
        let started = state.started.unwrap_or_else(Instant::now);
        let total = started + self.targets.get(state.index).map_or(Duration::ZERO, |target| target.provider.timeouts.total);
        // A collected answer is committed only at its end; its first content has come all the same.
        let begun = self.collects() && state.relay.first_content.is_some() && state.relay.refused().is_none();
        if state.relay.committed || begun {
            return (total, true);
        }
        match state.deadline {
            Some(first) if first < total => (first, false),
            _ => (total, true),
        }
    }

    pub(super) fn collects(&self) -> bool {
        self.mode == Mode::Collect
    }

    pub(super) fn complete(&self) {
        self.state().relay.complete = true;
    }
    /// Judges a batch of the provider's answer.
    pub(super) fn observe(&self, tasks: Vec<HttpTask>) -> Verdict {
        let rules = Rules {
            mode: self.mode,
            has_next: self.has_next() && Failure::InBand.fails_over(&self.retry_on),
            capture_limit: self.capture_limit,
        };
        let ends = tasks.iter().any(HttpTask::is_end);
        let mut state = self.state();
        let verdict = state.relay.observe(tasks, rules);
        if ends && matches!(verdict, Verdict::Forward { then: None, .. }) {
            // Before the end is written: who has read it may ask again at once.
            state.slot = None;
        }
        verdict
    }

    /// Whether the plan holds one more target after this.
    pub(super) fn has_next(&self) -> bool {
        self.state().index + 1 < self.targets.len()
    }

    /// The attempt failed: notes it, and answers whether the next target (or the same on a fresh connection) is tried.
    pub(super) fn attempt_failed(&self, failure: Failure, stale_connection: bool) -> bool {
        let has_next = self.has_next();
        let mut state = self.state();
        if stale_connection && !state.stale_replaced && state.relay.status.is_none() {
            state.stale_replaced = true;
            return true;
        }
        self.note_attempt(&mut state, Some(failure));
        let again = !state.relay.committed && has_next && failure.fails_over(&self.retry_on);
        if again {
            let reported = state.relay.tally.usage().map(|usage| (state.index, usage));
            state.lost.extend(reported);
            state.index += 1;
            state.stale_replaced = false;
            state.started = None;
        } else {
            state.failure = Some(failure);
        }
        again
    }

    /// Writes the attempt under way into the list.
    pub(super) fn note_attempt(&self, state: &mut Progress, failure: Option<Failure>) {
        state.in_flight = None;
        let Some(target) = self.targets.get(state.index) else { return };
        let Some(started) = state.started.take() else { return };
        let attempt = Attempt {
            provider: target.provider.name.clone(),
            model: target.model.clone(),
            status: state.relay.status,
            error: failure.map(|failure| failure.as_str().to_string()),
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        state.attempts.push(attempt);
    }

    /// Who answered, when somebody did.
    pub(super) fn served(&self, state: &Progress) -> Option<&Arc<Target>> {
        let index = if state.relay.committed { state.index } else { state.relay.answer.as_ref()?.index };
        self.targets.get(index)
    }
}
