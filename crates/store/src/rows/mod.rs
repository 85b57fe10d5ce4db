//! The rows of the tables, as plain structs. `stored.rs` reads, inserts and replaces them. No
//! `Debug` shows a secret, digest or password hash.

mod agent;
mod document;
mod key;
mod node;
mod session;
pub(super) mod stored;
mod user;

pub use agent::AgentRow;
pub use document::DocumentRow;
pub(super) use key::PreviousSecret;
pub use key::{Actor, KeyChange, KeyRow, KeyState, KeyStatus, NewSecret, Seen};
pub use node::{NodeModel, NodeRow, NodeStatus, PreviousNodeSecret, Registration};
pub use session::SessionRow;
pub(super) use stored::{Stored, find, insert, update};
pub use user::{Role, UserRow};
