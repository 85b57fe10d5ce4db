//! rerouter: an LLM edge gateway on Pingora that authenticates, captures and replays at proxy speed.

pub mod api;
pub mod app;
pub mod auth;
pub mod bounds;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod error;
pub mod gateway;
pub mod id;
pub mod interface;
pub mod log;
pub mod metrics;
pub mod protocol;
pub mod reload;
pub mod replay;
pub mod routing;
pub mod secret;
pub mod server;
pub mod store;
