//! Captures taken in from another archive, as an export of it has them.

use std::collections::HashSet;

use super::index::{Archive, INCOMPLETE};
use super::prepare;
use super::record::Capture;
use super::segment::writer::Effort;
use crate::bounds;
use crate::error::Error;
use crate::id::RequestId;
use crate::store::{CaptureIndex, StoreError};

/// What became of captures that were to be taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Written, and durable.
    pub imported: u64,
    /// Here already.
    pub existing: u64,
    /// Deleted here before: that stays.
    pub deleted: u64,
    /// Too large for this build to write.
    pub refused: u64,
}

impl Archive {
    /// Takes captures in as they are, but for what this gateway keeps out of captures: durable when it returns. One whose id is
    /// known here changes nothing. A failure leaves those of earlier batches in; the same call again finds them.
    pub async fn import(&self, captures: Vec<Capture>) -> Result<Imported, Error> {
        if self.is_incomplete() {
            return Err(Error::store_unavailable(INCOMPLETE));
        }
        let mut all = Imported::default();
        let mut captures = captures.into_iter().peekable();
        while captures.peek().is_some() {
            // The thread that writes captures is theirs for one batch at a time: live traffic comes between.
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while let Some(next) = captures.next_if(|_| batch.len() < bounds::CAPTURE_BATCH && bytes < bounds::CAPTURE_COMMIT) {
                bytes += next.bodies.request.len() + next.bodies.response.len();
                batch.push(next);
            }
            let one = self.import_batch(batch).await.map_err(Error::store_unavailable)?;
            all.imported += one.imported;
            all.existing += one.existing;
            all.deleted += one.deleted;
            all.refused += one.refused;
        }
        self.sync().await.map_err(Error::store_unavailable)?;
        Ok(all)
    }

    async fn import_batch(&self, batch: Vec<Capture>) -> Result<Imported, StoreError> {
        let archive = self.clone();
        let work = move |index: &mut CaptureIndex<'_>| {
            let (mut done, mut new, mut seen) = (Imported::default(), Vec::new(), HashSet::<RequestId>::new());
            for capture in batch {
                let id = &capture.head.id;
                if index.buried(id)? {
                    done.deleted += 1;
                } else if index.holds(id)? || !seen.insert(id.clone()) {
                    done.existing += 1;
                } else {
                    match prepare::ready(&capture, archive.redactor()) {
                        Some(ready) => new.push(ready),
                        None => done.refused += 1,
                    }
                }
            }
            if !new.is_empty() {
                archive.unsynced();
                done.imported = archive.lock().append(index, new, Effort::Usual)? as u64;
            }
            Ok(done)
        };
        self.store.write_captures(work).await
    }
}
