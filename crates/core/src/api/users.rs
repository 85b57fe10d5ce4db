//! Users, managed by admins. The built-in `usr_admin` of `ADMIN_API_KEY` can be read by id, but is
//! neither listed nor changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::body::{BodyFields, check_name, merge};
use super::page::{self, Query};
use super::route::{ApiRequest, ApiResult, PathParams};
use super::{answer, audit, limits, pin, replays};
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{RequestId, UserId};
use rerouter_base::interface::Interface;
use rerouter_base::secret::Secret;
use rerouter_store::{
    Action, CaptureFilter, ChangeUser, Limits, Reach, Role, Shadows, StoreError, UserRow,
};

const ROLES: &str = "user or admin";

pub(super) async fn create(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let mut fields = BodyFields::read(request)?;
    let email = pin::normal_email(&fields.text("email")?)?;
    let password = Secret::new(fields.text("password")?);
    let name: Option<String> = fields.take("name", "a string")?;
    let role = fields.take("role", ROLES)?.unwrap_or(Role::User);
    let limits =
        limits::read(Interface::Router, fields.take("limits", "an object")?.unwrap_or_default())?;
    fields.finish()?;
    pin::check_new_password("password", &password)?;
    name.as_deref().map_or(Ok(()), check_name)?;
    if app.auth.user_by_email(&email).is_some() {
        return Err(pin::email_is_taken());
    }
    let password = app.passwords.hash(password).await?;
    let now = app.clock.now();
    app.auth.recheck(who, now)?;
    let user = UserRow {
        id: UserId::new(now, &app.random),
        email,
        name,
        role,
        password,
        disabled: false,
        labels: BTreeMap::new(),
        limits,
        created_at: now,
    };
    let body = record(&user);
    let location =
        HeaderValue::from_str(&format!("/v1/users/{}", user.id)).map_err(Error::internal)?;
    let event = audit::event(app, who, request, Action::UserCreate, "user", user.id.as_str());
    let (id, limits) = (user.id.clone(), user.limits.clone());
    let committed = app
        .store
        .noting(event)
        .create_user_by(user, who.user_id())
        .await
        .map_err(pin::of_new_user)?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    app.limits.expect_user(&id, &limits, &app.store, now).await;
    let mut response = answer::json(StatusCode::CREATED, &body);
    response.headers_mut().insert(LOCATION, location);
    Ok(answer::confirmed(response, unconfirmed))
}

/// `GET /v1/users`, newest first.
pub(super) async fn list(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    let (after, limit) = page::after_id(request.uri().query(), "a user", UserId::parse)?;
    let found = app.auth.user_page(after.as_ref(), limit + 1);
    Ok(answer::json(
        StatusCode::OK,
        &page::list(found.iter().map(|user| record(user)).collect(), limit),
    ))
}

pub(super) async fn get(app: &App, _who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    Ok(answer::json(StatusCode::OK, &record(&*find(app, request)?)))
}

/// `PATCH /v1/users/{id}`, a merge patch (RFC 7396). A new password ends all sessions of the user.
/// Disabling applies in memory first, like a
/// revocation: if the store fails, the user is disabled all the same, the caller gets 503, and the
/// write is retried.
pub(super) async fn update(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let patch = Patch::read(request)?;
    let user = find(app, request)?;
    if user.id == UserId::admin() {
        return Err(Error::new(Kind::Conflict, "The built-in user cannot be changed."));
    }
    // Checked before anything happens; the store applies the patch to the state at that time.
    let mut wanted = UserRow::clone(&user);
    patch.apply(&mut wanted, who)?;
    let patch = patch.hashed(app, who).await?;
    // A repetition retries a pending write at once.
    let disables = wanted.disabled && (!user.disabled || app.auth.is_being_disabled(&user.id));
    // ADMIN_API_KEY works without any admin user.
    let last_may_go = matches!(who, Principal::Admin);
    if !disables && !last_may_go && wanted.role != Role::Admin && app.auth.is_last_admin(&user.id) {
        // The store checks again; it does not know of pending disablings yet.
        return Err(StoreError::LastAdmin.into());
    }
    let action = match disables {
        true => Action::UserDisable,
        false if patch.hash.is_some() => Action::PasswordChange,
        false => Action::UserUpdate,
    };
    let store = app.store.noting(audit::event(app, who, request, action, "user", user.id.as_str()));
    let by = who.clone();
    let change = Arc::new(move |user: &mut UserRow| {
        patch.apply(user, &by).map_err(|_| StoreError::Conflict)
    });
    let committed = match disables {
        true => app.auth.disable(&store, &user.id, last_may_go, change).await,
        false if app.auth.is_being_disabled(&user.id) => {
            Err(StoreError::unavailable("the user is being disabled"))
        }
        false => store.update_user(&user.id, last_may_go, change).await,
    };
    let committed = committed.map_err(|error| match error {
        StoreError::Conflict => Error::new(Kind::Conflict, "The user changed during this request."),
        StoreError::NotFound => Error::not_found("user"),
        other => other.into(),
    })?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    let user = app.auth.user(&user.id).ok_or_else(|| Error::not_found("user"))?;
    app.limits.expect_user(&user.id, &user.limits, &app.store, app.clock.now()).await;
    Ok(answer::confirmed(answer::json(StatusCode::OK, &record(&user)), unconfirmed))
}

/// `DELETE /v1/users/{id}`: the user is disabled, then the captures are deleted, then the row goes.
/// A call that broke off leaves a disabled user, and another one goes on.
pub(super) async fn delete(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    Query::read(request.uri().query(), &[])?;
    let id = find(app, request)?.id.clone();
    if id == UserId::admin() {
        return Err(Error::new(Kind::Conflict, "The built-in user cannot be deleted."));
    }
    let event = audit::event(app, who, request, Action::UserDelete, "user", id.as_str());
    let (store, last_may_go) = (app.store.noting(event.clone()), matches!(who, Principal::Admin));
    let disable: ChangeUser = Arc::new(|user| {
        user.disabled = true;
        Ok(())
    });
    let disabled = app.auth.disable(&store, &id, last_may_go, disable).await?;
    app.store.acknowledge(disabled.rev).await?;
    if disabled.changes.is_empty() {
        app.store.note(event).await?;
    }
    // A mark under the owner's id: PostgreSQL then stores nothing of this owner. No effect on
    // SQLite.
    app.archive.delete(&RequestId::known(id.as_str()), false, Reach::All).await?;
    let reach = Reach::Owner(id.clone());
    let of_user = CaptureFilter { reach, shadows: Shadows::With, ..CaptureFilter::default() };
    replays::erase_all(app, &of_user).await?;
    let deleted = app.store.delete_user(&id, app.clock.now()).await?;
    let unconfirmed = app.store.acknowledge(deleted.rev).await?;
    Ok(answer::confirmed(answer::no_content(), unconfirmed))
}

/// A patch of a user; absent fields stay unchanged.
struct Patch {
    name: Option<Option<String>>,
    role: Option<Role>,
    disabled: Option<bool>,
    /// An inner `None` removes all limits.
    limits: Option<Option<Map<String, Value>>>,
    password: Option<Secret>,
    /// Of that password, once it is hashed.
    hash: Option<String>,
}

impl Patch {
    fn read(request: &ApiRequest) -> Result<Self> {
        let mut fields = BodyFields::read(request)?;
        for name in ["role", "disabled", "password"] {
            if fields.is_null(name) {
                return Err(Error::invalid(name, format!("{name} cannot be null.")));
            }
        }
        let name = match fields.is_null("name") {
            true => fields
                .take::<String>("name", "a string")?
                .map_or(Some(None), |name| Some(Some(name))),
            false => fields.take("name", "a string")?.map(Some),
        };
        let limits = match fields.is_null("limits") {
            true => {
                fields.take("limits", "an object")?.map_or(Some(None), |limits| Some(Some(limits)))
            }
            false => fields.take("limits", "an object")?.map(Some),
        };
        let patch = Patch {
            name,
            role: fields.take("role", ROLES)?,
            disabled: fields.take("disabled", "true or false")?,
            limits,
            password: fields.take::<String>("password", "a string")?.map(Secret::new),
            hash: None,
        };
        fields.finish()?;
        if let Some(password) = &patch.password {
            pin::check_new_password("password", password)?;
        }
        if let Some(Some(name)) = &patch.name {
            check_name(name)?;
        }
        Ok(patch)
    }

    /// Hashes the password, which takes its turn: the caller is checked again then.
    async fn hashed(mut self, app: &App, who: &Principal) -> Result<Self> {
        if let Some(password) = self.password.take() {
            self.hash = Some(app.passwords.hash(password).await?);
            app.auth.recheck(who, app.clock.now())?;
        }
        Ok(self)
    }

    fn apply(&self, user: &mut UserRow, by: &Principal) -> Result<()> {
        let resets = self.password.is_some() || self.hash.is_some();
        // With the password an admin could act as the other one, also once demoted.
        if resets && user.role == Role::Admin && !matches!(by, Principal::Admin) {
            let why = "Only ADMIN_API_KEY may set the password of an admin.";
            return Err(Error::new(Kind::Forbidden, why).at("password"));
        }
        user.password = self.hash.clone().unwrap_or_else(|| user.password.clone());
        if let Some(name) = &self.name {
            user.name.clone_from(name);
        }
        user.role = self.role.unwrap_or(user.role);
        user.disabled = self.disabled.unwrap_or(user.disabled);
        match &self.limits {
            None => {}
            Some(None) => user.limits = Limits::default(),
            Some(Some(patch)) => {
                let limits = serde_json::to_value(&user.limits).map_err(Error::internal)?;
                let limits = merge(limits, Value::Object(patch.clone()));
                let Value::Object(limits) = limits else {
                    return Err(Error::internal("limits are an object"));
                };
                user.limits = limits::read(Interface::Router, limits)?;
            }
        }
        Ok(())
    }
}

fn find(app: &App, request: &ApiRequest) -> Result<Arc<UserRow>> {
    let id = request.extensions().get::<PathParams>().map_or("", PathParams::first);
    app.auth.user(&UserId::known(id)).ok_or_else(|| Error::not_found("user"))
}

/// The record of a user, without the password hash.
fn record(user: &UserRow) -> Value {
    let mut record = pin::user_json(user);
    if let Value::Object(fields) = &mut record {
        fields.insert("object".to_owned(), "user".into());
        fields.insert("disabled".to_owned(), user.disabled.into());
        fields.insert("labels".to_owned(), json!(user.labels));
        fields.insert("limits".to_owned(), json!(user.limits));
    }
    record
}
