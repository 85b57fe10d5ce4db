//! Decides which target serves a request. `document` is the routing document as written, and
//! `compile` builds `compiled`, the document as run, from it. The pure function `decide` reads
//! `compiled` and `inputs`. `health` is the current state of targets. Nothing here does I/O, reads
//! a clock or draws randomness.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// The scenario of a test is read from top to bottom, so a test function may be long.
#![cfg_attr(test, allow(clippy::too_many_lines))]

mod base_url;
mod compile;
mod compiled;
mod complete;
pub mod condition;
mod decide;
mod decision;
mod document;
mod estimate_correction;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
mod fixtures;
pub mod health;
mod inputs;
pub(crate) mod keywords;
pub mod language;
mod name_patterns;
mod names;
pub mod node_targets;
mod presets;
mod price_list;
mod prices;
mod provider;
mod provider_spec;
mod refusal;
mod request_head;
mod settings;
mod strategy;
mod target;

pub use base_url::BaseUrl;
pub use compile::{BuildContext, KEYWORD_SETS, PROVIDERS, WEIGHT_MAX};
pub use compiled::Routing;
pub use compiled::{Rule, WeightedTarget};
pub use condition::{Condition, TextPart};
pub use decide::decide;
pub use decide::{RuleTrial, refused, shadow, trials};
pub use decision::Trace;
pub use decision::{Candidate, Decision, PlanEntry};
pub use document::{
    ATTEMPTS_MAX, ModelSpec, RULES, RecipeSpec, RetryOn, RetryPolicy, RoutingSpec, RuleSpec,
    ShadowSpec, Strategy, TargetSpec,
};
pub use estimate_correction::EstimateCorrection;
pub use inputs::{
    Abilities, AgentRef, BreakerState, Demand, KeywordHit, NodeFacts, TargetHealth, TextMatches,
};
pub use inputs::{Inputs, PrincipalFacts, RefusedFeature, RequestFacts, Untranslatable};
pub use name_patterns::MODEL_NAME_BYTES;
pub use presets::{PRESETS, Preset};
pub use prices::{Prices, bill, is_unknown};
pub use provider::{NODES, Provider, ProviderIdentity};
pub use provider_spec::{PROVIDER_CONCURRENCY, ProviderSpec, is_own_header};
pub use refusal::RoutingRefusal;
pub use request_head::header_of;
pub use settings::{Authorities, HealthCheck, Protocol, StreamUsage};
pub use strategy::cost as estimated_cost;
pub use target::Target;

#[cfg(any(test, feature = "testing"))]
pub use fixtures::chat;
