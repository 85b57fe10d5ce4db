//! The collections of keys: one for each interface.

use crate::api::call::Call;
use rerouter_access::auth::{
    ADMIN_SCOPE, AGENT_SCOPES, Key, PIN_SCOPES, Principal, RESERVED_SCOPES, SESSION_SCOPES,
};
use rerouter_base::error::{Error, Result};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::interface::{Interface, Surface};

pub(super) struct KeyCollection {
    pub(super) interface: Interface,
    pub(super) path: &'static str,
    /// Default scopes, if the creator names none.
    pub(super) defaults: &'static [&'static str],
    /// Scopes that every caller who has them may grant.
    pub(super) usual: &'static [&'static str],
    /// Scopes that only an admin may grant.
    pub(super) reserved: &'static [&'static str],
    /// The scope that a caller needs.
    needed: &'static str,
}

const COLLECTIONS: &[KeyCollection] = &[
    KeyCollection {
        interface: Interface::Pin,
        path: "/v1/apikeys",
        defaults: &PIN_SCOPES,
        usual: &PIN_SCOPES,
        reserved: &[ADMIN_SCOPE],
        needed: "user",
    },
    KeyCollection {
        interface: Interface::Agent,
        path: "/v1/api-keys",
        defaults: &AGENT_SCOPES,
        usual: &AGENT_SCOPES,
        reserved: &[],
        needed: "keys",
    },
    KeyCollection {
        interface: Interface::Router,
        path: "/v1/router/keys",
        defaults: &["inference"],
        usual: &SESSION_SCOPES,
        reserved: &RESERVED_SCOPES,
        needed: "keys",
    },
];

/// Returns the collection that a path names, and the user on whose behalf the caller acts.
pub(super) fn enter(call: Call<'_>) -> Result<(&'static KeyCollection, UserId)> {
    let interface = Surface::of(call.request.uri().path()).interface();
    let collection = COLLECTIONS
        .iter()
        .find(|collection| collection.interface == interface)
        .ok_or_else(|| Error::not_found("route"))?;
    call.who.require(collection.needed)?;
    let user = match call.who {
        Principal::AgentTenant { .. } => UserId::tenant(),
        who => who.user_id().ok_or_else(|| Error::forbidden("Keys belong to users."))?,
    };
    Ok((collection, user))
}

/// Returns the key that a path names; 404 also if it is out of reach.
pub(super) fn find(call: Call<'_>, collection: &KeyCollection) -> Result<std::sync::Arc<Key>> {
    let (auth, reach) = (&call.app.auth, call.app.auth.reach(call.who));
    KeyId::parse(call.id())
        .and_then(|id| auth.key(collection.interface, &id))
        .filter(|key| reach.covers(&key.row().owner, Some(&key.row().id)))
        .ok_or_else(|| Error::not_found("key"))
}
