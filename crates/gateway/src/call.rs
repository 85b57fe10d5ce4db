//! One inference call as Pingora's hooks and the session wrap share it: its plan, its request, and
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

/// Bytes that a provider's answer takes while it waits, beside its copy for the capture: what is
/// read ahead of the client.
const UNREAD_STREAM: usize = 512 << 10;
/// Time between two checks of a node's lease by a request that waits for it.
const NODE_LEASE_CHECK: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// The call that Pingora's proxy runs, for the hooks' context.
    pub(super) static CALL: Arc<InferenceCall>;
}

pub(super) struct InferenceCall {
    pub(super) app: Arc<App>,
    pub(super) id: RequestId,
    pub(super) mode: Mode,
    pub(super) plan: CallPlan,
    pub(super) request: SentRequest,
    /// What is left of the caller's rate limits, as headers of the answer.
    pub(super) rates: HeaderMap,
    /// Whether the answer is captured.
    pub(super) captured: bool,
    /// Its trace, which providers continue; `None` where no traces are exported.
    pub(super) trace: Option<Arc<TraceContext>>,
    /// Estimated tokens of the prompt.
    pub(super) prompt_tokens: u64,
    progress: Mutex<CallProgress>,
    /// The client's session, once Pingora has given it back.
    session: Mutex<Option<Box<ServerSession>>>,
}

/// How far the call has come.
#[derive(Default)]
pub(super) struct CallProgress {
    /// The entry of the plan that is in use, or to use next.
    index: usize,
    /// Whom each attempt asked, the present one last.
    asked: Vec<AskedTarget>,
    pub(super) attempts: Vec<Attempt>,
    /// When each of them was made, where that is traced.
    pub(super) steps: Option<Vec<AttemptStep>>,
    /// How long the last of them took.
    pub(super) took: Duration,
    /// Attempts that asked nobody, because the target's permit was gone.
    barred: usize,
    started: Option<Instant>,
    in_flight: Option<AttemptGuard>,
    /// What a replay or a shadow learns of the health of targets: it stays apart from live traffic.
    apart: Option<Arc<IsolatedCooldowns>>,
    deadline: Option<Instant>,
    /// The present attempt is connected: the provider may have the request.
    connected: bool,
    /// A dead connection of the pool was replaced once for this target.
    stale_replaced: bool,
    pub(super) failure: Option<AttemptFailure>,
    pub(super) relay: Relay,
    /// The request in the neutral form, where a target may need it.
    pub(super) neutral: Option<NeutralForm>,
    /// How the answer to the present attempt is translated; `None` where it is not.
    pub(super) translation: Option<Box<AnswerPlan>>,
    /// The caller's slot among the concurrent requests.
    pub(super) slot: Option<ConcurrencySlot>,
    /// The engine, or a hook in it, panicked.
    panicked: bool,
}

/// The target that an attempt asks, and the node behind it.
#[derive(Clone)]
pub(super) struct AskedTarget {
    pub(super) target: Arc<Target>,
    pub(super) node: Option<NodeId>,
    /// The entry of the plan.
    index: usize,
}

impl CallProgress {
    /// The target of the present attempt, or of the last one.
    pub(super) fn current(&self) -> Option<&Arc<Target>> {
        self.asked.last().map(|asked| &asked.target)
    }

    /// Who gave the answer, if somebody did.
    pub(super) fn served(&self) -> Option<&AskedTarget> {
        let index = if self.relay.committed {
            self.relay.target
        } else {
            self.relay.answer.as_ref()?.index
        };
        self.asked.get(index)
    }

    /// Whom the client left without an answer: a connected attempt that was not refused. The
    /// provider may bill it.
    pub(super) fn left_behind(&self) -> Option<&AskedTarget> {
        let is_left = self.failure == Some(AttemptFailure::ClientGone)
            && self.connected
            && !self.relay.committed
            && self.relay.may_be_served();
        if is_left { self.asked.last() } else { None }
    }

    /// Takes an answer of ours in the place of the present target's, which is not asked.
    pub(super) fn answer_ourselves(&mut self, headers: HeaderMap, body: Bytes) {
        self.started = None;
        let index = usize::MAX;
        let answer = WholeAnswer { status: 200, headers, body, stream: false, index };
        self.relay.answer = Some(answer);
    }

    /// Adds the present attempt to the list. Gives whether another key of the provider may do
    /// better.
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
        in_flight.is_some_and(|in_flight| in_flight.end(failure, &self.relay, took))
    }
}

impl InferenceCall {
    /// A call before its first attempt.
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

    /// Makes its attempts parts of this trace.
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

    /// Takes the client's session back from Pingora.
    pub(super) fn return_session(&self, session: Box<ServerSession>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// The client's session, once it is back.
    pub(super) fn take_session(&self) -> Option<Box<ServerSession>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notes that the engine panicked: the present attempt ends.
    pub(super) fn panics(&self) {
        self.progress().panicked = true;
        self.attempt_failed(AttemptFailure::Internal, false);
    }

    /// Whether the engine panicked: then nothing that the progress says of written bytes is
    /// reliable.
    pub(super) fn has_panicked(&self) -> bool {
        self.progress().panicked
    }

    /// The headers of the present attempt's request, but for what differs between calls.
    pub(super) fn headers(&self) -> Option<HeaderMap> {
        self.progress().in_flight.as_ref().and_then(AttemptGuard::headers).cloned()
    }

    /// The target of the present attempt.
    pub(super) fn target(&self) -> Option<Arc<Target>> {
        self.progress().current().cloned()
    }

    /// Begins an attempt and gives its target; `None` where the plan is used up. What the attempt
    /// before it left is dropped.
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

    /// Whom the next attempt asks: the entry of the plan, and where nodes serve it, the least
    /// loaded node not asked yet. Nodes that may be asked now come first.
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

    /// Whether another node may be asked now for the present entry of the plan.
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

    /// Whether the recipe allows one more attempt after `made`. Barred attempts do not count, up to
    /// [`ATTEMPTS_MAX`].
    fn may_attempt(&self, progress: &CallProgress, made: usize) -> bool {
        made.saturating_sub(progress.barred) < self.plan.retry.attempts && made < ATTEMPTS_MAX
    }

    /// Takes the target's permit for the attempt that begins.
    pub(super) fn admit(&self, target: &Arc<Target>) -> Result<(), AttemptFailure> {
        let mut progress = self.progress();
        if target.is_on_nodes() && progress.asked.last().is_none_or(|asked| asked.node.is_none()) {
            return Err(AttemptFailure::NoNode);
        }
        // A fresh connection in place of a dead one continues the same attempt.
        if progress.in_flight.is_none() {
            let node = progress.asked.last().and_then(|asked| asked.node.clone());
            let apart = self.collects().then(|| progress.apart.get_or_insert_default().clone());
            progress.in_flight =
                Some(AttemptGuard::begin(&self.app, target, node, apart.as_ref())?);
        }
        Ok(())
    }

    /// Notes that the attempt is connected: the time to its first content starts.
    pub(super) fn attempt_connected(&self) {
        let first_byte = self.target().map(|target| target.provider.timeouts.first_byte);
        let mut progress = self.progress();
        progress.connected = true;
        progress.relay.reset();
        if let Some(first_byte) = first_byte {
            progress.deadline = Some(Instant::now() + first_byte);
        }
    }

    /// Resolves when the lease of the asked node has lapsed before any content, if another target
    /// could be asked. A machine that died sends no reset.
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

    /// The deadline of the attempt, and whether it is the one for the whole answer (`true`) or for
    /// its first content.
    pub(super) fn deadline(&self) -> (Instant, bool) {
        let progress = self.progress();
        let started = progress.started.unwrap_or_else(Instant::now);
        let total = started
            + progress.current().map_or(Duration::ZERO, |target| target.provider.timeouts.total);
        // A collected answer, or a document, is committed only at its end. Its first content may
        // have come all the same.
        let begun = (self.collects() || progress.relay.is_document())
            && progress.relay.first_content.is_some()
            && progress.relay.refused().is_none();
        if progress.relay.committed || begun {
            return (total, true);
        }
        match progress.deadline {
            Some(first) if first < total => (first, false),
            _ => (total, true),
        }
    }

    /// Whether the answer is collected in memory.
    pub(super) fn collects(&self) -> bool {
        self.mode == Mode::Collect
    }

    /// Notes that the end of the answer is about to be written: the client may ask for its capture.
    pub(super) fn ends(&self) {
        self.app.captures.pending().ends(&self.id);
    }

    /// Notes that the whole answer has been written.
    pub(super) fn complete(&self) {
        self.progress().relay.complete = true;
    }

    /// Bytes that the answer holds while its client does not read.
    pub(super) fn unread(&self) -> usize {
        UNREAD_STREAM + self.progress().relay.body.capacity()
    }

    /// Ends an answer whose client does not read: its copy goes, too.
    pub(super) fn not_read<T>(&self) -> pingora::Result<T> {
        let relay = &mut self.progress().relay;
        (relay.body, relay.body_truncated) = (BytesMut::new(), true);
        answers::unread()
    }

    /// Judges a batch of the provider's answer.
    pub(super) fn observe(&self, tasks: Vec<HttpTask>) -> RelayVerdict {
        let mut progress = self.progress();
        let progress = &mut *progress;
        if progress.relay.committed {
            self.app.store.faults().pass(PanicPoint::Content);
        }
        let translation = progress.translation.as_deref();
        let rules = Rules {
            mode: self.mode,
            // After the commit nothing depends on it.
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
            // Before the end is written: a client that has read it may ask again at once.
            progress.slot = None;
        }
        if let RelayVerdict::Forward { tasks, .. } = &verdict
            && (tasks.iter().any(HttpTask::is_end) || progress.relay.tally.done_seen())
        {
            self.ends();
        }
        verdict
    }

    /// Whether one more target could be tried after the present attempt.
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

    /// Notes that the attempt failed. Gives whether another one follows: at the next target, or at
    /// the same with another key or on a fresh connection.
    pub(super) fn attempt_failed(&self, failure: AttemptFailure, stale_connection: bool) -> bool {
        let mut progress = self.progress();
        if stale_connection && !progress.stale_replaced && progress.relay.status.is_none() {
            progress.stale_replaced = true;
            return true;
        }
        // A client that leaves after an attempt has failed leaves nobody behind.
        progress.connected &= failure == AttemptFailure::ClientGone;
        // The same entry of the plan again, with another key or at another node.
        let another = progress.note_attempt(Some(failure)) || self.another_node(&progress);
        let more = another || progress.index + 1 < self.plan.targets.len();
        let may = !progress.relay.committed
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
            progress.stale_replaced = false;
            progress.started = None;
        } else {
            progress.failure = Some(failure);
        }
        again
    }
}
