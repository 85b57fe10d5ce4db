//! PIN: health, version, accounts and sessions.

use http::header::SET_COOKIE;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::body::{BodyFields, check_name};
use super::route::{ApiRequest, ApiResult, ClientOrigin};
use super::{answer, audit};
use crate::app::App;
use rerouter_access::auth::{Credential, Principal, UNKNOWN_USER, clear_cookie, set_cookie};
use rerouter_base::clock::{rfc3339, wrong_clock};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{SessionId, UserId};
use rerouter_base::secret::{Secret, token};
use rerouter_store::{Action, Role, SessionRow, StoreError, UserRow};

/// Live sessions of a user: a new one ends the oldest.
pub(super) const SESSIONS_PER_USER: usize = 20;
/// Shortest password in bytes: OWASP's floor.
pub const PASSWORD_MIN: usize = 8;
/// Longest password in bytes: hashing stays cheap to refuse.
pub const PASSWORD_MAX: usize = 1024;
/// Bytes of an e-mail address (RFC 5321 section 4.5.3.1.3, without its brackets).
const EMAIL_MAX: usize = 254;

pub async fn health(app: &App, _who: &Principal, _request: &ApiRequest) -> ApiResult {
    Ok(match app.unready().await {
        None => {
            let mut health = json!({"status": "ok", "store": "ok", "revision": app.revision()});
            let objects = app.archive.objects_answer();
            let objects =
                objects.map(|answer| if answer { "ok" } else { "unavailable" }.to_owned());
            let clock = app.clock.machine_ahead().and_then(wrong_clock);
            for (name, value) in [("objects", objects), ("clock", clock)] {
                if let (Some(value), Some(health)) = (value, health.as_object_mut()) {
                    health.insert(name.to_owned(), value.into());
                }
            }
            answer::json(StatusCode::OK, &health)
        }
        Some(why) => answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({"status": "unavailable", "reason": why}),
        ),
    })
}

pub(super) async fn version(_app: &App, _who: &Principal, _request: &ApiRequest) -> ApiResult {
    // Set by CI builds.
    let commit =
        option_env!("REROUTER_COMMIT").filter(|commit| !commit.is_empty()).unwrap_or("unknown");
    Ok(answer::json(
        StatusCode::OK,
        &json!({
            "name": "rerouter", "version": env!("CARGO_PKG_VERSION"), "commit": commit,
            "api": ["v1"]
        }),
    ))
}

/// 403 unless registration is open. Checked before the body is read.
pub fn may_register(app: &App) -> Result<()> {
    if app.server.registration_open {
        return Ok(());
    }
    Err(Error::new(Kind::RegistrationClosed, "Registration is closed."))
}

pub(super) async fn register(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    may_register(app)?;
    let mut fields = BodyFields::read(request)?;
    let email = normal_email(&fields.text("email")?)?;
    let password = Secret::new(fields.text("password")?);
    let name: Option<String> = fields.take("name", "a string")?;
    fields.finish()?;
    check_new_password("password", &password)?;
    name.as_deref().map_or(Ok(()), check_name)?;
    let now = app.clock.now();
    app.throttle.check_registration(client(request).address, now)?;
    let place = app.passwords.slot(client(request).address)?;
    app.throttle.register(client(request).address, now)?;
    app.auth.count_registration(&app.store, client(request).address).await?;
    if app.auth.user_by_email(&email).is_some() {
        return Err(email_is_taken());
    }
    let user = UserRow {
        id: UserId::new(now, &app.random),
        email,
        name,
        role: Role::User,
        password: app.passwords.hash_at(place, password).await?,
        disabled: false,
        labels: std::collections::BTreeMap::new(),
        limits: Default::default(),
        created_at: now,
    };
    let body = json!({"user": user_json(&user)});
    let event = audit::event(app, who, request, Action::UserCreate, "user", user.id.as_str());
    let committed = app.store.noting(event).create_user(user).await.map_err(of_new_user)?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    Ok(answer::confirmed(answer::json(StatusCode::CREATED, &body), unconfirmed))
}

/// `POST /v1/auth/login`: a session with two secrets, a cookie and a token for programs.
pub(super) async fn login(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let mut fields = BodyFields::read(request)?;
    let email = normal_email(&fields.text("email")?)?;
    let password = Secret::new(fields.text("password")?);
    fields.finish()?;
    check_shown_password("password", &password)?;
    let client = client(request);
    app.throttle.check_login(&email, client.address, app.clock.now())?;
    // Before the throttle: a request refused for lack of capacity is not an attempt.
    let place = app.passwords.slot(client.address)?;
    app.throttle.login(&email, client.address, app.clock.now())?;
    app.auth.count_login(&app.store, &email, client.address).await?;
    let user = app.auth.user_by_email(&email);
    let verified = app
        .passwords
        .verify_at(place, user.as_ref().map(|user| user.password.clone()), password)
        .await?;
    let known = user.as_ref().map(|user| user.id.clone());
    let Some(user) = user.filter(|user| verified && !user.disabled) else {
        note_refusal(app, who, request, known.as_ref());
        return Err(wrong_password());
    };
    let now = app.clock.now();
    let (cookie, bearer) = (token::mint("ses", &app.random), token::mint("ses", &app.random));
    let (absolute, most) = (app.server.session.absolute, SESSIONS_PER_USER);
    let session = SessionRow {
        id: SessionId::new(now, &app.random),
        user: user.id.clone(),
        cookie_digest: app.auth.digest(&cookie),
        token_digest: app.auth.digest(&bearer),
        created_at: now,
        expires_at: now.checked_add(absolute).map_err(Error::internal)?,
        last_seen: now,
    };
    let body = json!({
        "user": user_json(&user), "token": bearer.expose(), "token_type": "Bearer",
        "expires_at": rfc3339(session.expires_at),
    });
    let via = Credential::Session(session.id.clone());
    let logged_in = Principal::User { user: user.clone(), via };
    let (action, id) = (Action::SessionCreate, user.id.as_str());
    let store = app.store.noting(audit::event(app, &logged_in, request, action, "user", id));
    let begun = store.create_session(session, user.password.clone(), most).await;
    if let Err(StoreError::Conflict) = begun {
        // The password changed after it was checked.
        note_refusal(app, who, request, Some(&user.id));
        return Err(wrong_password());
    }
    let unconfirmed = app.store.acknowledge(begun?.rev).await?;
    let mut response = answer::secret_json(StatusCode::OK, &body);
    let cookie = HeaderValue::from_str(&set_cookie(&cookie, client.secure, absolute));
    response.headers_mut().insert(SET_COOKIE, cookie.map_err(Error::internal)?);
    Ok(answer::confirmed(response, unconfirmed))
}

/// `POST /v1/auth/logout`: ends the session with its cookie and its token.
pub(super) async fn logout(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (_, session) = logged_in(who)?;
    BodyFields::read_if_any(request)?.finish()?;
    let event = audit::event(app, who, request, Action::SessionEnd, "session", session.as_str());
    let committed = app.store.noting(event).end_session(session).await?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    let mut response = answer::no_content();
    let cookie =
        HeaderValue::from_str(&clear_cookie(client(request).secure)).map_err(Error::internal)?;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(answer::confirmed(response, unconfirmed))
}

/// `POST /v1/auth/password`: also ends every other session of the user. Throttled together with
/// logins.
pub(super) async fn password(app: &App, who: &Principal, request: &ApiRequest) -> ApiResult {
    let (user, session) = logged_in(who)?;
    let mut fields = BodyFields::read(request)?;
    let current = Secret::new(fields.text("current_password")?);
    let new = Secret::new(fields.text("new_password")?);
    fields.finish()?;
    check_shown_password("current_password", &current)?;
    check_new_password("new_password", &new)?;
    app.throttle.check_login(&user.email, client(request).address, app.clock.now())?;
    let (place, next) = (app.passwords.slot(None)?, app.passwords.slot(None)?);
    app.throttle.login(&user.email, client(request).address, app.clock.now())?;
    app.auth.count_login(&app.store, &user.email, client(request).address).await?;
    if !app.passwords.verify_at(place, Some(user.password.clone()), current).await? {
        note_refusal(app, who, request, Some(&user.id));
        return Err(Error::new(Kind::Unauthorized, "The current password is wrong."));
    }
    let hash = app.passwords.hash_at(next, new).await?;
    let event = audit::event(app, who, request, Action::PasswordChange, "user", user.id.as_str());
    let committed = app
        .store
        .noting(event)
        .change_password(&user.id, user.password.clone(), hash, session)
        .await
        .map_err(|error| match error {
            StoreError::Conflict => {
                Error::new(Kind::Conflict, "The password changed during this request.")
            }
            other => other.into(),
        })?;
    let unconfirmed = app.store.acknowledge(committed.rev).await?;
    Ok(answer::confirmed(answer::no_content(), unconfirmed))
}

pub(super) async fn me(_app: &App, who: &Principal, _request: &ApiRequest) -> ApiResult {
    let (mut me, auth) = match who {
        Principal::Admin => {
            let me = json!({
                "id": UserId::admin(), "email": null, "name": "admin", "role": "admin",
                "created_at": null
            });
            (me, json!({"type": "admin_key"}))
        }
        Principal::User { user, via: Credential::Key(key) } => {
            (user_json(user), json!({"type": "api_key", "key_id": key.id}))
        }
        Principal::User { user, via: Credential::Session(_) } => {
            (user_json(user), json!({"type": "session"}))
        }
        Principal::AgentTenant { .. } | Principal::Node { .. } | Principal::Anonymous => {
            return Err(Error::new(Kind::Unauthorized, "The caller is not authenticated."));
        }
    };
    if let Value::Object(me) = &mut me {
        me.insert("auth".to_owned(), auth);
    }
    Ok(answer::json(StatusCode::OK, &me))
}

/// The user and session of the caller; 403 for a key.
fn logged_in(who: &Principal) -> Result<(&UserRow, &SessionId)> {
    match who {
        Principal::User { user, via: Credential::Session(session) } => Ok((user, session)),
        _ => Err(Error::new(Kind::Forbidden, "This call needs a session, not a key.")),
    }
}

/// Adds a failed login to the audit, ten per quarter of an hour for each known user and for all
/// unknown ones together. Runs beside the answer, whose time must not tell whether the user exists.
fn note_refusal(app: &App, who: &Principal, request: &ApiRequest, user: Option<&UserId>) {
    let user = user.map_or(UNKNOWN_USER, UserId::as_str);
    if app.throttle.note_refusal(user, app.clock.now()) {
        let event = audit::event(app, who, request, Action::SessionRefused, "user", user);
        let store = app.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.note(event).await {
                log::warn!("cannot write a failed login to the audit: {error}");
            }
        });
    }
}

fn wrong_password() -> Error {
    Error::new(Kind::Unauthorized, "Wrong e-mail or password.")
}

pub(super) fn check_new_password(field: &str, password: &Secret) -> Result<()> {
    let (least, most) = (PASSWORD_MIN, PASSWORD_MAX);
    if (least..=most).contains(&password.expose().len()) {
        return Ok(());
    }
    Err(Error::invalid(field, format!("{field} must have {least} to {most} bytes.")))
}

/// Bounds a password that is only compared, before the cost of hashing.
fn check_shown_password(field: &str, password: &Secret) -> Result<()> {
    if password.expose().len() <= PASSWORD_MAX {
        return Ok(());
    }
    Err(Error::invalid(field, format!("{field} must have at most {} bytes.", PASSWORD_MAX)))
}

pub(super) fn email_is_taken() -> Error {
    Error::new(Kind::Conflict, "This e-mail is already registered.")
}

/// The error of a failed creation.
pub(super) fn of_new_user(error: StoreError) -> Error {
    match error {
        StoreError::Conflict => email_is_taken(),
        StoreError::Stale => {
            Error::new(Kind::Forbidden, "Your permissions changed during this request.")
        }
        other => other.into(),
    }
}

/// The record of a user; the built-in one has neither e-mail nor creation time.
pub(super) fn user_json(user: &UserRow) -> Value {
    let real = user.id != UserId::admin();
    let (email, created_at) = (real.then_some(&user.email), real.then(|| rfc3339(user.created_at)));
    json!({
        "id": user.id, "email": email, "name": user.name, "role": user.role,
        "created_at": created_at
    })
}

fn client(request: &ApiRequest) -> ClientOrigin {
    request.extensions().get::<ClientOrigin>().cloned().unwrap_or_default()
}

/// Normalizes an e-mail address: lower-case, one `@` between two parts without blanks.
pub(super) fn normal_email(given: &str) -> Result<String> {
    let email = given.to_lowercase();
    let parts: Vec<&str> = email.split('@').collect();
    let well =
        matches!(parts.as_slice(), [local, domain] if !local.is_empty() && !domain.is_empty());
    if well
        && email.len() <= EMAIL_MAX
        && !email.chars().any(|c| c.is_whitespace() || c.is_control())
    {
        Ok(email)
    } else {
        Err(Error::invalid("email", "email must be an e-mail address."))
    }
}
