//! `/console/gateways`: the gateways that share the store, for admins.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::Value;

use super::call::PageCall;
use super::form_state::{is_of_form, refused_page};
use super::layout::Tab;
use super::pieces;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

/// `GET /console/gateways`. The list is loaded again every few seconds.
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
    let found = call.get("/v1/gateways").await?;
    let rows = found.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if call.is_fragment() {
        return call.fragment(StatusCode::OK, table(rows));
    }
    let main = html! {
        (notice)
        div #gateways hx-get="/console/gateways" hx-trigger="every 5s" data-quiet="" {
            (table(rows))
        }
        @for row in rows { (end(row)) }
    };
    call.page("Gateways", Tab::Gateways, main)
}

fn table(rows: &[Value]) -> Markup {
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

fn row(gateway: &Value) -> Markup {
    let text = |name: &str| gateway.get(name).and_then(Value::as_str).unwrap_or_default();
    let is = |name: &str| gateway.get(name).and_then(Value::as_bool).unwrap_or(false);
    let kind = match text("state") {
        "serving" => "ok",
        "silent" => "warn",
        _ => "bad",
    };
    let lag = gateway.get("lag").and_then(Value::as_u64);
    html! {
        tr {
            td {
                (text("name"))
                @if is("self") { " " (pieces::badge("info", "this one")) }
            }
            td {
                (pieces::badge(kind, text("state")))
                @if is("serves_stale") { " " (pieces::badge("warn", "may serve stale")) }
            }
            td .mono { (text("address")) }
            td .mono { (text("version")) }
            td .num {
                @let lease = gateway.get("lease_ms").and_then(Value::as_f64);
                (pieces::duration_ms(lease.unwrap_or(0.0)))
            }
            td .num { @match lag {
                Some(0) => "none",
                Some(lag) => (pieces::badge("warn", &format!("{lag} changes"))),
                None => "–",
            } }
            td .mono title=(text("document")) { (pieces::short_id(text("document"))) }
            td { (pieces::time(text("renewed_at"))) }
        }
    }
}

/// The form that takes a dead gateway off the list.
fn end(gateway: &Value) -> Markup {
    let text = |name: &str| gateway.get(name).and_then(Value::as_str).unwrap_or_default();
    html! {
        @if text("state") != "serving" {
            (pieces::confirm_form(
                &format!("/console/gateways/{}/forget", encode(text("id"))),
                &format!("Forget {}", text("name")),
                "Only if you know that it is dead: no change waits for it any longer. One that \
                 lives registers anew.",
            ))
        }
    }
}
