//! The wire protocols: requests, answers and streams as bytes in and facts out. Only the mock
//! provider opens connections.

pub mod agent;
pub mod anthropic;
pub mod coding;
pub mod completion;
pub mod endpoint;
pub mod json;
pub mod mock;
pub mod query;
pub mod request;
pub mod sse;
pub mod stream;
pub mod tokens;
pub mod usage;
pub mod usage_strip;

#[cfg(test)]
#[path = "recorded_tests.rs"]
pub(crate) mod recorded;
