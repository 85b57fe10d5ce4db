//! Scopes that only an admin grants, for as long as the one who granted them is an admin: a demotion, or a disabling, takes from
//! keys what was given by whoever is an admin no more, before the change is answered. What `ADMIN_API_KEY` gave stays.

use std::sync::Arc;

use super::principal::RESERVED_SCOPES;
use super::{Auth, Key};
use crate::id::UserId;
use crate::store::{KeyRow, Role};

impl Auth {
    /// The row of a key with the scopes that it has now.
    pub(super) fn as_granted(&self, key: &Key) -> Arc<KeyRow> {
        let row = key.row();
        if !key.has_reserved() || self.is_admin(granter(row)) {
            return Arc::clone(row);
        }
        let mut left = KeyRow::clone(row);
        left.scopes.retain(|scope| !RESERVED_SCOPES.contains(&scope.as_str()));
        Arc::new(left)
    }

    fn is_admin(&self, id: UserId) -> bool {
        self.user(&id).is_some_and(|user| user.role == Role::Admin && !user.disabled)
    }
}

/// Who made a key. Of those that were made before that was written down `ADMIN_API_KEY` is known by its kind; the others
/// count as their owners' doing.
fn granter(row: &KeyRow) -> UserId {
    match &row.maker {
        Some(maker) => maker.clone(),
        None if row.created_by.kind == "admin_key" => UserId::admin(),
        None => row.owner.clone(),
    }
}
