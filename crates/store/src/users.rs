//! Users in the store: creation, changes, deletion, passwords.

use std::sync::Arc;

use jiff::Timestamp;

use super::changes::{Change, Committed};
use super::columns::Columns;
use super::rows::{self, KeyRow, Role, Stored, UserRow};
use super::sql::{Transaction, params};
use super::{Result, Store, StoreError};
use rerouter_base::id::{SessionId, UserId};

/// A change of a user. It is called again if the write is retried.
pub type ChangeUser = Arc<dyn Fn(&mut UserRow) -> Result<()> + Send + Sync>;

impl Store {
    /// Adds a user; [`StoreError::Conflict`] if the e-mail is taken.
    pub async fn create_user(&self, user: UserRow) -> Result<Committed> {
        self.create_user_by(user, None).await
    }

    /// Adds a user for an admin; [`StoreError::Stale`] if `by` is no longer an admin.
    pub async fn create_user_by(&self, user: UserRow, by: Option<UserId>) -> Result<Committed> {
        let insert = move |transaction: &Transaction<'_>| {
            by.map_or(Ok(()), |by| check_admin(transaction, &by))?;
            insert(transaction, user)
        };
        self.mutate(insert).await
    }

    /// Adds the first admin; [`StoreError::Stale`] if there is an admin, disabled or not.
    pub async fn create_first_admin(&self, user: UserRow) -> Result<Committed> {
        let insert = move |transaction: &Transaction<'_>| {
            let admin = "SELECT 1 FROM users WHERE role = ?1 LIMIT 1";
            if transaction.exists(admin, &params![Role::Admin.as_str()])? {
                return Err(StoreError::Stale);
            }
            insert(transaction, user)
        };
        self.mutate(insert).await
    }

    /// Changes a user, and ends the sessions of one who is disabled or has another password;
    /// [`StoreError::LastAdmin`] if no admin would be left, unless `last_may_go`.
    pub async fn update_user(
        &self,
        id: &UserId,
        last_may_go: bool,
        change: ChangeUser,
    ) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| update(transaction, &id, last_may_go, &*change)).await
    }

    /// Deletes a user, revokes the user's keys, and removes data from them that may name the
    /// person. Usage and audit keep the id.
    pub async fn delete_user(&self, id: &UserId, at: Timestamp) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| delete(transaction, &id, at)).await
    }

    /// Replaces a user's password hash and ends all sessions but `keep`;
    /// [`StoreError::Conflict`] if `old` is no longer the hash.
    pub async fn change_password(
        &self,
        user: &UserId,
        old: String,
        new: String,
        keep: &SessionId,
    ) -> Result<Committed> {
        let (user, keep) = (user.clone(), keep.clone());
        self.mutate(move |transaction| change_password(transaction, &user, &old, &new, &keep)).await
    }
}

/// Checks that a user is an enabled admin, else [`StoreError::Stale`]. The built-in admin is in no
/// table.
fn check_admin(transaction: &Transaction<'_>, id: &UserId) -> Result<()> {
    let admin = "SELECT 1 FROM users WHERE id = ?1 AND role = ?2 AND disabled = 0";
    let found = transaction.exists(admin, &params![id, Role::Admin.as_str()])?;
    if found || *id == UserId::admin() { Ok(()) } else { Err(StoreError::Stale) }
}

fn insert(transaction: &Transaction<'_>, user: UserRow) -> Result<Vec<Change>> {
    if transaction.exists("SELECT 1 FROM users WHERE email = ?1", &params![user.email])? {
        return Err(StoreError::Conflict);
    }
    rows::insert(transaction, &user)?;
    Ok(vec![Change::User(user.into())])
}

fn update(
    transaction: &Transaction<'_>,
    id: &UserId,
    last_may_go: bool,
    change: &dyn Fn(&mut UserRow) -> Result<()>,
) -> Result<Vec<Change>> {
    let before = find(transaction, id)?;
    let mut after = before.clone();
    change(&mut after)?;
    let is_admin = |user: &UserRow| user.role == Role::Admin && !user.disabled;
    if is_admin(&before) && !is_admin(&after) && !last_may_go {
        let other = "SELECT 1 FROM users WHERE id <> ?1 AND role = ?2 AND disabled = 0 LIMIT 1";
        if !transaction.exists(other, &params![id, Role::Admin.as_str()])? {
            return Err(StoreError::LastAdmin);
        }
    }
    let mut changes = Vec::new();
    if before != after {
        rows::update(transaction, &after)?;
        changes.push(Change::User(find(transaction, id)?.into()));
    }
    if after.disabled || after.password != before.password {
        end_sessions(transaction, id, "", &mut changes)?;
    }
    Ok(changes)
}

fn delete(transaction: &Transaction<'_>, id: &UserId, at: Timestamp) -> Result<Vec<Change>> {
    find(transaction, id)?;
    let end = "
        UPDATE keys SET revoked_at = coalesce(revoked_at, ?2), name = 'deleted', labels = '{}',
          metadata = '{}' WHERE owner = ?1 RETURNING *";
    let mut changes =
        transaction.rows(end, &params![id, at], |row| Ok(Change::Key(KeyRow::of(row)?.into())))?;
    end_sessions(transaction, id, "", &mut changes)?;
    transaction.execute("DELETE FROM users WHERE id = ?1", &params![id])?;
    changes.push(Change::UserDeleted(id.clone()));
    Ok(changes)
}

/// Of two changes at once only one succeeds, since only one knew the password.
fn change_password(
    transaction: &Transaction<'_>,
    id: &UserId,
    old: &str,
    new: &str,
    keep: &SessionId,
) -> Result<Vec<Change>> {
    let update = "UPDATE users SET password = ?2 WHERE id = ?1 AND password = ?3";
    if transaction.execute(update, &params![id, new, old])? == 0 {
        return Err(StoreError::Conflict);
    }
    let mut changes = vec![Change::User(find(transaction, id)?.into())];
    end_sessions(transaction, id, keep.as_str(), &mut changes)?;
    Ok(changes)
}

fn end_sessions(
    transaction: &Transaction<'_>,
    id: &UserId,
    keep: &str,
    changes: &mut Vec<Change>,
) -> Result<()> {
    let end = "DELETE FROM sessions WHERE \"user\" = ?1 AND id <> ?2 RETURNING id";
    transaction.each(end, &params![id, keep], &mut |row| {
        changes.push(Change::SessionEnded(Columns::new(row).get()?));
        Ok(())
    })
}

fn find(transaction: &Transaction<'_>, id: &UserId) -> Result<UserRow> {
    rows::find(transaction, id.as_str())?.ok_or(StoreError::NotFound)
}
