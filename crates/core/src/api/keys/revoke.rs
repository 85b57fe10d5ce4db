//! `DELETE K/{id}`.

use super::collection::{enter, find};
use super::permission::{is_open, may_end};
use crate::api::page::Query;
use crate::api::route::{ApiRequest, ApiResult};
use crate::api::{answer, audit};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind};
use rerouter_store::Action;

/// `DELETE K/{id}`: the key is dead in memory, then durably, then 204. `?descendants=true` also
/// revokes all keys that descend from it, whoever owns them.
pub(crate) async fn revoke(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, _) = enter(who, request)?;
    let query = Query::read(request.uri().query(), &["descendants"])?;
    let descendants = match query.get("descendants") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Error::invalid("descendants", "descendants must be true or false.")),
    };
    let key = find(app, collection, who, request)?;
    may_end(app, who, key.row())?;
    if is_open(who) && !key.row().made_open {
        // The key would be dead once AGENT is enforced, by a caller without a credential.
        return Err(Error::new(
            Kind::Forbidden,
            "A key created while AGENT was enforced cannot be revoked while AGENT is open.",
        ));
    }
    let (id, now) = (&key.row().id, app.clock.now());
    let store =
        app.store.noting(audit::event(app, who, request, Action::KeyRevoke, "key", id.as_str()));
    let committed = match descendants {
        false => app.auth.revoke(&store, id, now).await?,
        true => app.auth.revoke_descent(&store, id, now).await?,
    };
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    Ok(answer::confirmed(answer::no_content(), unconfirmed))
}
