//! `/console/keys/new`, and the page that shows a secret once.

use http::{HeaderValue, Method};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::call::{PageCall, request};
use super::super::form::Form;
use super::super::form_state::{FormState, Input, is_of_form, pairs_of, refused_page, unconfirmed};
use super::super::layout::Tab;
use super::super::links::with_query;
use super::super::{limits, pieces, snippets, times};
use super::{collection, interface, link};
use rerouter_access::auth::{
    ADMIN_SCOPE, AGENT_SCOPES, PIN_SCOPES, RESERVED_SCOPES, SESSION_SCOPES,
};
use rerouter_base::error::{Error, Result};
use rerouter_base::id::RequestId;
use rerouter_base::interface::Interface;
use rerouter_core::api::{ApiRequest, ApiResult};
use rerouter_records::Limits;

const TITLE: &str = "New key";

/// `GET /console/keys/new?interface=`
pub(in super::super) async fn blank(call: PageCall<'_>) -> ApiResult {
    let interface = interface(&call);
    // Asks for the AGENT key before the user writes anything.
    call.get(&with_query(collection(interface), &[("limit", "1")])).await?;
    call.page(TITLE, Tab::Keys, form(&call, interface, FormState::default()))
}

/// `POST /console/keys?interface=`: the answer itself shows the secret, without a redirect. Sending
/// the same form twice makes only one key.
pub(in super::super) async fn create(call: PageCall<'_>) -> ApiResult {
    let (interface, sent) = (interface(&call), call.form()?);
    let made = match asked(interface, &sent) {
        Ok(request) => call.send(request).await,
        Err(error) => Err(error),
    };
    match made {
        Ok(response) => {
            let key: Value = serde_json::from_slice(response.body()).map_err(Error::internal)?;
            call.page("Key created", Tab::Keys, made_page(&call, interface, &key).await)
        }
        Err(error) if is_of_form(&error) => {
            let main = form(&call, interface, FormState::refused(&sent, &error));
            refused_page(call.page(TITLE, Tab::Keys, main), &error)
        }
        Err(error) => Err(error),
    }
}

/// The API call that a form describes.
fn asked(interface: Interface, sent: &Form) -> Result<ApiRequest> {
    let text = |name: &str| sent.get(name).map(str::trim).filter(|text| !text.is_empty());
    let mut body = Map::new();
    body.insert("scopes".to_owned(), json!(sent.all("scopes")));
    body.insert("limits".to_owned(), Value::Object(limits::read(sent)));
    for name in ["name", "owner"] {
        body.extend(text(name).map(|text| (name.to_owned(), json!(text))));
    }
    body.extend(text("expires_at").map(|at| ("expires_at".to_owned(), json!(times::utc(at)))));
    body.extend(text("labels").map(|text| ("labels".to_owned(), json!(pairs_of(text)))));
    let mut request = request(Method::POST, collection(interface), Some(&Value::Object(body)))?;
    if let Some(once) = sent.get("once").filter(|once| !once.is_empty()) {
        let once = HeaderValue::from_str(once)
            .map_err(|_| Error::invalid("once", "The form was changed. Load it again."))?;
        request.headers_mut().insert("idempotency-key", once);
    }
    Ok(request)
}

fn form(call: &PageCall<'_>, interface: Interface, state: FormState<'_>) -> Markup {
    let is_admin = call.is_admin() && interface != Interface::Agent;
    // The id of this page's request, which is different for each page.
    let once = call.request.extensions().get::<RequestId>().map_or("", RequestId::as_str);
    html! {
        p { (super::title(interface)) }
        (state.notice())
        form .form method="post" action={ "/console/keys?interface=" (interface.as_str()) } {
            input type="hidden" name="once" value=(once);
            (state.line(&Input {
                label: "Name", name: "name", before: "", hint: "What it is for.",
            }))
            (scopes(interface, is_admin, &state))
            (state.of_kind(&Input {
                label: "Expires (UTC)", name: "expires_at", before: "", hint: "Empty: never.",
            }, "datetime-local"))
            (limits::inputs(&state, &Limits::default(), interface))
            @if is_admin {
                (state.lines(&Input {
                    label: "Labels", name: "labels", before: "",
                    hint: "name=value, one a line. Rules may ask for them; capture=off keeps no \
                           bodies.",
                }, 2))
                (state.line(&Input {
                    label: "Owner", name: "owner", before: "", hint: "usr_…; empty: you.",
                }))
            }
            button .primary type="submit" { "Create key" }
        }
    }
}

/// The scopes that this caller may grant. The one with the fewest rights is checked.
fn scopes(interface: Interface, is_admin: bool, state: &FormState<'_>) -> Markup {
    let (usual, reserved, least): (&[&str], &[&str], &str) = match interface {
        Interface::Pin => (&PIN_SCOPES, &[ADMIN_SCOPE], "user"),
        Interface::Agent => (&AGENT_SCOPES, &[], "agents"),
        Interface::Router => (&SESSION_SCOPES, &RESERVED_SCOPES, "inference"),
    };
    let reserved = if is_admin { reserved } else { &[] };
    html! {
        fieldset .form {
            legend { "Scopes" }
            @for scope in usual.iter().chain(reserved) {
                label .access-check {
                    input type="checkbox" name="scopes" value=(scope)
                        checked[state.holds("scopes", scope, *scope == least)];
                    span .mono { (scope) } " " span .hint { (allows(interface, scope)) }
                }
            }
        }
    }
}

/// What a scope allows, in the words of docs/access.md.
fn allows(interface: Interface, scope: &str) -> &'static str {
    match (interface, scope) {
        (Interface::Pin, "user") => "keys of PIN of its owner, and the account",
        (Interface::Pin, _) => "everything, if the owner is an admin",
        (Interface::Agent, "agents") => "agents",
        (_, "inference") => "inference, models, decide",
        (_, "replay") => "captures and usage of this key and of those that it made",
        (Interface::Agent, "keys") => "makes and ends other keys",
        (_, "keys") => "makes keys, and ends those that it made",
        (_, "replay:all") => "all captures and usage of the owner; with keys, all keys too",
        (_, "evaluate") => "validating and evaluating a given document",
        (_, "config") => "the routing document, its revisions, the state of providers",
        _ => "everything, if the owner is an admin; everybody's captures and usage",
    }
}

/// The only page that shows the secret.
pub(super) async fn made_page(call: &PageCall<'_>, interface: Interface, key: &Value) -> Markup {
    let text = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default();
    let (id, secret) = (text("id"), text("key"));
    let set_up = match interface {
        Interface::Router => snippets::filled_page(call, secret).await,
        interface => snippets::first_call(call, interface, secret),
    };
    html! {
        p { a href=(link(interface, id, "")) { (text("name")) } " " span .mono { (id) } }
        (pieces::secret_once(secret))
        (unconfirmed(key))
        @if let Some(until) = key.get("previous_secret_expires_at").and_then(Value::as_str) {
            p { "The secret before is valid until " (pieces::time(until)) "." }
        }
        (set_up)
    }
}
