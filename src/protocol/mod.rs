//! The wire protocols: requests, answers and streams as bytes in and facts out. Only the mock
//! provider opens connections.

pub(crate) mod agent;
pub(crate) mod anthropic;
pub(crate) mod coding;
pub(crate) mod completion;
pub(crate) mod endpoint;
pub(crate) mod json;
pub(crate) mod mock;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod sse;
pub(crate) mod stream;
pub(crate) mod tokens;
pub(crate) mod usage;
pub(crate) mod usage_strip;

#[cfg(test)]
#[path = "recorded_tests.rs"]
pub(crate) mod recorded;
