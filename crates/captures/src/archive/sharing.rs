//! Shares captures with other gateways: rows that waited in the data directory go to the shared
//! index, and segments to the object store.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::objects::SegmentObjects;
use super::recovery::numbered;
use super::segment_folder::{SegmentFolder, file_name};
use super::segment_source::{RemoteSegments, SEGMENT_CACHE, SEGMENT_CACHE_TIME};
use super::service::Archive;
use crate::capture::bounds::CAPTURE_BATCH;
use rerouter_base::blocking::blocking;
use rerouter_base::error::{Error, Kind};
use rerouter_base::id::RequestId;
use rerouter_store::{CaptureLocation, CaptureRow, SegmentRow, StoreError};

/// Longest time for which a segment is active if segments are uploaded. Captures are that old when
/// other gateways can read them.
const SEGMENT_AGE_SHARED: Duration = Duration::from_secs(60);
/// Time after a segment's expiry at which another gateway removes it, if its own gateway has not.
const SEGMENT_LEFT_BEHIND: Duration = Duration::from_secs(3600);
/// Time for which deleted captures are remembered, so that they are not stored later: a gateway
/// that is started again may still bring some.
const DELETED_CAPTURES_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Age of a request up to which another gateway may not have written its capture yet: most end
/// sooner.
const CAPTURE_COMES: Duration = Duration::from_secs(600);

impl Archive {
    /// Whether other gateways see this gateway's captures.
    pub fn is_shared(&self) -> bool {
        self.index.is_shared()
    }

    /// Whether another gateway may have this capture but may not have written it yet.
    pub fn may_come(&self, id: &RequestId) -> bool {
        let age = |at| self.settings.clock.now().duration_since(at).unsigned_abs();
        self.is_shared() && id.at().is_some_and(|at| age(at) < CAPTURE_COMES)
    }

    #[must_use]
    pub fn uploading(mut self, objects: SegmentObjects, data: &Path) -> Self {
        self.settings.age = self.settings.age.min(SEGMENT_AGE_SHARED);
        let cache = SegmentFolder::of_copies(data);
        Archive { remote: Some(RemoteSegments::new(objects, cache, self.index.clone())), ..self }
    }

    /// Shares what waits here: rows and segments. During an upgrade both processes move rows; the
    /// new process uploads the segments of both, once the old process has ended.
    pub async fn share(&self) -> Result<(), StoreError> {
        let moved = self.move_spooled().await?;
        if moved > 0 {
            log::info!("{moved} rows of captures that waited in captures.db are in the index");
        }
        // Until the other process ends, it is unknown which of its segments are complete.
        if self.index.is_of_two_processes() {
            return Ok(());
        }
        self.upload().await
    }

    /// Uploads the closed segments, oldest first, up to the first that the object store refuses. A
    /// segment that cannot be read does not stop the others.
    async fn upload(&self) -> Result<(), StoreError> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let objects = &remote.objects;
        self.close_due(u64::MAX).await?;
        // The order matters: a segment with a row by now is the active one, or is no longer
        // written.
        let mut waiting = self.index.waiting_segments().await?;
        let active = self.log.lock().await.active();
        waiting.retain(|(number, _)| Some(*number) != active);
        // A process that has taken over meanwhile may have begun one of these segments.
        if self.index.is_of_two_processes() || !self.index.is_alone() {
            return Ok(());
        }
        self.tell_lag(waiting.first().map_or(i64::MAX, |(_, newest_us)| *newest_us));
        // Checked even without a segment, so that problems with the object store are reported at
        // the start.
        if let Err(error) = remote.claim(&self.settings.cipher.keys).await {
            self.shared.objects_fail.store(true, Ordering::Release);
            if !waiting.is_empty() {
                self.count_upload("failed");
            }
            return Err(StoreError::unavailable(error));
        }
        let mut unreadable = None;
        for (number, newest_us) in waiting {
            if unreadable.is_none() {
                self.tell_lag(newest_us);
            }
            match objects.upload(number, self.settings.folder.path(number)).await {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Retention removes the captures before the file, and the row at last.
                    let lost = |(segment, has_captures): &(SegmentRow, bool)| {
                        segment.number == number && *has_captures
                    };
                    self.index.note_uploaded(number).await?;
                    if self.index.segments().await?.iter().any(lost) {
                        log::error!("a segment is lost, and not uploaded: {}", file_name(number));
                    }
                    continue;
                }
                // An error of the operating system: errors of the object store have no number.
                Err(error) if error.raw_os_error().is_some() => {
                    let why = format!("{} cannot be read: {error}", file_name(number));
                    unreadable = unreadable.or(Some(StoreError::unavailable(why)));
                    continue;
                }
                Err(error) => {
                    self.count_upload("failed");
                    return Err(StoreError::unavailable(error));
                }
            }
            if !self.index.note_uploaded(number).await? {
                // The segment was removed meanwhile.
                objects.delete(number).await.map_err(StoreError::unavailable)?;
            }
            self.count_upload("stored");
        }
        self.shared.objects_fail.store(false, Ordering::Release);
        if let Some(error) = unreadable {
            return Err(error);
        }
        self.tell_lag(i64::MAX);
        Ok(())
    }

    /// Whether the object store took the last segment; `true` before the first one, and `None`
    /// without an object store.
    pub fn objects_answer(&self) -> Option<bool> {
        let fails = self.shared.objects_fail.load(Ordering::Acquire);
        self.remote.is_some().then_some(!fails)
    }

    fn count_upload(&self, outcome: &str) {
        self.shared.objects_fail.store(outcome == "failed", Ordering::Release);
        if let Some(metrics) = &self.metrics {
            metrics.capture.uploads.with_label_values(&[outcome]).inc();
        }
    }

    /// Sets the metric of how long the newest capture of the next segment has been waiting; zero
    /// for a time in the future.
    fn tell_lag(&self, newest_us: i64) {
        if let Some(metrics) = &self.metrics {
            let us = self.settings.clock.now().as_microsecond().saturating_sub(newest_us);
            let lag = Duration::from_micros(u64::try_from(us).unwrap_or(0));
            metrics.capture.upload_lag.set(lag.as_secs_f64());
        }
    }

    /// The error for a capture whose bodies only another gateway has.
    pub(super) async fn elsewhere(&self, segment: i64) -> Error {
        let gateway = match self.index.gateway_of(segment).await {
            Ok(gateway) => gateway.unwrap_or_else(|| "another one".to_owned()),
            Err(error) => return Error::store_unavailable(error),
        };
        let refused = |remedy: &str| {
            let detail =
                format!("The bodies of this capture are on the gateway {gateway} only: {remedy}.");
            Error::new(Kind::Conflict, detail)
        };
        match self.remote.is_some() {
            true => refused("it uploads them within a minute if it runs; try again")
                .retry_after(SEGMENT_AGE_SHARED),
            false => refused("ask there, or set capture.objects on all gateways"),
        }
    }

    /// Removes segments that dead gateways have left, with captures older than `before_us`, and
    /// copies of segments that are too old or too many.
    pub(super) async fn retain_of_others(&self, before_us: i64) -> Result<(), StoreError> {
        if !self.is_shared() {
            return Ok(());
        }
        let grace = i64::try_from(SEGMENT_LEFT_BEHIND.as_micros()).unwrap_or(i64::MAX);
        let before_us = before_us.saturating_sub(grace);
        let kept_us = self.settings.clock.now().as_microsecond().saturating_sub(before_us);
        for number in self.index.left_behind(before_us, kept_us).await? {
            self.remove(number, true).await?;
        }
        self.index.forget_deleted(DELETED_CAPTURES_KEPT).await?;
        if let Some(remote) = self.remote.clone() {
            let (bytes, age) = (SEGMENT_CACHE, SEGMENT_CACHE_TIME);
            blocking(move || remote.make_room(bytes, age)).await??;
        }
        Ok(())
    }

    /// Moves rows that wait in the data directory to the shared index. Returns their number.
    pub(super) async fn move_spooled(&self) -> Result<usize, StoreError> {
        let mut moved = 0;
        while let Some((segment, rows)) = self.index.spooled(CAPTURE_BATCH).await? {
            let number = segment.number;
            let to = match numbered(number, self.index.numbers()) {
                0 => number,
                to => to,
            };
            let (folder, segment) =
                (self.settings.folder.clone(), SegmentRow { number: to, ..segment });
            let rows = blocking(move || {
                if to != number {
                    folder.rename(number, to)?;
                }
                Ok::<_, StoreError>(with_heads(&folder, to, rows))
            });
            let rows = rows.await??;
            moved += rows.len();
            self.index.move_spooled(number, segment, rows).await?;
            // The log may hold the salts of the moved rows.
            self.shared.log_holds_deleted.store(true, Ordering::Release);
        }
        Ok(moved)
    }
}

/// Reads the records of heads. An unreadable one is left out: that capture is damaged.
fn with_heads(
    folder: &SegmentFolder,
    segment: i64,
    mut rows: Vec<(CaptureRow, CaptureLocation)>,
) -> Vec<(CaptureRow, CaptureLocation)> {
    let file = folder.open(segment).ok();
    for (_, location) in &mut rows {
        location.segment = segment;
        location.head_record =
            file.as_ref().and_then(|file| file.read(location.head).ok()).map(Into::into);
    }
    rows
}
