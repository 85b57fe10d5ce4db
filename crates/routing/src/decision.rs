//! The result of a decision. It is stored with the capture.

use std::borrow::Cow;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inputs::hex;

/// Result of a decision, with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Provider of the first plan entry.
    pub provider: Arc<str>,
    /// Model of the first plan entry.
    pub model: Arc<str>,
    /// Recipe, or `direct` if `provider/model` was requested.
    pub recipe: Arc<str>,
    /// Matching rule; none for direct names.
    pub rule: Option<Arc<str>>,
    /// Strategy that ordered the plan.
    pub strategy: Cow<'static, str>,
    /// Requested alias; none for direct names.
    pub alias: Option<Arc<str>>,
    /// Revision of the document.
    pub revision: Arc<str>,
    /// Seed of the draws, sixteen hex digits in JSON.
    #[serde(with = "hex")]
    #[schemars(with = "String")]
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

impl Decision {
    /// The targets that were ineligible because of their state at that time, not because of the
    /// request.
    pub fn kept_away(&self) -> Vec<&Candidate> {
        let by_state = ["no_node", "breaker_open", "cooldown", "concurrency"];
        let is_state = |reason: &String| by_state.contains(&reason.as_str());
        self.candidates
            .iter()
            .filter(|candidate| candidate.reason.as_ref().is_some_and(is_state))
            .collect()
    }
}

/// One entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PlanEntry {
    pub provider: Arc<str>,
    pub model: Arc<str>,
}

/// One target of the matching rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Candidate {
    pub provider: Arc<str>,
    pub model: Arc<str>,
    /// Whether it is in the plan.
    pub eligible: bool,
    /// Reason if not.
    #[schemars(extend("enum" = [
        "endpoint", "translation", "capability", "context", "no_node", "breaker_open", "cooldown",
        "concurrency", null
    ]))]
    pub reason: Option<String>,
}

/// An expression that failed to evaluate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Trace {
    /// Name of the rule.
    pub rule: String,
    pub error: String,
}
