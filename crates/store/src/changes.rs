//! What a mutation changed, for the tables in memory that follow the store.

use std::sync::Arc;

use super::rows::{AgentRow, KeyRow, NodeRow, SessionRow, UserRow};
use rerouter_base::id::{AgentId, KeyId, NodeId, SessionId, UserId};
use rerouter_base::secret::Secret;

/// One entry of a table as it is now, or gone.
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

/// What a committed transaction changed, for the tables in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the order of all mutations.
    pub rev: u64,
    /// What it changed; empty if there was nothing to do.
    pub changes: Vec<Change>,
}

/// Tables in memory that follow the store.
pub trait Follower: Send + Sync {
    /// Takes in what was committed, in the order of revisions and before its caller gets an answer.
    /// It must not wait.
    fn apply(&self, committed: &Committed);

    /// Begins to take in all rows: at the start, and where changes were missed.
    fn reload(&self) -> Box<dyn Reload>;

    /// The revision of the routing document that is live here, if these tables know.
    fn document(&self) -> Option<String> {
        None
    }
}

/// All rows on their way into the tables.
pub trait Reload: Send {
    fn row(&mut self, row: Change);

    /// All rows were there, as of revision `rev`: what else the tables have is gone.
    fn finish(self: Box<Self>, rev: u64);
}
