//! Rows in `captures.db` that belong into PostgreSQL: of a time in which that was away, or of the
//! time before this data directory had one.

use super::rows::{CaptureLocation, CaptureRow, STATES, SegmentRow};
use super::statements::{self, COLUMNS, unsigned};
use crate::StoreError;
use crate::columns::Columns;
use crate::sql::{Row, Transaction, params};
use rerouter_base::id::{KeyId, RequestId, UserId};

/// A segment, and captures in it.
pub(super) type CaptureBatch = (SegmentRow, Vec<(CaptureRow, CaptureLocation)>);

/// Up to `limit` captures of one segment; `None` if there is none any more.
pub(super) fn batch(
    transaction: &Transaction<'_>,
    limit: usize,
) -> Result<Option<CaptureBatch>, StoreError> {
    let first = "SELECT number, newest, bytes FROM segments ORDER BY number LIMIT 1";
    let segment = transaction.row(first, &[], |row| {
        let mut columns = Columns::of(row);
        let (number, newest_us) = (columns.get()?, columns.get()?);
        Ok(SegmentRow { number, newest_us, bytes: unsigned(columns.get()?) })
    })?;
    let Some(segment) = segment else { return Ok(None) };
    let captures = format!(
        "SELECT {COLUMNS} FROM captures
         WHERE id BETWEEN (SELECT first FROM segments WHERE number = ?1)
             AND (SELECT last FROM segments WHERE number = ?1)
           AND segment = ?1
         ORDER BY id LIMIT ?2"
    );
    let rows = transaction.rows(&captures, &params![segment.number, limit], capture)?;
    Ok(Some((segment, rows)))
}

/// Deletes captures that PostgreSQL has, and their segment once it has none.
pub(super) fn taken(
    transaction: &Transaction<'_>,
    segment: i64,
    ids: &[RequestId],
) -> Result<(), StoreError> {
    for id in ids {
        let delete = "DELETE FROM captures WHERE id = ?1 AND segment = ?2";
        transaction.execute(delete, &params![id, segment])?;
    }
    let empty = "DELETE FROM segments WHERE number = ?1 AND NOT EXISTS (
        SELECT 1 FROM captures WHERE id BETWEEN first AND last AND segment = ?1)";
    transaction.execute(empty, &params![segment])?;
    Ok(())
}

fn capture(row: &Row<'_>) -> Result<(CaptureRow, CaptureLocation), StoreError> {
    let mut columns = Columns::of(row);
    let state = |word: &str| STATES.into_iter().find(|state| *state == word);
    let found = CaptureRow {
        id: RequestId::known(columns.text()?),
        created_at_us: columns.get()?,
        owner: UserId::known(columns.text()?),
        key: columns.maybe_text()?.map(KeyId::known),
        alias: columns.maybe_text()?.map(Into::into),
        recipe: columns.maybe_text()?.map(Into::into),
        provider: columns.maybe_text()?.map(Into::into),
        model: columns.maybe_text()?.map(Into::into),
        decided_provider: columns.maybe_text()?.map(Into::into),
        decided_model: columns.maybe_text()?.map(Into::into),
        status: u16::try_from(columns.get::<u32>()?).unwrap_or(0),
        state: columns.word(state)?,
        replay_of: columns.maybe_text()?.map(RequestId::known),
        shadow_of: columns.maybe_text()?.map(RequestId::known),
    };
    Ok((found, statements::location(&mut columns, false)?))
}
