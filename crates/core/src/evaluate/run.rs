//! A running evaluation: it reads captures page by page on its own thread, decides them again and
//! adds them to a report. The evaluation yields to requests, sends progress, and stops when nobody
//! waits for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::judge::{HealthSource, Question, Skipped};
use super::offline;
use super::report::EvaluationReport;
use crate::app::{App, Live};
use crate::config::{self, Server};
use rerouter_base::blocking::blocking;
use rerouter_base::bounds;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::RequestId;
use rerouter_base::turns::{Turns, WorkTurn};
use rerouter_captures::archive::{Archive, CaptureReader};
use rerouter_captures::capture::record::Head;
use rerouter_routing::Routing;
use rerouter_store::{CaptureFilter, CaptureLocation, Store};

/// Heads that an evaluation reads in one step: some megabytes. After each step it checks whether
/// its client is still there.
const EVALUATE_STEP: usize = 200;
/// Time between two progress lines of an evaluation.
const EVALUATE_PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Most earlier documents that an evaluation keeps in memory, to explain what changed in them.
const EVALUATE_DOCUMENTS: usize = 16;

#[derive(Clone)]
pub enum Document {
    /// The live document at the start of the evaluation.
    Live(Arc<Live>),
    Given(Arc<Routing>),
}

impl Document {
    pub fn routing(&self) -> &Routing {
        match self {
            Document::Live(live) => &live.routing,
            Document::Given(routing) => routing,
        }
    }
}

/// The document of a revision; `None` if it is no longer known, or this build rejects it.
pub(crate) async fn document_of(app: &App, revision: &str) -> Option<Document> {
    let live = app.live();
    if live.routing.revision() == revision {
        return Some(Document::Live(live));
    }
    let text = app.store.document(revision).await.ok().flatten()?;
    let (server, mock) = (app.server.clone(), app.mock);
    let read = blocking(move || config::read_remembered(&text, &server, mock).ok()).await.ok()?;
    read.map(|routing| Document::Given(Arc::new(routing)))
}

pub struct Evaluation {
    /// The document under evaluation.
    pub candidate: Document,
    /// The document to compare with; `None`: the recorded decisions.
    pub baseline: Option<Document>,
    pub health: HealthSource,
    pub filter: CaptureFilter,
    /// Limits on captures, which are read newest first.
    pub limits: CaptureLimits,
    /// Whether imported captures are skipped, because they are not traffic of this gateway.
    pub without_imported: bool,
    /// Whether reasons may quote the candidate's conditions, because the caller may read the
    /// document.
    pub conditions: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct CaptureLimits {
    /// Most captures that are read.
    pub read: u64,
    /// Most captures that are decided again.
    pub decided: u64,
}

impl CaptureLimits {
    pub fn new(captures: u64) -> Self {
        CaptureLimits { read: captures, decided: captures }
    }

    /// `None` if a limit is reached.
    fn next(self, read: u64, decided: u64) -> Option<usize> {
        let left = self.read.saturating_sub(read);
        let step = usize::try_from(left).unwrap_or(usize::MAX).min(EVALUATE_STEP);
        (step > 0 && decided < self.decided).then_some(step)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct EvaluationProgress {
    pub done: u64,
    /// Most captures that are read.
    pub limit: u64,
    pub changed: u64,
    /// Time of the last capture read. Captures come newest first.
    pub reached: Timestamp,
}

pub enum EvaluationEvent {
    Progress(EvaluationProgress),
    Done(Box<Result<EvaluationReport>>),
}

/// 429 if none comes in time.
pub async fn turn(turns: &Turns, caller: &str) -> Result<WorkTurn> {
    turns.take(caller).await.ok_or_else(|| {
        let why = "Too many evaluations are running; none ended in time.";
        Error::new(Kind::RateLimited, why).retry_after(bounds::LIMIT_RETRY)
    })
}

/// It ends with the last capture, or soon after the receiver is dropped. 503 while the index of
/// captures is incomplete.
pub fn begin(
    app: &App,
    turn: WorkTurn,
    evaluation: Evaluation,
) -> Result<mpsc::Receiver<EvaluationEvent>> {
    let (sender, events) = mpsc::channel(4);
    let work = EvaluationWorker {
        evaluation,
        archive: app.archive.clone(),
        documents: DocumentCache {
            known: HashMap::new(),
            store: app.store.clone(),
            server: app.server.clone(),
            mock: app.mock,
        },
        traffic: app.traffic(),
        handle: Handle::current(),
        sender,
        reader: app.archive.reader(),
    };
    let started = std::thread::Builder::new().name("evaluate".into()).spawn(move || work.run(turn));
    started.map_err(Error::internal)?;
    Ok(events)
}

pub async fn finish(mut events: mpsc::Receiver<EvaluationEvent>) -> Result<EvaluationReport> {
    while let Some(event) = events.recv().await {
        if let EvaluationEvent::Done(report) = event {
            return *report;
        }
    }
    Err(Error::panicked("an evaluation ended without a report"))
}

struct EvaluationWorker {
    evaluation: Evaluation,
    archive: Archive,
    documents: DocumentCache,
    traffic: Arc<AtomicUsize>,
    handle: Handle,
    sender: mpsc::Sender<EvaluationEvent>,
    reader: CaptureReader,
}

impl EvaluationWorker {
    fn run(mut self, turn: WorkTurn) {
        let report = self.evaluate().transpose();
        // The client may start its next evaluation as soon as it has the report, so the turn ends
        // first.
        drop(turn);
        if let Some(report) = report {
            // The receiver may have been dropped.
            let _gone = self.sender.blocking_send(EvaluationEvent::Done(Box::new(report)));
        }
    }

    /// Returns `None` if nobody waits for the report any more.
    fn evaluate(&mut self) -> Result<Option<EvaluationReport>> {
        let (mut report, mut done, mut after) = (EvaluationReport::default(), 0, None::<RequestId>);
        let (mut sent, mut reached) = (Instant::now(), None);
        let limits = self.evaluation.limits;
        while let Some(step) = limits.next(done, report.counts.evaluated) {
            let began = Instant::now();
            let page = self.handle.block_on(self.archive.page(
                self.evaluation.filter.clone(),
                step,
                after.take(),
            ))?;
            for (head, location) in page.heads.iter().zip(&page.locations) {
                if report.counts.evaluated < limits.decided {
                    self.add(head, location, &mut report);
                }
            }
            report.unreadable += page.unreadable as u64;
            done += (page.heads.len() + page.unreadable) as u64;
            reached = page.heads.last().map(|last| last.created_at).or(reached);
            // A short page is not the last one: filters and damaged blocks shorten pages.
            let Some(next) = page.next else { break };
            after = Some(next);
            if self.sender.is_closed() {
                return Ok(None);
            }
            if let Some(reached) = reached.filter(|_| sent.elapsed() >= EVALUATE_PROGRESS_INTERVAL)
            {
                sent = Instant::now();
                let progress = EvaluationProgress {
                    done,
                    limit: limits.read,
                    changed: report.counts.changed,
                    reached,
                };
                // Progress is dropped if the receiver does not take it in time.
                let _full = self.sender.try_send(EvaluationEvent::Progress(progress));
            }
            self.give_way(began.elapsed());
        }
        Ok(Some(report))
    }

    /// While there are requests, sleeps for as long as the last step worked.
    #[expect(clippy::disallowed_methods, reason = "the thread is its own, and has to be slow")]
    fn give_way(&self, worked: Duration) {
        if self.traffic.load(Ordering::Acquire) > 1 {
            std::thread::sleep(worked);
        }
    }

    fn add(&mut self, head: &Head, location: &CaptureLocation, report: &mut EvaluationReport) {
        let Evaluation { candidate, baseline, health, conditions, without_imported, .. } =
            &self.evaluation;
        if *without_imported && head.imported {
            return report.skip(Skipped::Imported, head);
        }
        let recorded = head
            .decision
            .as_ref()
            .and_then(|decision| self.documents.get(&decision.revision, &self.handle));
        let question = Question {
            candidate: candidate.routing(),
            baseline: baseline.as_ref().map(Document::routing),
            health,
        };
        let (archive, reader) = (&self.archive, RefCell::new(&mut self.reader));
        let body = || Some(archive.bodies(&head.id, location, &mut reader.borrow_mut())?.request);
        offline::add(report, &question, head, recorded.as_deref(), &body, *conditions);
    }
}

/// Past documents by revision. Captures come in order of time, so each document is read only once.
struct DocumentCache {
    known: HashMap<String, Option<Arc<Routing>>>,
    store: Store,
    server: Server,
    mock: Option<std::net::SocketAddr>,
}

impl DocumentCache {
    fn get(&mut self, revision: &str, handle: &Handle) -> Option<Arc<Routing>> {
        if self.known.len() >= EVALUATE_DOCUMENTS && !self.known.contains_key(revision) {
            self.known.clear();
        }
        match self.known.entry(revision.to_owned()) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(entry) => {
                let text = handle.block_on(self.store.document(revision)).ok().flatten();
                // If this build rejects the document, the evaluation goes on without explanations
                // from it.
                let read = text
                    .and_then(|text| config::read_remembered(&text, &self.server, self.mock).ok());
                entry.insert(read.map(Arc::new)).clone()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_captures_read_and_decided() {
        let limits = CaptureLimits { read: 1_000, decided: 100 };
        assert_eq!(limits.next(0, 0), Some(EVALUATE_STEP));
        assert_eq!(limits.next(900, 0), Some(100), "skipped captures do not count as decided");
        assert_eq!((limits.next(1_000, 0), limits.next(100, 100)), (None, None));
        assert_eq!(
            (CaptureLimits::new(4).next(3, 3), CaptureLimits::new(4).next(4, 0)),
            (Some(1), None)
        );
    }
}
