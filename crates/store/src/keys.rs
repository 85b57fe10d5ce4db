//! API keys: creation, rotation, revocation, and deletion of ended keys.

use std::sync::Arc;

use jiff::Timestamp;

use super::audit_retention::RETENTION_BATCH;
use super::changes::{Change, Committed};
use super::columns::Columns;
use super::limits::{KEYS_PER_OWNER, Limits};
use super::rows::{self, KeyRow, NewSecret, PreviousSecret, Seen, Stored};
use super::sql::{Row, Transaction, params};
use super::{Result, Store, StoreError};
use rerouter_base::id::{KeyId, UserId};

/// Maximum number of an owner's ended keys that are kept. Older ones are deleted: otherwise
/// repeated creation and revocation of keys would fill memory.
pub(super) const ENDED_KEYS_PER_OWNER: usize = 1_000;

impl Store {
    /// Adds a key; [`StoreError::LimitReached`] if its owner has too many live keys,
    /// [`StoreError::KeyRevoked`] if its parent is revoked.
    pub async fn create_key(&self, key: KeyRow) -> Result<Committed> {
        self.create_keys(vec![key]).await
    }

    /// Adds keys in one transaction, all or none; each as [`Store::create_key`].
    pub async fn create_keys(&self, keys: Vec<KeyRow>) -> Result<Committed> {
        let insert = move |transaction: &Transaction<'_>| {
            let mut changes = Vec::new();
            for key in keys {
                changes.extend(insert(transaction, key, None)?);
            }
            Ok(changes)
        };
        self.mutate(insert).await
    }

    /// Adds a key for a caller: as [`Store::create_key`], and [`StoreError::Conflict`] if its
    /// parent no longer has the generation `seen`.
    pub async fn create_key_by(&self, key: KeyRow, seen: Option<u32>) -> Result<Committed> {
        self.mutate(move |transaction| insert(transaction, key, seen)).await
    }

    /// No change if it has ended.
    pub async fn revoke_key(&self, id: &KeyId, at: Timestamp) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| revoke(transaction, &id, at, ONE)).await
    }

    /// Ends a key and all its descendants, whoever owns them. No change if they have ended.
    pub async fn revoke_descent(&self, id: &KeyId, at: Timestamp) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| revoke(transaction, &id, at, DESCENT)).await
    }

    /// Gives a key another secret; [`StoreError::KeyRevoked`] or [`StoreError::KeyExpired`] if it
    /// has ended, [`StoreError::Conflict`] if a key is no longer as `seen`.
    pub async fn rotate_key(
        &self,
        id: &KeyId,
        secret: NewSecret,
        seen: Seen,
        at: Timestamp,
    ) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| rotate(transaction, &id, &secret, &seen, at)).await
    }
}

/// Counts the owner's live keys and reads the parent in the same transaction, so that two creations
/// at once cannot exceed the limit, and no child outlives a revocation of its parent at the same
/// time.
fn insert(transaction: &Transaction<'_>, key: KeyRow, seen: Option<u32>) -> Result<Vec<Change>> {
    let parent = match &key.parent {
        None => Arc::default(),
        Some(parent) => {
            let parent = match find(transaction, parent) {
                Ok(parent) if parent.revoked_at.is_none() => parent,
                Ok(_) | Err(StoreError::NotFound) => return Err(StoreError::KeyRevoked),
                Err(error) => return Err(error),
            };
            if seen.is_some_and(|seen| seen != parent.generation) {
                return Err(StoreError::Conflict);
            }
            parent.limits
        }
    };
    check_count(transaction, &key, key.created_at, parent.keys_per_user)?;
    let mut changes = forget(transaction, &key.owner, key.created_at)?;
    rows::insert(transaction, &key)?;
    changes.push(Change::Key(key.into()));
    Ok(changes)
}

/// [`StoreError::LimitReached`] if the owner of `key` would have too many keys that are live at
/// `at`. Keys that anonymous callers created while the AGENT interface was open do not work while
/// it is enforced, so they count only against each other.
pub(super) fn check_count(
    transaction: &Transaction<'_>,
    key: &KeyRow,
    at: Timestamp,
    of_parent: Option<u64>,
) -> Result<()> {
    let live = transaction.int(
        "SELECT count(*) FROM keys
         WHERE owner = ?1 AND revoked_at IS NULL
           AND (expires_at IS NULL OR expires_at > ?2) AND (made_open = 0 OR ?3 = 1)",
        &params![key.owner, at, key.made_open],
    )?;
    let limits = |row: &Row<'_>| Columns::new(row).get::<Limits>();
    let owner =
        transaction.row("SELECT limits FROM users WHERE id = ?1", &params![key.owner], limits)?;
    let owner = owner.and_then(|limits| limits.keys_per_user);
    let most = [owner, of_parent].into_iter().flatten().fold(KEYS_PER_OWNER as u64, u64::min);
    match live.is_some_and(|live| u64::try_from(live).is_ok_and(|live| live < most)) {
        true => Ok(()),
        false => Err(StoreError::LimitReached),
    }
}

/// Deletes an owner's keys that have ended, except the newest, so that repeated creation and
/// revocation fills neither memory nor disk. A key with descendants is kept, because they use its
/// limits.
fn forget(transaction: &Transaction<'_>, owner: &UserId, now: Timestamp) -> Result<Vec<Change>> {
    transaction.rows(
        "DELETE FROM keys WHERE id IN
           (SELECT id FROM
              (SELECT id FROM keys WHERE owner = ?1 AND (revoked_at IS NOT NULL OR expires_at <= ?2)
               ORDER BY id DESC LIMIT 9223372036854775807 OFFSET ?4) ended
            WHERE NOT EXISTS (SELECT 1 FROM keys child WHERE child.parent = ended.id) LIMIT ?3)
         RETURNING id",
        &params![owner, now, RETENTION_BATCH, ENDED_KEYS_PER_OWNER],
        |row| Ok(Change::KeyForgotten(Columns::new(row).get()?)),
    )
}

const ONE: &str =
    "UPDATE keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL RETURNING *";

const DESCENT: &str = "
    WITH RECURSIVE descent (id) AS
      (SELECT id FROM keys WHERE id = ?1
       UNION SELECT keys.id FROM keys JOIN descent ON keys.parent = descent.id)
    UPDATE keys SET revoked_at = ?2 WHERE id IN (SELECT id FROM descent) AND revoked_at IS NULL
    RETURNING *";

fn revoke(
    transaction: &Transaction<'_>,
    id: &KeyId,
    at: Timestamp,
    update: &str,
) -> Result<Vec<Change>> {
    find(transaction, id)?;
    transaction.rows(update, &params![id, at], |row| Ok(Change::Key(KeyRow::of(row)?.into())))
}

/// Replaces the secret of a key. The previous secret stays valid for its grace period; older
/// secrets end.
fn rotate(
    transaction: &Transaction<'_>,
    id: &KeyId,
    secret: &NewSecret,
    seen: &Seen,
    at: Timestamp,
) -> Result<Vec<Change>> {
    let old = find(transaction, id)?;
    if old.revoked_at.is_some() {
        return Err(StoreError::KeyRevoked);
    }
    if old.expires_at.is_some_and(|end| end <= at) {
        return Err(StoreError::KeyExpired);
    }
    check_seen(transaction, &old, seen)?;
    let NewSecret { redacted, digest, grace_ends } = secret.clone();
    let previous =
        grace_ends.map(|expires_at| PreviousSecret { digest: old.digest, expires_at }.into());
    let generation = old.generation.saturating_add(1);
    let rotated_at = Some(at);
    let next = KeyRow { redacted, digest, rotated_at, generation, previous, ..old };
    rows::update(transaction, &next)?;
    Ok(vec![Change::Key(find(transaction, id)?.into())])
}

/// [`StoreError::Conflict`] if `key`, or another key that the caller's decision depended on, is no
/// longer as `seen`.
pub(super) fn check_seen(transaction: &Transaction<'_>, key: &KeyRow, seen: &Seen) -> Result<()> {
    let same = |other: &Option<(KeyId, u32)>, may_have_ended: bool| match other {
        None => Ok(true),
        Some((id, generation)) => match find(transaction, id) {
            Ok(now) => {
                Ok(now.generation == *generation && (may_have_ended || now.revoked_at.is_none()))
            }
            Err(StoreError::NotFound) => Ok(false),
            Err(error) => Err(error),
        },
    };
    // The limits of its maker bind a key even after the maker has ended.
    let same =
        key.generation == seen.generation && same(&seen.by, false)? && same(&seen.maker, true)?;
    if same { Ok(()) } else { Err(StoreError::Conflict) }
}

pub(super) fn find(transaction: &Transaction<'_>, id: &KeyId) -> Result<KeyRow> {
    rows::find(transaction, id.as_str())?.ok_or(StoreError::NotFound)
}
