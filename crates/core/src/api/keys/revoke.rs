//! `DELETE K/{id}`.

use super::collection::{enter, find};
use super::permission::{is_open, may_end};
use crate::api::call::{Answer, Call};
use rerouter_base::error::{Error, Result};
use rerouter_records::key::RevokeQuery;
use rerouter_store::Action;

/// `DELETE K/{id}`: the key stops working in memory, then durably, and then the answer is 204.
/// `?descendants=true` also revokes all keys that descend from it, of any owner.
pub(crate) async fn revoke(call: Call<'_>, query: RevokeQuery) -> Result<Answer<()>> {
    let ((collection, _), Call { app, who, .. }) = (enter(call)?, call);
    let key = find(call, collection)?;
    may_end(app, who, key.row())?;
    if is_open(who) && !key.row().made_open {
        // Otherwise a caller without a credential could revoke keys for the time when AGENT is
        // enforced again.
        return Err(Error::forbidden(
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
