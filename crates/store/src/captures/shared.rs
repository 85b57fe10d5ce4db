//! The index of captures in PostgreSQL, which several gateways share. Each gateway inserts rows of
//! its own segments, whose numbers belong to its slot. Each gateway reads and deletes all rows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::rows::{CaptureLocation, CaptureRow, SegmentRow, capture_columns, put_capture};
use super::statements;
use crate::columns::{Columns, Written};
use crate::directory_names::DirectoryNames;
use crate::postgres::{DATABASE_ANSWER, Database, PostgresUrl};
use crate::sql::{NOW, Transaction, Value, Work, params};
use crate::{Reach, Result, StoreError};
use rerouter_base::id::{RequestId, UserId};

/// As [`DATABASE_ANSWER`], for rows of captures, which then wait in the local database.
const CAPTURE_DATABASE_ANSWER: Duration = Duration::from_secs(5);

/// Rows that one statement inserts.
const ROWS_TOGETHER: usize = 64;
/// Bits of the number of a segment within its slot.
const SEGMENT_BITS: u32 = 32;
/// The advisory lock that inserts share, and that a deletion takes alone. The number has no
/// meaning, and no other program uses it.
const LOCK: i64 = 7_263_480_254_919_331_448;

/// The connections, and the numbers of this gateway.
pub(crate) struct SharedCaptures {
    writer: Database,
    reader: Database,
    /// The name of this gateway.
    instance: String,
    /// The name of its data directory.
    directory: String,
    prefix: i64,
    /// Whether the local database may hold rows that PostgreSQL lacks.
    spooled: AtomicBool,
    /// Whether an insert failed, and not all rows that came since have been moved. New rows join
    /// them, so that no row waits for a database that does not answer.
    away: AtomicBool,
}

impl SharedCaptures {
    /// Connects. Blocking.
    pub(crate) fn open(url: &PostgresUrl, names: DirectoryNames) -> Result<Self> {
        let database = |name| Database::start(name, url, CAPTURE_DATABASE_ANSWER);
        let prefix =
            Database::once(url, DATABASE_ANSWER, |transaction| take_prefix(transaction, &names))?;
        Ok(SharedCaptures {
            writer: database("store-captures-shared")?,
            reader: database("store-captures-reader")?,
            instance: names.instance,
            directory: names.directory,
            prefix,
            spooled: AtomicBool::new(true),
            away: AtomicBool::new(false),
        })
    }

    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    pub(super) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.reader.read(work).await
    }

    /// Runs a write. If it is not durable, it may be lost when the server crashes within the next
    /// second.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        durable: bool,
        work: impl Work<T>,
    ) -> Result<T> {
        let work = move |transaction: &Transaction<'_>| {
            if !durable {
                transaction.execute("SET LOCAL synchronous_commit TO OFF", &[])?;
            }
            work(transaction)
        };
        self.writer.write_beside(work).await
    }

    /// The first and the last number of segments of this gateway.
    pub(super) fn numbers(&self) -> (i64, i64) {
        let first = self.prefix << SEGMENT_BITS;
        (first, first | ((1 << SEGMENT_BITS) - 1))
    }

    pub(super) fn is_away(&self) -> bool {
        self.away.load(Ordering::Acquire)
    }

    /// Sets whether rows wait in the local database. Returns whether they did before.
    pub(super) fn set_away(&self, away: bool) -> bool {
        self.away.swap(away, Ordering::AcqRel)
    }

    pub(super) fn has_spooled(&self) -> bool {
        self.spooled.load(Ordering::Acquire)
    }

    pub(super) fn set_spooled(&self, spooled: bool) {
        self.spooled.store(spooled, Ordering::Release);
    }
}

/// The prefix of the data directory of this name, for the gateway that uses it now.
fn take_prefix(transaction: &Transaction<'_>, names: &DirectoryNames) -> Result<i64> {
    let names = params![names.directory, names.instance];
    let find = "UPDATE capture_slots SET instance = ?2 WHERE directory = ?1 RETURNING slot";
    if let Some(prefix) = transaction.int(find, &names)? {
        return Ok(prefix);
    }
    let add = "INSERT INTO capture_slots (directory, instance) VALUES (?1, ?2) RETURNING slot";
    let prefix = transaction.int(add, &names)?;
    prefix
        .filter(|prefix| (1..1 << (62 - SEGMENT_BITS)).contains(prefix))
        .ok_or_else(|| StoreError::unavailable("no slot for the captures of this gateway"))
}

/// The gateway that has the segment: its name if it is on the list of gateways, else its id.
pub(super) fn gateway_of(transaction: &Transaction<'_>, segment: i64) -> Result<Option<String>> {
    let find = "SELECT coalesce(max(g.name), s.instance) FROM capture_slots s
        LEFT JOIN gateways g ON g.instance = s.instance
        WHERE s.slot = ?1 GROUP BY s.instance";
    transaction.row(find, &params![segment >> SEGMENT_BITS], |row| Columns::new(row).get())
}

/// Inserts captures and updates their segment. Captures that were deleted before they came are not
/// stored.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    segment: &SegmentRow,
    rows: &[(CaptureRow, CaptureLocation)],
) -> Result<()> {
    transaction.exists("SELECT pg_advisory_xact_lock_shared(?1)", &params![LOCK])?;
    statements::put_segment(transaction, segment, rows)?;
    for rows in rows.chunks(ROWS_TOGETHER) {
        let mut values = Vec::new();
        rows.iter().try_for_each(|row| put_capture(row, true, &mut values))?;
        let values: Vec<Value<'_>> = values.iter().map(Written::value).collect();
        transaction.execute(&insert_of(rows.len()), &values)?;
    }
    let ids = || rows.iter().map(|(row, _)| &row.id);
    let (Some(first), Some(last)) = (ids().min(), ids().max()) else { return Ok(()) };
    // Copies of deleted captures are not stored either.
    let mark = format!(
        "INSERT INTO deleted_captures (id, at, copies, owner)
           SELECT c.id, {NOW}, 1, d.owner FROM captures c
             JOIN deleted_captures d ON d.id IN (c.replay_of, c.shadow_of)
           WHERE c.id BETWEEN ?1 AND ?2 AND d.copies = 1 AND (d.owner IS NULL OR d.owner = c.owner)
         ON CONFLICT (id) DO NOTHING"
    );
    transaction.execute(&mark, &params![first, last])?;
    let drop = "DELETE FROM captures c WHERE id BETWEEN ?1 AND ?2
        AND EXISTS (SELECT 1 FROM deleted_captures d WHERE d.id IN (c.id, c.owner))";
    transaction.execute(drop, &params![first, last])?;
    Ok(())
}

/// The statement that inserts this many rows. A row that exists already is replaced.
fn insert_of(rows: usize) -> String {
    let columns = capture_columns(true);
    let names: Vec<&str> = columns.split(", ").collect();
    let places: Vec<String> = (1..=rows * names.len()).map(|at| format!("?{at}")).collect();
    let rows: Vec<String> =
        places.chunks(names.len()).map(|row| format!("({})", row.join(","))).collect();
    let replaced: Vec<String> =
        names.iter().skip(1).map(|name| format!("{name} = excluded.{name}")).collect();
    format!(
        "INSERT INTO captures ({columns}) VALUES {} ON CONFLICT (id) DO UPDATE SET {}",
        rows.join(","),
        replaced.join(", ")
    )
}

/// As [`statements::delete`], for all gateways.
pub(super) fn delete(
    transaction: &Transaction<'_>,
    id: &RequestId,
    copies: bool,
    reach: &Reach,
) -> Result<Vec<RequestId>> {
    let owner = reach.owner();
    transaction.exists("SELECT pg_advisory_xact_lock(?1)", &params![LOCK])?;
    mark_deleted(transaction, id, copies, owner)?;
    let deleted = statements::delete(transaction, id, copies, reach)?;
    for other in deleted.iter().filter(|deleted| *deleted != id) {
        mark_deleted(transaction, other, copies, owner)?;
    }
    Ok(deleted)
}

fn mark_deleted(
    transaction: &Transaction<'_>,
    id: &RequestId,
    copies: bool,
    owner: Option<&UserId>,
) -> Result<()> {
    let mark = format!(
        "INSERT INTO deleted_captures (id, at, copies, owner) VALUES (?1, {NOW}, ?2, ?3)
         ON CONFLICT (id) DO UPDATE SET at = excluded.at, copies = excluded.copies,
           owner = excluded.owner
         WHERE excluded.copies >= deleted_captures.copies"
    );
    transaction.execute(&mark, &params![id, copies, owner])?;
    Ok(())
}

/// Forgets that these captures were deleted.
pub(super) fn forget_deletion_of(transaction: &Transaction<'_>, ids: &[RequestId]) -> Result<()> {
    for id in ids {
        transaction.execute("DELETE FROM deleted_captures WHERE id = ?1", &params![id])?;
    }
    Ok(())
}

/// Forgets deletions that are older than `kept`.
pub(super) fn forget_deleted(transaction: &Transaction<'_>, kept: Duration) -> Result<()> {
    let forget = format!("DELETE FROM deleted_captures WHERE at < {NOW} - ?1");
    transaction.execute(&forget, &params![kept])?;
    Ok(())
}

/// As [`super::CaptureIndex::left_behind`].
pub(super) fn left_behind(
    transaction: &Transaction<'_>,
    own: (i64, i64),
    before_us: i64,
    kept_us: i64,
) -> Result<Vec<i64>> {
    // A segment whose newest capture is not known has just begun.
    let find = format!(
        "SELECT number FROM segments WHERE newest > 0 AND newest < LEAST(?1, {NOW} - ?4)
           AND NOT (number BETWEEN ?2 AND ?3) ORDER BY newest LIMIT 256"
    );
    let values = params![before_us, own.0, own.1, kept_us];
    transaction.rows(&find, &values, |row| Columns::new(row).get())
}

/// Segments with these numbers that the object store lacks, and the time of the newest capture of
/// each, the oldest segment first.
pub(super) fn waiting(transaction: &Transaction<'_>, own: (i64, i64)) -> Result<Vec<(i64, i64)>> {
    let find = "SELECT number, newest FROM segments
        WHERE uploaded = 0 AND number BETWEEN ?1 AND ?2 ORDER BY number";
    transaction.rows(find, &params![own.0, own.1], |row| Columns::new(row).two())
}

/// Notes that the object store has the whole segment; `false` if there is no such segment.
pub(super) fn uploaded(transaction: &Transaction<'_>, number: i64) -> Result<bool> {
    let note = "UPDATE segments SET uploaded = 1 WHERE number = ?1";
    Ok(transaction.execute(note, &params![number])? == 1)
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
