//! `/console/keys/{id}`: one key, its limits, and its actions.

use http::Method;
use maud::{Markup, html};
use serde_json::json;

use super::super::call::PageCall;
use super::super::form_fields::FieldKind::Choice;
use super::super::form_fields::{FormField, field, pairs_text};
use super::super::form_state::FormState;
use super::super::resource::{self, after, path};
use super::super::{limits, pieces};
use super::create::secret_page;
use super::fields::{EXPIRES, LABELS, NAME, collection, link, status};
use rerouter_base::error::{Error, Kind};
use rerouter_base::interface::Interface;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::KeyState;
use rerouter_records::key::KeyRecord;

const GRACE: FormField = field(
    "Grace for the old secret",
    "grace",
    Choice(&[
        ("0", "none: the old secret ends now"),
        ("3600", "an hour"),
        ("86400", "a day"),
        ("259200", "three days"),
        ("604800", "a week"),
    ]),
)
.hint("The id, the limits and the counts stay.")
.before("3600");

/// `GET /console/keys/{id}?interface=`. Links in the audit have no interface: then it redirects to
/// the interface that has the key.
pub(in super::super) async fn show(call: PageCall<'_>) -> ApiResult {
    if call.query("interface").is_some() {
        return resource::show::<KeyRecord>(call).await;
    }
    let id = call.param(0);
    for interface in [Interface::Router, Interface::Pin, Interface::Agent] {
        match call.get(&format!("{}/{}", collection(interface), encode(&id))).await {
            Ok(_) => return call.redirect(&link(interface, &id, "")),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::not_found("key"))
}

/// `POST /console/keys/{id}/revoke?interface=`
pub(in super::super) async fn revoke(call: PageCall<'_>) -> ApiResult {
    let query = call.form()?.get("descendants").map_or("", |_| "?descendants=true");
    let revoked = call.call(Method::DELETE, &path::<KeyRecord>(&call, query), None).await;
    after::<KeyRecord>(&call, revoked, FormState::default()).await
}

/// `POST /console/keys/{id}/rotate?interface=`: the answer shows the new secret, once.
pub(in super::super) async fn rotate(call: PageCall<'_>) -> ApiResult {
    let grace = call.form()?.text(GRACE.name).parse::<u64>().ok();
    let body = json!({"grace_period_seconds": grace});
    match call.call(Method::POST, &path::<KeyRecord>(&call, "/rotate"), Some(&body)).await {
        Ok(key) => secret_page(&call, "New secret", &key).await,
        refused => after::<KeyRecord>(&call, refused, FormState::default()).await,
    }
}

pub(super) fn shown(key: &KeyRecord, call: &PageCall<'_>, state: &FormState<'_>) -> Markup {
    let interface = key.interface.as_str();
    html! {
        p { a href={ "/console/keys?interface=" (interface) } {
            "Keys of " (interface.to_uppercase())
        } }
        p { (status(key)) }
        (state.notice())
        (facts(key, call.is_admin()))
        @if let Some(usage) = &key.usage {
            section .card {
                h2 { "What remains of its limits" }
                @match usage {
                    Some(usage) => (limits::remaining(usage)),
                    None => p .muted { "The key has ended." },
                }
            }
        }
        @if key.status != KeyState::Revoked {
            (edit(key, call.is_admin(), state))
            (actions(key))
        }
    }
}

fn facts(key: &KeyRecord, is_admin: bool) -> Markup {
    let (id, owner) = (&key.id, &key.owner);
    html! {
        dl .access-facts .card {
            dt { "Id" } dd .mono { (id) }
            dt { "Secret" } dd .mono { (key.redacted) }
            dt { "Scopes" } dd { (key.scopes.join(", ")) }
            dt { "Models" } dd { (limits::models(&key.limits)) }
            dt { "Limits" } dd { (limits::summary(&key.limits)) }
            @if key.interface != Interface::Agent {
                dt { "Owner" }
                dd .mono {
                    @if is_admin { a href={ "/console/users/" (owner) } { (owner) } }
                    @else { (owner) }
                }
            }
            dt { "Created by" } dd .mono { (key.created_by.id) }
            (pieces::times(&[
                ("Created", Some(key.created_at)),
                ("Last used", key.last_used_at),
                ("Expires", key.expires_at),
                ("Rotated", key.rotated_at),
                ("Secret before is valid until", key.previous_secret_expires_at),
                ("Revoked", key.revoked_at),
            ]))
            @let labels = pairs_text(&key.labels);
            @if !labels.is_empty() { dt { "Labels" } dd .mono { (labels) } }
            @if key.interface == Interface::Router {
                dt { "Captures" }
                dd { a href={ "/console/captures?key=" (id) } { "of this key" } }
            }
        }
    }
}

fn edit(key: &KeyRecord, is_admin: bool, state: &FormState<'_>) -> Markup {
    html! {
        section .card {
            h2 { "Change" }
            form .form method="post" action=(link(key.interface, key.id.as_str(), "")) {
                (state.fields(&[NAME, EXPIRES.hint("It can only come earlier.")]))
                (state.groups(&[limits::of(key.interface)]))
                @if is_admin && key.interface != Interface::Agent { (state.fields(&[LABELS])) }
                p .hint { "An admin may change all of it, others what narrows their own keys." }
                button type="submit" { "Save" }
            }
        }
    }
}

fn actions(key: &KeyRecord) -> Markup {
    let action = |name: &str| link(key.interface, key.id.as_str(), name);
    let (to, label) = match key.status {
        KeyState::Inactive => ("active", "Enable"),
        _ => ("inactive", "Disable"),
    };
    html! {
        section .card {
            h2 { "Secret" }
            form .row method="post" action=(action("/rotate")) {
                (FormState::default().fields(&[GRACE]))
                button type="submit" { "Rotate" }
            }
        }
        section .card {
            h2 { "End" }
            form .row method="post" action=(action("/status")) {
                button type="submit" name="status" value=(to) { (label) }
                span .hint { "A disabled key is refused until it is enabled again." }
            }
            details .confirm {
                summary .button .bad { "Revoke…" }
                form .form method="post" action=(action("/revoke")) {
                    p { "A revoked key is dead at once and for ever." }
                    label .access-check {
                        input type="checkbox" name="descendants" value="true";
                        "Revoke the keys that it made too, and theirs"
                    }
                    button .bad type="submit" { "Revoke this key" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::form::Form;
    use super::super::super::form_fields::changes;
    use super::super::super::resource::Resource;
    use super::*;

    #[test]
    fn only_what_differs_is_asked_for() {
        let before = json!({
            "name": "a", "labels": {"team": "x"},
            "limits": {"rpm": 5, "budget": {"usd": 2.0, "per": "day"}},
            "expires_at": "2026-11-21T10:00:30.000000Z",
        });
        let of = |text: &str| {
            changes(KeyRecord::FIELDS, &before, &Form::read(text.as_bytes()).unwrap()).unwrap()
        };
        let same = "name=a&expires_at=2026-11-21T10:00&limits.rpm=5&limits.budget.usd=2&\
                    limits.budget.per=day&limits.keys_per_user=&labels=team%3Dx";
        assert_eq!(of(same), None);
        assert_eq!(of(&same.replace("rpm=5", "rpm=")), Some(json!({"limits": {"rpm": null}})));
        assert_eq!(
            of(&same.replace("usd=2", "usd=1.5").replace("name=a", "name=b")),
            Some(json!({"name": "b", "limits": {"budget": {"usd": 1.5}}}))
        );
        assert_eq!(of(&same.replace("usd=2", "usd=")), Some(json!({"limits": {"budget": null}})));
        assert_eq!(
            of(&same.replace("team%3Dx", "").replace("T10:00", "T09:00")),
            Some(json!({"expires_at": "2026-11-21T09:00:00Z", "labels": null}))
        );
        assert_eq!(of("name=a"), None, "what has no input stays");
    }
}
