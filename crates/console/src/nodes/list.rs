//! `/console/nodes`: the list, and the enrolment of a new node.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::call::PageCall;
use super::super::form_state::{FormState, Input, is_of_form, lines_of, refused_page};
use super::super::layout::Tab;
use super::super::links::with_query;
use super::super::pieces;
use super::{breaker, load, secret_page, state};
use rerouter_core::api::ApiResult;
use rerouter_records::node::NodeRecord;

const ENROL: &str = "Enrol a node";

/// `GET /console/nodes?after=`. The table is reloaded every few seconds.
pub(in super::super) async fn list(call: PageCall<'_>) -> ApiResult {
    let after = call.query("after").unwrap_or_default();
    let (rows, next) = call.list("/v1/nodes", "/console/nodes", &[]).await?;
    if call.is_fragment() {
        return call.fragment(StatusCode::OK, table(&rows));
    }
    let here = with_query("/console/nodes", &[("after", &after)]);
    let main = html! {
        p { a .button href="/console/nodes/new" { (ENROL) } }
        div #nodes hx-get=(here) hx-trigger="every 3s" data-quiet="" { (table(&rows)) }
        (pieces::pager(next.as_deref()))
    };
    call.page("Nodes", Tab::Nodes, main)
}

fn table(rows: &[NodeRecord]) -> Markup {
    if rows.is_empty() {
        return pieces::empty(
            "No nodes.",
            "A node is a machine of yours that serves models. A new one gets its start command \
             here.",
        );
    }
    let headings = ["Name", "State", "Requests", "Breaker", "Models", "Lease until"];
    html! {
        (pieces::table("Nodes", &headings, &html! { @for node in rows { (row(node)) } }))
        (pieces::breaker_hint())
    }
}

fn row(node: &NodeRecord) -> Markup {
    html! {
        tr {
            td { a href={ "/console/nodes/" (node.id) } { (node.name) } }
            td { (state(node)) }
            td .num { (load(node)) }
            td { (breaker(node)) }
            td { @match &node.registered {
                None => span .muted { "may serve " (node.models.join(", ")) },
                Some(registered) => @for (at, model) in registered.models.iter().enumerate() {
                    @if at > 0 { ", " }
                    span .mono { (model.id) }
                },
            } }
            td {
                @if let Some(until) = node.lease_expires_at { (pieces::time(&until.to_string())) }
            }
        }
    }
}

/// `GET /console/nodes/new`
pub(in super::super) async fn blank(call: PageCall<'_>) -> ApiResult {
    // Called first, so that a refusal comes before the user writes anything.
    call.get("/v1/nodes?limit=1").await?;
    call.page(ENROL, Tab::Nodes, form(FormState::default()))
}

/// `POST /console/nodes`: the answer itself shows the secret, without a redirect.
pub(in super::super) async fn create(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let mut node = Map::new();
    node.insert("name".to_owned(), json!(sent.text("name").trim()));
    let models = lines_of(sent.text("models"));
    if !models.is_empty() {
        node.insert("models".to_owned(), json!(models));
    }
    let endpoint = sent.text("endpoint").trim();
    if !endpoint.is_empty() {
        node.insert("endpoint".to_owned(), json!(endpoint));
    }
    match call.call(Method::POST, "/v1/nodes", Some(&Value::Object(node))).await {
        Ok(made) => call.page("Node enrolled", Tab::Nodes, secret_page(&call, &made)),
        Err(error) if is_of_form(&error) => {
            let main = form(FormState::refused(&sent, &error));
            refused_page(call.page(ENROL, Tab::Nodes, main), &error)
        }
        Err(error) => Err(error),
    }
}

fn form(state: FormState<'_>) -> Markup {
    html! {
        (state.notice())
        form .form method="post" action="/console/nodes" {
            (state.line(&Input { label: "Name", name: "name", before: "", hint: "" }))
            (state.lines(&Input {
                label: "Models that it may serve", name: "models", before: "*",
                hint: "One name a line; a * at the end matches a prefix.",
            }, 3))
            (state.of_kind(&Input {
                label: "Endpoint", name: "endpoint", before: "",
                hint: "The server's URL as the gateway reaches it. Empty: the address from which \
                       the node registers.",
            }, "url"))
            button .primary type="submit" { "Enrol" }
        }
    }
}
