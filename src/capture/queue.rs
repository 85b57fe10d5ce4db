//! The queue between requests and the archive: bounded in records and bytes, never waited for. What finds no room is
//! dropped and counted; what the store refuses is tried again a few times, then dropped and counted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{timeout, timeout_at};

use super::coming::{Coming, Table};
use super::draft::Draft;
use super::index::Archive;
use super::record::Capture;
use super::segment::writer::{Effort, Pace};
use crate::bounds;
use crate::id::{RequestId, UserId};
use crate::metrics::Metrics;
use crate::store::{PanicPoint, StoreError};

enum Message {
    Draft(Box<Waits>),
    Flush(oneshot::Sender<()>, Call),
}

/// A record that waits to be written.
struct Waits {
    draft: Draft,
    coming: Coming,
    /// The room that it takes.
    size: usize,
    since: Instant,
}

/// Somebody who waits for what was offered: nobody lingers meanwhile.
struct Call(Arc<AtomicUsize>);

impl Call {
    fn new(calls: &Arc<AtomicUsize>) -> Self {
        calls.fetch_add(1, Ordering::AcqRel);
        Call(Arc::clone(calls))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where requests leave their captures. Cloning shares it.
#[derive(Clone)]
pub struct CaptureQueue {
    sender: mpsc::Sender<Message>,
    waiting: Waiting,
    coming: Table,
    /// Calls a writer that lingers, who then looks why.
    hurry: Arc<Notify>,
    calls: Arc<AtomicUsize>,
}

/// Bytes that wait, and what is told of them.
#[derive(Clone)]
struct Waiting {
    bytes: Arc<AtomicUsize>,
    limit: usize,
    metrics: Arc<Metrics>,
}

impl Waiting {
    /// Takes room; gives how many bytes wait then.
    fn take(&self, size: usize) -> Option<usize> {
        let more = |bytes: usize| bytes.checked_add(size).filter(|sum| *sum <= self.limit);
        let before = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        self.metrics.capture_queue_bytes(before + size);
        Some(before + size)
    }

    /// Whether a batch is there, or memory is taken that need not be: then nobody lingers for more.
    fn is_enough(&self, records: usize, most: usize, bytes: usize) -> bool {
        records >= bounds::CAPTURE_COMPANY.min(most / 2)
            || bytes > self.limit / bounds::CAPTURE_LINGER_SHARE
    }

    fn give_back(&self, size: usize) {
        let before = self.bytes.fetch_sub(size, Ordering::AcqRel);
        self.metrics.capture_queue_bytes(before.saturating_sub(size));
    }
}

/// Room that a batch takes for as long as this value is there.
struct Room {
    waiting: Waiting,
    size: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.waiting.give_back(self.size);
    }
}

/// The other end of the queue, to be [run](CaptureWriter::run) once.
pub struct CaptureWriter {
    receiver: mpsc::Receiver<Message>,
    waiting: Waiting,
    hurry: Arc<Notify>,
    calls: Arc<AtomicUsize>,
    /// The last batch was lost.
    failing: bool,
    /// Of how many of the batch under way it was counted what became of them.
    told: u64,
}

impl CaptureQueue {
    /// A queue of the usual bounds, and its writer.
    pub fn new(metrics: Arc<Metrics>) -> (CaptureQueue, CaptureWriter) {
        CaptureQueue::with_bounds(
            bounds::CAPTURE_QUEUE_RECORDS,
            bounds::CAPTURE_QUEUE_BYTES,
            metrics,
        )
    }

    /// A queue of other bounds.
    fn with_bounds(
        records: usize,
        limit: usize,
        metrics: Arc<Metrics>,
    ) -> (CaptureQueue, CaptureWriter) {
        let (sender, receiver) = mpsc::channel(records.max(1));
        let waiting = Waiting { bytes: Arc::default(), limit, metrics };
        let (hurry, calls) = (Arc::new(Notify::new()), Arc::<AtomicUsize>::default());
        let queue = CaptureQueue {
            sender,
            waiting: waiting.clone(),
            coming: Table::default(),
            hurry: hurry.clone(),
            calls: calls.clone(),
        };
        (queue, CaptureWriter { receiver, waiting, hurry, calls, failing: false, told: 0 })
    }

    /// Announces the capture of a request that begins, so that a deletion finds it before it is written.
    pub fn announce(&self, id: &RequestId, owner: &UserId) -> Coming {
        self.coming.announce(id, owner, None)
    }

    /// The captures that are not written yet.
    pub fn coming(&self) -> &Table {
        &self.coming
    }

    /// Leaves a capture that was not announced.
    pub fn offer(&self, capture: Capture) -> bool {
        let copy_of = capture.head.replay_of.as_ref().or(capture.head.shadow_of.as_ref());
        let coming = self.coming.announce(&capture.head.id, &capture.head.owner, copy_of);
        self.offer_announced(capture.into(), coming)
    }

    /// Leaves a capture to be written. Never waits and never fails: false when it was dropped.
    pub fn offer_announced(&self, draft: Draft, coming: Coming) -> bool {
        let size = draft.size();
        let waiting = self.waiting.take(size);
        let taken = waiting.is_some() && {
            let sent = self
                .sender
                .try_send(Message::Draft(Box::new(Waits {
                    draft,
                    coming,
                    size,
                    since: Instant::now(),
                })))
                .is_ok();
            if !sent {
                self.waiting.give_back(size);
            }
            sent
        };
        if !taken {
            self.waiting.metrics.captures("dropped_full", 1);
        }
        let records = self.sender.max_capacity() - self.sender.capacity();
        if waiting
            .is_none_or(|bytes| self.waiting.is_enough(records, self.sender.max_capacity(), bytes))
        {
            self.hurry.notify_one();
        }
        taken
    }

    /// Waits until everything offered so far is durable or dropped.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.sender.send(Message::Flush(done, Call::new(&self.calls))).await.is_ok() {
            self.hurry.notify_one();
            // An error means that the writer has ended: nothing is left to wait for.
            let _ended = written.await;
        }
    }

    /// Waits, at most `patience`, until what was offered so far can be read, and what belongs to answers that `owner` (or
    /// anybody) may have seen the end of: whoever has seen an answer finds its capture. Costs nothing when nothing waits.
    pub async fn settle(&self, owner: Option<&UserId>, patience: Duration) {
        // The end of an answer is at its client a moment before its capture is offered.
        let ending = self.coming.ending(owner);
        if ending.is_empty() && self.waiting.bytes.load(Ordering::Acquire) == 0 {
            return;
        }
        let settled = async {
            self.flush().await;
            while self.coming.has_any(&ending) {
                tokio::time::sleep(bounds::CAPTURE_SETTLE_LOOK).await;
                self.flush().await;
            }
        };
        // Too late is no error: what is not written yet is read by a later call.
        let _late = timeout(patience, settled).await;
    }
}

impl CaptureWriter {
    /// Writes batches until every queue handle is gone. A mistake of ours costs what it is made with: that is counted, and the
    /// next is written.
    pub async fn run(mut self, archive: Archive) {
        loop {
            match AssertUnwindSafe(self.round(&archive)).catch_unwind().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.panicked("a round of the capture writer");
                    // One that is made with nothing at all is not made over and over.
                    tokio::time::sleep(bounds::CAPTURE_RETRY).await;
                }
            }
        }
        sync(&archive).await;
    }

    /// Waits for what comes first, and writes what has come by then. Whether more may come.
    async fn round(&mut self, archive: &Archive) -> bool {
        archive.faults().pass(PanicPoint::Round);
        let first = match timeout(bounds::CAPTURE_SYNC, self.receiver.recv()).await {
            Ok(Some(first)) => first,
            Ok(None) => return false,
            Err(_) => {
                sync(archive).await;
                return true;
            }
        };
        if let Message::Draft(first) = &first {
            self.linger(first.since).await;
        }
        let mut next = Some(first);
        while next.is_some() {
            let (batch, flushed) = self.gather(&mut next);
            self.write(archive, batch).await;
            if let Some(done) = flushed {
                // The one who asked may have gone.
                let _gone = done.send(());
            }
        }
        true
    }

    /// Says that we made a mistake with `what`, and counts it.
    fn panicked(&self, what: &str) {
        self.waiting.metrics.panic();
        log::error!("{what} panicked: that is lost, captures go on");
    }

    /// Waits for company of a record, at most [`bounds::CAPTURE_LINGER`] since it was offered.
    async fn linger(&self, since: Instant) {
        // Not by waiting for the next one: each would have to wake this task, at its request's cost.
        let until =
            tokio::time::Instant::now() + bounds::CAPTURE_LINGER.saturating_sub(since.elapsed());
        // A call may be for what was written since.
        while !self.has_enough() && timeout_at(until, self.hurry.notified()).await.is_ok() {}
    }

    fn has_enough(&self) -> bool {
        let (records, bytes) =
            (self.receiver.len() + 1, self.waiting.bytes.load(Ordering::Acquire));
        self.calls.load(Ordering::Acquire) > 0
            || self.waiting.is_enough(records, self.receiver.max_capacity(), bytes)
    }

    /// From `next` on what is there, up to a batch or a flush; leaves in `next` what comes after.
    fn gather(&mut self, next: &mut Option<Message>) -> (Vec<Waits>, Option<oneshot::Sender<()>>) {
        let mut batch = Vec::new();
        // Fewer at once while there is time: the effort is looked at again for the next ones.
        let most = if self.effort() == Effort::Usual {
            bounds::CAPTURE_BURST
        } else {
            bounds::CAPTURE_BATCH
        };
        while let Some(message) = next.take() {
            *next = self.receiver.try_recv().ok();
            match message {
                Message::Draft(draft) => batch.push(*draft),
                Message::Flush(done, _call) => return (batch, Some(done)),
            }
            if batch.len() >= most {
                break;
            }
        }
        (batch, None)
    }

    /// How much work the next batch may take: the more waits, the less.
    fn effort(&self) -> Effort {
        let records = (self.receiver.len(), self.receiver.max_capacity());
        let bytes = (self.waiting.bytes.load(Ordering::Acquire), self.waiting.limit);
        let (by_records, by_bytes) =
            (Effort::at(records.0, records.1), Effort::at(bytes.0, bytes.1));
        by_records.max(by_bytes)
    }

    async fn write(&mut self, archive: &Archive, batch: Vec<Waits>) {
        let count = batch.len() as u64;
        // Given back however this ends.
        let _room = Room {
            waiting: self.waiting.clone(),
            size: batch.iter().map(|waits| waits.size).sum(),
        };
        self.told = 0;
        if AssertUnwindSafe(self.write_out(archive, batch)).catch_unwind().await.is_err() {
            self.panicked("what writes captures");
            self.tell("dropped_panic", count.saturating_sub(self.told));
        }
    }

    async fn write_out(&mut self, archive: &Archive, batch: Vec<Waits>) {
        let (deleted, left): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|waits| waits.coming.is_deleted());
        self.tell("deleted", deleted.len() as u64);
        drop(deleted);
        let oldest = left.iter().map(|waits| waits.since).min();
        let until = oldest.map(|since| since + bounds::CAPTURE_LINGER + bounds::CAPTURE_GIVES_WAY);
        let pace = Pace { effort: self.effort(), until };
        // The others stay in the table until they can be read: a deletion waits for the flush.
        let (mut batch, mut coming): (Vec<Capture>, Vec<Coming>) = Default::default();
        for waits in left {
            pace.give_way();
            coming.push(waits.coming);
            let finish = || {
                archive.faults().pass(PanicPoint::Draft);
                waits.draft.finish()
            };
            match catch_unwind(AssertUnwindSafe(finish)) {
                Ok(capture) => batch.push(capture),
                Err(_) => {
                    self.panicked("what makes a capture of a call");
                    self.tell("dropped_panic", 1);
                }
            }
        }
        if !batch.is_empty() {
            self.append(archive, batch, pace).await;
        }
    }

    /// Counts what became of so many.
    fn tell(&mut self, outcome: &str, count: u64) {
        if count > 0 {
            self.waiting.metrics.captures(outcome, count);
        }
        self.told += count;
    }

    async fn append(&mut self, archive: &Archive, batch: Vec<Capture>, pace: Pace) {
        let batch = Arc::new(batch);
        let mut wait = bounds::CAPTURE_RETRY;
        for left in (0..bounds::CAPTURE_TRIES).rev() {
            match archive.append_with(Arc::clone(&batch), pace).await {
                Ok(stored) => return self.stored(stored, batch.len() - stored),
                Err(_) if left > 0 => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                Err(error) => self.lost(&error, batch.len()),
            }
        }
    }

    fn stored(&mut self, count: usize, left_out: usize) {
        if std::mem::take(&mut self.failing) {
            log::info!("captures are stored again");
        }
        self.tell("stored", count as u64);
        self.tell("dropped_store", left_out as u64);
    }

    fn lost(&mut self, error: &StoreError, count: usize) {
        let outcome = if matches!(error, StoreError::Full(_)) {
            "dropped_disk_full"
        } else {
            "dropped_store"
        };
        self.tell(outcome, count as u64);
        // Once, until it is well again: a full disk is not helped by a log that grows.
        if !std::mem::replace(&mut self.failing, true) {
            log::error!("captures are lost until the store takes them again: {error}");
        }
    }
}

async fn sync(archive: &Archive) {
    if let Err(error) = archive.sync().await {
        log::warn!("captures may not survive the loss of power: {error}");
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
