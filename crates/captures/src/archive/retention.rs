//! Which segments leave, and when.

use std::sync::atomic::Ordering;

use super::service::Archive;
use crate::capture::bounds::CAPTURE_BATCH;
use rerouter_base::blocking::blocking;
use rerouter_store::StoreError;

impl Archive {
    /// Closes the active segment if it is due, then removes segments: those without captures, those
    /// whose newest capture is older than `before_us` (microseconds since the epoch), and the
    /// oldest while all of them and the index hold more than `bytes`. Empties the index's
    /// write-ahead log after deletions.
    ///
    /// While another process may write to a segment, none is removed.
    ///
    /// A step that fails keeps no other: what leaves may be what a full disk needs. The error is
    /// the last one.
    pub async fn retain(&self, before_us: i64, bytes: u64) -> Result<(), StoreError> {
        let mut failed = self.close_due(bytes).await.err();
        let (spooled, segments, active) = {
            // While the lock is held no batch is written: a segment without captures that is not
            // active gets none any more, but for rows that wait to be moved. Those are read first:
            // they may move meanwhile.
            let log = self.log.lock().await;
            (self.index.spooled_segments().await?, self.index.segments().await?, log.active())
        };
        let mut held: u64 = segments.iter().map(|(segment, _)| segment.bytes).sum();
        held = held.saturating_add(self.index.bytes().await?);
        // After the first failure: it would take as long with each segment.
        let mut objects_answer = true;
        for (segment, has_captures) in segments {
            if spooled.contains(&segment.number) {
                continue;
            }
            let leaves = !has_captures || segment.newest_us < before_us || held > bytes;
            let in_use = active == Some(segment.number) || self.index.is_of_two_processes();
            if !leaves || in_use {
                continue;
            }
            match self.remove(segment.number, objects_answer).await {
                Ok(()) => held = held.saturating_sub(segment.bytes),
                Err(error) => {
                    if self.remote.is_some() {
                        // Only its object is left.
                        held = held.saturating_sub(segment.bytes);
                    }
                    objects_answer = false;
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

    pub(super) async fn close_due(&self, bytes: u64) -> Result<(), StoreError> {
        let mut log = self.log.lock().await;
        if log.is_due(&self.settings, bytes) { self.close_log(&mut log).await } else { Ok(()) }
    }

    /// Removes a segment: its captures from the index, in steps so that new ones get in between,
    /// then its file and its object, or not its object. Its row stays until all is gone.
    pub(super) async fn remove(&self, number: i64, object: bool) -> Result<(), StoreError> {
        match self.drop_captures(number).await {
            // The index has no room for it: the file that leaves makes some.
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
            // An upload may have ended in between. One that ends later finds no row, and deletes
            // its object.
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
