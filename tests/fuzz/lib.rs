//! The gateway's readers of foreign bytes without the gateway, so that a fuzzer is built in a
//! minute.

#[path = "../../src/bounds.rs"]
pub mod bounds;
#[path = "../../src/error.rs"]
pub mod error;

#[path = "../../src/protocol"]
pub mod protocol {
    pub mod agent;
    pub mod anthropic;
    pub mod coding;
    pub mod endpoint;
    pub mod json;
    pub mod request;
    pub mod sse;
    pub mod stream;
    pub mod tokens;
    pub mod usage;
    pub mod usage_strip;
}
