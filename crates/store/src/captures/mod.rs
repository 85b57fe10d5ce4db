//! The index of captures: which captures there are, where their bytes lie, and the salts of their
//! keys. [`CaptureIndex`] is the whole interface. With SQLite the index is the separate file
//! `captures.db`. With PostgreSQL all gateways share the index, and `captures.db` holds the rows
//! that PostgreSQL could not take when they came.
//!
//! `statements.rs` and `list.rs` are for both databases, and `shared.rs` is for PostgreSQL. The
//! inserts into SQLite are in `sqlite/capture_insert.rs`.

mod list;
mod rows;
mod shared;
mod spool;
mod statements;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::audit_retention::RETENTION_BATCH;
use super::columns::Columns;
use super::sql::{Transaction, Work, params};
use super::sqlite::CaptureDatabase;
use super::{Reach, Result, Store, StoreError};
use rerouter_base::id::{KeyId, RequestId, UserId};

pub(super) use list::LIST_ROWS;
pub use rows::CaptureFilter;
pub(crate) use rows::CapturePage;
pub use rows::{ByteRange, CaptureLocation, CaptureRow, SegmentRow, Shadows};
pub(super) use rows::{capture_columns, put_capture};
pub(super) use shared::{SharedCaptures, take_prefix};
pub(super) use statements::put_segment;

/// The index of captures. Writes run one after another on a separate thread, and run to their end
/// even when the caller is dropped. All of them survive the end of the process; only durable ones
/// are sure to survive a loss of power.
#[derive(Clone)]
pub struct CaptureIndex {
    store: Store,
}

impl Store {
    pub fn capture_index(&self) -> CaptureIndex {
        CaptureIndex { store: self.clone() }
    }
}

impl CaptureIndex {
    fn local(&self) -> &CaptureDatabase {
        &self.store.databases.captures
    }

    fn shared(&self) -> Option<&SharedCaptures> {
        self.store.databases.shared_captures.as_ref()
    }

    async fn write<T: Send + 'static>(&self, durable: bool, work: impl Work<T>) -> Result<T> {
        let work = self.store.faults.clone().appending(work);
        match self.shared() {
            Some(shared) => shared.write(durable, work).await,
            None => self.local().write(durable, work).await,
        }
    }

    async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        let work = self.store.faults.clone().reading(work);
        match self.shared() {
            Some(shared) => shared.read(work).await,
            None => self.local().read(work).await,
        }
    }

    /// Whether another process of this data directory may write captures: a predecessor, or a
    /// successor that has taken over.
    pub fn is_of_two_processes(&self) -> bool {
        self.store.has_predecessor() || self.store.is_handed_over()
    }

    pub fn is_alone(&self) -> bool {
        self.store.is_alone()
    }

    /// Whether other gateways have captures in this index too.
    pub fn is_shared(&self) -> bool {
        self.shared().is_some()
    }

    /// The range of segment numbers of this gateway. No segment has the first number.
    pub fn numbers(&self) -> (i64, i64) {
        self.shared().map_or((0, i64::MAX), SharedCaptures::numbers)
    }

    /// Inserts captures and updates their segment, all or none. A capture that exists already is
    /// replaced. `between` is called every few rows.
    pub async fn insert(
        &self,
        segment: SegmentRow,
        rows: Vec<(CaptureRow, CaptureLocation)>,
        durable: bool,
        between: impl Fn() + Send + 'static,
    ) -> Result<()> {
        let rows = Arc::new(rows);
        if let Some(shared) = self.shared().filter(|shared| !shared.is_away()) {
            let (put, added) = (segment.clone(), Arc::clone(&rows));
            let insert =
                move |transaction: &Transaction<'_>| shared::insert(transaction, &put, &added);
            let insert = self.store.faults.clone().appending(insert);
            match shared.write_rows(durable, insert).await {
                Ok(()) => return Ok(()),
                Err(error) => went_away(shared, &error),
            }
        }
        let faults = self.store.faults.clone();
        let inserted = self.local().insert(faults, segment, rows, durable, between).await;
        self.mark_spooled();
        inserted
    }

    /// This write and every earlier one are durable then.
    pub async fn put_segment(&self, segment: SegmentRow) -> Result<()> {
        let put = |segment: SegmentRow| {
            move |transaction: &Transaction<'_>| put_segment(transaction, &segment, &[])
        };
        let Some(shared) = self.shared() else { return self.write(true, put(segment)).await };
        if !shared.is_away() {
            match self.write(true, put(segment.clone())).await {
                Ok(()) => return Ok(()),
                Err(error) => went_away(shared, &error),
            }
        }
        let spooled = self.local().write(true, put(segment)).await;
        self.mark_spooled();
        spooled
    }

    /// Notes that the local database may have rows now that PostgreSQL lacks.
    fn mark_spooled(&self) {
        if let Some(shared) = self.shared() {
            shared.set_spooled(true);
        }
    }

    pub async fn whose(&self, id: &RequestId) -> Result<Option<(UserId, Option<KeyId>)>> {
        let id = id.clone();
        self.read(move |transaction| statements::whose(transaction, &id)).await
    }

    pub async fn locate(&self, id: &RequestId) -> Result<Option<CaptureLocation>> {
        let id = id.clone();
        self.read(move |transaction| statements::locate(transaction, &id)).await
    }

    /// Returns which of these captures are in the index, after every earlier write.
    pub async fn known(&self, ids: Vec<RequestId>) -> Result<HashSet<RequestId>> {
        self.write(false, move |transaction| statements::known(transaction, &ids)).await
    }

    /// Returns which of these captures are in the index, before an import inserts the others.
    /// Captures that were deleted may be inserted again then.
    pub async fn readmit(&self, ids: Vec<RequestId>) -> Result<HashSet<RequestId>> {
        let readmit = move |transaction: &Transaction<'_>| {
            if transaction.is_shared() {
                shared::delete_ids(transaction, "deleted_captures", &ids)?;
            }
            statements::known(transaction, &ids)
        };
        self.write(false, readmit).await
    }

    /// Captures, newest first, older than `after`, up to `limit`. Looks at no more than
    /// [`LIST_ROWS`] rows, or `LIST_LOOKUPS`, so a page may be short although
    /// more follow.
    pub async fn list(
        &self,
        filter: CaptureFilter,
        limit: usize,
        after: Option<RequestId>,
    ) -> Result<CapturePage> {
        let budget = list::budget(&filter);
        self.list_within(filter, limit, after, budget).await
    }

    /// A page of a list, with a maximum of rows to look at.
    pub(super) async fn list_within(
        &self,
        filter: CaptureFilter,
        limit: usize,
        after: Option<RequestId>,
        budget: usize,
    ) -> Result<CapturePage> {
        let list = move |transaction: &Transaction<'_>| {
            list::list(transaction, &filter, limit, after.as_ref(), budget)
        };
        self.read(list).await
    }

    /// Deletes a capture. With `copies`, also deletes its replays and shadows, their replays and
    /// shadows, and so on, as far as they are in `reach`. Durable. Returns the copies that it
    /// deleted.
    pub async fn delete(
        &self,
        id: &RequestId,
        copies: bool,
        reach: Reach,
    ) -> Result<Vec<RequestId>> {
        let id = id.clone();
        let delete = move |transaction: &Transaction<'_>| {
            let delete = if transaction.is_shared() { shared::delete } else { statements::delete };
            let mut deleted = delete(transaction, &id, copies, &reach)?;
            deleted.retain(|deleted| *deleted != id);
            Ok(deleted)
        };
        self.write(true, delete).await
    }

    /// Deletes a page of the captures that match the filter and are older than `after`. Durable.
    /// Returns their number, and the id after which the next page begins; `None` on the last page.
    pub async fn erase(
        &self,
        filter: CaptureFilter,
        after: Option<RequestId>,
    ) -> Result<(usize, Option<RequestId>)> {
        let CapturePage { found, next } = self.list(filter, RETENTION_BATCH, after).await?;
        let ids: Vec<RequestId> = found.into_iter().map(|(id, _)| id).collect();
        let count = ids.len();
        let erase = move |transaction: &Transaction<'_>| match transaction.is_shared() {
            true => shared::erase(transaction, &ids),
            false => ids.iter().try_for_each(|id| {
                statements::delete(transaction, id, false, &Reach::All).map(drop)
            }),
        };
        if count > 0 {
            self.write(true, erase).await?;
        }
        Ok((count, next))
    }

    /// All segments of this gateway in the order of their newest captures, and whether each holds a
    /// capture.
    pub async fn segments(&self) -> Result<Vec<(SegmentRow, bool)>> {
        let numbers = self.numbers();
        self.read(move |transaction| statements::segments(transaction, numbers)).await
    }

    /// Bytes at the beginning of a segment that may hold captures; `None` if there is no such
    /// segment.
    pub async fn segment_bytes(&self, segment: i64) -> Result<Option<u64>> {
        let find = "SELECT bytes FROM segments WHERE number = ?1";
        let find = move |transaction: &Transaction<'_>| {
            transaction.row(find, &params![segment], |row| Columns::new(row).get())
        };
        self.read(find).await
    }

    /// Deletes up to `limit` captures of a segment that is no longer written.
    pub async fn drop_captures(&self, segment: i64, limit: usize) -> Result<usize> {
        let drop = move |transaction: &Transaction<'_>| {
            statements::drop_captures(transaction, segment, limit)
        };
        self.write(false, drop).await
    }

    /// Deletes a segment without captures.
    pub async fn drop_segment(&self, segment: i64) -> Result<()> {
        self.write(false, move |transaction| statements::drop_segment(transaction, segment)).await
    }

    /// Bytes that the index takes for its captures in the data directory.
    pub async fn bytes(&self) -> Result<u64> {
        if self.is_shared() {
            return Ok(0);
        }
        self.local().bytes(self.store.faults.clone()).await
    }

    /// Empties the write-ahead log, in which deleted rows stay until then. Returns `false` if a
    /// reader was in the way.
    pub async fn empty_log(&self) -> Result<bool> {
        self.local().empty_log(self.store.faults.clone()).await
    }
}

/// Notes that PostgreSQL does not take rows: from now on they wait in the local database.
fn went_away(shared: &SharedCaptures, error: &StoreError) {
    if !shared.set_away(true) {
        log::warn!(
            "the index of captures cannot be written to, their rows wait in captures.db: {error}"
        );
    }
}

/// Methods of an index that gateways share.
impl CaptureIndex {
    /// Segments that have rows in the local database: those of this gateway, and those from before
    /// this data directory used PostgreSQL.
    pub async fn spooled_segments(&self) -> Result<Vec<i64>> {
        if !self.is_shared() {
            return Ok(Vec::new());
        }
        let all = |transaction: &Transaction<'_>| {
            let segments = statements::segments(transaction, (0, i64::MAX))?;
            Ok(segments.into_iter().map(|(segment, _)| segment.number).collect())
        };
        self.local().read(all).await
    }

    /// Captures of one segment, up to `limit`, that wait in the local database; `None` if there are
    /// none. Costs nothing if no row had to wait.
    pub async fn spooled(&self, limit: usize) -> Result<Option<spool::CaptureBatch>> {
        let Some(shared) = self.shared().filter(|shared| shared.has_spooled()) else {
            return Ok(None);
        };
        // The mark is cleared before the read, because rows that come later set it again. Rows of
        // another process do not set it, so the mark stays until that process has ended.
        shared.set_spooled(self.is_of_two_processes());
        let batch = self.local().read(move |transaction| spool::batch(transaction, limit)).await;
        match &batch {
            Ok(None) => _ = shared.set_away(false),
            _ => shared.set_spooled(true),
        }
        batch
    }

    /// Moves captures from the local database, where they are in segment `number`, to PostgreSQL.
    pub async fn move_spooled(
        &self,
        number: i64,
        segment: SegmentRow,
        rows: Vec<(CaptureRow, CaptureLocation)>,
    ) -> Result<()> {
        let ids: Vec<RequestId> = rows.iter().map(|(row, _)| row.id.clone()).collect();
        let insert =
            move |transaction: &Transaction<'_>| shared::insert(transaction, &segment, &rows);
        if let Some(shared) = self.shared() {
            shared.write_rows(true, self.store.faults.clone().appending(insert)).await?;
        }
        self.local().write(true, move |transaction| spool::taken(transaction, number, &ids)).await
    }

    /// The name of the gateway that wrote a segment, to be shown; `None` if it is unknown.
    pub async fn gateway_of(&self, segment: i64) -> Result<Option<String>> {
        if !self.is_shared() {
            return Ok(None);
        }
        self.read(move |transaction| shared::gateway_of(transaction, segment)).await
    }

    /// Segments of this gateway that the object store lacks, with the time of the newest capture of
    /// each. The oldest comes first.
    pub async fn waiting_segments(&self) -> Result<Vec<(i64, i64)>> {
        let numbers = self.numbers();
        self.read(move |transaction| shared::waiting(transaction, numbers)).await
    }

    /// Notes that the object store has the whole segment; `false` if there is no such segment.
    pub async fn note_uploaded(&self, segment: i64) -> Result<bool> {
        self.write(true, move |transaction| shared::uploaded(transaction, segment)).await
    }

    /// Some segments of other gateways whose newest capture is older than `before_us`. It is also
    /// older than `kept_us` by the clock of the database, as the clock of a gateway may be wrong.
    pub async fn left_behind(&self, before_us: i64, kept_us: i64) -> Result<Vec<i64>> {
        let own = self.numbers();
        if !self.is_shared() {
            return Ok(Vec::new());
        }
        self.read(move |transaction| shared::left_behind(transaction, own, before_us, kept_us))
            .await
    }

    pub async fn forget_deleted(&self, kept: Duration) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        self.write(false, move |transaction| shared::forget_deleted(transaction, kept)).await
    }
}
