//! The index of captures in PostgreSQL, which several gateways share. Each gateway inserts rows of
//! its own segments, whose numbers belong to its slot. Each gateway reads and deletes all rows.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::rows::{CaptureLocation, CaptureRow, SegmentRow, capture_columns, put_capture};
use super::statements;
use crate::columns::{Columns, Written};
use crate::directory_names::DirectoryNames;
use crate::postgres::Database;
use crate::sql::{NOW, ToValue, Transaction, Value, Work, params, transposed, unnest};
use crate::{Reach, Result, StoreError};
use rerouter_base::id::{RequestId, UserId};

/// Bits of the number of a segment within its slot.
const SEGMENT_BITS: u32 = 32;
/// The advisory lock that inserts share, and that a deletion takes alone. The number has no
/// meaning, and no other program uses it.
const LOCK: i64 = 7_263_480_254_919_331_448;

pub(crate) struct SharedCaptures {
    database: Database,
    /// The name of this gateway.
    pub(crate) instance: String,
    /// The name of its data directory.
    pub(crate) directory: String,
    prefix: i64,
    /// Whether the local database may hold rows that PostgreSQL lacks.
    spooled: AtomicBool,
    /// Whether an insert failed, and not all rows that came since have been moved. New rows join
    /// them, so that no row waits for a database that does not answer.
    away: AtomicBool,
}

impl SharedCaptures {
    /// `prefix` is from [`take_prefix`].
    pub(crate) fn of(database: Database, names: DirectoryNames, prefix: i64) -> Self {
        SharedCaptures {
            database,
            instance: names.instance,
            directory: names.directory,
            prefix,
            spooled: AtomicBool::new(true),
            away: AtomicBool::new(false),
        }
    }

    pub(super) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.database.read(work).await
    }

    /// Runs a write. If it is not durable, it may be lost when the server crashes within the next
    /// second.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        durable: bool,
        work: impl Work<T>,
    ) -> Result<T> {
        self.write_after("", durable, work).await
    }

    /// As [`SharedCaptures::write`], for [`insert`]: it waits for deletions under way before its
    /// statements, so that they see them.
    pub(super) async fn write_rows(&self, durable: bool, work: impl Work<()>) -> Result<()> {
        let lock = format!("SELECT pg_advisory_xact_lock_shared({LOCK})");
        self.write_after(&lock, durable, work).await
    }

    async fn write_after<T: Send + 'static>(
        &self,
        first: &str,
        durable: bool,
        work: impl Work<T>,
    ) -> Result<T> {
        let kept = if durable { "" } else { "SET LOCAL synchronous_commit TO OFF; " };
        self.database.write_after(format!("{kept}{first}"), work).await
    }

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
pub(crate) fn take_prefix(transaction: &Transaction<'_>, names: &DirectoryNames) -> Result<i64> {
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
/// stored, nor are copies of those.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    segment: &SegmentRow,
    rows: &[(CaptureRow, CaptureLocation)],
) -> Result<()> {
    statements::put_segment(transaction, segment, rows)?;
    let written: Vec<Vec<Written<'_>>> = rows
        .iter()
        .map(|row| {
            let mut values = Vec::new();
            put_capture(row, true, &mut values).map(|()| values)
        })
        .collect::<Result<_>>()?;
    let values: Vec<Vec<Value<'_>>> =
        written.iter().map(|row| row.iter().map(Written::value).collect()).collect();
    let columns = transposed(&values);
    let columns: Vec<_> = columns.iter().map(|column| Value::Column(column)).collect();
    if columns.is_empty() { Ok(()) } else { transaction.execute(&INSERT, &columns).map(drop) }
}

/// A row that exists already is replaced. Copies of what was deleted count as deleted too.
static INSERT: LazyLock<String> = LazyLock::new(|| {
    let columns = capture_columns(true);
    let names: Vec<&str> = columns.split(", ").collect();
    let kinds = names.iter().map(|name| match *name {
        "created_at" | "status" | "segment" | "head_at" | "head_len" | "bodies_at"
        | "bodies_len" => "BIGINT",
        "salt" | "head" => "BYTEA",
        _ => "TEXT",
    });
    let replaced: Vec<String> =
        names.iter().skip(1).map(|name| format!("{name} = excluded.{name}")).collect();
    format!(
        "WITH new AS (SELECT * FROM {} AS new ({columns})),
           copies AS (SELECT c.id, d.owner FROM new c
             JOIN deleted_captures d ON d.id IN (c.replay_of, c.shadow_of)
             WHERE d.copies = 1 AND (d.owner IS NULL OR d.owner = c.owner)),
           marked AS (INSERT INTO deleted_captures (id, at, copies, owner)
             SELECT id, {NOW}, 1, owner FROM copies ON CONFLICT (id) DO NOTHING)
         INSERT INTO captures ({columns}) SELECT * FROM new c
           WHERE c.id NOT IN (SELECT id FROM copies)
             AND NOT EXISTS (SELECT 1 FROM deleted_captures d WHERE d.id IN (c.id, c.owner))
         ON CONFLICT (id) DO UPDATE SET {}",
        unnest(kinds, 1),
        replaced.join(", ")
    )
});

/// As [`statements::delete`], for all gateways.
pub(super) fn delete(
    transaction: &Transaction<'_>,
    id: &RequestId,
    copies: bool,
    reach: &Reach,
) -> Result<Vec<RequestId>> {
    let owner = reach.owner();
    transaction.exists("SELECT pg_advisory_xact_lock(?1)", &params![LOCK])?;
    mark_deleted(transaction, std::slice::from_ref(id), copies, owner)?;
    let deleted = statements::delete(transaction, id, copies, reach)?;
    mark_deleted(transaction, &deleted, copies, owner)?;
    Ok(deleted)
}

/// Deletes captures, with two statements for all of them.
pub(super) fn erase(transaction: &Transaction<'_>, ids: &[RequestId]) -> Result<()> {
    transaction.exists("SELECT pg_advisory_xact_lock(?1)", &params![LOCK])?;
    mark_deleted(transaction, ids, false, None)?;
    delete_ids(transaction, "captures", ids)
}

fn mark_deleted(
    transaction: &Transaction<'_>,
    ids: &[RequestId],
    copies: bool,
    owner: Option<&UserId>,
) -> Result<()> {
    let mark = format!(
        "INSERT INTO deleted_captures (id, at, copies, owner)
           SELECT id, {NOW}, ?2, ?3 FROM unnest(CAST(?1 AS TEXT[])) AS deleted (id)
         ON CONFLICT (id) DO UPDATE SET at = excluded.at, copies = excluded.copies,
           owner = excluded.owner
         WHERE excluded.copies >= deleted_captures.copies"
    );
    let ids: Vec<_> = ids.iter().map(ToValue::value).collect();
    let owner = owner.map_or(Value::Null, ToValue::value);
    transaction.execute(&mark, &[Value::Column(&ids), copies.value(), owner]).map(drop)
}

pub(super) fn delete_ids(
    transaction: &Transaction<'_>,
    table: &str,
    ids: &[RequestId],
) -> Result<()> {
    let delete = format!("DELETE FROM {table} WHERE id = ANY(CAST(?1 AS TEXT[]))");
    let ids: Vec<_> = ids.iter().map(ToValue::value).collect();
    transaction.execute(&delete, &[Value::Column(&ids)]).map(drop)
}

pub(super) fn forget_deleted(transaction: &Transaction<'_>, kept: Duration) -> Result<()> {
    let forget = format!("DELETE FROM deleted_captures WHERE at < {NOW} - ?1");
    transaction.execute(&forget, &params![kept]).map(drop)
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

pub(super) fn waiting(transaction: &Transaction<'_>, own: (i64, i64)) -> Result<Vec<(i64, i64)>> {
    let find = "SELECT number, newest FROM segments
        WHERE uploaded = 0 AND number BETWEEN ?1 AND ?2 ORDER BY number";
    transaction.rows(find, &params![own.0, own.1], |row| Columns::new(row).two())
}

pub(super) fn uploaded(transaction: &Transaction<'_>, number: i64) -> Result<bool> {
    let note = "UPDATE segments SET uploaded = 1 WHERE number = ?1";
    Ok(transaction.execute(note, &params![number])? == 1)
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
