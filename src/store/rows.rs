//! What the store keeps, one plain struct a table. Nothing here knows how it is kept, and no
//! `Debug` shows a password hash.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{AgentId, KeyId, NodeId, SessionId, UserId};
use crate::interface::Interface;

use super::limits::Limits;
use super::nodes::NodeRow;
use super::pairs::Pairs;

/// What a user may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Own keys, own captures.
    User,
    Admin,
}

impl Role {
    /// The word of it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Admin => "admin",
        }
    }

    /// Reads the word back.
    pub fn parse(word: &str) -> Option<Self> {
        [Role::User, Role::Admin].into_iter().find(|role| role.as_str() == word)
    }
}

/// A person who can log in.
#[derive(Clone, PartialEq, Eq)]
pub struct UserRow {
    pub id: UserId,
    pub email: String,
    pub name: Option<String>,
    /// What they may do.
    pub role: Role,
    /// The password's Argon2id hash in PHC form.
    pub password: String,
    /// Whether sessions and keys of this user are refused.
    pub disabled: bool,
    /// What routing rules may look at.
    pub labels: BTreeMap<String, String>,
    /// What all of the user's requests together may use up.
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

/// Whether a key that is neither expired nor revoked may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    Active,
    /// Switched off for now.
    Inactive,
}

impl KeyStatus {
    /// The word of it.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyStatus::Active => "active",
            KeyStatus::Inactive => "inactive",
        }
    }

    /// Reads the word back.
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

/// The secret that a rotation replaced, for as long as it is still accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct PreviousSecret {
    pub digest: [u8; 32],
    /// From when on it is refused.
    pub expires_at: Timestamp,
}

/// What takes the place of a key's secret.
#[derive(Clone)]
pub struct NewSecret {
    /// What may be shown of it.
    pub redacted: String,
    pub digest: [u8; 32],
    /// Until when the old one is accepted beside it; without: not from now on.
    pub grace_ends: Option<Timestamp>,
}

/// What a change of a key was decided on. Where one of these changed between the look and the
/// write, nothing was decided.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The generation of the key that is changed.
    pub generation: u32,
    /// The key that acts, with its generation, where it is a key that acts.
    pub by: Option<(KeyId, u32)>,
    /// The key that made the one that is changed, with its generation, where what it has bounds the
    /// change.
    pub maker: Option<(KeyId, u32)>,
}

/// What becomes of a key's record; what is not set stays.
#[derive(Clone, Debug, Default)]
pub struct KeyPatch {
    pub name: Option<String>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// Other limits. No key that descends from it keeps wider ones.
    pub limits: Option<Limits>,
    pub status: Option<KeyStatus>,
    /// An earlier end. No key that descends from it ends later.
    pub expires_at: Option<Timestamp>,
    /// When somebody who showed a credential vouched for a key that was made while AGENT was open:
    /// from then on it is as any other.
    pub vouched_at: Option<Timestamp>,
}

/// A key of any interface.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its public name; says nothing about the secret.
    pub id: KeyId,
    /// Where it is known.
    pub interface: Interface,
    pub name: String,
    /// What may be shown of the secret.
    pub redacted: String,
    /// HMAC-SHA-256 of the secret.
    pub digest: [u8; 32],
    /// On whose behalf it acts.
    pub owner: UserId,
    pub created_by: Actor,
    /// The key that made it.
    pub parent: Option<KeyId>,
    /// What it may do.
    pub scopes: Vec<String>,
    /// What routing rules may look at.
    pub labels: BTreeMap<String, String>,
    /// What it may use up.
    pub limits: Limits,
    /// Whether it is switched on.
    pub status: KeyStatus,
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was ended.
    pub revoked_at: Option<Timestamp>,
    /// When its secret was last replaced.
    pub rotated_at: Option<Timestamp>,
    /// How often it was written, its making counted: whoever decides on a row names the generation
    /// that was seen.
    pub generation: u32,
    /// The secret before this one, where it had a grace.
    pub previous: Option<PreviousSecret>,
    /// Whether it was made while AGENT was open, so that nobody had shown who they are.
    pub made_open: bool,
    /// The user who made it, by whatever credential; not known of keys from before that was written
    /// down.
    pub maker: Option<UserId>,
    /// When it was last used; what is durable of that lags.
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
    /// When it ends whatever happens.
    pub expires_at: Timestamp,
    /// When it was last used; the durable value lags.
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
    /// Unique; what clients say.
    pub name: String,
    pub description: Option<String>,
    /// The alias that its requests are routed by.
    pub model: String,
    /// What every conversation begins with.
    pub instructions: Option<String>,
    /// Sampling fields, for requests that do not set them.
    pub defaults: serde_json::Map<String, serde_json::Value>,
    /// Tools that it brings along.
    pub tools: Vec<serde_json::Value>,
    /// Whether who wrote it last had shown a credential.
    pub trusted: bool,
    pub metadata: BTreeMap<String, String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// One entry of a table as it is now, or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A user as it is now.
    User(Arc<UserRow>),
    /// A key as it is now.
    Key(Arc<KeyRow>),
    /// A key that ended long ago and is known no more.
    KeyForgotten(KeyId),
    /// A session as it is now.
    Session(SessionRow),
    /// A session that is no more.
    SessionEnded(SessionId),
    /// An agent as it is now.
    Agent(Arc<AgentRow>),
    /// An agent that is no more.
    AgentDeleted(AgentId),
    /// A node as it is now.
    Node(Arc<NodeRow>),
    /// A node that is no more.
    NodeDeleted(NodeId),
}

/// What one mutation did, durably.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the order of all mutations.
    pub rev: u64,
    /// What it changed; empty when there was nothing left to do.
    pub changes: Vec<Change>,
}

/// A routing document that is kept, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRow {
    /// First 12 hex digits of its hash.
    pub revision: String,
    /// When it was first kept.
    pub created_at: Timestamp,
    /// When it was last made live.
    pub live_at: Timestamp,
}

/// All tables at one revision.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The last mutation that is inside.
    pub rev: u64,
    pub users: Vec<UserRow>,
    /// All keys, of those that ended the newest of each owner.
    pub keys: Vec<KeyRow>,
    pub sessions: Vec<SessionRow>,
    pub agents: Vec<AgentRow>,
    pub nodes: Vec<NodeRow>,
}
