//! `/v1/gateways`: the gateways that share the store.

use std::time::Duration;

use jiff::Timestamp;

use super::call::{Answer, Call};
use crate::app::App;
use rerouter_base::error::{Error, Result};
use rerouter_records::gateway::{GatewayObject, GatewayRecord, GatewayState};
use rerouter_records::page::Page;
use rerouter_store::{Action, GatewayRow};

/// Most gateways in one answer: in practice all of them.
const GATEWAYS: usize = 10_000;

/// `GET /v1/gateways`; empty if the store is not shared.
pub(super) async fn list(call: Call<'_>) -> Result<Answer<Page<GatewayRecord>>> {
    let found = call.app.store.gateways().await?;
    let found = found.iter().map(|row| record(call.app, row)).collect();
    Ok(Page::of(found, GATEWAYS, |gateway: &GatewayRecord| gateway.id.clone()).into())
}

/// `DELETE /v1/gateways/{id}`: removes a dead gateway that had `on_lease_lost: serve_stale`, so
/// that changes no longer name it as unconfirmed. A gateway that is alive registers again.
pub(super) async fn forget(call: Call<'_>) -> Result<Answer<()>> {
    let (app, id) = (call.app, call.id());
    let rows = app.store.gateways().await?;
    let row = rows.iter().find(|row| row.id == id).ok_or_else(|| Error::not_found("gateway"))?;
    let conflict = |why| Err(Error::conflict(why).retry_after(lease(app, row)));
    // The gateway may answer from its tables until its lease is over.
    if !row.serves_stale {
        return conflict("This gateway leaves the list by itself when its lease is over.");
    }
    if left_us(app, row) > 0 {
        return conflict("This gateway has a lease, so it lives, or did a moment ago.");
    }
    let store = call.noting(Action::GatewayForget, "gateway", id);
    match store.forget_gateway(row).await? {
        true => Ok(().into()),
        false => conflict("This gateway has a lease, so it lives, or did a moment ago."),
    }
}

fn lease(app: &App, row: &GatewayRow) -> Duration {
    match row.lease.is_zero() {
        true => app.store.lease().unwrap_or_default(),
        false => row.lease,
    }
}

/// Microseconds until the lease is over, by the clock of the database.
fn left_us(app: &App, row: &GatewayRow) -> i64 {
    let lease_us = i64::try_from(lease(app, row).as_micros()).unwrap_or(i64::MAX);
    lease_us.saturating_sub(row.silent_us).max(0)
}

fn record(app: &App, row: &GatewayRow) -> GatewayRecord {
    let left_ms = left_us(app, row) / 1_000;
    let time = |at: i64| Timestamp::from_microsecond(at).ok().map(Into::into);
    GatewayRecord {
        object: GatewayObject::It,
        id: row.id.clone(),
        name: row.name.clone(),
        address: row.address.clone(),
        version: row.version.clone(),
        is_self: app.store.process() == Some(&*row.process),
        state: match (row.fenced, left_ms > 0) {
            (true, _) => GatewayState::Fenced,
            (false, true) => GatewayState::Serving,
            (false, false) => GatewayState::Silent,
        },
        lease_ms: left_ms,
        serves_stale: row.serves_stale,
        applied: row.applied,
        lag: row.lag,
        document: row.document.clone(),
        registered_at: time(row.registered_at),
        renewed_at: time(row.renewed_at),
        clock_offset_ms: row.clock_ahead / 1_000,
    }
}
