//! `/console/agents`: the list, and a new agent.

use http::Method;
use maud::{Markup, html};
use serde_json::Value;

use super::super::call::PageCall;
use super::super::form_state::{FormState, is_of_form, refused_page};
use super::super::layout::Tab;
use super::super::links::with_query;
use super::super::pieces;
use super::form::{aliases, inputs, read};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

const NEW: &str = "New agent";

/// `GET /console/agents?after=`
pub(in super::super) async fn list(call: PageCall<'_>) -> ApiResult {
    let after = call.query("after").unwrap_or_default();
    let found = call.get(&with_query("/v1/agents", &[("after", &after)])).await?;
    let next = found.get("next").and_then(Value::as_str);
    let next = next.map(|next| with_query("/console/agents", &[("after", next)]));
    let rows = found.get("data").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let main = html! {
        p { a .button href="/console/agents/new" { (NEW) } }
        @if rows.is_empty() {
            (pieces::empty(
                "No agents.",
                "An agent is a preset with a name: an alias, instructions, defaults, tools. “New \
                 agent” makes one.",
            ))
        } @else {
            (pieces::table(
                "Agents",
                &["Name", "Model", "Description", "Trusted", "Changed"],
                &html! { @for agent in rows { (row(agent)) } },
            ))
        }
        (pieces::pager(next.as_deref()))
    };
    call.page("Agents", Tab::Agents, main)
}

fn row(agent: &Value) -> Markup {
    let text = |name: &str| agent.get(name).and_then(Value::as_str).unwrap_or_default();
    html! {
        tr {
            td { a href={ "/console/agents/" (encode(text("id"))) } { (text("name")) } }
            td .mono { (text("model")) }
            td { (text("description")) }
            td { (trusted(agent)) }
            td { (pieces::time(text("updated_at"))) }
        }
    }
}

/// Shows whether the last author of the agent had a credential.
pub(super) fn trusted(agent: &Value) -> Markup {
    match agent.get("trusted").and_then(Value::as_bool) {
        Some(true) => pieces::badge("ok", "trusted"),
        _ => pieces::badge("warn", "written while AGENT was open"),
    }
}

/// `GET /console/agents/new`
pub(in super::super) async fn blank(call: PageCall<'_>) -> ApiResult {
    // Asks for the AGENT key before the user writes anything.
    call.get("/v1/agents?limit=1").await?;
    call.page(NEW, Tab::Agents, form(FormState::default(), &aliases(&call).await))
}

/// `POST /console/agents`
pub(in super::super) async fn create(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let made = match read(&sent) {
        Ok(agent) => call.call(Method::POST, "/v1/agents", Some(&Value::Object(agent))).await,
        Err(error) => Err(error),
    };
    match made {
        Ok(agent) => {
            let id = agent.get("id").and_then(Value::as_str).unwrap_or_default();
            call.redirect(&format!("/console/agents/{}", encode(id)))
        }
        Err(error) if is_of_form(&error) => {
            let main = form(FormState::refused(&sent, &error), &aliases(&call).await);
            refused_page(call.page(NEW, Tab::Agents, main), &error)
        }
        Err(error) => Err(error),
    }
}

fn form(state: FormState<'_>, aliases: &[String]) -> Markup {
    html! {
        (state.notice())
        form .form method="post" action="/console/agents" {
            (inputs(&state, &Value::Null, aliases))
            button .primary type="submit" { "Create agent" }
        }
    }
}
