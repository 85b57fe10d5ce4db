//! The fields of keys, and what all pages of keys use.

use super::super::call::PageCall;
use super::super::form_fields::FieldKind::{self, Choice, Line, Pairs};
use super::super::form_fields::{FormField, field};
use super::super::pieces;
use maud::Markup;
use rerouter_base::interface::Interface;
use rerouter_base::url::encode;
use rerouter_records::KeyState;
use rerouter_records::key::KeyRecord;

pub(super) const NAME: FormField = field("Name", "name", Line("text"));
pub(super) const EXPIRES: FormField =
    field("Expires (UTC)", "expires_at", FieldKind::Time).hint("Empty: never.");
pub(super) const LABELS: FormField =
    field("Labels", "labels", Pairs(2)).hint("name=value, one a line.");
/// Fields of a new key that only an admin may set.
pub(super) const OF_ADMINS: &[FormField] = &[
    LABELS.hint("name=value, one a line. Rules may ask for them; capture=off keeps no bodies."),
    field("Owner", "owner", Line("text")).hint("usr_…; empty: you."),
];
/// The status, a filter of the list. On the page of a key a button changes it.
pub(super) const STATUS: FormField = field(
    "Status",
    "status",
    Choice(&[
        ("", "not revoked"),
        ("active", "active"),
        ("inactive", "disabled"),
        ("expired", "expired"),
        ("revoked", "revoked"),
    ]),
);

/// The interfaces whose keys this listener serves, ROUTER first.
pub(super) fn interfaces(call: &PageCall<'_>) -> impl Iterator<Item = Interface> {
    let all = [Interface::Router, Interface::Pin, Interface::Agent];
    all.into_iter().filter(|interface| call.serves(collection(*interface)))
}

/// The interface whose keys a page shows: `?interface=`, by default the first that is served.
pub(super) fn interface(call: &PageCall<'_>) -> Interface {
    let word = call.query("interface").unwrap_or_default();
    let named = Interface::parse(&word).or_else(|| interfaces(call).next());
    named.unwrap_or(Interface::Router)
}

/// The path of an interface's keys in the API.
pub(super) const fn collection(interface: Interface) -> &'static str {
    match interface {
        Interface::Pin => "/v1/apikeys",
        Interface::Agent => "/v1/api-keys",
        Interface::Router => "/v1/router/keys",
    }
}

/// The path of a key's page, or of an action below it.
pub(super) fn link(interface: Interface, id: &str, action: &str) -> String {
    format!("/console/keys/{}{action}?interface={}", encode(id), interface.as_str())
}

pub(super) fn title(interface: Interface) -> &'static str {
    match interface {
        Interface::Router => "ROUTER: inference, captures, routing",
        Interface::Pin => "PIN: accounts, users, nodes",
        Interface::Agent => "AGENT: agents",
    }
}

pub(super) fn status(key: &KeyRecord) -> Markup {
    let kind = match key.status {
        KeyState::Active => "ok",
        KeyState::Inactive | KeyState::Expired => "warn",
        KeyState::Revoked => "bad",
    };
    pieces::badge(kind, key.status.as_str())
}
