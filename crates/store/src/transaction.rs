//! The common part of all mutations. A mutation increases the revision in its transaction, so the
//! order of revisions is the order of commits, without gaps.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use super::Result;
use super::audit::{self, Event};
use super::changes::{Change, Committed, Follower};
use super::cluster::record;
use super::columns::Columns;
use super::sql::Transaction;

/// Runs a mutation in `transaction`, with the audit rows of `event`. Without changes there is
/// neither a new revision nor an audit row.
pub(super) fn mutate(
    transaction: &Transaction<'_>,
    event: Option<&Event>,
    work: impl FnOnce(&Transaction<'_>) -> Result<Vec<Change>>,
) -> Result<Committed> {
    let changes = work(transaction)?;
    let rev = if changes.is_empty() {
        transaction.revision()?
    } else {
        event.map_or(Ok(()), |event| audit::insert_all(transaction, event, &changes))?;
        let next = "UPDATE state SET rev = rev + 1 RETURNING rev";
        let rev = transaction.row(next, &[], |row| Columns::new(row).get())?.unwrap_or(0);
        if transaction.is_shared() {
            record(transaction, rev, &changes)?;
        }
        rev
    };
    Ok(Committed { rev, changes })
}

/// Calls the follower with a durable mutation. If the follower panics, the process aborts, because
/// the tables might still accept a key that has ended. The next start reads them whole.
pub(super) fn follow(follower: &OnceLock<Arc<dyn Follower>>, committed: &Committed) {
    if let Some(follower) = follower.get()
        && !committed.changes.is_empty()
    {
        abort_if_it_panics(|| follower.apply(committed));
    }
}

/// Runs a step of the tables in memory that must not fail half-way.
pub(super) fn abort_if_it_panics(step: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(step)).is_err() {
        log::error!("a table in memory failed to follow a durable change: aborting");
        std::process::abort();
    }
}
