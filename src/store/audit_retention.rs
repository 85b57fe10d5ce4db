//! How rows of the audit leave: by age, and where there are too many. It holds what strangers do as
//! well, who may do much, so that what they do leaves first, then what users do, and what admins
//! did last. Beyond a tenth of all that there may be strangers make room for themselves only,
//! beyond a half users for strangers and themselves: two fifths are left to admins whatever others
//! do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::audit::Rank;
use super::{Backend, Store, StoreError};
use crate::bounds;

/// Which rows are beyond the retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Surplus {
    /// Those before a time, in microseconds since the epoch.
    Old(i64),
    /// So many of the oldest of a rank, or of all.
    Many { rank: Option<Rank>, rows: u64 },
}

impl Store {
    /// Takes the rows out of the audit that are older than `before`, and of more than `rows` those
    /// that are to leave first: in steps, between which others write, and no more than
    /// [`bounds::AUDIT_STEPS`] of them. Gives how many have left.
    pub async fn trim_audit(&self, before: Timestamp, rows: u64) -> Result<u64, StoreError> {
        let (mut left, mut steps, before) = (0, bounds::AUDIT_STEPS, before.as_microsecond());
        let Backend::Sqlite(sqlite) = &*self.backend;
        // Mostly nothing is to leave, and then nothing is written.
        if sqlite
            .accounts_reader
            .read(&self.faults, move |connection| has_older(connection, before))
            .await?
        {
            left += self.take_out(Surplus::Old(before), &mut steps).await?;
        }
        if !sqlite
            .accounts_reader
            .read(&self.faults, move |connection| may_be_beyond(connection, rows))
            .await?
        {
            return Ok(left);
        }
        let counts =
            sqlite.accounts_reader.read(&self.faults, |connection| count(connection)).await?;
        for surplus in beyond(counts, rows) {
            left += self.take_out(surplus, &mut steps).await?;
        }
        Ok(left)
    }

    async fn take_out(&self, surplus: Surplus, steps: &mut usize) -> Result<u64, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let mut left = 0;
        let wanted = if let Surplus::Many { rows, .. } = surplus { rows } else { u64::MAX };
        while left < wanted && *steps > 0 {
            *steps -= 1;
            let most = (bounds::RETENTION_BATCH as u64).min(wanted - left);
            let taken = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&taken);
            let take = move |transaction: &Transaction<'_>| {
                count.store(delete(transaction, surplus, most)?, Ordering::Release);
                Ok(Vec::new())
            };
            sqlite.mutate(&Store { event: None, ..self.clone() }, take).await?;
            let taken = taken.load(Ordering::Acquire);
            left += taken;
            if taken < most {
                break;
            }
        }
        Ok(left)
    }
}

/// Whether anything is older than this.
const OLDER: &str = "SELECT EXISTS (SELECT 1 FROM audit WHERE at < ?1)";
/// How many rows there would be if none had left from between: at least as many as there are.
const SPAN: &str =
    "SELECT coalesce((SELECT max(seq) FROM audit) - (SELECT min(seq) FROM audit) + 1, 0)";
/// How many there are of a rank.
const OF_RANK: &str = "SELECT count(*) FROM audit WHERE rank = ?1";

fn has_older(connection: &Connection, before: i64) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached(OLDER)?.query_row([before], |row| row.get(0))?)
}

/// Whether there may be more than so many rows: mostly that is known from the first and the last,
/// and none is counted.
fn may_be_beyond(connection: &Connection, rows: u64) -> Result<bool, StoreError> {
    let span: i64 = connection.prepare_cached(SPAN)?.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(span).unwrap_or(0) > rows)
}

/// How many rows there are of each rank, the lowest first.
fn count(connection: &Connection) -> Result<[u64; 3], StoreError> {
    let mut of_rank = connection.prepare_cached(OF_RANK)?;
    let mut counts = [0; 3];
    for (count, rank) in counts.iter_mut().zip([Rank::Stranger, Rank::User, Rank::Admin]) {
        *count = u64::try_from(of_rank.query_row([rank as u8], |row| row.get::<_, i64>(0))?)
            .unwrap_or(0);
    }
    Ok(counts)
}

/// What is to leave where there may be only so many `rows`: of strangers what is beyond a tenth of
/// them, then of users what is beyond a half, and then the oldest whosever they are.
fn beyond([strangers, users, admins]: [u64; 3], rows: u64) -> Vec<Surplus> {
    let mut over = (strangers + users + admins).saturating_sub(rows);
    let mut surplus = Vec::new();
    let shares = [
        (Rank::Stranger, strangers, rows / bounds::AUDIT_STRANGERS),
        (Rank::User, users, rows / bounds::AUDIT_USERS),
    ];
    for (rank, there, share) in shares {
        let leave = over.min(there.saturating_sub(share));
        over -= leave;
        surplus.extend((leave > 0).then_some(Surplus::Many { rank: Some(rank), rows: leave }));
    }
    surplus.extend((over > 0).then_some(Surplus::Many { rank: None, rows: over }));
    surplus
}

const TAKE_OLD: &str =
    "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < ?1 ORDER BY at LIMIT ?2)";
const TAKE_OF_RANK: &str =
    "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE rank = ?1 ORDER BY seq LIMIT ?2)";
const TAKE_FIRST: &str =
    "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit ORDER BY seq LIMIT ?1)";

/// Takes the oldest out, up to `most`. The triggers let rows go for as long as the transaction says
/// that they are leaving.
fn delete(transaction: &Transaction<'_>, surplus: Surplus, most: u64) -> Result<u64, StoreError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    transaction.execute("INSERT INTO audit_leaving (one) VALUES (1)", [])?;
    let left = match surplus {
        Surplus::Old(before) => transaction.execute(TAKE_OLD, params![before, most]),
        Surplus::Many { rank: Some(rank), .. } => {
            transaction.execute(TAKE_OF_RANK, params![rank as u8, most])
        }
        Surplus::Many { rank: None, .. } => transaction.execute(TAKE_FIRST, params![most]),
    };
    transaction.execute("DELETE FROM audit_leaving", [])?;
    Ok(left? as u64)
}

#[cfg(test)]
#[path = "audit_retention_tests.rs"]
pub(super) mod tests;
