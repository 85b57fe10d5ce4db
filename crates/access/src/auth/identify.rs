//! The way of a request's credential, from the bytes of the head to the principal:
//!
//! 1. [`present`]: which credential the head carries, depending on the surface;
//! 2. [`Auth::identify`]: its digest, and the key or session with that digest;
//! 3. [`check_usable`]: whether that key may be used now, with this one of its secrets;
//! 4. [`Auth::by_key`], [`Auth::by_session`]: its owner, and the scopes that it has now.
//!
//! No step reads the store or waits. A node's signature is not read here but in
//! [`super::signature`].

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

use super::Auth;
use super::cookie::{SessionCookie, read_cookie};
use super::csrf::has_explicit_authorization;
use super::key_table::Key;
use super::principal::{AgentCredential, Credential, Principal, RESERVED_SCOPES};
use super::session_table::SessionSecret;
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::id::UserId;
use rerouter_base::interface::{Interface, Surface};
use rerouter_base::secret::{Secret, constant_time_eq, token};
use rerouter_store::{KeyRow, KeyState, Role, UserRow};

/// Headers that carry a key on the data plane, after `Authorization`; the first that is present
/// decides.
static KEY_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("x-api-key"), HeaderName::from_static("api-key")];

/// The reason for refusing a head without a credential.
const MISSING: &str = "missing";
/// The reason for refusing a secret that nobody has.
const UNKNOWN: &str = "unknown";
/// The reason for refusing `ADMIN_API_KEY` where it does not work.
const ADMIN_KEY: &str = "admin_key";

#[derive(Debug)]
pub struct AuthRefusal {
    /// The error for the client. It never tells whether such a key exists. A credential that is
    /// sent twice is 400.
    pub error: Box<Error>,
    /// The label of the metric: `missing`, `malformed`, `unknown`, `revoked`, `expired`,
    /// `inactive`, `disabled`, `admin_key` or `duplicate`.
    pub reason: &'static str,
}

impl From<AuthRefusal> for Error {
    fn from(refusal: AuthRefusal) -> Self {
        *refusal.error
    }
}

/// The credential that a head carries, unverified.
enum Presented<'a> {
    Secret(&'a str),
    Cookie(&'a str),
    Nothing,
    Malformed,
}

/// Step 1: the first of `Authorization`, the key headers and the cookie that is present. It decides
/// even when it is malformed. A header that is sent twice is 400. On the console only the cookie
/// counts.
fn present<'a>(
    headers: &'a HeaderMap,
    surface: Surface,
    secure: bool,
) -> std::result::Result<Presented<'a>, AuthRefusal> {
    if surface == Surface::Console {
        return Ok(of_cookie(headers, secure));
    }
    let authorization = single(headers, &AUTHORIZATION)?;
    let mut key = None;
    for name in key_headers(surface) {
        let value = single(headers, name)?;
        key = key.or(value);
    }
    let secret = |secret: Option<&'a str>| secret.map_or(Presented::Malformed, Presented::Secret);
    if let Some(line) = authorization {
        return Ok(secret(line.to_str().ok().and_then(|line| bearer(line, surface))));
    }
    if let Some(line) = key {
        return Ok(secret(line.to_str().ok().filter(|key| !key.is_empty())));
    }
    if surface == Surface::Agent {
        return Ok(Presented::Nothing);
    }
    Ok(of_cookie(headers, secure))
}

fn of_cookie(headers: &HeaderMap, secure: bool) -> Presented<'_> {
    match read_cookie(headers, secure) {
        SessionCookie::Absent => Presented::Nothing,
        SessionCookie::One(value) => Presented::Cookie(value),
        SessionCookie::Invalid => Presented::Malformed,
    }
}

/// 400 if it is sent twice.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> std::result::Result<Option<&'a HeaderValue>, AuthRefusal> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_none() {
        return Ok(value);
    }
    let error = Error::new(Kind::InvalidRequest, format!("The header {name} is sent twice."));
    Err(AuthRefusal { error: Box::new(error.at(name.as_str())), reason: "duplicate" })
}

fn key_headers(surface: Surface) -> &'static [HeaderName] {
    if surface.is_data_plane() { &KEY_HEADERS } else { &[] }
}

/// The secret in an `Authorization` value, if the surface takes its scheme.
fn bearer(line: &str, surface: Surface) -> Option<&str> {
    let (scheme, secret) = line.split_once(' ')?;
    let accepted = scheme.eq_ignore_ascii_case("Bearer")
        || surface == Surface::Agent && scheme.eq_ignore_ascii_case("ApiKey");
    let secret = secret.trim_matches(' ');
    (accepted && !secret.is_empty()).then_some(secret)
}

/// Whether a head carries a credential that no browser adds by itself. Such a request needs no
/// check of its origin.
pub fn has_explicit_credential(headers: &HeaderMap, surface: Surface) -> bool {
    if surface == Surface::Console {
        return false;
    }
    has_explicit_authorization(headers)
        || surface == Surface::NodeCallback
        || key_headers(surface).iter().any(|name| headers.contains_key(name))
}

impl Auth {
    /// Step 2: identifies the caller of a request by its head alone. `secure` says whether it came
    /// by https, which decides the cookie's name.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        surface: Surface,
        secure: bool,
        now: Timestamp,
    ) -> std::result::Result<Principal, AuthRefusal> {
        let refused =
            |reason| AuthRefusal { error: Box::new(unauthorized(surface, reason)), reason };
        let cloud_key = match (surface, self.0.agent_cloud) {
            (Surface::NodeCallback, _) => return Err(refused(UNKNOWN)),
            (Surface::Agent, None) => {
                return Ok(Principal::AgentTenant { via: AgentCredential::Open });
            }
            (_, cloud_key) => cloud_key,
        };
        let found = match present(headers, surface, secure)? {
            Presented::Nothing => Err(MISSING),
            Presented::Malformed => Err("malformed"),
            Presented::Cookie(value) => {
                self.by_session(&self.0.pepper.digest(value), SessionSecret::Cookie, now)
            }
            Presented::Secret(secret) => {
                let digest = self.0.pepper.digest(secret);
                let is =
                    |key: Option<[u8; 32]>| key.is_some_and(|key| constant_time_eq(&key, &digest));
                if surface == Surface::Agent && is(cloud_key) {
                    return Ok(Principal::AgentTenant { via: AgentCredential::CloudKey });
                }
                if takes_admin_key(surface) && is(self.0.admin) {
                    return Ok(Principal::Admin);
                }
                let found = match token::well_formed(secret) {
                    true => self.by_digest(&digest, surface, now),
                    false => Err("malformed"),
                };
                match found {
                    Err(_) if surface.is_data_plane() && is(self.0.admin) => Err(ADMIN_KEY),
                    found => found,
                }
            }
        };
        found.map_err(refused)
    }

    /// The AGENT tenant for a session of the console. A valid `key` is kept until the session ends.
    /// Without `key`, the kept key identifies the tenant.
    pub fn agent_tenant(
        &self,
        who: &Principal,
        key: Option<&Secret>,
        now: Timestamp,
    ) -> Option<Principal> {
        let Principal::User { via: Credential::Session(id), .. } = who else { return None };
        let Some(cloud_key) = self.0.agent_cloud else {
            return Some(Principal::AgentTenant { via: AgentCredential::Open });
        };
        let given = key.map(|key| self.digest(key));
        let digest = given.or_else(|| self.0.sessions.agent_key(id))?;
        let tenant = match constant_time_eq(&cloud_key, &digest) {
            true => Principal::AgentTenant { via: AgentCredential::CloudKey },
            false => self.by_digest(&digest, Surface::Agent, now).ok()?,
        };
        given.into_iter().for_each(|digest| self.0.sessions.keep_agent_key(id, digest));
        Some(tenant)
    }

    /// The digest of a secret, as the store and the tables keep it.
    pub fn digest(&self, secret: &Secret) -> [u8; 32] {
        self.0.pepper.digest(secret.expose())
    }

    fn by_digest(
        &self,
        digest: &[u8; 32],
        surface: Surface,
        now: Timestamp,
    ) -> std::result::Result<Principal, &'static str> {
        match self.0.keys.by_digest(surface.interface(), digest) {
            Some(key) => self.by_key(&key, digest, now),
            None if surface == Surface::Agent => Err(UNKNOWN),
            None => self.by_session(digest, SessionSecret::Token, now),
        }
    }

    /// Step 4 for a key: AGENT keys act for the one tenant of AGENT, other keys for their owner.
    fn by_key(
        &self,
        key: &Key,
        digest: &[u8; 32],
        now: Timestamp,
    ) -> std::result::Result<Principal, &'static str> {
        check_usable(key, digest, now)?;
        let principal = match key.row().interface {
            Interface::Agent => {
                Principal::AgentTenant { via: AgentCredential::Key(Arc::clone(key.row())) }
            }
            Interface::Pin | Interface::Router => {
                let user = self.enabled_user(&key.row().owner)?;
                Principal::User { user, via: Credential::Key(self.with_granted_scopes(key)) }
            }
        };
        self.0.keys.used(key, now);
        Ok(principal)
    }

    /// Step 4 for a session.
    fn by_session(
        &self,
        digest: &[u8; 32],
        secret: SessionSecret,
        now: Timestamp,
    ) -> std::result::Result<Principal, &'static str> {
        let session = self.0.sessions.by_digest(digest, secret).ok_or(UNKNOWN)?;
        if !session.touch(self.0.idle, now) {
            return Err("expired");
        }
        let user = self.enabled_user(&session.row.user)?;
        Ok(Principal::User { user, via: Credential::Session(session.row.id.clone()) })
    }

    fn enabled_user(&self, id: &UserId) -> std::result::Result<Arc<UserRow>, &'static str> {
        let user = self.user(id).ok_or(UNKNOWN)?;
        if user.disabled { Err("disabled") } else { Ok(user) }
    }

    /// The row of a key with the scopes that it has now. Reserved scopes hold for as long as the
    /// user who granted them is an admin; scopes that `ADMIN_API_KEY` granted always hold.
    fn with_granted_scopes(&self, key: &Key) -> Arc<KeyRow> {
        let row = key.row();
        let is_admin = |user: Arc<UserRow>| user.role == Role::Admin && !user.disabled;
        if !key.has_reserved_scope() || self.user(&granter(row)).is_some_and(is_admin) {
            return Arc::clone(row);
        }
        let mut left = KeyRow::clone(row);
        Arc::make_mut(&mut left.scopes).retain(|scope| !RESERVED_SCOPES.contains(&scope.as_str()));
        Arc::new(left)
    }

    /// Refuses a principal that has lost any of its permissions since it was identified. To be
    /// called after a wait that other requests can make long.
    pub fn recheck(&self, who: &Principal, now: Timestamp) -> Result<()> {
        let unchanged = match who {
            Principal::User { user, via: Credential::Key(key) } => {
                self.user_is_unchanged(user) && self.key_is_unchanged(key, now)
            }
            Principal::User { user, via: Credential::Session(id) } => {
                self.user_is_unchanged(user) && self.0.sessions.is_live(id, self.0.idle, now)
            }
            Principal::AgentTenant { via: AgentCredential::Key(key) } => {
                self.key_is_unchanged(key, now)
            }
            Principal::Admin
            | Principal::AgentTenant { .. }
            | Principal::Node { .. }
            | Principal::Anonymous => true,
        };
        match unchanged {
            true => Ok(()),
            false => Err(Error::forbidden("Your permissions changed during this request.")),
        }
    }

    fn key_is_unchanged(&self, own: &KeyRow, now: Timestamp) -> bool {
        let key = self.key(own.interface, &own.id);
        let Some(key) = key.filter(|key| key.state(now) == KeyState::Active) else { return false };
        let row = self.with_granted_scopes(&key);
        // After a rotation without grace the secret that was presented may be the old one.
        let secret_is_good = row.rotated_at == own.rotated_at
            || row.previous.as_ref().is_some_and(|old| old.expires_at > now);
        secret_is_good && own.scopes.iter().all(|scope| row.scopes.contains(scope))
    }

    fn user_is_unchanged(&self, own: &UserRow) -> bool {
        self.user(&own.id)
            .is_some_and(|user| !user.disabled && (user.role == own.role || own.role == Role::User))
    }
}

/// `ADMIN_API_KEY` is for PIN and the management of ROUTER.
fn takes_admin_key(surface: Surface) -> bool {
    matches!(surface, Surface::Pin | Surface::RouterManagement)
}

/// Step 3: whether a key that was found by `digest` may be used now, with the secret of that
/// digest.
fn check_usable(
    key: &Key,
    digest: &[u8; 32],
    now: Timestamp,
) -> std::result::Result<(), &'static str> {
    match key.state(now) {
        KeyState::Active if key.accepts(digest, now) => Ok(()),
        KeyState::Active => Err(KeyState::Expired.as_str()),
        other => Err(other.as_str()),
    }
}

/// The user who granted the scopes of a key: its maker, else the built-in admin if `ADMIN_API_KEY`
/// created it, else its owner.
fn granter(row: &KeyRow) -> UserId {
    match &row.maker {
        Some(maker) => maker.clone(),
        None if row.created_by.kind == "admin_key" => UserId::admin(),
        None => row.owner.clone(),
    }
}

/// The 401 of a surface. For inference it distinguishes a missing key, `ADMIN_API_KEY` and all
/// others.
pub fn unauthorized(surface: Surface, reason: &str) -> Error {
    let why = match reason {
        MISSING => "there is none",
        ADMIN_KEY => "this is ADMIN_API_KEY, which makes keys and is not for inference",
        _ => "it is not valid here",
    };
    let refuse = |detail: &str| Error::new(Kind::Unauthorized, detail);
    match surface {
        Surface::Pin => refuse("A session, a valid PIN key or ADMIN_API_KEY is required."),
        Surface::RouterManagement => refuse("A valid API key or session is required."),
        Surface::Console => refuse("A session is required: sign in."),
        Surface::NodeCallback => refuse("A valid node signature is required."),
        Surface::Agent => refuse("A valid API key is required."),
        // Clients look for the words before the colon: OpenAI's, then Anthropic's.
        Surface::DataPlane => refuse(&format!(
            "Incorrect API key provided: {why}. Send a ROUTER key as: Authorization: Bearer rtr_…"
        )),
        Surface::Messages => {
            refuse(&format!("invalid x-api-key: {why}. Send a ROUTER key as: x-api-key: rtr_…"))
        }
    }
}
