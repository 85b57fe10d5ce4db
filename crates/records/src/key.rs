//! API keys.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::page::{PAGE_MAX, object, page_default};
use crate::patch::{MergePatch, Patch};
use crate::user::NAME_CHARS;
use crate::{ShownSecret, Time};
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::interface::Interface;
use rerouter_store::{Actor, ByCount, KeyState, KeyStatus, LimitOwner, Limits, Pairs, Per};

/// Limit on the grace of a rotated key's old secret, in seconds: a week.
const ROTATION_GRACE_S: u64 = 604_800;

object!(KeyObject "api_key");

/// A key, without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Key")]
pub struct KeyRecord {
    pub object: KeyObject,
    pub id: KeyId,
    pub interface: Interface,
    pub name: String,
    /// The part of the secret that may be shown.
    pub redacted: String,
    pub owner: UserId,
    pub created_by: Actor,
    /// The granted scopes. `replay:all`, `evaluate`, `config` and `admin` are valid as long as
    /// whoever granted them is an admin.
    pub scopes: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub limits: Limits,
    pub status: KeyState,
    pub created_at: Time,
    pub expires_at: Option<Time>,
    pub last_used_at: Option<Time>,
    pub revoked_at: Option<Time>,
    pub rotated_at: Option<Time>,
    pub previous_secret_expires_at: Option<Time>,
    #[schemars(with = "BTreeMap<String, String>")]
    pub metadata: Pairs,
    /// Usage of the limits of a ROUTER key; only in `GET /v1/router/keys/{id}`. Null if the key is
    /// expired or revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<KeyUsage>>,
}

/// A key with its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct KeyWithSecret {
    #[serde(flatten)]
    pub record: KeyRecord,
    /// The secret; only shown in this answer.
    pub key: ShownSecret,
}

/// For each kind of limit the one with the least left, as in the `x-ratelimit-*` headers; null
/// without a limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KeyUsage {
    /// Requests per minute.
    pub requests: Option<RateUsage>,
    /// Tokens per minute.
    pub tokens: Option<RateUsage>,
    pub concurrency: Option<ConcurrencyUsage>,
    pub budget: Option<BudgetUsage>,
}

impl KeyUsage {
    /// What is left, in the order of [`COUNTS`](crate::COUNTS).
    pub fn counts(&self) -> ByCount<CountLeft> {
        let rate = |rate: &RateUsage| CountLeft {
            of: rate.of,
            limit: rate.limit,
            reserved: rate.reserved.unwrap_or(0),
            remaining: rate.remaining,
            resets_at: Some(rate.resets_at),
        };
        let concurrency = self.concurrency.as_ref().map(|running| CountLeft {
            of: running.of,
            limit: running.limit,
            reserved: 0,
            remaining: running.remaining,
            resets_at: None,
        });
        [self.requests.as_ref().map(rate), self.tokens.as_ref().map(rate), concurrency]
    }
}

/// What is left of a limit on requests or tokens.
pub struct CountLeft {
    pub of: LimitOwner,
    pub limit: u64,
    /// Reserved by running requests.
    pub reserved: u64,
    pub remaining: u64,
    pub resets_at: Option<Time>,
}

/// Use of a limit per minute.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RateUsage {
    pub of: LimitOwner,
    pub limit: u64,
    pub used: u64,
    /// For tokens: reserved by running requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<u64>,
    pub remaining: u64,
    /// When the full limit is available again without further usage.
    pub resets_at: Time,
}

/// Concurrent requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ConcurrencyUsage {
    pub of: LimitOwner,
    pub limit: u64,
    /// Running requests.
    pub in_use: u64,
    pub remaining: u64,
}

/// Use of a budget.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BudgetUsage {
    pub of: LimitOwner,
    pub limit_usd: f64,
    pub per: Per,
    /// Spent in this day or month. Exceeds the limit if an answer cost more than its reserve.
    pub spent_usd: f64,
    /// The part of `spent_usd` that was estimated: nobody was told the bill.
    #[serde(default)]
    pub estimated_usd: f64,
    /// Reserved by running requests.
    pub reserved_usd: f64,
    /// Held by other gateways.
    #[serde(default)]
    pub held_usd: f64,
    /// Held by processes that died, until it is settled or the period ends.
    #[serde(default)]
    pub lost_usd: f64,
    /// Left to reserve.
    pub remaining_usd: f64,
    /// Start of the next day or month in UTC.
    pub resets_at: Time,
}

/// A new key.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    #[schemars(length(min = 1, max = NAME_CHARS))]
    pub name: Option<String>,
    /// Default: `inference`; of PIN `user`, of AGENT `agents` and `keys`. 400 where the caller has
    /// none of these and names no scopes.
    pub scopes: Option<Vec<String>>,
    pub expires_at: Option<Time>,
    pub limits: Option<Limits>,
    /// Up to 16 pairs, with names of up to 64 and values of up to 512 characters.
    #[schemars(extend("maxProperties" = 16))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Admins only: the id of a user.
    #[schemars(extend("format" = "user-id"))]
    pub owner: Option<String>,
    /// Admins only.
    pub labels: Option<BTreeMap<String, String>>,
}

/// A merge patch: null removes an entry of metadata, labels or limits.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyPatch {
    #[schemars(with = "String", length(min = 1, max = NAME_CHARS))]
    pub name: Patch<String>,
    pub metadata: Patch<BTreeMap<String, Option<String>>>,
    /// A key cannot change its own status or that of an ancestor.
    #[schemars(with = "KeyStatus")]
    pub status: Patch<KeyStatus>,
    /// Earlier than before. Descendants expire by then too.
    pub expires_at: Patch<Time>,
    /// Changed by an admin or by the key's creator, never wider than the limits of the key that
    /// created it. The user of a key that no key created may only narrow them. Limits of
    /// descendants are narrowed too.
    pub limits: Patch<MergePatch<Limits>>,
    /// Set by an admin; a key may give a key that it created its own labels. Descendants with the
    /// old labels get the new ones.
    pub labels: Patch<BTreeMap<String, Option<String>>>,
}

/// How to rotate a key.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// How long the old secret stays valid. Default: 0.
    #[schemars(range(max = ROTATION_GRACE_S), extend("default" = 0))]
    pub grace_period_seconds: Option<u64>,
}

/// Query of a list of keys.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyQuery {
    /// Maximum number of entries of the page.
    #[serde(default = "page_default")]
    #[schemars(range(min = 1, max = PAGE_MAX))]
    pub limit: usize,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// Default: all but revoked keys.
    pub status: Option<KeyState>,
    /// Id of a user; admins may name any, others themselves.
    #[schemars(extend("format" = "user-id"))]
    pub owner: Option<String>,
    /// Only keys that expire before this RFC 3339 time, and have not yet.
    pub expires_before: Option<Time>,
    /// Only keys that were made before this RFC 3339 time and not used since.
    pub unused_since: Option<Time>,
    /// Only ROUTER keys that have spent or reserved at least this share, of 1, of the budget with
    /// the least left.
    #[schemars(range(min = 0, max = 1))]
    pub budget_used: Option<f64>,
}

/// Query of a revocation.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeQuery {
    /// Also revoke all descendants.
    #[serde(default)]
    pub descendants: bool,
}
