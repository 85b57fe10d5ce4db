//! Whether entries continue from a position.

use super::*;

fn entry(rev: u64, seq: i64, id: &str) -> LogEntry {
    LogEntry { rev, seq, kind: LogSubject::Key, id: id.into(), mark: format!("{rev}-{seq}") }
}

fn at(rev: u64, mark: Option<&str>) -> LogPosition {
    LogPosition { rev, mark: mark.map(str::to_owned) }
}

#[test]
fn changes_without_a_gap_are_taken_once_each() {
    let entries = [entry(4, 0, "x"), entry(5, 0, "a"), entry(5, 1, "b"), entry(6, 0, "a")];
    let (position, changed) = follow_on(&at(4, Some("4-0")), 6, entries.to_vec()).unwrap();
    assert_eq!(position, at(6, Some("6-0")));
    let ids: Vec<&str> = changed.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    // The log has not changed.
    let (same, none) = follow_on(&at(4, Some("4-0")), 4, vec![entry(4, 0, "x")]).unwrap();
    assert_eq!((same, none.len()), (at(4, Some("4-0")), 0));
    // A store without changes so far, or one that was migrated.
    let (first, _) = follow_on(&at(7, None), 8, vec![entry(8, 0, "a")]).unwrap();
    assert_eq!(first, at(8, Some("8-0")));
}

#[test]
fn a_gap_or_another_history_is_seen() {
    let from = at(4, Some("4-0"));
    let here = entry(4, 0, "x");
    for (upto, entries) in [
        (6, vec![here.clone(), entry(6, 0, "a")]),
        (6, vec![here.clone(), entry(5, 0, "a")]),
        (5, vec![here.clone()]),
        // The entry of the position is gone: it was pruned, or lost.
        (5, vec![entry(5, 0, "a")]),
        (4, vec![]),
        // The same number in another history.
        (4, vec![LogEntry { mark: "other".into(), ..here }]),
    ] {
        assert!(follow_on(&from, upto, entries.clone()).is_err(), "{entries:?}");
    }
}
