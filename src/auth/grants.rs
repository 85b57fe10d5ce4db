//! Scopes that only an admin grants, for as long as the one who granted them is an admin: a demotion, or a disabling, takes from
//! keys what was given by whoever is an admin no more, before the change is answered. What `ADMIN_API_KEY` gave stays.

use std::sync::Arc;

use jiff::Timestamp;

use super::principal::RESERVED_SCOPES;
use super::{AgentCredential, Auth, Credential, Key, Principal, Standing};
use crate::error::{Error, Kind, Result};
use crate::id::UserId;
use crate::store::{KeyRow, Role, UserRow};

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

    /// Refuses whoever may do less by now than when it was let in: for what is done after a wait that others can make long.
    pub fn check_still(&self, who: &Principal, now: Timestamp) -> Result<()> {
        let key_is = |own: &KeyRow| {
            let key = self
                .key(own.interface, &own.id)
                .filter(|key| key.standing(now) == Standing::Active);
            key.is_some_and(|key| {
                let has = self.as_granted(&key);
                // A new secret without grace: the one that was shown may be the old one.
                let shown = has.rotated_at == own.rotated_at
                    || has.previous.as_ref().is_some_and(|old| old.expires_at > now);
                shown && own.scopes.iter().all(|scope| has.scopes.contains(scope))
            })
        };
        let user_is = |own: &UserRow| {
            self.user(&own.id).is_some_and(|user| {
                !user.disabled && (user.role == own.role || own.role == Role::User)
            })
        };
        let still = match who {
            Principal::User { user, via: Credential::Key(key) } => user_is(user) && key_is(key),
            Principal::User { user, via: Credential::Session(id) } => {
                user_is(user) && self.0.sessions.has(id, self.0.idle, now)
            }
            Principal::AgentTenant { via: AgentCredential::Key(key) } => key_is(key),
            Principal::Admin
            | Principal::AgentTenant { .. }
            | Principal::Node { .. }
            | Principal::Anonymous => true,
        };
        if still {
            Ok(())
        } else {
            Err(Error::new(Kind::Forbidden, "What you may do was changed meanwhile."))
        }
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
