//! `/console/gateways`: the gateways that share the store, for admins.

use http::Method;
use maud::{Markup, html};

use super::call::PageCall;
use super::form_state::{FormState, is_of_form, with_status};
use super::layout::Tab;
use super::pieces::{self, Column};
use super::resource::{Resource, list_page, path};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::gateway::{GatewayRecord, GatewayState};

impl Resource for GatewayRecord {
    const TAB: Tab = Tab::Gateways;
    const TITLE: &'static str = "Gateways";
    const EMPTY: (&'static str, &'static str) = (
        "One gateway, which shares its store with no other.",
        "Gateways that share a PostgreSQL database are listed here.",
    );
    const COLUMNS: &'static [Column<Self>] = &[
        Column("Name", "", |gateway| {
            html! { (gateway.name) @if gateway.is_self { " " (pieces::badge("info", "this one")) } }
        }),
        Column("State", "", state),
        Column("Address", "mono", |gateway| html! { (gateway.address) }),
        Column("Version", "mono", |gateway| html! { (gateway.version) }),
        Column("Lease", "num", |gateway| html! { (pieces::duration_ms(gateway.lease_ms as f64)) }),
        Column("Lag", "num", |gateway| match gateway.lag {
            0 => html! { "none" },
            lag => pieces::badge("warn", &format!("{lag} changes")),
        }),
        Column("Document", "", |gateway| pieces::id(&gateway.document)),
        Column("Renewed", "", |gateway| pieces::when(gateway.renewed_at)),
    ];
    const PAGE: &'static str = "/console/gateways";
    const API: &'static str = "/v1/gateways";
    const REFRESHED: Option<(&'static str, &'static str)> = Some(("gateways", "every 5s"));

    fn name(&self) -> &str {
        &self.name
    }

    /// Forms that remove dead gateways from the list.
    fn below(rows: &[Self]) -> Markup {
        html! { @for gateway in rows {
            @if gateway.state != GatewayState::Serving {
                (pieces::confirm_form(
                    &format!("/console/gateways/{}/forget", encode(&gateway.id)),
                    &format!("Forget {}", gateway.name),
                    "Only if you know that it is dead: no change waits for it any longer. One that \
                     lives registers anew.",
                ))
            }
        } }
    }
}

fn state(gateway: &GatewayRecord) -> Markup {
    let kind = match gateway.state {
        GatewayState::Serving => "ok",
        GatewayState::Silent => "warn",
        GatewayState::Fenced => "bad",
    };
    html! {
        (pieces::badge(kind, gateway.state.as_str()))
        @if gateway.serves_stale { " " (pieces::badge("warn", "may serve stale")) }
    }
}

/// `POST /console/gateways/{id}/forget`
pub(super) async fn forget(call: PageCall<'_>) -> ApiResult {
    match call.call(Method::DELETE, &path::<GatewayRecord>(&call, ""), None).await {
        Ok(_) => call.redirect(GatewayRecord::PAGE),
        Err(error) if is_of_form(&error) => {
            let state = FormState { refused: Some(&error), ..FormState::default() };
            with_status(error.status(), list_page::<GatewayRecord>(&call, state).await)
        }
        Err(error) => Err(error),
    }
}
