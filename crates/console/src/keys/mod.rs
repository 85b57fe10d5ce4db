//! Pages of keys of the three interfaces.

mod create;
mod fields;
mod one;

pub(super) use one::{revoke, rotate, show};

use http::Method;
use http::header::HeaderName;
use maud::{Markup, html};
use serde_json::Value;

use self::fields::{
    EXPIRES, LABELS, NAME, OF_ADMINS, STATUS, collection, interface, interfaces, link, status,
    title,
};
use super::call::{PageCall, request};
use super::form::Form;
use super::form_fields::{FormGroup, body, plain};
use super::form_state::FormState;
use super::layout::Tab;
use super::limits;
use super::links::with_query;
use super::pieces::{self, Column};
use super::resource::{Resource, set_header};
use rerouter_base::error::Result;
use rerouter_base::interface::Interface;
use rerouter_core::api::{ApiRequest, ApiResult};
use rerouter_records::Time;
use rerouter_records::key::KeyRecord;

impl Resource for KeyRecord {
    const TAB: Tab = Tab::Keys;
    const TITLE: &'static str = "Keys";
    const EMPTY: (&'static str, &'static str) =
        ("No keys here.", "A key is what a client or a program shows. “New key” makes one.");
    const COLUMNS: &'static [Column<Self>] = &[
        Column("Name", "", |key| {
            html! { a href=(link(key.interface, key.id.as_str(), "")) { (key.name) } }
        }),
        Column("Key", "mono", |key| html! { (key.redacted) }),
        Column("Status", "", status),
        Column("Scopes", "", |key| html! { (key.scopes.join(", ")) }),
        Column("Models", "", |key| limits::models(&key.limits)),
        Column("Limits", "", |key| limits::summary(&key.limits)),
        Column("Last used", "", |key| or_never(key.last_used_at)),
        Column("Expires", "", |key| or_never(key.expires_at)),
        Column("Owner", "", |key| {
            pieces::id_link(&format!("/console/users/{}", key.owner), key.owner.as_str())
        }),
    ];
    const PAGE: &'static str = "/console/keys";
    const API: &'static str = collection(Interface::Router);
    const NEW: (&'static str, &'static str) = ("New key", "Create key");
    const NEW_FIELDS: &'static [FormGroup] =
        &[plain(&[NAME, EXPIRES]), limits::ROUTER, plain(OF_ADMINS)];
    const FIELDS: &'static [FormGroup] = &[plain(&[NAME, EXPIRES, STATUS, LABELS]), limits::ROUTER];

    fn name(&self) -> &str {
        &self.name
    }

    fn api(call: &PageCall<'_>) -> &'static str {
        collection(interface(call))
    }

    fn query(call: &PageCall<'_>) -> String {
        format!("?interface={}", interface(call).as_str())
    }

    fn inputs(call: &PageCall<'_>, state: &FormState<'_>) -> Markup {
        create::inputs(call, state)
    }

    /// The same form sent twice makes one key.
    fn creation(call: &PageCall<'_>, sent: &Form) -> Result<ApiRequest> {
        let mut body = body(Self::NEW_FIELDS, sent)?;
        body.insert("scopes".to_owned(), sent.all("scopes").into());
        let mut request = request(Method::POST, Self::api(call), Some(&body.into()))?;
        set_header(&mut request, sent, "once", HeaderName::from_static("idempotency-key"))?;
        Ok(request)
    }

    async fn made(call: &PageCall<'_>, made: Value) -> ApiResult {
        create::secret_page(call, "Key created", &made).await
    }

    fn shown(&self, call: &PageCall<'_>, state: &FormState<'_>) -> Markup {
        one::shown(self, call, state)
    }
}

/// `GET /console/keys?interface=&status=&owner=&after=`
pub(super) async fn list(call: PageCall<'_>) -> ApiResult {
    let interface = interface(&call);
    let asked = call.asked()?;
    let filters = ["status", "owner"].map(|name| (name, asked.text(name)));
    let here = format!("{}{}", KeyRecord::PAGE, KeyRecord::query(&call));
    let (rows, next) = call.list::<KeyRecord>(KeyRecord::api(&call), &here, &filters).await?;
    let shows_owner = call.is_admin() && interface != Interface::Agent;
    let columns = KeyRecord::COLUMNS.iter().filter(|Column(heading, ..)| match *heading {
        "Models" | "Limits" => interface == Interface::Router,
        "Owner" => shows_owner,
        _ => true,
    });
    let new = with_query("/console/keys/new", &[("interface", interface.as_str())]);
    let main = html! {
        (tabs(&call, interface))
        div .access-head {
            form .row action="/console/keys" method="get" role="search" {
                input type="hidden" name="interface" value=(interface.as_str());
                (FormState::sent(&asked).fields(&[STATUS]))
                @if shows_owner {
                    (pieces::field("Owner", "owner", &html! {
                        input #owner name="owner" value=(asked.text("owner")) placeholder="usr_…"
                            autocomplete="off";
                    }, ""))
                }
                button type="submit" { "Filter" }
            }
            a .button href=(new) { (KeyRecord::NEW.0) }
        }
        (pieces::list(KeyRecord::TITLE, KeyRecord::EMPTY, columns, &rows))
        (pieces::pager(next.as_deref()))
        @if interface == Interface::Router {
            p { a href="/console/clients" { "Set up a client" } }
        }
    };
    call.page(KeyRecord::TITLE, KeyRecord::TAB, main)
}

fn tabs(call: &PageCall<'_>, current: Interface) -> Markup {
    html! {
        nav .tabs aria-label="Interfaces" {
            @for interface in interfaces(call) {
                a .tab href={ "/console/keys?interface=" (interface.as_str()) }
                    aria-current=[(interface == current).then_some("page")]
                    title=(title(interface)) {
                    (interface.as_str().to_uppercase())
                }
            }
        }
        p .muted { (title(current)) }
    }
}

fn or_never(at: Option<Time>) -> Markup {
    match at {
        Some(_) => pieces::when(at),
        None => html! { span .muted { "never" } },
    }
}
