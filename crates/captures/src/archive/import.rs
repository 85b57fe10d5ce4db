//! Imports captures from an export of another archive.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::service::Archive;
use crate::capture::bounds::CAPTURE_BATCH;
use crate::capture::pace::WritePace;
use crate::capture::packed_capture::PackedCapture;
use crate::capture::record::Capture;
use rerouter_base::error::Error;
use rerouter_base::id::RequestId;
use rerouter_store::StoreError;

/// Bytes of bodies that an import stores in one batch.
const CAPTURE_COMMIT: usize = 4 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    pub imported: u64,
    pub existing: u64,
    /// Captures that are too large to be stored, or replays of a capture that was deleted with its
    /// replays.
    pub refused: u64,
}

impl Archive {
    /// Imports captures, redacted like all others. They are durable when this returns. A capture
    /// whose id exists changes nothing. A failure leaves the earlier batches stored; a repeat of
    /// the call completes them.
    ///
    /// The captures get their own segments, each with captures made within `span`. A segment is
    /// removed only when its newest capture expires, so old captures beside live traffic would stay
    /// for too long.
    pub async fn import(
        &self,
        mut captures: Vec<Capture>,
        span: Duration,
    ) -> Result<Imported, Error> {
        captures.sort_by_key(|capture| capture.head.created_at);
        let mut all = Imported::default();
        let mut captures = captures.into_iter().peekable();
        while let Some(first) = captures.peek().map(|capture| capture.head.created_at) {
            // Live traffic is written between the batches.
            let (mut batch, mut bytes) = (Vec::new(), 0);
            let together =
                |next: &Capture| next.head.created_at.duration_since(first).unsigned_abs() <= span;
            while let Some(next) = captures.next_if(|next| {
                batch.len() < CAPTURE_BATCH && bytes < CAPTURE_COMMIT && together(next)
            }) {
                bytes += next.bodies.request.len() + next.bodies.response.len();
                batch.push(next);
            }
            let archive = self.clone();
            let batch = tokio::spawn(async move { archive.import_batch(batch).await });
            let done = batch.await.map_err(|_| Error::panicked("a panic in an import"))?;
            let done = done.map_err(Error::store_unavailable)?;
            all.imported += done.imported;
            all.existing += done.existing;
            all.refused += done.refused;
        }
        // The existing captures may have been written just now.
        self.sync().await.map_err(Error::store_unavailable)?;
        Ok(all)
    }

    async fn import_batch(&self, mut batch: Vec<Capture>) -> Result<Imported, StoreError> {
        let mut log = self.log.clone().lock_owned().await;
        self.make_ready(&mut log).await?;
        let count = batch.len();
        let ids = batch.iter().map(|capture| capture.head.id.clone()).collect();
        let mut known: HashSet<RequestId> = self.index.readmit(ids).await?;
        batch.retain(|capture| known.insert(capture.head.id.clone()));
        let new = batch.len();
        let mut done = Imported { existing: (count - new) as u64, ..Imported::default() };
        if new > 0 {
            let ids = batch.iter().map(|capture| capture.head.id.clone()).collect();
            self.close_log(&mut log).await?;
            let packed = batch.into_iter().filter_map(|capture| PackedCapture::new(capture.into()));
            let packed = Arc::new(packed.collect());
            let (mut log, mut written) = self.write(log, packed, WritePace::awaited()).await?;
            self.close_log(&mut log).await?;
            if self.is_shared() {
                written = self.index.known(ids).await?.len();
            }
            (done.imported, done.refused) = (written as u64, (new - written) as u64);
        }
        Ok(done)
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
