//! Deletes audit rows by age and by number, the oldest first.

use jiff::Timestamp;

use super::sql::{Transaction, params};
use super::{Result, Store};

/// Maximum number of rows that retention deletes in one transaction: keys, audit rows, copies of
/// captures.
pub(super) const RETENTION_BATCH: usize = 500;
/// Maximum number of batches of [`RETENTION_BATCH`] rows that one run of the retention deletes:
/// more than can be added until the next run.
const AUDIT_STEPS: usize = 1_000;

impl Store {
    /// Deletes the audit rows from before `before`, and all but the last `rows` that were written.
    /// It works in steps, so that others can write in between, and in at most [`AUDIT_STEPS`].
    pub async fn trim_audit(&self, before: Timestamp, rows: u64) -> Result<u64> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let mut deleted = 0;
        for _ in 0..AUDIT_STEPS {
            // Usually no row has to be deleted, so nothing is written.
            if !self.read(move |transaction| has_surplus(transaction, before, rows)).await? {
                break;
            }
            deleted += self.write(move |transaction| delete(transaction, before, rows)).await?;
        }
        Ok(deleted)
    }
}

pub(super) const HAS_OLD: &str = "SELECT 1 FROM audit WHERE at < ?1 LIMIT 1";
/// The numbers of rows have no gaps, except where the clock was set and rows were deleted by their
/// age.
pub(super) const HAS_FIRST: &str =
    "SELECT 1 WHERE (SELECT min(seq) FROM audit) <= (SELECT max(seq) FROM audit) - ?1";
pub(super) const DELETE_OLD: &str =
    "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < ?1 ORDER BY at LIMIT ?2)";
pub(super) const DELETE_FIRST: &str = "
    DELETE FROM audit WHERE seq IN
      (SELECT seq FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - ?1 ORDER BY seq LIMIT ?2)";

fn has_surplus(transaction: &Transaction<'_>, before: Timestamp, rows: i64) -> Result<bool> {
    Ok(transaction.exists(HAS_OLD, &params![before])?
        || transaction.exists(HAS_FIRST, &params![rows])?)
}

/// Deletes up to [`RETENTION_BATCH`] rows by their age and as many by their number. The triggers of
/// the table permit that while `audit_leaving` holds a row, within this transaction.
fn delete(transaction: &Transaction<'_>, before: Timestamp, rows: i64) -> Result<u64> {
    transaction.execute("INSERT INTO audit_leaving (one) VALUES (1)", &[])?;
    let old = transaction.execute(DELETE_OLD, &params![before, RETENTION_BATCH])?;
    let first = transaction.execute(DELETE_FIRST, &params![rows, RETENTION_BATCH])?;
    transaction.execute("DELETE FROM audit_leaving", &[])?;
    Ok((old + first) as u64)
}
