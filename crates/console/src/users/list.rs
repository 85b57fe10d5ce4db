//! `/console/users`: the list, and a new user.

use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::super::call::PageCall;
use super::super::form_state::{FormState, Input, is_of_form, refused_page};
use super::super::layout::Tab;
use super::super::{limits, pieces};
use super::{ROLES, status};
use rerouter_base::interface::Interface;
use rerouter_core::api::ApiResult;
use rerouter_records::Limits;
use rerouter_records::user::UserRecord;

const NEW: &str = "New user";

/// `GET /console/users?after=`
pub(in super::super) async fn list(call: PageCall<'_>) -> ApiResult {
    let (rows, next) = call.list::<UserRecord>("/v1/users", "/console/users", &[]).await?;
    let main = html! {
        p { a .button href="/console/users/new" { (NEW) } }
        @if rows.is_empty() {
            (pieces::empty("No users yet.", "A user signs in here and owns keys and captures."))
        } @else {
            (pieces::table(
                "Users",
                &["E-mail", "Name", "Role", "Status", "Limits", "Created"],
                &html! { @for user in &rows { (row(user)) } },
            ))
        }
        (pieces::pager(next.as_deref()))
    };
    call.page("Users", Tab::Users, main)
}

fn row(user: &UserRecord) -> Markup {
    let email = user.email.as_deref().unwrap_or_default();
    html! {
        tr {
            td { a href={ "/console/users/" (user.id) } { (email) } }
            td { (user.name.as_deref().unwrap_or_default()) }
            td { (user.role.as_str()) }
            td { (status(user)) }
            td { (limits::summary(&user.limits)) }
            td { @if let Some(at) = user.created_at { (pieces::time(&at.to_string())) } }
        }
    }
}

/// `GET /console/users/new`
pub(in super::super) async fn blank(call: PageCall<'_>) -> ApiResult {
    // Called first, so that a refusal comes before the user writes anything.
    call.get("/v1/users?limit=1").await?;
    call.page(NEW, Tab::Users, form(FormState::default()))
}

/// `POST /console/users`
pub(in super::super) async fn create(call: PageCall<'_>) -> ApiResult {
    let sent = call.form()?;
    let mut user = Map::new();
    for name in ["email", "password", "role"] {
        user.insert(name.to_owned(), json!(sent.text(name)));
    }
    let name = sent.get("name").map(str::trim).filter(|name| !name.is_empty());
    user.extend(name.map(|name| ("name".to_owned(), json!(name))));
    user.insert("limits".to_owned(), Value::Object(limits::read(&sent)));
    match call.call(Method::POST, "/v1/users", Some(&Value::Object(user))).await {
        Ok(made) => {
            let id = made.get("id").and_then(Value::as_str).unwrap_or_default();
            call.redirect(&format!("/console/users/{id}"))
        }
        Err(error) if is_of_form(&error) => {
            let main = form(FormState::refused(&sent, &error));
            refused_page(call.page(NEW, Tab::Users, main), &error)
        }
        Err(error) => Err(error),
    }
}

fn form(state: FormState<'_>) -> Markup {
    html! {
        (state.notice())
        form .form method="post" action="/console/users" {
            (state.of_kind(&Input {
                label: "E-mail", name: "email", before: "", hint: "To sign in with.",
            }, "email"))
            (state.new_password(&Input {
                label: "Password", name: "password", before: "",
                hint: "Give it to the user, who changes it after the first sign-in.",
            }))
            (state.line(&Input { label: "Name", name: "name", before: "", hint: "" }))
            (state.choice(&Input {
                label: "Role", name: "role", before: "user",
                hint: "Admins see and do everything.",
            }, &ROLES))
            (limits::inputs(&state, &Limits::default(), Interface::Router))
            button .primary type="submit" { "Create user" }
        }
    }
}
