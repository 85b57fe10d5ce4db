//! What a decision says. It is stored with the capture.

use serde::{Deserialize, Serialize};

use super::inputs::hex;

/// Result of a decision, with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Provider of the first plan entry.
    pub provider: String,
    /// Model of the first plan entry.
    pub model: String,
    /// Recipe, or `direct` if `provider/model` was requested.
    pub recipe: String,
    /// Matching rule; none for direct names.
    pub rule: Option<String>,
    /// Strategy that ordered the plan.
    pub strategy: String,
    /// Requested alias; none for direct names.
    pub alias: Option<String>,
    /// Revision of the document.
    pub revision: String,
    /// Seed of the draws, sixteen hex digits in JSON.
    #[serde(with = "hex")]
    pub seed: u64,
    /// Probability that the first entry came first, given the eligible targets.
    pub propensity: f64,
    /// Every eligible target, in the order to try.
    pub plan: Vec<PlanEntry>,
    /// Every target of the rule in document order, with the reason if it is ineligible.
    pub candidates: Vec<Candidate>,
    /// Expressions that failed to evaluate. A failed condition is false, a failed key is absent.
    #[serde(default)]
    pub trace: Vec<Trace>,
}

/// One entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanEntry {
    pub provider: String,
    pub model: String,
}

/// One target of the matching rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    pub provider: String,
    pub model: String,
    /// Whether it is in the plan.
    pub eligible: bool,
    /// Reason if not: `endpoint`, `capability`, `context`, `no_node`, `breaker_open`, `cooldown` or
    /// `concurrency`.
    pub reason: Option<String>,
}

/// An expression that failed to evaluate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Name of the rule.
    pub rule: String,
    pub error: String,
}
