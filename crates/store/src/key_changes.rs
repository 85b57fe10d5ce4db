//! Changes of key records. The descendants of a key follow a change of its limits, expiry and
//! labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::changes::{Change, Committed};
use super::keys::{check_count, check_seen, find};
use super::rows::{self, KeyChange, KeyRow, Seen, Stored};
use super::sql::{ToValue, Transaction, Value, params, unnest};
use super::{Pairs, Result, Store, StoreError};
use rerouter_base::id::KeyId;

impl Store {
    /// Changes a key's record. Its descendants are narrowed to its new limits and expiry, and get
    /// its new labels if they had its old ones. [`StoreError::KeyRevoked`] if it has ended,
    /// [`StoreError::Conflict`] if a key is no longer as `seen`. [`StoreError::LimitReached`] if
    /// the change vouches for the key and its owner has too many live keys.
    pub async fn patch_key(&self, id: &KeyId, patch: KeyChange, seen: Seen) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| self::patch(transaction, &id, patch, &seen)).await
    }

    /// Stores when keys were last used, which does not count as a change.
    pub async fn note_used(&self, used: Vec<(KeyId, Timestamp)>) -> Result<()> {
        self.write_one(move |transaction| match transaction.is_shared() {
            true => note_together(transaction, &used),
            false => note_used(transaction, &used),
        })
        .await
    }
}

fn patch(
    transaction: &Transaction<'_>,
    id: &KeyId,
    patch: KeyChange,
    seen: &Seen,
) -> Result<Vec<Change>> {
    let old = find(transaction, id)?;
    if old.revoked_at.is_some() {
        return Err(StoreError::KeyRevoked);
    }
    check_seen(transaction, &old, seen)?;
    let new = KeyRow {
        name: patch.name.unwrap_or_else(|| old.name.clone()),
        metadata: patch.metadata.map_or_else(|| old.metadata.clone(), Pairs::from),
        labels: patch.labels.map_or_else(|| Arc::clone(&old.labels), Arc::new),
        limits: patch.limits.map_or_else(|| Arc::clone(&old.limits), Arc::new),
        status: patch.status.unwrap_or(old.status),
        expires_at: patch.expires_at.or(old.expires_at),
        made_open: old.made_open && patch.vouched_at.is_none(),
        ..old.clone()
    };
    if new == old {
        return Ok(Vec::new());
    }
    if let Some(at) = patch.vouched_at.filter(|_| new.made_open != old.made_open) {
        check_count(transaction, &new, at, None)?;
    }
    let followed =
        new.limits != old.limits || new.expires_at != old.expires_at || new.labels != old.labels;
    let mut changes = vec![update(transaction, new)?];
    // The labels before each change.
    let mut labels = vec![old.labels];
    // From parents to children. The children of a key that does not change need no change either.
    let mut next = 0;
    while let (true, Some(Change::Key(parent)), Some(before)) =
        (followed, changes.get(next), labels.get(next))
    {
        let (parent, before) = (Arc::clone(parent), before.clone());
        for child in children(transaction, &parent.id)? {
            let own = child.labels.clone();
            if let Some(change) = follow(transaction, child, &parent, &before)? {
                changes.push(change);
                labels.push(own);
            }
        }
        next += 1;
    }
    Ok(changes)
}

fn children(transaction: &Transaction<'_>, id: &KeyId) -> Result<Vec<KeyRow>> {
    transaction.rows("SELECT * FROM keys WHERE parent = ?1 ORDER BY id", &params![id], KeyRow::of)
}

/// Narrows a child to its parent, and gives it the parent's labels if it had those of `before`.
fn follow(
    transaction: &Transaction<'_>,
    mut child: KeyRow,
    parent: &KeyRow,
    before: &Arc<BTreeMap<String, String>>,
) -> Result<Option<Change>> {
    let mut changed = Arc::make_mut(&mut child.limits).clamp(&parent.limits);
    if child.labels == *before && child.labels != parent.labels {
        child.labels.clone_from(&parent.labels);
        changed = true;
    }
    if let Some(end) = parent.expires_at
        && child.expires_at.is_none_or(|own| own > end)
    {
        child.expires_at = Some(end);
        changed = true;
    }
    if changed { update(transaction, child).map(Some) } else { Ok(None) }
}

/// Writes the row as the next generation of the key.
fn update(transaction: &Transaction<'_>, row: KeyRow) -> Result<Change> {
    let row = KeyRow { generation: row.generation.saturating_add(1), ..row };
    rows::update(transaction, &row)?;
    Ok(Change::Key(row.into()))
}

/// Notes last uses with one statement. It passes over keys that another transaction has locked, so
/// it waits for nobody while it holds locks of its own, and is to be repeated if there are any.
fn note_together(transaction: &Transaction<'_>, used: &[(KeyId, Timestamp)]) -> Result<()> {
    let note = format!(
        "WITH used AS (SELECT * FROM {} AS used (id, at)),
           later AS (SELECT id, at FROM keys JOIN used USING (id)
             WHERE last_used_at IS NULL OR last_used_at < at),
           found AS (SELECT id, at FROM later JOIN keys USING (id)
             FOR NO KEY UPDATE OF keys SKIP LOCKED),
           noted AS (UPDATE keys SET last_used_at = greatest(last_used_at, at) FROM found
             WHERE keys.id = found.id RETURNING 1)
         SELECT (SELECT count(*) FROM later) - (SELECT count(*) FROM noted)",
        unnest(["TEXT", "BIGINT"].into_iter(), 1)
    );
    let (ids, times): (Vec<_>, Vec<_>) =
        used.iter().map(|(id, at)| (id.value(), at.value())).unzip();
    match transaction.int(&note, &[Value::Column(&ids), Value::Column(&times)])? {
        Some(0) => Ok(()),
        _ => Err(StoreError::unavailable("some keys are being changed")),
    }
}

fn note_used(transaction: &Transaction<'_>, used: &[(KeyId, Timestamp)]) -> Result<()> {
    for (id, at) in used {
        transaction.execute(
            "UPDATE keys SET last_used_at = ?2
             WHERE id = ?1 AND (last_used_at IS NULL OR last_used_at < ?2)",
            &params![id, at],
        )?;
    }
    Ok(())
}
