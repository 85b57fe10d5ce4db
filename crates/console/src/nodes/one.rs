//! `/console/nodes/{id}`.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::json;

use super::super::call::PageCall;
use super::super::form_state::{is_of_form, pairs_text, refused_page, unconfirmed};
use super::super::layout::Tab;
use super::super::pieces;
use super::{breaker, load, secret_page, state};
use rerouter_base::error::Error;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::NodeModel;
use rerouter_records::node::NodeRecord;

/// `GET /console/nodes/{id}`. The state is reloaded every few seconds.
pub(in super::super) async fn show(call: PageCall<'_>) -> ApiResult {
    if call.is_fragment() {
        let node = call.read(&path(&call)).await?;
        return call.fragment(StatusCode::OK, live(&node));
    }
    shown(&call, html! {}).await
}

/// `POST /console/nodes/{id}/rotate`: the answer itself shows the new secret, without a redirect.
pub(in super::super) async fn rotate(call: PageCall<'_>) -> ApiResult {
    let path = format!("{}/rotate", path(&call));
    match call.call(Method::POST, &path, Some(&json!({}))).await {
        Ok(node) => call.page("New secret", Tab::Nodes, secret_page(&call, &node)),
        Err(error) => refused(&call, error).await,
    }
}

/// `POST /console/nodes/{id}/delete`
pub(in super::super) async fn delete(call: PageCall<'_>) -> ApiResult {
    match call.call(Method::DELETE, &path(&call), None).await {
        Ok(answer) if answer.get("unconfirmed").is_some() => {
            let main = html! {
                (pieces::notice("ok", &html! { "The node is deleted." })) (unconfirmed(&answer))
                p { a href="/console/nodes" { "Nodes" } }
            };
            call.page("Node deleted", Tab::Nodes, main)
        }
        Ok(_) => call.redirect("/console/nodes"),
        Err(error) => refused(&call, error).await,
    }
}

fn path(call: &PageCall<'_>) -> String {
    format!("/v1/nodes/{}", encode(&call.param(0)))
}

async fn refused(call: &PageCall<'_>, error: Error) -> ApiResult {
    if !is_of_form(&error) {
        return Err(error);
    }
    let why = pieces::notice("bad", &html! { (error.detail()) });
    refused_page(shown(call, why).await, &error)
}

async fn shown(call: &PageCall<'_>, notice: Markup) -> ApiResult {
    let node: NodeRecord = call.read(&path(call)).await?;
    let page = format!("/console/nodes/{}", node.id);
    let main = html! {
        p { a href="/console/nodes" { "Nodes" } }
        (notice)
        div #node hx-get=(page) hx-trigger="every 3s" data-quiet="" { (live(&node)) }
        section .card {
            h2 { "Secret" }
            p { "Generation " (node.generation) "." }
            form method="post" action={ (page) "/rotate" } {
                p .hint {
                    "The old secret ends when the new one is used, or after ten minutes."
                }
                button type="submit" { "Rotate" }
            }
        }
        section .card {
            h2 { "End" }
            (pieces::confirm_form(
                &format!("{page}/delete"), "Delete this node",
                "It gets no requests any more, and its secret is worth nothing.",
            ))
        }
    };
    call.page(&node.name, Tab::Nodes, main)
}

/// The parts of the page that are reloaded.
fn live(node: &NodeRecord) -> Markup {
    html! { (facts(node)) (models(node)) }
}

fn facts(node: &NodeRecord) -> Markup {
    let registered = node.registered.as_ref();
    let times = [
        ("Lease until", node.lease_expires_at),
        ("Registered", registered.and_then(|registered| registered.at)),
        ("Enrolled", Some(node.created_at)),
        ("Rotated", node.rotated_at),
        ("Secret before is valid until", node.previous_secret_expires_at),
    ];
    html! {
        dl .access-facts .card {
            dt { "State" } dd { (state(node)) }
            dt { "Requests" } dd .num { (load(node)) }
            @if let Some(most) = registered.and_then(|registered| registered.max_concurrency) {
                dt { "At once" } dd .num { "at most " (most) }
            }
            dt { "Breaker" } dd { (breaker(node)) }
            dt { "Id" } dd .mono { (node.id) }
            dt { "May serve" } dd .mono { (node.models.join(", ")) }
            @if let Some(endpoint) = &node.endpoint {
                dt { "Endpoint" } dd .mono { (endpoint) }
            }
            @if let Some(registered) = registered {
                dt { "Serves at" } dd .mono { (registered.endpoint) }
                dt { "Version" } dd .mono { (registered.version) }
                @let labels = pairs_text(&registered.labels);
                @if !labels.is_empty() { dt { "Labels" } dd .mono { (labels) } }
            }
            @for (label, at) in times {
                @if let Some(at) = at { dt { (label) } dd { (pieces::time(&at.to_string())) } }
            }
        }
    }
}

/// The models that the node reported.
fn models(node: &NodeRecord) -> Markup {
    let models = node.registered.iter().flat_map(|registered| &registered.models);
    let models: Vec<&NodeModel> = models.collect();
    if models.is_empty() {
        return pieces::empty("It has reported no models.", "");
    }
    let unknown = || html! { span .muted { "unknown" } };
    html! {
        div .scroll tabindex="0" role="region" aria-label="Models" {
            table .table {
                thead { tr {
                    th scope="col" { "Model" } th .num scope="col" { "Context" }
                    th scope="col" { "Abilities" } th scope="col" { "Target" }
                } }
                tbody { @for model in models {
                    tr {
                        td .mono { (model.id) }
                        td .num { @match model.context {
                            Some(tokens) => (pieces::count(tokens)),
                            None => (unknown()),
                        } }
                        td { @match &model.capabilities {
                            Some(words) => (words.join(", ")),
                            None => (unknown()),
                        } }
                        td .mono { "nodes/" (model.id) }
                    }
                } }
            }
        }
    }
}
