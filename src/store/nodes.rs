//! Nodes and their statements, in `accounts.db` beside the keys: enrolments, what nodes registered
//! as, and the nonces that they have spent. One transaction each, as every mutation of accounts.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::StoreError;
use super::accounts::{from_json, json, maybe_time, time};
use super::rows::Change;
use crate::bounds;
use crate::id::NodeId;

/// A machine that serves models, as it was enrolled and as it registered. Secrets are sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    /// Patterns of the models that it may serve.
    pub models: Vec<String>,
    /// The one endpoint that it may serve at; none: the address that it registers from.
    pub endpoint: Option<String>,
    /// How many secrets it has had, this one counted.
    pub generation: u32,
    pub secret: Vec<u8>,
    /// The secret before this one, until this one is used.
    pub previous: Option<PreviousNodeSecret>,
    pub created_at: Timestamp,
    /// When its secret was last replaced.
    pub rotated_at: Option<Timestamp>,
    /// What it registered as last.
    pub registration: Option<Registration>,
}

impl fmt::Debug for NodeRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeRow")
            .field("id", &self.id)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

/// A node's secret of the generation before.
#[derive(Clone, PartialEq, Eq)]
pub struct PreviousNodeSecret {
    pub secret: Vec<u8>,
    /// When it ends, if the next one is not used earlier.
    pub expires_at: Timestamp,
}

/// What a node registered as.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Counts registrations; the store sets it.
    pub epoch: u64,
    /// When, in microseconds since the epoch.
    pub at_us: i64,
    /// When it was signed, in seconds since the epoch by the clock of the node: what was signed
    /// before is of an earlier epoch.
    #[serde(default)]
    pub signed_s: i64,
    /// Whether it said that it leaves.
    pub ended: bool,
    pub version: String,
    pub endpoint: String,
    /// What it wants to be shown, sealed.
    pub api_key: Option<Vec<u8>>,
    pub models: Vec<NodeModel>,
    /// Requests that it takes at once.
    pub max_concurrency: Option<u32>,
    /// Its own words about itself.
    pub labels: BTreeMap<String, String>,
}

impl Registration {
    /// Whether something of this epoch, where it says one, that was signed then is of a process
    /// that registered before.
    pub fn is_after(&self, epoch: Option<u64>, signed_s: i64) -> bool {
        // What does not say its epoch may have been long under way: it was not signed before this
        // one began.
        epoch.is_some_and(|epoch| epoch != self.epoch) || signed_s < self.signed_s
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("epoch", &self.epoch)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// A model that a node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeModel {
    pub id: String,
    /// Tokens that prompt and answer share.
    #[serde(default)]
    pub context: Option<u64>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Option<Vec<String>>,
}

/// A nonce that is to be spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentNonce {
    pub node: NodeId,
    /// The generation of the secret that signed it.
    pub generation: u32,
    pub nonce: String,
    /// When the signature says that it was made, in seconds since the epoch.
    pub created: i64,
    pub at: Timestamp,
}

/// Adds a node whose name is free, while there are not too many.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    node: NodeRow,
) -> Result<Vec<Change>, StoreError> {
    let taken = transaction
        .query_row("SELECT 1 FROM nodes WHERE name = ?1", [&node.name], |_| Ok(()))
        .optional()?;
    if taken.is_some() {
        return Err(StoreError::Conflict);
    }
    let count: i64 = transaction.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0))?;
    if usize::try_from(count).unwrap_or(usize::MAX) >= bounds::NODES {
        return Err(StoreError::LimitReached);
    }
    transaction.execute(
        "INSERT INTO nodes (id, name, models, endpoint, generation, secret, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            node.id.as_str(),
            node.name,
            json(&node.models)?,
            node.endpoint,
            node.generation,
            node.secret,
            node.created_at.as_microsecond()
        ],
    )?;
    Ok(vec![Change::Node(node.into())])
}

/// Deletes a node and what it spent; one that is not there is no change.
pub(super) fn delete(
    transaction: &Transaction<'_>,
    id: &NodeId,
) -> Result<Vec<Change>, StoreError> {
    transaction.execute("DELETE FROM node_nonces WHERE node = ?1", [id.as_str()])?;
    transaction.execute("DELETE FROM node_events WHERE node = ?1", [id.as_str()])?;
    match transaction.execute("DELETE FROM nodes WHERE id = ?1", [id.as_str()])? {
        0 => Ok(Vec::new()),
        _ => Ok(vec![Change::NodeDeleted(id.clone())]),
    }
}

/// Gives a node its next secret, sealed for that generation; the one before stays until then.
/// [`StoreError::Conflict`] when another rotation was first.
pub(super) fn rotate(
    transaction: &Transaction<'_>,
    next: &NodeRow,
) -> Result<Vec<Change>, StoreError> {
    let old = find(transaction, &next.id)?;
    if old.generation + 1 != next.generation {
        return Err(StoreError::Conflict);
    }
    write(transaction, NodeRow { registration: old.registration, ..next.clone() })
}

/// Spends a nonce: [`StoreError::NotFound`] when the generation is not taken any more,
/// [`StoreError::Conflict`] when the nonce was spent before or may have been,
/// [`StoreError::LimitReached`] when too many were of late. The first use of a generation ends the
/// one before.
pub(super) fn spend(
    transaction: &Transaction<'_>,
    spent: &SpentNonce,
) -> Result<Vec<Change>, StoreError> {
    let node = find(transaction, &spent.node)?;
    let graced = node.previous.as_ref().is_some_and(|previous| previous.expires_at > spent.at);
    if spent.generation != node.generation && !(graced && spent.generation + 1 == node.generation) {
        return Err(StoreError::NotFound);
    }
    let id = spent.node.as_str();
    let first_use = node.previous.is_some() && spent.generation == node.generation;
    if first_use {
        // Nothing that another secret signed is good any more, nor does what was forgotten of that
        // bar anything.
        transaction.prepare_cached("DELETE FROM node_nonces WHERE node = ?1")?.execute([id])?;
        transaction
            .prepare_cached("UPDATE nodes SET nonces_forgotten = 0 WHERE id = ?1")?
            .execute([id])?;
    }
    // What is older than that can come no more, whichever of the two clocks was ahead; unless ours
    // is set back.
    let skew = i64::try_from(bounds::NODE_SKEW.as_secs()).unwrap_or(i64::MAX);
    let before = spent.at.as_second() - 2 * skew;
    let known = "SELECT 1 FROM node_nonces WHERE node = ?1 AND nonce = ?2";
    if transaction
        .prepare_cached(known)?
        .query_row(params![id, spent.nonce], |_| Ok(()))
        .optional()?
        .is_some()
    {
        return Err(StoreError::Conflict);
    }
    if spent.created <= newest_forgotten(transaction, id)? {
        return Err(StoreError::Conflict);
    }
    make_room(transaction, id, before)?;
    // What was forgotten just now may be as new.
    if spent.created <= newest_forgotten(transaction, id)? {
        return Err(StoreError::Conflict);
    }
    let insert = "INSERT INTO node_nonces (node, nonce, created) VALUES (?1, ?2, ?3)";
    transaction.prepare_cached(insert)?.execute(params![id, spent.nonce, spent.created])?;
    if first_use {
        return write(transaction, NodeRow { previous: None, ..node });
    }
    Ok(Vec::new())
}

/// Forgets the oldest nonces of a node that has spent as many as are kept, of those that were made
/// before `before`; [`StoreError::LimitReached`] when there are none.
///
/// They are kept for longer than they can come again by a clock that goes on, so that a clock that
/// is set back by an hour shuts nobody out: what was spent at that time is still known.
fn make_room(transaction: &Transaction<'_>, id: &str, before: i64) -> Result<(), StoreError> {
    let count: i64 = transaction
        .prepare_cached("SELECT count(*) FROM node_nonces WHERE node = ?1")?
        .query_row([id], |row| row.get(0))?;
    let over = 1 + count - i64::try_from(bounds::NODE_NONCES).unwrap_or(i64::MAX);
    if over > 0 {
        let oldest = "SELECT created FROM node_nonces WHERE node = ?1 AND created < ?2 ORDER BY created LIMIT 1 OFFSET ?3";
        let newest: Option<i64> = transaction
            .prepare_cached(oldest)?
            .query_row(params![id, before, over - 1], |row| row.get(0))
            .optional()?;
        let newest = newest.ok_or(StoreError::LimitReached)?;
        transaction
            .prepare_cached("DELETE FROM node_nonces WHERE node = ?1 AND created <= ?2")?
            .execute(params![id, newest])?;
        let note = "UPDATE nodes SET nonces_forgotten = max(nonces_forgotten, ?2) WHERE id = ?1";
        transaction.prepare_cached(note)?.execute(params![id, newest])?;
    }
    Ok(())
}

/// The newest that was ever forgotten: should the clock be set back by more than all that is kept,
/// what is not newer may be among it.
fn newest_forgotten(transaction: &Transaction<'_>, id: &str) -> Result<i64, StoreError> {
    let forgotten = "SELECT nonces_forgotten FROM nodes WHERE id = ?1";
    Ok(transaction.prepare_cached(forgotten)?.query_row([id], |row| row.get(0))?)
}

/// Remembers ids of a node's events and gives which of them are new. The oldest beyond
/// [`bounds::NODE_EVENT_IDS`] are forgotten.
pub(super) fn note_events(
    transaction: &Transaction<'_>,
    node: &NodeId,
    ids: &[String],
) -> Result<Vec<bool>, StoreError> {
    find(transaction, node)?;
    let mut new = Vec::with_capacity(ids.len());
    {
        let mut insert = transaction
            .prepare_cached("INSERT OR IGNORE INTO node_events (node, id) VALUES (?1, ?2)")?;
        for id in ids {
            new.push(insert.execute(params![node.as_str(), id])? > 0);
        }
    }
    if new.contains(&true) {
        let oldest =
            "SELECT seq FROM node_events WHERE node = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2";
        let most = i64::try_from(bounds::NODE_EVENT_IDS).unwrap_or(i64::MAX);
        let over: Option<i64> = transaction
            .prepare_cached(oldest)?
            .query_row(params![node.as_str(), most], |row| row.get(0))
            .optional()?;
        if let Some(over) = over {
            transaction
                .prepare_cached("DELETE FROM node_events WHERE node = ?1 AND seq <= ?2")?
                .execute(params![node.as_str(), over])?;
        }
    }
    Ok(new)
}

/// Notes what a node registers as: a new epoch, whatever the one in `registration`.
pub(super) fn register(
    transaction: &Transaction<'_>,
    id: &NodeId,
    registration: Registration,
) -> Result<Vec<Change>, StoreError> {
    let node = find(transaction, id)?;
    let epoch = node.registration.as_ref().map_or(1, |before| before.epoch + 1);
    write(
        transaction,
        NodeRow { registration: Some(Registration { epoch, ..registration }), ..node },
    )
}

/// Notes the models of an epoch that goes on, or, with none, its end. [`StoreError::Conflict`] when
/// there is another epoch by now.
pub(super) fn amend(
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
        write(transaction, NodeRow { registration: Some(after), ..node })
    }
}

fn find(transaction: &Transaction<'_>, id: &NodeId) -> Result<NodeRow, StoreError> {
    let found = "SELECT * FROM nodes WHERE id = ?1";
    transaction
        .prepare_cached(found)?
        .query_row([id.as_str()], node)
        .optional()?
        .ok_or(StoreError::NotFound)
}

pub(super) fn write(
    transaction: &Transaction<'_>,
    node: NodeRow,
) -> Result<Vec<Change>, StoreError> {
    transaction.execute(
        "UPDATE nodes SET generation = ?2, secret = ?3, previous = ?4, previous_expires_at = ?5, rotated_at = ?6, registration = ?7
         WHERE id = ?1",
        params![
            node.id.as_str(),
            node.generation,
            node.secret,
            node.previous.as_ref().map(|previous| previous.secret.as_slice()),
            node.previous.as_ref().map(|previous| previous.expires_at.as_microsecond()),
            node.rotated_at.map(|at| at.as_microsecond()),
            node.registration.as_ref().map(json).transpose()?
        ],
    )?;
    Ok(vec![Change::Node(node.into())])
}

pub(super) fn node(row: &Row<'_>) -> rusqlite::Result<NodeRow> {
    let previous: Option<Vec<u8>> = row.get("previous")?;
    let registration = match row.get::<_, Option<String>>("registration")? {
        None => None,
        Some(_) => Some(from_json(row, "registration")?),
    };
    Ok(NodeRow {
        id: NodeId::known(&row.get::<_, String>("id")?),
        name: row.get("name")?,
        models: from_json(row, "models")?,
        endpoint: row.get("endpoint")?,
        generation: row.get("generation")?,
        secret: row.get("secret")?,
        previous: previous
            .zip(maybe_time(row, "previous_expires_at")?)
            .map(|(secret, expires_at)| PreviousNodeSecret { secret, expires_at }),
        created_at: time(row, "created_at")?,
        rotated_at: maybe_time(row, "rotated_at")?,
        registration,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Random;
    use crate::store::schema;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + second).unwrap()
    }

    fn accounts() -> rusqlite::Connection {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection, schema::ACCOUNTS).unwrap();
        connection
    }

    fn enrolled(transaction: &Transaction<'_>) -> NodeId {
        let id = NodeId::new(at(0), &Random::seeded(1));
        let node = NodeRow {
            id: id.clone(),
            name: "rack".into(),
            models: vec!["*".into()],
            endpoint: None,
            generation: 1,
            secret: vec![1],
            previous: None,
            created_at: at(0),
            rotated_at: None,
            registration: None,
        };
        insert(transaction, node).unwrap();
        id
    }

    /// Spends nonces of that second, as many as are kept.
    fn fill(transaction: &Transaction<'_>, node: &NodeId, second: i64) {
        for number in 0..bounds::NODE_NONCES {
            let (nonce, created) = (format!("{second} {number}"), at(second).as_second());
            spend(
                transaction,
                &SpentNonce { node: node.clone(), generation: 1, nonce, created, at: at(second) },
            )
            .unwrap();
        }
    }

    #[test]
    fn a_clock_that_is_set_back_shuts_nobody_out_and_makes_nothing_good_again() {
        let mut connection = accounts();
        let transaction = connection.transaction().unwrap();
        let id = enrolled(&transaction);
        let spend = |nonce: &str, second: i64| {
            let (nonce, created, at) = (nonce.to_owned(), at(second).as_second(), at(second));
            spend(&transaction, &SpentNonce { node: id.clone(), generation: 1, nonce, created, at })
        };
        spend("a", 0).unwrap();
        spend("b", 10).unwrap();
        spend("c", 40_000).unwrap();
        for (nonce, second) in [("a", 0), ("b", 10), ("c", 40_000)] {
            assert!(
                matches!(spend(nonce, second), Err(StoreError::Conflict)),
                "{nonce}: spent, whatever the clock is"
            );
        }
        spend("d", 0).unwrap();
        spend("e", 11).unwrap();
        // Of a time that is wrong by years nothing is left over when it is set right.
        spend("f", 4_000_000_000).unwrap();
        spend("g", 40_010).unwrap();
        assert!(matches!(spend("f", 4_000_000_000), Err(StoreError::Conflict)));
    }

    #[test]
    fn what_was_forgotten_is_not_good_again_and_bars_nothing_of_the_next_secret() {
        let mut connection = accounts();
        let transaction = connection.transaction().unwrap();
        let id = enrolled(&transaction);
        let spend = |generation: u32, nonce: &str, second: i64| {
            let (nonce, created, at) = (nonce.to_owned(), at(second).as_second(), at(second));
            spend(&transaction, &SpentNonce { node: id.clone(), generation, nonce, created, at })
        };
        spend(1, "a", 0).unwrap();
        fill(&transaction, &id, 200);
        for nonce in ["a", "b"] {
            assert!(
                matches!(spend(1, nonce, 0), Err(StoreError::Conflict)),
                "{nonce} was spent, or may have been"
            );
        }
        let node = find(&transaction, &id).unwrap();
        let previous =
            Some(PreviousNodeSecret { secret: node.secret.clone(), expires_at: at(9_000) });
        rotate(&transaction, &NodeRow { generation: 2, secret: vec![2], previous, ..node })
            .unwrap();
        spend(2, "n", 400).unwrap();
        spend(2, "b", 0).unwrap();
        assert!(matches!(spend(1, "a", 0), Err(StoreError::NotFound)));
    }

    #[test]
    fn the_newest_events_of_each_node_are_remembered() {
        let mut connection = accounts();
        let transaction = connection.transaction().unwrap();
        let id = enrolled(&transaction);
        let note = |ids: &[&str]| {
            note_events(
                &transaction,
                &id,
                &ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(note(&["x", "y", "x"]).unwrap(), [true, true, false]);
        assert_eq!(note(&["y", "z"]).unwrap(), [false, true]);
        let many: Vec<String> =
            (0..bounds::NODE_EVENT_IDS).map(|number| number.to_string()).collect();
        assert!(note_events(&transaction, &id, &many[1..]).unwrap().iter().all(|new| *new));
        assert_eq!(note(&["z", "x"]).unwrap(), [false, true], "x was among the oldest");
        let kept: i64 = transaction
            .query_row("SELECT count(*) FROM node_events", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, bounds::NODE_EVENT_IDS as i64);
        delete(&transaction, &id).unwrap();
        assert!(matches!(note(&["x"]), Err(StoreError::NotFound)));
        let kept: i64 = transaction
            .query_row("SELECT count(*) FROM node_events", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, 0);
    }

    #[test]
    fn a_node_that_signs_too_much_waits_until_its_nonces_are_over() {
        let mut connection = accounts();
        let transaction = connection.transaction().unwrap();
        let id = enrolled(&transaction);
        let spend = |nonce: String, second: i64| {
            spend(
                &transaction,
                &SpentNonce {
                    node: id.clone(),
                    generation: 1,
                    nonce,
                    created: at(second).as_second(),
                    at: at(second),
                },
            )
        };
        for number in 0..bounds::NODE_NONCES {
            spend(number.to_string(), 0).unwrap();
        }
        assert!(matches!(spend("one more".into(), 120), Err(StoreError::LimitReached)));
        assert!(
            matches!(spend("0".into(), 120), Err(StoreError::Conflict)),
            "what came before is known all the same"
        );
        spend("one more".into(), 121).unwrap();
        let left: i64 = transaction
            .query_row("SELECT count(*) FROM node_nonces", [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 1, "those of one second are forgotten together");
    }
}
