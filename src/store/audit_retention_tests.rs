//! Rows leave by age and by number, and by no other way; no table is searched for them.

use super::*;
use crate::clock::tests::at;
use crate::store::audit::{Action, AuditFilter, Event};
use crate::store::rows::Actor;

async fn note(store: &Store, second: i64, times: usize) {
    for n in 0..times {
        let actor = Actor { kind: "session".into(), id: "sess_1".into() };
        let id = format!("{second}-{n}");
        store.note(Event::new(at(second), actor, Action::KeyCreate, "key", &id)).await.unwrap();
    }
}

async fn left(store: &Store) -> Vec<String> {
    let rows = store.audit(AuditFilter::default(), 10_000, None).await.unwrap().unwrap();
    rows.into_iter().map(|row| row.target.id).collect()
}

#[tokio::test]
async fn rows_leave_by_age_and_by_number_in_steps_and_by_no_other_way() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    note(&store, 0, 3).await;
    note(&store, 10, 2).await;
    note(&store, 30, bounds::RETENTION_BATCH + 100).await;
    let all = left(&store).await;
    assert_eq!(store.trim_audit(at(0), 10_000).await.unwrap(), 0);
    assert_eq!(store.trim_audit(at(0), all.len() as u64).await.unwrap(), 0);
    assert_eq!(left(&store).await, all, "within the retention no row leaves");
    assert_eq!(store.trim_audit(at(10), 10_000).await.unwrap(), 3);
    assert_eq!(left(&store).await, all[..all.len() - 3], "the oldest by their time");
    // In more than one step, the oldest first.
    let surplus = bounds::RETENTION_BATCH as u64 + 72;
    assert_eq!(store.trim_audit(at(0), 30).await.unwrap(), surplus);
    assert_eq!(left(&store).await, all[..30]);
    // A row from a clock that was set ahead stays by its age, and leaves by its number.
    note(&store, 900_000, 1).await;
    note(&store, 40, 5).await;
    assert_eq!(store.trim_audit(at(50), 3).await.unwrap(), 35);
    note(&store, 60, 2).await;
    assert_eq!(store.trim_audit(at(50), 3).await.unwrap(), 1);
    assert_eq!(left(&store).await, ["60-1", "60-0"]);
    assert_eq!(store.trim_audit(at(100), 0).await.unwrap(), 2);
    note(&store, 40, 1).await;
    drop(store);
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    assert!(file.execute("DELETE FROM audit", []).is_err(), "only the retention deletes");
}

/// The steps of a statement, as SQLite says it takes them.
pub(in crate::store) fn plan(connection: &Connection, statement: &str) -> String {
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let none = rusqlite::params_from_iter(vec![0_i64; explain.parameter_count()]);
    let steps = explain.query_map(none, |row| row.get::<_, String>("detail")).unwrap();
    steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

/// The retention looks every minute.
#[tokio::test]
async fn no_table_is_searched_for_rows_that_have_to_leave() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).await.unwrap());
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    for (statement, index) in [
        (HAS_OLD, "audit_at (at<?)"),
        (HAS_FIRST, "SEARCH audit"),
        (DELETE_OLD, "COVERING INDEX audit_at (at<?)"),
        (DELETE_FIRST, "USING INTEGER PRIMARY KEY (rowid<?)"),
    ] {
        let steps = plan(&file, statement);
        assert!(
            steps.contains(index)
                && !steps.contains("SCAN audit")
                && !steps.contains("TEMP B-TREE"),
            "{statement}: {steps}"
        );
    }
}
