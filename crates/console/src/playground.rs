//! `/console/playground`, and the chat that agents are tried with. The browser itself sends the
//! messages to the gateway's inference, with the session; `playground.js` shows what comes back.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::Value;

use super::call::PageCall;
use super::layout::Tab;
use super::pieces;
use rerouter_base::error::Error;
use rerouter_core::api::ApiResult;

/// `GET /console/playground?model=`
pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    let listed = call.get("/v1/models").await?;
    let models = listed.get("data").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<String> =
        models.filter_map(|model| model.get("id")?.as_str()).map(str::to_owned).collect();
    let asked = call.query("model").filter(|model| !model.is_empty());
    let first = asked.or_else(|| names.first().cloned()).unwrap_or_default();
    let main = html! {
        p .muted {
            "Messages are real requests of yours: they are captured and counted like any other."
        }
        (chat(&names, &first))
    };
    call.page("Playground", Tab::Playground, main)
}

/// A chat with a model of these.
pub(super) fn chat(models: &[String], first: &str) -> Markup {
    html! {
        noscript { p .error { "The chat needs JavaScript." } }
        form .chat data-chat="" {
            @if let [model] = models {
                input type="hidden" name="model" value=(model);
            } @else {
                (pieces::field("Model", "chat-model", &html! {
                    input #chat-model name="model" list="chat-models" value=(first)
                        autocomplete="off" required;
                    datalist #chat-models {
                        @for model in models { option value=(model) {} }
                    }
                }, "An alias, a target (provider/model), or an agent."))
            }
            details {
                summary { "System message" }
                (pieces::field("System message", "chat-system", &html! {
                    textarea #chat-system name="system" rows="3" {}
                }, ""))
            }
            ol .chat-log data-log="" aria-label="Messages" {}
            (pieces::field("Message", "chat-message", &html! {
                textarea #chat-message name="message" rows="3" required
                    aria-describedby="chat-message-hint" {}
            }, "Ctrl+Enter sends."))
            div .row {
                button .primary type="submit" data-send="" { "Send" }
                button type="button" data-stop="" disabled { "Stop" }
                button type="button" data-decide="" { "Where would it go?" }
                button type="button" .quiet data-clear="" { "New conversation" }
            }
            div .chat-decision data-decision="" role="status" {}
        }
    }
}

/// `POST /console/playground/decide`: where a request would go, and why. It sends nothing.
pub(super) async fn decide(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let request: Value = serde_json::from_str(sent.text("request"))
        .map_err(|wrong| Error::invalid("request", format!("request must be JSON: {wrong}.")))?;
    let decided = call.call(Method::POST, "/v1/router/decide", Some(&request)).await?;
    call.fragment(StatusCode::OK, decision(&decided))
}

fn decision(decided: &Value) -> Markup {
    let text = |name: &str| decided.get(name).and_then(Value::as_str);
    let target = |of: &Value| {
        let text = |name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default();
        format!("{}/{}", text("provider"), text("model"))
    };
    let list =
        |name: &str| decided.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let others: Vec<String> = list("plan").iter().skip(1).map(&target).collect();
    let out = list("candidates")
        .iter()
        .filter(|candidate| candidate.get("eligible").and_then(Value::as_bool) == Some(false));
    html! {
        p {
            "It would go to " strong .mono { (target(decided)) }
            @match (text("rule"), text("recipe")) {
                (Some(rule), Some(recipe)) => {
                    ", because rule " strong { (rule) } " of recipe " strong { (recipe) }
                    " takes it"
                    @if let Some(strategy) = text("strategy") {
                        " (strategy " (strategy) ")"
                    }
                    "."
                },
                _ => ", because the request names this target.",
            }
        }
        @if !others.is_empty() {
            p { "If that fails: " span .mono { (others.join(", ")) } "." }
        }
        @for candidate in out {
            p {
                span .mono { (target(candidate)) } " is left out: "
                (why(candidate.get("reason").and_then(Value::as_str).unwrap_or_default())) "."
            }
        }
        @for trace in list("trace") {
            p .error {
                "A condition of rule "
                (trace.get("rule").and_then(Value::as_str).unwrap_or_default()) " failed: "
                (trace.get("error").and_then(Value::as_str).unwrap_or_default())
            }
        }
    }
}

/// The reason for leaving out a target, in words.
fn why(reason: &str) -> &str {
    match reason {
        "endpoint" => "it does not serve this endpoint",
        "capability" => "it lacks an ability that the request needs",
        "context" => "its context is too small for the prompt",
        "no_node" => "no node serves it now",
        "breaker_open" => "its breaker is open after failures",
        "cooldown" => "it asked to be left alone for a while",
        "concurrency" => "as many requests as it takes are under way",
        other => other,
    }
}
