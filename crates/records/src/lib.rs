//! The records of the management API: what its requests take and its answers give, one file a noun.
//! A record is said once. Its JSON Schema is derived from it: the OpenAPI document has that schema,
//! and [`read`](read::read) holds bodies and queries to it.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod account;
pub mod agent;
pub mod audit;
pub mod conversation;
pub mod error;
pub mod evaluation;
pub mod explanation;
pub mod gateway;
pub mod health;
pub mod inference;
pub mod key;
pub mod model;
pub mod node;
pub mod page;
pub mod patch;
pub mod read;
pub mod replay;
pub mod routing;
pub mod schema;
mod secret;
pub mod status;
mod time;
pub mod usage;
pub mod user;
mod words;

pub use rerouter_store::{ByCount, COUNTS, KeyState, LimitOwner, Limits, NodeModel, Role};
pub use secret::ShownSecret;
pub use time::Time;
