//! One inference call as Pingora's hooks and the session wrap share it: the plan to walk, the body to send, and
//! the progress of the attempts. The lock is held for the handling of one batch, never across an await.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use pingora::http::ResponseHeader;
use pingora::protocols::http::{HttpTask, ServerSession};
use pingora::{Error, ErrorType};
use tokio::time::Instant;

use crate::app::{App, Live};
use crate::bounds;
use crate::capture::record::{Attempt, Served};
use crate::id::RequestId;
use crate::protocol::openai;
use crate::protocol::stream::{self as tally, Tally};
use crate::routing::document::RetryOn;
use crate::routing::recipe::Target;

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
/// The collected answer is larger than [`bounds::COLLECT_BYTES`].
pub(super) const TOO_LARGE: &str = "TooLarge";

/// Where the answer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// To the client at once, after the first content event.
    Relay,
    /// Into memory, whole.
    Collect,
}

/// What to do with a batch of the answer.
pub(super) enum Verdict {
    /// Nothing yet.
    Hold,
    /// Write these to the client; then fail with `then`, if any.
    Forward { tasks: Vec<HttpTask>, then: Option<Box<Error>> },
    /// The whole answer is in memory.
    Collected,
    /// Give this attempt up.
    Abandon(Box<Error>),
}

/// A whole answer kept in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Which target of the plan gave it.
    index: usize,
}

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
        }
    }

    /// Whether the recipe lets this failure go to the next target. A credential that a provider refuses is ours
    /// to mend, whatever the recipe says; a connection that breaks before any content is as good as none.
    pub(super) fn fails_over(self, on: &RetryOn) -> bool {
        match self {
            Failure::Connect | Failure::Cut => on.connect,
            Failure::Timeout => on.timeout,
            Failure::RateLimited => on.rate_limited,
            Failure::ServerError | Failure::InBand => on.server_error,
            Failure::Unauthorized => true,
            Failure::TooLarge | Failure::ClientGone | Failure::Internal => false,
        }
    }
}

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
    /// Ours, for the answer.
    pub(super) recipe: String,
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
    pub(super) started: Option<Instant>,
    pub(super) in_flight: Option<InFlight>,
    deadline: Option<Instant>,
    /// A pooled connection that turned out dead was replaced once for this target.
    pub(super) stale_replaced: bool,
    held: Vec<HttpTask>,
    held_bytes: usize,
    /// Something of this answer is the client's now: no failover any more.
    pub(super) committed: bool,
    pub(super) complete: bool,
    pub(super) status: Option<u16>,
    pub(super) headers: HeaderMap,
    pub(super) stream: bool,
    pub(super) tally: Tally,
    pub(super) body: BytesMut,
    pub(super) body_truncated: bool,
    pub(super) first_content: Option<Instant>,
    /// What has passed ends where an event ends.
    pub(super) between_events: bool,
    pub(super) failure: Option<Failure>,
    /// The last whole answer that was not passed on, or the collected one.
    pub(super) answer: Option<Answer>,
}

impl Call {
    pub(super) fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn come_home(&self, session: Box<ServerSession>) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    pub(super) fn take_home(&self) -> Option<ServerSession> {
        self.home.lock().unwrap_or_else(PoisonError::into_inner).take().map(|session| *session)
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
        state.deadline = Some(Instant::now() + target.provider.timeouts.first_byte);
        state.reset();
        Some(target)
    }

    /// The attempt has its connection; its first content is awaited from here.
    pub(super) fn attempt_connected(&self) {
        let first_byte = self.target().map(|target| target.provider.timeouts.first_byte);
        let mut state = self.state();
        state.reset();
        if let Some(first_byte) = first_byte {
            state.deadline = Some(Instant::now() + first_byte);
        }
    }

    /// When the attempt is over time, and whether that is its total (or still its first content).
    pub(super) fn deadline(&self) -> (Instant, bool) {
        let state = self.state();
        let started = state.started.unwrap_or_else(Instant::now);
        let total = started + self.targets.get(state.index).map_or(Duration::ZERO, |target| target.provider.timeouts.total);
        if state.committed {
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
        self.state().complete = true;
    }

    /// Judges a batch of the provider's answer: the heart of hold, commit, failover and collect.
    pub(super) fn observe(&self, tasks: Vec<HttpTask>) -> Verdict {
        let has_next = self.has_next();
        let mut state = self.state();
        let mut forward = Vec::new();
        for task in tasks {
            let end = task.is_end();
            match task {
                HttpTask::Failed(error) => {
                    if self.mode == Mode::Relay
                        && !state.committed
                        && state.stream
                        && state.ok()
                        && state.tally.verdict() == tally::Verdict::Answer
                    {
                        // Content and break came together: content decides, whatever the timing.
                        forward = state.commit();
                    }
                    return if forward.is_empty() {
                        Verdict::Abandon(error)
                    } else {
                        Verdict::Forward { tasks: forward, then: Some(error) }
                    };
                }
                HttpTask::Header(header, _) if header.status.is_informational() => continue,
                task => {
                    state.note(&task, self.capture_limit);
                    if state.committed && self.mode == Mode::Relay {
                        forward.push(task);
                    } else {
                        state.hold(task);
                    }
                }
            }
            if end {
                return self.judge_end(&mut state, forward, has_next);
            }
        }
        self.judge(&mut state, forward, has_next)
    }

    /// In the middle of an answer.
    fn judge(&self, state: &mut Progress, mut forward: Vec<HttpTask>, has_next: bool) -> Verdict {
        if self.mode == Mode::Collect {
            return if state.held_bytes > bounds::COLLECT_BYTES { Verdict::Abandon(fault(TOO_LARGE, false)) } else { Verdict::Hold };
        }
        if !state.committed {
            if state.in_band_error() && has_next {
                return Verdict::Abandon(fault(IN_BAND, true));
            }
            let overfull = state.held_bytes > bounds::HOLD_BYTES;
            let ready = match state.refused() {
                // An answer that calls for another target is read whole, to be given out if no other is better.
                Some(_) if overfull && has_next => return Verdict::Abandon(fault(BAD_STATUS, true)),
                Some(Failure::Unauthorized) => false,
                Some(_) => overfull,
                None => !state.stream || !state.ok() || state.tally.verdict() != tally::Verdict::Open || overfull,
            };
            if !ready {
                return Verdict::Hold;
            }
            forward = state.commit();
        }
        if forward.is_empty() { Verdict::Hold } else { Verdict::Forward { tasks: forward, then: None } }
    }

    /// At the end of an answer, or of what there is of it.
    fn judge_end(&self, state: &mut Progress, mut forward: Vec<HttpTask>, has_next: bool) -> Verdict {
        state.tally.finish();
        let cut = state.stream && state.ok() && state.tally.error().is_none() && !state.tally.finished();
        if state.committed && self.mode == Mode::Relay {
            if cut {
                // The client must not take a truncated answer for a whole one: the end is held back.
                withhold_end(&mut forward);
                return Verdict::Forward { tasks: forward, then: Some(fault(CUT, false)) };
            }
            return Verdict::Forward { tasks: forward, then: None };
        }
        if cut {
            return Verdict::Abandon(fault(CUT, true));
        }
        if state.in_band_error() && has_next {
            return Verdict::Abandon(fault(IN_BAND, true));
        }
        if state.refused().is_some() {
            state.keep_answer();
            return Verdict::Abandon(fault(BAD_STATUS, true));
        }
        if self.mode == Mode::Collect {
            state.keep_answer();
            state.committed = true;
            state.complete = true;
            return Verdict::Collected;
        }
        Verdict::Forward { tasks: state.commit(), then: None }
    }

    /// Whether the plan holds one more target after this.
    pub(super) fn has_next(&self) -> bool {
        self.state().index + 1 < self.targets.len()
    }

    /// The attempt failed: notes it, and answers whether the next target (or the same on a fresh connection) is tried.
    pub(super) fn attempt_failed(&self, failure: Failure, stale_connection: bool) -> bool {
        let has_next = self.has_next();
        let mut state = self.state();
        if stale_connection && !state.stale_replaced && state.status.is_none() {
            state.stale_replaced = true;
            return true;
        }
        self.note_attempt(&mut state, Some(failure));
        let again = !state.committed && has_next && failure.fails_over(&self.retry_on);
        if again {
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
            provider: target.provider.name.to_string(),
            model: target.model.to_string(),
            status: state.status,
            error: failure.map(|failure| failure.as_str().to_string()),
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        state.attempts.push(attempt);
    }

    /// Who answered, when somebody did.
    pub(super) fn served(&self, state: &Progress) -> Option<Served> {
        let index = if state.committed { state.index } else { state.answer.as_ref()?.index };
        let target = self.targets.get(index)?;
        Some(Served { provider: target.provider.name.to_string(), model: target.model.to_string(), node: None })
    }
}

impl Progress {
    fn reset(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
        self.status = None;
        self.headers = HeaderMap::new();
        self.stream = false;
        self.tally = Tally::default();
        self.body = BytesMut::new();
        self.body_truncated = false;
        self.first_content = None;
        self.between_events = true;
    }

    /// Reads along: status, kind of answer, content, usage, and the copy for the capture.
    fn note(&mut self, task: &HttpTask, limit: usize) {
        match task {
            HttpTask::Header(header, _) => {
                self.reset();
                self.status = Some(header.status.as_u16());
                self.stream = is_event_stream(header);
                self.headers = header.headers.clone();
            }
            HttpTask::Body(Some(bytes), _) => {
                if self.stream && self.ok() {
                    self.tally.feed(bytes);
                }
                if self.first_content.is_none() && (!self.stream || self.tally.verdict() != tally::Verdict::Open) {
                    self.first_content = Some(Instant::now());
                }
                if !bytes.is_empty() {
                    self.between_events = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"].iter().any(|end| bytes.ends_with(end));
                }
                let room = limit.saturating_sub(self.body.len());
                self.body_truncated |= bytes.len() > room;
                self.body.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
            }
            _ => {}
        }
    }

    fn hold(&mut self, task: HttpTask) {
        if let HttpTask::Body(Some(bytes), _) = &task {
            self.held_bytes += bytes.len();
        }
        self.held.push(task);
    }

    fn commit(&mut self) -> Vec<HttpTask> {
        self.committed = true;
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// Whether the status says success.
    fn ok(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// The failure that the status stands for, if another target may do better.
    pub(super) fn refused(&self) -> Option<Failure> {
        match self.status? {
            429 => Some(Failure::RateLimited),
            401 | 403 => Some(Failure::Unauthorized),
            500..=599 => Some(Failure::ServerError),
            _ => None,
        }
    }

    fn in_band_error(&self) -> bool {
        self.stream && self.ok() && self.tally.verdict() == tally::Verdict::Error
    }

    fn keep_answer(&mut self) {
        let mut body = BytesMut::with_capacity(self.held_bytes);
        for task in self.held.drain(..) {
            if let HttpTask::Body(Some(bytes), _) = task {
                body.extend_from_slice(&bytes);
            }
        }
        // A refused credential is ours: what the provider says about it is not for the client.
        self.answer = match self.refused() {
            Some(Failure::Unauthorized) => None,
            _ => Some(Answer { status: self.status.unwrap_or(502), headers: self.headers.clone(), body: body.freeze(), index: self.index }),
        };
    }
}

fn is_event_stream(header: &ResponseHeader) -> bool {
    let kind = header.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.trim_start().get(.."text/event-stream".len()).is_some_and(|start| start.eq_ignore_ascii_case("text/event-stream"))
}

fn withhold_end(tasks: &mut Vec<HttpTask>) {
    tasks.retain(|task| !matches!(task, HttpTask::Done | HttpTask::Trailer(_)));
    if let Some(HttpTask::Header(_, end) | HttpTask::Body(_, end)) = tasks.last_mut() {
        *end = false;
    }
}

/// An error of the provider's answer, as Pingora's loop understands it.
fn fault(kind: &'static str, retry: bool) -> Box<Error> {
    let mut error = Error::explain(ErrorType::Custom(kind), "provider answer");
    error.as_up();
    error.set_retry(retry);
    error
}
