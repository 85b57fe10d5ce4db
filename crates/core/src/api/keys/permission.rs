//! The permissions of a caller on a key.

use std::collections::BTreeSet;

use crate::api::call::Call;
use crate::app::App;
use rerouter_access::auth::{AgentCredential, Principal, RESERVED_SCOPES};
use rerouter_base::error::{Error, Result};
use rerouter_base::id::{KeyId, UserId};
use rerouter_store::{Action, Event, KeyRow, StoreError};

/// Whether the caller has no credential, because AGENT is open.
pub(super) fn is_open(who: &Principal) -> bool {
    matches!(who, Principal::AgentTenant { via: AgentCredential::Open })
}

/// The audit event of a call that shows the secret of a key. If the owner is another user, the
/// event names the owner too, because calls with the secret look like the owner's. Not for
/// `ADMIN_API_KEY`, which may do everything anyway.
pub(super) fn noted(call: Call<'_>, user: &UserId, action: Action, key: &KeyRow) -> Event {
    let event = call.event(action, "key", key.id.as_str());
    if key.owner == *user || matches!(call.who, Principal::Admin) {
        event
    } else {
        event.also(action, "user", key.owner.as_str())
    }
}

/// The key that the caller acts with, and its generation: a decision is valid for that generation
/// only.
pub(super) fn acting(who: &Principal) -> Option<(KeyId, u32)> {
    who.key().map(|by| (by.id.clone(), by.generation))
}

/// The error if the state on which a change was decided has changed meanwhile.
pub(super) fn changed_meanwhile(error: StoreError) -> Error {
    match error {
        StoreError::Conflict => {
            Error::conflict("The key, or the one you call with, changed during this request.")
        }
        other => other.into(),
    }
}

/// Whether the caller may hold the secret of a key. A key may hold its own secret, and that of any
/// key that it could have created: a key with no more rights, which counts against all limits that
/// the caller's key counts against.
pub(super) fn may_hold(app: &App, who: &Principal, wanted: &KeyRow) -> bool {
    let Some(own) = who.key().filter(|own| own.id != wanted.id) else {
        return true;
    };
    let lasting =
        own.expires_at.is_none_or(|end| wanted.expires_at.is_some_and(|wanted| wanted <= end));
    let labels = who.is_admin() || own.labels == wanted.labels;
    let draws = counted(app, own).is_subset(&counted(app, wanted));
    wanted.scopes.iter().all(|scope| who.has_scope(scope))
        && wanted.limits.within(&own.limits)
        && lasting
        && labels
        && draws
}

/// 403 unless the caller may end a key: an admin may, and every caller who may hold its secret.
pub(super) fn may_end(app: &App, who: &Principal, key: &KeyRow) -> Result<()> {
    if who.is_admin() || may_hold(app, who, key) {
        return Ok(());
    }
    let why = "This key has more rights than yours. End it with itself or with a session.";
    Err(Error::forbidden(why))
}

/// Whether the caller may still know the secret of a key with reserved scopes after losing the
/// admin role. Its owner may, and so may the admin who granted the scopes, because they end with
/// that role.
pub(super) fn may_keep(who: &Principal, wanted: &KeyRow) -> bool {
    let reserved = wanted.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str()));
    let user = who.user_id();
    !reserved
        || matches!(who, Principal::Admin)
        || user.as_ref() == Some(&wanted.owner)
        || user.is_some() && user == wanted.maker
}

/// The keys whose limits a request of `key` counts against: its ancestors and the key itself.
fn counted(app: &App, key: &KeyRow) -> BTreeSet<KeyId> {
    let above = app.auth.ancestors(key);
    let all = above.iter().map(|above| &**above).chain([key]);
    all.filter(|key| key.limits.are_counted()).map(|key| key.id.clone()).collect()
}
