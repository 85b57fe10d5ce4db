//! One inference call as Pingora's hooks and the session wrap share it: the plan to walk, the body to send, and
//! the progress of the attempts. The lock is held for the handling of one batch, never across an await.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use pingora::protocols::http::{HttpTask, ServerSession};
use tokio::time::Instant;

use super::failure::Failure;
use super::relay::{Mode, Relay, Rules, Verdict};
use super::under_way::UnderWay;
use crate::app::{App, Live};
use crate::body_memory::BodyMemory;
use crate::bounds;
use crate::capture::coming::Table;
use crate::capture::record::Attempt;
use crate::clock::Clock;
use crate::id::{NodeId, RequestId};
use crate::limits::ConcurrencySlot;
use crate::nodes::{Nodes, Ready};
use crate::protocol::endpoint::Endpoint;
use crate::protocol::json::Edit;
use crate::protocol::request;
use crate::routing::decide::Decision;
use crate::routing::health::{Apart, Budget};
use crate::routing::inputs::{Demand, Inputs};
use crate::routing::provider::{Protocol, StreamUsage};
use crate::routing::recipe::{Retry, Target};
use crate::store::{FaultPlace, Faults};

/// What a call is made of; see the module.
pub(super) struct Call {
    pub(super) id: RequestId,
    pub(super) live: Arc<Live>,
    pub(super) mode: Mode,
    /// The plan, resolved, no longer than the recipe's attempts.
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) retry: Retry,
    /// Of the recipe, where it has one; what is not live traffic draws on none.
    pub(super) budget: Option<Arc<Budget>>,
    pub(super) clock: Clock,
    /// Who serves targets on nodes.
    pub(super) nodes: Nodes,
    /// Where tests have it fail.
    pub(super) faults: Faults,
    /// What a node's model has to be able to.
    pub(super) demand: Demand<'static>,
    /// What is asked of providers.
    pub(super) endpoint: Endpoint,
    /// Headers of the client that providers see.
    pub(super) forward: HeaderMap,
    /// What of the client's query providers see.
    pub(super) query: Option<String>,
    /// What is left of the caller's limits, as headers of the answer.
    pub(super) rates: HeaderMap,
    pub(super) decision: Arc<Decision>,
    /// The rule that it was made by, and that as a header.
    pub(super) rule: Option<(Arc<str>, HeaderValue)>,
    pub(super) capture_limit: usize,
    pub(super) body: Bytes,
    pub(super) model: Range<usize>,
    /// What makes the body ask for a stream's usage, where the client's asks for a stream and not for that.
    pub(super) ask_usage: Option<Edit>,
    /// Whether what the answer uses is held against a limit of the caller.
    pub(super) counted: bool,
    /// The captures on their way, to which this call's belongs.
    pub(super) coming: Table,
    pub(super) state: Mutex<Progress>,
    pub(super) home: Mutex<Option<Box<ServerSession>>>,
    /// Set when the way through the engine ended in a panic.
    pub(super) panicked: AtomicBool,
}

/// How far the call has come.
#[derive(Default)]
pub(super) struct Progress {
    /// The entry of the plan in use, or to use next.
    index: usize,
    /// What each attempt so far was made at, the one under way last.
    pub(super) used: Vec<Used>,
    pub(super) attempts: Vec<Attempt>,
    /// How many of them asked nobody.
    barred: usize,
    started: Option<Instant>,
    pub(super) in_flight: Option<UnderWay>,
    /// What a replay or a shadow learns on its way.
    apart: Option<Arc<Apart>>,
    deadline: Option<Instant>,
    /// A pooled connection that turned out dead was replaced once for this target.
    stale_replaced: bool,
    pub(super) failure: Option<Failure>,
    pub(super) relay: Relay,
    /// The caller's place among the requests at once.
    pub(super) slot: Option<ConcurrencySlot>,
}

/// A target as an attempt has it: of one on nodes, at the node.
#[derive(Clone)]
pub(super) struct Used {
    pub(super) target: Arc<Target>,
    pub(super) node: Option<NodeId>,
    /// The entry of the plan.
    index: usize,
}

/// What a request demands that was decided on these inputs.
pub(super) fn demand(inputs: Option<&Inputs>) -> Demand<'static> {
    inputs.map(|inputs| inputs.request.demand().into_owned()).unwrap_or_default()
}

impl Progress {
    /// Of a call whose copies of answers are held in `memory`.
    pub(super) fn within(memory: &BodyMemory) -> Self {
        Progress { relay: Relay::within(memory), ..Progress::default() }
    }

    /// What the attempt under way, or else the last one, is made at.
    pub(super) fn current(&self) -> Option<&Arc<Target>> {
        self.used.last().map(|used| &used.target)
    }
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

    /// The way through the engine ended in a panic: so did the attempt under way.
    pub(super) fn panics(&self) {
        self.panicked.store(true, Ordering::Release);
        self.attempt_failed(Failure::Internal, false);
    }

    /// Whether it did: then nothing that its progress says of what was written can be relied on.
    pub(super) fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::Acquire)
    }

    pub(super) fn client_body(&self) -> Bytes {
        self.body.clone()
    }

    pub(super) fn body_is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// The target of the attempt under way.
    pub(super) fn target(&self) -> Option<Arc<Target>> {
        self.state().current().cloned()
    }

    /// The client's bytes with the model that this target serves, and the question for the usage where it is ours to ask.
    pub(super) fn body_for(&self, target: &Target) -> Bytes {
        request::rename_model(&self.body, &self.model, &target.model, self.own_question(target))
    }

    /// The edit by which this target is asked for a usage that the client did not ask for.
    fn own_question(&self, target: &Target) -> Option<&Edit> {
        let understood = matches!(target.provider.protocol, Protocol::OpenAi | Protocol::Mock);
        let wanted = match target.provider.stream_usage {
            StreamUsage::Auto => self.counted,
            StreamUsage::Inject => true,
            StreamUsage::Never => false,
        };
        self.ask_usage.as_ref().filter(|_| understood && wanted)
    }

    /// A new attempt begins: what an abandoned one left behind is gone.
    pub(super) fn begin_attempt(&self) -> Option<Arc<Target>> {
        let mut state = self.state();
        if state.in_flight.is_none() {
            let next = self.next(&state)?;
            state.used.push(next);
        }
        let target = state.current().cloned()?;
        state.started = Some(Instant::now());
        state.relay.target = state.used.len() - 1;
        state.deadline = Some(Instant::now() + target.provider.timeouts.first_byte);
        state.relay.reset();
        Some(target)
    }

    /// What the next attempt is made at: the entry of the plan, and where nodes serve that, the least loaded of those that were
    /// not asked yet, one that may be asked now before one that may not.
    fn next(&self, state: &Progress) -> Option<Used> {
        let planned = self.targets.get(state.index)?;
        let used =
            |target: Arc<Target>, node: Option<NodeId>| Used { target, node, index: state.index };
        if !planned.is_on_nodes() {
            return Some(used(planned.clone(), None));
        }
        let now = self.clock.now();
        let unasked = self.unasked(state, planned);
        let free = unasked.iter().find(|ready| ready.may_be_asked(now)).or(unasked.first());
        Some(free.map_or_else(
            || used(planned.clone(), None),
            |ready| used(ready.target(planned).into(), Some(ready.id.clone())),
        ))
    }

    /// The nodes that serve this entry of the plan, can take the request and were not asked for it yet, the least loaded first.
    fn unasked(&self, state: &Progress, planned: &Target) -> Vec<Ready> {
        let mut ready = self.nodes.ready(&planned.model, self.clock.now());
        ready.retain(|ready| ready.takes(&planned.model, &self.demand));
        ready.retain(|ready| {
            !state
                .used
                .iter()
                .any(|used| used.index == state.index && used.node.as_ref() == Some(&ready.id))
        });
        ready
    }

    /// Whether another node may be asked now for the entry of the plan in use.
    fn another_node(&self, state: &Progress) -> bool {
        let now = self.clock.now();
        let free = |planned: &Arc<Target>| {
            self.unasked(state, planned).iter().any(|ready| ready.may_be_asked(now))
        };
        self.targets.get(state.index).is_some_and(|planned| planned.is_on_nodes() && free(planned))
    }

    /// Whether the recipe allows one more attempt after `made`. What asked nobody is none of them, up to what a call may hold.
    fn may_attempt(&self, state: &Progress, made: usize) -> bool {
        made.saturating_sub(state.barred) < self.retry.attempts && made < bounds::ATTEMPTS_MAX
    }

    /// Asks the target's state for the permit of the attempt that begins.
    pub(super) fn admit(&self, app: &Arc<App>, target: &Arc<Target>) -> Result<(), Failure> {
        let mut state = self.state();
        if target.is_on_nodes() && state.used.last().is_none_or(|used| used.node.is_none()) {
            return Err(Failure::NoNode);
        }
        // On a fresh connection in place of a dead one it is still the same attempt.
        if state.in_flight.is_none() {
            let node = state.used.last().and_then(|used| used.node.clone());
            let apart = self.collects().then(|| state.apart.get_or_insert_default().clone());
            state.in_flight = Some(UnderWay::begin(app, target, node, apart.as_ref())?);
        }
        Ok(())
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

    /// Waits until the node that is asked has not been heard of for as long as its lease lasts, while it has answered nothing and
    /// somebody else could be asked instead: a machine that died says nothing, and a reset would never come.
    pub(super) async fn node_lapsed(&self) {
        let node = self.state().used.last().and_then(|used| used.node.clone());
        let Some(node) = node else { return std::future::pending().await };
        loop {
            let lapsed = self.nodes.has_lapsed(&node, self.clock.now()) && !self.deadline().1;
            if lapsed && Failure::Timeout.fails_over(&self.retry.on) && self.has_next(&self.state())
            {
                return;
            }
            tokio::time::sleep(bounds::NODE_LOOK).await;
        }
    }

    /// When the attempt is over time, and whether that is its total (or still its first content).
    pub(super) fn deadline(&self) -> (Instant, bool) {
        let state = self.state();
        let started = state.started.unwrap_or_else(Instant::now);
        let total = started
            + state.current().map_or(Duration::ZERO, |target| target.provider.timeouts.total);
        // A collected answer is committed only at its end, as a document is; its first content has come all the same.
        let begun = (self.collects() || state.relay.is_document())
            && state.relay.first_content.is_some()
            && state.relay.refused().is_none();
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

    /// The client is about to have all that it waits for, or the word of the provider that this is all.
    pub(super) fn ends(&self) {
        self.coming.ends(&self.id);
    }

    pub(super) fn complete(&self) {
        self.state().relay.complete = true;
    }

    /// Judges a batch of the provider's answer.
    pub(super) fn observe(&self, tasks: Vec<HttpTask>) -> Verdict {
        let mut state = self.state();
        let state = &mut *state;
        if state.relay.committed {
            self.faults.pass(FaultPlace::Content);
        }
        let rules = Rules {
            mode: self.mode,
            // Once it is the client's, nothing asks any more.
            has_next: !state.relay.committed
                && Failure::InBand.fails_over(&self.retry.on)
                && self.has_next(state),
            capture_limit: self.capture_limit,
            endpoint: self.endpoint,
            strip_usage: state.current().is_some_and(|target| self.own_question(target).is_some()),
            known_by: state.used.last().map(|used| &used.target.provider.known_by),
        };
        let ends = tasks.iter().any(HttpTask::is_end);
        let verdict = state.relay.observe(tasks, rules);
        if let (Some(in_flight), Some(started), true) =
            (&mut state.in_flight, state.started, state.relay.has_good_content())
        {
            in_flight.content(started.elapsed());
        }
        if ends && matches!(verdict, Verdict::Forward { then: None, .. }) {
            // Before the end is written: who has read it may ask again at once.
            state.slot = None;
        }
        if let Verdict::Forward { tasks, .. } = &verdict
            && (tasks.iter().any(HttpTask::is_end) || state.relay.tally.done_seen())
        {
            self.ends();
        }
        verdict
    }

    /// Whether one more target could be tried after the attempt under way.
    fn has_next(&self, state: &Progress) -> bool {
        let more = self.may_attempt(state, state.attempts.len() + 1)
            && (state.index + 1 < self.targets.len() || self.another_node(state));
        more && self.within_budget(|budget, percent| budget.has_room(percent, self.clock.now()))
    }

    fn within_budget(&self, ask: impl FnOnce(&Budget, u16) -> bool) -> bool {
        match (&self.budget, self.retry.budget_percent) {
            (Some(budget), Some(percent)) => ask(budget, percent),
            _ => true,
        }
    }

    /// The attempt failed: notes it, and answers whether the next target (or the same with another key or on a fresh
    /// connection) is tried.
    pub(super) fn attempt_failed(&self, failure: Failure, stale_connection: bool) -> bool {
        let mut state = self.state();
        if stale_connection && !state.stale_replaced && state.relay.status.is_none() {
            state.stale_replaced = true;
            return true;
        }
        // The same entry of the plan again, with another key, or at another node.
        let another = self.note_attempt(&mut state, Some(failure)) || self.another_node(&state);
        let more = another || state.index + 1 < self.targets.len();
        let may = !state.relay.committed
            && failure.fails_over(&self.retry.on)
            && more
            && self.may_attempt(&state, state.attempts.len());
        // What asked nobody takes nothing from the budget.
        let again = may
            && (failure.is_barred()
                || self.within_budget(|budget, percent| budget.take(percent, self.clock.now())));
        if again {
            state.index += usize::from(!another);
            state.stale_replaced = false;
            state.started = None;
        } else {
            state.failure = Some(failure);
        }
        again
    }

    /// Writes the attempt under way into the list. Gives whether another key of the provider may do better.
    pub(super) fn note_attempt(&self, state: &mut Progress, failure: Option<Failure>) -> bool {
        let in_flight = state.in_flight.take();
        let (Some(used), Some(started)) = (state.used.last(), state.started.take()) else {
            return false;
        };
        let took = started.elapsed();
        let attempt = Attempt {
            provider: used.target.provider.name.clone(),
            model: used.target.model.clone(),
            node: used.node.as_ref().map(|node| node.as_str().into()),
            status: state.relay.status,
            error: failure.map(|failure| failure.as_str().to_string()),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        state.attempts.push(attempt);
        state.barred += usize::from(failure.is_some_and(Failure::is_barred));
        in_flight.is_some_and(|in_flight| in_flight.end(failure, &state.relay, took))
    }

    /// Who answered, when somebody did.
    pub(super) fn served(state: &Progress) -> Option<&Used> {
        let index = if state.relay.committed {
            state.relay.target
        } else {
            state.relay.answer.as_ref()?.index
        };
        state.used.get(index)
    }
}
