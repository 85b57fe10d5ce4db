//! The queue between requests and the archive. It is limited in records and bytes, and no request
//! waits for it: captures that find no room are dropped and counted. A batch that the archive
//! refuses is tried again a few times, then dropped and counted.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{timeout, timeout_at};

use super::bounds;
use super::pace::{CAPTURE_YIELD_MAX, CaptureRate, Effort, WritePace};
use super::packed_capture::PackedCapture;
use super::pending::{PendingCapture, PendingCaptures};
use super::raw_capture::RawCapture;
use super::record::Capture;
use rerouter_base::count_guard::CountGuard;
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_base::metrics::Metrics;
use rerouter_store::{Faults, PanicPoint, StoreError};

pub trait CaptureSink: Send + Sync + 'static {
    /// Stores a batch, all or none. Returns the number of captures: one that cannot be encoded is
    /// left out.
    fn append(
        &self,
        batch: Arc<Vec<PackedCapture>>,
        pace: WritePace,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// Makes the appended captures survive a loss of power.
    fn sync(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    fn faults(&self) -> &Faults;
}

// Nearly all messages are captures. A box for each would be an allocation that another thread
// frees.
#[allow(clippy::large_enum_variant)]
enum QueueMessage {
    Capture(QueuedCapture),
    Flush(oneshot::Sender<()>, CountGuard),
}

struct QueuedCapture {
    packed: PackedCapture,
    pending: PendingCapture,
    /// Bytes that the capture takes up in the queue.
    size: usize,
    since: Instant,
}

/// The end of the queue to which requests hand their captures. Clones share one queue.
#[derive(Clone)]
pub struct CaptureQueue {
    sender: mpsc::Sender<QueueMessage>,
    queued: QueuedBytes,
    pending: PendingCaptures,
    /// Wakes the writer while it lingers.
    wake: Arc<Notify>,
    /// Callers that wait for a flush. As long as there is one, the writer does not linger.
    flush_waiters: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct QueuedBytes {
    bytes: Arc<AtomicUsize>,
    limit: usize,
    metrics: Arc<Metrics>,
}

impl QueuedBytes {
    /// Reserves room. Returns the bytes then in the queue, or `None` if there is no room.
    fn reserve(&self, size: usize) -> Option<usize> {
        let more = |bytes: usize| bytes.checked_add(size).filter(|sum| *sum <= self.limit);
        let before = self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        self.metrics.capture_queue_bytes(before + size);
        Some(before + size)
    }

    /// Whether the writer has enough and should not linger.
    fn is_enough(&self, records: usize, most: usize, bytes: usize) -> bool {
        records >= bounds::CAPTURE_LINGER_RECORDS.min(most / 2)
            || bytes > self.limit / bounds::CAPTURE_LINGER_SHARE
    }

    fn release(&self, size: usize) {
        let before = self.bytes.fetch_sub(size, Ordering::AcqRel);
        self.metrics.capture_queue_bytes(before.saturating_sub(size));
    }
}

/// The room that a batch takes in the queue, released on drop.
struct BatchRoom {
    queued: QueuedBytes,
    size: usize,
}

impl Drop for BatchRoom {
    fn drop(&mut self) {
        self.queued.release(self.size);
    }
}

/// The writer's end of the queue. To be [run](CaptureWriter::run) once.
pub struct CaptureWriter {
    receiver: mpsc::Receiver<QueueMessage>,
    queued: QueuedBytes,
    wake: Arc<Notify>,
    flush_waiters: Arc<AtomicUsize>,
    /// The rate of captures, and the effort that fits it.
    rate: CaptureRate,
    by_rate: Effort,
    /// Whether the last batch was lost.
    failing: bool,
    /// Number of captures in the current batch whose outcome is already counted.
    counted: u64,
}

impl CaptureQueue {
    /// Creates a queue with the usual limits, and its writer.
    pub fn new(metrics: Arc<Metrics>) -> (CaptureQueue, CaptureWriter) {
        CaptureQueue::with_bounds(
            bounds::CAPTURE_QUEUE_RECORDS,
            bounds::CAPTURE_QUEUE_BYTES,
            metrics,
        )
    }

    fn with_bounds(
        records: usize,
        limit: usize,
        metrics: Arc<Metrics>,
    ) -> (CaptureQueue, CaptureWriter) {
        let (sender, receiver) = mpsc::channel(records.max(1));
        let queued = QueuedBytes { bytes: Arc::default(), limit, metrics };
        let (wake, flush_waiters) = (Arc::new(Notify::new()), Arc::<AtomicUsize>::default());
        let queue = CaptureQueue {
            sender,
            queued: queued.clone(),
            pending: PendingCaptures::default(),
            wake: wake.clone(),
            flush_waiters: flush_waiters.clone(),
        };
        let writer = CaptureWriter {
            receiver,
            queued,
            wake,
            flush_waiters,
            rate: CaptureRate::new(Instant::now()),
            by_rate: Effort::Usual,
            failing: false,
            counted: 0,
        };
        (queue, writer)
    }

    /// Announces the capture of a request that begins, so that a deletion finds it before it is
    /// stored.
    pub fn announce(&self, id: &RequestId, whose: (&UserId, Option<&KeyId>)) -> PendingCapture {
        self.pending.announce(id, whose, None)
    }

    pub fn pending(&self) -> &PendingCaptures {
        &self.pending
    }

    /// Offers a capture that was not announced before. Returns `false` if it was dropped.
    pub fn offer(&self, capture: Capture) -> bool {
        let copy_of = capture.head.replay_of.as_ref().or(capture.head.shadow_of.as_ref());
        let pending = self.pending.announce(&capture.head.id, capture.head.whose(), copy_of);
        self.offer_announced(capture.into(), pending)
    }

    /// Offers an announced capture for storing. Never waits. Returns `false` if it was dropped.
    pub fn offer_announced(&self, raw: RawCapture, pending: PendingCapture) -> bool {
        let packed = PackedCapture::new(raw);
        let size = packed.as_ref().map_or(usize::MAX, PackedCapture::size);
        let reserved = self.queued.reserve(size);
        let taken = packed.filter(|_| reserved.is_some()).is_some_and(|packed| {
            let queued = QueuedCapture { packed, pending, size, since: Instant::now() };
            let sent = self.sender.try_send(QueueMessage::Capture(queued)).is_ok();
            if !sent {
                self.queued.release(size);
            }
            sent
        });
        if !taken {
            self.queued.metrics.capture.captures.with_label_values(&["dropped_full"]).inc();
        }
        let records = self.sender.max_capacity() - self.sender.capacity();
        if reserved
            .is_none_or(|bytes| self.queued.is_enough(records, self.sender.max_capacity(), bytes))
        {
            self.wake.notify_one();
        }
        taken
    }

    /// Waits until everything offered so far is stored or dropped.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let waiter = CountGuard::new(&self.flush_waiters);
        if self.sender.send(QueueMessage::Flush(done, waiter)).await.is_ok() {
            self.wake.notify_one();
            // An error means that the writer has ended, so there is nothing left to wait for.
            let _ended = written.await;
        }
    }

    /// Waits, for `patience` at most, until these captures can be read: all that were offered so
    /// far, and those of answers whose end `owner` (`None`: any user) may have seen. Returns at
    /// once if there are none of either kind.
    pub async fn settle(&self, owner: Option<&UserId>, patience: Duration) {
        // A client gets the end of an answer a moment before the capture is offered.
        let ending = self.pending.ending(owner);
        if ending.is_empty() && self.queued.bytes.load(Ordering::Acquire) == 0 {
            return;
        }
        let settled = async {
            self.flush().await;
            while self.pending.has_any(&ending) {
                tokio::time::sleep(bounds::CAPTURE_SETTLE_INTERVAL).await;
                self.flush().await;
            }
        };
        // If the wait is too short, a later call finds the captures.
        let _late = timeout(patience, settled).await;
    }
}

impl CaptureWriter {
    /// Stores batches until every handle of the queue is dropped. A panic costs the capture that
    /// causes it and is counted; the writer goes on.
    pub async fn run(mut self, sink: impl CaptureSink) {
        loop {
            match AssertUnwindSafe(self.round(&sink)).catch_unwind().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.panicked("a round of the capture writer");
                    // Without this pause, a panic without any capture would repeat at once.
                    tokio::time::sleep(bounds::CAPTURE_RETRY).await;
                }
            }
        }
        sync(&sink).await;
    }

    /// Waits for a message, and stores what has come by then. Returns whether more may come.
    async fn round(&mut self, sink: &impl CaptureSink) -> bool {
        sink.faults().pass(PanicPoint::Round);
        let first = match timeout(bounds::CAPTURE_SYNC, self.receiver.recv()).await {
            Ok(Some(first)) => first,
            Ok(None) => return false,
            Err(_) => {
                sync(sink).await;
                return true;
            }
        };
        if let QueueMessage::Capture(first) = &first {
            self.linger(first.since).await;
        }
        let came = self.queued.bytes.load(Ordering::Acquire);
        self.by_rate = self.rate.add(came, Instant::now());
        let mut next = Some(first);
        while next.is_some() {
            let (batch, flushed) = self.gather(&mut next);
            self.write(sink, batch).await;
            if let Some(done) = flushed {
                // The caller may have stopped waiting.
                let _gone = done.send(());
            }
        }
        true
    }

    fn panicked(&self, what: &str) {
        self.queued.metrics.process.panics.inc();
        log::error!("panic in {what}: what it was at is lost, capturing goes on");
    }

    /// Waits for more captures, at most until [`bounds::CAPTURE_LINGER`] after the time `since`.
    async fn linger(&self, since: Instant) {
        // This does not wait for the channel: each capture would wake this task, at the expense of
        // its request.
        let until =
            tokio::time::Instant::now() + bounds::CAPTURE_LINGER.saturating_sub(since.elapsed());
        // A wake-up may be left over from captures that are already stored.
        while !self.has_enough() && timeout_at(until, self.wake.notified()).await.is_ok() {}
    }

    fn has_enough(&self) -> bool {
        let (records, bytes) = (self.receiver.len() + 1, self.queued.bytes.load(Ordering::Acquire));
        self.flush_waiters.load(Ordering::Acquire) > 0
            || self.queued.is_enough(records, self.receiver.max_capacity(), bytes)
    }

    /// Takes `next` and the messages after it, up to a whole batch or a flush. Leaves the first
    /// message after these in `next`.
    fn gather(
        &mut self,
        next: &mut Option<QueueMessage>,
    ) -> (Vec<QueuedCapture>, Option<oneshot::Sender<()>>) {
        let mut batch = Vec::new();
        // If few captures wait, batches are smaller: the effort is chosen anew for each.
        let most = if self.pressure() == Effort::Usual {
            bounds::CAPTURE_BURST
        } else {
            bounds::CAPTURE_BATCH
        };
        while let Some(message) = next.take() {
            *next = self.receiver.try_recv().ok();
            match message {
                QueueMessage::Capture(capture) => batch.push(capture),
                QueueMessage::Flush(done, _waiter) => return (batch, Some(done)),
            }
            if batch.len() >= most {
                break;
            }
        }
        (batch, None)
    }

    /// The effort for the next batch by the length of the queue: the longer, the less.
    fn pressure(&self) -> Effort {
        let bytes = self.queued.bytes.load(Ordering::Acquire);
        let by_records = Effort::at(self.receiver.len(), self.receiver.max_capacity());
        by_records.max(Effort::at(bytes, self.queued.limit))
    }

    async fn write(&mut self, sink: &impl CaptureSink, batch: Vec<QueuedCapture>) {
        let count = batch.len() as u64;
        let _room = BatchRoom {
            queued: self.queued.clone(),
            size: batch.iter().map(|queued| queued.size).sum(),
        };
        self.counted = 0;
        if AssertUnwindSafe(self.write_out(sink, batch)).catch_unwind().await.is_err() {
            self.panicked("the capture writer");
            self.count("dropped_panic", count.saturating_sub(self.counted));
        }
    }

    async fn write_out(&mut self, sink: &impl CaptureSink, batch: Vec<QueuedCapture>) {
        let (deleted, left): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|queued| queued.pending.is_deleted());
        self.count("deleted", deleted.len() as u64);
        drop(deleted);
        let oldest = left.iter().map(|queued| queued.since).min();
        let patience = bounds::CAPTURE_LINGER + CAPTURE_YIELD_MAX;
        let pressure = self.pressure();
        let until = match pressure {
            Effort::Usual => oldest.map(|since| since + patience),
            _ => oldest,
        };
        let pace = WritePace { effort: pressure.max(self.by_rate), until };
        // The captures stay pending until they can be read, because a deletion waits for the flush.
        let (batch, _pending): (Vec<PackedCapture>, Vec<PendingCapture>) =
            left.into_iter().map(|queued| (queued.packed, queued.pending)).unzip();
        if !batch.is_empty() {
            self.append(sink, batch, pace).await;
        }
    }

    fn count(&mut self, outcome: &str, count: u64) {
        if count > 0 {
            let captures = &self.queued.metrics.capture.captures;
            captures.with_label_values(&[outcome]).inc_by(count);
        }
        self.counted += count;
    }

    async fn append(
        &mut self,
        sink: &impl CaptureSink,
        batch: Vec<PackedCapture>,
        pace: WritePace,
    ) {
        let batch = Arc::new(batch);
        let mut wait = bounds::CAPTURE_RETRY;
        for left in (0..bounds::CAPTURE_TRIES).rev() {
            match sink.append(Arc::clone(&batch), pace).await {
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
        self.count("stored", count as u64);
        self.count("dropped_store", left_out as u64);
    }

    fn lost(&mut self, error: &StoreError, count: usize) {
        let outcome = if matches!(error, StoreError::Full(_)) {
            "dropped_disk_full"
        } else {
            "dropped_store"
        };
        self.count(outcome, count as u64);
        // Logged only once until storing works again: a growing log does not help a full disk.
        if !std::mem::replace(&mut self.failing, true) {
            log::error!("captures are dropped until they can be stored again: {error}");
        }
    }
}

async fn sync(sink: &impl CaptureSink) {
    if let Err(error) = sink.sync().await {
        log::warn!("the last captures may not survive a loss of power: {error}");
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
