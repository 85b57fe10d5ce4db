//! `/console/users/{id}`.

use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::call::PageCall;
use super::super::form::Form;
use super::super::form_state::{FormState, Input, is_of_form, refused_page, unconfirmed};
use super::super::layout::Tab;
use super::super::{limits, pieces};
use super::{ROLES, status};
use rerouter_base::interface::Interface;
use rerouter_base::url::encode;
use rerouter_core::api::ApiResult;

/// `GET /console/users/{id}`
pub(in super::super) async fn show(call: PageCall<'_>) -> ApiResult {
    shown(&call, FormState::default(), html! {}).await
}

/// `POST /console/users/{id}`: the fields that differ from the user as it is.
pub(in super::super) async fn change(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let before = call.get(&path(&call)).await?;
    match patch(&before, &sent) {
        Some(patch) => patched(&call, &patch, FormState::sent(&sent)).await,
        None => again(&call),
    }
}

/// `POST /console/users/{id}/disabled`
pub(in super::super) async fn set_disabled(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let patch = json!({"disabled": sent.text("disabled") == "true"});
    patched(&call, &patch, FormState::default()).await
}

/// `POST /console/users/{id}/password`
pub(in super::super) async fn set_password(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let patch = json!({"password": sent.text("password")});
    patched(&call, &patch, FormState::default()).await
}

fn path(call: &PageCall<'_>) -> String {
    format!("/v1/users/{}", encode(&call.param(0)))
}

fn again(call: &PageCall<'_>) -> ApiResult {
    call.redirect(&format!("/console/users/{}", encode(&call.param(0))))
}

async fn patched(call: &PageCall<'_>, patch: &Value, state: FormState<'_>) -> ApiResult {
    match call.call(Method::PATCH, &path(call), Some(patch)).await {
        Ok(changed) if changed.get("unconfirmed").is_some() => {
            shown(call, FormState::default(), unconfirmed(&changed)).await
        }
        Ok(_) => again(call),
        Err(error) if is_of_form(&error) => {
            refused_page(shown(call, state.with(&error), html! {}).await, &error)
        }
        Err(error) => Err(error),
    }
}

fn patch(before: &Value, sent: &Form) -> Option<Value> {
    let mut patch = Map::new();
    let name = sent.text("name").trim();
    let name = if name.is_empty() { Value::Null } else { json!(name) };
    for (field, wanted) in [("name", name), ("role", json!(sent.text("role")))] {
        if before.get(field) != Some(&wanted) {
            patch.insert(field.to_owned(), wanted);
        }
    }
    let limits = limits::change(before.get("limits").unwrap_or(&Value::Null), sent);
    patch.extend(limits.map(|limits| ("limits".to_owned(), limits)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

async fn shown(call: &PageCall<'_>, state: FormState<'_>, notice: Markup) -> ApiResult {
    let user = call.get(&path(call)).await?;
    let text = |name: &str| user.get(name).and_then(Value::as_str);
    let id = text("id").unwrap_or_default();
    // The built-in user of ADMIN_API_KEY has no address.
    let email = text("email");
    let main = html! {
        p { a href="/console/users" { "Users" } }
        (notice)
        (state.notice())
        dl .access-facts .card {
            dt { "Status" } dd { (status(&user)) }
            dt { "Id" } dd .mono { (id) }
            dt { "Name" } dd { (text("name").unwrap_or_default()) }
            dt { "Role" } dd { (text("role").unwrap_or_default()) }
            dt { "Limits" } dd { (limits::summary(user.get("limits").unwrap_or(&Value::Null))) }
            @if let Some(at) = text("created_at") { dt { "Created" } dd { (pieces::time(at)) } }
            dt { "More" }
            dd {
                a href={ "/console/keys?interface=router&owner=" (id) } { "ROUTER keys" } " · "
                a href={ "/console/keys?interface=pin&owner=" (id) } { "PIN keys" } " · "
                a href={ "/console/captures?owner=" (id) } { "captures" } " · "
                a href={ "/console/audit?target=" (id) } { "audit" }
            }
        }
        @if email.is_some() {
            (edit(&user, &state))
            @if text("role") == Some("user") { (password(&user, &state)) }
            (end(&user))
        } @else {
            p .muted { "This is the built-in user of ADMIN_API_KEY. It cannot be changed." }
        }
    };
    call.page(email.unwrap_or("ADMIN_API_KEY"), Tab::Users, main)
}

fn edit(user: &Value, state: &FormState<'_>) -> Markup {
    let text = |name: &str| user.get(name).and_then(Value::as_str).unwrap_or_default();
    let limits = user.get("limits").unwrap_or(&Value::Null);
    html! {
        section .card {
            h2 { "Change" }
            form .form method="post" action={ "/console/users/" (text("id")) } {
                (state.line(&Input { label: "Name", name: "name", before: text("name"), hint: "" }))
                (state.choice(&Input {
                    label: "Role", name: "role", before: text("role"),
                    hint: "Without the role, admin-only scopes that this user granted end.",
                }, &ROLES))
                (limits::inputs(state, limits, Interface::Router))
                button type="submit" { "Save" }
            }
        }
    }
}

fn password(user: &Value, state: &FormState<'_>) -> Markup {
    let id = user.get("id").and_then(Value::as_str).unwrap_or_default();
    html! {
        section .card {
            h2 { "Forgotten password" }
            form .form method="post" action={ "/console/users/" (id) "/password" } {
                (state.new_password(&Input {
                    label: "New password", name: "password", before: "",
                    hint: "All sessions of the user end.",
                }))
                button type="submit" { "Set password" }
            }
        }
    }
}

fn end(user: &Value) -> Markup {
    let id = user.get("id").and_then(Value::as_str).unwrap_or_default();
    let action = format!("/console/users/{id}/disabled");
    let disabled = user.get("disabled").and_then(Value::as_bool).unwrap_or(false);
    html! {
        section .card {
            @if disabled {
                h2 { "Enable" }
                form method="post" action=(action) {
                    p { "The user's keys work again; the sessions do not come back." }
                    button type="submit" name="disabled" value="false" { "Enable this user" }
                }
            } @else {
                h2 { "Disable" }
                details .confirm {
                    summary .button .bad { "Disable…" }
                    form method="post" action=(action) {
                        p { "All sessions end at once, and all keys of the user are refused." }
                        button .bad type="submit" name="disabled" value="true" {
                            "Disable this user"
                        }
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
        let before = json!({"name": null, "role": "user", "limits": {"rpm": 3}});
        let of = |text: &str| patch(&before, &Form::read(text.as_bytes()).unwrap());
        assert_eq!(of("name=&role=user&limits.rpm=3"), None);
        assert_eq!(
            of("name=Ann&role=admin&limits.rpm=&limits.tpm=x"),
            Some(json!({"name": "Ann", "role": "admin", "limits": {"rpm": null, "tpm": "x"}}))
        );
    }
}
