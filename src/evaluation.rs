//! An evaluation under way: captures read step by step on a thread of its own, decided again, counted. It gives way to
//! requests, tells how far it has come, and ends when nobody waits for it any more.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::app::{App, Live};
use crate::bounds;
use crate::capture::index::{Archive, LastBlock};
use crate::capture::record::{Capture, Head};
use crate::config::{self, Server};
use crate::error::{Error, Kind, Result};
use crate::id::RequestId;
use crate::prompt::Prompt;
use crate::protocol::endpoint::Endpoint;
use crate::replay::cost::PriceList;
use crate::replay::evaluate::{Question, Skipped, Standing};
use crate::replay::explain;
use crate::replay::report::Report;
use crate::routing::recipe::Routing;
use crate::store::{CaptureFilter, Place, Store};
use crate::turns::{Turns, WorkTurn};

/// A document that captures are decided under.
#[derive(Clone)]
pub enum Document {
    /// The one that was live when the evaluation began.
    Live(Arc<Live>),
    /// Another one.
    Given(Arc<Routing>),
}

impl Document {
    /// It.
    pub fn routing(&self) -> &Routing {
        match self {
            Document::Live(live) => &live.routing,
            Document::Given(routing) => routing,
        }
    }
}

/// What is to be evaluated.
pub struct Evaluation {
    /// The document that captures are decided under.
    pub candidate: Document,
    /// What it is compared with; `None`: what was decided then.
    pub baseline: Option<Document>,
    /// Which state of the targets counts.
    pub standing: Standing,
    /// Which captures.
    pub filter: CaptureFilter,
    /// How many of them at most, the newest first.
    pub window: Window,
    /// Whether captures that were taken in from a file are left out: this gateway did not see that traffic.
    pub without_imported: bool,
    /// Whether reasons may quote the candidate's conditions: whoever asks may see that document.
    pub conditions: bool,
}

/// How many captures an evaluation reads.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Captures looked at, at most.
    pub looked_at: u64,
    /// Captures decided again, at most.
    pub decided: u64,
}

impl Window {
    /// So many captures, whatever becomes of them.
    pub fn of(captures: u64) -> Self {
        Window { looked_at: captures, decided: captures }
    }

    /// How many are read next, after so many; `None` when it is full.
    fn next(self, looked_at: u64, decided: u64) -> Option<usize> {
        let left = self.looked_at.saturating_sub(looked_at);
        let step = usize::try_from(left).unwrap_or(usize::MAX).min(bounds::EVALUATE_STEP);
        (step > 0 && decided < self.decided).then_some(step)
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Captures looked at.
    pub done: u64,
    /// Most that will be.
    pub limit: u64,
    /// Those of them that changed.
    pub changed: u64,
    /// When the last of them was made; they come newest first.
    pub reached: Timestamp,
}

/// What an evaluation tells.
pub enum Told {
    /// It goes on.
    Progress(Progress),
    /// It has ended.
    Done(Result<Report>),
}

/// Waits for a turn at `turns`; 429 where there was none for too long.
pub async fn turn(turns: &Turns, caller: &str) -> Result<WorkTurn> {
    turns.take(caller).await.ok_or_else(|| {
        let why = "Too many evaluations are running; none ended in time.";
        Error::new(Kind::RateLimited, why).retry_after(bounds::LIMIT_RETRY)
    })
}

/// Begins an evaluation in its turn; it ends with its last capture, or soon after the receiver is
/// dropped. 503 while captures are there that the index does not know.
pub fn begin(app: &App, turn: WorkTurn, evaluation: Evaluation) -> Result<mpsc::Receiver<Told>> {
    app.archive.check_complete()?;
    let (tell, told) = mpsc::channel(4);
    let work = Work {
        evaluation,
        archive: app.archive.clone(),
        documents: Documents {
            known: HashMap::new(),
            store: app.store.clone(),
            server: app.server.clone(),
            mock: app.mock,
        },
        traffic: app.traffic(),
        handle: Handle::current(),
        tell,
        last: LastBlock::default(),
    };
    let started = std::thread::Builder::new().name("evaluate".into()).spawn(move || work.run(turn));
    started.map_err(Error::internal)?;
    Ok(told)
}

/// An evaluation to its end.
pub async fn finish(mut told: mpsc::Receiver<Told>) -> Result<Report> {
    while let Some(event) = told.recv().await {
        if let Told::Done(report) = event {
            return report;
        }
    }
    Err(Error::panicked("an evaluation ended without a word"))
}

struct Work {
    evaluation: Evaluation,
    archive: Archive,
    documents: Documents,
    traffic: Arc<AtomicUsize>,
    handle: Handle,
    tell: mpsc::Sender<Told>,
    last: LastBlock,
}

impl Work {
    fn run(mut self, turn: WorkTurn) {
        let report = self.evaluate().transpose();
        // Whoever has its report may begin another one.
        drop(turn);
        if let Some(report) = report {
            // Whoever asked may have left meanwhile.
            let _gone = self.tell.blocking_send(Told::Done(report));
        }
    }

    /// `None` where nobody waits for it any more.
    fn evaluate(&mut self) -> Result<Option<Report>> {
        let (mut report, mut done, mut after) = (Report::default(), 0, None::<RequestId>);
        let (mut told, mut reached) = (Instant::now(), None);
        let window = self.evaluation.window;
        while let Some(step) = window.next(done, report.evaluated) {
            let began = Instant::now();
            let page = self.handle.block_on(self.archive.page(
                self.evaluation.filter.clone(),
                step,
                after.take(),
            ))?;
            for (head, place) in page.heads.iter().zip(&page.places) {
                if report.evaluated < window.decided {
                    self.add(head, *place, &mut report);
                }
            }
            report.unreadable += page.unreadable as u64;
            done += (page.heads.len() + page.unreadable) as u64;
            reached = page.heads.last().map(|last| last.created_at).or(reached);
            // Not by how many a page holds: one is short where a filter is rare, or a block damaged, and more follow.
            let Some(next) = page.next else { break };
            after = Some(next);
            if self.tell.is_closed() {
                return Ok(None);
            }
            if let Some(reached) = reached.filter(|_| told.elapsed() >= bounds::EVALUATE_TELL) {
                told = Instant::now();
                let progress =
                    Progress { done, limit: window.looked_at, changed: report.changed, reached };
                // One that is not taken in time is followed by a newer one.
                let _full = self.tell.try_send(Told::Progress(progress));
            }
            self.give_way(began.elapsed());
        }
        Ok(Some(report))
    }

    /// Requests other than the one that waits for this go first: half of the time is theirs.
    #[expect(
        clippy::disallowed_methods,
        reason = "on a thread of its own, to be slow is the point"
    )]
    fn give_way(&self, worked: Duration) {
        if self.traffic.load(Ordering::Acquire) > 1 {
            std::thread::sleep(worked);
        }
    }

    fn add(&mut self, head: &Head, place: Place, report: &mut Report) {
        let Evaluation { candidate, baseline, standing, conditions, without_imported, .. } =
            &self.evaluation;
        if *without_imported && head.imported {
            return report.skip(Skipped::Imported, head);
        }
        let recorded = head
            .decision
            .as_ref()
            .and_then(|decision| self.documents.of(&decision.revision, &self.handle));
        let question = Question {
            candidate: candidate.routing(),
            baseline: baseline.as_ref().map(Document::routing),
            standing,
        };
        let (archive, last) = (&self.archive, RefCell::new(&mut self.last));
        let text = || {
            let bodies = head
                .not_replayable()
                .is_none()
                .then(|| archive.bodies(place, &mut last.borrow_mut()));
            user_text(head, bodies??.request)
        };
        match question.judge(head, recorded.as_deref(), &text) {
            Err(skipped) => report.skip(skipped, head),
            Ok(judged) => {
                let prices =
                    PriceList { candidate: question.candidate, baseline: question.baseline };
                let before = question.baseline.or(recorded.as_deref());
                report.add(head, &judged, &prices, || {
                    let mut reasons = explain::explain(&judged, before, question.candidate);
                    reasons
                        .iter_mut()
                        .filter(|_| !conditions)
                        .for_each(|reason| reason.when = None);
                    reasons
                });
            }
        }
    }
}

/// Captures at hand, decided again without a gateway.
pub struct Offline {
    candidate: Routing,
    baseline: Option<Routing>,
    standing: Standing,
    report: Report,
}

impl Offline {
    /// An evaluation of nothing yet. `baseline`: what is compared with; `None`: what was decided then.
    pub fn new(candidate: Routing, baseline: Option<Routing>, standing: Standing) -> Offline {
        Offline { candidate, baseline, standing, report: Report::default() }
    }

    /// Decides one more.
    pub fn add(&mut self, capture: &Capture) {
        let Offline { candidate, baseline, standing, report } = self;
        let head = &capture.head;
        let question = Question { candidate, baseline: baseline.as_ref(), standing };
        // The document of then is known where it is one of those given.
        let revision = head.decision.as_ref().map(|decision| decision.revision.as_str());
        let recorded = [Some(&*candidate), baseline.as_ref()]
            .into_iter()
            .flatten()
            .find(|known| Some(known.revision()) == revision);
        let text = || user_text(head, capture.bodies.request.clone());
        match question.judge(head, recorded, &text) {
            Err(skipped) => report.skip(skipped, head),
            Ok(judged) => {
                let prices = PriceList { candidate, baseline: baseline.as_ref() };
                report.add(head, &judged, &prices, || {
                    explain::explain(&judged, baseline.as_ref().or(recorded), candidate)
                });
            }
        }
    }

    /// What came of it so far.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

/// The last user message of a capture, where its body was kept as it came.
fn user_text(head: &Head, body: Bytes) -> Option<String> {
    if head.not_replayable().is_some() {
        return None;
    }
    let prompt = Prompt::read(Endpoint::named(&head.endpoint)?, body, HeaderMap::new()).ok()?;
    Some(prompt.last_user_text())
}

/// Documents that were live, by revision: read once each, as captures come in the order of time.
struct Documents {
    known: HashMap<String, Option<Arc<Routing>>>,
    store: Store,
    server: Server,
    mock: Option<std::net::SocketAddr>,
}

impl Documents {
    fn of(&mut self, revision: &str, handle: &Handle) -> Option<Arc<Routing>> {
        if self.known.len() >= bounds::EVALUATE_DOCUMENTS && !self.known.contains_key(revision) {
            self.known.clear();
        }
        match self.known.entry(revision.to_owned()) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => {
                let text = handle.block_on(self.store.document(revision)).ok().flatten();
                // One that this build does not take any more explains nothing, and is no reason to fail.
                let read = text
                    .and_then(|text| config::read_remembered(&text, &self.server, self.mock).ok());
                place.insert(read.map(Arc::new)).clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_full_when_enough_were_decided_or_looked_at() {
        let window = Window { looked_at: 1_000, decided: 100 };
        assert_eq!(window.next(0, 0), Some(bounds::EVALUATE_STEP));
        assert_eq!(window.next(900, 0), Some(100), "what was left out does not count");
        assert_eq!((window.next(1_000, 0), window.next(100, 100)), (None, None));
        assert_eq!((Window::of(4).next(3, 3), Window::of(4).next(4, 0)), (Some(1), None));
    }
}
