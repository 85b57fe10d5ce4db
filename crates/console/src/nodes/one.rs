//! `/console/nodes/{id}`.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::super::call::PageCall;
use super::super::form_state::{is_of_form, pairs_text, refused_page, unconfirmed, words};
use super::super::layout::Tab;
use super::super::pieces;
use super::{breaker, load, secret_page, state};
use rerouter_base::error::Error;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

/// `GET /console/nodes/{id}`. Its state is loaded again every few seconds.
pub(in super::super) async fn show(call: PageCall<'_>) -> ApiResult {
    if call.is_fragment() {
        let node = call.get(&path(&call)).await?;
        return call.fragment(StatusCode::OK, live(&node));
    }
    shown(&call, html! {}).await
}

/// `POST /console/nodes/{id}/rotate`: answered with the new secret, at no address of its own.
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
    let node = call.get(&path(call)).await?;
    let text = |name: &str| node.get(name).and_then(Value::as_str).unwrap_or_default();
    let page = format!("/console/nodes/{}", text("id"));
    let main = html! {
        p { a href="/console/nodes" { "Nodes" } }
        (notice)
        div #node hx-get=(page) hx-trigger="every 3s" data-quiet="" { (live(&node)) }
        section .card {
            h2 { "Secret" }
            p { "Generation " (node.get("generation").and_then(Value::as_u64).unwrap_or(1)) "." }
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
    call.page(text("name"), Tab::Nodes, main)
}

/// What changes by itself.
fn live(node: &Value) -> Markup {
    html! { (facts(node)) (models(node)) }
}

fn facts(node: &Value) -> Markup {
    let text = |at: &str| node.pointer(at).and_then(Value::as_str);
    let times = [
        ("Lease until", "/lease_expires_at"),
        ("Registered", "/registered/at"),
        ("Enrolled", "/created_at"),
        ("Rotated", "/rotated_at"),
        ("Secret before is valid until", "/previous_secret_expires_at"),
    ];
    let labels = pairs_text(node.pointer("/registered/labels").unwrap_or(&Value::Null));
    html! {
        dl .access-facts .card {
            dt { "State" } dd { (state(node)) }
            dt { "Requests" } dd .num { (load(node)) }
            @let most = node.pointer("/registered/max_concurrency").and_then(Value::as_u64);
            @if let Some(most) = most {
                dt { "At once" } dd .num { "at most " (most) }
            }
            dt { "Breaker" } dd { (breaker(node)) }
            dt { "Id" } dd .mono { (text("/id").unwrap_or_default()) }
            dt { "May serve" } dd .mono { (words(node.get("models"))) }
            @if let Some(endpoint) = text("/endpoint") {
                dt { "Endpoint" } dd .mono { (endpoint) }
            }
            @if let Some(endpoint) = text("/registered/endpoint") {
                dt { "Serves at" } dd .mono { (endpoint) }
            }
            @if let Some(version) = text("/registered/version") {
                dt { "Version" } dd .mono { (version) }
            }
            @if !labels.is_empty() { dt { "Labels" } dd .mono { (labels) } }
            @for (label, at) in times {
                @if let Some(at) = text(at) { dt { (label) } dd { (pieces::time(at)) } }
            }
        }
    }
}

/// What the node reported of its models.
fn models(node: &Value) -> Markup {
    let models = node.pointer("/registered/models").and_then(Value::as_array);
    let Some(models) = models.filter(|models| !models.is_empty()) else {
        return pieces::empty("It has reported no models.", "");
    };
    html! {
        div .scroll tabindex="0" role="region" aria-label="Models" {
            table .table {
                thead { tr {
                    th scope="col" { "Model" } th .num scope="col" { "Context" }
                    th scope="col" { "Abilities" } th scope="col" { "Target" }
                } }
                tbody { @for model in models {
                    @let id = model.get("id").and_then(Value::as_str).unwrap_or_default();
                    tr {
                        td .mono { (id) }
                        td .num { @match model.get("context").and_then(Value::as_u64) {
                            Some(tokens) => (pieces::count(tokens)),
                            None => span .muted { "unknown" },
                        } }
                        td { @match model.get("capabilities").and_then(Value::as_array) {
                            Some(_) => (words(model.get("capabilities"))),
                            None => span .muted { "unknown" },
                        } }
                        td .mono { "nodes/" (id) }
                    }
                } }
            }
        }
    }
}
