//! A provider's answer on its way: what is held, when it is the client's, what makes it fail, and the copy for the
//! capture. No I/O: batches of tasks in, a verdict out.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use pingora::Error;
use pingora::http::ResponseHeader;
use pingora::protocols::http::HttpTask;
use tokio::time::Instant;

use super::failure::{BAD_STATUS, CUT, Failure, IN_BAND, TOO_LARGE, fault};
use crate::bounds;
use crate::protocol::stream::{self as tally, Tally};

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
    pub(super) index: usize,
}

/// What [`Relay::observe`] must know of the call.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    pub(super) mode: Mode,
    /// Another target could still be tried, should this one turn out to be failing.
    pub(super) has_next: bool,
    /// Bytes of the copy for the capture.
    pub(super) capture_limit: usize,
}

/// The answer so far, of the attempt under way.
#[derive(Default)]
pub(super) struct Relay {
    /// The target of the plan that gives it.
    pub(super) target: usize,
    held: Vec<HttpTask>,
    held_bytes: usize,
    /// Something of it is the client's now: no failover any more.
    pub(super) committed: bool,
    /// All of it has been passed on, or collected.
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
    /// The last whole answer that was not passed on, or the collected one.
    pub(super) answer: Option<Answer>,
}

impl Relay {
    /// Judges a batch of the provider's answer: the heart of hold, commit, failover and collect.
    pub(super) fn observe(&mut self, tasks: Vec<HttpTask>, rules: Rules) -> Verdict {
        let mut forward = Vec::new();
        for task in tasks {
            let end = task.is_end();
            match task {
                HttpTask::Failed(error) => {
                    if rules.mode == Mode::Relay
                        && !self.committed
                        && self.stream
                        && self.ok()
                        && self.tally.verdict() == tally::Verdict::Answer
                    {
                        // Content and break came together: content decides, whatever the timing.
                        forward = self.commit();
                    }
                    return if forward.is_empty() {
                        Verdict::Abandon(error)
                    } else {
                        Verdict::Forward { tasks: forward, then: Some(error) }
                    };
                }
                HttpTask::Header(header, _) if header.status.is_informational() => continue,
                task => {
                    self.note(&task, rules.capture_limit);
                    if self.committed && rules.mode == Mode::Relay {
                        forward.push(task);
                    } else {
                        self.hold(task);
                    }
                }
            }
            if end {
                return self.judge_end(forward, rules);
            }
        }
        self.judge(forward, rules)
    }

    /// In the middle of an answer.
    fn judge(&mut self, mut forward: Vec<HttpTask>, rules: Rules) -> Verdict {
        if rules.mode == Mode::Collect {
            return if self.held_bytes > bounds::COLLECT_BYTES { Verdict::Abandon(fault(TOO_LARGE, false)) } else { Verdict::Hold };
        }
        if !self.committed {
            if self.in_band_error() && rules.has_next {
                return Verdict::Abandon(fault(IN_BAND, true));
            }
            let overfull = self.held_bytes > bounds::HOLD_BYTES;
            let ready = match self.refused() {
                // An answer that calls for another target is read whole, to be given out if no other is better.
                Some(_) if overfull && rules.has_next => return Verdict::Abandon(fault(BAD_STATUS, true)),
                Some(Failure::Unauthorized) if overfull => return Verdict::Abandon(fault(BAD_STATUS, true)),
                Some(Failure::Unauthorized) => false,
                Some(_) => overfull,
                None => !self.stream || !self.ok() || self.tally.verdict() != tally::Verdict::Open || overfull,
            };
            if !ready {
                return Verdict::Hold;
            }
            forward = self.commit();
        }
        if forward.is_empty() { Verdict::Hold } else { Verdict::Forward { tasks: forward, then: None } }
    }

    /// At the end of an answer, or of what there is of it.
    fn judge_end(&mut self, mut forward: Vec<HttpTask>, rules: Rules) -> Verdict {
        self.tally.finish();
        let cut = self.stream && self.ok() && self.tally.error().is_none() && !self.tally.finished();
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
        if self.in_band_error() && rules.has_next {
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
            _ => {
                Some(Answer { status: self.status.unwrap_or(502), headers: self.headers.clone(), body: body.freeze(), index: self.target })
            }
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
