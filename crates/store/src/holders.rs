//! Processes that may spend budgets, and the number of each write to the tables of spend.

use super::Result;
use super::sql::{Transaction, params};

/// The number of this write, as SQL. In PostgreSQL it is that of the transaction: writers wait for
/// no common row, so one with a smaller number may commit later.
pub(super) fn next_rev(transaction: &Transaction<'_>) -> Result<&'static str> {
    if transaction.is_shared() {
        return Ok("CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)");
    }
    transaction.execute("UPDATE state SET spend_rev = spend_rev + 1", &[])?;
    Ok("(SELECT spend_rev FROM state)")
}

/// Two pieces of SQL. The first is a text that names the writes which this statement sees. The
/// second is a condition on `rev`: the statement that returned the text `?2` did not see the write.
/// Rows that were copied from another database may have larger numbers than any write here.
pub(super) fn seen_and_unseen(transaction: &Transaction<'_>) -> (&'static str, &'static str) {
    match transaction.is_shared() {
        true => (
            "CAST(pg_current_snapshot() AS TEXT)",
            "rev >= CAST(CAST(pg_snapshot_xmin(CAST(?2 AS pg_snapshot)) AS TEXT) AS BIGINT)
             AND rev < CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT)
             AND NOT pg_visible_in_snapshot(CAST(CAST(rev AS TEXT) AS xid8),
               CAST(?2 AS pg_snapshot))",
        ),
        false => ("(SELECT CAST(spend_rev AS TEXT) FROM state)", "rev > CAST(?2 AS INTEGER)"),
    }
}

/// The number behind the last write that a text of [`seen_and_unseen`] names: 5 for `5`, and for
/// `3:5:3,4`, a snapshot of PostgreSQL.
pub(super) fn end_of(seen: &str) -> u64 {
    let end = seen.split(':').nth(1).unwrap_or(seen);
    end.parse().unwrap_or(0)
}

/// Ends all processes but one: they died. What they hold is lost.
pub(super) fn end_other_holders(transaction: &Transaction<'_>, holder: i64) -> Result<()> {
    end_holders(transaction, "holder <> ?1", holder)
}

/// Ends the processes of gateways that are no longer on the list. What they hold is lost.
pub(super) fn end_dead_holders(transaction: &Transaction<'_>) -> Result<()> {
    let dead = "process NOT IN (SELECT process FROM gateways) AND ?1 = 0";
    // Usually none is dead, and nobody has to wait.
    match transaction.exists(&format!("SELECT 1 FROM holders WHERE {dead}"), &params![0i64])? {
        true => end_holders(transaction, dead, 0),
        false => Ok(()),
    }
}

fn end_holders(transaction: &Transaction<'_>, which: &str, holder: i64) -> Result<()> {
    // First the rows of the processes: one that writes holds has locked its own.
    let end = format!("DELETE FROM holders WHERE {which} RETURNING holder");
    let ended = transaction.rows(&end, &params![holder], |row| Ok(row.int(0)?.unwrap_or(0)))?;
    let rev = next_rev(transaction)?;
    let lost = format!("UPDATE holds SET rev = {rev} WHERE held > 0 AND holder = ?1");
    ended.iter().try_for_each(|holder| transaction.execute(&lost, &params![*holder]).map(|_| ()))
}
