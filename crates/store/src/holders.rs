//! Processes that may spend budgets, and the number of each write to the tables of spend.

use super::Result;
use super::sql::{Transaction, params};

/// The number of the next write.
pub(super) fn next_rev(transaction: &Transaction<'_>) -> Result<i64> {
    let next = "UPDATE state SET spend_rev = spend_rev + 1 RETURNING spend_rev";
    Ok(transaction.int(next, &[])?.unwrap_or(0))
}

pub(super) fn is_holder(transaction: &Transaction<'_>, holder: i64) -> Result<bool> {
    transaction.exists("SELECT 1 FROM holders WHERE holder = ?1", &params![holder])
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
    let rev = next_rev(transaction)?;
    let end = format!("DELETE FROM holders WHERE {which} RETURNING holder");
    let ended = transaction.rows(&end, &params![holder], |row| Ok(row.int(0)?.unwrap_or(0)))?;
    let lost = "UPDATE holds SET rev = ?2 WHERE held > 0 AND holder = ?1";
    ended
        .iter()
        .try_for_each(|holder| transaction.execute(lost, &params![*holder, rev]).map(|_| ()))
}
