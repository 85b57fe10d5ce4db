//! `/console/keys/new`, and the page that shows a new secret.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::super::call::PageCall;
use super::super::form_state::{FormState, unconfirmed};
use super::super::layout::Tab;
use super::super::{limits, pieces, snippets};
use super::fields::{EXPIRES, NAME, OF_ADMINS, interface, link, title};
use rerouter_access::auth::{
    ADMIN_SCOPE, AGENT_SCOPES, PIN_SCOPES, RESERVED_SCOPES, SESSION_SCOPES,
};
use rerouter_base::error::Error;
use rerouter_base::id::RequestId;
use rerouter_base::interface::Interface;
use rerouter_core::api::ApiResult;
use rerouter_records::key::{KeyRecord, KeyWithSecret};

pub(super) fn inputs(call: &PageCall<'_>, state: &FormState<'_>) -> Markup {
    let interface = interface(call);
    let is_admin = call.is_admin() && interface != Interface::Agent;
    // The id of the page's request, which differs for each load of the page.
    let once = call.request.extensions().get::<RequestId>().map_or("", RequestId::as_str);
    html! {
        p { (title(interface)) }
        input type="hidden" name="once" value=(once);
        (state.fields(&[NAME.hint("What it is for.")]))
        (scopes(interface, is_admin, state))
        (state.fields(&[EXPIRES]))
        (state.groups(&[limits::of(interface)]))
        @if is_admin { (state.fields(OF_ADMINS)) }
    }
}

/// The scopes that this caller may grant. The least of them is checked.
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

/// The page with a new secret, which is shown only once.
pub(super) async fn secret_page(call: &PageCall<'_>, title: &str, answer: &Value) -> ApiResult {
    let KeyWithSecret { record, key } =
        KeyWithSecret::deserialize(answer).map_err(Error::internal)?;
    let KeyRecord { id, interface, previous_secret_expires_at: until, .. } = &record;
    let secret = key.0.expose();
    let set_up = match interface {
        Interface::Router => snippets::filled_page(call, secret).await,
        other => snippets::first_call(call, *other, secret),
    };
    let main = html! {
        p { a href=(link(*interface, id.as_str(), "")) { (record.name) } " " span .mono { (id) } }
        (pieces::secret_once(secret))
        (unconfirmed(answer))
        @if until.is_some() {
            p { "The secret before is valid until " (pieces::when(*until)) "." }
        }
        (set_up)
    };
    call.page(title, Tab::Keys, main)
}
