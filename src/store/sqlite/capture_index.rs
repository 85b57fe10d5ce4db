//! The index of captures, `captures.db`: which captures there are, where their bytes lie, and the
//! salts of their keys. [`CaptureIndex`] is the whole interface, so another backend has to offer
//! nothing else.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use rusqlite::{
    Connection, OptionalExtension, Statement, ToSql, Transaction, TransactionBehavior, params,
};

use super::super::{Store, StoreError};
use super::capture_list::{self, LOCATION, location};
use super::capture_rows::{CaptureFilter, CaptureLocation, CapturePage, CaptureRow, SegmentRow};
use super::connection::BUSY;
use crate::id::{KeyId, RequestId, UserId};

/// Pages that an index without captures takes at most.
const EMPTY_PAGES: u64 = 32;
/// Rows of one statement, which costs as much as a row or two by itself. They are inserted in about
/// a tenth of a millisecond.
const ROWS_TOGETHER: usize = 16;

/// The index of captures. Writes run one after another on a thread of their own, and run to their
/// end even when the caller is dropped. They survive the end of the process; only durable ones
/// survive a loss of power at once.
#[derive(Clone)]
pub struct CaptureIndex {
    store: Store,
}

impl Store {
    /// The index of captures.
    pub fn capture_index(&self) -> CaptureIndex {
        CaptureIndex { store: self.clone() }
    }
}

impl CaptureIndex {
    /// Whether another process, which ends, may still write captures.
    pub(crate) fn has_predecessor(&self) -> bool {
        self.store.has_predecessor()
    }

    async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let faults = self.store.faults.clone();
        let work = move |connection: &mut Connection| {
            faults.before_append()?;
            work(connection)
        };
        self.store.databases.captures.writer.run(work).await
    }

    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let faults = self.store.faults.clone();
        let work = move |connection: &mut Connection| {
            faults.before_read()?;
            work(connection)
        };
        self.store.databases.captures.reader.run(work).await
    }

    /// Inserts captures and updates their segment: all or none. A capture that is there already is
    /// replaced. `between` is called every few rows.
    pub async fn insert(
        &self,
        segment: SegmentRow,
        rows: Vec<(CaptureRow, CaptureLocation)>,
        durable: bool,
        between: impl Fn() + Send + 'static,
    ) -> Result<(), StoreError> {
        self.write(move |connection| {
            change(connection, durable, |transaction| {
                put_segment(transaction, &segment, &rows)?;
                insert(transaction, &rows, between)
            })
        })
        .await
    }

    /// Updates a segment. Durable, and with it every earlier write.
    pub async fn put_segment(&self, segment: SegmentRow) -> Result<(), StoreError> {
        self.write(move |connection| {
            change(connection, true, |transaction| put_segment(transaction, &segment, &[]))
        })
        .await
    }

    /// The owner of a capture; `None` if there is no such capture.
    pub async fn owner(&self, id: &RequestId) -> Result<Option<UserId>, StoreError> {
        let id = id.clone();
        let owner = |row: &rusqlite::Row<'_>| Ok(UserId::known(&row.get::<_, String>(0)?));
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT owner FROM captures WHERE id = ?1")?;
            Ok(statement.query_row([id.as_str()], owner).optional()?)
        })
        .await
    }

    /// Where a capture lies; `None` if there is no such capture.
    pub async fn locate(&self, id: &RequestId) -> Result<Option<CaptureLocation>, StoreError> {
        let id = id.clone();
        self.read(move |connection| {
            let sql = format!("SELECT {LOCATION} FROM captures WHERE id = ?1");
            let mut statement = connection.prepare_cached(&sql)?;
            Ok(statement.query_row([id.as_str()], location).optional()?)
        })
        .await
    }

    /// Which of these are there, after every earlier write.
    pub async fn known(&self, ids: Vec<RequestId>) -> Result<HashSet<RequestId>, StoreError> {
        self.write(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT 1 FROM captures WHERE id = ?1")?;
            let mut known = HashSet::new();
            for id in ids {
                if statement.exists([id.as_str()])? {
                    known.insert(id);
                }
            }
            Ok(known)
        })
        .await
    }

    /// Captures, newest first, older than `after`, up to `limit`. Looks at no more than
    /// [`crate::bounds::LIST_ROWS`] rows, or [`crate::bounds::LIST_LOOKUPS`], so a page may be
    /// short although more follow.
    pub async fn list(
        &self,
        filter: CaptureFilter,
        limit: usize,
        after: Option<RequestId>,
    ) -> Result<CapturePage, StoreError> {
        self.read(move |connection| {
            let budget = capture_list::budget(&filter);
            capture_list::list(connection, &filter, limit, after.as_ref(), budget)
        })
        .await
    }

    /// Deletes a capture and, if `copies`, its replays and shadows and theirs: of this owner only,
    /// where one is given. Durable. Returns the copies that it deleted.
    pub async fn delete(
        &self,
        id: &RequestId,
        copies: bool,
        owner: Option<UserId>,
    ) -> Result<Vec<RequestId>, StoreError> {
        let id = id.clone();
        self.write(move |connection| {
            change(connection, true, |transaction| {
                let mut deleted = Vec::new();
                if copies {
                    let mut statement = transaction.prepare_cached(DELETE_FAMILY)?;
                    let owner = owner.as_ref().map(UserId::as_str);
                    let mut rows = statement.query(params![id.as_str(), owner])?;
                    while let Some(row) = rows.next()? {
                        deleted.push(RequestId::known(&row.get::<_, String>(0)?));
                    }
                } else {
                    transaction.execute("DELETE FROM captures WHERE id = ?1", [id.as_str()])?;
                }
                deleted.retain(|deleted| *deleted != id);
                Ok(deleted)
            })
        })
        .await
    }

    /// All segments, and whether each holds a capture. The one whose newest capture is the oldest
    /// comes first.
    pub async fn segments(&self) -> Result<Vec<(SegmentRow, bool)>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT number, newest, bytes,
                   EXISTS (SELECT 1 FROM captures
                     WHERE id BETWEEN first AND last AND segment = number)
                 FROM segments ORDER BY newest, number",
            )?;
            let rows = statement.query_map([], |row| {
                let (number, newest_us, bytes) = (row.get(0)?, row.get(1)?, unsigned(row.get(2)?));
                Ok((SegmentRow { number, newest_us, bytes }, row.get(3)?))
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        })
        .await
    }

    /// Deletes up to `limit` captures of a segment that is written no more; returns how many there
    /// were.
    pub async fn drop_captures(&self, segment: i64, limit: usize) -> Result<usize, StoreError> {
        self.write(move |connection| {
            change(connection, false, |transaction| {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let mut statement = transaction.prepare_cached(DROP_CAPTURES)?;
                let ids = statement.query_map([segment, limit], |row| row.get(0))?;
                let ids = ids.collect::<rusqlite::Result<Vec<String>>>()?;
                if let Some(last) = ids.iter().max() {
                    // The next step begins there.
                    let first = "UPDATE segments SET first = ?2 WHERE number = ?1";
                    transaction.prepare_cached(first)?.execute(params![segment, last])?;
                }
                Ok(ids.len())
            })
        })
        .await
    }

    /// Deletes a segment without captures.
    pub async fn drop_segment(&self, segment: i64) -> Result<(), StoreError> {
        self.write(move |connection| {
            change(connection, false, |transaction| {
                transaction.execute("DELETE FROM segments WHERE number = ?1", [segment])?;
                Ok(())
            })
        })
        .await
    }

    /// Bytes that the index takes for its captures.
    pub async fn bytes(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let pragma = |name: &str| {
                let value = connection.pragma_query_value(None, name, |row| row.get(0));
                Ok::<_, StoreError>(unsigned(value?))
            };
            let used = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
            Ok(used.saturating_sub(EMPTY_PAGES) * pragma("page_size")?)
        })
        .await
    }

    /// Empties the write-ahead log, in which deleted rows stay until then. Returns whether that
    /// worked: a reader may be in the way.
    pub async fn empty_log(&self) -> Result<bool, StoreError> {
        self.write(|connection| {
            // It does not wait for a reader: captures would wait with it.
            connection.busy_timeout(Duration::ZERO)?;
            let busy: rusqlite::Result<i64> =
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            connection.busy_timeout(BUSY)?;
            Ok(busy? == 0)
        })
        .await
    }
}

/// A capture with its replays and shadows, and theirs. `UNION` ends it also where captures name
/// each other in a circle.
const DELETE_FAMILY: &str = "WITH RECURSIVE family (id) AS (
    SELECT ?1
    UNION SELECT c.id FROM captures c JOIN family f ON c.replay_of = f.id OR c.shadow_of = f.id
      WHERE ?2 IS NULL OR c.owner = ?2)
  DELETE FROM captures WHERE id IN (SELECT id FROM family) RETURNING id";

/// The oldest captures of a segment.
const DROP_CAPTURES: &str = "DELETE FROM captures WHERE id IN (
    SELECT id FROM captures
    WHERE id BETWEEN (SELECT first FROM segments WHERE number = ?1)
        AND (SELECT last FROM segments WHERE number = ?1)
      AND segment = ?1
    ORDER BY id LIMIT ?2)
  RETURNING id";

/// Segments of the index in a copy that no process has open.
pub(super) fn segment_numbers(connection: &Connection) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare("SELECT number FROM segments ORDER BY number")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
}

/// Deletes segments and their captures in such a copy.
pub(super) fn drop_segments(connection: &mut Connection, gone: &[i64]) -> Result<(), StoreError> {
    change(connection, true, |transaction| {
        for number in gone {
            transaction.execute("DELETE FROM captures WHERE segment = ?1", [number])?;
            transaction.execute("DELETE FROM segments WHERE number = ?1", [number])?;
        }
        Ok(())
    })
}

/// One transaction. A durable one syncs the write-ahead log, and with it all that was written
/// before.
fn change<T>(
    connection: &mut Connection,
    durable: bool,
    change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "NORMAL" })?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let changed = change(&transaction)?;
    transaction.commit()?;
    Ok(changed)
}

/// Updates a segment to which these captures are added.
fn put_segment(
    transaction: &Transaction<'_>,
    segment: &SegmentRow,
    added: &[(CaptureRow, CaptureLocation)],
) -> Result<(), StoreError> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO segments (number, newest, bytes, first, last) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (number) DO UPDATE SET newest = ?2, bytes = ?3,
           first = min(first, ?4), last = max(last, ?5)",
    )?;
    let ids = || added.iter().map(|(row, _)| row.id.as_str());
    // Without captures: an empty range, which any capture makes larger. No id begins so.
    let (first, last) = (ids().min().unwrap_or("~"), ids().max().unwrap_or_default());
    let (newest, bytes) = (segment.newest_us, signed(segment.bytes));
    statement.execute(params![segment.number, newest, bytes, first, last])?;
    Ok(())
}

/// An insert of so many rows.
fn insert_of(rows: usize) -> String {
    let row = format!("({})", vec!["?"; COLUMNS].join(", "));
    let rows = vec![row; rows].join(", ");
    format!(
        "INSERT OR REPLACE INTO captures (id, created_at, owner, key, alias, recipe, provider,
           model, decided_provider, decided_model, status, state, replay_of, shadow_of, segment,
           head_at, head_len, bodies_at, bodies_len, salt) VALUES {rows}"
    )
}

/// Columns of a capture.
const COLUMNS: usize = 20;

fn insert(
    transaction: &Transaction<'_>,
    rows: &[(CaptureRow, CaptureLocation)],
    between: impl Fn(),
) -> Result<(), StoreError> {
    static TOGETHER: LazyLock<String> = LazyLock::new(|| insert_of(ROWS_TOGETHER));
    static ALONE: LazyLock<String> = LazyLock::new(|| insert_of(1));
    let (together, alone) = rows.as_chunks::<ROWS_TOGETHER>();
    for rows in together {
        between();
        let mut statement = transaction.prepare_cached(&TOGETHER)?;
        for (row, at) in rows.iter().zip((1..).step_by(COLUMNS)) {
            bind(&mut statement, at, row)?;
        }
        statement.raw_execute()?;
    }
    between();
    for row in alone {
        let mut statement = transaction.prepare_cached(&ALONE)?;
        bind(&mut statement, 1, row)?;
        statement.raw_execute()?;
    }
    Ok(())
}

/// Binds a row to the parameters of a statement, the first of which has this number.
fn bind(
    statement: &mut Statement<'_>,
    first: usize,
    (row, location): &(CaptureRow, CaptureLocation),
) -> rusqlite::Result<()> {
    let values: [&dyn ToSql; COLUMNS] = [
        &row.id.as_str(),
        &row.created_at_us,
        &row.owner.as_str(),
        &row.key.as_ref().map(KeyId::as_str),
        &row.alias,
        &row.recipe,
        &row.provider,
        &row.model,
        &row.decided_provider,
        &row.decided_model,
        &row.status,
        &row.state,
        &row.replay_of.as_ref().map(RequestId::as_str),
        &row.shadow_of.as_ref().map(RequestId::as_str),
        &location.segment,
        &signed(location.head.offset),
        &location.head.length,
        &location.bodies.map(|bodies| signed(bodies.offset)),
        &location.bodies.map(|bodies| bodies.length),
        &location.salt,
    ];
    values.iter().zip(first..).try_for_each(|(value, at)| statement.raw_bind_parameter(at, value))
}

/// SQLite's integers are signed. Offsets fit 63 bits.
fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}

fn unsigned(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0)
}

#[cfg(test)]
#[path = "capture_index_tests.rs"]
mod tests;
