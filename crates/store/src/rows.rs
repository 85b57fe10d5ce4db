//! The rows of the tables, as plain structs. No `Debug` shows a secret, digest or password hash.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::limits::Limits;
use super::pairs::Pairs;
use rerouter_base::id::{AgentId, KeyId, NodeId, SessionId, UserId};
use rerouter_base::interface::Interface;

/// The role of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees own keys and captures only.
    User,
    Admin,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Admin => "admin",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [Role::User, Role::Admin].into_iter().find(|role| role.as_str() == word)
    }
}

/// A user, who can log in.
#[derive(Clone, PartialEq, Eq)]
pub struct UserRow {
    pub id: UserId,
    pub email: String,
    pub name: Option<String>,
    pub role: Role,
    /// The password's Argon2id hash in PHC form.
    pub password: String,
    /// Sessions and keys of a disabled user are refused.
    pub disabled: bool,
    /// For conditions of routing rules.
    pub labels: BTreeMap<String, String>,
    /// Limits of all requests of the user together.
    pub limits: Limits,
    pub created_at: Timestamp,
}

impl fmt::Debug for UserRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserRow")
            .field("id", &self.id)
            .field("role", &self.role)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}

/// Whether a key is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    Active,
    Inactive,
}

impl KeyStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            KeyStatus::Active => "active",
            KeyStatus::Inactive => "inactive",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        [KeyStatus::Active, KeyStatus::Inactive].into_iter().find(|status| status.as_str() == word)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// `api_key`, `session`, `admin_key`, `cloud_key` or `anonymous`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The id of that key or session; `usr_admin` for the admin key.
    pub id: String,
}

/// The secret that a rotation replaced, valid for a grace period.
#[derive(Clone, PartialEq, Eq)]
pub struct PreviousSecret {
    pub digest: [u8; 32],
    pub expires_at: Timestamp,
}

/// The next secret of a key.
#[derive(Clone)]
pub struct NewSecret {
    /// The part of it that may be shown.
    pub redacted: String,
    pub digest: [u8; 32],
    /// The end of the grace period of the old secret, if it has one.
    pub grace_ends: Option<Timestamp>,
}

/// What a change of a key was decided on. The change is refused if one of these changed since.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The generation of the key that is changed.
    pub generation: u32,
    /// The key of the caller, with its generation.
    pub by: Option<(KeyId, u32)>,
    /// The key that made it, with its generation, if that one's limits bound the change.
    pub maker: Option<(KeyId, u32)>,
}

/// A change of a key's record. A field that is not set stays.
#[derive(Clone, Debug, Default)]
pub struct KeyPatch {
    pub name: Option<String>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// No descendant keeps wider limits.
    pub limits: Option<Limits>,
    pub status: Option<KeyStatus>,
    /// Earlier than before. No descendant expires later.
    pub expires_at: Option<Timestamp>,
    /// When an authenticated caller vouched for a key that was made while AGENT was open. From then
    /// on it is like any other key.
    pub vouched_at: Option<Timestamp>,
}

/// An API key of any interface, without its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Independent of the secret.
    pub id: KeyId,
    pub interface: Interface,
    pub name: String,
    /// The part of the secret that may be shown.
    pub redacted: String,
    /// HMAC-SHA-256 of the secret.
    pub digest: [u8; 32],
    /// The user whom it authenticates.
    pub owner: UserId,
    pub created_by: Actor,
    /// The key that made it.
    pub parent: Option<KeyId>,
    pub scopes: Vec<String>,
    /// For conditions of routing rules.
    pub labels: BTreeMap<String, String>,
    pub limits: Limits,
    pub status: KeyStatus,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// When it last got another secret.
    pub rotated_at: Option<Timestamp>,
    /// Counts the versions of the row, from 1. A change names the generation that it is based on.
    pub generation: u32,
    pub previous: Option<PreviousSecret>,
    /// Made by an anonymous caller while AGENT was open.
    pub made_open: bool,
    /// The user who made it.
    pub maker: Option<UserId>,
    /// When it was last used. The stored value lags behind.
    pub last_used_at: Option<Timestamp>,
    pub metadata: Pairs,
}

impl fmt::Debug for KeyRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("KeyRow");
        shown
            .field("id", &self.id)
            .field("interface", &self.interface)
            .field("owner", &self.owner)
            .field("revoked_at", &self.revoked_at);
        shown.finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub id: SessionId,
    pub user: UserId,
    /// Digest of the cookie's value.
    pub cookie_digest: [u8; 32],
    /// Digest of the Bearer token, another secret.
    pub token_digest: [u8; 32],
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// When it was last used. The stored value lags behind.
    pub last_seen: Timestamp,
}

impl fmt::Debug for SessionRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionRow")
            .field("id", &self.id)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// A named preset that clients use as a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    pub id: AgentId,
    /// Unique; clients use it as the model.
    pub name: String,
    pub description: Option<String>,
    /// The alias or model that its requests are routed by.
    pub model: String,
    /// Put before each conversation.
    pub instructions: Option<String>,
    /// Request fields, such as `temperature`, for requests that do not set them.
    pub defaults: serde_json::Map<String, serde_json::Value>,
    /// Tools that it adds to requests.
    pub tools: Vec<serde_json::Value>,
    /// Whether it was last written by an authenticated caller.
    pub trusted: bool,
    pub metadata: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A kept routing document, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRow {
    /// First 12 hex digits of its hash.
    pub revision: String,
    /// When it was first kept.
    pub created_at: Timestamp,
    /// When it was last made live.
    pub live_at: Timestamp,
}

/// A machine that serves models: its enrolment and its last registration. Secrets are sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    /// Patterns of the models that it may serve.
    pub models: Vec<String>,
    /// The only endpoint that it may register. If none is set: one at the address that it registers
    /// from.
    pub endpoint: Option<String>,
    /// Counts its secrets, from 1.
    pub generation: u32,
    pub secret: Vec<u8>,
    /// Valid until the present secret is used.
    pub previous: Option<PreviousNodeSecret>,
    pub created_at: Timestamp,
    /// When it last got another secret.
    pub rotated_at: Option<Timestamp>,
    pub registration: Option<Registration>,
}

impl fmt::Debug for NodeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeRow")
            .field("id", &self.id)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// The secret of the generation before.
#[derive(Clone, PartialEq, Eq)]
pub struct PreviousNodeSecret {
    pub secret: Vec<u8>,
    pub expires_at: Timestamp,
}

/// The registration of a node.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Counts registrations, from 1. The store sets it.
    pub epoch: u64,
    /// Microseconds since the epoch.
    pub at_us: i64,
    /// When it was signed, in seconds since the epoch by the clock of the node. Messages signed
    /// before belong to an earlier epoch.
    pub signed_s: i64,
    /// Whether the node has deregistered.
    pub ended: bool,
    pub version: String,
    pub endpoint: String,
    /// The credential that it wants from the gateway, sealed.
    pub api_key: Option<Vec<u8>>,
    pub models: Vec<NodeModel>,
    /// Requests that it accepts at once.
    pub max_concurrency: Option<u32>,
    /// For conditions of routing rules.
    pub labels: BTreeMap<String, String>,
}

impl Registration {
    /// Whether a message is of an earlier registration, by its epoch, if it has one, and by the
    /// time of its signature.
    pub fn is_after(&self, epoch: Option<u64>, signed_s: i64) -> bool {
        epoch.is_some_and(|epoch| epoch != self.epoch) || signed_s < self.signed_s
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("epoch", &self.epoch)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// A model that a node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeModel {
    pub id: String,
    /// Context window in tokens.
    #[serde(default)]
    pub context: Option<u64>,
    #[serde(default)]
    pub capabilities: Option<Vec<String>>,
}
