//! Nodes: enrolments, registrations, and the nonces that nodes spent.

use jiff::Timestamp;

use super::changes::{Change, Committed};
use super::columns::json;
use super::rows::{NodeModel, NodeRow, Registration, node};
use super::sql::{Transaction, params};
use super::{Store, StoreError};
use rerouter_base::bounds;
use rerouter_base::id::NodeId;

/// Nodes: all are in memory, and each that serves is in the inputs of every decision on nodes.
const NODES: usize = 256;
/// Ids of node events that are remembered, so that what is sent twice is logged once.
pub(super) const NODE_EVENT_IDS: usize = 4_096;

/// A nonce that is to be spent.
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
    pub async fn create_node(&self, node: NodeRow) -> Result<Committed, StoreError> {
        self.mutate(move |transaction| insert(transaction, node)).await
    }

    /// Deletes a node. No change if there is no such node.
    pub async fn delete_node(&self, id: &NodeId) -> Result<Committed, StoreError> {
        let id = id.clone();
        self.mutate(move |transaction| delete(transaction, &id)).await
    }

    /// Gives a node its next secret, of the generation in `next`; [`StoreError::Conflict`] if
    /// another rotation was first.
    pub async fn rotate_node(&self, next: NodeRow) -> Result<Committed, StoreError> {
        self.mutate(move |transaction| rotate(transaction, &next)).await
    }

    /// Spends the nonce of a signature: [`StoreError::Conflict`] if it was spent, or may have been,
    /// [`StoreError::NotFound`] if the generation of its secret has ended,
    /// [`StoreError::LimitReached`] if the node signs too much. The first use of a generation ends
    /// the one before.
    pub async fn spend_nonce(&self, spent: SpentNonce) -> Result<Committed, StoreError> {
        self.mutate(move |transaction| spend(transaction, &spent)).await
    }

    /// Remembers the ids of a node's events, and returns for each whether it is new. The newest
    /// [`NODE_EVENT_IDS`] are kept; [`StoreError::NotFound`] if there is no such node.
    pub async fn note_events(
        &self,
        node: &NodeId,
        ids: Vec<String>,
    ) -> Result<Vec<bool>, StoreError> {
        let node = node.clone();
        self.write(move |transaction| note_events(transaction, &node, &ids)).await
    }

    /// Registers a node, which begins its next epoch.
    pub async fn register_node(
        &self,
        id: &NodeId,
        registration: Registration,
    ) -> Result<Committed, StoreError> {
        let id = id.clone();
        self.mutate(move |transaction| register(transaction, &id, registration)).await
    }

    /// Replaces the models of a node's epoch; without models the epoch ends.
    /// [`StoreError::Conflict`] if there is another epoch.
    pub async fn amend_node(
        &self,
        id: &NodeId,
        epoch: u64,
        models: Option<Vec<NodeModel>>,
    ) -> Result<Committed, StoreError> {
        let id = id.clone();
        self.mutate(move |transaction| amend(transaction, &id, epoch, models)).await
    }
}

fn insert(transaction: &Transaction<'_>, node: NodeRow) -> Result<Vec<Change>, StoreError> {
    if transaction.exists("SELECT 1 FROM nodes WHERE name = ?1", &params![node.name])? {
        return Err(StoreError::Conflict);
    }
    let count = transaction.int("SELECT count(*) FROM nodes", &[])?.unwrap_or(0);
    if usize::try_from(count).unwrap_or(usize::MAX) >= NODES {
        return Err(StoreError::LimitReached);
    }
    transaction.execute(
        "INSERT INTO nodes (id, name, models, endpoint, generation, secret, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        &params![
            node.id,
            node.name,
            json(&node.models)?,
            node.endpoint,
            node.generation,
            node.secret,
            node.created_at
        ],
    )?;
    Ok(vec![Change::Node(node.into())])
}

fn delete(transaction: &Transaction<'_>, id: &NodeId) -> Result<Vec<Change>, StoreError> {
    transaction.execute("DELETE FROM node_nonces WHERE node = ?1", &params![id])?;
    transaction.execute("DELETE FROM node_events WHERE node = ?1", &params![id])?;
    match transaction.execute("DELETE FROM nodes WHERE id = ?1", &params![id])? {
        0 => Ok(Vec::new()),
        _ => Ok(vec![Change::NodeDeleted(id.clone())]),
    }
}

fn rotate(transaction: &Transaction<'_>, next: &NodeRow) -> Result<Vec<Change>, StoreError> {
    let old = find(transaction, &next.id)?;
    if old.generation + 1 != next.generation {
        return Err(StoreError::Conflict);
    }
    update(transaction, NodeRow { registration: old.registration, ..next.clone() })
}

pub(super) fn spend(
    transaction: &Transaction<'_>,
    spent: &SpentNonce,
) -> Result<Vec<Change>, StoreError> {
    let node = find(transaction, &spent.node)?;
    let graced = node.previous.as_ref().is_some_and(|previous| previous.expires_at > spent.at);
    if spent.generation != node.generation && !(graced && spent.generation + 1 == node.generation) {
        return Err(StoreError::NotFound);
    }
    let id = &spent.node;
    let first_use = node.previous.is_some() && spent.generation == node.generation;
    if first_use {
        // Signatures of the secret before are no longer valid, so their nonces do not matter.
        transaction.execute("DELETE FROM node_nonces WHERE node = ?1", &params![id])?;
        let none = "UPDATE nodes SET nonces_forgotten = 0 WHERE id = ?1";
        transaction.execute(none, &params![id])?;
    }
    let known = "SELECT 1 FROM node_nonces WHERE node = ?1 AND nonce = ?2";
    if transaction.exists(known, &params![id, spent.nonce])? {
        return Err(StoreError::Conflict);
    }
    // An older signature is refused for its time, whichever of the two clocks is ahead.
    let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
    let before = spent.at.as_second() - 2 * skew;
    check_forgotten(transaction, spent)?;
    make_room(transaction, id, before)?;
    check_forgotten(transaction, spent)?;
    let insert = "INSERT INTO node_nonces (node, nonce, created) VALUES (?1, ?2, ?3)";
    transaction.execute(insert, &params![id, spent.nonce, spent.created])?;
    if first_use {
        return update(transaction, NodeRow { previous: None, ..node });
    }
    Ok(Vec::new())
}

/// [`StoreError::Conflict`] if the nonce is as old as a deleted one: it may be among them.
fn check_forgotten(transaction: &Transaction<'_>, spent: &SpentNonce) -> Result<(), StoreError> {
    let forgotten = "SELECT 1 FROM nodes WHERE id = ?1 AND nonces_forgotten >= ?2";
    match transaction.exists(forgotten, &params![spent.node, spent.created])? {
        true => Err(StoreError::Conflict),
        false => Ok(()),
    }
}

/// Deletes the oldest nonces of a node that has as many as are kept, of those created before
/// `before`; [`StoreError::LimitReached`] if there are none.
///
/// Nonces are kept for longer than needed, so that a node whose gateway's clock is set back by an
/// hour is not locked out: the nonces of that hour are still known.
fn make_room(transaction: &Transaction<'_>, id: &NodeId, before: i64) -> Result<(), StoreError> {
    let count = "SELECT count(*) FROM node_nonces WHERE node = ?1";
    let count = transaction.int(count, &params![id])?.unwrap_or(0);
    let over = 1 + count - i64::try_from(bounds::NODE_NONCES).unwrap_or(i64::MAX);
    if over <= 0 {
        return Ok(());
    }
    let oldest = "SELECT created FROM node_nonces WHERE node = ?1 AND created < ?2
         ORDER BY created LIMIT 1 OFFSET ?3";
    let newest = transaction.int(oldest, &params![id, before, over - 1])?;
    let newest = newest.ok_or(StoreError::LimitReached)?;
    let forget = "DELETE FROM node_nonces WHERE node = ?1 AND created <= ?2";
    transaction.execute(forget, &params![id, newest])?;
    let note = "UPDATE nodes SET nonces_forgotten = ?2 WHERE id = ?1 AND nonces_forgotten < ?2";
    transaction.execute(note, &params![id, newest])?;
    Ok(())
}

fn note_events(
    transaction: &Transaction<'_>,
    node: &NodeId,
    ids: &[String],
) -> Result<Vec<bool>, StoreError> {
    find(transaction, node)?;
    let insert = "INSERT INTO node_events (node, id) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    let new = ids.iter().map(|id| Ok(transaction.execute(insert, &params![node, id])? > 0));
    let new = new.collect::<Result<_, StoreError>>()?;
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
) -> Result<Vec<Change>, StoreError> {
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
) -> Result<Vec<Change>, StoreError> {
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

fn find(transaction: &Transaction<'_>, id: &NodeId) -> Result<NodeRow, StoreError> {
    let found = transaction.row("SELECT * FROM nodes WHERE id = ?1", &params![id], node)?;
    found.ok_or(StoreError::NotFound)
}

fn update(transaction: &Transaction<'_>, node: NodeRow) -> Result<Vec<Change>, StoreError> {
    transaction.execute(
        "UPDATE nodes SET generation = ?2, secret = ?3, previous = ?4, previous_expires_at = ?5,
           rotated_at = ?6, registration = ?7
         WHERE id = ?1",
        &params![
            node.id,
            node.generation,
            node.secret,
            node.previous.as_ref().map(|previous| previous.secret.as_slice()),
            node.previous.as_ref().map(|previous| previous.expires_at),
            node.rotated_at,
            node.registration.as_ref().map(json).transpose()?
        ],
    )?;
    Ok(vec![Change::Node(node.into())])
}
