//! One inference call, shared by Pingora's hooks and the session wrap: its plan, its request, and
//! the progress of its attempts. The lock is held while one batch is handled, never across an
//! await.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use pingora::protocols::http::{HttpTask, ServerSession};
use tokio::time::Instant;

use super::answer_translation::AnswerPlan;
use super::answers;
use super::attempt_guard::AttemptGuard;
use super::cork::Cork;
use super::failure::AttemptFailure;
use super::plan::{CallPlan, SentRequest};
use super::relay::Relay;
use super::verdict::{Mode, RelayVerdict, Rules, WholeAnswer};
use rerouter_access::limits::ConcurrencySlot;
use rerouter_access::nodes::ReadyNode;
use rerouter_base::id::{NodeId, RequestId};
use rerouter_base::trace_context::TraceContext;
use rerouter_captures::capture::record::Attempt;
use rerouter_captures::telemetry::AttemptStep;
use rerouter_core::app::App;
use rerouter_core::prompt::NeutralForm;
use rerouter_routing::ATTEMPTS_MAX;
use rerouter_routing::Target;
use rerouter_routing::health::{IsolatedCooldowns, RetryBudget};
use rerouter_store::PanicPoint;

/// Memory in bytes that a waiting answer takes for what is read ahead of the client. The copy for
/// the capture comes on top.
const UNREAD_STREAM: usize = 512 << 10;
/// Time between two checks of a node's lease by a request that waits for it.
const NODE_LEASE_CHECK: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The call that Pingora's proxy runs, for [`HookContext`](super::HookContext).
    pub(super) static CALL: Arc<InferenceCall>;
}

pub(super) struct InferenceCall {
    pub(super) app: Arc<App>,
    pub(super) id: RequestId,
    pub(super) mode: Mode,
    pub(super) plan: CallPlan,
    pub(super) request: SentRequest,
    pub(super) rates: HeaderMap,
    pub(super) captured: bool,
    /// The trace of the call, which providers continue; `None` if no traces are exported.
    pub(super) trace: Option<Arc<TraceContext>>,
    pub(super) prompt_tokens: u64,
    progress: Mutex<CallProgress>,
    /// The client's session, once Pingora has given it back.
    session: Mutex<Option<Box<ServerSession>>>,
}

#[derive(Default)]
pub(super) struct CallProgress {
    /// The index in the plan of the entry in use, or of the next one.
    index: usize,
    /// The target of each attempt; the current one is last.
    asked: Vec<AskedTarget>,
    pub(super) attempts: Vec<Attempt>,
    /// The start of each attempt, if the call is traced.
    pub(super) steps: Option<Vec<AttemptStep>>,
    /// How long the last attempt took.
    pub(super) took: Duration,
    /// Attempts that never reached their target, because its permit was refused.
    barred: usize,
    pub(super) started: Option<Instant>,
    in_flight: Option<AttemptGuard>,
    /// The cooldowns of a replay or a shadow, kept apart from live traffic.
    apart: Option<Arc<IsolatedCooldowns>>,
    deadline: Option<Instant>,
    /// The current attempt is connected: the provider may have the request.
    pub(super) connected: bool,
    /// A dead connection of the pool, or a dead address, was replaced once for this target.
    replaced: bool,
    pub(super) failure: Option<AttemptFailure>,
    pub(super) relay: Relay,
    /// The request in the neutral form, if a target may need that.
    pub(super) neutral: Option<NeutralForm>,
    pub(super) translation: Option<Box<AnswerPlan>>,
    /// The client has left, and the answer is read on without it.
    pub(super) left: bool,
    pub(super) slot: Option<ConcurrencySlot>,
    /// Pingora's proxy, or a hook in it, panicked: whether a provider was at work.
    pub(super) panicked: Option<bool>,
    pub(super) cork: Option<Cork>,
    /// The current attempt is a stream of an HTTP/2 connection.
    pub(super) http2: bool,
}

#[derive(Clone)]
pub(super) struct AskedTarget {
    pub(super) target: Arc<Target>,
    pub(super) node: Option<NodeId>,
    /// The index of the entry in the plan.
    index: usize,
}

impl CallProgress {
    /// The target of the current attempt, or of the last one.
    pub(super) fn current(&self) -> Option<&Arc<Target>> {
        self.asked.last().map(|asked| &asked.target)
    }

    pub(super) fn served(&self) -> Option<&AskedTarget> {
        let index = if self.relay.committed {
            self.relay.target
        } else {
            self.relay.answer.as_ref()?.index
        };
        self.asked.get(index)
    }

    /// The target that was still working when the client left: connected, and without a refusal.
    /// Its provider may bill the request.
    pub(super) fn left_behind(&self) -> Option<&AskedTarget> {
        let is_left = self.failure == Some(AttemptFailure::ClientGone)
            && self.connected
            && !self.relay.committed
            && self.relay.may_be_served();
        if is_left { self.asked.last() } else { None }
    }

    /// Sets the gateway's own answer in place of the current target's. The target is not asked.
    pub(super) fn answer_ourselves(&mut self, headers: HeaderMap, body: Bytes) {
        self.started = None;
        let index = usize::MAX;
        let answer = WholeAnswer { status: 200, headers, body, stream: false, index };
        self.relay.answer = Some(answer);
    }

    /// Returns whether another key of the provider may succeed: one that was not asked yet.
    pub(super) fn note_attempt(&mut self, failure: Option<AttemptFailure>) -> bool {
        let in_flight = self.in_flight.take();
        let (Some(asked), Some(started)) = (self.asked.last(), self.started.take()) else {
            return false;
        };
        let took = started.elapsed();
        let attempt = Attempt {
            provider: asked.target.provider.name.clone(),
            model: asked.target.model.clone(),
            node: asked.node.as_ref().map(|node| node.as_str().into()),
            status: self.relay.status,
            error: failure.map(|failure| failure.as_str().to_string()),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        self.attempts.push(attempt);
        self.took = took;
        if let Some(steps) = &mut self.steps {
            let (target, began) = (asked.target.clone(), started.into_std());
            steps.push(AttemptStep { target, began, took });
        }
        self.barred += usize::from(failure.is_some_and(AttemptFailure::is_barred));
        let here = self.asked.iter().filter(|asked| asked.index == self.index).count();
        let is_unasked = here < asked.target.provider.api_keys.len();
        in_flight.is_some_and(|in_flight| in_flight.end(failure, &self.relay, took)) && is_unasked
    }
}

impl InferenceCall {
    pub(super) fn new(
        app: &Arc<App>,
        id: RequestId,
        plan: CallPlan,
        mut request: SentRequest,
        mode: Mode,
    ) -> Self {
        let neutral = request.neutral.take();
        let mut progress = CallProgress { neutral, ..CallProgress::default() };
        progress.relay.count_within(&app.body_memory);
        InferenceCall {
            app: app.clone(),
            id,
            mode,
            plan,
            request,
            rates: HeaderMap::new(),
            captured: true,
            trace: None,
            prompt_tokens: 0,
            progress: progress.into(),
            session: Mutex::default(),
        }
    }

    pub(super) fn traced(&mut self, trace: Option<&Arc<TraceContext>>) {
        let Some(trace) = trace else { return };
        self.trace = Some(Arc::clone(trace));
        if trace.sampled {
            self.progress().steps = Some(Vec::new());
        }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, CallProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn return_session(&self, session: Box<ServerSession>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    pub(super) fn take_session(&self) -> Option<Box<ServerSession>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notes that Pingora's proxy panicked: the current attempt ends.
    pub(super) fn panics(&self) {
        let mut progress = self.progress();
        progress.panicked = Some(progress.connected);
        drop(progress);
        self.attempt_failed(AttemptFailure::Internal, false);
    }

    /// Whether Pingora's proxy panicked. If so, the progress no longer tells reliably what was
    /// written.
    pub(super) fn has_panicked(&self) -> bool {
        self.progress().panicked.is_some()
    }

    /// The headers of the current attempt's request, without those that differ from call to call.
    pub(super) fn headers(&self) -> Option<HeaderMap> {
        self.progress().in_flight.as_ref().and_then(AttemptGuard::headers).cloned()
    }

    pub(super) fn target(&self) -> Option<Arc<Target>> {
        self.progress().current().cloned()
    }

    /// Begins an attempt and returns its target; `None` if the plan is used up. Drops the answer of
    /// the attempt before.
    pub(super) fn begin_attempt(&self) -> Option<Arc<Target>> {
        let mut progress = self.progress();
        if progress.in_flight.is_none() {
            let next = self.next(&progress)?;
            progress.asked.push(next);
        }
        let target = progress.current().cloned()?;
        let now = Instant::now();
        progress.started = Some(now);
        progress.relay.target = progress.asked.len() - 1;
        progress.deadline = Some(now + target.provider.timeouts.first_byte);
        progress.connected = false;
        progress.translation = None;
        progress.relay.reset();
        Some(target)
    }

    /// Chooses the target of the next attempt: the current entry of the plan and, if nodes serve
    /// it, the least loaded node that was not asked yet. Nodes that may be asked now come first.
    fn next(&self, progress: &CallProgress) -> Option<AskedTarget> {
        let planned = self.plan.targets.get(progress.index)?;
        let asked = |target: Arc<Target>, node: Option<NodeId>| AskedTarget {
            target,
            node,
            index: progress.index,
        };
        if !planned.is_on_nodes() {
            return Some(asked(planned.clone(), None));
        }
        let now = self.app.clock.now();
        let unasked = self.unasked(progress, planned);
        let free = unasked.iter().find(|ready| ready.may_be_asked(now)).or(unasked.first());
        Some(free.map_or_else(
            || asked(planned.clone(), None),
            |ready| asked(ready.target(planned).into(), Some(ready.id.clone())),
        ))
    }

    /// The nodes that serve this entry of the plan, can take the request and were not asked yet,
    /// the least loaded first.
    fn unasked(&self, progress: &CallProgress, planned: &Target) -> Vec<ReadyNode> {
        let mut ready = self.app.nodes.ready(&planned.model, self.app.clock.now());
        ready.retain(|ready| ready.takes(&planned.model, &self.plan.demand));
        ready.retain(|ready| {
            !progress.asked.iter().any(|asked| {
                asked.index == progress.index && asked.node.as_ref() == Some(&ready.id)
            })
        });
        ready
    }

    fn another_node(&self, progress: &CallProgress) -> bool {
        let free = |planned: &Arc<Target>| {
            let now = self.app.clock.now();
            self.unasked(progress, planned).iter().any(|ready| ready.may_be_asked(now))
        };
        self.plan
            .targets
            .get(progress.index)
            .is_some_and(|planned| planned.is_on_nodes() && free(planned))
    }

    /// Barred attempts count only towards [`ATTEMPTS_MAX`].
    fn may_attempt(&self, progress: &CallProgress, made: usize) -> bool {
        made.saturating_sub(progress.barred) < self.plan.retry.attempts && made < ATTEMPTS_MAX
    }

    /// Takes the target's permit for the attempt that begins.
    pub(super) fn admit(&self, target: &Arc<Target>) -> Result<(), AttemptFailure> {
        let mut progress = self.progress();
        if target.is_on_nodes() && progress.asked.last().is_none_or(|asked| asked.node.is_none()) {
            return Err(AttemptFailure::NoNode);
        }
        // A new connection in place of a dead one belongs to the same attempt.
        if progress.in_flight.is_none() {
            let node = progress.asked.last().and_then(|asked| asked.node.clone());
            let apart = self.collects().then(|| progress.apart.get_or_insert_default().clone());
            progress.in_flight =
                Some(AttemptGuard::begin(&self.app, target, node, apart.as_ref())?);
        }
        Ok(())
    }

    /// Notes that the attempt is connected: the time to its first content starts. Returns its cork,
    /// and whether it is a stream of an HTTP/2 connection.
    pub(super) fn attempt_connected(&self) -> (Option<Cork>, bool) {
        let mut progress = self.progress();
        progress.connected = true;
        progress.relay.reset();
        let first_byte = progress.current().map(|target| target.provider.timeouts.first_byte);
        progress.deadline = first_byte.map(|time| Instant::now() + time);
        (progress.cork.take(), progress.http2)
    }

    /// Resolves when the lease of the asked node has lapsed before any content, if another target
    /// can be asked: a machine that died sends no reset.
    pub(super) async fn node_lapsed(&self) {
        let node = self.progress().asked.last().and_then(|asked| asked.node.clone());
        let Some(node) = node else { return std::future::pending().await };
        loop {
            let lapsed =
                self.app.nodes.has_lapsed(&node, self.app.clock.now()) && !self.deadline().1;
            if lapsed
                && AttemptFailure::Timeout.fails_over(&self.plan.retry.on)
                && self.has_next(&self.progress())
            {
                return;
            }
            tokio::time::sleep(NODE_LEASE_CHECK).await;
        }
    }

    /// The deadline of the attempt: `true` if it is the one for the rest of the answer, `false` if
    /// it is the one for the first content.
    pub(super) fn deadline(&self) -> (Instant, bool) {
        let progress = self.progress();
        let now = Instant::now();
        let started = progress.started.unwrap_or(now);
        let timeouts = progress.current().map(|target| target.provider.timeouts);
        let total = started + timeouts.map_or(Duration::ZERO, |timeouts| timeouts.total);
        // A collected answer, or a document, is committed only at its end, but its first content
        // may be here already.
        let begun = (self.collects() || progress.relay.is_document())
            && progress.relay.first_content.is_some()
            && progress.relay.refused().is_none();
        if progress.relay.committed || begun {
            // Whoever asks begins to wait for the next bytes.
            let silence = timeouts.map_or(Duration::ZERO, |timeouts| timeouts.idle);
            return (total.min(now + silence), true);
        }
        match progress.deadline {
            Some(first) if first < total => (first, false),
            _ => (total, true),
        }
    }

    pub(super) fn collects(&self) -> bool {
        self.mode == Mode::Collect
    }

    /// Notes that the end of the answer is about to be written: from now on the client may ask for
    /// the capture.
    pub(super) fn ends(&self) {
        self.app.captures.pending().ends(&self.id);
    }

    pub(super) fn complete(&self) {
        self.progress().relay.complete = true;
    }

    /// Bytes in memory for the answer while its client does not read.
    pub(super) fn unread(&self) -> usize {
        UNREAD_STREAM + self.progress().relay.body.capacity()
    }

    /// Ends an answer whose client does not read, and drops the copy for the capture.
    pub(super) fn not_read<T>(&self) -> pingora::Result<T> {
        let relay = &mut self.progress().relay;
        (relay.body, relay.body_truncated) = (BytesMut::new(), true);
        answers::unread()
    }

    pub(super) fn observe(&self, tasks: Vec<HttpTask>) -> RelayVerdict {
        let mut progress = self.progress();
        let progress = &mut *progress;
        if progress.relay.committed {
            self.app.store.faults().pass(PanicPoint::Content);
        }
        let translation = progress.translation.as_deref();
        let rules = Rules {
            mode: self.mode,
            // After the commit `has_next` changes nothing.
            has_next: !progress.relay.committed
                && AttemptFailure::InBand.fails_over(&self.plan.retry.on)
                && self.has_next(progress),
            captured: self.captured,
            capture_limit: self.app.server.capture.max_body,
            dialect: translation.map_or_else(|| self.request.endpoint.dialect(), |plan| plan.from),
            translation,
            strip_usage: progress
                .current()
                .is_some_and(|target| self.request.own_question(target).is_some()),
            credentials: progress.asked.last().map(|asked| &asked.target.provider.known_by),
        };
        let ends = tasks.iter().any(HttpTask::is_end);
        let verdict = progress.relay.observe(tasks, rules);
        if let (Some(in_flight), Some(started), true) =
            (&mut progress.in_flight, progress.started, progress.relay.has_good_content())
        {
            in_flight.content(started.elapsed());
        }
        if ends && matches!(verdict, RelayVerdict::Forward { then: None, .. }) {
            // The slot is freed before the end is written: a client that has read the end may ask
            // again at once.
            progress.slot = None;
        }
        if let RelayVerdict::Forward { tasks, .. } = &verdict
            && (tasks.iter().any(HttpTask::is_end) || progress.relay.tally().done_seen())
        {
            self.ends();
        }
        verdict
    }

    /// Whether one more target could be tried after the current attempt.
    fn has_next(&self, progress: &CallProgress) -> bool {
        let more = self.may_attempt(progress, progress.attempts.len() + 1)
            && (progress.index + 1 < self.plan.targets.len() || self.another_node(progress));
        more && self.within_budget(|budget, percent| budget.has_room(percent, self.app.clock.now()))
    }

    fn within_budget(&self, ask: impl FnOnce(&RetryBudget, u16) -> bool) -> bool {
        match (&self.plan.budget, self.plan.retry.budget) {
            (Some(budget), Some(percent)) => ask(budget, percent),
            _ => true,
        }
    }

    /// Notes that the attempt failed. Returns whether another attempt follows: at the next target,
    /// at the same target with another key, or on a new connection.
    pub(super) fn attempt_failed(&self, failure: AttemptFailure, replaceable: bool) -> bool {
        let mut progress = self.progress();
        if replaceable && !progress.replaced && progress.relay.status.is_none() {
            progress.replaced = true;
            return true;
        }
        // If an attempt failed before the client left, no provider works for the client any more.
        progress.connected &= failure == AttemptFailure::ClientGone;
        // Retries the same entry of the plan with another key or at another node.
        let another = progress.note_attempt(Some(failure)) || self.another_node(&progress);
        let more = another || progress.index + 1 < self.plan.targets.len();
        let may = !progress.relay.committed
            && !progress.left
            && failure.fails_over(&self.plan.retry.on)
            && more
            && self.may_attempt(&progress, progress.attempts.len());
        // A barred attempt draws nothing from the retry budget.
        let again = may
            && (failure.is_barred()
                || self
                    .within_budget(|budget, percent| budget.take(percent, self.app.clock.now())));
        if again {
            progress.index += usize::from(!another);
            progress.replaced = false;
            progress.started = None;
        } else {
            progress.failure = Some(failure);
        }
        again
    }
}
