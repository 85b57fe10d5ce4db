//! Rows in `captures.db` that belong in PostgreSQL. They are from a time in which PostgreSQL was
//! unreachable, or from before this data directory used PostgreSQL.

use super::rows::{CaptureLocation, CaptureRow, SegmentRow, capture_columns};
use crate::Result;
use crate::columns::Columns;
use crate::rows::Stored;
use crate::sql::{Row, Transaction, params};
use rerouter_base::id::RequestId;

pub(super) type CaptureBatch = (SegmentRow, Vec<(CaptureRow, CaptureLocation)>);

/// Up to `limit` captures of one segment; `None` if there are no more.
pub(super) fn batch(transaction: &Transaction<'_>, limit: usize) -> Result<Option<CaptureBatch>> {
    let first = SegmentRow::select("ORDER BY number LIMIT 1");
    let segment = transaction.row(&first, &[], SegmentRow::of)?;
    let Some(segment) = segment else { return Ok(None) };
    let captures = format!(
        "SELECT {}, NULL FROM captures
         WHERE id BETWEEN (SELECT first FROM segments WHERE number = ?1)
             AND (SELECT last FROM segments WHERE number = ?1)
           AND segment = ?1
         ORDER BY id LIMIT ?2",
        capture_columns(false)
    );
    let rows = transaction.rows(&captures, &params![segment.number, limit], capture)?;
    Ok(Some((segment, rows)))
}

/// Deletes captures that PostgreSQL has now, and their segment once it has no more captures.
pub(super) fn taken(transaction: &Transaction<'_>, segment: i64, ids: &[RequestId]) -> Result<()> {
    for id in ids {
        let delete = "DELETE FROM captures WHERE id = ?1 AND segment = ?2";
        transaction.execute(delete, &params![id, segment])?;
    }
    let empty = "DELETE FROM segments WHERE number = ?1 AND NOT EXISTS (
        SELECT 1 FROM captures WHERE id BETWEEN first AND last AND segment = ?1)";
    transaction.execute(empty, &params![segment]).map(drop)
}

fn capture(row: &Row<'_>) -> Result<(CaptureRow, CaptureLocation)> {
    let mut columns = Columns::new(row);
    Ok((CaptureRow::read(&mut columns)?, CaptureLocation::read(&mut columns)?))
}
