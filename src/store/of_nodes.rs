//! What the store does for nodes.

use std::sync::{Arc, Mutex, PoisonError};

#[cfg(doc)]
use crate::bounds;
use crate::id::NodeId;

use super::{
    Backend, Committed, NodeModel, NodeRow, Registration, SpentNonce, Store, StoreError, nodes,
};

impl Store {
    /// Adds a node; [`StoreError::Conflict`] when its name is taken, [`StoreError::LimitReached`]
    /// when there are too many.
    pub async fn create_node(&self, node: NodeRow) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| nodes::insert(transaction, node)).await
    }

    /// Deletes a node; again is no change.
    pub async fn delete_node(&self, id: &NodeId) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite.mutate(self, move |transaction| nodes::delete(transaction, &id)).await
    }

    /// Gives a node its next secret, of the generation in `next`; [`StoreError::Conflict`] when
    /// another rotation was first.
    pub async fn rotate_node(&self, next: NodeRow) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| nodes::rotate(transaction, &next)).await
    }

    /// Spends the nonce of a signature, durably: [`StoreError::Conflict`] when it was spent before,
    /// [`StoreError::NotFound`] when its generation is not taken any more,
    /// [`StoreError::LimitReached`] when the node signs too much. The first use of a generation
    /// ends the one before.
    pub async fn spend_nonce(&self, spent: SpentNonce) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        sqlite.mutate(self, move |transaction| nodes::spend(transaction, &spent)).await
    }

    /// Remembers the ids of a node's events, durably, and gives for each whether it is new. The
    /// newest [`bounds::NODE_EVENT_IDS`] of a node are kept; [`StoreError::NotFound`] when there is
    /// no such node.
    pub async fn note_events(
        &self,
        node: &NodeId,
        ids: Vec<String>,
    ) -> Result<Vec<bool>, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let (node, told) = (node.clone(), Arc::new(Mutex::new(Vec::new())));
        let telling = Arc::clone(&told);
        let note = move |transaction: &rusqlite::Transaction<'_>| {
            *telling.lock().unwrap_or_else(PoisonError::into_inner) =
                nodes::note_events(transaction, &node, &ids)?;
            // No table in memory follows them.
            Ok(Vec::new())
        };
        sqlite.mutate(self, note).await?;
        Ok(std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Notes what a node registers as, which begins its next epoch.
    pub async fn register_node(
        &self,
        id: &NodeId,
        registration: Registration,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite
            .mutate(self, move |transaction| nodes::register(transaction, &id, registration))
            .await
    }

    /// Notes the models of a node's epoch, or, with none, its end; [`StoreError::Conflict`] when
    /// there is another by now.
    pub async fn amend_node(
        &self,
        id: &NodeId,
        epoch: u64,
        models: Option<Vec<NodeModel>>,
    ) -> Result<Committed, StoreError> {
        let Backend::Sqlite(sqlite) = &*self.backend;
        let id = id.clone();
        sqlite.mutate(self, move |transaction| nodes::amend(transaction, &id, epoch, models)).await
    }
}
