//! `/v1/gateways`: the gateways that share the store.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::page::{self, Query};
use super::{answer, audit};
use crate::api::{ApiRequest, ApiResult, PathParams};
use crate::app::App;
use crate::auth::Principal;
use crate::bounds;
use crate::clock::rfc3339;
use crate::error::Error;
use crate::store::{Action, GatewayRow};

/// `GET /v1/gateways`; none where the store is not shared.
pub(crate) async fn list(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let found = app.store.gateways().await?;
    let records = found.iter().map(|row| record(app, row)).collect();
    Ok(answer::json(StatusCode::OK, &page::list(records, bounds::GATEWAYS)))
}

/// `DELETE /v1/gateways/{id}`: no change waits any longer for a gateway that is known to be dead.
/// One that lives registers anew.
pub(crate) async fn forget(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let id = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    let event = audit::event(app, who, request, Action::GatewayForget, "gateway", id);
    match app.store.noting(event).forget_gateway(id).await? {
        true => Ok(answer::no_content()),
        false => Err(Error::not_found("gateway")),
    }
}

/// A gateway, with its lease by the clock of the database.
fn record(app: &App, row: &GatewayRow) -> Value {
    let lease = app.store.lease().unwrap_or_default();
    let lease_us = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
    let left_ms = lease_us.saturating_sub(row.silent_us).max(0) / 1_000;
    let state = match (row.fenced, left_ms > 0) {
        (true, _) => "fenced",
        (false, true) => "serving",
        (false, false) => "silent",
    };
    let time = |at: i64| Timestamp::from_microsecond(at).ok().map(rfc3339);
    json!({
        "object": "gateway", "id": row.id, "name": row.name, "address": row.address,
        "version": row.version, "self": app.store.is_instance(&row.instance), "state": state,
        "lease_ms": left_ms, "serves_stale": row.serves_stale, "applied": row.applied,
        "lag": row.lag, "document": row.document, "registered_at": time(row.registered_at),
        "renewed_at": time(row.renewed_at),
    })
}
