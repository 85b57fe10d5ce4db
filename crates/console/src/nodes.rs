//! Pages of nodes, for admins.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::PageCall;
use super::form_fields::FieldKind::{Line, Names};
use super::form_fields::{FormGroup, field, pairs_text, plain};
use super::form_state::{FormState, unconfirmed};
use super::layout::Tab;
use super::pieces::{self, Column};
use super::resource::{self, Resource, after, path};
use super::snippets;
use rerouter_base::error::Error;
use rerouter_core::api::ApiResult;
use rerouter_records::NodeModel;
use rerouter_records::node::{NodeRecord, NodeState, NodeWithSecret};

const EVERY: &str = "every 3s";

impl Resource for NodeRecord {
    const TAB: Tab = Tab::Nodes;
    const TITLE: &'static str = "Nodes";
    const EMPTY: (&'static str, &'static str) = (
        "No nodes.",
        "A node is a machine of yours that serves models. A new one gets its start command here.",
    );
    const COLUMNS: &'static [Column<Self>] = &[
        Column("Name", "", |node| html! { a href={ "/console/nodes/" (node.id) } { (node.name) } }),
        Column("State", "", state),
        Column("Requests", "num", load),
        Column("Breaker", "", breaker),
        Column("Models", "", |node| match &node.registered {
            None => html! { span .muted { "may serve " (node.models.join(", ")) } },
            Some(registered) => pieces::names(registered.models.iter().map(|model| &model.id)),
        }),
        Column("Lease until", "", |node| pieces::when(node.lease_expires_at)),
    ];
    const PAGE: &'static str = "/console/nodes";
    const API: &'static str = "/v1/nodes";
    const REFRESHED: Option<(&'static str, &'static str)> = Some(("nodes", EVERY));
    const NEW: (&'static str, &'static str) = ("Enrol a node", "Enrol");
    const NEW_FIELDS: &'static [FormGroup] = &[plain(&[
        field("Name", "name", Line("text")).needed(),
        field("Models that it may serve", "models", Names(3))
            .hint("One name a line; a * at the end matches a prefix.")
            .before("*"),
        field("Endpoint", "endpoint", Line("url")).hint(
            "The server's URL as the gateway reaches it. Empty: the address from which the node \
             registers.",
        ),
    ])];

    fn name(&self) -> &str {
        &self.name
    }

    fn below(rows: &[Self]) -> Markup {
        html! { @if !rows.is_empty() { (pieces::breaker_hint()) } }
    }

    async fn made(call: &PageCall<'_>, made: Value) -> ApiResult {
        secret_page(call, "Node enrolled", &made)
    }

    fn shown(&self, _: &PageCall<'_>, state: &FormState<'_>) -> Markup {
        let page = format!("/console/nodes/{}", self.id);
        html! {
            p { a href="/console/nodes" { "Nodes" } }
            (state.notice())
            (pieces::refreshed("node", &page, EVERY, &live(self)))
            section .card {
                h2 { "Secret" }
                p { "Generation " (self.generation) "." }
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
        }
    }
}

/// `GET /console/nodes/{id}`. The browser reloads the state every few seconds.
pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    if call.is_fragment() {
        let node = call.read(&path::<NodeRecord>(&call, "")).await?;
        return call.fragment(StatusCode::OK, live(&node));
    }
    resource::show::<NodeRecord>(call).await
}

/// `POST /console/nodes/{id}/rotate`: the answer shows the new secret, once.
pub(super) async fn rotate(call: PageCall<'_>) -> ApiResult {
    match call.call(Method::POST, &path::<NodeRecord>(&call, "/rotate"), Some(&json!({}))).await {
        Ok(node) => secret_page(&call, "New secret", &node),
        refused => after::<NodeRecord>(&call, refused, FormState::default()).await,
    }
}

fn state(node: &NodeRecord) -> Markup {
    let kind = match node.state {
        NodeState::Ready => "ok",
        NodeState::Draining | NodeState::Pending => "warn",
        NodeState::Unreachable | NodeState::Gone => "bad",
    };
    pieces::badge(kind, node.state.as_str())
}

/// Requests that the node runs and queues, as it reports, and those from this gateway.
fn load(node: &NodeRecord) -> Markup {
    html! { (node.running) " run, " (node.queued) " wait, " (node.inflight) " ours" }
}

fn breaker(node: &NodeRecord) -> Markup {
    html! {
        @match node.breaker.map(|breaker| breaker.as_str()) {
            None => span .muted { "–" },
            Some("closed") => (pieces::badge("ok", "closed")),
            Some(other) => (pieces::badge("bad", other)),
        }
    }
}

/// The part of the page that changes without an action.
fn live(node: &NodeRecord) -> Markup {
    let models = node.registered.as_ref().map_or(&[][..], |registered| &registered.models);
    let none = ("It has reported no models.", "");
    html! { (facts(node)) (pieces::list("Models", none, &MODELS, models)) }
}

fn facts(node: &NodeRecord) -> Markup {
    let registered = node.registered.as_ref();
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
            (pieces::times(&[
                ("Lease until", node.lease_expires_at),
                ("Registered", registered.and_then(|registered| registered.at)),
                ("Enrolled", Some(node.created_at)),
                ("Rotated", node.rotated_at),
                ("Secret before is valid until", node.previous_secret_expires_at),
            ]))
        }
    }
}

const MODELS: [Column<NodeModel>; 4] = [
    Column("Model", "mono", |model| html! { (model.id) }),
    Column("Context", "num", |model| or_unknown(model.context.map(pieces::count))),
    Column("Abilities", "", |model| {
        or_unknown(model.capabilities.as_ref().map(|words| words.join(", ")))
    }),
    Column("Target", "mono", |model| html! { "nodes/" (model.id) }),
];

fn or_unknown(known: Option<String>) -> Markup {
    html! {
        @match known {
            Some(known) => (known),
            None => span .muted { "unknown" },
        }
    }
}

/// The page with a node's secret, and the command that starts the node with it.
fn secret_page(call: &PageCall<'_>, title: &str, answer: &Value) -> ApiResult {
    let NodeWithSecret { record: node, secret } =
        NodeWithSecret::deserialize(answer).map_err(Error::internal)?;
    let (id, secret) = (node.id, secret.0.expose());
    let (origin, server) = (snippets::origin(call), "http://127.0.0.1:11434");
    let more = match node.generation {
        1 => String::new(),
        generation => format!(" --generation {generation}"),
    };
    let command = format!(
        "export REROUTER_NODE_SECRET={secret}\n\
         rerouter node --gateway {origin} --id {id}{more} --upstream {server}"
    );
    let main = html! {
        p { a href={ "/console/nodes/" (id) } { (node.name) } " " span .mono { (id) } }
        (pieces::secret_once(secret))
        (unconfirmed(answer))
        @if node.previous_secret_expires_at.is_some() {
            p {
                "The secret before ends when this one is used, at the latest "
                (pieces::when(node.previous_secret_expires_at)) "."
            }
        }
        h2 { "Start it" }
        p {
            "On the machine of the node. " code { "--upstream" }
            " is the model's server there: Ollama, llama.cpp, vLLM, SGLang or another of OpenAI's \
             API."
        }
        (snippets::block(&command))
    };
    call.page(title, Tab::Nodes, main)
}
