//! `/console/audit`: who did what to what, for admins.

use maud::{Markup, html};

use super::call::PageCall;
use super::form::Form;
use super::form_fields::FieldKind::{Line, Time};
use super::form_fields::{FormField, body, field, plain};
use super::form_state::FormState;
use super::layout::Tab;
use super::links::with_query;
use super::pieces::{self, Column};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_core::api::audit::Action;
use rerouter_records::audit::AuditEvent;
use rerouter_records::page::Page;
use rerouter_records::user::UserRecord;

const EMPTY: (&str, &str) = ("Nothing here.", "No action fits these filters.");
const ACTION: FormField = field("Action", "action", Line("text"));
const FILTERS: &[FormField] = &[
    field("Actor", "actor", Line("text")),
    field("Target", "target", Line("text")),
    field("Since (UTC)", "since", Time),
    field("Until (UTC)", "until", Time),
];

/// `GET /console/audit`, with the filters of the API.
pub(super) async fn list(call: PageCall<'_>) -> ApiResult {
    let asked = call.asked()?;
    let query = body(&[plain(&[ACTION]), plain(FILTERS)], &asked)?;
    let query: Vec<(&str, &str)> =
        query.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect();
    let (events, next) = call.list::<AuditEvent>("/v1/audit", "/console/audit", &query).await?;
    let mut rows: Vec<(AuditEvent, String)> = Vec::with_capacity(events.len());
    for event in events {
        let known = rows.iter().find(|(other, _)| other.actor.id == event.actor.id);
        let name = match known {
            Some((_, name)) => name.clone(),
            None => actor_name(call, &event.actor.id).await,
        };
        rows.push((event, name));
    }
    let main = html! {
        (form(&asked))
        (pieces::list("Audit", EMPTY, &COLUMNS, &rows))
        (pieces::pager(next.as_deref()))
    };
    call.page("Audit", Tab::Audit, main)
}

fn form(asked: &Form) -> Markup {
    html! {
        form .row action="/console/audit" method="get" role="search" {
            (pieces::field(ACTION.label, ACTION.name, &html! {
                select #action name="action" {
                    option value="" { "all" }
                    @for action in Action::ALL {
                        option value=(action.as_str())
                            selected[action.as_str() == asked.text("action")]
                            title=(action.meaning()) { (action.as_str()) }
                    }
                }
            }, ""))
            (FormState::sent(asked).fields(FILTERS))
            button type="submit" { "Filter" }
        }
    }
}

/// The address of a session's user, the admin key, or the id as it is.
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

/// An event, with the name of its actor.
const COLUMNS: [Column<(AuditEvent, String)>; 6] = [
    Column("Time", "", |(event, _)| pieces::when(Some(event.at))),
    Column("Action", "", |(event, _)| {
        let action = event.action.as_str();
        html! { span title=[Action::parse(action).map(Action::meaning)] { (action) } }
    }),
    Column("Actor", "", |(event, name)| {
        let (kind, id) = (event.actor.kind.as_str(), event.actor.id.as_str());
        who((kind, id), name, page_of(kind, id), "actor")
    }),
    Column("Target", "", |(event, _)| {
        let (kind, id) = (event.target.kind.as_str(), event.target.id.as_str());
        // A document that was only evaluated has no revision page.
        let was_live = kind != "config" || event.action.as_str().starts_with("config.");
        who((kind, id), id, page_of(kind, id).filter(|_| was_live), "target")
    }),
    Column(
        "Address",
        "mono",
        |(event, _)| html! { (event.address.as_deref().unwrap_or_default()) },
    ),
    Column("Request", "", |(event, _)| pieces::id(event.request_id.as_deref().unwrap_or_default())),
];

/// An actor or a target: its name, or its id with its page, if it has one; and a link to the rows
/// of it alone.
fn who((kind, id): (&str, &str), name: &str, page: Option<String>, filter: &str) -> Markup {
    html! {
        (kind) " "
        @match page {
            _ if name != id => span title=(id) { (name) },
            Some(page) => (pieces::id_link(&page, id)),
            None => (pieces::id(id)),
        }
        " "
        a .muted href=(with_query("/console/audit", &[(filter, id)]))
            aria-label=(format!("Only these: {kind} {id}")) { "only these" }
    }
}

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
