//! Decides which target serves a request. `document` is the routing document as written, `compile`
//! builds from it `compiled`, the document as run, and the pure `decide` reads that and `inputs`.
//! `health` is the current state of targets. Nothing here does I/O, reads a clock or draws
//! randomness.

mod base_url;
mod compile;
mod compiled;
mod complete;
pub(crate) mod condition;
mod decide;
mod decision;
mod document;
mod estimate_correction;
#[cfg(test)]
mod fixtures;
pub(crate) mod health;
mod inputs;
pub(crate) mod keywords;
pub(crate) mod language;
mod name_patterns;
mod names;
pub(crate) mod node_targets;
mod presets;
mod price_list;
mod prices;
mod provider;
mod refusal;
mod request_head;
mod settings;
mod strategy;
mod suggest;
mod target;

pub(crate) use base_url::BaseUrl;
pub(crate) use compile::BuildContext;
pub use compiled::Routing;
pub(crate) use compiled::{RetryPolicy, Rule, WeightedTarget};
pub(crate) use condition::TextPart;
pub use decide::decide;
pub(crate) use decide::{RuleTrial, shadow, trials};
pub(crate) use decision::Trace;
pub use decision::{Candidate, Decision, PlanEntry};
pub(crate) use document::{
    BreakerSpec, Finding, Located, ModelSpec, Position, ProviderOptions, ProviderSpec, RecipeSpec,
    RetryOn, RetrySpec, RoutingSpec, RuleSpec, ShadowSpec, Strategy, TargetSpec, TimeoutsSpec,
};
pub(crate) use estimate_correction::EstimateCorrection;
pub(crate) use inputs::{
    Abilities, AgentRef, BreakerState, Demand, KeywordHit, NodeFacts, TargetHealth, TextMatches,
};
pub use inputs::{Inputs, PrincipalFacts, RefusedFeature, RequestFacts, Untranslatable};
pub(crate) use presets::PRESETS;
pub(crate) use provider::{NODES, Provider, ProviderIdentity};
pub(crate) use refusal::Refusal;
pub(crate) use request_head::header_of;
pub(crate) use settings::{Authorities, HealthCheck, Protocol, StreamUsage};
pub(crate) use strategy::cost as estimated_cost;
pub(crate) use suggest::did_you_mean;
pub(crate) use target::Target;

#[cfg(test)]
pub(crate) use fixtures::chat;
