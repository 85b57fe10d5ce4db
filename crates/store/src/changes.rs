//! Changes made by a mutation, for the tables in memory that follow the store.

use std::sync::Arc;

use super::rows::{AgentRow, KeyRow, NodeRow, SessionRow, UserRow};
use rerouter_base::id::{AgentId, KeyId, NodeId, SessionId, UserId};
use rerouter_base::secret::Secret;

/// A changed row: its new content, or its deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    User(Arc<UserRow>),
    UserDeleted(UserId),
    Key(Arc<KeyRow>),
    /// A key that ended long ago was deleted.
    KeyForgotten(KeyId),
    Session(SessionRow),
    SessionEnded(SessionId),
    Agent(Arc<AgentRow>),
    AgentDeleted(AgentId),
    Node(Arc<NodeRow>),
    NodeDeleted(NodeId),
    /// Another routing document is live, where the store holds it.
    Document(LiveDocument),
}

/// The routing document that was made live last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveDocument {
    pub revision: String,
    /// It may hold credentials.
    pub text: Secret,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The revision: its place in the order of all mutations.
    pub rev: u64,
    /// Empty if there was nothing to do.
    pub changes: Vec<Change>,
}

/// Tables in memory that follow the store.
pub trait Follower: Send + Sync {
    /// Applies a commit to the tables. It is called in the order of revisions, before the caller of
    /// the mutation gets an answer. It must not block.
    fn apply(&self, committed: &Committed);

    /// Begins a reload of all rows, at the start or after changes were missed.
    fn reload(&self) -> Box<dyn Reload>;

    /// The revision of the routing document that is live here, if these tables know it.
    fn document(&self) -> Option<String> {
        None
    }
}

pub trait Reload: Send {
    fn row(&mut self, row: Change);

    /// Ends the reload. All rows as of revision `rev` were passed, so other rows of the tables no
    /// longer exist.
    fn finish(self: Box<Self>, rev: u64);
}
