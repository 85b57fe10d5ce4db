//! Sign-in, sign-out, the password, and the AGENT key if AGENT is enforced.

use http::header::{ACCEPT, CONTENT_TYPE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use maud::{Markup, html};
use serde_json::json;

use super::call::{PageCall, request};
use super::pieces::{field, notice};
use super::refusal::{local, words};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::secret::Secret;
use rerouter_core::api::ApiResult;
use rerouter_core::api::pin::PASSWORD_MIN;

/// `/` and `/console`: redirects browsers to the console.
pub(super) async fn root(call: PageCall<'_>) -> ApiResult {
    let accept = call.request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    if call.request.uri().path() != "/" || accept.is_some_and(|types| types.contains("text/html")) {
        return call.redirect("/console/");
    }
    let told = json!({"name": "rerouter", "console": "/console/", "openapi": "/openapi.json"});
    let mut response = Response::new(told.to_string().into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    let next = call.query("next").unwrap_or_default();
    let main = html! {
        @if !matches!(local(&next), "/console/") {
            (notice("info", &html! {
                p {
                    "You are not signed in, or your session has ended. Sign in, and the page that \
                     you asked for opens."
                }
            }))
        }
        (sign_in_form("", local(&next), None))
        p.muted {
            "No account? Ask an admin. The first one is made by the link that the start of this \
             gateway tells, or by `rerouter users create`."
        }
    };
    call.plain_page(StatusCode::OK, "Sign in", &main)
}

/// Signs in by the API's login, including its throttle and audit.
pub(super) async fn sign_in(call: PageCall<'_>) -> ApiResult {
    let form = call.form()?;
    let (email, next) = (form.text("email"), local(form.text("next")));
    match log_in(&call, email, form.text("password")).await {
        Ok(cookies) => led(&call, next, cookies),
        Err(error) => {
            let form = sign_in_form(email, next, Some(&error));
            call.plain_refusal(error, "Sign in", &form)
        }
    }
}

/// Returns the cookies of the new session.
pub(super) async fn log_in(call: &PageCall<'_>, email: &str, password: &str) -> Result<HeaderMap> {
    let account = json!({"email": email, "password": password});
    let login = call.send(request(Method::POST, "/v1/auth/login", Some(&account))?).await?;
    Ok(cookies(login.headers()))
}

fn cookies(headers: &HeaderMap) -> HeaderMap {
    headers.get_all(SET_COOKIE).iter().map(|value| (SET_COOKIE, value.clone())).collect()
}

/// Redirects to the next page, with these cookies.
pub(super) fn led(call: &PageCall<'_>, next: &str, cookies: HeaderMap) -> ApiResult {
    let mut response = call.redirect(next)?;
    response.headers_mut().extend(cookies);
    Ok(response)
}

fn sign_in_form(email: &str, next: &str, refused: Option<&Error>) -> Markup {
    html! {
        form.form.narrow method="post" action="/console/sign-in" {
            @if let Some(error) = refused { (words(error)) }
            input type="hidden" name="next" value=(next);
            (field("E-mail", "email", &html! {
                input #email name="email" type="email" autocomplete="username" required
                    value=(email) autofocus[refused.is_none()];
            }, ""))
            (field("Password", "password", &html! {
                input #password name="password" type="password" autocomplete="current-password"
                    required autofocus[refused.is_some()];
            }, ""))
            button.primary { "Sign in" }
        }
    }
}

pub(super) async fn sign_out(call: PageCall<'_>) -> ApiResult {
    let ended = call.send(request(Method::POST, "/v1/auth/logout", None)?).await?;
    led(&call, "/console/sign-in", cookies(ended.headers()))
}

pub(super) async fn show_password(call: PageCall<'_>) -> ApiResult {
    call.plain_page(StatusCode::OK, "Password", &password_form(None))
}

pub(super) async fn change_password(call: PageCall<'_>) -> ApiResult {
    let form = call.form()?;
    let (current, new) = (form.text("current_password"), form.text("password"));
    let change = json!({"current_password": current, "new_password": new});
    let changed = match new == form.text("again") {
        true => call.call(Method::POST, "/v1/auth/password", Some(&change)).await,
        false => Err(Error::new(Kind::InvalidRequest, "The new passwords differ.")),
    };
    match changed {
        Ok(_) => {
            let told = "The password is changed. All other sessions of yours have ended.";
            let done = html! {
                (notice("ok", &html! { p { (told) } }))
                p { a href="/console/" { "To the overview" } }
            };
            call.plain_page(StatusCode::OK, "Password", &done)
        }
        Err(error) => {
            let form = password_form(Some(&error));
            call.plain_refusal(error, "Password", &form)
        }
    }
}

fn password_form(refused: Option<&Error>) -> Markup {
    html! {
        form.form.narrow method="post" action="/console/password" {
            @if let Some(error) = refused { (words(error)) }
            (field("Current password", "current_password",
                &password_input("current_password", "current-password"), ""))
            (new_password("New password"))
            button.primary { "Change the password" }
        }
    }
}

fn password_input(name: &str, kind: &str) -> Markup {
    html! { input id=(name) name=(name) type="password" autocomplete=(kind) required; }
}

/// The inputs for a new password, `password` and `again`.
pub(super) fn new_password(label: &str) -> Markup {
    let hint = format!("At least {} characters.", PASSWORD_MIN);
    html! {
        (field(label, "password", &password_input("password", "new-password"), &hint))
        (field("The same again", "again", &password_input("again", "new-password"), ""))
    }
}

pub(super) async fn show_agent_key(call: PageCall<'_>) -> ApiResult {
    let next = call.query("next").unwrap_or_default();
    call.plain_page(StatusCode::OK, "AGENT key", &agent_key_form(local(&next), None))
}

/// Stores an AGENT key for the session.
pub(super) async fn set_agent_key(call: PageCall<'_>) -> ApiResult {
    let form = call.form()?;
    let (key, next) = (form.text("key"), local(form.text("next")));
    match call.agent_tenant(Some(&Secret::new(key))) {
        Ok(_) => call.redirect(next),
        Err(error) => {
            let form = agent_key_form(next, Some(&error));
            call.plain_refusal(error, "AGENT key", &form)
        }
    }
}

fn agent_key_form(next: &str, refused: Option<&Error>) -> Markup {
    html! {
        form.form.narrow method="post" action="/console/agent-key" {
            p {
                "This gateway enforces keys on AGENT, for agents and for AGENT keys. "
                "The gateway keeps the key in memory until your session ends."
            }
            @if let Some(error) = refused { (words(error)) }
            input type="hidden" name="next" value=(next);
            (field("AGENT key", "key", &html! {
                input #key.mono name="key" type="password" autocomplete="off" required autofocus;
            }, "It begins with agt_, or it is AGENT_CLOUD_API_KEY."))
            button.primary { "Use this key" }
        }
    }
}
