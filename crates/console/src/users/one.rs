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
use rerouter_records::Role;
use rerouter_records::user::UserRecord;

/// `GET /console/users/{id}`
pub(in super::super) async fn show(call: PageCall<'_>) -> ApiResult {
    shown(&call, FormState::default(), html! {}).await
}

/// `POST /console/users/{id}`: changes the fields that differ from the current user.
pub(in super::super) async fn change(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let before: UserRecord = call.read(&path(&call)).await?;
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

fn patch(before: &UserRecord, sent: &Form) -> Option<Value> {
    let mut patch = Map::new();
    let name = Some(sent.text("name").trim()).filter(|name| !name.is_empty());
    if before.name.as_deref() != name {
        patch.insert("name".to_owned(), json!(name));
    }
    if before.role.as_str() != sent.text("role") {
        patch.insert("role".to_owned(), json!(sent.text("role")));
    }
    let limits = limits::change(&before.limits, sent);
    patch.extend(limits.map(|limits| ("limits".to_owned(), limits)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

async fn shown(call: &PageCall<'_>, state: FormState<'_>, notice: Markup) -> ApiResult {
    let user: UserRecord = call.read(&path(call)).await?;
    let id = &user.id;
    // The built-in user of ADMIN_API_KEY has no email.
    let email = user.email.as_deref();
    let main = html! {
        p { a href="/console/users" { "Users" } }
        (notice)
        (state.notice())
        dl .access-facts .card {
            dt { "Status" } dd { (status(&user)) }
            dt { "Id" } dd .mono { (id) }
            dt { "Name" } dd { (user.name.as_deref().unwrap_or_default()) }
            dt { "Role" } dd { (user.role.as_str()) }
            dt { "Limits" } dd { (limits::summary(&user.limits)) }
            @if let Some(at) = user.created_at {
                dt { "Created" } dd { (pieces::time(&at.to_string())) }
            }
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
            @if user.role == Role::User { (password(&user, &state)) }
            (end(&user))
        } @else {
            p .muted { "This is the built-in user of ADMIN_API_KEY. It cannot be changed." }
        }
    };
    call.page(email.unwrap_or("ADMIN_API_KEY"), Tab::Users, main)
}

fn edit(user: &UserRecord, state: &FormState<'_>) -> Markup {
    let name = user.name.as_deref().unwrap_or_default();
    html! {
        section .card {
            h2 { "Change" }
            form .form method="post" action={ "/console/users/" (user.id) } {
                (state.line(&Input { label: "Name", name: "name", before: name, hint: "" }))
                (state.choice(&Input {
                    label: "Role", name: "role", before: user.role.as_str(),
                    hint: "Without the role, admin-only scopes that this user granted end.",
                }, &ROLES))
                (limits::inputs(state, &user.limits, Interface::Router))
                button type="submit" { "Save" }
            }
        }
    }
}

fn password(user: &UserRecord, state: &FormState<'_>) -> Markup {
    let id = &user.id;
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

fn end(user: &UserRecord) -> Markup {
    let action = format!("/console/users/{}/disabled", user.id);
    html! {
        section .card {
            @if user.disabled {
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
        let before: UserRecord = serde_json::from_value(json!({
            "object": "user", "id": "usr_a", "email": "a@b", "name": null, "role": "user",
            "created_at": null, "disabled": false, "labels": {}, "limits": {"rpm": 3},
        }))
        .unwrap();
        let of = |text: &str| patch(&before, &Form::read(text.as_bytes()).unwrap());
        assert_eq!(of("name=&role=user&limits.rpm=3"), None);
        assert_eq!(
            of("name=Ann&role=admin&limits.rpm=&limits.tpm=x"),
            Some(json!({"name": "Ann", "role": "admin", "limits": {"rpm": null, "tpm": "x"}}))
        );
    }
}
