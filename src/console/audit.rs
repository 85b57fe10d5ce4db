//! `/console/audit`: who did what to what, for admins.

use maud::{Markup, html};
use serde_json::Value;

use super::call::PageCall;
use super::layout::Tab;
use super::links::with_query;
use super::{pieces, times};
use crate::api::ApiResult;
use crate::api::audit::Action;
use crate::wire::query::encode;

const FILTERS: [&str; 5] = ["action", "actor", "target", "since", "until"];

/// `GET /console/audit`, with the filters of the API.
pub(super) async fn list(call: PageCall<'_>) -> ApiResult {
    let asked: Vec<String> =
        FILTERS.iter().map(|name| call.query(name).unwrap_or_default()).collect();
    let filters: Vec<(&str, &str)> =
        FILTERS.into_iter().zip(asked.iter().map(|text| text.trim())).collect();
    let after = call.query("after").unwrap_or_default();
    let [since, until] = ["since", "until"].map(|name| times::utc(value(&filters, name)));
    let mut query = filters.clone();
    for (name, asked) in &mut query {
        match *name {
            "since" => *asked = &since,
            "until" => *asked = &until,
            _ => {}
        }
    }
    query.push(("after", &after));
    let found = call.get(&with_query("/v1/audit", &query)).await?;
    let next = found
        .get("next")
        .and_then(Value::as_str)
        .map(|next| with_query("/console/audit", &[&filters[..], &[("after", next)]].concat()));
    let rows = found.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let main = html! {
        (form(&filters))
        @if rows.is_empty() {
            (pieces::empty("Nothing here.", "No action fits these filters."))
        } @else {
            (table(rows))
        }
        (pieces::pager(next.as_deref()))
    };
    call.page("Audit", Tab::Audit, main)
}

fn value<'a>(filters: &[(&str, &'a str)], name: &str) -> &'a str {
    filters.iter().find(|(own, _)| *own == name).map_or("", |(_, value)| value)
}

fn form(filters: &[(&str, &str)]) -> Markup {
    let input = |name: &str, kind: &str| {
        html! {
            input id=(name) name=(name) type=(kind) value=(value(filters, name)) autocomplete="off";
        }
    };
    let asked = value(filters, "action");
    html! {
        form .row action="/console/audit" method="get" role="search" {
            (pieces::field("Action", "action", &html! {
                select #action name="action" {
                    option value="" { "all" }
                    @for action in Action::ALL {
                        option value=(action.as_str()) selected[action.as_str() == asked]
                            title=(action.meaning()) { (action.as_str()) }
                    }
                }
            }, ""))
            (pieces::field("Actor", "actor", &input("actor", "text"), ""))
            (pieces::field("Target", "target", &input("target", "text"), ""))
            (pieces::field("Since (UTC)", "since", &input("since", "datetime-local"), ""))
            (pieces::field("Until (UTC)", "until", &input("until", "datetime-local"), ""))
            button type="submit" { "Filter" }
        }
    }
}

fn table(rows: &[Value]) -> Markup {
    let headings = ["Time", "Action", "Actor", "Target", "Address", "Request"];
    pieces::table("Audit", &headings, &html! { @for event in rows { (row(event)) } })
}

fn row(event: &Value) -> Markup {
    let text = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let action = Action::parse(text("/action"));
    html! {
        tr {
            td { (pieces::time(text("/at"))) }
            td title=[action.map(Action::meaning)] { (text("/action")) }
            td { (who(text("/actor/type"), text("/actor/id"), "actor")) }
            td { (who(text("/target/type"), text("/target/id"), "target")) }
            td .mono { (text("/address")) }
            td .mono title=(text("/request_id")) { (pieces::short_id(text("/request_id"))) }
        }
    }
}

/// An actor or a target: its page, if it has one, and a link to all rows of it.
fn who(kind: &str, id: &str, filter: &str) -> Markup {
    let page = page_of(kind, id);
    html! {
        (kind) " "
        @match page {
            Some(page) => (pieces::id_link(&page, id)),
            None => span .mono title=(id) { (pieces::short_id(id)) },
        }
        " "
        a .muted href=(with_query("/console/audit", &[(filter, id)]))
            aria-label=(format!("All rows of {kind} {id}")) { "all" }
    }
}

/// The page of an object of the audit.
fn page_of(kind: &str, id: &str) -> Option<String> {
    let folder = match kind {
        "user" if id != "unknown" => "users",
        "key" | "api_key" => "keys",
        "agent" => "agents",
        "node" => "nodes",
        "capture" => "captures",
        "gateway" => return Some("/console/gateways".to_owned()),
        "config" => return Some("/console/routing/revisions".to_owned()),
        _ => return None,
    };
    Some(format!("/console/{folder}/{}", encode(id)))
}
