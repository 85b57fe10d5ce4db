//! Evaluations, and changes of the routing document.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Captures that an evaluation covers by default, the newest first.
const EVALUATE_DEFAULT: u64 = 100_000;
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
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "Evaluate")]
#[serde(deny_unknown_fields)]
pub struct NewEvaluation {
    /// The routing document to evaluate, as text or object; default: the live one. Needs the scope
    /// `evaluate`.
    #[serde(default)]
    pub document: Value,
    /// Selects captures by the parameters of the replay list.
    pub filter: Option<Map<String, Value>>,
    /// Maximum number of captures, newest first.
    #[serde(default = "most")]
    #[schemars(range(min = 1, max = EVALUATE_MAX))]
    pub limit: u64,
    pub health: Option<AssumedHealth>,
    pub baseline: Option<Baseline>,
}

const fn most() -> u64 {
    EVALUATE_DEFAULT
}

/// The earlier document to make live again.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    pub revision: String,
}
