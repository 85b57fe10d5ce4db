//! Who a request is. Decided from its head alone, against tables in memory, by one HMAC and one look-up, on every
//! request anew. The tables change only by following the store, but for one thing: a revocation acts here first.

mod agents;
mod browser;
mod disabling;
mod grants;
mod keys;
mod leaving;
mod password;
mod principal;
mod revocation;
mod session;
pub mod signature;
mod sweeps;
mod tally;
mod throttle;
pub mod token;
mod veil;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use http::HeaderMap;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::error::{Error, Kind};
use crate::id::{KeyId, UserId};
use crate::interface::{Interface, Surface};
use crate::secret::{Keyring, Purpose, Secret, constant_time_eq};
use crate::store::{
    Change, Committed, Follower, KeyRow, NodeRow, Role, Snapshot, Store, StoreError, UserRow,
};

pub use agents::{Agent, Agents};
pub use browser::{browser_allows, shows_authorization};
pub use keys::{Key, Standing};
pub use password::Passwords;
pub use principal::{
    ADMIN_SCOPE, AGENT_SCOPES, AgentCredential, CAPTURE_LABEL, Credential, DEFAULT_SCOPES, Kept,
    PIN_SCOPES, Principal, RESERVED_SCOPES,
};
pub use session::{clear_cookie, set_cookie};
pub use throttle::{Throttle, UNKNOWN_USER};
pub use veil::Veil;

use keys::Keys;
use session::{Cookie, Sessions, Shown, read_cookie};

/// The reason for which a secret is refused that nobody has.
const UNKNOWN: &str = "unknown";

/// A request that is nobody: what the client is told, and what the metric is.
#[derive(Debug)]
pub struct Refused {
    /// The same for every reason, so that nothing can be learnt from it; but for a credential sent twice, which is 400.
    pub error: Box<Error>,
    /// `missing`, `malformed`, `unknown`, `revoked`, `expired`, `inactive`, `disabled` or `duplicate`.
    pub reason: &'static str,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        *refused.error
    }
}

/// A cheap handle to the tables.
#[derive(Clone)]
pub struct Auth(Arc<Tables>);

struct Tables {
    pepper: token::Pepper,
    veil: Veil,
    admin: Option<[u8; 32]>,
    agent_cloud: Option<[u8; 32]>,
    idle: Duration,
    keys: Keys,
    sessions: Sessions,
    users: DashMap<UserId, Arc<UserRow>>,
    emails: DashMap<String, UserId>,
    agents: Agents,
    /// The owner of keys that `ADMIN_API_KEY` made.
    built_in: Arc<UserRow>,
    applied: Mutex<u64>,
    /// Keys whose revocation is still being brought to the store.
    revoking: Mutex<HashSet<(KeyId, revocation::Reach)>>,
    /// Whether the process leaves, and what is tried again is tried at once.
    leaving: watch::Sender<bool>,
    /// Users who are disabled here, and not yet in the store.
    disabling: DashSet<UserId>,
    /// Held while it is looked whether one more may be.
    shutting_out: Mutex<()>,
    /// At least as many as those: mostly none, and then no request looks for them.
    being_disabled: AtomicUsize,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth")
    }
}

/// The credential of a request, as far as its form goes.
enum Presented<'a> {
    Secret(&'a str),
    Cookie(&'a str),
    Nothing,
    Malformed,
}

impl Auth {
    /// What hides keys in texts that somebody else chose.
    pub fn veil(&self) -> &Veil {
        &self.0.veil
    }

    /// Empty tables. Digests are made with the pepper from `keys`; `admin_key` and `agent_key` are what the environment holds, empty
    /// meaning none; `idle` is how long a session may be silent.
    pub fn new(
        keys: impl Into<Keyring>,
        admin_key: Option<Secret>,
        agent_key: Option<Secret>,
        idle: Duration,
    ) -> Auth {
        let pepper = token::Pepper::new(&keys.into().derive(Purpose::Digests, b""));
        let veil = Veil::new(admin_key.iter().chain(&agent_key));
        let of = |key: Option<Secret>| {
            key.filter(|key| !key.is_empty()).map(|key| pepper.digest(key.expose()))
        };
        let (admin, agent_cloud) = (of(admin_key), of(agent_key));
        let built_in = Arc::new(UserRow {
            id: UserId::admin(),
            email: String::new(),
            name: Some("admin".to_owned()),
            role: Role::Admin,
            password: String::new(),
            disabled: false,
            labels: BTreeMap::new(),
            limits: Default::default(),
            created_at: Timestamp::UNIX_EPOCH,
        });
        Auth(Arc::new(Tables {
            veil,
            admin,
            agent_cloud,
            idle,
            keys: Keys::new(agent_cloud.is_some()),
            pepper,
            sessions: Sessions::default(),
            users: DashMap::new(),
            emails: DashMap::new(),
            agents: Agents::default(),
            built_in,
            applied: Mutex::new(0),
            revoking: Mutex::default(),
            leaving: watch::Sender::new(false),
            disabling: DashSet::new(),
            shutting_out: Mutex::default(),
            being_disabled: AtomicUsize::new(0),
        }))
    }

    /// What is stored of a secret: its digest.
    pub fn digest(&self, secret: &Secret) -> [u8; 32] {
        self.0.pepper.digest(secret.expose())
    }

    /// Follows the store from now on and takes in what it has. Call once, before the first request.
    pub async fn attach(&self, store: &Store) -> Result<(), StoreError> {
        self.attach_with(store, Box::new(|_| ())).await.map(|_| ())
    }

    /// The same, with another table that follows beside ours; gives the nodes, which are that one's.
    pub async fn attach_with(
        &self,
        store: &Store,
        beside: Follower,
    ) -> Result<Vec<NodeRow>, StoreError> {
        let tables = self.clone();
        store.follow(Box::new(move |committed| {
            tables.apply(committed);
            beside(committed);
        }));
        // Row by row: there may be a million keys, and the tables are all that is to have them.
        let (tables, nodes) = (self.clone(), Arc::new(Mutex::new(Vec::new())));
        let found = Arc::clone(&nodes);
        let take = move |change| match change {
            Change::Node(node) => {
                found.lock().unwrap_or_else(PoisonError::into_inner).push(NodeRow::clone(&node))
            }
            other => tables.change(other),
        };
        let rev = store.each(take).await?;
        let mut applied = self.0.applied.lock().unwrap_or_else(PoisonError::into_inner);
        *applied = rev.max(*applied);
        Ok(std::mem::take(&mut *nodes.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Takes in a snapshot.
    pub fn load(&self, snapshot: Snapshot) {
        let mut applied = self.0.applied.lock().unwrap_or_else(PoisonError::into_inner);
        for user in snapshot.users {
            self.change(Change::User(user.into()));
        }
        for key in snapshot.keys {
            self.change(Change::Key(key.into()));
        }
        for session in snapshot.sessions {
            self.change(Change::Session(session));
        }
        for agent in snapshot.agents {
            self.change(Change::Agent(agent.into()));
        }
        *applied = snapshot.rev.max(*applied);
    }

    /// Takes in one mutation; one that is in already changes nothing.
    pub fn apply(&self, committed: &Committed) {
        let mut applied = self.0.applied.lock().unwrap_or_else(PoisonError::into_inner);
        if committed.rev <= *applied {
            return;
        }
        for change in &committed.changes {
            self.change(change.clone());
        }
        *applied = committed.rev;
    }

    fn change(&self, change: Change) {
        match change {
            Change::User(user) => {
                let (id, email) = (user.id.clone(), user.email.clone());
                self.0.emails.insert(email.clone(), id.clone());
                if let Some(old) = self.0.users.insert(id, user)
                    && old.email != email
                {
                    self.0.emails.remove(&old.email);
                }
            }
            Change::Key(key) => self.0.keys.apply(key),
            Change::KeyForgotten(id) => self.0.keys.forget(&id),
            Change::Session(session) => self.0.sessions.apply(session),
            Change::SessionEnded(id) => self.0.sessions.end(&id),
            Change::Agent(agent) => self.0.agents.apply(agent),
            Change::AgentDeleted(id) => self.0.agents.remove(&id),
            // In a table of their own, which follows too.
            Change::Node(_) | Change::NodeDeleted(_) => {}
        }
    }

    /// Ends a key in this process at once, whatever the store says until it agrees.
    pub fn kill(&self, id: &KeyId) {
        self.0.keys.kill(id);
    }

    /// Ends a key and all that descend from it in this process at once.
    pub fn kill_descent(&self, id: &KeyId) {
        self.0.keys.kill_descent(id);
    }

    /// Whether AGENT asks for a key.
    pub fn agent_is_enforced(&self) -> bool {
        self.0.agent_cloud.is_some()
    }

    /// A user by id; the built-in one too. Who is being disabled is disabled.
    pub fn user(&self, id: &UserId) -> Option<Arc<UserRow>> {
        if *id == self.0.built_in.id {
            return Some(Arc::clone(&self.0.built_in));
        }
        self.0.users.get(id).map(|user| self.as_seen(user.value()))
    }

    /// A user by normalised e-mail.
    pub fn user_by_email(&self, email: &str) -> Option<Arc<UserRow>> {
        let id = self.0.emails.get(email)?.value().clone();
        self.user(&id)
    }

    /// How many users there are, the built-in one not counted.
    pub fn users(&self) -> usize {
        self.0.users.len()
    }

    /// The users for whom `keep` holds.
    pub fn users_with(&self, keep: impl Fn(&UserRow) -> bool) -> Vec<Arc<UserRow>> {
        self.0.users.iter().map(|user| Arc::clone(user.value())).filter(|user| keep(user)).collect()
    }

    /// Up to `limit` users, the newest first, older than `after`.
    pub fn user_page(&self, after: Option<&UserId>, limit: usize) -> Vec<Arc<UserRow>> {
        let mut newest: BTreeMap<UserId, Arc<UserRow>> = BTreeMap::new();
        for user in self.0.users.iter().filter(|user| after.is_none_or(|after| user.id < *after)) {
            newest.insert(user.id.clone(), self.as_seen(user.value()));
            if newest.len() > limit {
                newest.pop_first();
            }
        }
        newest.into_values().rev().collect()
    }

    /// The agents.
    pub fn agents(&self) -> &Agents {
        &self.0.agents
    }

    /// A key of an interface.
    pub fn key(&self, interface: Interface, id: &KeyId) -> Option<Arc<Key>> {
        self.0.keys.by_id(interface, id)
    }

    /// What the label of a key, of whatever interface, says is kept of its requests; of an unknown one everything.
    pub fn kept_of(&self, id: &KeyId) -> Kept {
        let known = Interface::ALL.into_iter().find_map(|interface| self.key(interface, id));
        known.map_or(Kept::Whole, |key| Kept::of(&key.row().labels))
    }

    /// The keys above a key, its maker first; those that have ended too.
    pub fn ancestors(&self, key: &KeyRow) -> Vec<Arc<KeyRow>> {
        let mut above = Vec::new();
        let mut next = key.parent.clone();
        while let Some(parent) = next.and_then(|id| self.key(key.interface, &id)) {
            next = parent.row().parent.clone();
            above.push(Arc::clone(parent.row()));
        }
        above
    }

    /// Who is treated as one where callers share something fairly: a user with all its keys. The keys
    /// that the operator made by `ADMIN_API_KEY` are tenants of their own, with their descendants.
    pub fn tenant(&self, who: &Principal) -> String {
        match (who.user_id(), who.key()) {
            (Some(user), Some(key)) if user == UserId::admin() => {
                let above = self.ancestors(key);
                above.last().map_or(&key.id, |top| &top.id).to_string()
            }
            (Some(user), _) => user.to_string(),
            (None, _) => who.actor().id,
        }
    }

    /// Up to `limit` keys of an interface, newest first, older than `after`, of one owner or of all.
    pub async fn keys(
        &self,
        interface: Interface,
        owner: Option<&UserId>,
        after: Option<&KeyId>,
        limit: usize,
        keep: impl Fn(&Key) -> bool,
    ) -> Vec<Arc<Key>> {
        self.0.keys.page(interface, owner, after, limit, keep).await
    }

    /// ROUTER keys with a budget that may still be drawn on: their own requests', or those of keys that descend from them.
    pub fn keys_with_budget(&self, now: Timestamp) -> Vec<Arc<Key>> {
        self.0.keys.with_budget(now)
    }

    /// How many keys of an interface stand how.
    pub fn count_keys(&self, interface: Interface, standing: Standing, now: Timestamp) -> usize {
        self.0.keys.count(interface, standing, now)
    }

    /// Who a request is. `secure` says whether it came by https, which decides the cookie's name.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        surface: Surface,
        secure: bool,
        now: Timestamp,
    ) -> Result<Principal, Refused> {
        let answer = match surface {
            // Signed, not shown: [`signature`] reads it, and the table of nodes knows whose it is.
            Surface::NodeCallback => Err(UNKNOWN),
            Surface::Agent => match self.0.agent_cloud {
                None => return Ok(Principal::AgentTenant { via: AgentCredential::Open }),
                Some(cloud) => {
                    self.agent_tenant(credential(headers, surface, secure)?, &cloud, now)
                }
            },
            Surface::Pin | Surface::RouterManagement | Surface::Messages | Surface::DataPlane => {
                match credential(headers, surface, secure)? {
                    Presented::Nothing => Err("missing"),
                    Presented::Malformed => Err("malformed"),
                    Presented::Cookie(value) => {
                        self.by_session(&self.0.pepper.digest(value), Shown::Cookie, now)
                    }
                    Presented::Secret(secret) => self.by_secret(secret, surface, now),
                }
            }
        };
        answer.map_err(|reason| Refused { error: Box::new(unauthorized(surface)), reason })
    }

    fn by_secret(
        &self,
        secret: &str,
        surface: Surface,
        now: Timestamp,
    ) -> Result<Principal, &'static str> {
        let digest = self.0.pepper.digest(secret);
        if !surface.is_data_plane()
            && self.0.admin.is_some_and(|admin| constant_time_eq(&admin, &digest))
        {
            return Ok(Principal::Admin);
        }
        if !token::well_formed(secret) {
            return Err("malformed");
        }
        match self.0.keys.by_digest(surface.interface(), &digest) {
            Some(key) => self.by_key(&key, &digest, now),
            None => self.by_session(&digest, Shown::Token, now),
        }
    }

    fn by_key(
        &self,
        key: &Key,
        digest: &[u8; 32],
        now: Timestamp,
    ) -> Result<Principal, &'static str> {
        usable(key, digest, now)?;
        let user = self.user(&key.row().owner).ok_or(UNKNOWN)?;
        if user.disabled {
            return Err("disabled");
        }
        self.0.keys.used(key, now);
        Ok(Principal::User { user, via: Credential::Key(self.as_granted(key)) })
    }

    fn by_session(
        &self,
        digest: &[u8; 32],
        shown: Shown,
        now: Timestamp,
    ) -> Result<Principal, &'static str> {
        let session = self.0.sessions.find(digest, shown, self.0.idle, now)?;
        let user = self.user(&session.row.user).ok_or(UNKNOWN)?;
        if user.disabled {
            return Err("disabled");
        }
        Ok(Principal::User { user, via: Credential::Session(session.row.id.clone()) })
    }

    fn agent_tenant(
        &self,
        shown: Presented<'_>,
        cloud: &[u8; 32],
        now: Timestamp,
    ) -> Result<Principal, &'static str> {
        let secret = match shown {
            Presented::Secret(secret) => secret,
            Presented::Nothing => return Err("missing"),
            Presented::Cookie(_) | Presented::Malformed => return Err("malformed"),
        };
        let digest = self.0.pepper.digest(secret);
        if constant_time_eq(cloud, &digest) {
            return Ok(Principal::AgentTenant { via: AgentCredential::CloudKey });
        }
        if !token::well_formed(secret) {
            return Err("malformed");
        }
        let key = self.0.keys.by_digest(Interface::Agent, &digest).ok_or(UNKNOWN)?;
        usable(&key, &digest, now)?;
        self.0.keys.used(&key, now);
        Ok(Principal::AgentTenant { via: AgentCredential::Key(Arc::clone(key.row())) })
    }
}

/// Whether a key that was found by `digest` may be used: the key itself, and that one of its secrets.
fn usable(key: &Key, digest: &[u8; 32], now: Timestamp) -> Result<(), &'static str> {
    match key.standing(now) {
        Standing::Active if key.accepts(digest, now) => Ok(()),
        Standing::Active => Err(Standing::Expired.as_str()),
        other => Err(other.as_str()),
    }
}

/// One wording a surface, whatever the reason.
pub fn unauthorized(surface: Surface) -> Error {
    Error::new(
        Kind::Unauthorized,
        match surface {
            Surface::Pin | Surface::RouterManagement => "A valid API key or session is required.",
            Surface::NodeCallback => "A valid node signature is required.",
            Surface::Agent => "A valid API key is required.",
            // Clients look for the words before the colon: OpenAI's, then Anthropic's.
            Surface::DataPlane => {
                "Incorrect API key provided: missing, or not valid here. Send a ROUTER key as: Authorization: Bearer rtr_…"
            }
            Surface::Messages => {
                "invalid x-api-key: missing, or not valid here. Send a ROUTER key as: x-api-key: rtr_…"
            }
        },
    )
}

/// The first present of the places where a credential may be; it decides, even when bad. A place that is filled twice is 400.
fn credential<'a>(
    headers: &'a HeaderMap,
    surface: Surface,
    secure: bool,
) -> Result<Presented<'a>, Refused> {
    let key_headers: &[&str] =
        if surface.is_data_plane() { &["x-api-key", "api-key"] } else { &[] };
    for name in ["authorization"].iter().chain(key_headers) {
        if headers.get_all(*name).iter().nth(1).is_some() {
            let error =
                Error::new(Kind::InvalidRequest, format!("The header {name} is there twice."))
                    .at(*name);
            return Err(Refused { error: Box::new(error), reason: "duplicate" });
        }
    }
    if let Some(line) = headers.get(http::header::AUTHORIZATION) {
        return Ok(line
            .to_str()
            .ok()
            .and_then(|line| bearer(line, surface))
            .map_or(Presented::Malformed, Presented::Secret));
    }
    if let Some(line) = key_headers.iter().find_map(|name| headers.get(*name)) {
        return Ok(line
            .to_str()
            .ok()
            .filter(|key| !key.is_empty())
            .map_or(Presented::Malformed, Presented::Secret));
    }
    if surface == Surface::Agent {
        return Ok(Presented::Nothing);
    }
    Ok(match read_cookie(headers, secure) {
        Cookie::Absent => Presented::Nothing,
        Cookie::One(value) => Presented::Cookie(value),
        Cookie::Bad => Presented::Malformed,
    })
}

/// The secret of an `Authorization` value of a scheme that the surface takes.
fn bearer(line: &str, surface: Surface) -> Option<&str> {
    let (scheme, secret) = line.split_once(' ')?;
    let taken = scheme.eq_ignore_ascii_case("Bearer")
        || surface == Surface::Agent && scheme.eq_ignore_ascii_case("ApiKey");
    let secret = secret.trim_matches(' ');
    (taken && !secret.is_empty()).then_some(secret)
}

#[cfg(test)]
mod tests;
