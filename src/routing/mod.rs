//! Decides which target serves a request. `document` is the routing document as written, `compile`
//! builds from it `compiled`, the document as run, and the pure `decide` reads that and `inputs`.
//! `health` is the current state of targets. Nothing here does I/O, reads a clock or draws
//! randomness.

mod base_url;
mod compile;
mod compiled;
mod complete;
pub mod condition;
pub mod decide;
mod decision;
pub mod document;
mod estimate_correction;
pub mod health;
pub mod inputs;
pub mod keywords;
pub mod language;
pub mod node_targets;
pub mod provider;
mod refusal;
mod settings;
pub mod strategy;
mod suggest;
mod target;
#[cfg(test)]
mod tests;

/// Old paths.
pub mod recipe {
    pub use super::compile::Origin;
    pub use super::compiled::*;
    pub use super::target::*;
}
/// Old paths.
pub mod bias {
    pub use super::estimate_correction::Bias;
}
/// Old paths.
pub mod on_nodes {
    pub use super::node_targets::*;
}
