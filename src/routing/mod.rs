//! Decides which target serves a request. `document` is the routing document as written, `compile`
//! builds from it `compiled`, the document as run, and the pure `decide` reads that and `inputs`.
//! `health` is the current state of targets. Nothing here does I/O, reads a clock or draws
//! randomness.

mod base_url;
mod compile;
mod compiled;
mod complete;
pub mod condition;
mod decide;
mod decision;
mod document;
mod estimate_correction;
pub mod health;
mod inputs;
pub mod keywords;
pub mod language;
pub mod node_targets;
mod provider;
mod refusal;
mod settings;
mod strategy;
mod suggest;
mod target;
#[cfg(test)]
mod tests;

pub use base_url::BaseUrl;
pub use compile::BuildContext;
pub use compiled::{ExpensiveSignals, Recipe, RetryPolicy, Routing, Rule, Shadow, WeightedTarget};
pub use decide::{decide, shadow};
pub use decision::{Candidate, Decision, PlanEntry, Trace};
pub use document::{
    BreakerSpec, Finding, Findings, Located, ModelSpec, Position, ProviderOptions, ProviderSpec,
    RecipeSpec, RetryOn, RetrySpec, RoutingSpec, RuleSpec, ShadowSpec, Strategy, TargetSpec,
    TimeoutsSpec,
};
pub use estimate_correction::EstimateCorrection;
pub use inputs::{
    Abilities, AgentRef, BreakerState, Demand, Inputs, KeywordHit, NodeFacts, PrincipalFacts,
    RequestFacts, TargetHealth,
};
pub use provider::{NODES, Provider, ProviderIdentity};
pub use refusal::{Refusal, TooLong};
pub use settings::{Authorities, BreakerSettings, HealthCheck, Protocol, StreamUsage, Timeouts};
pub use suggest::did_you_mean;
pub use target::{Prices, Target};

#[cfg(test)]
pub(crate) use inputs::tests::chat;
