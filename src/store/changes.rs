//! What a mutation changed, for the tables in memory that follow the store.

use std::sync::Arc;

use super::rows::{AgentRow, KeyRow, NodeRow, SessionRow, UserRow};
use crate::id::{AgentId, KeyId, NodeId, SessionId};

/// One entry of a table as it is now, or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    User(Arc<UserRow>),
    Key(Arc<KeyRow>),
    /// A key that ended long ago was deleted.
    KeyForgotten(KeyId),
    Session(SessionRow),
    SessionEnded(SessionId),
    Agent(Arc<AgentRow>),
    AgentDeleted(AgentId),
    Node(Arc<NodeRow>),
    NodeDeleted(NodeId),
}

/// What a committed transaction changed, for the tables in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the order of all mutations.
    pub rev: u64,
    /// What it changed; empty if there was nothing to do.
    pub changes: Vec<Change>,
}
