//! The statements that change users, in `accounts.db`: one transaction each, as every mutation of
//! accounts.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Transaction, params};

use super::StoreError;
use super::accounts::{json, session_id, user};
use super::rows::{Change, Role, UserRow};
use crate::id::UserId;

/// What becomes of a user; asked again where a write is tried again.
pub(crate) type ChangeUser = Arc<dyn Fn(&mut UserRow) -> Result<(), StoreError> + Send + Sync>;

/// Whether a user sees to users; the built-in one, who is in no table, does.
pub(super) fn check_admin(transaction: &Transaction<'_>, id: &UserId) -> Result<(), StoreError> {
    let admin = "SELECT 1 FROM users WHERE id = ?1 AND role = ?2 AND NOT disabled";
    let found =
        transaction.query_row(admin, [id.as_str(), Role::Admin.as_str()], |_| Ok(())).optional()?;
    if found.is_some() || *id == UserId::admin() { Ok(()) } else { Err(StoreError::Stale) }
}

/// Changes a user, and ends the sessions of one who is disabled then.
pub(super) fn update(
    transaction: &Transaction<'_>,
    id: &UserId,
    last_may_go: bool,
    change: &dyn Fn(&mut UserRow) -> Result<(), StoreError>,
) -> Result<Vec<Change>, StoreError> {
    let one = "SELECT * FROM users WHERE id = ?1";
    let before =
        transaction.query_row(one, [id.as_str()], user).optional()?.ok_or(StoreError::NotFound)?;
    let mut after = before.clone();
    change(&mut after)?;
    let sees_to_users = |user: &UserRow| user.role == Role::Admin && !user.disabled;
    if sees_to_users(&before) && !sees_to_users(&after) && !last_may_go {
        let others = "SELECT count(*) FROM users WHERE id <> ?1 AND role = ?2 AND NOT disabled";
        let others: i64 =
            transaction.query_row(others, [id.as_str(), Role::Admin.as_str()], |row| row.get(0))?;
        if others == 0 {
            return Err(StoreError::LastAdmin);
        }
    }
    let mut changes = Vec::new();
    if before != after {
        transaction.execute(
            "UPDATE users SET name = ?2, role = ?3, disabled = ?4, limits = ?5 WHERE id = ?1",
            params![
                id.as_str(),
                after.name,
                after.role.as_str(),
                after.disabled,
                json(&after.limits)?
            ],
        )?;
        changes.push(Change::User(transaction.query_row(one, [id.as_str()], user)?.into()));
    }
    if after.disabled {
        let mut end =
            transaction.prepare_cached("DELETE FROM sessions WHERE user = ?1 RETURNING id")?;
        for ended in end.query_map([id.as_str()], session_id)? {
            changes.push(Change::SessionEnded(ended?));
        }
    }
    Ok(changes)
}
