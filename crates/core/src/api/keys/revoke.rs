//! `DELETE K/{id}`.

use super::collection::{enter, find};
use super::permission::{is_open, may_end};
use crate::api::call::{Answer, Call};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_records::key::RevokeQuery;
use rerouter_store::Action;

/// `DELETE K/{id}`: the key is dead in memory, then durably, then 204. `?descendants=true` also
/// revokes all keys that descend from it, whoever owns them.
pub(crate) async fn revoke(call: Call<'_>, query: RevokeQuery) -> Result<Answer<()>> {
    let ((collection, _), Call { app, who, .. }) = (enter(call)?, call);
    let key = find(call, collection)?;
    may_end(app, who, key.row())?;
    if is_open(who) && !key.row().made_open {
        // The key would be dead once AGENT is enforced, by a caller without a credential.
        return Err(Error::new(
            Kind::Forbidden,
            "A key created while AGENT was enforced cannot be revoked while AGENT is open.",
        ));
    }
    let (id, now) = (&key.row().id, call.now());
    let store = call.noting(Action::KeyRevoke, "key", id.as_str());
    let committed = match query.descendants {
        false => app.auth.revoke(&store, id, now).await?,
        true => app.auth.revoke_descent(&store, id, now).await?,
    };
    call.commit(&committed, ()).await
}
