//! Which target serves a request: the routing document as written and as run, and the pure `decide`.
//! Nothing here does I/O, reads a clock or draws randomness; what a decision may look at is in `inputs`.

pub mod bias;
mod build;
pub mod condition;
pub mod decide;
pub mod document;
pub mod health;
pub mod inputs;
pub mod keywords;
pub mod language;
pub mod on_nodes;
pub mod provider;
pub mod recipe;
pub mod strategy;
#[cfg(test)]
mod tests;
mod warnings;
