//! `GET K` and `GET K/{id}`.

use http::StatusCode;
use serde_json::Value;

use super::collection::{enter, find};
use super::record::shown;
use super::usage;
use crate::api::answer;
use crate::api::page::{self, Query};
use crate::api::{ApiRequest, ApiResult};
use crate::app::App;
use crate::auth::{Key, KeyState, Principal};
use crate::error::Error;
use crate::id::KeyId;
use crate::interface::Interface;

pub(crate) async fn list(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, user) = enter(who, request)?;
    let query = Query::read(request.uri().query(), &["limit", "after", "status", "owner"])?;
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
    let owner = page::owner(&query, who, user, "the keys")?;
    let now = app.clock.now();
    let keep = |key: &Key| match status {
        Some(status) => key.state(now) == status,
        None => key.state(now) != KeyState::Revoked,
    };
    let found =
        app.auth.keys(collection.interface, owner.as_ref(), after.as_ref(), limit + 1, keep).await;
    let found = found.iter().map(|key| shown(key, now)).collect();
    Ok(answer::json(StatusCode::OK, &page::list(found, limit)))
}

/// `GET K/{id}`; for a ROUTER key also the usage of its limits.
pub(crate) async fn get(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (collection, user) = enter(who, request)?;
    Query::read(request.uri().query(), &[])?;
    let key = find(app, collection, who, &user, request)?;
    let now = app.clock.now();
    let mut record = shown(&key, now);
    if let (Value::Object(record), Interface::Router) = (&mut record, collection.interface) {
        record.insert("usage".to_owned(), usage::usage(app, &key, now));
    }
    Ok(answer::json(StatusCode::OK, &record))
}
