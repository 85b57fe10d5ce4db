//! A provider's answer on its way to the client: what is held back, when the answer is committed,
//! what makes it fail, and its copy for the capture. No I/O: batches of tasks in, a verdict out.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use pingora::Error;
use pingora::protocols::http::HttpTask;
use tokio::time::Instant;

use super::answer_filter::{AnswerFilter, EventFilter, joined};
use super::answer_translation::DROPPED;
use super::content_type::{is_event_stream, is_json};
use super::failure::{AttemptFailure, BAD_STATUS, CUT, IN_BAND, TOO_LARGE, fault};
use super::verdict::{Mode, RelayVerdict, Rules, WholeAnswer};
use rerouter_base::body_memory::{BodyClass, BodyMemory, Held};
use rerouter_dialect::neutral::answer_builder::COLLECT_BYTES;
use rerouter_dialect::stream::{StreamTally, StreamVerdict, breaks_off, error_in};
use rerouter_dialect::wire::sse::ends_event;

/// Most bytes of an answer that are held until its first content event.
const HOLD_BYTES: usize = 256 << 10;
/// Number of bytes at the end of a long answer that are searched for its usage.
const USAGE_ENDING: usize = 16 << 10;

enum NextStep {
    Wait,
    Commit,
    Abandon(&'static str),
}

#[derive(Default)]
pub(super) struct Relay {
    /// The index of the attempt.
    pub(super) target: usize,
    held: Vec<HttpTask>,
    held_bytes: usize,
    /// The process has no memory left for what is held.
    overfull: bool,
    /// Some of the answer has been passed on: failover is no longer possible.
    pub(super) committed: bool,
    /// The whole answer has been passed on, or collected.
    pub(super) complete: bool,
    pub(super) status: Option<u16>,
    pub(super) headers: HeaderMap,
    pub(super) stream: bool,
    /// The counts of a stream that is not translated.
    tally: StreamTally,
    pub(super) filter: AnswerFilter,
    /// The copy for the capture: the body that the client gets.
    pub(super) body: BytesMut,
    pub(super) body_truncated: bool,
    /// The last bytes of a document that is longer than the copy.
    pub(super) ending: BytesMut,
    pub(super) first_content: Option<Instant>,
    /// The first byte of the body.
    begins: Option<u8>,
    /// The last bytes of a stream: enough to tell whether they end an event.
    tail: Vec<u8>,
    /// The last whole answer that was not passed on, or the collected answer.
    pub(super) answer: Option<WholeAnswer>,
    /// The memory that the copy and the held tasks take.
    memory: Option<Held>,
    /// The memory of the translation and its size in bytes; `None` without a translation.
    translating: Option<(Held, usize)>,
}

impl Relay {
    pub(super) fn count_within(&mut self, memory: &BodyMemory) {
        self.memory = Some(memory.begin(BodyClass::Copies));
    }

    /// Decides on a batch of the provider's answer: hold, commit, fail over or collect. Each task
    /// is judged as if it had come alone, so the division into batches changes nothing.
    pub(super) fn observe(&mut self, tasks: Vec<HttpTask>, rules: Rules<'_>) -> RelayVerdict {
        let fresh = !self.committed;
        let mut forward = Vec::new();
        for task in tasks {
            let end = task.is_end();
            match task {
                HttpTask::Failed(error) => return self.broken(forward, error, fresh),
                // The gateway asks for no other protocol, so what follows is no answer.
                HttpTask::Header(header, _) if header.status == StatusCode::SWITCHING_PROTOCOLS => {
                    return RelayVerdict::Abandon(fault(CUT, true));
                }
                HttpTask::Header(header, _) if header.status.is_informational() => continue,
                HttpTask::Header(..) => self.note(&task, rules),
                _ if self.status.is_none() => return RelayVerdict::Abandon(fault(CUT, true)),
                _ => self.note(&task, rules),
            }
            for task in self.pass(task, rules).into_iter().flatten() {
                self.copy(&task, rules);
                if self.committed && rules.mode == Mode::Relay {
                    forward.push(task);
                } else {
                    self.hold(task);
                }
            }
            self.note_content();
            if end {
                return self.judge_end(forward, rules);
            }
            match self.next_step(rules) {
                NextStep::Wait => {}
                NextStep::Commit => forward = self.commit(),
                NextStep::Abandon(kind) => {
                    return RelayVerdict::Abandon(fault(kind, kind != TOO_LARGE));
                }
            }
        }
        if forward.is_empty() {
            RelayVerdict::Hold
        } else {
            RelayVerdict::Forward { tasks: forward, then: None }
        }
    }

    fn next_step(&self, rules: Rules<'_>) -> NextStep {
        if rules.mode == Mode::Collect || self.filter.whole().is_some() {
            let bytes = self.held_bytes + self.filter.held();
            let fits = bytes <= COLLECT_BYTES && !self.overfull;
            return if fits { NextStep::Wait } else { NextStep::Abandon(TOO_LARGE) };
        }
        if self.committed {
            return NextStep::Wait;
        }
        if self.in_band_error() && rules.has_next {
            return NextStep::Abandon(IN_BAND);
        }
        let overfull = self.held_bytes > HOLD_BYTES;
        let ready = match self.refused() {
            // A refusal is read whole, to be passed on if no other target answers better.
            Some(_) if overfull && rules.has_next => return NextStep::Abandon(BAD_STATUS),
            Some(AttemptFailure::Unauthorized) if overfull => return NextStep::Abandon(BAD_STATUS),
            Some(_) => overfull,
            // An error that no other target would change is read whole, too.
            None if !self.ok() => overfull,
            // A document is held until it is whole: it may break off, or turn out to be an error.
            None if self.is_document() => overfull || !rules.has_next,
            None => !self.stream || self.tally().verdict() != StreamVerdict::Open || overfull,
        };
        if ready { NextStep::Commit } else { NextStep::Wait }
    }

    /// `fresh`: nothing was committed before this batch.
    fn broken(
        &mut self,
        mut forward: Vec<HttpTask>,
        error: Box<Error>,
        fresh: bool,
    ) -> RelayVerdict {
        if fresh && !self.stream {
            // Nothing has been written yet, and half a document is no answer.
            self.committed = false;
            forward.clear();
        }
        if forward.is_empty() {
            RelayVerdict::Abandon(error)
        } else {
            RelayVerdict::Forward { tasks: forward, then: Some(error) }
        }
    }

    fn judge_end(&mut self, mut forward: Vec<HttpTask>, rules: Rules<'_>) -> RelayVerdict {
        if let Some(status) = self.filter.whole().and_then(|whole| whole.failed_as) {
            return self.keep_error(status);
        }
        // A stream with content is committed even if its end came in the same batch. Clients ignore
        // an event without its blank line.
        if rules.mode == Mode::Relay
            && !self.committed
            && self.stream
            && self.ok()
            && self.tally().verdict() == StreamVerdict::Answer
        {
            forward = self.commit();
        }
        if self.stream {
            self.tally.finish();
        }
        let cut =
            self.stream && self.ok() && self.tally().error().is_none() && !self.tally().finished();
        if self.committed && rules.mode == Mode::Relay {
            if cut {
                // The end is held back, so that the client does not take the answer for complete.
                withhold_end(&mut forward);
                return RelayVerdict::Forward { tasks: forward, then: Some(fault(CUT, false)) };
            }
            return RelayVerdict::Forward { tasks: forward, then: None };
        }
        if cut {
            return RelayVerdict::Abandon(fault(CUT, true));
        }
        if rules.has_next && self.in_band_error() {
            return RelayVerdict::Abandon(fault(IN_BAND, true));
        }
        if rules.has_next && self.is_document() && self.held_bytes <= HOLD_BYTES {
            let body = self.held_body();
            if let Some(error) = error_in(&body) {
                return self.keep_error(error.status);
            }
            if breaks_off(&body) {
                return RelayVerdict::Abandon(fault(CUT, true));
            }
        }
        if self.refused().is_some() {
            self.keep_answer();
            return RelayVerdict::Abandon(fault(BAD_STATUS, true));
        }
        if rules.mode == Mode::Collect {
            self.keep_answer();
            self.committed = true;
            self.complete = true;
            return RelayVerdict::Collected;
        }
        RelayVerdict::Forward { tasks: self.commit(), then: None }
    }

    /// Drops what came before a new attempt or a new head.
    pub(super) fn reset(&mut self) {
        // Without a head there is nothing to drop.
        if self.status.is_none() {
            return;
        }
        let Relay { target, committed, complete, answer, memory, .. } = std::mem::take(self);
        *self = Relay { target, committed, complete, answer, memory, ..Relay::default() };
    }

    fn note(&mut self, task: &HttpTask, rules: Rules<'_>) {
        match task {
            HttpTask::Header(header, _) => {
                self.reset();
                self.status = Some(header.status.as_u16());
                self.stream = is_event_stream(&header.headers);
                self.tally = StreamTally::new(rules.dialect);
                if let Some(plan) = rules.translation {
                    let status = header.status.as_u16();
                    self.filter = AnswerFilter::translating(plan, status, self.stream);
                    let memory = self.memory.as_ref();
                    self.translating = memory.map(|memory| (memory.beside(BodyClass::Requests), 0));
                }
                self.headers = header.headers.clone();
            }
            HttpTask::Body(Some(bytes), _) => {
                self.begins = self.begins.or(bytes.first().copied());
                if self.stream && self.ok() && self.filter.tally().is_none() {
                    self.tally.feed(bytes);
                }
            }
            _ => {}
        }
    }

    pub(super) fn tally(&self) -> &StreamTally {
        self.filter.tally().unwrap_or(&self.tally)
    }

    fn note_content(&mut self) {
        if self.first_content.is_none()
            && self.begins.is_some()
            && (!self.stream || self.tally().verdict() != StreamVerdict::Open)
        {
            self.first_content = Some(Instant::now());
        }
    }

    /// Filters a task. The rest of a body becomes a task of its own before an end without bytes.
    fn pass(&mut self, task: HttpTask, rules: Rules<'_>) -> [Option<HttpTask>; 2] {
        let part = |bytes: Bytes| (!bytes.is_empty()).then_some(bytes);
        let events = EventFilter::of(self.stream && self.ok(), rules.strip_usage);
        match task {
            // An answer without a body gets one by its translation.
            HttpTask::Header(header, true) if self.filter.whole().is_some() => {
                let body = self.filter.feed(Bytes::new(), true, rules.credentials, events);
                let header = HttpTask::Header(header, false);
                [Some(header), Some(HttpTask::Body(Some(body), true))]
            }
            HttpTask::Body(Some(ref bytes), _)
                if self.filter.passes(bytes, rules.credentials, events) =>
            {
                [None, Some(task)]
            }
            HttpTask::Body(bytes, end) => {
                let bytes = bytes.unwrap_or_default();
                let left = self.filter.feed(bytes, end, rules.credentials, events);
                let left = part(self.accounted(left, rules));
                [None, (end || left.is_some()).then_some(HttpTask::Body(left, end))]
            }
            // Trailers are not passed on.
            HttpTask::Trailer(_) | HttpTask::Done => {
                let rest = self.filter.feed(Bytes::new(), true, rules.credentials, events);
                let rest = part(self.accounted(rest, rules));
                [rest.map(|rest| HttpTask::Body(Some(rest), false)), Some(HttpTask::Done)]
            }
            task => [None, Some(task)],
        }
    }

    /// Counts the memory of the translation, and returns the bytes that are ready for the client.
    /// If there is no memory left, a stream ends here.
    fn accounted(&mut self, left: Bytes, rules: Rules<'_>) -> Bytes {
        self.name_dropped(rules);
        let Some((memory, known)) = &mut self.translating else { return left };
        let held = self.filter.held();
        if std::mem::replace(known, held) == held || memory.set(held) {
            return left;
        }
        if self.filter.whole().is_some() {
            self.overfull = true;
            return left;
        }
        joined(left, self.filter.give_up())
    }

    /// Adds the header that lists what the translation of an answer left out. Of a stream, the
    /// client has the header already; the capture and the access line get the rest.
    fn name_dropped(&mut self, rules: Rules<'_>) {
        if let Some(dropped) = self.filter.dropped(rules.credentials) {
            if let Some(HttpTask::Header(header, _)) = self.held.first_mut() {
                // Fails only if the name is not valid.
                let _always = header.insert_header(&DROPPED, dropped.clone());
            }
            self.headers.insert(&DROPPED, dropped);
        }
    }

    /// Adds a task to the copy for the capture, and keeps the last bytes of the body.
    fn copy(&mut self, task: &HttpTask, rules: Rules<'_>) {
        if let HttpTask::Body(Some(bytes), _) = task {
            if self.stream {
                let last = bytes.get(bytes.len().saturating_sub(4)..).unwrap_or_default();
                self.tail.extend_from_slice(last);
                self.tail.drain(..self.tail.len().saturating_sub(4));
                if !rules.captured {
                    return;
                }
            }
            let limit = rules.capture_limit;
            // A copy that was cut gets no more bytes, so that it stays a prefix of the body.
            let room = if self.body_truncated { 0 } else { limit.saturating_sub(self.body.len()) };
            let room = if self.make_room(bytes.len().min(room)) { room } else { 0 };
            self.body_truncated |= bytes.len() > room;
            if self.body_truncated && !self.stream {
                // The usage is at the end of a document, so it is known even if the copy is cut.
                self.ending.extend_from_slice(
                    bytes.get(bytes.len().saturating_sub(USAGE_ENDING)..).unwrap_or_default(),
                );
                let _gone = self.ending.split_to(self.ending.len().saturating_sub(USAGE_ENDING));
            }
            self.body.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
        }
    }

    /// Returns `false` if the memory limit has no room.
    fn make_room(&mut self, more: usize) -> bool {
        let needed = self.body.len() + more;
        if needed <= self.body.capacity() {
            return true;
        }
        let ahead = needed.max(2 * self.body.capacity());
        self.account(ahead) || self.account(needed)
    }

    /// Counts a copy of this size and the held tasks. `false` if the memory limit has no room.
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

    fn ok(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// The failure that the status means, if another target may answer better.
    pub(super) fn refused(&self) -> Option<AttemptFailure> {
        match self.status? {
            429 => Some(AttemptFailure::RateLimited),
            401 | 403 => Some(AttemptFailure::Unauthorized),
            // A client that follows a redirect would send its prompt and its key to another host.
            300..=399 | 500..=599 => Some(AttemptFailure::ServerError),
            _ => None,
        }
    }

    /// Whether a stream has been passed on up to its terminal event or to an error.
    pub(super) fn has_said_all(&self) -> bool {
        self.committed
            && self.stream
            && self.ok()
            && (self.tally().done_seen() || self.tally().error().is_some() || self.is_unreadable())
    }

    /// Whether a stream could not be translated although the provider reported no error.
    fn is_unreadable(&self) -> bool {
        self.filter.is_given_up() && self.tally().error().is_none()
    }

    pub(super) fn between_events(&self) -> bool {
        self.tail.is_empty() || ends_event(&self.tail)
    }

    pub(super) fn has_good_content(&self) -> bool {
        self.first_content.is_some() && self.ok() && !self.in_band_error()
    }

    /// Whether the provider has not refused the request so far.
    pub(super) fn may_be_served(&self) -> bool {
        (self.status.is_none() || self.ok()) && !self.has_error()
    }

    /// Whether a successful answer contains an error, as an event or as the document.
    pub(super) fn has_error(&self) -> bool {
        self.ok() && (self.is_unreadable() || self.error_status().is_some())
    }

    /// The status that the error in an answer names or implies.
    pub(super) fn error_status(&self) -> Option<u16> {
        match self.filter.whole() {
            Some(whole) => whole.failed_as,
            None if self.stream => self.tally().error().map(|error| error.status),
            None => error_in(&self.body).map(|error| error.status),
        }
    }

    /// Whether the answer is a successful JSON document. A body that begins with whitespace does
    /// not count: the whitespace keeps the connection alive and is passed on at once.
    pub(super) fn is_document(&self) -> bool {
        !self.stream
            && self.ok()
            && is_json(&self.headers)
            && self.begins.is_none_or(|byte| !byte.is_ascii_whitespace())
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

    /// Whether a stream began with an error.
    pub(super) fn in_band_error(&self) -> bool {
        let is_error = self.tally().verdict() == StreamVerdict::Error;
        self.stream && self.ok() && (is_error || self.is_unreadable())
    }

    /// Keeps an answer that is an error with a status of success. A refused credential is our
    /// fault, so the client does not get that answer.
    fn keep_error(&mut self, status: u16) -> RelayVerdict {
        self.keep_answer();
        let for_the_client = self.answer.take().filter(|_| !matches!(status, 401 | 403));
        self.answer = for_the_client.map(|answer| WholeAnswer { status, ..answer });
        RelayVerdict::Abandon(fault(IN_BAND, true))
    }

    fn keep_answer(&mut self) {
        let body = self.held_body();
        self.held.clear();
        let answer = WholeAnswer {
            status: self.status.unwrap_or(502),
            headers: self.headers.clone(),
            body,
            stream: self.stream,
            index: self.target,
        };
        // A refused credential is our fault, and a redirect is for us: the client gets neither.
        let for_the_client = self.refused() != Some(AttemptFailure::Unauthorized)
            && !(300..400).contains(&answer.status);
        self.answer = for_the_client.then_some(answer);
    }
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
