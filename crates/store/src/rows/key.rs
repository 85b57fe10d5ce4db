//! The row of a key, and the types of its changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stored::{pair, row};
use crate::columns::{json_columns, word_columns};
use crate::{Limits, Pairs};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::interface::Interface;

rerouter_base::words! {
    /// Whether a key is switched on.
    pub enum KeyStatus {
        Active = "active",
        Inactive = "inactive",
    }
}

rerouter_base::words! {
    /// Whether a key may be used: the first of these that holds.
    pub enum KeyState {
        /// Ended by its owner or an admin.
        Revoked = "revoked",
        Expired = "expired",
        Inactive = "inactive",
        Active = "active",
    }
}

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Actor {
    /// `operator` is whoever started the process; rows of a start have no request and no address.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = [
        "api_key", "session", "admin_key", "cloud_key", "anonymous", "operator",
    ]))]
    pub kind: String,
    /// The id of that key or session; `usr_admin` for the admin key.
    pub id: String,
}

pair! { Box<PreviousSecret>:
    /// The secret that a rotation replaced, valid for a grace period.
    #[derive(Clone, PartialEq, Eq)]
    pub struct PreviousSecret {
        pub digest: [u8; 32],
        pub expires_at: Timestamp,
    }
}

word_columns! { KeyStatus }
json_columns! { Actor, Pairs }

#[derive(Clone)]
pub struct NewSecret {
    pub redacted: Box<str>,
    pub digest: [u8; 32],
    /// The end of the grace period of the old secret, if it has one.
    pub grace_ends: Option<Timestamp>,
}

/// The keys, with their generations, on which the decision about a change was based. The change is
/// refused if one of these keys changed since.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The generation of the key that is changed.
    pub generation: u32,
    /// The key of the caller, with its generation.
    pub by: Option<(KeyId, u32)>,
    /// The key that made it, with its generation, if the limits of that key restrict the change.
    pub maker: Option<(KeyId, u32)>,
}

/// A field that is not set stays.
#[derive(Clone, Debug, Default)]
pub struct KeyChange {
    pub name: Option<Box<str>>,
    pub metadata: Option<BTreeMap<String, String>>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The new limits. No descendant keeps wider limits.
    pub limits: Option<Limits>,
    pub status: Option<KeyStatus>,
    /// A new expiry, earlier than before. No descendant expires later.
    pub expires_at: Option<Timestamp>,
    /// When an authenticated caller vouched for a key that was made while the AGENT interface was
    /// open. From then on it is like any other key.
    pub vouched_at: Option<Timestamp>,
}

row! { "keys" shows id, interface, owner, revoked_at =>
    /// An API key of any interface, without its secret.
    #[derive(Clone, PartialEq, Eq)]
    pub struct KeyRow {
        /// Independent of the secret.
        pub id: KeyId,
        pub interface: Interface,
        pub name: Box<str>,
        /// The part of the secret that may be shown.
        pub redacted: Box<str>,
        /// HMAC-SHA-256 of the secret.
        pub digest: [u8; 32],
        /// The user whom it authenticates.
        pub owner: UserId,
        pub created_by: Arc<Actor>,
        /// The key that made it.
        pub parent: Option<KeyId>,
        pub scopes: Arc<Vec<String>>,
        /// Read by conditions of routing rules. The label `capture` sets what is captured.
        pub labels: Arc<BTreeMap<String, String>>,
        pub limits: Arc<Limits>,
        pub status: KeyStatus,
        pub created_at: Timestamp,
        pub expires_at: Option<Timestamp>,
        pub revoked_at: Option<Timestamp>,
        pub rotated_at: Option<Timestamp>,
        /// Counts the versions of the row, from 1. A change names the generation that it is based
        /// on.
        pub generation: u32,
        pub previous: Option<Box<PreviousSecret>> = "previous_digest, previous_expires_at",
        /// Whether an anonymous caller made it while the AGENT interface was open.
        pub made_open: bool,
        /// The user who made it.
        pub maker: Option<UserId>,
        /// When it was last used. The stored value lags behind.
        pub last_used_at: Option<Timestamp>,
        pub metadata: Pairs,
    }
}
