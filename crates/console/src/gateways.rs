//! `/console/gateways`: the gateways that share the store, for admins.

use http::{Method, StatusCode};
use maud::{Markup, html};

use super::call::PageCall;
use super::form_state::{is_of_form, refused_page};
use super::layout::Tab;
use super::pieces;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::gateway::{GatewayRecord, GatewayState};

/// `GET /console/gateways`. The list is reloaded every few seconds.
pub(super) async fn list(call: PageCall<'_>) -> ApiResult {
    shown(&call, html! {}).await
}

/// `POST /console/gateways/{id}/forget`
pub(super) async fn forget(call: PageCall<'_>) -> ApiResult {
    let path = format!("/v1/gateways/{}", encode(&call.param(0)));
    match call.call(Method::DELETE, &path, None).await {
        Ok(_) => call.redirect("/console/gateways"),
        Err(error) if is_of_form(&error) => {
            let why = pieces::notice("bad", &html! { (error.detail()) });
            refused_page(shown(&call, why).await, &error)
        }
        Err(error) => Err(error),
    }
}

async fn shown(call: &PageCall<'_>, notice: Markup) -> ApiResult {
    let (rows, _) = call.list("/v1/gateways", "", &[]).await?;
    if call.is_fragment() {
        return call.fragment(StatusCode::OK, table(&rows));
    }
    let main = html! {
        (notice)
        div #gateways hx-get="/console/gateways" hx-trigger="every 5s" data-quiet="" {
            (table(&rows))
        }
        @for row in &rows { (end(row)) }
    };
    call.page("Gateways", Tab::Gateways, main)
}

fn table(rows: &[GatewayRecord]) -> Markup {
    if rows.is_empty() {
        return pieces::empty(
            "One gateway, which shares its store with no other.",
            "Gateways that share a PostgreSQL database are listed here.",
        );
    }
    html! {
        div .scroll tabindex="0" role="region" aria-label="Gateways" {
            table .table {
                thead { tr {
                    th scope="col" { "Name" } th scope="col" { "State" }
                    th scope="col" { "Address" } th scope="col" { "Version" }
                    th scope="col" .num { "Lease" } th scope="col" .num { "Lag" }
                    th scope="col" { "Document" } th scope="col" { "Renewed" }
                } }
                tbody { @for gateway in rows { (row(gateway)) } }
            }
        }
    }
}

fn row(gateway: &GatewayRecord) -> Markup {
    let kind = match gateway.state {
        GatewayState::Serving => "ok",
        GatewayState::Silent => "warn",
        GatewayState::Fenced => "bad",
    };
    html! {
        tr {
            td {
                (gateway.name)
                @if gateway.is_self { " " (pieces::badge("info", "this one")) }
            }
            td {
                (pieces::badge(kind, gateway.state.as_str()))
                @if gateway.serves_stale { " " (pieces::badge("warn", "may serve stale")) }
            }
            td .mono { (gateway.address) }
            td .mono { (gateway.version) }
            td .num { (pieces::duration_ms(gateway.lease_ms as f64)) }
            td .num { @match gateway.lag {
                0 => "none",
                lag => (pieces::badge("warn", &format!("{lag} changes"))),
            } }
            td .mono title=(gateway.document) { (pieces::short_id(&gateway.document)) }
            td { @if let Some(at) = gateway.renewed_at { (pieces::time(&at.to_string())) } }
        }
    }
}

/// The form that removes a dead gateway from the list.
fn end(gateway: &GatewayRecord) -> Markup {
    html! {
        @if gateway.state != GatewayState::Serving {
            (pieces::confirm_form(
                &format!("/console/gateways/{}/forget", encode(&gateway.id)),
                &format!("Forget {}", gateway.name),
                "Only if you know that it is dead: no change waits for it any longer. One that \
                 lives registers anew.",
            ))
        }
    }
}
