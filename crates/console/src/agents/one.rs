//! `/console/agents/{id}`: shows, changes, tries and deletes one agent.

use http::header::{ETAG, IF_MATCH};
use http::{HeaderValue, Method};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::super::call::{PageCall, request};
use super::super::form::Form;
use super::super::form_state::{FormState, is_of_form, patch_to, refused_page, unconfirmed};
use super::super::layout::Tab;
use super::super::{pieces, playground};
use super::form::{aliases, inputs, read};
use super::list::trusted;
use rerouter_base::error::{Error, Result};
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

/// An agent in its current state, with its entity tag.
struct ShownAgent {
    agent: Value,
    etag: String,
}

impl ShownAgent {
    async fn read(call: &PageCall<'_>) -> Result<Self> {
        let response = call.send(request(Method::GET, &path(call), None)?).await?;
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok());
        Ok(ShownAgent {
            etag: etag.unwrap_or_default().to_owned(),
            agent: serde_json::from_slice(response.body()).map_err(Error::internal)?,
        })
    }

    fn text(&self, name: &str) -> &str {
        self.agent.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn page(&self) -> String {
        format!("/console/agents/{}", encode(self.text("id")))
    }
}

/// `GET /console/agents/{id or name}`
pub(in super::super) async fn show(call: PageCall<'_>) -> ApiResult {
    shown(&call, FormState::default(), html! {}).await
}

/// `POST /console/agents/{id}`: 412 if somebody has changed the agent since the page was made.
pub(in super::super) async fn change(call: PageCall<'_>) -> ApiResult {
    let (sent, before) = (call.form()?, ShownAgent::read(&call).await?);
    let changed = match read(&sent) {
        Ok(wanted) => patch(&call, &before, &sent, &wanted).await,
        Err(error) => Err(error),
    };
    match changed {
        Ok(answer) if answer.get("unconfirmed").is_some() => {
            shown(&call, FormState::default(), unconfirmed(&answer)).await
        }
        Ok(_) => call.redirect(&before.page()),
        Err(error) if is_of_form(&error) => {
            refused_page(shown(&call, FormState::refused(&sent, &error), html! {}).await, &error)
        }
        Err(error) => Err(error),
    }
}

/// `POST /console/agents/{id}/delete`
pub(in super::super) async fn delete(call: PageCall<'_>) -> ApiResult {
    match call.call(Method::DELETE, &path(&call), None).await {
        Ok(_) => call.redirect("/console/agents"),
        Err(error) if is_of_form(&error) => {
            let why = pieces::notice("bad", &html! { (error.detail()) });
            refused_page(shown(&call, FormState::default(), why).await, &error)
        }
        Err(error) => Err(error),
    }
}

fn path(call: &PageCall<'_>) -> String {
    format!("/v1/agents/{}", encode(&call.param(0)))
}

async fn patch(
    call: &PageCall<'_>,
    before: &ShownAgent,
    sent: &Form,
    wanted: &Map<String, Value>,
) -> Result<Value> {
    let mut fields = before.agent.as_object().cloned().unwrap_or_default();
    fields.retain(|name, _| wanted.contains_key(name));
    // An empty patch is sent too: with a credential it makes the agent trusted.
    let patch = patch_to(&Value::Object(fields), wanted);
    let patch = patch.unwrap_or_else(|| Value::Object(Map::new()));
    let mut request = request(Method::PATCH, &path(call), Some(&patch))?;
    let etag = HeaderValue::from_str(sent.text("etag"));
    let etag = etag.map_err(|_| Error::invalid("etag", "The form was changed. Load it again."))?;
    request.headers_mut().insert(IF_MATCH, etag);
    let response = call.send(request).await?;
    Ok(serde_json::from_slice(response.body()).unwrap_or_default())
}

async fn shown(call: &PageCall<'_>, state: FormState<'_>, notice: Markup) -> ApiResult {
    let shown = ShownAgent::read(call).await?;
    let (name, page, etag) = (shown.text("name"), shown.page(), state.value("etag", &shown.etag));
    let main = html! {
        p { a href="/console/agents" { "Agents" } }
        (notice)
        (state.notice())
        dl .access-facts .card {
            dt { "Asked for as" } dd .mono { "agent/" (name) }
            dt { "Model" } dd .mono { (shown.text("model")) }
            dt { "Trusted" } dd { (trusted(&shown.agent)) }
            dt { "Id" } dd .mono { (shown.text("id")) }
            dt { "Created" } dd { (pieces::time(shown.text("created_at"))) }
            dt { "Changed" } dd { (pieces::time(shown.text("updated_at"))) }
        }
        section .card {
            h2 { "Try it" }
            (playground::chat(&[format!("agent/{name}")], &format!("agent/{name}")))
        }
        section .card {
            h2 { "Change" }
            form .form method="post" action=(page) {
                input type="hidden" name="etag" value=(etag);
                (inputs(&state, &shown.agent, &aliases(call).await))
                button .primary type="submit" { "Save" }
            }
        }
        section .card {
            h2 { "End" }
            (pieces::confirm_form(
                &format!("{page}/delete"), "Delete this agent",
                "Requests for it are refused from then on.",
            ))
        }
    };
    call.page(name, Tab::Agents, main)
}
