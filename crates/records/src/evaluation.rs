//! Evaluations, and changes of the routing document.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::page::object;
use rerouter_base::id::RequestId;

/// Captures that an evaluation covers by default, the newest first.
pub const EVALUATE_DEFAULT: u64 = 100_000;
/// Most captures that an evaluation may cover.
pub const EVALUATE_MAX: u64 = 10_000_000;

rerouter_base::words! {
    /// Health of the targets to assume.
    #[derive(Default)]
    pub enum AssumedHealth {
        #[default]
        Recorded = "recorded",
        Current = "current",
        Healthy = "healthy",
    }
}

rerouter_base::words! {
    /// What to compare with.
    #[derive(Default)]
    pub enum Baseline {
        /// The recorded decisions.
        #[default]
        Recorded = "recorded",
        /// The decisions of the live document.
        Current = "current",
    }
}

/// An evaluation to make.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Evaluate")]
#[serde(deny_unknown_fields)]
pub struct NewEvaluation {
    /// The routing document to evaluate, as text or object; default: the live one. Needs the scope
    /// `evaluate`.
    #[serde(default)]
    pub document: Value,
    /// Selects captures by the parameters of the replay list.
    pub filter: Option<Map<String, Value>>,
    /// Maximum number of captures, newest first. Default: 100,000.
    #[schemars(range(min = 1, max = EVALUATE_MAX))]
    pub limit: Option<u64>,
    pub health: Option<AssumedHealth>,
    pub baseline: Option<Baseline>,
}

/// The earlier document to make live again.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    pub revision: String,
}

object!(EvaluationObject "evaluation");

/// The report of an evaluation. `revision`, `baseline`, `health` and `limit` say what was asked
/// for; they are absent in the report of a refused change.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Evaluation", deny_unknown_fields)]
pub struct EvaluationRecord {
    pub object: EvaluationObject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    pub evaluated: u64,
    /// Captures that had a target before and whose first target changes.
    pub changed: u64,
    /// Captures that had a target before and have none now.
    pub unroutable: u64,
    /// Captures that had no target before and have one now. What a request that was refused would
    /// cost there is unknown: it is in no sum of costs.
    #[serde(default)]
    pub newly_routed: u64,
    /// Captures that had a target before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routed_before: Option<u64>,
    /// Captures without a target both before and now.
    pub unroutable_before: u64,
    /// Captures of requests that a limit refused: it would refuse them under any document. They are
    /// not among `evaluated`, and no more than one a second of each key is captured.
    #[serde(default)]
    pub refused_by_limits: u64,
    pub rule_changed: u64,
    pub plan_changed: u64,
    pub by_change: Vec<ChangeRecord>,
    pub shift: Vec<TargetShift>,
    pub cost: CostRecord,
    /// Captures with an unknown signal, because their text was not kept.
    pub inexact: u64,
    /// Captures with targets unknown at the time, assumed healthy and idle.
    pub assumed: u64,
    pub skipped: BTreeMap<String, u64>,
    /// Number of damaged captures; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub unreadable: Option<u64>,
}

impl EvaluationRecord {
    /// Captures that had a target before; changes are a share of these.
    pub fn routed(&self) -> u64 {
        let others = self.unroutable_before.saturating_add(self.newly_routed);
        self.routed_before.unwrap_or(self.evaluated.saturating_sub(others))
    }

    /// Whether the captures can tell what a document changes: some find a target, and of some
    /// everything is known that it reads.
    pub fn is_evidence(&self) -> bool {
        let found = self.routed().saturating_add(self.newly_routed);
        found > 0 && self.inexact < self.evaluated
    }

    /// Changed captures as a share, from 0 to 1, of the captures that had a target before.
    pub fn changed_share(&self) -> f64 {
        match self.changed {
            0 => 0.0,
            changed => (changed as f64 / self.routed() as f64).min(1.0),
        }
    }

    /// The same for captures that would find no target.
    pub fn unroutable_share(&self) -> f64 {
        match self.unroutable {
            0 => 0.0,
            unroutable => (unroutable as f64 / self.routed() as f64).min(1.0),
        }
    }
}

/// Captures that go from one target to another.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct ChangeRecord {
    pub from: String,
    pub to: String,
    pub count: u64,
    /// Change in cost of these captures, summed over those where it is known; null if it is known
    /// for none.
    pub cost_delta_usd: Option<f64>,
    /// The same with `after_cold` of the cost.
    #[serde(default)]
    pub cost_delta_cold_usd: Option<f64>,
    /// Captures whose change in cost is unknown, without those of refused requests.
    pub unpriced: u64,
    pub reasons: Vec<ReasonCount>,
    pub examples: Vec<RequestId>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ReasonCount {
    pub reason: String,
    pub detail: String,
    pub count: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TargetShift {
    pub target: String,
    pub before: u64,
    pub after: u64,
}

/// In dollars, for the evaluated captures. Captures without usage cost nothing: token counts,
/// refusals, failures. If the new first target is the recorded one, or the one that served, the
/// billed cost counts; else the recorded tokens at the prices of the deciding document. A request
/// that finds no target any more counts with its cost before.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct CostRecord {
    /// Under the baseline. With `recorded` the billed cost, as in `GET /v1/router/usage`.
    pub before: f64,
    /// Under the document. A capture whose new cost is unknown counts with its cost before.
    pub after: f64,
    /// `after` with as many cached tokens as recorded, wherever a request would go.
    #[serde(default)]
    pub after_warm: Option<f64>,
    /// `after` without cached tokens at targets that a request did not go to. Requests that stay
    /// count with their recorded cache, though it may be colder if a part of their conversation
    /// leaves.
    #[serde(default)]
    pub after_cold: Option<f64>,
    /// Parts of `before` and `after` that rest on estimated usage (`usage.estimated`).
    pub estimated: CostSides,
    /// Cost of the captures skipped as `version` or `redacted`; in no other sum.
    pub skipped: f64,
    /// Captures whose usage has members of unknown meaning, or something that the prices of the
    /// document do not count. They are in the sums.
    #[serde(default)]
    pub unknown_usage: u64,
    /// Captures whose cost is unknown before or after: a missing price, or no reported usage.
    pub unpriced: u64,
    /// What is missing for those costs, most frequent first.
    pub unpriced_targets: Vec<UnpricedTarget>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct CostSides {
    pub before: f64,
    pub after: f64,
}

rerouter_base::words! {
    /// The missing part of a cost.
    pub enum Lack {
        /// The target has no known price.
        Price = "price",
        /// A complete answer reported no usage.
        Usage = "usage",
    }
}

/// A target whose cost is unknown.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct UnpricedTarget {
    /// `provider/model`.
    pub target: String,
    // A client reads words of a later version too.
    #[schemars(with = "Lack")]
    pub lacks: String,
    /// Number of captures.
    pub count: u64,
}
