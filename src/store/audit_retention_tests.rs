//! The retention of the audit: what leaves first, whoever floods, and how it is looked for.

use proptest::prelude::*;

use super::*;
use crate::store::audit::{Action, AuditFilter, Event};
use crate::store::rows::Actor;
use crate::store::tests::at;

fn many(rank: Option<Rank>, rows: u64) -> Surplus {
    Surplus::Many { rank, rows }
}

#[test]
fn what_strangers_do_leaves_first_and_what_admins_did_last() {
    let (stranger, user) = (Some(Rank::Stranger), Some(Rank::User));
    for (counts, expected) in [
        ([0, 0, 100], vec![]),
        ([50, 30, 20], vec![]),
        ([60, 30, 20], vec![many(stranger, 10)]),
        // A tenth is theirs, whoever else does much.
        ([10, 90, 20], vec![many(user, 20)]),
        ([15, 70, 40], vec![many(stranger, 5), many(user, 20)]),
        ([0, 0, 130], vec![many(None, 30)]),
        ([1_000, 1_000, 95], vec![many(stranger, 990), many(user, 950), many(None, 55)]),
    ] {
        assert_eq!(beyond(counts, 100), expected, "{counts:?}");
    }
}

async fn note(store: &Store, second: i64, rank: Rank, times: usize) {
    for n in 0..times {
        let actor = Actor { kind: "session".into(), id: format!("{rank:?}") };
        store
            .note(Event::new(
                at(second),
                (actor, rank),
                Action::KeyCreate,
                "key",
                &format!("{second}-{n}"),
            ))
            .await
            .unwrap();
    }
}

async fn left(store: &Store) -> Vec<(String, String)> {
    let rows = store.audit(AuditFilter::default(), 10_000, None).await.unwrap().unwrap();
    rows.into_iter().map(|row| (row.actor.id, row.target.id)).collect()
}

#[tokio::test]
async fn rows_leave_by_age_and_by_number_in_steps_and_by_no_other_way() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    note(&store, 0, Rank::Admin, 3).await;
    note(&store, 10, Rank::Admin, 2).await;
    note(&store, 20, Rank::User, 4).await;
    note(&store, 30, Rank::Stranger, bounds::RETENTION_BATCH + 100).await;
    let all = left(&store).await;
    assert_eq!(store.trim_audit(at(0), 10_000).await.unwrap(), 0);
    assert_eq!(left(&store).await, all, "within the retention nothing leaves");
    assert_eq!(store.trim_audit(at(10), 10_000).await.unwrap(), 3);
    assert_eq!(left(&store).await, all[..all.len() - 3], "the oldest by their time");
    // In more than one step, the oldest first, and nobody else's.
    assert_eq!(store.trim_audit(at(0), 30).await.unwrap(), bounds::RETENTION_BATCH as u64 + 76);
    let rest = left(&store).await;
    assert_eq!(rest[..24], all[..24], "the newest of the strangers' stay");
    assert_eq!(rest[24..], all[all.len() - 9..all.len() - 3]);
    assert_eq!(store.trim_audit(at(100), 0).await.unwrap(), 30);
    note(&store, 40, Rank::Admin, 1).await;
    drop(store);
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    assert!(
        file.execute("DELETE FROM audit", []).is_err(),
        "that they may leave ends with the transaction"
    );
}

#[tokio::test]
async fn what_one_look_takes_out_is_bounded_and_the_next_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    note(&store, 0, Rank::User, 3).await;
    let mut steps = 0;
    assert_eq!(store.take_out(Surplus::Old(at(1).as_microsecond()), &mut steps).await.unwrap(), 0);
    steps = 1;
    assert_eq!((store.take_out(many(None, 2), &mut steps).await.unwrap(), steps), (2, 0));
    assert_eq!(left(&store).await.len(), 1);
}

/// What is left of each rank where so much is over.
fn after(counts: [u64; 3], rows: u64) -> [u64; 3] {
    let mut left = counts;
    for surplus in beyond(counts, rows) {
        match surplus {
            Surplus::Many { rank: Some(rank), rows } => left[rank as usize] -= rows,
            // Whosever they are: at worst they are all of admins.
            Surplus::Many { rank: None, rows } => left[2] = left[2].saturating_sub(rows),
            Surplus::Old(_) => unreachable!("nobody asked for it"),
        }
    }
    left
}

proptest! {
    /// Sweep after sweep, with whatever comes between: nobody below admins takes more of what they
    /// did than leaves them two fifths.
    #[test]
    fn no_flood_of_others_takes_what_admins_did(
        rows in 100_u64..10_000,
        admins in 0_u64..10_000,
        floods in proptest::collection::vec((0_u64..100_000, 0_u64..100_000), 1..20),
    ) {
        let mut left = after([0, 0, admins], rows);
        let promised = left[2].min(rows * 2 / 5);
        for (strangers, users) in floods {
            let before = left;
            left = after([left[0] + strangers, left[1] + users, left[2]], rows);
            prop_assert!(left.iter().sum::<u64>() <= rows, "{before:?} {left:?}");
            prop_assert!(left[2] >= promised, "{before:?} {left:?}");
        }
    }
}

/// The steps of a statement, as SQLite says it takes them.
pub(in crate::store) fn plan(connection: &Connection, statement: &str) -> String {
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
    let none = rusqlite::params_from_iter(vec![0_i64; explain.parameter_count()]);
    let steps = explain.query_map(none, |row| row.get::<_, String>("detail")).unwrap();
    steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
}

/// A sweep comes every minute.
#[tokio::test]
async fn nothing_is_looked_for_in_the_whole_table() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).await.unwrap());
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    let first = "SELECT seq FROM audit ORDER BY seq LIMIT 1";
    for (statement, index) in [
        (OLDER, "audit_at (at<?)"),
        (OF_RANK, "COVERING INDEX audit_rank (rank=?)"),
        (TAKE_OLD, "COVERING INDEX audit_at (at<?)"),
        (TAKE_OF_RANK, "COVERING INDEX audit_rank (rank=?)"),
    ] {
        let steps = plan(&file, statement);
        assert!(
            steps.contains(index)
                && !steps.contains("SCAN audit")
                && !steps.contains("TEMP B-TREE"),
            "{statement}: {steps}"
        );
    }
    // An end of the table, and its first rows, are no search through it.
    assert!(!plan(&file, SPAN).contains("SCAN audit"), "{}", plan(&file, SPAN));
    assert!(plan(&file, TAKE_FIRST).contains(&plan(&file, first)), "{}", plan(&file, TAKE_FIRST));
}

/// By what it does and not by the time that takes: where all fit, it is the same for a million
/// rows.
#[tokio::test]
async fn a_sweep_of_many_rows_looks_at_few() {
    const ROWS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let path = dir.path().join("accounts.db");
    let fill = Connection::open(&path).unwrap();
    let all = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
        INSERT INTO audit (id, at, actor_type, actor, action, target_type, target, rank)
        SELECT 'aud_' || n, n, 'session', 'sess_' || (n % 1000), 'key.create', 'key', 'key_' || n, n % 3 FROM n";
    fill.execute(all, [i64::try_from(ROWS).unwrap()]).unwrap();
    drop(fill);
    assert_eq!(store.trim_audit(Timestamp::UNIX_EPOCH, ROWS).await.unwrap(), 0);
    assert_eq!(
        store.trim_audit(Timestamp::UNIX_EPOCH, ROWS - 100).await.unwrap(),
        100,
        "they are counted, and leave"
    );
    let file = Connection::open(&path).unwrap();
    let steps = |statement: &str| {
        let mut asked = file.prepare(statement).unwrap();
        let some = rusqlite::params_from_iter(vec![0_i64; asked.parameter_count()]);
        asked.query_row(some, |_| Ok(())).unwrap();
        asked.get_status(rusqlite::StatementStatus::VmStep)
    };
    assert!(steps(SPAN) < 100 && steps(OLDER) < 100, "{} {}", steps(SPAN), steps(OLDER));
    assert!(steps(OF_RANK) > 1_000, "as many as there are of a rank");
}
