//! The queue between requests and the archive: bounded in records and bytes, never waited for. What finds no room is
//! dropped and counted; what the store refuses is tried again a few times, then dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::coming::{Coming, Table};
use super::draft::Draft;
use super::index::Archive;
use super::record::Capture;
use super::segment::writer::Effort;
use crate::bounds;
use crate::id::{RequestId, UserId};
use crate::metrics::Metrics;
use crate::store::StoreError;

enum Message {
    Draft(Box<(Draft, Coming)>),
    Flush(oneshot::Sender<()>),
}

/// Where requests leave their captures. Cloning shares it.
#[derive(Clone)]
pub struct CaptureQueue {
    sender: mpsc::Sender<Message>,
    waiting: Waiting,
    coming: Table,
    /// Calls a writer that lingers.
    hurry: Arc<Notify>,
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

    fn give_back(&self, size: usize) {
        let before = self.bytes.fetch_sub(size, Ordering::AcqRel);
        self.metrics.capture_queue_bytes(before.saturating_sub(size));
    }
}

/// The other end of the queue, to be [run](CaptureWriter::run) once.
pub struct CaptureWriter {
    receiver: mpsc::Receiver<Message>,
    waiting: Waiting,
    hurry: Arc<Notify>,
    /// The last batch was lost.
    failing: bool,
}

impl CaptureQueue {
    /// A queue of the usual bounds, and its writer.
    pub fn new(metrics: Arc<Metrics>) -> (CaptureQueue, CaptureWriter) {
        CaptureQueue::with_bounds(bounds::CAPTURE_QUEUE_RECORDS, bounds::CAPTURE_QUEUE_BYTES, metrics)
    }

    /// A queue of other bounds.
    fn with_bounds(records: usize, limit: usize, metrics: Arc<Metrics>) -> (CaptureQueue, CaptureWriter) {
        let (sender, receiver) = mpsc::channel(records.max(1));
        let waiting = Waiting { bytes: Arc::default(), limit, metrics };
        let hurry = Arc::new(Notify::new());
        let queue = CaptureQueue { sender, waiting: waiting.clone(), coming: Table::default(), hurry: hurry.clone() };
        (queue, CaptureWriter { receiver, waiting, hurry, failing: false })
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
            let sent = self.sender.try_send(Message::Draft(Box::new((draft, coming)))).is_ok();
            if !sent {
                self.waiting.give_back(size);
            }
            sent
        };
        if !taken {
            self.waiting.metrics.captures("dropped_full", 1);
        }
        // A batch is there, or memory is taken that need not be: nobody lingers for more.
        let records = self.sender.max_capacity() - self.sender.capacity();
        let enough = records >= bounds::CAPTURE_COMPANY.min(self.sender.max_capacity() / 2)
            || waiting.is_none_or(|bytes| bytes > self.waiting.limit / bounds::CAPTURE_LINGER_SHARE);
        if enough {
            self.hurry.notify_one();
        }
        taken
    }

    /// Waits until everything offered so far is durable or dropped.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).await.is_ok() {
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
    /// Writes batches until every queue handle is gone.
    pub async fn run(mut self, archive: Archive) {
        loop {
            let first = match timeout(bounds::CAPTURE_SYNC, self.receiver.recv()).await {
                Ok(Some(first)) => first,
                Ok(None) => break,
                Err(_) => {
                    sync(&archive).await;
                    continue;
                }
            };
            if matches!(first, Message::Draft(_)) {
                // Not by waiting for the next one: each would have to wake this task, at its request's cost.
                let _called = timeout(bounds::CAPTURE_LINGER, self.hurry.notified()).await;
            }
            let mut next = Some(first);
            while next.is_some() {
                let (batch, flushed) = self.gather(&mut next);
                self.write(&archive, batch).await;
                if let Some(done) = flushed {
                    // The one who asked may have gone.
                    let _gone = done.send(());
                }
            }
        }
        sync(&archive).await;
    }

    /// From `next` on what is there, up to a batch or a flush; leaves in `next` what comes after.
    fn gather(&mut self, next: &mut Option<Message>) -> (Vec<(Draft, Coming)>, Option<oneshot::Sender<()>>) {
        let mut batch = Vec::new();
        while let Some(message) = next.take() {
            *next = self.receiver.try_recv().ok();
            match message {
                Message::Draft(draft) => batch.push(*draft),
                Message::Flush(done) => return (batch, Some(done)),
            }
            if batch.len() >= bounds::CAPTURE_BATCH {
                break;
            }
        }
        (batch, None)
    }

    /// How much work the next batch may take: the more waits, the less.
    fn effort(&self) -> Effort {
        let records = (self.receiver.len(), self.receiver.max_capacity());
        let bytes = (self.waiting.bytes.load(Ordering::Acquire), self.waiting.limit);
        let (by_records, by_bytes) = (Effort::at(records.0, records.1), Effort::at(bytes.0, bytes.1));
        by_records.max(by_bytes)
    }

    async fn write(&mut self, archive: &Archive, batch: Vec<(Draft, Coming)>) {
        let (deleted, left): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(_, coming)| coming.is_deleted());
        self.waiting.metrics.captures("deleted", deleted.len() as u64);
        self.waiting.give_back(deleted.iter().map(|(draft, _)| draft.size()).sum());
        let size = left.iter().map(|(draft, _)| draft.size()).sum();
        // The others stay in the table until they can be read: a deletion waits for the flush.
        let effort = self.effort();
        let finish = |(draft, coming): (Draft, Coming)| {
            effort.give_way();
            (draft.finish(), coming)
        };
        let (batch, _coming): (Vec<Capture>, Vec<Coming>) = left.into_iter().map(finish).unzip();
        if batch.is_empty() {
            return;
        }
        let batch = Arc::new(batch);
        let mut wait = bounds::CAPTURE_RETRY;
        for left in (0..bounds::CAPTURE_TRIES).rev() {
            match archive.append_with(Arc::clone(&batch), effort).await {
                Ok(stored) => {
                    self.stored(stored, batch.len() - stored);
                    break;
                }
                Err(_) if left > 0 => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                Err(error) => self.lost(&error, batch.len()),
            }
        }
        self.waiting.give_back(size);
    }

    fn stored(&mut self, count: usize, left_out: usize) {
        if std::mem::take(&mut self.failing) {
            log::info!("captures are stored again");
        }
        let metrics = &self.waiting.metrics;
        metrics.captures("stored", count as u64);
        if left_out > 0 {
            metrics.captures("dropped_store", left_out as u64);
        }
    }

    fn lost(&mut self, error: &StoreError, count: usize) {
        let outcome = if matches!(error, StoreError::Full(_)) { "dropped_disk_full" } else { "dropped_store" };
        self.waiting.metrics.captures(outcome, count as u64);
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
mod tests {
    use super::super::record::tests::capture;
    use super::*;
    use crate::id::{Random, UserId};
    use crate::secret::SecretBytes;
    use crate::store::{CaptureFilter, Faults, Store};

    struct Room {
        queue: CaptureQueue,
        archive: Archive,
        metrics: Arc<Metrics>,
        faults: Faults,
        _dir: tempfile::TempDir,
    }

    async fn room(records: usize, limit: usize) -> Room {
        let dir = tempfile::tempdir().unwrap();
        let faults = Faults::default();
        let store = Store::open(dir.path(), b"fingerprint").await.unwrap().with_faults(faults.clone());
        let archive = Archive::new(store, &SecretBytes::new([9; 32]), Random::seeded(5), true);
        let metrics = Arc::new(Metrics::new().unwrap());
        let (queue, writer) = CaptureQueue::with_bounds(records, limit, Arc::clone(&metrics));
        tokio::spawn(writer.run(archive.clone()));
        Room { queue, archive, metrics, faults, _dir: dir }
    }

    impl Room {
        async fn kept(&self) -> usize {
            self.archive.list(CaptureFilter::default(), 10_000, None).await.unwrap().len()
        }

        fn counts(&self) -> [u64; 3] {
            ["stored", "dropped_full", "dropped_store"].map(|outcome| self.metrics.captures_so_far(outcome))
        }

        fn is_empty(&self) -> bool {
            self.metrics.render().contains("rerouter_capture_queue_bytes 0")
        }
    }

    fn captures(count: i64) -> Vec<Capture> {
        let (owner, random) = (UserId::known("usr_1"), Random::seeded(3));
        (0..count).map(|second| capture(second, &owner, &random)).collect()
    }

    #[tokio::test]
    async fn what_is_flushed_is_stored() {
        let room = room(10_000, usize::MAX).await;
        for capture in captures(1200) {
            assert!(room.queue.offer(capture));
        }
        room.queue.flush().await;
        assert_eq!((room.kept().await, room.counts()), (1200, [1200, 0, 0]));
        assert!(room.is_empty());
    }

    #[tokio::test]
    async fn a_reader_finds_what_was_offered_or_stops_waiting() {
        let room = room(100, usize::MAX).await;
        room.queue.settle(None, Duration::from_secs(60)).await;
        assert!(room.queue.offer(captures(1).remove(0)));
        room.queue.settle(None, Duration::from_secs(60)).await;
        assert_eq!(room.kept().await, 1);
        room.faults.stall_appends();
        assert!(room.queue.offer(captures(2).remove(1)));
        room.queue.settle(None, Duration::from_millis(20)).await;
        room.faults.clear();
        room.queue.settle(None, Duration::from_secs(60)).await;
        assert_eq!(room.kept().await, 2);
    }

    #[tokio::test]
    async fn a_reader_who_has_seen_the_end_of_an_answer_finds_its_capture() {
        let room = room(100, usize::MAX).await;
        let (capture, ann) = (captures(1).remove(0), UserId::known("usr_1"));
        let coming = room.queue.announce(&capture.head.id, &ann);
        room.queue.settle(Some(&ann), Duration::from_secs(60)).await;
        room.queue.coming().ends(&capture.head.id);
        room.queue.settle(Some(&UserId::known("usr_2")), Duration::from_secs(60)).await;
        let reader = async {
            room.queue.settle(Some(&ann), Duration::from_secs(60)).await;
            room.kept().await
        };
        let (kept, offered) = tokio::join!(reader, async { room.queue.offer_announced(capture.into(), coming) });
        assert_eq!((kept, offered), (1, true), "the reader came first");
    }

    #[tokio::test]
    async fn a_full_queue_drops_and_counts_and_never_waits() {
        let size = Draft::from(captures(1).remove(0)).size();
        for (records, limit) in [(3, usize::MAX), (100, size * 3)] {
            let room = room(records, limit).await;
            room.faults.stall_appends();
            let taken = captures(20).into_iter().filter(|capture| room.queue.offer(capture.clone())).count();
            assert_eq!((taken, room.counts()), (3, [0, 17, 0]));
            room.faults.clear();
            room.queue.flush().await;
            assert_eq!((room.kept().await, room.counts()), (3, [3, 17, 0]));
            assert!(room.is_empty());
        }
    }

    #[tokio::test]
    async fn a_failing_store_is_tried_again_then_given_up() {
        let room = room(100, usize::MAX).await;
        room.faults.fail_appends(bounds::CAPTURE_TRIES - 1);
        assert!(room.queue.offer(captures(1).remove(0)));
        room.queue.flush().await;
        assert_eq!((room.kept().await, room.counts()), (1, [1, 0, 0]));
        room.faults.fail_appends(bounds::CAPTURE_TRIES);
        assert!(room.queue.offer(captures(2).remove(1)));
        room.queue.flush().await;
        assert_eq!((room.kept().await, room.counts()), (1, [1, 0, 1]));
        assert!(room.is_empty());
    }

    #[tokio::test]
    async fn a_full_disk_costs_captures_and_nothing_else() {
        let room = room(100, usize::MAX).await;
        room.faults.fill_disk();
        for capture in captures(2) {
            assert!(room.queue.offer(capture));
            room.queue.flush().await;
        }
        assert_eq!((room.metrics.captures_so_far("dropped_disk_full"), room.counts()), (2, [0; 3]));
        room.faults.clear();
        assert!(room.queue.offer(captures(3).remove(2)));
        room.queue.flush().await;
        assert_eq!((room.kept().await, room.counts()), (1, [1, 0, 0]));
        assert!(room.is_empty());
    }

    #[test]
    fn the_more_waits_the_less_is_done() {
        let efforts = [0, 25, 26, 75, 76, 100].map(|used| Effort::at(used, 100));
        use Effort::{Less, None, Usual};
        assert_eq!(efforts, [Usual, Usual, Less, Less, None, None]);
        assert_eq!(Usual.max(Less).max(None), None);
    }

    #[tokio::test]
    async fn what_is_deleted_while_it_waits_is_never_written() {
        let room = room(100, usize::MAX).await;
        let captures = captures(3);
        let (ids, owner) = (captures.iter().map(|capture| capture.head.id.clone()).collect::<Vec<_>>(), UserId::known("usr_1"));
        let announced = room.queue.announce(&ids[0], &owner);
        assert!(room.queue.coming().delete(&ids[0], Some(&owner)));
        let mut captures = captures.into_iter();
        assert!(room.queue.offer_announced(captures.next().unwrap().into(), announced));
        for capture in captures {
            assert!(room.queue.offer(capture));
        }
        assert!(room.queue.coming().delete(&ids[2], None));
        room.queue.flush().await;
        let kept = room.archive.list(CaptureFilter::default(), 10, None).await.unwrap();
        assert_eq!(kept.iter().map(|head| &head.id).collect::<Vec<_>>(), [&ids[1]]);
        assert_eq!(room.metrics.captures_so_far("deleted"), 2);
        assert!(room.is_empty() && !room.queue.coming().delete(&ids[1], None), "what is written is on its way no longer");
    }

    #[tokio::test]
    async fn without_a_writer_nothing_hangs() {
        let (queue, writer) = CaptureQueue::new(Arc::new(Metrics::new().unwrap()));
        drop(writer);
        assert!(!queue.offer(captures(1).remove(0)));
        queue.flush().await;
    }
}
