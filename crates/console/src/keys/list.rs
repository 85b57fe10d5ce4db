//! `/console/keys`.

use maud::{Markup, html};
use serde_json::Value;

use super::super::call::PageCall;
use super::super::form_state::words;
use super::super::layout::Tab;
use super::super::links::with_query;
use super::super::{limits, pieces};
use super::{collection, interface, interfaces, link, status_class, title};
use rerouter_base::interface::Interface;
use rerouter_core::api::ApiResult;

const STATUSES: [(&str, &str); 5] = [
    ("", "not revoked"),
    ("active", "active"),
    ("inactive", "disabled"),
    ("expired", "expired"),
    ("revoked", "revoked"),
];

/// `GET /console/keys?interface=&status=&owner=&after=`
pub(in super::super) async fn list(call: PageCall<'_>) -> ApiResult {
    let interface = interface(&call);
    let filter = |name: &str| call.query(name).unwrap_or_default();
    let (status, owner, after) = (filter("status"), filter("owner"), filter("after"));
    let parameters = [("status", status.as_str()), ("owner", owner.as_str())];
    let asked = [&parameters[..], &[("after", after.as_str())]].concat();
    let found = call.get(&with_query(collection(interface), &asked)).await?;
    let word = interface.as_str();
    let next = found.get("next").and_then(Value::as_str).map(|next| {
        let more = [&parameters[..], &[("interface", word), ("after", next)]].concat();
        with_query("/console/keys", &more)
    });
    let rows = found.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let shows_owner = call.is_admin() && interface != Interface::Agent;
    let main = html! {
        (tabs(&call, interface))
        div .access-head {
            (filters(interface, &status, &owner, shows_owner))
            a .button href=(with_query("/console/keys/new", &[("interface", word)])) {
                "New key"
            }
        }
        @if rows.is_empty() {
            (pieces::empty("No keys here.",
                "A key is what a client or a program shows. “New key” makes one."))
        } @else {
            (table(interface, rows, shows_owner))
        }
        (pieces::pager(next.as_deref()))
        @if interface == Interface::Router {
            p { a href="/console/clients" { "Set up a client" } }
        }
    };
    call.page("Keys", Tab::Keys, main)
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

fn filters(interface: Interface, status: &str, owner: &str, shows_owner: bool) -> Markup {
    html! {
        form .row action="/console/keys" method="get" role="search" {
            input type="hidden" name="interface" value=(interface.as_str());
            (pieces::field("Status", "status", &html! {
                select #status name="status" {
                    @for (word, label) in STATUSES {
                        option value=(word) selected[word == status] { (label) }
                    }
                }
            }, ""))
            @if shows_owner {
                (pieces::field("Owner", "owner", &html! {
                    input #owner name="owner" value=(owner) placeholder="usr_…" autocomplete="off";
                }, ""))
            }
            button type="submit" { "Filter" }
        }
    }
}

fn table(interface: Interface, rows: &[Value], shows_owner: bool) -> Markup {
    let of_router: &[&str] =
        if interface == Interface::Router { &["Models", "Limits"] } else { &[] };
    let owner: &[&str] = if shows_owner { &["Owner"] } else { &[] };
    let first = &["Name", "Key", "Status", "Scopes"][..];
    let headings = [first, of_router, &["Last used", "Expires"], owner].concat();
    let rows = html! { @for key in rows { (row(interface, key, shows_owner)) } };
    pieces::table("Keys", &headings, &rows)
}

fn row(interface: Interface, key: &Value, shows_owner: bool) -> Markup {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let (id, status) = (text("id").unwrap_or_default(), text("status").unwrap_or_default());
    let limits = key.get("limits").unwrap_or(&Value::Null);
    html! {
        tr {
            td { a href=(link(interface, id, "")) { (text("name").unwrap_or_default()) } }
            td .mono { (text("redacted").unwrap_or_default()) }
            td { (pieces::badge(status_class(status), status)) }
            td { (words(key.get("scopes"))) }
            @if interface == Interface::Router {
                td { (limits::models(limits)) }
                td { (limits::summary(limits)) }
            }
            td { @match text("last_used_at") {
                Some(at) => (pieces::time(at)),
                None => span .muted { "never" },
            } }
            td { @match text("expires_at") {
                Some(at) => (pieces::time(at)),
                None => span .muted { "never" },
            } }
            @if shows_owner {
                td { @if let Some(owner) = text("owner") {
                    (pieces::id_link(&format!("/console/users/{owner}"), owner))
                } }
            }
        }
    }
}
