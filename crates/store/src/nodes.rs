//! Nodes: enrolments, registrations, and, if gateways share the store, the nonces that nodes used.

use jiff::Timestamp;

use super::changes::{Change, Committed};
use super::rows::{self, NodeModel, NodeRow, Registration};
use super::sql::{Transaction, params};
use super::{Result, Store, StoreError};
use rerouter_base::bounds;
use rerouter_base::id::NodeId;

/// Maximum number of nodes. All are held in memory, and each node that serves is in the inputs of
/// every decision on nodes.
const NODES: usize = 256;
/// Number of ids of node events that are remembered, so that an event sent twice is logged once.
pub(super) const NODE_EVENT_IDS: usize = 4_096;

/// The nonce of a signature whose time is valid. A nonce can be used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentNonce {
    pub node: NodeId,
    /// The generation of the secret that signed it.
    pub generation: u32,
    pub nonce: String,
    /// Seconds since the epoch by the clock of the node.
    pub created: i64,
    pub at: Timestamp,
}

impl Store {
    /// Adds a node; [`StoreError::Conflict`] if its name is taken, [`StoreError::LimitReached`] if
    /// there are too many.
    pub async fn create_node(&self, node: NodeRow) -> Result<Committed> {
        self.mutate(move |transaction| insert(transaction, node)).await
    }

    /// No change if there is no such node.
    pub async fn delete_node(&self, id: &NodeId) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| delete(transaction, &id)).await
    }

    /// Gives a node its next secret, of the generation in `next`; [`StoreError::Conflict`] if
    /// another rotation was first.
    pub async fn rotate_node(&self, next: NodeRow) -> Result<Committed> {
        self.mutate(move |transaction| rotate(transaction, &next)).await
    }

    /// Records the use of a secret; [`StoreError::NotFound`] if its generation has ended. The first
    /// use of a generation ends the one before. If gateways share the store, the nonce is recorded
    /// too; [`StoreError::Conflict`] if one of them has accepted it before.
    pub async fn spend_nonce(&self, spent: SpentNonce) -> Result<Committed> {
        self.mutate(move |transaction| spend(transaction, &spent)).await
    }

    /// Remembers the ids of a node's events, and returns for each whether it is new. The newest
    /// [`NODE_EVENT_IDS`] are kept; [`StoreError::NotFound`] if there is no such node.
    pub async fn note_events(&self, node: &NodeId, ids: Vec<String>) -> Result<Vec<bool>> {
        let node = node.clone();
        self.write(move |transaction| note_events(transaction, &node, &ids)).await
    }

    /// Registers a node, which begins its next epoch.
    pub async fn register_node(
        &self,
        id: &NodeId,
        registration: Registration,
    ) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| register(transaction, &id, registration)).await
    }

    /// Replaces the models of a node's epoch; without models the epoch ends.
    /// [`StoreError::Conflict`] if the node has another epoch now.
    pub async fn amend_node(
        &self,
        id: &NodeId,
        epoch: u64,
        models: Option<Vec<NodeModel>>,
    ) -> Result<Committed> {
        let id = id.clone();
        self.mutate(move |transaction| amend(transaction, &id, epoch, models)).await
    }
}

fn insert(transaction: &Transaction<'_>, node: NodeRow) -> Result<Vec<Change>> {
    if transaction.exists("SELECT 1 FROM nodes WHERE name = ?1", &params![node.name])? {
        return Err(StoreError::Conflict);
    }
    let count = transaction.int("SELECT count(*) FROM nodes", &[])?.unwrap_or(0);
    if usize::try_from(count).unwrap_or(usize::MAX) >= NODES {
        return Err(StoreError::LimitReached);
    }
    rows::insert(transaction, &node)?;
    Ok(vec![Change::Node(node.into())])
}

fn delete(transaction: &Transaction<'_>, id: &NodeId) -> Result<Vec<Change>> {
    if transaction.is_shared() {
        transaction.execute("DELETE FROM node_nonces WHERE node = ?1", &params![id])?;
    }
    transaction.execute("DELETE FROM node_events WHERE node = ?1", &params![id])?;
    match transaction.execute("DELETE FROM nodes WHERE id = ?1", &params![id])? {
        0 => Ok(Vec::new()),
        _ => Ok(vec![Change::NodeDeleted(id.clone())]),
    }
}

fn rotate(transaction: &Transaction<'_>, next: &NodeRow) -> Result<Vec<Change>> {
    let old = find(transaction, &next.id)?;
    if old.generation + 1 != next.generation {
        return Err(StoreError::Conflict);
    }
    update(transaction, NodeRow { registration: old.registration, ..next.clone() })
}

fn spend(transaction: &Transaction<'_>, spent: &SpentNonce) -> Result<Vec<Change>> {
    let node = find(transaction, &spent.node)?;
    let graced = node.previous.as_ref().is_some_and(|previous| previous.expires_at > spent.at);
    if spent.generation != node.generation && !(graced && spent.generation + 1 == node.generation) {
        return Err(StoreError::NotFound);
    }
    if transaction.is_shared() {
        // An older signature is refused because of its time, whichever of the two clocks is ahead.
        let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
        let oldest = spent.at.as_second() - 2 * skew;
        let spend = "
            WITH old AS (DELETE FROM node_nonces WHERE node = ?1 AND created < ?4)
            INSERT INTO node_nonces (node, nonce, created) VALUES (?1, ?2, ?3)
            ON CONFLICT DO NOTHING";
        let values = params![spent.node, spent.nonce, spent.created, oldest];
        if transaction.execute(spend, &values)? == 0 {
            return Err(StoreError::Conflict);
        }
    }
    match node.previous.is_some() && spent.generation == node.generation {
        true => update(transaction, NodeRow { previous: None, ..node }),
        false => Ok(Vec::new()),
    }
}

fn note_events(transaction: &Transaction<'_>, node: &NodeId, ids: &[String]) -> Result<Vec<bool>> {
    find(transaction, node)?;
    let insert = "INSERT INTO node_events (node, id) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    let new = ids.iter().map(|id| Ok(transaction.execute(insert, &params![node, id])? > 0));
    let new = new.collect::<Result<_>>()?;
    let forget = "DELETE FROM node_events WHERE node = ?1 AND seq <=
           (SELECT seq FROM node_events WHERE node = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)";
    transaction.execute(forget, &params![node, NODE_EVENT_IDS])?;
    Ok(new)
}

/// The epoch in `registration` is ignored.
fn register(
    transaction: &Transaction<'_>,
    id: &NodeId,
    registration: Registration,
) -> Result<Vec<Change>> {
    let node = find(transaction, id)?;
    let epoch = node.registration.as_ref().map_or(1, |before| before.epoch + 1);
    update(
        transaction,
        NodeRow { registration: Some(Registration { epoch, ..registration }), ..node },
    )
}

fn amend(
    transaction: &Transaction<'_>,
    id: &NodeId,
    epoch: u64,
    models: Option<Vec<NodeModel>>,
) -> Result<Vec<Change>> {
    let node = find(transaction, id)?;
    let Some(before) = node.registration.clone().filter(|before| before.epoch == epoch) else {
        return Err(StoreError::Conflict);
    };
    let after = match models {
        Some(models) => Registration { models, ..before.clone() },
        None => Registration { ended: true, ..before.clone() },
    };
    if after == before {
        Ok(Vec::new())
    } else {
        update(transaction, NodeRow { registration: Some(after), ..node })
    }
}

fn find(transaction: &Transaction<'_>, id: &NodeId) -> Result<NodeRow> {
    rows::find(transaction, id.as_str())?.ok_or(StoreError::NotFound)
}

fn update(transaction: &Transaction<'_>, node: NodeRow) -> Result<Vec<Change>> {
    rows::update(transaction, &node)?;
    Ok(vec![Change::Node(node.into())])
}
