//! The first admin, by the token in the link of a start. No route of the API: the console calls it.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::json;

use super::body::BodyFields;
use super::pin::{check_new_password, normal_email, of_new_user, user_json};
use super::route::{ApiRequest, ApiResult};
use super::{answer, audit};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::UserId;
use rerouter_base::secret::Secret;
use rerouter_store::{Action, Role, StoreError, UserRow};

/// Whether there is no admin, nor a disabled one.
pub fn is_needed(app: &App) -> bool {
    app.auth.users_with(|user| user.role == Role::Admin).is_empty()
}

/// 403 unless this gateway offers the token, and nobody was made an admin meanwhile.
pub fn check(app: &App, token: &str) -> Result<()> {
    let digest = app.auth.digest(&Secret::new(token));
    if app.first_admin.takes(&digest, app.clock.now()) && is_needed(app) {
        return Ok(());
    }
    Err(Error::new(
        Kind::Forbidden,
        "This link has expired or was used. If there is an admin, sign in. Else restart the \
         gateway: that makes a new link.",
    ))
}

/// Makes the account of a body `{"email", "password"}`, once.
pub async fn create(app: &App, request: &ApiRequest, token: &str) -> ApiResult {
    check(app, token)?;
    let mut fields = BodyFields::read(request)?;
    let email = normal_email(&fields.text("email")?)?;
    let password = Secret::new(fields.text("password")?);
    fields.finish()?;
    check_new_password("password", &password)?;
    let password = app.passwords.hash(password).await?;
    let now = app.clock.now();
    let user = UserRow {
        id: UserId::new(now, &app.random),
        email,
        name: None,
        role: Role::Admin,
        password,
        disabled: false,
        labels: BTreeMap::new(),
        limits: Default::default(),
        created_at: now,
    };
    let body = json!({"user": user_json(&user)});
    let (action, who) = (Action::UserCreate, Principal::Anonymous);
    let event = audit::event(app, &who, request, action, "user", user.id.as_str());
    let committed = app.store.noting(event).create_first_admin(user).await;
    if let Ok(_) | Err(StoreError::Stale) = &committed {
        app.first_admin.spend();
        // There is none where a terminal showed the link.
        let _none = std::fs::remove_file(app.server.data_dir.join("first-admin"));
    }
    let committed = committed.map_err(|error| match error {
        StoreError::Stale => Error::new(Kind::Conflict, "There is an admin already: sign in."),
        other => of_new_user(other),
    })?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    Ok(answer::confirmed(answer::json(StatusCode::CREATED, &body), unconfirmed))
}
