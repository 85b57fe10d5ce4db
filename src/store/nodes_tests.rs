//! Nonces and events of nodes.

use super::*;
use crate::id::Random;
use crate::store::schema;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_764_000_000 + second).unwrap()
}

fn accounts() -> rusqlite::Connection {
    let mut connection = rusqlite::Connection::open_in_memory().unwrap();
    schema::prepare(&mut connection, &schema::ACCOUNTS).unwrap();
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
    let left: i64 =
        transaction.query_row("SELECT count(*) FROM node_nonces", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "those of one second are forgotten together");
}
