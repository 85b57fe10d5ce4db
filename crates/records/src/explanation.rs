//! Explains the outcome of a request.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why the request was sent to its targets. The parts that need the routing document are present
/// only if the document of the decision is still known and still makes the same decision.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Whether the document of the decision is known.
    pub document: bool,
    /// The rules of the recipe, in the order of the document. Null without the document or the
    /// scope `config`.
    pub rules: Option<Vec<ExplainedRule>>,
    /// How the rule orders its targets.
    pub order: String,
    /// The plan in its order, then the targets that were left out.
    pub targets: Vec<ExplainedTarget>,
    /// What would have changed the outcome, each by itself.
    pub otherwise: Vec<Alternative>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ExplainedRule {
    pub rule: String,
    /// Its condition; null: always.
    pub when: Option<String>,
    /// The signals that the condition names, with their values.
    pub signals: BTreeMap<String, String>,
    pub matches: bool,
    /// Why the condition failed to evaluate.
    pub error: Option<String>,
    /// Whether it made the decision: the first that matches.
    pub taken: bool,
    /// The target that it would put first.
    pub target: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ExplainedTarget {
    pub target: String,
    /// Place in the plan, from 1.
    pub place: Option<usize>,
    #[schemars(extend("enum" = ["answered", "failed", "not_asked", "left_out"]))]
    pub outcome: String,
    pub detail: String,
    /// What the strategy ordered it by.
    pub measure: Option<String>,
}

/// One thing, and what would have come of it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Alternative {
    #[schemars(extend("enum" = [
        "attempt", "rule", "draw", "breaker_open", "cooldown", "concurrency", "context",
        "capability"
    ]))]
    pub kind: String,
    pub detail: String,
    /// The target that would have been first.
    pub target: Option<String>,
}
