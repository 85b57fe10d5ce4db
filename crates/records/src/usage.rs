//! Usage: requests, errors, latencies, tokens and cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::page::{ListObject, object};
use rerouter_base::error::RefusalReason;
use rerouter_base::money::dollars;
use rerouter_base::usage_kind::UsageCountSums;
use rerouter_store::{UsageInterval, UsageOrder, UsageSums};

/// Limit on the groups in an answer on usage.
const USAGE_GROUPS: usize = 1_000;

object!(UsageObject "usage");

/// The usage of a time.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UsageList {
    pub object: ListObject,
    pub data: Vec<UsageRecord>,
    /// Whether there are more sums than `limit`.
    pub has_more: bool,
    /// Always null.
    pub next: Option<String>,
    pub span: UsageSpan,
}

/// Time span of the sums: whole intervals in UTC, end excluded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct UsageSpan {
    pub since: Option<Time>,
    pub until: Time,
}

/// The sums of one group. It has the columns that the query groups by.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct UsageRecord {
    pub object: UsageObject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Option<String>>,
    /// The name that the key has today; null if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_name: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Option<String>>,
    /// The e-mail address that the user has today, for admins; null if the user is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_email: Option<Option<String>>,
    /// The value of a label of the key, as the key has it today.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Option<String>>,
    /// The target that answered, `provider/model`; null if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Option<String>>,
    /// The alias asked for; null if a target was asked for by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<Option<String>>,
    /// The rule that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<Option<String>>,
    /// Start of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Option<String>>,
    #[serde(flatten)]
    pub sums: UsageTotals,
    /// The whole time of a request.
    pub latency_ms: Option<LatencyQuantiles>,
    /// The time to the first content of a stream.
    pub first_token_ms: Option<LatencyQuantiles>,
    /// Sums of reroutes.
    pub replays: UsageTotals,
}

/// Sums of requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UsageSums")]
pub struct UsageTotals {
    /// All requests: those that were answered, that failed and that were refused.
    pub requests: u64,
    /// Requests that failed: no target answered, or the answer was an error, 429 or broke off.
    pub errors: u64,
    /// Requests that the gateway refused; they cost nothing.
    #[serde(default)]
    pub refused: RefusalCounts,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub total_tokens: u64,
    #[serde(flatten)]
    pub counts: UsageCountSums,
    /// Cost of the requests whose cost is known; null if none is. Equals the sum of `cost_usd` of
    /// their captures to the nano-dollar.
    pub cost_usd: Option<f64>,
    /// Requests with usage at an unknown price.
    pub unpriced_requests: u64,
    /// Requests that used something of unknown meaning or price, or whose usage cannot be read.
    #[serde(default)]
    pub unknown_usage: u64,
}

/// Refused requests by the reason.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct RefusalCounts {
    /// A limit of the key or the user.
    pub limit: u64,
    /// No target could take them.
    pub target: u64,
    /// The routing document does not know the model.
    pub model: u64,
    /// What they ask for, or how they are written.
    pub request: u64,
}

impl RefusalCounts {
    /// The count of each reason.
    pub fn each(self) -> [(RefusalReason, u64); 4] {
        RefusalReason::ALL.map(|reason| match reason {
            RefusalReason::Limit => (reason, self.limit),
            RefusalReason::Target => (reason, self.target),
            RefusalReason::Model => (reason, self.model),
            RefusalReason::Request => (reason, self.request),
        })
    }

    /// All refused requests.
    pub fn all(self) -> u64 {
        self.each().iter().map(|(_, count)| count).sum()
    }
}

impl From<&UsageSums> for UsageTotals {
    fn from(sums: &UsageSums) -> Self {
        UsageTotals {
            requests: sums.requests,
            errors: sums.errors,
            refused: RefusalCounts {
                limit: sums.refused_limit,
                target: sums.refused_target,
                model: sums.refused_model,
                request: sums.refused_request,
            },
            prompt_tokens: sums.prompt_tokens,
            completion_tokens: sums.completion_tokens,
            total_tokens: sums.prompt_tokens.saturating_add(sums.completion_tokens),
            counts: sums.counts,
            cost_usd: (sums.priced > 0).then(|| dollars(sums.nano)),
            unpriced_requests: sums.unpriced,
            unknown_usage: sums.unknown_usage,
        }
    }
}

/// Of good answers, without those to reroutes, in milliseconds: from counts by doubling bounds
/// (25 ms, 50 ms … 102.4 s), so between the bounds around the real one. Null without any.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LatencyQuantiles {
    pub p50: f64,
    pub p95: f64,
}

/// Query of usage.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageParameters {
    /// Start of an interval in UTC: for days `2026-11-21` or `2026-11-21T00:00:00Z`; a time within
    /// an interval is 400.
    pub since: Option<String>,
    /// End of the time, as `since`; excluded.
    pub until: Option<String>,
    /// What usage is summed by. Days are kept for 400 days, hours for 8 days, five minutes for 6
    /// hours.
    #[serde(default)]
    pub interval: UsageInterval,
    /// Comma-separated list of `key`, `user`, `model`, `alias`, `recipe`, `rule`, a label of the
    /// key such as `label:team`, and `day` or, for any interval, `time`. Default: one total.
    #[serde(default)]
    pub group_by: String,
    /// The largest first; without it the latest time first, else in the order of the values.
    pub order: Option<UsageOrder>,
    /// Maximum number of sums.
    #[serde(default = "groups")]
    #[schemars(range(min = 1, max = USAGE_GROUPS))]
    pub limit: usize,
    /// Only of these keys: a comma-separated list of ids.
    pub key: Option<String>,
    /// Only of these users: a comma-separated list of ids.
    pub user: Option<String>,
    /// Only of these targets: a comma-separated list of `provider/model`.
    pub model: Option<String>,
    /// Only of these recipes: a comma-separated list.
    pub recipe: Option<String>,
}

/// Whether usage can be grouped by a label of this name.
pub fn is_label_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    !name.is_empty() && name.bytes().all(is_plain)
}

const fn groups() -> usize {
    USAGE_GROUPS
}

object!(LostHoldObject "lost_hold");

/// What a process held of a budget when it died. It counts until it is settled or the period ends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LostHoldRecord {
    pub object: LostHoldObject,
    /// Id of the key or user that has the budget.
    pub subject: String,
    /// A day or a month, as in `2026-11-27` and `2026-11`.
    pub period: String,
    pub held_usd: f64,
    /// When it was written last.
    pub held_at: Option<Time>,
    /// Name of the gateway that died; null if no other one shares the store.
    pub gateway: Option<String>,
}

/// What dead processes spent of what they held of a budget.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// Id of the key or user that has the budget.
    pub subject: String,
    /// A day or a month, as in `2026-11-27` and `2026-11`.
    pub period: String,
    /// The part that was really spent, up to the sum of `held_usd`; the rest is given back.
    #[schemars(range(min = 0))]
    pub spent_usd: f64,
}
