//! Captures taken in from another archive, as an export of it has them.

use std::collections::HashSet;
use std::time::Duration;

use super::index::Archive;
use super::prepare;
use super::record::Capture;
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
    ///
    /// They lie in segments of their own, those of one made within `span`: a segment leaves when its newest is over its age, and
    /// beside live traffic they would stay as long as that.
    pub async fn import(
        &self,
        mut captures: Vec<Capture>,
        span: Duration,
    ) -> Result<Imported, Error> {
        self.check_complete()?;
        captures.sort_by_key(|capture| capture.head.created_at);
        let mut all = Imported::default();
        let mut captures = captures.into_iter().peekable();
        while let Some(first) = captures.peek().map(|capture| capture.head.created_at) {
            // The thread that writes captures is theirs for one batch at a time: live traffic comes between.
            let (mut batch, mut bytes) = (Vec::new(), 0);
            let together =
                |next: &Capture| next.head.created_at.duration_since(first).unsigned_abs() <= span;
            while let Some(next) = captures.next_if(|next| {
                batch.len() < bounds::CAPTURE_BATCH
                    && bytes < bounds::CAPTURE_COMMIT
                    && together(next)
            }) {
                bytes += next.bodies.request.len() + next.bodies.response.len();
                batch.push(next);
            }
            let one = self.import_batch(batch).await.map_err(Error::store_unavailable)?;
            all.imported += one.imported;
            all.existing += one.existing;
            all.deleted += one.deleted;
            all.refused += one.refused;
        }
        // Those that were here already may have been written a moment ago.
        self.sync().await.map_err(Error::store_unavailable)?;
        Ok(all)
    }

    async fn import_batch(&self, batch: Vec<Capture>) -> Result<Imported, StoreError> {
        let archive = self.clone();
        let work = move |index: &mut CaptureIndex<'_>| {
            let (mut done, mut new, mut seen) =
                (Imported::default(), Vec::new(), HashSet::<RequestId>::new());
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
                done.imported = archive.lock().append_apart(index, new)? as u64;
            }
            Ok(done)
        };
        self.store.write_captures(work).await
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
