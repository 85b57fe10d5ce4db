//! rerouter: an LLM edge gateway on Pingora that authenticates, captures and replays at proxy speed.

pub mod bounds;
pub mod clock;
pub mod error;
pub mod id;
pub mod interface;
pub mod secret;
