//! Nonces and events of nodes.

use super::*;
use crate::clock::tests::at;
use crate::id::Random;
use crate::store::fixtures::node as enrolment;
use crate::store::schema;

fn accounts() -> rusqlite::Connection {
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    schema::prepare(&mut connection, &schema::ACCOUNTS).unwrap();
    connection
}

fn enrolled(transaction: &Transaction<'_>) -> NodeId {
    let node = enrolment(&Random::seeded(1));
    insert(transaction, node.clone()).unwrap();
    node.id
}

/// A nonce that was created at that second, and arrives at once.
fn nonce(node: &NodeId, generation: u32, nonce: &str, second: i64) -> SpentNonce {
    let (node, nonce, at) = (node.clone(), nonce.to_owned(), at(second));
    SpentNonce { node, generation, nonce, created: at.as_second(), at }
}

/// Spends as many nonces of that second as are kept.
fn fill(transaction: &Transaction<'_>, node: &NodeId, second: i64) {
    for number in 0..bounds::NODE_NONCES {
        spend(transaction, &nonce(node, 1, &number.to_string(), second)).unwrap();
    }
}

#[test]
fn a_clock_that_is_set_back_locks_no_node_out_and_makes_no_nonce_valid_again() {
    let mut connection = accounts();
    let transaction = connection.transaction().unwrap();
    let id = enrolled(&transaction);
    let spend = |text: &str, second: i64| spend(&transaction, &nonce(&id, 1, text, second));
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
    // A clock that was years ahead does no harm when it is set right.
    spend("f", 4_000_000_000).unwrap();
    spend("g", 40_010).unwrap();
    assert!(matches!(spend("f", 4_000_000_000), Err(StoreError::Conflict)));
}

#[test]
fn a_deleted_nonce_stays_spent_until_the_next_secret() {
    let mut connection = accounts();
    let transaction = connection.transaction().unwrap();
    let id = enrolled(&transaction);
    let spend = |generation: u32, text: &str, second: i64| {
        spend(&transaction, &nonce(&id, generation, text, second))
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
    let previous = Some(PreviousNodeSecret { secret: node.secret.clone(), expires_at: at(9_000) });
    rotate(&transaction, &NodeRow { generation: 2, secret: vec![2], previous, ..node }).unwrap();
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
        note_events(&transaction, &id, &ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(note(&["x", "y", "x"]).unwrap(), [true, true, false]);
    assert_eq!(note(&["y", "z"]).unwrap(), [false, true]);
    let many: Vec<String> = (0..bounds::NODE_EVENT_IDS).map(|number| number.to_string()).collect();
    assert!(note_events(&transaction, &id, &many[1..]).unwrap().iter().all(|new| *new));
    assert_eq!(note(&["z", "x"]).unwrap(), [false, true], "x was among the oldest");
    let kept: i64 =
        transaction.query_row("SELECT count(*) FROM node_events", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, bounds::NODE_EVENT_IDS as i64);
    delete(&transaction, &id).unwrap();
    assert!(matches!(note(&["x"]), Err(StoreError::NotFound)));
    let kept: i64 =
        transaction.query_row("SELECT count(*) FROM node_events", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 0);
}

#[test]
fn a_node_that_signs_too_much_waits_until_its_nonces_are_old() {
    let mut connection = accounts();
    let transaction = connection.transaction().unwrap();
    let id = enrolled(&transaction);
    let spend = |text: &str, second: i64| spend(&transaction, &nonce(&id, 1, text, second));
    fill(&transaction, &id, 0);
    assert!(matches!(spend("one more", 120), Err(StoreError::LimitReached)));
    assert!(matches!(spend("0", 120), Err(StoreError::Conflict)), "a known nonce stays known");
    spend("one more", 121).unwrap();
    let left: i64 =
        transaction.query_row("SELECT count(*) FROM node_nonces", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "nonces of one second are deleted together");
}
