//! `GET K` and `GET K/{id}`.

use jiff::Timestamp;

use super::collection::{enter, find};
use super::record::shown;
use super::usage;
use crate::api::call::{Answer, Call};
use crate::api::page;
use crate::app::App;
use rerouter_access::auth::Key;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::KeyId;
use rerouter_base::interface::Interface;
use rerouter_records::key::{KeyQuery, KeyRecord};
use rerouter_records::page::Page;
use rerouter_store::KeyState;

fn keeps(query: &KeyQuery, app: &App, key: &Key, now: Timestamp) -> bool {
    let row = key.row();
    let of_status = match query.status {
        Some(status) => key.state(now) == status,
        None => key.state(now) != KeyState::Revoked,
    };
    let expires = |before: Timestamp| row.expires_at.is_some_and(|end| now < end && end < before);
    // A key created after `since` does not count as unused.
    let unused = |since: Timestamp| {
        row.created_at < since && key.last_used().is_none_or(|used| used < since)
    };
    of_status
        && query.expires_before.is_none_or(|before| expires(before.0))
        && query.unused_since.is_none_or(|since| unused(since.0))
        && query.budget_used.is_none_or(|share| usage::budget_used(app, key, now) >= share)
}

pub(crate) async fn list(call: Call<'_>, query: KeyQuery) -> Result<Answer<Page<KeyRecord>>> {
    let ((collection, _), app) = (enter(call)?, call.app);
    let after = page::after(query.after.as_deref(), "a key", KeyId::parse)?;
    let owner = query.owner.as_deref();
    let reach = page::within(owner, app.auth.reach(call.who), "the keys")?;
    let interface = collection.interface;
    if query.budget_used.is_some() && interface != Interface::Router {
        return Err(Error::invalid("budget_used", "budget_used must be of ROUTER keys."));
    }
    let now = call.now();
    let keep = |key: &Key| {
        reach.covers(&key.row().owner, Some(&key.row().id)) && keeps(&query, app, key, now)
    };
    let most = query.limit + 1;
    let found = app.auth.keys(interface, reach.owner(), after.as_ref(), most, keep).await;
    let found = found.iter().map(|key| shown(key, now)).collect();
    Ok(Page::of(found, query.limit, |key: &KeyRecord| key.id.to_string()).into())
}

/// `GET K/{id}`; for a ROUTER key also the usage of its limits.
pub(crate) async fn get(call: Call<'_>) -> Result<Answer<KeyRecord>> {
    let (collection, _) = enter(call)?;
    let key = find(call, collection)?;
    let now = call.now();
    let is_router = collection.interface == Interface::Router;
    let usage = is_router.then(|| usage::usage(call.app, &key, now));
    Ok(KeyRecord { usage, ..shown(&key, now) }.into())
}
