//! `GET K` and `GET K/{id}`.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::Value;

use super::collection::{enter, find};
use super::record::shown;
use super::usage;
use crate::api::answer;
use crate::api::page::{self, Query};
use crate::api::route::{ApiRequest, ApiResult};
use crate::app::App;
use rerouter_access::auth::{Key, KeyState, Principal};
use rerouter_base::error::{Error, Result};
use rerouter_base::id::KeyId;
use rerouter_base::interface::Interface;

pub(crate) const PARAMETERS: &[&str] =
    &["limit", "after", "status", "owner", "expires_before", "unused_since", "budget_used"];

/// Keys that need somebody's attention.
struct KeyFilter {
    expires_before: Option<Timestamp>,
    unused_since: Option<Timestamp>,
    /// The least share that is spent or reserved of the budget that it draws on, of 1.
    budget_used: Option<f64>,
}

impl KeyFilter {
    fn read(query: &Query, interface: Interface) -> Result<Self> {
        let budget_used = query.get("budget_used").map(|text| {
            let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
            share.filter(|_| interface == Interface::Router).ok_or_else(|| {
                Error::invalid("budget_used", "budget_used must be 0 to 1, and of ROUTER keys.")
            })
        });
        Ok(KeyFilter {
            expires_before: time(query, "expires_before")?,
            unused_since: time(query, "unused_since")?,
            budget_used: budget_used.transpose()?,
        })
    }

    fn keeps(&self, app: &App, key: &Key, now: Timestamp) -> bool {
        let row = key.row();
        let expires =
            |before: Timestamp| row.expires_at.is_some_and(|end| now < end && end < before);
        // A key that is new had no time to be used.
        let unused = |since: Timestamp| {
            row.created_at < since && key.last_used().is_none_or(|used| used < since)
        };
        self.expires_before.is_none_or(expires)
            && self.unused_since.is_none_or(unused)
            && self.budget_used.is_none_or(|share| usage::budget_used(app, key, now) >= share)
    }
}

fn time(query: &Query, name: &str) -> Result<Option<Timestamp>> {
    let parse = |text: &str| {
        text.parse().map_err(|_| Error::invalid(name, format!("{name} must be an RFC 3339 time.")))
    };
    query.get(name).map(parse).transpose()
}

pub(crate) async fn list(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, _) = enter(who, request)?;
    let query = Query::read(request.uri().query(), PARAMETERS)?;
    let limit = query.limit()?;
    let parse = |text| {
        KeyId::parse(text).ok_or_else(|| Error::invalid("after", "after must be the id of a key."))
    };
    let after = query.get("after").map(parse).transpose()?;
    let parse = |text| {
        KeyState::parse(text).ok_or_else(|| {
            Error::invalid("status", "status must be active, inactive, expired or revoked.")
        })
    };
    let status = query.get("status").map(parse).transpose()?;
    let reach = page::narrowed(&query, app.auth.reach(who), "the keys")?;
    let filter = KeyFilter::read(&query, collection.interface)?;
    let now = app.clock.now();
    let keep = |key: &Key| {
        let of_status = match status {
            Some(status) => key.state(now) == status,
            None => key.state(now) != KeyState::Revoked,
        };
        of_status
            && reach.covers(&key.row().owner, Some(&key.row().id))
            && filter.keeps(app, key, now)
    };
    let (interface, owner) = (collection.interface, reach.owner());
    let found = app.auth.keys(interface, owner, after.as_ref(), limit + 1, keep).await;
    let found = found.iter().map(|key| shown(key, now)).collect();
    Ok(answer::json(StatusCode::OK, &page::list(found, limit)))
}

/// `GET K/{id}`; for a ROUTER key also the usage of its limits.
pub(crate) async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, _) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    let key = find(app, collection, who, request)?;
    let now = app.clock.now();
    let mut record = shown(&key, now);
    if let (Value::Object(record), Interface::Router) = (&mut record, collection.interface) {
        record.insert("usage".to_owned(), usage::usage(app, &key, now));
    }
    Ok(answer::json(StatusCode::OK, &record))
}
