//! `/console/keys/{id}`: one key, its limits, and its actions.

use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::call::PageCall;
use super::super::form::Form;
use super::super::form_state::{
    FormState, Input, is_of_form, pairs_of, pairs_text, patch_to, refused_page, unconfirmed,
};
use super::super::layout::Tab;
use super::super::{limits, pieces, times};
use super::create::made_page;
use super::{collection, interface, link, status_class};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::interface::Interface;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;
use rerouter_records::KeyState;
use rerouter_records::key::KeyRecord;

const GRACES: [(&str, &str); 5] = [
    ("0", "none: the old secret ends now"),
    ("3600", "an hour"),
    ("86400", "a day"),
    ("259200", "three days"),
    ("604800", "a week"),
];

/// The page of one key: the call, the interface and the key's id.
struct KeyPage<'a> {
    call: PageCall<'a>,
    interface: Interface,
    id: String,
}

/// `GET /console/keys/{id}?interface=`. Links in the audit lack the interface; then the page
/// redirects to the interface that has the key.
pub(in super::super) async fn show(call: PageCall<'_>) -> ApiResult {
    if call.query("interface").is_some() {
        return KeyPage::new(call).shown(FormState::default(), html! {}).await;
    }
    for interface in [Interface::Router, Interface::Pin, Interface::Agent] {
        let page = KeyPage { interface, ..KeyPage::new(call) };
        match page.read().await {
            Ok(_) => return page.again(),
            Err(error) if error.kind() == Kind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::not_found("key"))
}

/// `POST /console/keys/{id}?interface=`: changes the fields that differ from the current key.
pub(in super::super) async fn change(call: PageCall<'_>) -> ApiResult {
    let (page, sent) = (KeyPage::new(call), call.form()?);
    let Some(patch) = patch(&page.read().await?, &sent) else { return page.again() };
    match page.ask(Method::PATCH, "", Some(&patch)).await {
        Err(error) if is_of_form(&error) => {
            let shown = page.shown(FormState::refused(&sent, &error), html! {}).await;
            refused_page(shown, &error)
        }
        changed => page.after(changed).await,
    }
}

/// `POST /console/keys/{id}/status?interface=`
pub(in super::super) async fn set_status(call: PageCall<'_>) -> ApiResult {
    let (page, sent) = (KeyPage::new(call), call.form()?);
    let patch = json!({"status": sent.get("status")});
    page.after(page.ask(Method::PATCH, "", Some(&patch)).await).await
}

/// `POST /console/keys/{id}/revoke?interface=`
pub(in super::super) async fn revoke(call: PageCall<'_>) -> ApiResult {
    let (page, sent) = (KeyPage::new(call), call.form()?);
    let query = sent.get("descendants").map_or("", |_| "?descendants=true");
    page.after(page.ask(Method::DELETE, query, None).await).await
}

/// `POST /console/keys/{id}/rotate?interface=`: the answer itself shows the new secret, without a
/// redirect.
pub(in super::super) async fn rotate(call: PageCall<'_>) -> ApiResult {
    let (page, sent) = (KeyPage::new(call), call.form()?);
    let grace = sent.get("grace").and_then(|text| text.parse::<u64>().ok());
    let body = json!({"grace_period_seconds": grace});
    match page.ask(Method::POST, "/rotate", Some(&body)).await {
        Ok(key) => call.page("New secret", Tab::Keys, made_page(&call, page.interface, &key).await),
        refused => page.after(refused).await,
    }
}

/// The changes in a form as a merge patch. It has only fields that differ, since each field needs
/// its own right.
fn patch(before: &KeyRecord, sent: &Form) -> Option<Value> {
    let mut patch = Map::new();
    let text = |name: &str| sent.get(name).map(str::trim);
    if let Some(name) = text("name").filter(|name| before.name != *name) {
        patch.insert("name".to_owned(), json!(name));
    }
    let ends = ends(before);
    let asked = text("expires_at").filter(|at| !at.is_empty() && *at != times::minute(&ends));
    if let Some(at) = asked {
        patch.insert("expires_at".to_owned(), json!(times::utc(at)));
    }
    let labels = text("labels").and_then(|text| patch_to(&json!(before.labels), &pairs_of(text)));
    for (name, change) in [("limits", limits::change(&before.limits, sent)), ("labels", labels)] {
        patch.extend(change.map(|change| (name.to_owned(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The expiry as text; empty if there is none.
fn ends(key: &KeyRecord) -> String {
    key.expires_at.map(|at| at.to_string()).unwrap_or_default()
}

impl<'a> KeyPage<'a> {
    fn new(call: PageCall<'a>) -> Self {
        KeyPage { call, interface: interface(&call), id: call.param(0) }
    }

    async fn ask(&self, method: Method, end: &str, body: Option<&Value>) -> Result<Value> {
        let path = format!("{}/{}{end}", collection(self.interface), encode(&self.id));
        self.call.call(method, &path, body).await
    }

    async fn read(&self) -> Result<KeyRecord> {
        self.call.read(&format!("{}/{}", collection(self.interface), encode(&self.id))).await
    }

    /// The page after a change, or the form with the refusal.
    async fn after(&self, answer: Result<Value>) -> ApiResult {
        match answer {
            Ok(changed) if changed.get("unconfirmed").is_some() => {
                self.shown(FormState::default(), unconfirmed(&changed)).await
            }
            Ok(_) => self.again(),
            Err(error) if is_of_form(&error) => {
                let why = pieces::notice("bad", &html! { (error.detail()) });
                refused_page(self.shown(FormState::default(), why).await, &error)
            }
            Err(error) => Err(error),
        }
    }

    /// Redirects to the page of the key in its current state.
    fn again(&self) -> ApiResult {
        self.call.redirect(&link(self.interface, &self.id, ""))
    }

    async fn shown(&self, state: FormState<'_>, notice: Markup) -> ApiResult {
        let key = self.read().await?;
        let status = key.status;
        let main = html! {
            p { a href={ "/console/keys?interface=" (self.interface.as_str()) } {
                "Keys of " (self.interface.as_str().to_uppercase())
            } }
            p { (pieces::badge(status_class(status), status.as_str())) }
            (notice)
            (state.notice())
            (self.facts(&key))
            @if let Some(usage) = &key.usage {
                section .card {
                    h2 { "What remains of its limits" }
                    @match usage {
                        Some(usage) => (limits::remaining(usage)),
                        None => p .muted { "Nothing limits this key." },
                    }
                }
            }
            @if status != KeyState::Revoked {
                (self.edit(&key, &state))
                (self.actions(status))
            }
        };
        self.call.page(&key.name, Tab::Keys, main)
    }

    fn facts(&self, key: &KeyRecord) -> Markup {
        let times = [
            ("Created", Some(key.created_at)),
            ("Last used", key.last_used_at),
            ("Expires", key.expires_at),
            ("Rotated", key.rotated_at),
            ("Secret before is valid until", key.previous_secret_expires_at),
            ("Revoked", key.revoked_at),
        ];
        html! {
            dl .access-facts .card {
                dt { "Id" } dd .mono { (self.id) }
                dt { "Secret" } dd .mono { (key.redacted) }
                dt { "Scopes" } dd { (key.scopes.join(", ")) }
                dt { "Models" } dd { (limits::models(&key.limits)) }
                dt { "Limits" } dd { (limits::summary(&key.limits)) }
                @if self.interface != Interface::Agent {
                    dt { "Owner" }
                    dd .mono {
                        @if self.call.is_admin() {
                            a href={ "/console/users/" (key.owner) } { (key.owner) }
                        } @else { (key.owner) }
                    }
                }
                dt { "Created by" } dd .mono { (key.created_by.id) }
                @for (label, at) in times {
                    @if let Some(at) = at { dt { (label) } dd { (pieces::time(&at.to_string())) } }
                }
                @let labels = pairs_text(&key.labels);
                @if !labels.is_empty() { dt { "Labels" } dd .mono { (labels) } }
                @if self.interface == Interface::Router {
                    dt { "Captures" }
                    dd { a href={ "/console/captures?key=" (self.id) } { "of this key" } }
                }
            }
        }
    }

    fn edit(&self, key: &KeyRecord, state: &FormState<'_>) -> Markup {
        html! {
            section .card {
                h2 { "Change" }
                form .form method="post" action=(link(self.interface, &self.id, "")) {
                    (state.line(&Input {
                        label: "Name", name: "name", before: &key.name, hint: "",
                    }))
                    (state.of_kind(&Input {
                        label: "Expires (UTC)", name: "expires_at",
                        before: times::minute(&ends(key)),
                        hint: "It can only come earlier.",
                    }, "datetime-local"))
                    (limits::inputs(state, &key.limits, self.interface))
                    @if self.call.is_admin() && self.interface != Interface::Agent {
                        (state.lines(&Input {
                            label: "Labels", name: "labels",
                            before: &pairs_text(&key.labels),
                            hint: "name=value, one a line.",
                        }, 2))
                    }
                    p .hint { "An admin may change all of it, others what narrows their own keys." }
                    button type="submit" { "Save" }
                }
            }
        }
    }

    fn actions(&self, status: KeyState) -> Markup {
        let (to, label) = match status {
            KeyState::Inactive => ("active", "Enable"),
            _ => ("inactive", "Disable"),
        };
        html! {
            section .card {
                h2 { "Secret" }
                form .row method="post" action=(link(self.interface, &self.id, "/rotate"))
                    {
                    (pieces::field("Grace for the old secret", "grace", &html! {
                        select #grace name="grace" {
                            @for (seconds, label) in GRACES {
                                option value=(seconds) selected[seconds == "3600"] { (label) }
                            }
                        }
                    }, "The id, the limits and the counts stay."))
                    button type="submit" { "Rotate" }
                }
            }
            section .card {
                h2 { "End" }
                form .row method="post" action=(link(self.interface, &self.id, "/status")) {
                    button type="submit" name="status" value=(to) { (label) }
                    span .hint { "A disabled key is refused until it is enabled again." }
                }
                details .confirm {
                    summary .button .bad { "Revoke…" }
                    form .form method="post" action=(link(self.interface, &self.id, "/revoke")) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_asked_for() {
        let before: KeyRecord = serde_json::from_value(json!({
            "object": "api_key", "id": "key_a", "interface": "router", "name": "a",
            "redacted": "rtr_…", "owner": "usr_a", "created_by": {"type": "session", "id": "s"},
            "scopes": [], "labels": {"team": "x"}, "status": "active",
            "limits": {"rpm": 5, "budget": {"usd": 2.0, "per": "day"}},
            "created_at": "2026-11-21T10:00:00Z", "expires_at": "2026-11-21T10:00:30.000000Z",
            "last_used_at": null, "revoked_at": null, "rotated_at": null,
            "previous_secret_expires_at": null, "metadata": {},
        }))
        .unwrap();
        let of = |text: &str| patch(&before, &Form::read(text.as_bytes()).unwrap());
        let same = "name=a&expires_at=2026-11-21T10:00&limits.rpm=5&limits.budget.usd=2&\
                    limits.budget.per=day&limits.keys_per_user=&labels=team%3Dx";
        assert_eq!(of(same), None);
        assert_eq!(of(&same.replace("rpm=5", "rpm=")), Some(json!({"limits": {"rpm": null}})));
        assert_eq!(
            of(&same.replace("usd=2", "usd=1.5").replace("name=a", "name=b")),
            Some(json!({"name": "b", "limits": {"budget": {"usd": 1.5}}}))
        );
        assert_eq!(
            of(&same.replace("team%3Dx", "").replace("T10:00", "T09:00")),
            Some(json!({"expires_at": "2026-11-21T09:00:00Z", "labels": {"team": null}}))
        );
        assert_eq!(of("name=a"), None, "what has no input stays");
    }
}
