//! What a caller may do with a key.

use std::collections::BTreeSet;

use crate::api::call::Call;
use crate::app::App;
use rerouter_access::auth::{AgentCredential, Principal, RESERVED_SCOPES};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{KeyId, UserId};
use rerouter_store::{Action, Event, KeyRow, StoreError};

/// Whether the caller showed no credential because AGENT is open.
pub(super) fn is_open(who: &Principal) -> bool {
    matches!(who, Principal::AgentTenant { via: AgentCredential::Open })
}

/// The audit event of a call that shows the secret of a key. It names the owner too if that is
/// another user: what is done with the secret looks like the owner's doing. `ADMIN_API_KEY` may do
/// everything anyway.
pub(super) fn noted(call: Call<'_>, user: &UserId, action: Action, key: &KeyRow) -> Event {
    let event = call.event(action, "key", key.id.as_str());
    if key.owner == *user || matches!(call.who, Principal::Admin) {
        event
    } else {
        event.also("user", key.owner.as_str())
    }
}

/// The key that the caller acts with, and its generation, on which the decision rests.
pub(super) fn acting(who: &Principal) -> Option<(KeyId, u32)> {
    who.key().map(|by| (by.id.clone(), by.generation))
}

/// The error of a change whose decision rests on a state that changed in the meantime.
pub(super) fn changed_meanwhile(error: StoreError) -> Error {
    match error {
        StoreError::Conflict => Error::new(
            Kind::Conflict,
            "The key, or the one you call with, changed during this request.",
        ),
        other => other.into(),
    }
}

/// Whether the caller may have the secret of a key. A key may have its own, and that of a key that
/// it could have created: one with no more rights, which draws on all limits that it draws on
/// itself.
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

/// 403 unless the caller may end a key: an admin may, and whoever may have its secret.
pub(super) fn may_end(app: &App, who: &Principal, key: &KeyRow) -> Result<()> {
    if who.is_admin() || may_hold(app, who, key) {
        return Ok(());
    }
    let why = "This key has more rights than yours. End it with itself or with a session.";
    Err(Error::new(Kind::Forbidden, why))
}

/// Whether the caller may know the secret of a key with reserved scopes, even after losing the
/// admin role: its owner may, and the admin who granted the scopes, as they end with that role.
pub(super) fn may_keep(who: &Principal, wanted: &KeyRow) -> bool {
    let reserved = wanted.scopes.iter().any(|scope| RESERVED_SCOPES.contains(&scope.as_str()));
    let user = who.user_id();
    !reserved
        || matches!(who, Principal::Admin)
        || user.as_ref() == Some(&wanted.owner)
        || user.is_some() && user == wanted.maker
}

/// The keys on whose counted limits a request of `key` draws: its ancestors and itself.
fn counted(app: &App, key: &KeyRow) -> BTreeSet<KeyId> {
    let above = app.auth.ancestors(key);
    let all = above.iter().map(|above| &**above).chain([key]);
    all.filter(|key| key.limits.are_counted()).map(|key| key.id.clone()).collect()
}
