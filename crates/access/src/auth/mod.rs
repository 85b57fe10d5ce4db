//! Authentication. [`identify`](Auth::identify) identifies the caller of every request anew, from
//! its head alone, against tables in memory, with one HMAC and a few look-ups. The tables change
//! only by following the store, with one exception: a revocation acts here first.

mod agents;
mod cookie;
mod csrf;
mod disabling;
mod first_admin;
mod identify;
mod key_counts;
mod key_table;
mod maintenance;
mod password;
mod pending_writes;
mod principal;
mod revocation;
mod revocation_scope;
mod session_table;
mod shared_throttle;
pub mod signature;
mod tables;
mod throttle;

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use jiff::Timestamp;
use tokio::sync::watch;

use rerouter_base::id::{KeyId, UserId};
use rerouter_base::secret::{KeyRedactor, Keyring, Purpose, Secret, token};
use rerouter_store::{Role, UserRow};

pub use agents::{Agent, Agents};
pub use cookie::{clear_cookie, set_cookie};
pub use csrf::check_origin;
pub use first_admin::FirstAdminLink;
pub use identify::{has_explicit_credential, unauthorized};
pub use key_table::Key;
pub use maintenance::SWEEP_INTERVAL;
pub use password::{PASSWORD_QUEUE, Passwords};
pub use principal::{
    ADMIN_SCOPE, AGENT_SCOPES, AgentCredential, CAPTURE_LABEL, CaptureLevel, Credential,
    PIN_SCOPES, Principal, RESERVED_SCOPES, SESSION_SCOPES,
};
pub use throttle::{LOGIN_WINDOW, LOGINS, NETWORK_LOGINS, REGISTRATIONS};
pub use throttle::{Throttle, UNKNOWN_USER};

use key_table::KeyTable;
use revocation_scope::RevocationScope;
use session_table::SessionTable;

#[derive(Clone)]
pub struct Auth(Arc<AuthTables>);

struct AuthTables {
    pepper: token::Pepper,
    redactor: KeyRedactor,
    /// The digest of `ADMIN_API_KEY`.
    admin: Option<[u8; 32]>,
    /// The digest of `AGENT_CLOUD_API_KEY`.
    agent_cloud: Option<[u8; 32]>,
    idle: Duration,
    keys: KeyTable,
    sessions: SessionTable,
    users: DashMap<UserId, Arc<UserRow>>,
    emails: DashMap<String, UserId>,
    agents: Agents,
    /// The owner of keys that `ADMIN_API_KEY` made.
    built_in: Arc<UserRow>,
    /// When the uses by other gateways were last read; `None` if not since the start.
    uses_learnt: Mutex<Option<Timestamp>>,
    /// The revision of the store that the tables have applied.
    applied: Mutex<u64>,
    /// Keys whose revocation is not durable yet.
    revoking: Mutex<HashSet<(KeyId, RevocationScope)>>,
    /// Whether the process shuts down, so that pending writes are repeated at once.
    shutting_down: watch::Sender<bool>,
    /// Users who are disabled here, but not durably yet.
    disabling: DashSet<UserId>,
    /// Held while it is checked whether a user is the last admin.
    locking_out: Mutex<()>,
    /// At least the number of users in `disabling`. Mostly it is zero, and then no request looks
    /// there.
    being_disabled: AtomicUsize,
}

impl Auth {
    /// Empty tables. Digests are made with the pepper from `keys`; `admin_key` and `agent_key` come
    /// from the environment, empty meaning none; `idle` is how long a session may be idle.
    pub fn new(
        keys: impl Into<Keyring>,
        admin_key: Option<Secret>,
        agent_key: Option<Secret>,
        idle: Duration,
    ) -> Auth {
        let pepper = token::Pepper::new(&keys.into().derive(Purpose::Digests, b""));
        let redactor = KeyRedactor::new(admin_key.iter().chain(&agent_key));
        let of = |key: Option<Secret>| {
            key.filter(|key| !key.is_empty()).map(|key| pepper.digest(key.expose()))
        };
        let (admin, agent_cloud) = (of(admin_key), of(agent_key));
        let (email, password, made_at) = (String::new(), String::new(), Timestamp::UNIX_EPOCH);
        let built_in = UserRow::new(UserId::admin(), email, Role::Admin, password, made_at);
        let built_in = Arc::new(UserRow { name: Some("admin".to_owned()), ..built_in });
        Auth(Arc::new(AuthTables {
            pepper,
            redactor,
            admin,
            agent_cloud,
            idle,
            keys: KeyTable::new(agent_cloud.is_some()),
            sessions: SessionTable::default(),
            users: DashMap::new(),
            emails: DashMap::new(),
            agents: Agents::default(),
            built_in,
            uses_learnt: Mutex::default(),
            applied: Mutex::new(0),
            revoking: Mutex::default(),
            shutting_down: watch::Sender::new(false),
            disabling: DashSet::new(),
            locking_out: Mutex::default(),
            being_disabled: AtomicUsize::new(0),
        }))
    }

    /// Redacts this gateway's keys in texts that clients chose.
    pub fn key_redactor(&self) -> &KeyRedactor {
        &self.0.redactor
    }
}

#[cfg(test)]
mod tests;
