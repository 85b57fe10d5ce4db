//! Answers to creations of keys with an `Idempotency-Key`, for as long as those may be repeated. An
//! answer is written with its key, in one transaction: whichever gateway is asked, there is one
//! key.

use jiff::Timestamp;

use super::columns::Columns;
use super::reroutes::REPEATS_AGE;
use super::sql::{Transaction, params};
use super::{Store, StoreError};
use rerouter_base::id::KeyId;

/// The answer to a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCreation {
    /// A digest of the caller and its `Idempotency-Key`.
    pub id: [u8; 32],
    /// A digest of what was asked for.
    pub about: [u8; 32],
    /// Of whose share of kept answers it takes one.
    pub payer: String,
    /// The key that was made.
    pub key: KeyId,
    /// The body of the answer, sealed.
    pub sealed: Vec<u8>,
}

impl Store {
    /// The answer to a creation, and a revision that has its key: the tables in memory have it too.
    pub async fn creation(
        &self,
        id: [u8; 32],
        now: Timestamp,
    ) -> Result<Option<(KeptCreation, u64)>, StoreError> {
        let find = move |transaction: &Transaction<'_>| find(transaction, &id, now);
        let found = self.read_after_writes(find).await?;
        if let (Some((_, rev)), Some(cluster)) = (&found, self.databases.cluster.get()) {
            cluster.follow_up(*rev).await?;
        }
        Ok(found)
    }

    /// How many answers of a payer are kept.
    pub async fn creations_of(&self, payer: String) -> Result<usize, StoreError> {
        let count = "SELECT count(*) FROM creations WHERE payer = ?1";
        let kept = self.read(move |transaction| transaction.int(count, &params![payer])).await?;
        Ok(kept.and_then(|kept| usize::try_from(kept).ok()).unwrap_or(0))
    }

    /// Deletes the answers that are too old to be asked for.
    pub async fn trim_creations(&self, now: Timestamp) -> Result<(), StoreError> {
        let trim = move |transaction: &Transaction<'_>| {
            let delete = "DELETE FROM creations WHERE at <= ?1";
            transaction.execute(delete, &params![oldest(now)]).map(drop)
        };
        self.write(trim).await
    }
}

/// Keeps the answer to a creation; [`StoreError::Repeated`] if one is kept.
pub(super) fn keep(
    transaction: &Transaction<'_>,
    kept: &KeptCreation,
    now: Timestamp,
) -> Result<(), StoreError> {
    let delete = "DELETE FROM creations WHERE id = ?1 AND at <= ?2";
    transaction.execute(delete, &params![kept.id, oldest(now)])?;
    let insert = "
        INSERT INTO creations (id, about, payer, key, sealed, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (id) DO NOTHING";
    let values = params![kept.id, kept.about, kept.payer, kept.key, kept.sealed, now];
    match transaction.execute(insert, &values)? {
        0 => Err(StoreError::Repeated),
        _ => Ok(()),
    }
}

fn find(
    transaction: &Transaction<'_>,
    id: &[u8; 32],
    now: Timestamp,
) -> Result<Option<(KeptCreation, u64)>, StoreError> {
    let select = "SELECT id, about, payer, key, sealed FROM creations WHERE id = ?1 AND at > ?2";
    let found = transaction.row(select, &params![id, oldest(now)], |row| {
        let mut columns = Columns::of(row);
        Ok(KeptCreation {
            id: columns.get()?,
            about: columns.get()?,
            payer: columns.get()?,
            key: KeyId::known(columns.text()?),
            sealed: columns.get()?,
        })
    })?;
    let Some(kept) = found else { return Ok(None) };
    Ok(Some((kept, transaction.revision()?)))
}

/// The time up to which answers are too old, in microseconds since the epoch.
fn oldest(now: Timestamp) -> i64 {
    let age = i64::try_from(REPEATS_AGE.as_micros()).unwrap_or(i64::MAX);
    now.as_microsecond().saturating_sub(age)
}
