//! Statements on the index of captures, the same for both databases.

use std::collections::HashSet;

use super::rows::{CaptureLocation, CaptureRow, SegmentRow, location_columns};
use crate::Reach;
use crate::Result;
use crate::columns::Columns;
use crate::reach::in_list;
use crate::rows::Stored;
use crate::sql::{ToValue, Transaction, Value, params};
use rerouter_base::id::{KeyId, RequestId, UserId};

pub(super) fn whose(
    transaction: &Transaction<'_>,
    id: &RequestId,
) -> Result<Option<(UserId, Option<KeyId>)>> {
    transaction.row("SELECT owner, key FROM captures WHERE id = ?1", &params![id], |row| {
        let mut columns = Columns::new(row);
        Ok((columns.get()?, columns.maybe()?))
    })
}

pub(super) fn locate(
    transaction: &Transaction<'_>,
    id: &RequestId,
) -> Result<Option<CaptureLocation>> {
    let shared = transaction.is_shared();
    let sql = format!("SELECT {} FROM captures WHERE id = ?1", location_columns(shared, ", NULL"));
    transaction.row(&sql, &params![id], CaptureLocation::of)
}

pub(super) fn known(
    transaction: &Transaction<'_>,
    ids: &[RequestId],
) -> Result<HashSet<RequestId>> {
    let mut known = HashSet::new();
    if transaction.is_shared() {
        let select = "SELECT id FROM captures WHERE id = ANY(CAST(?1 AS TEXT[]))";
        let ids: Vec<_> = ids.iter().map(ToValue::value).collect();
        let found = transaction
            .rows(select, &[Value::Column(&ids)], |row| Columns::new(row).get::<RequestId>())?;
        return Ok(found.into_iter().collect());
    }
    for id in ids {
        if transaction.exists("SELECT 1 FROM captures WHERE id = ?1", &params![id])? {
            known.insert(id.clone());
        }
    }
    Ok(known)
}

/// Updates a segment to which these captures are added.
pub(crate) fn put_segment(
    transaction: &Transaction<'_>,
    segment: &SegmentRow,
    added: &[(CaptureRow, CaptureLocation)],
) -> Result<()> {
    let ids = || added.iter().map(|(row, _)| row.id.as_str());
    // Without captures the range is empty, and any capture makes it larger. No id begins with `~`.
    let (first, last) = (ids().min().unwrap_or("~"), ids().max().unwrap_or_default());
    let put = "INSERT INTO segments (number, newest, bytes, first, last)
        VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (number) DO UPDATE SET
          newest = CASE WHEN excluded.newest > segments.newest
            THEN excluded.newest ELSE segments.newest END,
          bytes = CASE WHEN excluded.bytes > segments.bytes
            THEN excluded.bytes ELSE segments.bytes END,
          first = CASE WHEN excluded.first < segments.first
            THEN excluded.first ELSE segments.first END,
          last = CASE WHEN excluded.last > segments.last
            THEN excluded.last ELSE segments.last END";
    let values = params![segment.number, segment.newest_us, segment.bytes, first, last];
    transaction.execute(put, &values).map(drop)
}

/// As [`super::CaptureIndex::delete`]. Returns all that it deleted.
pub(super) fn delete(
    transaction: &Transaction<'_>,
    id: &RequestId,
    copies: bool,
    reach: &Reach,
) -> Result<Vec<RequestId>> {
    if !copies {
        let deleted = transaction.execute("DELETE FROM captures WHERE id = ?1", &params![id])?;
        return Ok(if deleted > 0 { vec![id.clone()] } else { Vec::new() });
    }
    // `UNION` ends the recursion even if captures refer to each other in a circle.
    let (shared, owner, keys) = (transaction.is_shared(), reach.owner(), reach.keys());
    let family = format!(
        "WITH RECURSIVE family (id) AS (
            SELECT CAST(?1 AS TEXT){}
            UNION SELECT c.id FROM captures c
              JOIN family f ON c.replay_of = f.id OR c.shadow_of = f.id
              WHERE (CAST(?2 AS TEXT) IS NULL OR c.owner = ?2)
                AND (CAST(?3 AS TEXT) IS NULL OR {}))
          DELETE FROM captures WHERE id IN (SELECT id FROM family) RETURNING id",
        if shared { r#" COLLATE "C""# } else { "" },
        in_list("c.key", "?3", shared),
    );
    let values = params![id, owner, keys];
    transaction.rows(&family, &values, |row| Columns::new(row).get())
}

pub(super) fn segments(
    transaction: &Transaction<'_>,
    numbers: (i64, i64),
) -> Result<Vec<(SegmentRow, bool)>> {
    let all = "SELECT number, newest, bytes,
           EXISTS (SELECT 1 FROM captures
             WHERE id BETWEEN first AND last AND segment = number)
         FROM segments WHERE number BETWEEN ?1 AND ?2 ORDER BY newest, number";
    transaction.rows(all, &params![numbers.0, numbers.1], |row| {
        let mut columns = Columns::new(row);
        Ok((SegmentRow::read(&mut columns)?, columns.get()?))
    })
}

/// Deletes up to `limit` captures of a segment, the oldest first.
pub(super) fn drop_captures(
    transaction: &Transaction<'_>,
    segment: i64,
    limit: usize,
) -> Result<usize> {
    let drop = "DELETE FROM captures WHERE id IN (
        SELECT id FROM captures
        WHERE id BETWEEN (SELECT first FROM segments WHERE number = ?1)
            AND (SELECT last FROM segments WHERE number = ?1)
          AND segment = ?1
        ORDER BY id LIMIT ?2)
      RETURNING id";
    let ids = transaction
        .rows(drop, &params![segment, limit], |row| Columns::new(row).get::<String>())?;
    if let Some(last) = ids.iter().max() {
        // The next call begins there.
        let first = "UPDATE segments SET first = ?2 WHERE number = ?1";
        transaction.execute(first, &params![segment, last])?;
    }
    Ok(ids.len())
}

pub(super) fn drop_segment(transaction: &Transaction<'_>, number: i64) -> Result<()> {
    transaction.execute("DELETE FROM segments WHERE number = ?1", &params![number]).map(drop)
}
