//! `/console/keys`.

use maud::{Markup, html};

use super::super::call::PageCall;
use super::super::layout::Tab;
use super::super::links::with_query;
use super::super::{limits, pieces};
use super::{collection, interface, interfaces, link, status_class, title};
use rerouter_base::interface::Interface;
use rerouter_core::api::ApiResult;
use rerouter_records::Time;
use rerouter_records::key::KeyRecord;

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
    let (status, owner) = (filter("status"), filter("owner"));
    let parameters = [("status", status.as_str()), ("owner", owner.as_str())];
    let word = interface.as_str();
    let here = format!("/console/keys?interface={word}");
    let (rows, next) = call.list::<KeyRecord>(collection(interface), &here, &parameters).await?;
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
            (table(interface, &rows, shows_owner))
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

fn table(interface: Interface, rows: &[KeyRecord], shows_owner: bool) -> Markup {
    let of_router: &[&str] =
        if interface == Interface::Router { &["Models", "Limits"] } else { &[] };
    let owner: &[&str] = if shows_owner { &["Owner"] } else { &[] };
    let first = &["Name", "Key", "Status", "Scopes"][..];
    let headings = [first, of_router, &["Last used", "Expires"], owner].concat();
    let rows = html! { @for key in rows { (row(interface, key, shows_owner)) } };
    pieces::table("Keys", &headings, &rows)
}

fn row(interface: Interface, key: &KeyRecord, shows_owner: bool) -> Markup {
    let time = |at: Option<Time>| {
        html! {
            @match at {
                Some(at) => (pieces::time(&at.to_string())),
                None => span .muted { "never" },
            }
        }
    };
    html! {
        tr {
            td { a href=(link(interface, key.id.as_str(), "")) { (key.name) } }
            td .mono { (key.redacted) }
            td { (pieces::badge(status_class(key.status), key.status.as_str())) }
            td { (key.scopes.join(", ")) }
            @if interface == Interface::Router {
                td { (limits::models(&key.limits)) }
                td { (limits::summary(&key.limits)) }
            }
            td { (time(key.last_used_at)) }
            td { (time(key.expires_at)) }
            @if shows_owner {
                @let page = format!("/console/users/{}", key.owner);
                td { (pieces::id_link(&page, key.owner.as_str())) }
            }
        }
    }
}
