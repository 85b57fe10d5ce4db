//! Chooses the segments to remove, and removes them.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::service::Archive;
use crate::capture::bounds::CAPTURE_BATCH;
use rerouter_base::blocking::blocking;
use rerouter_store::{SegmentRow, StoreError};

/// How far the time of a capture may be ahead of the clock: gateways that share a store do not have
/// the same time at every moment.
const CLOCK_AHEAD: Duration = Duration::from_secs(60);

impl Archive {
    /// Closes the active segment if it is due, then removes segments: those without captures, those
    /// whose newest capture is older than `before_us` (microseconds since the epoch), or was seen
    /// in the future for as long, and the oldest while segments and index together hold more than
    /// `bytes`. Then empties the index's write-ahead log if it may hold deleted rows.
    ///
    /// While another process may write to a segment, no segment is removed.
    ///
    /// A segment that cannot be removed does not stop the others, because a full disk may need the
    /// space that they free. Returns the last error.
    pub async fn retain(&self, before_us: i64, bytes: u64) -> Result<(), StoreError> {
        let mut failed = self.close_due(bytes).await.err();
        let (spooled, segments, active) = {
            // While the lock is held no batch is written. So a segment that has no captures and is
            // not active gets none later, except from rows that wait to be moved. These are read
            // first, because they may be moved meanwhile.
            let log = self.log.lock().await;
            (self.index.spooled_segments().await?, self.index.segments().await?, log.active())
        };
        let now = self.settings.clock.now();
        let age = now.as_microsecond().saturating_sub(before_us);
        let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
        let is_there = |number: &i64| segments.iter().any(|(segment, _)| segment.number == *number);
        let ahead = self.shared.ahead.lock();
        ahead.unwrap_or_else(PoisonError::into_inner).retain(|number, _| is_there(number));
        let mut held: u64 = segments.iter().map(|(segment, _)| segment.bytes).sum();
        held = held.saturating_add(self.index.bytes().await?);
        // Set to `false` at the first failure: each further segment would take as long.
        let mut objects_answer = true;
        for (segment, has_captures) in segments {
            if spooled.contains(&segment.number) {
                continue;
            }
            let is_old = segment.newest_us < before_us || self.ahead_for(&segment, now) > age;
            let leaves = !has_captures || is_old || held > bytes;
            let in_use = active == Some(segment.number) || self.index.is_of_two_processes();
            if !leaves || in_use {
                continue;
            }
            match self.remove(segment.number, objects_answer).await {
                Ok(()) => held = held.saturating_sub(segment.bytes),
                Err(error) => {
                    if self.remote.is_some() {
                        // As a rule the file is deleted, and only the object is left.
                        held = held.saturating_sub(segment.bytes);
                        objects_answer = false;
                    }
                    failed = Some(error);
                }
            }
        }
        if objects_answer {
            failed = self.retain_of_others(before_us).await.err().or(failed);
        }
        failed = self.empty_index_log().await.err().or(failed);
        failed.map_or(Ok(()), Err)
    }

    /// The time for which a segment is in the future, as long as this process has seen it there. Of
    /// two times nobody knows which is wrong, so no time of a capture is changed.
    fn ahead_for(&self, segment: &SegmentRow, now: Timestamp) -> Duration {
        let mut ahead = self.shared.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let most = now.checked_add(CLOCK_AHEAD).unwrap_or(Timestamp::MAX);
        if segment.newest_us <= most.as_microsecond() {
            ahead.remove(&segment.number);
            return Duration::ZERO;
        }
        ahead.entry(segment.number).or_insert_with(Instant::now).elapsed()
    }

    pub(super) async fn close_due(&self, bytes: u64) -> Result<(), StoreError> {
        let mut log = self.log.lock().await;
        if log.is_due(&self.settings, bytes) { self.close_log(&mut log).await } else { Ok(()) }
    }

    /// Removes a segment: its captures from the index, in steps between which new captures can be
    /// inserted, then its file and, if `object`, its object. The segment's row stays until all of
    /// this is done.
    pub(super) async fn remove(&self, number: i64, object: bool) -> Result<(), StoreError> {
        match self.drop_captures(number).await {
            // The disk has no room for the index's change: deleting the file frees some.
            Err(StoreError::Full(_)) => {
                self.delete_file(number).await?;
                self.drop_captures(number).await?;
            }
            dropped => dropped?,
        }
        self.delete_file(number).await?;
        if let Some(remote) = &self.remote {
            if !object {
                return Ok(());
            }
            let claimed = remote.claim(&self.settings.cipher.keys).await;
            claimed.map_err(StoreError::unavailable)?;
            remote.objects.delete(number).await.map_err(StoreError::unavailable)?;
        }
        self.index.drop_segment(number).await?;
        if let Some(remote) = &self.remote {
            // An upload may have ended in between. An upload that ends later finds no row, and
            // deletes its own object.
            remote.objects.delete(number).await.map_err(StoreError::unavailable)?;
        }
        Ok(())
    }

    async fn drop_captures(&self, number: i64) -> Result<(), StoreError> {
        self.shared.log_holds_deleted.store(true, Ordering::Release);
        while self.index.drop_captures(number, CAPTURE_BATCH).await? == CAPTURE_BATCH {}
        Ok(())
    }

    async fn delete_file(&self, number: i64) -> Result<(), StoreError> {
        let folder = self.settings.folder.clone();
        Ok(blocking(move || folder.delete(number)).await??)
    }

    async fn empty_index_log(&self) -> Result<(), StoreError> {
        if self.shared.log_holds_deleted.swap(false, Ordering::AcqRel) {
            let emptied = self.index.empty_log().await;
            self.shared.log_holds_deleted.fetch_or(!matches!(emptied, Ok(true)), Ordering::AcqRel);
            emptied?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
