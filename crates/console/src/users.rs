//! Pages of users, for admins.

use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::call::PageCall;
use super::form_fields::FieldKind::{Choice, Line, NewPassword};
use super::form_fields::{FormField, FormGroup, field, plain};
use super::form_state::FormState;
use super::layout::Tab;
use super::limits;
use super::pieces::{self, Column};
use super::resource::{Resource, after, path};
use rerouter_core::api::ApiResult;
use rerouter_records::Role;
use rerouter_records::user::UserRecord;

const NAME: FormField = field("Name", "name", Line("text"));
const ROLE: FormField = field("Role", "role", Choice(&[("user", "user"), ("admin", "admin")]))
    .hint("Admins see and do everything.")
    .before("user");
const PASSWORD: FormField =
    field("New password", "password", NewPassword).hint("All sessions of the user end.");

impl Resource for UserRecord {
    const TAB: Tab = Tab::Users;
    const TITLE: &'static str = "Users";
    const EMPTY: (&'static str, &'static str) =
        ("No users yet.", "A user signs in here and owns keys and captures.");
    const COLUMNS: &'static [Column<Self>] = &[
        Column("E-mail", "", |user| {
            let email = user.email.as_deref().unwrap_or_default();
            html! { a href={ "/console/users/" (user.id) } { (email) } }
        }),
        Column("Name", "", |user| html! { (user.name.as_deref().unwrap_or_default()) }),
        Column("Role", "", |user| html! { (user.role.as_str()) }),
        Column("Status", "", status),
        Column("Limits", "", |user| limits::summary(&user.limits)),
        Column("Created", "", |user| pieces::when(user.created_at)),
    ];
    const PAGE: &'static str = "/console/users";
    const API: &'static str = "/v1/users";
    const NEW: (&'static str, &'static str) = ("New user", "Create user");
    const NEW_FIELDS: &'static [FormGroup] = &[
        plain(&[
            field("E-mail", "email", Line("email")).needed().hint("To sign in with."),
            field("Password", "password", NewPassword)
                .needed()
                .hint("Give it to the user, who changes it after the first sign-in."),
            NAME,
            ROLE,
        ]),
        limits::ROUTER,
    ];
    const FIELDS: &'static [FormGroup] = &[
        plain(&[
            NAME,
            ROLE.hint("Without the role, admin-only scopes that this user granted end."),
        ]),
        limits::ROUTER,
    ];

    fn name(&self) -> &str {
        // The built-in user of ADMIN_API_KEY has no address.
        self.email.as_deref().unwrap_or("ADMIN_API_KEY")
    }

    fn shown(&self, call: &PageCall<'_>, state: &FormState<'_>) -> Markup {
        let id = &self.id;
        html! {
            p { a href="/console/users" { "Users" } }
            (state.notice())
            dl .access-facts .card {
                dt { "Status" } dd { (status(self)) }
                dt { "Id" } dd .mono { (id) }
                dt { "Name" } dd { (self.name.as_deref().unwrap_or_default()) }
                dt { "Role" } dd { (self.role.as_str()) }
                dt { "Limits" } dd { (limits::summary(&self.limits)) }
                (pieces::times(&[("Created", self.created_at)]))
                dt { "More" }
                dd {
                    @if call.serves("/v1/router/keys") {
                        a href={ "/console/keys?interface=router&owner=" (id) } { "ROUTER keys" }
                        " · " a href={ "/console/captures?owner=" (id) } { "captures" } " · "
                    }
                    a href={ "/console/keys?interface=pin&owner=" (id) } { "PIN keys" } " · "
                    a href={ "/console/audit?target=" (id) } { "audit" }
                }
            }
            @if self.email.is_some() {
                (forms(self, state))
            } @else {
                p .muted { "This is the built-in user of ADMIN_API_KEY. It cannot be changed." }
            }
        }
    }
}

fn status(user: &UserRecord) -> Markup {
    match user.disabled {
        true => pieces::badge("bad", "disabled"),
        false => pieces::badge("ok", "enabled"),
    }
}

fn forms(user: &UserRecord, state: &FormState<'_>) -> Markup {
    let page = format!("/console/users/{}", user.id);
    let disabled = format!("{page}/disabled");
    html! {
        section .card {
            h2 { "Change" }
            form .form method="post" action=(page) {
                (state.groups(UserRecord::FIELDS))
                button type="submit" { "Save" }
            }
        }
        @if user.role == Role::User {
            section .card {
                h2 { "Forgotten password" }
                form .form method="post" action={ (page) "/password" } {
                    (state.fields(&[PASSWORD]))
                    button type="submit" { "Set password" }
                }
            }
        }
        section .card {
            @if user.disabled {
                h2 { "Enable" }
                form method="post" action=(disabled) {
                    p { "The user's keys work again; the sessions do not come back." }
                    button type="submit" name="disabled" value="false" { "Enable this user" }
                }
            } @else {
                h2 { "Disable" }
                details .confirm {
                    summary .button .bad { "Disable…" }
                    form method="post" action=(disabled) {
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

/// `POST /console/users/{id}/disabled`
pub(super) async fn set_disabled(call: PageCall<'_>) -> ApiResult {
    let disabled = call.form()?.text("disabled") == "true";
    patch(&call, &json!({"disabled": disabled})).await
}

/// `POST /console/users/{id}/password`
pub(super) async fn set_password(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    patch(&call, &json!({"password": sent.text("password")})).await
}

async fn patch(call: &PageCall<'_>, patch: &Value) -> ApiResult {
    let changed = call.call(Method::PATCH, &path::<UserRecord>(call, ""), Some(patch)).await;
    after::<UserRecord>(call, changed, FormState::default()).await
}

#[cfg(test)]
mod tests {
    use super::super::form::Form;
    use super::super::form_fields::changes;
    use super::*;

    #[test]
    fn only_what_differs_is_asked_for() {
        let before = json!({
            "object": "user", "id": "usr_a", "email": "a@b", "name": null, "role": "user",
            "created_at": null, "disabled": false, "labels": {}, "limits": {"rpm": 3},
        });
        let of = |text: &str| {
            changes(UserRecord::FIELDS, &before, &Form::read(text.as_bytes()).unwrap()).unwrap()
        };
        assert_eq!(of("name=&role=user&limits.rpm=3"), None);
        assert_eq!(
            of("name=Ann&role=admin&limits.rpm=&limits.tpm=x"),
            Some(json!({"name": "Ann", "role": "admin", "limits": {"rpm": null, "tpm": "x"}}))
        );
    }
}
