//! PIN: health, version, accounts and sessions.

use http::header::SET_COOKIE;

use super::body::check_name;
use super::call::{Answer, Call, event};
use super::route::{ApiRequest, ApiResult};
use crate::app::App;
use rerouter_access::auth::{Credential, Principal, UNKNOWN_USER, clear_cookie, set_cookie};
use rerouter_base::clock::wrong_clock;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::{SessionId, UserId};
use rerouter_base::secret::{Secret, token};
use rerouter_records::ShownSecret;
use rerouter_records::account::{
    Authentication, CredentialKind, LoggedIn, Login, NewAccount, PasswordChange, Registered,
    TokenType, User, Version,
};
use rerouter_records::health::{Health, HealthWord};
use rerouter_records::node::NoBody;
use rerouter_records::user::EMAIL_BYTES;
use rerouter_store::{Action, Role, SessionRow, StoreError, UserRow};

/// Most live sessions of a user: a new session ends the oldest.
pub(super) const SESSIONS_PER_USER: usize = 20;
/// Shortest password in bytes: the minimum that OWASP recommends.
pub const PASSWORD_MIN: usize = 8;
/// Longest password in bytes, so that a long one is refused without the cost of hashing.
pub const PASSWORD_MAX: usize = 1024;

pub(super) async fn health(app: &App, _who: &Principal, _request: &ApiRequest) -> ApiResult {
    let reason = app.unready().await;
    let word = |answers| if answers { HealthWord::Ok } else { HealthWord::Unavailable };
    let ready = reason.is_none();
    let clock = app.clock.machine_ahead().and_then(wrong_clock);
    let health = Health {
        status: word(ready),
        store: ready.then_some(HealthWord::Ok),
        revision: ready.then(|| app.revision()),
        objects: app.archive.objects_answer().filter(|_| ready).map(word),
        clock: clock.filter(|_| ready),
        reason: reason.map(str::to_owned),
    };
    Answer::from(&health).respond(if ready { 200 } else { 503 })
}

pub(super) async fn version(_: Call<'_>) -> Result<Answer<Version>> {
    // CI builds set this variable.
    let commit =
        option_env!("REROUTER_COMMIT").filter(|commit| !commit.is_empty()).unwrap_or("unknown");
    Ok(Version {
        name: "rerouter".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit.to_owned(),
        api: vec!["v1".to_owned()],
    }
    .into())
}

/// 403 unless registration is open. Called before the body is read.
pub fn may_register(app: &App) -> Result<()> {
    if app.server.registration_is_open() {
        return Ok(());
    }
    Err(Error::new(Kind::RegistrationClosed, "Registration is closed."))
}

pub(super) async fn register(call: Call<'_>, new: NewAccount) -> Result<Answer<Registered>> {
    let (app, client) = (call.app, call.client());
    may_register(app)?;
    let email = normal_email(&new.email)?;
    check_new_password("password", &new.password)?;
    new.name.as_deref().map_or(Ok(()), check_name)?;
    let now = call.now();
    app.throttle.check_registration(client.address, now)?;
    let slot = app.passwords.slot(client.address)?;
    app.throttle.register(client.address, now)?;
    app.auth.count_registration(&app.store, client.address).await?;
    if app.auth.user_by_email(&email).is_some() {
        return Err(email_is_taken());
    }
    let id = UserId::new(now, &app.random);
    let password = app.passwords.hash_at(slot, new.password).await?;
    let user = UserRow { name: new.name, ..UserRow::new(id, email, Role::User, password, now) };
    let body = Registered { user: User::from(&user) };
    let store = call.noting(Action::UserCreate, "user", user.id.as_str());
    let committed = store.create_user(user).await.map_err(of_new_user)?;
    call.commit(&committed, body).await
}

/// `POST /v1/auth/login`: a session with two secrets, a cookie and a token for programs.
pub(super) async fn login(call: Call<'_>, asked: Login) -> Result<Answer<LoggedIn>> {
    let (Call { app, who, request }, client) = (call, call.client());
    let (email, password) = (normal_email(&asked.email)?, asked.password);
    check_shown_password("password", &password)?;
    app.throttle.check_login(&email, client.address, app.clock.now())?;
    // Before the throttle, because a request that is refused for lack of capacity is no attempt.
    let slot = app.passwords.slot(client.address)?;
    app.throttle.login(&email, client.address, app.clock.now())?;
    app.auth.count_login(&app.store, &email, client.address).await?;
    let user = app.auth.user_by_email(&email);
    let verified = app
        .passwords
        .verify_at(slot, user.as_ref().map(|user| user.password.clone()), password)
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
    let body = LoggedIn {
        user: User::from(&*user),
        token: ShownSecret(bearer),
        token_type: TokenType::Bearer,
        expires_at: session.expires_at.into(),
    };
    let via = Credential::Session(session.id.clone());
    let logged_in = Principal::User { user: user.clone(), via };
    let (action, id) = (Action::SessionCreate, user.id.as_str());
    let store = app.store.noting(event(app, &logged_in, request, action, "user", id));
    let begun = store.create_session(session, user.password.clone(), most).await;
    if let Err(StoreError::Conflict) = begun {
        // The password changed after it was checked.
        note_refusal(app, who, request, Some(&user.id));
        return Err(wrong_password());
    }
    let answer = call.commit(&begun?, body).await?.secret();
    answer.with(SET_COOKIE, &set_cookie(&cookie, client.secure, absolute))
}

/// `POST /v1/auth/logout`: ends the session with its cookie and its token.
pub(super) async fn logout(call: Call<'_>, _: NoBody) -> Result<Answer<()>> {
    let (_, session) = logged_in(call.who)?;
    let store = call.noting(Action::SessionEnd, "session", session.as_str());
    let committed = store.end_session(session).await?;
    let answer = call.commit(&committed, ()).await?;
    answer.with(SET_COOKIE, &clear_cookie(call.client().secure))
}

/// `POST /v1/auth/password`: also ends every other session of the user. Shares its throttle with
/// logins.
pub(super) async fn password(call: Call<'_>, asked: PasswordChange) -> Result<Answer<()>> {
    let (Call { app, who, request }, client) = (call, call.client());
    let (user, session) = logged_in(who)?;
    let (current, new) = (asked.current_password, asked.new_password);
    check_shown_password("current_password", &current)?;
    check_new_password("new_password", &new)?;
    app.throttle.check_login(&user.email, client.address, app.clock.now())?;
    let (slot, next) = (app.passwords.slot(None)?, app.passwords.slot(None)?);
    app.throttle.login(&user.email, client.address, app.clock.now())?;
    app.auth.count_login(&app.store, &user.email, client.address).await?;
    if !app.passwords.verify_at(slot, Some(user.password.clone()), current).await? {
        note_refusal(app, who, request, Some(&user.id));
        return Err(Error::new(Kind::Unauthorized, "The current password is wrong."));
    }
    let hash = app.passwords.hash_at(next, new).await?;
    let committed = call
        .noting(Action::PasswordChange, "user", user.id.as_str())
        .change_password(&user.id, user.password.clone(), hash, session)
        .await
        .map_err(|error| match error {
            StoreError::Conflict => Error::conflict("The password changed during this request."),
            other => other.into(),
        })?;
    call.commit(&committed, ()).await
}

pub(super) async fn me(call: Call<'_>) -> Result<Answer<User>> {
    let (user, kind, key_id) = match call.who {
        Principal::Admin => {
            let admin = User {
                id: UserId::admin(),
                email: None,
                name: Some("admin".to_owned()),
                role: Role::Admin,
                created_at: None,
                auth: None,
            };
            (admin, CredentialKind::AdminKey, None)
        }
        Principal::User { user, via: Credential::Key(key) } => {
            (User::from(&**user), CredentialKind::ApiKey, Some(key.id.clone()))
        }
        Principal::User { user, via: Credential::Session(_) } => {
            (User::from(&**user), CredentialKind::Session, None)
        }
        Principal::AgentTenant { .. } | Principal::Node { .. } | Principal::Anonymous => {
            return Err(Error::new(Kind::Unauthorized, "The caller is not authenticated."));
        }
    };
    Ok(User { auth: Some(Authentication { kind, key_id }), ..user }.into())
}

/// 403 for a key.
fn logged_in(who: &Principal) -> Result<(&UserRow, &SessionId)> {
    match who {
        Principal::User { user, via: Credential::Session(session) } => Ok((user, session)),
        _ => Err(Error::forbidden("This call needs a session, not a key.")),
    }
}

/// Adds a failed login to the audit: at most ten per quarter of an hour for each known user, and
/// for all unknown users together. Runs in parallel with the answer, whose time must not tell
/// whether the user exists.
fn note_refusal(app: &App, who: &Principal, request: &ApiRequest, user: Option<&UserId>) {
    let user = user.map_or(UNKNOWN_USER, UserId::as_str);
    if app.throttle.note_refusal(user, app.clock.now()) {
        let event = event(app, who, request, Action::SessionRefused, "user", user);
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

/// Limits the length of a password that is only compared, before the cost of hashing.
fn check_shown_password(field: &str, password: &Secret) -> Result<()> {
    if password.expose().len() <= PASSWORD_MAX {
        return Ok(());
    }
    Err(Error::invalid(field, format!("{field} must have at most {} bytes.", PASSWORD_MAX)))
}

pub(super) fn email_is_taken() -> Error {
    Error::conflict("This e-mail is already registered.")
}

pub(super) fn of_new_user(error: StoreError) -> Error {
    match error {
        StoreError::Conflict => email_is_taken(),
        StoreError::Stale => Error::forbidden("Your permissions changed during this request."),
        other => other.into(),
    }
}

/// Normalizes an e-mail address: lower-case, one `@` between two parts without blanks.
pub(super) fn normal_email(given: &str) -> Result<String> {
    let email = given.to_lowercase();
    let parts: Vec<&str> = email.split('@').collect();
    let well =
        matches!(parts.as_slice(), [local, domain] if !local.is_empty() && !domain.is_empty());
    if well
        && email.len() <= EMAIL_BYTES
        && !email.chars().any(|c| c.is_whitespace() || c.is_control())
    {
        Ok(email)
    } else {
        Err(Error::invalid("email", "email must be an e-mail address."))
    }
}
