//! Nodes, for admins.

mod list;
mod one;

pub(super) use list::{blank, create, list};
pub(super) use one::{delete, rotate, show};

use maud::{Markup, html};
use serde_json::Value;

use super::call::PageCall;
use super::form_state::unconfirmed;
use super::{pieces, snippets};
use rerouter_records::node::{NodeRecord, NodeState};

/// The state of a node as a coloured badge.
fn state(node: &NodeRecord) -> Markup {
    let kind = match node.state {
        NodeState::Ready => "ok",
        NodeState::Draining | NodeState::Pending => "warn",
        NodeState::Unreachable | NodeState::Gone => "bad",
    };
    pieces::badge(kind, node.state.as_str())
}

/// The requests that the node reports as running and as queued, and those that this gateway has
/// sent.
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

/// The page with a node's secret, and the command that uses it.
fn secret_page(call: &PageCall<'_>, node: &Value) -> Markup {
    let text = |name: &str| node.get(name).and_then(Value::as_str).unwrap_or_default();
    let (id, secret) = (text("id"), text("secret"));
    let generation = node.get("generation").and_then(Value::as_u64).unwrap_or(1);
    let (origin, server) = (snippets::origin(call), "http://127.0.0.1:11434");
    let more = if generation > 1 { format!(" --generation {generation}") } else { String::new() };
    let command = format!(
        "export REROUTER_NODE_SECRET={secret}\n\
         rerouter node --gateway {origin} --id {id}{more} --upstream {server}"
    );
    html! {
        p { a href={ "/console/nodes/" (id) } { (text("name")) } " " span .mono { (id) } }
        (pieces::secret_once(secret))
        (unconfirmed(node))
        @if let Some(until) = node.get("previous_secret_expires_at").and_then(Value::as_str) {
            p {
                "The secret before ends when this one is used, at the latest "
                (pieces::time(until)) "."
            }
        }
        h2 { "Start it" }
        p {
            "On the machine of the node. " code { "--upstream" }
            " is the model's server there: Ollama, llama.cpp, vLLM, SGLang or another of OpenAI's \
             API."
        }
        (snippets::block(&command))
    }
}
