//! `/console/playground`, and the chat that also tries agents. The browser sends the messages to
//! the gateway's inference routes, in the user's session. `playground.js` shows the answers.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::Value;

use super::call::PageCall;
use super::captures::values::reason;
use super::layout::Tab;
use super::pieces;
use rerouter_base::error::{Error, Result};
use rerouter_core::api::ApiResult;
use rerouter_records::model::{ModelList, ModelRecord};
use rerouter_records::replay::DecisionRecord;

/// `GET /console/playground?model=`
pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    let names = models(&call).await?;
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

/// The names of the models that the caller may ask for.
pub(super) async fn models(call: &PageCall<'_>) -> Result<Vec<String>> {
    let (ModelList::OpenAi { data, .. } | ModelList::Anthropic { data, .. }) =
        call.read("/v1/models").await?;
    let name = |(ModelRecord::OpenAi { id, .. } | ModelRecord::Anthropic { id, .. })| id;
    Ok(data.into_iter().map(name).collect())
}

/// A chat with one of these models, at first with `first`.
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
    let decided = serde_json::from_value(decided).map_err(Error::internal)?;
    call.fragment(StatusCode::OK, decision(&decided))
}

fn decision(DecisionRecord { decision, .. }: &DecisionRecord) -> Markup {
    let target = |provider: &str, model: &str| format!("{provider}/{model}");
    let others = decision.plan.iter().skip(1).map(|other| target(&other.provider, &other.model));
    let others: Vec<String> = others.collect();
    html! {
        p {
            "It would go to " strong .mono { (target(&decision.provider, &decision.model)) }
            @match &decision.rule {
                Some(rule) => {
                    ", because rule " strong { (rule) } " of recipe "
                    strong { (decision.recipe) } " takes it (strategy " (decision.strategy) ")."
                },
                None => ", because the request names this target.",
            }
        }
        @if !others.is_empty() {
            p { "If that fails: " span .mono { (others.join(", ")) } "." }
        }
        @for out in decision.candidates.iter().filter(|candidate| !candidate.eligible) {
            p {
                span .mono { (target(&out.provider, &out.model)) } " is left out: "
                (reason(out.reason.as_deref().unwrap_or_default())) "."
            }
        }
        @for trace in &decision.trace {
            p .error { "A condition of rule " (trace.rule) " failed: " (trace.error) }
        }
    }
}
