//! The queue and its writer on a store that can hang, be full or fail.

use std::sync::Mutex;

use super::*;
use crate::capture::fixtures::capture;
use rerouter_base::id::Random;
use rerouter_store::Reach;
use rerouter_store::{SegmentRow, Store};

/// A sink that keeps ids in memory, after the store has taken a write.
#[derive(Clone)]
struct TestSink {
    store: Store,
    kept: Arc<Mutex<Vec<RequestId>>>,
}

impl CaptureSink for TestSink {
    async fn append(
        &self,
        batch: Arc<Vec<PackedCapture>>,
        _pace: WritePace,
    ) -> Result<usize, StoreError> {
        let segment = SegmentRow { number: 1, newest_us: 0, bytes: 0 };
        self.store.capture_index().put_segment(segment).await?;
        let ids = batch.iter().map(|packed| packed.unpack().unwrap().head.id);
        self.kept.lock().unwrap().extend(ids);
        Ok(batch.len())
    }

    async fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn faults(&self) -> &Faults {
        self.store.faults()
    }
}

struct Room {
    queue: CaptureQueue,
    sink: TestSink,
    metrics: Arc<Metrics>,
    faults: Faults,
    _dir: tempfile::TempDir,
}

async fn room(records: usize, limit: usize) -> Room {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let (metrics, sink) =
        (Arc::new(Metrics::new().unwrap()), TestSink { store, kept: Arc::default() });
    let (queue, writer) = CaptureQueue::with_bounds(records, limit, Arc::clone(&metrics));
    tokio::spawn(writer.run(sink.clone()));
    Room { queue, sink, metrics, faults, _dir: dir }
}

impl Room {
    fn kept(&self) -> usize {
        self.sink.kept.lock().unwrap().len()
    }

    fn counts(&self) -> [u64; 3] {
        ["stored", "dropped_full", "dropped_store"]
            .map(|outcome| self.metrics.captures_so_far(outcome))
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
    assert_eq!((room.kept(), room.counts()), (1200, [1200, 0, 0]));
    assert!(room.is_empty());
}

#[tokio::test]
async fn a_reader_finds_what_was_offered_or_stops_waiting() {
    let room = room(100, usize::MAX).await;
    room.queue.settle(None, Duration::from_secs(60)).await;
    assert!(room.queue.offer(captures(1).remove(0)));
    room.queue.settle(None, Duration::from_secs(60)).await;
    assert_eq!(room.kept(), 1);
    room.faults.stall_appends();
    assert!(room.queue.offer(captures(2).remove(1)));
    room.queue.settle(None, Duration::from_millis(20)).await;
    room.faults.clear();
    room.queue.settle(None, Duration::from_secs(60)).await;
    assert_eq!(room.kept(), 2);
}

#[tokio::test]
async fn a_reader_who_has_seen_the_end_of_an_answer_finds_its_capture() {
    let room = room(100, usize::MAX).await;
    let (capture, ann) = (captures(1).remove(0), UserId::known("usr_1"));
    let pending = room.queue.announce(&capture.head.id, (&ann, None));
    room.queue.settle(Some(&ann), Duration::from_secs(60)).await;
    room.queue.pending().ends(&capture.head.id);
    room.queue.settle(Some(&UserId::known("usr_2")), Duration::from_secs(60)).await;
    let reader = async {
        room.queue.settle(Some(&ann), Duration::from_secs(60)).await;
        room.kept()
    };
    let (kept, offered) =
        tokio::join!(reader, async { room.queue.offer_announced(capture.into(), pending) });
    assert_eq!((kept, offered), (1, true), "the reader came first");
}

#[tokio::test]
async fn a_full_queue_drops_and_counts_and_never_waits() {
    let size = PackedCapture::new(captures(1).remove(0).into()).unwrap().size();
    for (records, limit) in [(3, usize::MAX), (100, size * 3)] {
        let room = room(records, limit).await;
        room.faults.stall_appends();
        let taken =
            captures(20).into_iter().filter(|capture| room.queue.offer(capture.clone())).count();
        assert_eq!((taken, room.counts()), (3, [0, 17, 0]));
        room.faults.clear();
        room.queue.flush().await;
        assert_eq!((room.kept(), room.counts()), (3, [3, 17, 0]));
        assert!(room.is_empty());
    }
}

#[tokio::test]
async fn a_failing_store_is_tried_again_then_given_up() {
    let room = room(100, usize::MAX).await;
    room.faults.fail_appends(bounds::CAPTURE_TRIES - 1);
    assert!(room.queue.offer(captures(1).remove(0)));
    room.queue.flush().await;
    assert_eq!((room.kept(), room.counts()), (1, [1, 0, 0]));
    room.faults.fail_appends(bounds::CAPTURE_TRIES);
    assert!(room.queue.offer(captures(2).remove(1)));
    room.queue.flush().await;
    assert_eq!((room.kept(), room.counts()), (1, [1, 0, 1]));
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
    assert_eq!((room.kept(), room.counts()), (1, [1, 0, 0]));
    assert!(room.is_empty());
}

/// A wake-up that is left over from earlier captures does not end the next wait.
#[tokio::test]
async fn a_call_of_before_does_not_end_the_wait_for_company() {
    let room = room(100, usize::MAX).await;
    for capture in captures(90) {
        assert!(room.queue.offer(capture));
    }
    room.queue.flush().await;
    room.queue.wake.notify_one();
    let mut rest = captures(91);
    let began = Instant::now();
    assert!(room.queue.offer(rest.remove(90)));
    while room.counts()[0] < 91 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(began.elapsed() >= bounds::CAPTURE_LINGER, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_burst_is_small_while_few_wait() {
    let metrics = Arc::new(Metrics::new().unwrap());
    let size: usize = captures(300)
        .into_iter()
        .map(|capture| PackedCapture::new(capture.into()).unwrap().size())
        .sum();
    for (limit, expected) in
        [(usize::MAX, [bounds::CAPTURE_BURST, 300 - bounds::CAPTURE_BURST]), (2 * size, [300, 0])]
    {
        let (queue, mut writer) = CaptureQueue::with_bounds(10_000, limit, Arc::clone(&metrics));
        assert_eq!(
            captures(300).into_iter().filter(|capture| queue.offer(capture.clone())).count(),
            300
        );
        let mut next = writer.receiver.recv().await;
        let sizes = [(); 2].map(|()| writer.gather(&mut next).0.len());
        assert_eq!(sizes, expected);
    }
}

#[tokio::test]
async fn what_is_deleted_while_it_waits_is_never_written() {
    let room = room(100, usize::MAX).await;
    let captures = captures(3);
    let (ids, owner) = (
        captures.iter().map(|capture| capture.head.id.clone()).collect::<Vec<_>>(),
        UserId::known("usr_1"),
    );
    let announced = room.queue.announce(&ids[0], (&owner, None));
    assert!(room.queue.pending().delete(&ids[0], &Reach::Owner(owner.clone())));
    let mut captures = captures.into_iter();
    assert!(room.queue.offer_announced(captures.next().unwrap().into(), announced));
    for capture in captures {
        assert!(room.queue.offer(capture));
    }
    assert!(room.queue.pending().delete(&ids[2], &Reach::All));
    room.queue.flush().await;
    assert_eq!(*room.sink.kept.lock().unwrap(), [ids[1].clone()]);
    assert_eq!(room.metrics.captures_so_far("deleted"), 2);
    assert!(
        room.is_empty() && !room.queue.pending().delete(&ids[1], &Reach::All),
        "what is written is on its way no longer"
    );
}

#[tokio::test]
async fn without_a_writer_nothing_hangs() {
    let (queue, writer) = CaptureQueue::new(Arc::new(Metrics::new().unwrap()));
    drop(writer);
    assert!(!queue.offer(captures(1).remove(0)));
    queue.flush().await;
}

#[tokio::test]
async fn a_panic_that_nobody_foresaw_ends_a_round_and_not_the_writer() {
    let room = room(100, usize::MAX).await;
    room.faults.panic_at(PanicPoint::Round, 2, "a mistake");
    for capture in captures(3) {
        assert!(room.queue.offer(capture));
        room.queue.flush().await;
    }
    assert_eq!((room.metrics.process.panics.get(), room.kept(), room.counts()), (2, 3, [3, 0, 0]));
    assert!(room.is_empty());
}
