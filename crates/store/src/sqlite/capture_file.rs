//! The file of the capture index, `captures.db`: one thread writes, another one reads beside it. A
//! damaged file is set aside with its segments.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};

use super::super::captures::{CaptureLocation, CaptureRow, SegmentRow, put_segment};
use super::super::sql::{Transaction, Work};
use super::super::steps::{self, Base};
use super::super::worker::Worker;
use super::super::{Faults, Result, StoreError};
use super::capture_insert::insert;
use super::connection::{Durability, checkpoint, open, open_to_read};
use super::transaction::SqliteTransaction;
use rerouter_base::atomic_file::allow_absent;

/// Maximum size of an index that is checked whole at the start. Of a larger index only the length
/// is checked.
const INDEX_CHECK: u64 = 64 << 20;

/// Maximum number of pages of an index without captures.
const EMPTY_PAGES: u64 = 32;

pub(crate) struct CaptureDatabase {
    writer: Worker<Connection>,
    reader: Worker<Connection>,
}

impl CaptureDatabase {
    /// Opens or creates the file in `dir`. With `in_use`, another process writes to the file too.
    /// It is not checked then, as its log is never empty, and as it must not be moved. Blocking.
    pub(crate) fn open(dir: &Path, in_use: bool) -> Result<Self> {
        let path = dir.join("captures.db");
        let index = match in_use {
            true => {
                let mut index = open(&path, Durability::Process)?;
                bring_up(&mut index)?;
                index
            }
            false => open_index(&path)?,
        };
        Ok(CaptureDatabase {
            reader: Worker::start("store-reader", open_to_read(&path)?)?,
            writer: Worker::start("store-captures", index)?,
        })
    }

    /// Reads a consistent snapshot of the index, without waiting for writes.
    pub(crate) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        let work = move |connection: &mut Connection| {
            let snapshot = connection.transaction()?;
            work(&Transaction::Sqlite(SqliteTransaction(&snapshot)))
        };
        self.reader.run(work).await
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        durable: bool,
        work: impl Work<T>,
    ) -> Result<T> {
        let work = move |connection: &mut Connection| {
            change(connection, durable, |transaction| {
                work(&Transaction::Sqlite(SqliteTransaction(transaction)))
            })
        };
        self.writer.run(work).await
    }

    pub(crate) async fn insert(
        &self,
        faults: Faults,
        segment: SegmentRow,
        rows: Arc<Vec<(CaptureRow, CaptureLocation)>>,
        durable: bool,
        between: impl Fn() + Send + 'static,
    ) -> Result<()> {
        let work = move |connection: &mut Connection| {
            faults.before_append()?;
            change(connection, durable, |transaction| {
                let door = Transaction::Sqlite(SqliteTransaction(transaction));
                put_segment(&door, &segment, &rows)?;
                insert(transaction, &rows, between)
            })
        };
        self.writer.run(work).await
    }

    pub(crate) async fn bytes(&self, faults: Faults) -> Result<u64> {
        let work = move |connection: &mut Connection| {
            faults.before_read()?;
            let pragma = |name: &str| {
                let value: i64 = connection.pragma_query_value(None, name, |row| row.get(0))?;
                Ok::<_, StoreError>(u64::try_from(value).unwrap_or(0))
            };
            let used = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
            Ok(used.saturating_sub(EMPTY_PAGES) * pragma("page_size")?)
        };
        self.reader.run(work).await
    }

    /// Returns `false` if a reader was in the way.
    pub(crate) async fn empty_log(&self, faults: Faults) -> Result<bool> {
        let work = move |connection: &mut Connection| {
            faults.before_append()?;
            // This does not wait for a reader, because captures would wait too.
            checkpoint(connection)
        };
        self.writer.run(work).await
    }

    /// Moves the write-ahead log into the database. Returns `false` if a reader was in the way.
    pub(crate) async fn checkpoint(&self) -> Result<bool> {
        self.writer.run(checkpoint).await
    }
}

/// Opens or creates the index. A damaged one is moved to `captures-damaged-<n>/` together with the
/// segments, as only this index holds the keys of their captures. Then an empty index is created.
fn open_index(path: &Path) -> Result<Connection> {
    match open_checked(path) {
        Err(StoreError::Damaged(why)) => {
            set_aside(path, &why)?;
            open_checked(path)
        }
        opened => opened,
    }
}

fn open_checked(path: &Path) -> Result<Connection> {
    let mut index = open(path, Durability::Process)?;
    let moved = index
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(StoreError::from);
    if let Err(StoreError::Damaged(why)) = moved {
        return Err(StoreError::Damaged(why));
    }
    let size: u64 = index.query_row(
        "SELECT c.page_count * s.page_size FROM pragma_page_count c, pragma_page_size s",
        [],
        |row| Ok(u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0)),
    )?;
    let length = std::fs::metadata(path).map_err(StoreError::unavailable)?.len();
    // On a full disk the write-ahead log may still hold the rest.
    if length < size && moved.is_ok() {
        return Err(StoreError::Damaged("it is cut off".into()));
    }
    if length <= INDEX_CHECK {
        let result: String = index.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if result != "ok" {
            return Err(StoreError::Damaged(result));
        }
    }
    bring_up(&mut index)?;
    Ok(index)
}

/// This happens in place, in one transaction. A file that has all steps is not written to.
fn bring_up(index: &mut Connection) -> Result<()> {
    change(index, true, |transaction| {
        let transaction = Transaction::Sqlite(SqliteTransaction(transaction));
        steps::bring_up(&transaction, Base::Captures)
    })
}

fn set_aside(path: &Path, why: &str) -> Result<()> {
    let aside = (1..)
        .map(|number: u32| path.with_file_name(format!("captures-damaged-{number}")))
        .find(|name| !name.exists())
        .ok_or_else(|| StoreError::Damaged("the index cannot be set aside".into()))?;
    log::error!(
        "the index of captures is damaged ({why}): it is moved to {} with its segments, and \
         captures begin anew; restore both from a backup, or delete them",
        aside.display()
    );
    std::fs::create_dir(&aside)?;
    // The index is moved last: a start that breaks off here finds it damaged once more.
    for name in ["captures", "captures.db-wal", "captures.db-shm", "captures.db"] {
        allow_absent(std::fs::rename(path.with_file_name(name), aside.join(name)))?;
    }
    Ok(())
}

/// Numbers of the segments in a copy of the index that no process has open.
pub(super) fn segment_numbers(connection: &Connection) -> Result<Vec<i64>> {
    let mut statement = connection.prepare("SELECT number FROM segments ORDER BY number")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Deletes segments and their captures in a copy that no process has open.
pub(super) fn drop_segments(connection: &mut Connection, gone: &[i64]) -> Result<()> {
    change(connection, true, |transaction| {
        for number in gone {
            transaction.execute("DELETE FROM captures WHERE segment = ?1", [number])?;
            transaction.execute("DELETE FROM segments WHERE number = ?1", [number])?;
        }
        Ok(())
    })
}

/// Runs one transaction. A durable one syncs the write-ahead log, and with it everything that was
/// written before.
fn change<T>(
    connection: &mut Connection,
    durable: bool,
    change: impl FnOnce(&rusqlite::Transaction<'_>) -> Result<T>,
) -> Result<T> {
    connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let changed = change(&transaction)?;
    transaction.commit()?;
    Ok(changed)
}

#[cfg(test)]
#[path = "capture_file_tests.rs"]
mod tests;
