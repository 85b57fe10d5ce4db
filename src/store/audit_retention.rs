//! How rows of the audit leave: by age, and where there are too many. It holds what strangers do as well, who may do much, so that
//! what they do leaves first, then what users do, and what admins did last. Each has a share that the others' flood does not take: a
//! tenth, a half, and for admins the rest.

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
    /// Takes the rows out of the audit that are older than `before`, and of more than `rows` those that are to leave first: in
    /// steps, between which others write, and no more than [`bounds::AUDIT_STEPS`] of them. Gives how many have left.
    pub async fn trim_audit(&self, before: Timestamp, rows: u64) -> Result<u64, StoreError> {
        let (mut left, mut steps, before) = (0, bounds::AUDIT_STEPS, before.as_microsecond());
        let Backend::Sqlite(sqlite) = &*self.backend;
        // Mostly nothing is to leave, and then nothing is written.
        if sqlite.accounts_reader.run(move |connection| has_older(connection, before)).await? {
            left += self.take_out(Surplus::Old(before), &mut steps).await?;
        }
        let counts = sqlite.accounts_reader.run(|connection| count(connection)).await?;
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

fn has_older(connection: &Connection, before: i64) -> Result<bool, StoreError> {
    let mut older = connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM audit WHERE at < ?1)")?;
    Ok(older.query_row([before], |row| row.get(0))?)
}

/// How many rows there are of each rank, the lowest first.
fn count(connection: &Connection) -> Result<[u64; 3], StoreError> {
    let mut of_rank = connection.prepare_cached("SELECT count(*) FROM audit WHERE rank = ?1")?;
    let mut counts = [0; 3];
    for (count, rank) in counts.iter_mut().zip([Rank::Stranger, Rank::User, Rank::Admin]) {
        *count = u64::try_from(of_rank.query_row([rank as u8], |row| row.get::<_, i64>(0))?).unwrap_or(0);
    }
    Ok(counts)
}

/// What is to leave where there may be only so many `rows`: of strangers what is beyond a tenth of them, then of users what is
/// beyond a half, and then the oldest whosever they are.
fn beyond([strangers, users, admins]: [u64; 3], rows: u64) -> Vec<Surplus> {
    let mut over = (strangers + users + admins).saturating_sub(rows);
    let mut surplus = Vec::new();
    let shares = [(Rank::Stranger, strangers, rows / bounds::AUDIT_STRANGERS), (Rank::User, users, rows / bounds::AUDIT_USERS)];
    for (rank, there, share) in shares {
        let leave = over.min(there.saturating_sub(share));
        over -= leave;
        surplus.extend((leave > 0).then_some(Surplus::Many { rank: Some(rank), rows: leave }));
    }
    surplus.extend((over > 0).then_some(Surplus::Many { rank: None, rows: over }));
    surplus
}

/// Takes the oldest out, up to `most`. The triggers let rows go for as long as the transaction says that they are leaving.
fn delete(transaction: &Transaction<'_>, surplus: Surplus, most: u64) -> Result<u64, StoreError> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    transaction.execute("INSERT INTO audit_leaving (one) VALUES (1)", [])?;
    let left = match surplus {
        Surplus::Old(before) => transaction
            .execute("DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE at < ?1 ORDER BY at LIMIT ?2)", params![before, most]),
        Surplus::Many { rank: Some(rank), .. } => transaction.execute(
            "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE rank = ?1 ORDER BY seq LIMIT ?2)",
            params![rank as u8, most],
        ),
        Surplus::Many { rank: None, .. } => {
            transaction.execute("DELETE FROM audit WHERE seq IN (SELECT seq FROM audit ORDER BY seq LIMIT ?1)", params![most])
        }
    };
    transaction.execute("DELETE FROM audit_leaving", [])?;
    Ok(left? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::audit::{Action, AuditFilter, Event};
    use crate::store::rows::Actor;
    use crate::store::tests::at;

    fn many(rank: Option<Rank>, rows: u64) -> Surplus {
        Surplus::Many { rank, rows }
    }

    #[test]
    fn what_strangers_do_leaves_first_and_what_admins_did_last() {
        let (stranger, user) = (Some(Rank::Stranger), Some(Rank::User));
        for (counts, expected) in [
            ([0, 0, 100], vec![]),
            ([50, 30, 20], vec![]),
            ([60, 30, 20], vec![many(stranger, 10)]),
            // A tenth is theirs, whoever else does much.
            ([10, 90, 20], vec![many(user, 20)]),
            ([15, 70, 40], vec![many(stranger, 5), many(user, 20)]),
            ([0, 0, 130], vec![many(None, 30)]),
            ([1_000, 1_000, 95], vec![many(stranger, 990), many(user, 950), many(None, 55)]),
        ] {
            assert_eq!(beyond(counts, 100), expected, "{counts:?}");
        }
    }

    async fn note(store: &Store, second: i64, rank: Rank, times: usize) {
        for n in 0..times {
            let actor = Actor { kind: "session".into(), id: format!("{rank:?}") };
            store.note(Event::new(at(second), (actor, rank), Action::KeyCreate, "key", &format!("{second}-{n}"))).await.unwrap();
        }
    }

    async fn left(store: &Store) -> Vec<(String, String)> {
        let rows = store.audit(AuditFilter::default(), 10_000, None).await.unwrap().unwrap();
        rows.into_iter().map(|row| (row.actor.id, row.target.id)).collect()
    }

    #[tokio::test]
    async fn rows_leave_by_age_and_by_number_in_steps_and_by_no_other_way() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), b"master").await.unwrap();
        note(&store, 0, Rank::Admin, 3).await;
        note(&store, 10, Rank::Admin, 2).await;
        note(&store, 20, Rank::User, 4).await;
        note(&store, 30, Rank::Stranger, bounds::RETENTION_BATCH + 100).await;
        let all = left(&store).await;
        assert_eq!(store.trim_audit(at(0), 10_000).await.unwrap(), 0);
        assert_eq!(left(&store).await, all, "within the retention nothing leaves");
        assert_eq!(store.trim_audit(at(10), 10_000).await.unwrap(), 3);
        assert_eq!(left(&store).await, all[..all.len() - 3], "the oldest by their time");
        // In more than one step, the oldest first, and nobody else's.
        assert_eq!(store.trim_audit(at(0), 30).await.unwrap(), bounds::RETENTION_BATCH as u64 + 76);
        let rest = left(&store).await;
        assert_eq!(rest[..24], all[..24], "the newest of the strangers' stay");
        assert_eq!(rest[24..], all[all.len() - 9..all.len() - 3]);
        assert_eq!(store.trim_audit(at(100), 0).await.unwrap(), 30);
        note(&store, 40, Rank::Admin, 1).await;
        drop(store);
        let file = Connection::open(dir.path().join("accounts.db")).unwrap();
        assert!(file.execute("DELETE FROM audit", []).is_err(), "that they may leave ends with the transaction");
    }

    #[tokio::test]
    async fn what_one_look_takes_out_is_bounded_and_the_next_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), b"master").await.unwrap();
        note(&store, 0, Rank::User, 3).await;
        let mut steps = 0;
        assert_eq!(store.take_out(Surplus::Old(at(1).as_microsecond()), &mut steps).await.unwrap(), 0);
        steps = 1;
        assert_eq!((store.take_out(many(None, 2), &mut steps).await.unwrap(), steps), (2, 0));
        assert_eq!(left(&store).await.len(), 1);
    }
}
