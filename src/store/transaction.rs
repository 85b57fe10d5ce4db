//! Transactions on `accounts.db`. A mutation moves the revision on in its transaction: the order of
//! revisions is the order of commits, without gaps.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::audit::{self, Event};
use super::changes::{Change, Committed};
use super::{Faults, PanicPoint, StoreError};

/// Runs `work` in a transaction, which commits if it succeeds. Sets `committing` before the commit.
pub(super) fn run<T>(
    connection: &mut Connection,
    faults: &Faults,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    committing: &mut bool,
) -> Result<T, StoreError> {
    faults.before_write()?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    faults.pass(PanicPoint::Commit);
    *committing = true;
    transaction.commit()?;
    Ok(done)
}

/// Runs a mutation in `transaction`, with the audit rows of `event`. Without changes there is
/// neither a new revision nor an audit row.
pub(super) fn mutate(
    transaction: &Transaction<'_>,
    event: Option<&Event>,
    work: impl FnOnce(&Transaction<'_>) -> Result<Vec<Change>, StoreError>,
) -> Result<Committed, StoreError> {
    let changes = work(transaction)?;
    let next = if changes.is_empty() {
        "SELECT rev FROM state"
    } else {
        event.map_or(Ok(()), |event| audit::insert_all(transaction, event, &changes))?;
        "UPDATE state SET rev = rev + 1 RETURNING rev"
    };
    let rev: i64 = transaction.prepare_cached(next)?.query_row([], |row| row.get(0))?;
    Ok(Committed { rev: u64::try_from(rev).unwrap_or(0), changes })
}

/// Whether the database can be locked for writing and read.
pub(super) fn check_health(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    Ok(transaction.query_row("SELECT rev FROM state", [], |_| Ok(()))?)
}
