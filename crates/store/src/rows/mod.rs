//! The rows of the tables, as plain structs, and how they are read. No `Debug` shows a secret,
//! digest or password hash.

mod agent;
mod document;
mod key;
mod node;
mod session;
mod user;

pub use agent::AgentRow;
pub(super) use agent::agent;
pub use document::DocumentRow;
pub(super) use document::document;
#[cfg(test)]
pub(super) use key::PreviousSecret;
pub use key::{Actor, KeyChange, KeyRow, KeyState, KeyStatus, NewSecret, Seen};
pub(super) use key::{key, key_with};
pub(super) use node::node;
pub use node::{NodeModel, NodeRow, NodeStatus, PreviousNodeSecret, Registration};
pub use session::SessionRow;
pub(super) use session::{session, session_id};
pub(super) use user::user;
pub use user::{Role, UserRow};
