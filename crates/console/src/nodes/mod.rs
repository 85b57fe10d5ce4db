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

/// The state of a node, in a colour.
fn state(node: &Value) -> Markup {
    let state = node.get("state").and_then(Value::as_str).unwrap_or_default();
    let kind = match state {
        "ready" => "ok",
        "draining" | "pending" => "warn",
        _ => "bad",
    };
    pieces::badge(kind, state)
}

/// Requests that the node runs and queues, as it reports, and those from this gateway.
fn load(node: &Value) -> Markup {
    let count = |name: &str| node.get(name).and_then(Value::as_u64).unwrap_or(0);
    html! { (count("running")) " run, " (count("queued")) " wait, " (count("inflight")) " ours" }
}

fn breaker(node: &Value) -> Markup {
    html! {
        @match node.get("breaker").and_then(Value::as_str) {
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
