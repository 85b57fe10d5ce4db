//! A provider's answer on its way: what is held, when it is the client's, what makes it fail, and the copy for the
//! capture. No I/O: batches of tasks in, a verdict out.

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use pingora::Error;
use pingora::protocols::http::HttpTask;
use tokio::time::Instant;

use super::failure::{BAD_STATUS, CUT, Failure, IN_BAND, TOO_LARGE, fault};
use crate::body_memory::{BodyClass, BodyMemory, Held};
use crate::bounds;
use crate::protocol::endpoint::Endpoint;
use crate::protocol::sse::ends_event;
use crate::protocol::stream::{self as tally, StreamTally};
use crate::protocol::usage_strip::UsageStrip;
use crate::secret::{Mask, Masking};

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

/// What the middle of an answer calls for.
enum Weighed {
    Wait,
    Commit,
    Abandon(&'static str),
}

/// A whole answer kept in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// It is an event stream.
    pub(super) stream: bool,
    /// Which target of the plan gave it.
    pub(super) index: usize,
}

/// What [`Relay::observe`] must know of the call.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) mode: Mode,
    /// Another target could still be tried, should this one turn out to be failing.
    pub(super) has_next: bool,
    /// Bytes of the copy for the capture.
    pub(super) capture_limit: usize,
    /// Whose events the provider's streams are made of.
    pub(super) endpoint: Endpoint,
    /// The provider was asked for a stream's usage by us, and the client is not to see it.
    pub(super) strip_usage: bool,
    /// What the provider knows us by, and nobody else is to hear.
    pub(super) known_by: Option<&'a Mask>,
}

/// The answer so far, of the attempt under way.
#[derive(Default)]
pub(super) struct Relay {
    /// The target of the plan that gives it.
    pub(super) target: usize,
    held: Vec<HttpTask>,
    held_bytes: usize,
    /// The process has no room for what is held.
    overfull: bool,
    /// Something of it is the client's now: no failover any more.
    pub(super) committed: bool,
    /// All of it has been passed on, or collected.
    pub(super) complete: bool,
    pub(super) status: Option<u16>,
    pub(super) headers: HeaderMap,
    pub(super) stream: bool,
    pub(super) tally: StreamTally,
    mask: Masking,
    strip: UsageStrip,
    /// What the client got of it, or would have got.
    pub(super) body: BytesMut,
    pub(super) body_truncated: bool,
    /// The last bytes of a document that is longer than the copy.
    pub(super) ending: BytesMut,
    pub(super) first_content: Option<Instant>,
    /// The first byte of the body.
    begins: Option<u8>,
    /// The last bytes of the body, as many as tell whether an event ends there.
    tail: Vec<u8>,
    /// The last whole answer that was not passed on, or the collected one.
    pub(super) answer: Option<Answer>,
    /// What the copy, and an answer that is collected, take in memory.
    memory: Option<Held>,
}

impl Relay {
    /// One whose copies are held in `memory`.
    pub(super) fn within(memory: &BodyMemory) -> Self {
        Relay { memory: Some(memory.begin(BodyClass::Copies)), ..Relay::default() }
    }

    /// Judges a batch of the provider's answer: the heart of hold, commit, failover and collect. Each task is weighed
    /// as if it had come alone: how an answer is cut into batches must not decide what becomes of it.
    pub(super) fn observe(&mut self, tasks: Vec<HttpTask>, rules: Rules<'_>) -> Verdict {
        let fresh = !self.committed;
        let mut forward = Vec::new();
        for task in tasks {
            let end = task.is_end();
            match task {
                HttpTask::Failed(error) => return self.broken(forward, error, fresh),
                // Nobody asked for another protocol; what follows is not an answer.
                HttpTask::Header(header, _) if header.status == StatusCode::SWITCHING_PROTOCOLS => {
                    return Verdict::Abandon(fault(CUT, true));
                }
                HttpTask::Header(header, _) if header.status.is_informational() => continue,
                HttpTask::Header(..) => self.note(&task, rules),
                _ if self.status.is_none() => return Verdict::Abandon(fault(CUT, true)),
                _ => self.note(&task, rules),
            }
            for task in self.pass(task, rules).into_iter().flatten() {
                self.copy(&task, rules.capture_limit);
                if self.committed && rules.mode == Mode::Relay {
                    forward.push(task);
                } else {
                    self.hold(task);
                }
            }
            if end {
                return self.judge_end(forward, rules);
            }
            match self.weigh(rules) {
                Weighed::Wait => {}
                Weighed::Commit => forward = self.commit(),
                Weighed::Abandon(kind) => return Verdict::Abandon(fault(kind, kind != TOO_LARGE)),
            }
        }
        if forward.is_empty() {
            Verdict::Hold
        } else {
            Verdict::Forward { tasks: forward, then: None }
        }
    }

    /// In the middle of an answer.
    fn weigh(&self, rules: Rules<'_>) -> Weighed {
        if rules.mode == Mode::Collect {
            let fits = self.held_bytes <= bounds::COLLECT_BYTES && !self.overfull;
            return if fits { Weighed::Wait } else { Weighed::Abandon(TOO_LARGE) };
        }
        if self.committed {
            return Weighed::Wait;
        }
        if self.in_band_error() && rules.has_next {
            return Weighed::Abandon(IN_BAND);
        }
        let overfull = self.held_bytes > bounds::HOLD_BYTES;
        let ready = match self.refused() {
            // An answer that calls for another target is read whole, to be given out if no other is better.
            Some(_) if overfull && rules.has_next => return Weighed::Abandon(BAD_STATUS),
            Some(Failure::Unauthorized) if overfull => return Weighed::Abandon(BAD_STATUS),
            Some(_) => overfull,
            // A refusal is read whole: half of one is nobody's answer.
            None if !self.ok() => overfull,
            // A document is nobody's before it is whole: it may yet break off, or turn out to be an error.
            None if self.is_document() => overfull || !rules.has_next,
            None => !self.stream || self.tally.verdict() != tally::StreamVerdict::Open || overfull,
        };
        if ready { Weighed::Commit } else { Weighed::Wait }
    }

    /// The answer broke off. `fresh`: before this batch, nothing of it was the client's.
    fn broken(&mut self, mut forward: Vec<HttpTask>, error: Box<Error>, fresh: bool) -> Verdict {
        if fresh && !self.stream {
            // Nothing has been written yet, and half a document is nobody's answer.
            self.committed = false;
            forward.clear();
        }
        if forward.is_empty() {
            Verdict::Abandon(error)
        } else {
            Verdict::Forward { tasks: forward, then: Some(error) }
        }
    }

    /// At the end of an answer, or of what there is of it.
    fn judge_end(&mut self, mut forward: Vec<HttpTask>, rules: Rules<'_>) -> Verdict {
        // Content decides, also when the end came with it; an event without its blank line is none to clients.
        if rules.mode == Mode::Relay
            && !self.committed
            && self.stream
            && self.ok()
            && self.tally.verdict() == tally::StreamVerdict::Answer
        {
            forward = self.commit();
        }
        self.tally.finish();
        let cut =
            self.stream && self.ok() && self.tally.error().is_none() && !self.tally.finished();
        if self.committed && rules.mode == Mode::Relay {
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
        if rules.has_next && (self.in_band_error() || self.holds_document_of_error()) {
            return Verdict::Abandon(fault(IN_BAND, true));
        }
        if self.refused().is_some() {
            self.keep_answer();
            return Verdict::Abandon(fault(BAD_STATUS, true));
        }
        if rules.mode == Mode::Collect {
            self.keep_answer();
            self.committed = true;
            self.complete = true;
            return Verdict::Collected;
        }
        Verdict::Forward { tasks: self.commit(), then: None }
    }

    /// A new attempt, or a new head: what came before is gone.
    pub(super) fn reset(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
        self.overfull = false;
        self.status = None;
        self.headers = HeaderMap::new();
        self.stream = false;
        self.tally = StreamTally::default();
        self.mask = Masking::default();
        self.strip = UsageStrip::default();
        self.body = BytesMut::new();
        self.body_truncated = false;
        self.ending.clear();
        self.first_content = None;
        self.begins = None;
        self.tail.clear();
    }

    /// Reads along: status, kind of answer, content, usage.
    fn note(&mut self, task: &HttpTask, rules: Rules<'_>) {
        match task {
            HttpTask::Header(header, _) => {
                self.reset();
                self.status = Some(header.status.as_u16());
                self.stream = is_event_stream(&header.headers);
                self.tally = StreamTally::of(rules.endpoint);
                self.headers = header.headers.clone();
            }
            HttpTask::Body(Some(bytes), _) => {
                self.begins = self.begins.or(bytes.first().copied());
                if self.stream && self.ok() {
                    self.tally.feed(bytes);
                }
                if self.first_content.is_none()
                    && (!self.stream || self.tally.verdict() != tally::StreamVerdict::Open)
                {
                    self.first_content = Some(Instant::now());
                }
            }
            _ => {}
        }
    }

    /// What of a task may leave. Before an end that carries nothing there may be a rest of the body.
    fn pass(&mut self, task: HttpTask, rules: Rules<'_>) -> [Option<HttpTask>; 2] {
        let part = |bytes: Bytes| (!bytes.is_empty()).then_some(bytes);
        match task {
            HttpTask::Body(Some(ref bytes), _) if self.is_as_it_came(bytes, rules) => {
                [None, Some(task)]
            }
            HttpTask::Body(bytes, end) => {
                let left = part(self.filter(bytes.unwrap_or_default(), end, rules));
                [None, (end || left.is_some()).then_some(HttpTask::Body(left, end))]
            }
            // Nothing in trailers is for clients.
            HttpTask::Trailer(_) | HttpTask::Done => {
                let rest = part(self.filter(Bytes::new(), true, rules));
                [rest.map(|rest| HttpTask::Body(Some(rest), false)), Some(HttpTask::Done)]
            }
            task => [None, Some(task)],
        }
    }

    /// Whether nothing is taken out of these bytes.
    fn is_as_it_came(&self, bytes: &[u8], rules: Rules<'_>) -> bool {
        !self.strips(rules)
            && rules.known_by.is_none_or(|known_by| self.mask.passes(known_by, bytes))
    }

    fn strips(&self, rules: Rules<'_>) -> bool {
        rules.strip_usage && self.stream && self.ok()
    }

    /// What of these bytes, and of those that waited for them, may leave: without what the provider
    /// knows us by, and without the usage that only we asked for.
    fn filter(&mut self, bytes: Bytes, end: bool, rules: Rules<'_>) -> Bytes {
        let mut left = match rules.known_by {
            Some(known_by) => self.mask.feed(known_by, bytes),
            None => bytes,
        };
        if end {
            left = joined(left, self.mask.finish());
        }
        if self.strips(rules) {
            left = self.strip.feed(&left);
            if end {
                left = joined(left, self.strip.finish());
            }
        }
        left
    }

    /// The copy for the capture, of what the client gets, and how that ends.
    fn copy(&mut self, task: &HttpTask, limit: usize) {
        if let HttpTask::Body(Some(bytes), _) = task {
            self.tail
                .extend_from_slice(bytes.get(bytes.len().saturating_sub(4)..).unwrap_or_default());
            self.tail.drain(..self.tail.len().saturating_sub(4));
            // Once it is cut nothing more is added: what is kept is a beginning.
            let room = if self.body_truncated { 0 } else { limit.saturating_sub(self.body.len()) };
            let room = if self.make_room(bytes.len().min(room)) { room } else { 0 };
            self.body_truncated |= bytes.len() > room;
            if self.body_truncated && !self.stream {
                // What an answer used stands at its end: that is known whatever of it is kept.
                self.ending.extend_from_slice(
                    bytes
                        .get(bytes.len().saturating_sub(bounds::USAGE_ENDING)..)
                        .unwrap_or_default(),
                );
                let _gone =
                    self.ending.split_to(self.ending.len().saturating_sub(bounds::USAGE_ENDING));
            }
            self.body.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
        }
    }

    /// Makes room in the copy for so many bytes more, where the process has it.
    fn make_room(&mut self, more: usize) -> bool {
        let needed = self.body.len() + more;
        if needed <= self.body.capacity() {
            return true;
        }
        let ahead = needed.max(2 * self.body.capacity());
        self.account(ahead) || self.account(needed)
    }

    /// Accounts for a copy of so many bytes beside what is held.
    fn account(&mut self, copy: usize) -> bool {
        let bytes = copy + self.held_bytes;
        self.memory.as_mut().is_none_or(|memory| memory.set(bytes))
    }

    fn hold(&mut self, task: HttpTask) {
        if let HttpTask::Body(Some(bytes), _) = &task {
            self.held_bytes += bytes.len();
            self.overfull |= !self.account(self.body.capacity());
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
            // A redirection would send the client, its prompt and its key to another host.
            300..=399 | 500..=599 => Some(Failure::ServerError),
            _ => None,
        }
    }

    /// Whether the client has a stream up to its terminal event, or to an error, behind which no more is to come.
    pub(super) fn has_said_all(&self) -> bool {
        self.committed
            && self.stream
            && self.ok()
            && (self.tally.done_seen() || self.tally.error().is_some())
    }

    /// Whether what has passed ends where an event ends.
    pub(super) fn between_events(&self) -> bool {
        self.tail.is_empty() || ends_event(&self.tail)
    }

    /// Whether content of a success has come.
    pub(super) fn has_good_content(&self) -> bool {
        self.first_content.is_some() && self.ok() && !self.in_band_error()
    }

    /// Whether an answer of success holds an error, in its stream or as its document. A document that is collected says it
    /// itself.
    pub(super) fn has_error(&self) -> bool {
        self.ok()
            && (self.tally.error().is_some()
                || (!self.stream && tally::error_in(&self.body).is_some()))
    }

    /// Whether it is a JSON document of success, and has begun as one: spaces before it keep a connection alive, and leave
    /// at once.
    pub(super) fn is_document(&self) -> bool {
        !self.stream
            && self.ok()
            && is_json(&self.headers)
            && self.begins.is_none_or(|byte| !byte.is_ascii_whitespace())
    }

    fn holds_document_of_error(&self) -> bool {
        self.held_bytes <= bounds::HOLD_BYTES
            && self.is_document()
            && tally::error_in(&self.held_body()).is_some()
    }

    fn held_body(&self) -> Bytes {
        let mut body = BytesMut::with_capacity(self.held_bytes);
        for task in &self.held {
            if let HttpTask::Body(Some(bytes), _) = task {
                body.extend_from_slice(bytes);
            }
        }
        body.freeze()
    }

    fn in_band_error(&self) -> bool {
        self.stream && self.ok() && self.tally.verdict() == tally::StreamVerdict::Error
    }

    fn keep_answer(&mut self) {
        let body = self.held_body();
        self.held.clear();
        let answer = Answer {
            status: self.status.unwrap_or(502),
            headers: self.headers.clone(),
            body,
            stream: self.stream,
            index: self.target,
        };
        // A refused credential is ours, a redirection is for us: neither is for the client.
        let for_the_client =
            self.refused() != Some(Failure::Unauthorized) && !(300..400).contains(&answer.status);
        self.answer = for_the_client.then_some(answer);
    }
}

/// Whether these headers are those of an event stream that can be read along. One that is compressed although we
/// asked for none passes as it is.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    is_plain(headers) && says_event_stream(headers)
}

/// Whether these headers are those of an event stream, compressed or not.
pub(super) fn says_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.trim_start()
        .get(.."text/event-stream".len())
        .is_some_and(|start| start.eq_ignore_ascii_case("text/event-stream"))
}

/// Whether these headers are those of a JSON document that can be read.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    is_plain(headers)
        && kind
            .trim_start()
            .get(.."application/json".len())
            .is_some_and(|start| start.eq_ignore_ascii_case("application/json"))
}

fn is_plain(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_ENCODING)
        .is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn joined(first: Bytes, second: Bytes) -> Bytes {
    if second.is_empty() { first } else { [first, second].concat().into() }
}

fn withhold_end(tasks: &mut Vec<HttpTask>) {
    tasks.retain(|task| !matches!(task, HttpTask::Done));
    if let Some(HttpTask::Header(_, end) | HttpTask::Body(_, end)) = tasks.last_mut() {
        *end = false;
    }
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
