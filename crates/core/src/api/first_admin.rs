//! Registers the first admin, by the token in the link that a start shows. The API has no route for
//! this: the console calls it.

use super::call::Call;
use super::pin::{check_new_password, normal_email, of_new_user};
use super::route::{ApiRequest, ApiResult};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Result};
use rerouter_base::id::UserId;
use rerouter_base::secret::Secret;
use rerouter_records::account::{Login, Registered, User};
use rerouter_store::{Action, Role, StoreError, UserRow};

/// Whether there is no admin, not even a disabled one.
pub fn is_needed(app: &App) -> bool {
    app.auth.users_with(|user| user.role == Role::Admin).is_empty()
}

/// 403 unless this gateway offers the token and there is still no admin.
pub fn check(app: &App, token: &str) -> Result<()> {
    let digest = app.auth.digest(&Secret::new(token));
    if app.first_admin.takes(&digest, app.clock.now()) && is_needed(app) {
        return Ok(());
    }
    Err(Error::forbidden(
        "This link has expired or was used. If there is an admin, sign in. Else restart the \
         gateway: that makes a new link.",
    ))
}

/// Creates the first admin from a body `{"email", "password"}`, once.
pub async fn create(app: &App, request: &ApiRequest, token: &str) -> ApiResult {
    check(app, token)?;
    let call = Call { app, who: &Principal::Anonymous, request };
    let asked: Login = call.body()?;
    let email = normal_email(&asked.email)?;
    check_new_password("password", &asked.password)?;
    let password = app.passwords.hash(asked.password).await?;
    let now = app.clock.now();
    let user = UserRow::new(UserId::new(now, &app.random), email, Role::Admin, password, now);
    let body = Registered { user: User::from(&user) };
    let store = call.noting(Action::UserCreate, "user", user.id.as_str());
    let committed = store.create_first_admin(user).await;
    if let Ok(_) | Err(StoreError::Stale) = &committed {
        app.first_admin.spend();
        // The file does not exist if a terminal showed the link.
        let _none = std::fs::remove_file(app.server.data_dir.join("first-admin"));
    }
    let committed = committed.map_err(|error| match error {
        StoreError::Stale => Error::conflict("There is an admin already: sign in."),
        other => of_new_user(other),
    })?;
    call.commit(&committed, body).await?.respond(201)
}
