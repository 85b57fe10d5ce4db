//! The archive, where captures are appended, listed, read and deleted.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::capture_codec::Cipher;
use super::capture_key::CaptureKeys;
use super::capture_reader::CaptureReader;
use super::prepare;
use super::segment_folder::SegmentFolder;
use super::segment_log::{SegmentLog, SegmentSettings, WrittenBatch};
use super::segment_source::{RemoteSegments, SegmentSource};
use super::unreadable::Unreadable;
use crate::capture::bounds::CAPTURE_SYNC;
use crate::capture::pace::{Effort, WritePace};
use crate::capture::packed_capture::PackedCapture;
use crate::capture::queue::CaptureSink;
use crate::capture::record::{Bodies, Capture, Head};
use crate::redaction::Redactor;
use rerouter_base::blocking::blocking;
use rerouter_base::clock::Clock;
use rerouter_base::error::{Error, Kind};
use rerouter_base::id::{KeyId, Random, RequestId, UserId};
use rerouter_base::metrics::Metrics;
use rerouter_base::secret::Keyring;
use rerouter_store::{
    CaptureFilter, CaptureIndex, CaptureLocation, Faults, PanicPoint, Reach, Store, StoreError,
};

/// Size of a segment before the next one begins, in bytes. Captures are removed a segment at a
/// time.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Smallest size of a segment if `retention.size` is small, in bytes.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Longest time for which one segment is active.
pub(super) const SEGMENT_AGE: Duration = Duration::from_secs(600);
/// `retention` spans at least this many segments, because up to one segment more than asked for is
/// kept.
pub const SEGMENT_SHARE: u32 = 16;
/// Most damaged captures that are remembered, so that each is reported once.
const DAMAGED_CAPTURES: usize = 1_000;

/// The archive of captures. Cloning is cheap.
#[derive(Clone)]
pub struct Archive {
    pub(super) index: CaptureIndex,
    pub(super) settings: SegmentSettings,
    /// Held while a batch is written and inserted.
    pub(super) log: Arc<tokio::sync::Mutex<SegmentLog>>,
    pub(super) shared: Arc<Shared>,
    pub(super) redactor: Arc<Redactor>,
    pub(super) metrics: Option<Metrics>,
    /// The object store for segments that other gateways read.
    pub(super) remote: Option<RemoteSegments>,
}

/// The state that all clones of an archive share.
#[derive(Default)]
pub(super) struct Shared {
    /// Captures that were already reported as damaged.
    reported: Mutex<HashSet<RequestId>>,
    /// Whether the index's write-ahead log may hold deleted rows.
    pub(super) log_holds_deleted: AtomicBool,
    /// Whether the object store refused the last segment, or could not be reached.
    pub(super) objects_fail: AtomicBool,
    /// Segments whose captures have a time in the future, and since when this is seen.
    pub(super) ahead: Mutex<HashMap<i64, Instant>>,
}

/// A page of heads, newest first.
#[derive(Default)]
pub struct HeadPage {
    /// The heads that can be read.
    pub heads: Vec<Head>,
    /// The location of each capture, for [`Archive::bodies`].
    pub locations: Vec<CaptureLocation>,
    /// Number of captures on the page that cannot be read.
    pub unreadable: usize,
    /// The next page begins after this id; `None` on the last page.
    pub next: Option<RequestId>,
}

impl Archive {
    /// An archive with its index in `store` and its segments beside it. `encrypt` applies to new
    /// captures; encrypted and plain ones are both read.
    pub fn new(store: Store, keys: impl Into<Keyring>, random: Random, encrypt: bool) -> Self {
        let index = store.capture_index();
        let settings = SegmentSettings {
            folder: SegmentFolder::new(store.dir()),
            cipher: Cipher { keys: CaptureKeys::new(&keys.into()), random, encrypt },
            clock: Clock::System,
            bytes: SEGMENT_BYTES,
            age: SEGMENT_AGE,
            faults: store.faults().clone(),
            before_first: index.numbers().0,
            heads_in_index: index.is_shared(),
        };
        Archive {
            index,
            settings,
            log: Arc::default(),
            shared: Arc::default(),
            redactor: Arc::default(),
            metrics: None,
            remote: None,
        }
    }

    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// This archive with a retention. The size of segments is adjusted to it.
    #[must_use]
    pub fn kept_for(mut self, age: Duration, size: u64) -> Self {
        let share = u64::from(SEGMENT_SHARE);
        self.settings.bytes = (size / share).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES);
        self.settings.age = (age / SEGMENT_SHARE).clamp(CAPTURE_SYNC, SEGMENT_AGE);
        self
    }

    /// This archive with a redactor, which captures pass before they are written.
    #[must_use]
    pub fn redacting(self, redactor: Redactor) -> Self {
        Archive { redactor: Arc::new(redactor), ..self }
    }

    /// This archive with metrics, which count damage and panics.
    #[must_use]
    pub fn counting(self, metrics: Metrics) -> Self {
        Archive { metrics: Some(metrics), ..self }
    }

    /// Stores a batch, all or none. Returns the number of captures: one that cannot be encoded is
    /// left out.
    pub async fn append(&self, captures: Arc<Vec<Capture>>) -> Result<usize, StoreError> {
        self.append_with(captures, Effort::Usual).await
    }

    pub(crate) async fn append_with(
        &self,
        captures: Arc<Vec<Capture>>,
        pace: impl Into<WritePace>,
    ) -> Result<usize, StoreError> {
        let packed = captures.iter().filter_map(|one| PackedCapture::new(one.clone().into()));
        self.append_packed(Arc::new(packed.collect()), pace.into()).await
    }

    /// Appends packed captures. Runs to its end even if the caller is dropped.
    async fn append_packed(
        &self,
        captures: Arc<Vec<PackedCapture>>,
        pace: WritePace,
    ) -> Result<usize, StoreError> {
        let archive = self.clone();
        let writing = tokio::spawn(async move {
            let mut log = archive.log.clone().lock_owned().await;
            archive.make_ready(&mut log).await?;
            archive.write(log, captures, pace).await.map(|(_, count)| count)
        });
        writing.await.map_err(|_| panicked())?
    }

    /// Recovers before the first batch, and closes a segment that is full or too old.
    pub(super) async fn make_ready(&self, log: &mut SegmentLog) -> Result<(), StoreError> {
        if log.last.is_none() {
            self.recover_log(log).await?;
        }
        if log.is_due(&self.settings, u64::MAX) { self.close_log(log).await } else { Ok(()) }
    }

    /// Writes a batch to the active segment and inserts it into the index. Returns the guard, for
    /// the next batch, and the number of captures.
    pub(super) async fn write(
        &self,
        mut log: OwnedMutexGuard<SegmentLog>,
        captures: Arc<Vec<PackedCapture>>,
        pace: WritePace,
    ) -> Result<(OwnedMutexGuard<SegmentLog>, usize), StoreError> {
        let archive = self.clone();
        let (mut log, batch) = blocking(move || {
            let batch = archive.guarded(|| archive.write_batch(&mut log, &captures, pace));
            (log, batch)
        })
        .await?;
        let inserted = match batch {
            None => Err(panicked()),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(WrittenBatch { segment, rows, durable })) => {
                let count = rows.len();
                let between = move || _ = pace.give_way();
                let inserted = self.index.insert(segment.clone(), rows, durable, between).await;
                inserted.map(|()| log.commit(segment, durable)).map(|()| count)
            }
        };
        if inserted.is_err() {
            log.roll_back();
        }
        inserted.map(|count| (log, count))
    }

    fn write_batch(
        &self,
        log: &mut SegmentLog,
        captures: &[PackedCapture],
        pace: WritePace,
    ) -> std::io::Result<WrittenBatch> {
        self.settings.faults.pass(PanicPoint::Append);
        let mut filter = std::mem::take(&mut log.filter);
        let ready = captures.iter().filter_map(|capture| {
            pace.give_way();
            // A panic costs only the capture that causes it.
            self.guarded(|| {
                self.settings.faults.pass(PanicPoint::Ready);
                prepare::ready(capture, &self.redactor, &mut filter)
            })?
        });
        let written = log.write(&self.settings, ready, pace);
        log.filter = filter;
        self.settings.faults.pass(PanicPoint::Written);
        written
    }

    /// Returns the result of `work`; `None` if it panicked, which is counted.
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(work));
        if let (Err(_), Some(metrics)) = (&done, &self.metrics) {
            metrics.process.panics.inc();
        }
        done.ok()
    }

    /// Makes all appended captures survive a loss of power. Costs nothing if they do already.
    pub async fn sync(&self) -> Result<(), StoreError> {
        let (archive, mut log) = (self.clone(), self.log.clone().lock_owned().await);
        let (mut log, synced) = blocking(move || {
            let synced = log.sync(&archive.settings);
            (log, synced)
        })
        .await?;
        let Some(segment) = synced? else { return Ok(()) };
        self.index.put_segment(segment.clone()).await?;
        log.commit(segment, true);
        Ok(())
    }

    /// Closes the active segment. All captures are durable afterwards.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.close_log(&mut *self.log.lock().await).await
    }

    pub(super) async fn close_log(&self, log: &mut SegmentLog) -> Result<(), StoreError> {
        let Some((segment, file)) = log.take_active() else { return Ok(()) };
        let (folder, faults) = (self.settings.folder.clone(), self.settings.faults.clone());
        let number = segment.number;
        if segment.bytes == 0 {
            return Ok(blocking(move || folder.delete(number)).await??);
        }
        blocking(move || faults.before_sync().and_then(|()| file.sync_all())).await??;
        self.index.put_segment(segment).await
    }

    /// A page of up to `limit` heads older than `after`, newest first. A page may be shorter
    /// although more follow.
    pub async fn page(
        &self,
        filter: CaptureFilter,
        limit: usize,
        after: Option<RequestId>,
    ) -> Result<HeadPage, Error> {
        let mut retried = false;
        loop {
            let page = self
                .index
                .list(filter.clone(), limit, after.clone())
                .await
                .map_err(Error::store_unavailable)?;
            let archive = self.clone();
            let (read, absent) = blocking(move || archive.read_heads(page.found)).await?;
            // The segment may have been removed after the list was made, which the index knows by
            // now.
            if absent && !retried {
                retried = true;
                continue;
            }
            return Ok(HeadPage { next: page.next, ..read });
        }
    }

    /// Reads the heads. Also returns whether the segment of any of them is missing.
    fn read_heads(&self, found: Vec<(RequestId, CaptureLocation)>) -> (HeadPage, bool) {
        let mut page = HeadPage::default();
        let (mut reader, mut absent) = (self.reader(), false);
        for (id, location) in found {
            match reader.head(&id, &location) {
                Ok(head) => {
                    page.heads.push(head);
                    page.locations.push(location);
                }
                Err(why) => {
                    absent |= matches!(why, Unreadable::Absent);
                    self.report(&id, &why);
                    page.unreadable += 1;
                }
            }
        }
        (page, absent)
    }

    pub fn reader(&self) -> CaptureReader {
        let own = self.index.is_shared().then(|| self.index.numbers());
        let (folder, remote) = (self.settings.folder.clone(), self.remote.clone());
        let keys = self.settings.cipher.keys.clone();
        CaptureReader::new(SegmentSource::new(folder, remote, own), keys)
    }

    /// The bodies of a capture on a page; `None` if there are none, or they cannot be read. May
    /// wait for the disk.
    pub fn bodies(
        &self,
        id: &RequestId,
        location: &CaptureLocation,
        reader: &mut CaptureReader,
    ) -> Option<Bodies> {
        let read = reader.bodies(id, location).inspect_err(|why| self.report(id, why)).ok();
        read.filter(|bodies| *bodies != Bodies::default())
    }

    pub async fn get(&self, id: &RequestId) -> Result<Option<Capture>, Error> {
        let mut retried = false;
        loop {
            let Some(location) = self.index.locate(id).await.map_err(Error::store_unavailable)?
            else {
                return Ok(None);
            };
            let (mut reader, wanted) = (self.reader(), id.clone());
            let read = blocking(move || reader.capture(&wanted, &location));
            match read.await? {
                Ok(capture) => return Ok(Some(capture)),
                Err(Unreadable::Absent) if !retried => retried = true,
                Err(Unreadable::Elsewhere(segment)) => return Err(self.elsewhere(segment).await),
                Err(why @ Unreadable::Away(_)) => {
                    log::warn!("capture {id} cannot be read now: {why}");
                    return Err(Error::store_unavailable(why));
                }
                Err(why) => {
                    self.report(id, &why);
                    let told = "The stored bytes of this capture are damaged or gone.";
                    let error = Error::new(Kind::Unavailable, told).without_retry();
                    return Err(error.because(format!("capture {id} cannot be read: {why}")));
                }
            }
        }
    }

    pub async fn whose(&self, id: &RequestId) -> Result<Option<(UserId, Option<KeyId>)>, Error> {
        self.index.whose(id).await.map_err(Error::store_unavailable)
    }

    /// Deletes a capture and, if `copies`, the replays and shadows of it, and of these again, that
    /// are in reach. When this returns their keys are gone, durably. Returns the copies that it
    /// deleted.
    pub async fn delete(
        &self,
        id: &RequestId,
        copies: bool,
        reach: Reach,
    ) -> Result<Vec<RequestId>, Error> {
        // Set before the deletion, because the caller may be dropped meanwhile.
        self.shared.log_holds_deleted.store(true, Ordering::Release);
        let deleted = self.index.delete(id, copies, reach).await;
        // Set again after it, because retention may have emptied the write-ahead log just before
        // the rows were deleted.
        self.shared.log_holds_deleted.store(true, Ordering::Release);
        deleted.map_err(Error::store_unavailable)
    }

    /// Deletes all captures that match, in steps, like [`Archive::delete`]. Returns their number.
    pub async fn erase(&self, filter: &CaptureFilter) -> Result<usize, StoreError> {
        // Afterwards the rows that waited for the index are in it.
        self.move_spooled().await?;
        let (mut erased, mut next) = (0, None);
        loop {
            self.shared.log_holds_deleted.store(true, Ordering::Release);
            let (count, after) = self.index.erase(filter.clone(), next).await?;
            self.shared.log_holds_deleted.store(true, Ordering::Release);
            (erased, next) = (erased + count, after);
            if next.is_none() {
                return Ok(erased);
            }
        }
    }

    /// Logs and counts, once, that a capture is damaged.
    fn report(&self, id: &RequestId, why: &Unreadable) {
        if matches!(why, Unreadable::Absent | Unreadable::Elsewhere(_) | Unreadable::Away(_)) {
            return;
        }
        let mut reported = self.shared.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() < DAMAGED_CAPTURES && reported.insert(id.clone()) {
            log::error!("capture {id} cannot be read: {why}");
            if let Some(metrics) = &self.metrics {
                metrics.capture.blocks_damaged.inc();
            }
        }
    }
}

impl CaptureSink for Archive {
    async fn append(
        &self,
        batch: Arc<Vec<PackedCapture>>,
        pace: WritePace,
    ) -> Result<usize, StoreError> {
        self.append_packed(batch, pace).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        Archive::sync(self).await
    }

    fn faults(&self) -> &Faults {
        &self.settings.faults
    }
}

fn panicked() -> StoreError {
    StoreError::unavailable("a panic where captures are written")
}

#[cfg(test)]
#[path = "service_tests.rs"]
pub(super) mod tests;
