//! Deletes audit rows by age and by number, the oldest first.

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::{Store, StoreError};
use crate::bounds;

impl Store {
    /// Deletes the audit rows from before `before`, and all but the last `rows` that were written.
    /// It works in steps, so that others can write in between, and in at most
    /// [`bounds::AUDIT_STEPS`]. Returns how many rows it deleted.
    pub async fn trim_audit(&self, before: Timestamp, rows: u64) -> Result<u64, StoreError> {
        let (before, rows) = (before.as_microsecond(), i64::try_from(rows).unwrap_or(i64::MAX));
        let mut deleted = 0;
        for _ in 0..bounds::AUDIT_STEPS {
            // Usually no row has to leave, and nothing is written.
            if !self.read(move |connection| has_surplus(connection, before, rows)).await? {
                break;
            }
            deleted += self.write(move |transaction| delete(transaction, before, rows)).await?;
        }
        Ok(deleted)
    }
}

const HAS_OLD: &str = "SELECT EXISTS (SELECT 1 FROM audit WHERE at < ?1)";
/// Numbers of rows have no gaps, except where a clock was set and rows left by their age.
const HAS_FIRST: &str = "SELECT (SELECT min(seq) FROM audit) <= (SELECT max(seq) FROM audit) - ?1";
const DELETE_OLD: &str =
    "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < ?1 ORDER BY at LIMIT ?2)";
const DELETE_FIRST: &str = "
    DELETE FROM audit WHERE seq IN
      (SELECT seq FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - ?1 ORDER BY seq LIMIT ?2)";

fn has_surplus(connection: &Connection, before: i64, rows: i64) -> Result<bool, StoreError> {
    let has = |query: &str, bound: i64| -> rusqlite::Result<bool> {
        let found: Option<bool> =
            connection.prepare_cached(query)?.query_row([bound], |row| row.get(0))?;
        Ok(found.unwrap_or(false))
    };
    Ok(has(HAS_OLD, before)? || has(HAS_FIRST, rows)?)
}

/// Deletes up to [`bounds::RETENTION_BATCH`] rows of each kind. The triggers permit it while
/// `audit_leaving` holds a row, within this transaction.
fn delete(transaction: &Transaction<'_>, before: i64, rows: i64) -> Result<u64, StoreError> {
    let most = i64::try_from(bounds::RETENTION_BATCH).unwrap_or(i64::MAX);
    transaction.execute("INSERT INTO audit_leaving (one) VALUES (1)", [])?;
    let old = transaction.prepare_cached(DELETE_OLD)?.execute(params![before, most])?;
    let first = transaction.prepare_cached(DELETE_FIRST)?.execute(params![rows, most])?;
    transaction.execute("DELETE FROM audit_leaving", [])?;
    Ok((old + first) as u64)
}

#[cfg(test)]
#[path = "audit_retention_tests.rs"]
pub(super) mod tests;
