//! Changes of keys that reach beyond one row: a patch, which the keys that descend from it have to
//! follow, the end of a whole descent, and when keys were last used.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Transaction, params};

use super::accounts::{json, key};
use super::rows::{Change, Committed, KeyPatch, KeyRow, Seen};
use super::{Backend, Pairs, Store, StoreError, accounts};
use crate::id::KeyId;

impl Store {
    /// Adds a key that another one makes; as [`Store::create_key`], and [`StoreError::Conflict`]
    /// when its maker is no more what was seen of it, by its generation.
    pub async fn create_child(&self, key: KeyRow, seen: u32) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite
            .mutate(self, move |transaction| accounts::insert_key(transaction, key, Some(seen)))
            .await
    }

    /// Adds many keys in one transaction, all of them or none; each as [`Store::create_key`].
    pub async fn create_keys(&self, keys: Vec<KeyRow>) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let insert = move |transaction: &Transaction<'_>| {
            let mut changes = Vec::new();
            for key in keys {
                changes.extend(accounts::insert_key(transaction, key, None)?);
            }
            Ok(changes)
        };
        sqlite.mutate(self, insert).await
    }

    /// Changes a key's record, narrows those that descend from it to its new limits and end, and
    /// gives its new labels to those that had its old ones. [`StoreError::KeyRevoked`] when it has
    /// ended, [`StoreError::Conflict`] when it, or what else the change was decided on, is no more
    /// what was `seen`, [`StoreError::LimitReached`] when one that is vouched for finds no room
    /// among its owner's.
    pub async fn patch_key(
        &self,
        id: &KeyId,
        patch: KeyPatch,
        seen: Seen,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite.mutate(self, move |transaction| self::patch(transaction, &id, patch, &seen)).await
    }

    /// Ends a key and all that descend from it, whosever they are; again is no change.
    pub async fn revoke_descent(&self, id: &KeyId, at: Timestamp) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite.mutate(self, move |transaction| end_descent(transaction, &id, at)).await
    }

    /// Notes when keys were last used, which moves no revision.
    pub async fn note_used(&self, used: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| note_used(transaction, &used)).await.map(|_| ())
    }
}

/// Whether a change of `key` was decided on what is here now.
pub(super) fn still_seen(
    transaction: &Transaction<'_>,
    key: &KeyRow,
    seen: &Seen,
) -> Result<(), StoreError> {
    let mut now = transaction.prepare_cached(
        "SELECT generation FROM keys WHERE id = ?1 AND (revoked_at IS NULL OR ?2)",
    )?;
    let mut same = |other: &Option<(KeyId, u32)>, ended_too: bool| -> rusqlite::Result<bool> {
        let Some((id, generation)) = other else { return Ok(true) };
        Ok(now.query_row(params![id.as_str(), ended_too], |row| row.get::<_, u32>(0)).optional()?
            == Some(*generation))
    };
    // What its maker has bounds a key also when the maker has ended.
    let same =
        key.generation == seen.generation && same(&seen.by, false)? && same(&seen.maker, true)?;
    if same { Ok(()) } else { Err(StoreError::Conflict) }
}

fn read(transaction: &Transaction<'_>, id: &KeyId) -> Result<KeyRow, StoreError> {
    transaction
        .query_row("SELECT * FROM keys WHERE id = ?1", [id.as_str()], key)
        .optional()?
        .ok_or(StoreError::NotFound)
}

fn patch(
    transaction: &Transaction<'_>,
    id: &KeyId,
    patch: KeyPatch,
    seen: &Seen,
) -> Result<Vec<Change>, StoreError> {
    let old = read(transaction, id)?;
    if old.revoked_at.is_some() {
        return Err(StoreError::KeyRevoked);
    }
    still_seen(transaction, &old, seen)?;
    let new = KeyRow {
        name: patch.name.unwrap_or_else(|| old.name.clone()),
        metadata: patch.metadata.map_or_else(|| old.metadata.clone(), Pairs::from),
        labels: patch.labels.unwrap_or_else(|| old.labels.clone()),
        limits: patch.limits.unwrap_or_else(|| old.limits.clone()),
        status: patch.status.unwrap_or(old.status),
        expires_at: patch.expires_at.or(old.expires_at),
        made_open: old.made_open && patch.vouched_at.is_none(),
        ..old.clone()
    };
    if new == old {
        return Ok(Vec::new());
    }
    if let Some(at) = patch.vouched_at.filter(|_| new.made_open != old.made_open) {
        accounts::room_for_key(transaction, &new, at, None)?;
    }
    let followed =
        new.limits != old.limits || new.expires_at != old.expires_at || new.labels != old.labels;
    let mut changes = vec![write(transaction, new)?];
    // Of each change the labels before it.
    let mut labels = vec![old.labels];
    // From parent to child. One that has no need to change bounds its own as it did before.
    let mut next = 0;
    while let (true, Some(Change::Key(above)), Some(before)) =
        (followed, changes.get(next), labels.get(next))
    {
        let (above, before) = (std::sync::Arc::clone(above), before.clone());
        for child in children(transaction, &above.id)? {
            let own = child.labels.clone();
            if let Some(change) = follow(transaction, child, &above, &before)? {
                changes.push(change);
                labels.push(own);
            }
        }
        next += 1;
    }
    Ok(changes)
}

fn children(transaction: &Transaction<'_>, id: &KeyId) -> Result<Vec<KeyRow>, StoreError> {
    let mut children =
        transaction.prepare_cached("SELECT * FROM keys WHERE parent = ?1 ORDER BY id")?;
    Ok(children.query_map([id.as_str()], key)?.collect::<rusqlite::Result<_>>()?)
}

/// The change that keeps a key within the one that made it, and by the labels that it had of it
/// (`before`), if it takes one.
fn follow(
    transaction: &Transaction<'_>,
    mut child: KeyRow,
    above: &KeyRow,
    before: &BTreeMap<String, String>,
) -> Result<Option<Change>, StoreError> {
    let mut changed = child.limits.clamp(&above.limits);
    if child.labels == *before && child.labels != above.labels {
        child.labels.clone_from(&above.labels);
        changed = true;
    }
    if let Some(end) = above.expires_at
        && child.expires_at.is_none_or(|own| own > end)
    {
        child.expires_at = Some(end);
        changed = true;
    }
    if changed { write(transaction, child).map(Some) } else { Ok(None) }
}

/// Writes what a patch may change, as the next generation.
fn write(transaction: &Transaction<'_>, row: KeyRow) -> Result<Change, StoreError> {
    let row = KeyRow { generation: row.generation.saturating_add(1), ..row };
    let mut update = transaction.prepare_cached(
        "UPDATE keys SET name = ?2, metadata = ?3, labels = ?4, limits = ?5, status = ?6, expires_at = ?7, generation = ?8, made_open = ?9
         WHERE id = ?1",
    )?;
    update.execute(params![
        row.id.as_str(),
        row.name,
        json(&row.metadata)?,
        json(&row.labels)?,
        json(&row.limits)?,
        row.status.as_str(),
        row.expires_at.map(Timestamp::as_microsecond),
        row.generation,
        row.made_open
    ])?;
    Ok(Change::Key(row.into()))
}

fn end_descent(
    transaction: &Transaction<'_>,
    id: &KeyId,
    at: Timestamp,
) -> Result<Vec<Change>, StoreError> {
    read(transaction, id)?;
    let mut end = transaction.prepare_cached(
        "WITH RECURSIVE descent (id) AS (SELECT ?1 UNION SELECT keys.id FROM keys JOIN descent ON keys.parent = descent.id)
         UPDATE keys SET revoked_at = ?2 WHERE id IN (SELECT id FROM descent) AND revoked_at IS NULL RETURNING *",
    )?;
    let ended = end.query_map(params![id.as_str(), at.as_microsecond()], key)?;
    Ok(ended.map(|row| row.map(|row| Change::Key(row.into()))).collect::<rusqlite::Result<_>>()?)
}

fn note_used(
    transaction: &Transaction<'_>,
    used: &[(KeyId, Timestamp)],
) -> Result<Vec<Change>, StoreError> {
    let mut note =
        transaction.prepare_cached("UPDATE keys SET last_used_at = ?2 WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)")?;
    for (id, at) in used {
        note.execute(params![id.as_str(), at.as_microsecond()])?;
    }
    Ok(Vec::new())
}
