//! Keys of the three interfaces: the list, a new key, and one key with its actions.

mod create;
mod list;
mod one;

pub(super) use create::{blank, create};
pub(super) use list::list;
pub(super) use one::{change, revoke, rotate, set_status, show};

use super::call::PageCall;
use rerouter_base::interface::Interface;
use rerouter_base::url::encode;
use rerouter_records::KeyState;

/// The interfaces whose keys this listener serves, ROUTER first.
fn interfaces(call: &PageCall<'_>) -> impl Iterator<Item = Interface> {
    let all = [Interface::Router, Interface::Pin, Interface::Agent];
    all.into_iter().filter(|interface| call.serves(collection(*interface)))
}

/// The interface whose keys a page shows: `?interface=`, by default the first that is served.
fn interface(call: &PageCall<'_>) -> Interface {
    let word = call.query("interface").unwrap_or_default();
    let named = Interface::parse(&word).or_else(|| interfaces(call).next());
    named.unwrap_or(Interface::Router)
}

/// The path of an interface's keys in the API.
fn collection(interface: Interface) -> &'static str {
    match interface {
        Interface::Pin => "/v1/apikeys",
        Interface::Agent => "/v1/api-keys",
        Interface::Router => "/v1/router/keys",
    }
}

/// The path of a key's page, or of a form's action below it.
fn link(interface: Interface, id: &str, action: &str) -> String {
    format!("/console/keys/{}{action}?interface={}", encode(id), interface.as_str())
}

/// The interface in words.
fn title(interface: Interface) -> &'static str {
    match interface {
        Interface::Router => "ROUTER: inference, captures, routing",
        Interface::Pin => "PIN: accounts, users, nodes",
        Interface::Agent => "AGENT: agents",
    }
}

/// The CSS class of a key's status.
fn status_class(status: KeyState) -> &'static str {
    match status {
        KeyState::Active => "ok",
        KeyState::Inactive | KeyState::Expired => "warn",
        KeyState::Revoked => "bad",
    }
}
