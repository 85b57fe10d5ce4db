//! Creates the first admin, with the link that the gateway prints when it starts.

use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::json;

use super::call::{PageCall, request};
use super::pieces::field;
use super::refusal::words;
use super::sign_in::{led, log_in, new_password};
use rerouter_base::error::{Error, Kind};
use rerouter_core::api::{ApiResult, first_admin};

const TITLE: &str = "The first admin";

pub(super) async fn show(call: PageCall<'_>) -> ApiResult {
    let token = call.query("token").unwrap_or_default();
    first_admin::check(call.app, &token)?;
    call.plain_page(StatusCode::OK, TITLE, &account_form(&token, "", None))
}

/// Creates the account and signs it in.
pub(super) async fn create(call: PageCall<'_>) -> ApiResult {
    let form = call.form()?;
    let (token, email, password) = (form.text("token"), form.text("email"), form.text("password"));
    first_admin::check(call.app, token)?;
    let account = json!({"email": email, "password": password});
    let mut asked = request(Method::POST, "/console/first-admin", Some(&account))?;
    call.complete(&mut asked);
    let made = match password == form.text("again") {
        true => first_admin::create(call.app, &asked, token).await,
        false => Err(Error::new(Kind::InvalidRequest, "The passwords differ.")),
    };
    match made {
        Ok(_) => led(&call, "/console/", log_in(&call, email, password).await?),
        Err(error) => {
            let form = account_form(token, email, Some(&error));
            call.plain_refusal(error, TITLE, &form)
        }
    }
}

fn account_form(token: &str, email: &str, refused: Option<&Error>) -> Markup {
    html! {
        form.form.narrow method="post" action="/console/first-admin" {
            p { "This account may do everything. It makes further users and admins." }
            @if let Some(error) = refused { (words(error)) }
            input type="hidden" name="token" value=(token);
            (field("E-mail", "email", &html! {
                input #email name="email" type="email" autocomplete="username" required
                    value=(email) autofocus;
            }, ""))
            (new_password("Password"))
            button.primary { "Make the account" }
        }
    }
}
