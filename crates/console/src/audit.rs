//! `/console/audit`: who changed what, for admins.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::call::PageCall;
use super::layout::Tab;
use super::links::with_query;
use super::{pieces, times};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_core::api::audit::Action;
use rerouter_records::audit::AuditEvent;
use rerouter_records::page::Page;
use rerouter_records::user::UserRecord;

const FILTERS: [&str; 5] = ["action", "actor", "target", "since", "until"];

/// `GET /console/audit`, with the filters of the API.
pub(super) async fn list(call: PageCall<'_>) -> ApiResult {
    let asked: Vec<String> =
        FILTERS.iter().map(|name| call.query(name).unwrap_or_default()).collect();
    let filters: Vec<(&str, &str)> =
        FILTERS.into_iter().zip(asked.iter().map(|text| text.trim())).collect();
    let [since, until] = ["since", "until"].map(|name| times::utc(value(&filters, name)));
    let mut query = filters.clone();
    for (name, asked) in &mut query {
        match *name {
            "since" => *asked = &since,
            "until" => *asked = &until,
            _ => {}
        }
    }
    let (rows, next) = call.list::<AuditEvent>("/v1/audit", "/console/audit", &query).await?;
    let mut names = BTreeMap::new();
    for actor in rows.iter().map(|row| &row.actor.id) {
        if !names.contains_key(actor) {
            names.insert(actor.clone(), actor_name(call, actor).await);
        }
    }
    let main = html! {
        (form(&filters))
        @if rows.is_empty() {
            (pieces::empty("Nothing here.", "No action fits these filters."))
        } @else {
            (table(&rows, &names))
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

/// The name of an actor: a user's email, `ADMIN_API_KEY`, or else the id.
pub(super) async fn actor_name(call: PageCall<'_>, actor: &str) -> String {
    if actor == "usr_admin" {
        return "ADMIN_API_KEY".to_owned();
    }
    if !actor.starts_with("sess_") {
        return actor.to_owned();
    }
    let login = format!("/v1/audit?limit=1&action=session.create&actor={}", encode(actor));
    let email = async {
        let login: Page<AuditEvent> = call.read(&login).await.ok()?;
        let user = encode(&login.data.first()?.target.id);
        call.read::<UserRecord>(&format!("/v1/users/{user}")).await.ok()?.email
    };
    email.await.unwrap_or_else(|| actor.to_owned())
}

fn table(rows: &[AuditEvent], names: &BTreeMap<String, String>) -> Markup {
    let headings = ["Time", "Action", "Actor", "Target", "Address", "Request"];
    pieces::table("Audit", &headings, &html! { @for event in rows { (row(event, names)) } })
}

fn row(event: &AuditEvent, names: &BTreeMap<String, String>) -> Markup {
    let (action, request) = (event.action.as_str(), event.request_id.as_deref());
    let actor = (event.actor.kind.as_str(), event.actor.id.as_str());
    let target = (event.target.kind.as_str(), event.target.id.as_str());
    // A document that was only evaluated has no revision page.
    let was_live = target.0 != "config" || action.starts_with("config.");
    let name = names.get(actor.1).map_or(actor.1, String::as_str);
    html! {
        tr {
            td { (pieces::time(&event.at.to_string())) }
            td title=[Action::parse(action).map(Action::meaning)] { (action) }
            td { (who(actor, name, page_of(actor.0, actor.1), "actor")) }
            td {
                (who(target, target.1, page_of(target.0, target.1).filter(|_| was_live), "target"))
            }
            td .mono { (event.address.as_deref().unwrap_or_default()) }
            td .mono title=[request] { (pieces::short_id(request.unwrap_or_default())) }
        }
    }
}

/// An actor or a target: its name or id, with a link to its page if it has one, and a link to the
/// audit rows about it.
fn who((kind, id): (&str, &str), name: &str, page: Option<String>, filter: &str) -> Markup {
    html! {
        (kind) " "
        @match page {
            _ if name != id => span title=(id) { (name) },
            Some(page) => (pieces::id_link(&page, id)),
            None => span .mono title=(id) { (pieces::short_id(id)) },
        }
        " "
        a .muted href=(with_query("/console/audit", &[(filter, id)]))
            aria-label=(format!("Only these: {kind} {id}")) { "only these" }
    }
}

/// The page of an object that an audit row names.
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
