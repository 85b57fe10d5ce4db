//! The records of the management API: requests and answers, one file per noun. A record is declared
//! once, and its JSON Schema derives from it. The OpenAPI document contains that schema, and
//! [`read`](read::read) checks bodies and queries against it.

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

pub use rerouter_store::{
    ByCount, COUNTS, KeyState, LimitOwner, Limits, NodeModel, Role, UsageOrder,
};
pub use secret::ShownSecret;
pub use time::Time;
