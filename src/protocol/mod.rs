//! The wire protocols, one file each, as bytes in and facts out: nothing here opens a connection but the mock provider.

pub mod agent;
pub mod anthropic;
pub mod coding;
pub mod completion;
pub mod endpoint;
pub mod json;
pub mod known;
pub mod media;
pub mod mock;
pub mod openai;
pub mod query;
pub mod sse;
pub mod stream;
pub mod strip;
pub mod tokens;
pub mod usage;

#[cfg(test)]
#[path = "recorded_tests.rs"]
pub(crate) mod recorded;
