//! The audit, and its retention.

use super::*;
use crate::audit_query::NEAR;
use crate::audit_retention::RETENTION_BATCH;
use crate::sql::params;
use rerouter_base::id::{AuditId, RequestId};

fn event(second: i64, action: Action, target: &str) -> Event {
    let actor = Actor { kind: "session".into(), id: "sess_1".into() };
    Event::new(at(second), actor, action, "key", target)
        .by(Some(RequestId::known("req_1")), Some("192.0.2.1".parse().unwrap()))
}

async fn all(store: &Store) -> Vec<(String, String)> {
    let rows = store.audit(AuditFilter::default(), 100, None).await.unwrap().unwrap();
    rows.into_iter().map(|row| (row.action, row.target)).collect()
}

pub(crate) async fn a_row_is_there_exactly_when_its_change_is(bed: &impl Bed) {
    let (random, faults) = (Random::seeded(1), Faults::default());
    let store = bed.open().await.with_faults(faults.clone());
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let key = key(&ann.id, &random);
    let id = key.id.as_str();
    let making = store.noting(event(1, Action::KeyCreate, id));
    faults.fail_writes(1);
    making.create_key(key.clone()).await.unwrap_err();
    assert_eq!(all(&store).await, []);
    making.create_key(key.clone()).await.unwrap();
    // Neither a refused action nor one that changes nothing has a row.
    making.create_key(key.clone()).await.unwrap_err();
    let ending = store.noting(event(2, Action::KeyRevoke, id));
    for _ in 0..2 {
        ending.revoke_key(&key.id, at(2)).await.unwrap();
    }
    store
        .noting(event(3, Action::ConfigPut, "0123456789ab"))
        .keep_document("0123456789ab", "a: 1", at(3))
        .await
        .unwrap();
    store.keep_document("0123456789ab", "a: 1", at(4)).await.unwrap();
    faults.fail_writes(1);
    store.note(event(4, Action::CaptureRead, "req_9")).await.unwrap_err();
    store.note(event(4, Action::CaptureRead, "req_9")).await.unwrap();
    let expected = [
        ("capture.read", "req_9"),
        ("config.put", "0123456789ab"),
        ("key.revoke", id),
        ("key.create", id),
    ];
    let expected = expected.map(|(action, target)| (action.to_owned(), target.to_owned()));
    assert_eq!(all(&store).await, expected);
    drop((store, making, ending));
    let store = bed.open().await;
    assert_eq!(all(&store).await, expected);
    let last = store.audit(AuditFilter::default(), 1, None).await.unwrap().unwrap().remove(0);
    assert_eq!((last.at, last.actor.as_str(), last.target_type.as_str()), (at(4), "sess_1", "key"));
    assert_eq!(
        (last.request.as_deref(), last.address.as_deref()),
        (Some("req_1"), Some("192.0.2.1"))
    );
}

pub(crate) async fn pages_and_filters_find_what_they_say(bed: &impl Bed) {
    let store = bed.open().await;
    // All rows are from one millisecond, so that their ids do not show the order.
    for n in 0..7 {
        let action = if n % 2 == 0 { Action::KeyCreate } else { Action::KeyRevoke };
        store.note(event(0, action, &format!("key_{n}"))).await.unwrap();
    }
    store.note(event(50, Action::KeyRotate, "key_0")).await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store.audit(AuditFilter::default(), 3, after.clone()).await.unwrap().unwrap();
        seen.extend(page.iter().map(|row| row.target.clone()));
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
    }
    assert_eq!(seen, ["key_0", "key_6", "key_5", "key_4", "key_3", "key_2", "key_1", "key_0"]);
    let count =
        async |filter: AuditFilter| store.audit(filter, 100, None).await.unwrap().unwrap().len();
    let none = AuditFilter::default;
    assert_eq!(count(AuditFilter { since: Some(at(50)), ..none() }).await, 1);
    assert_eq!(count(AuditFilter { until: Some(at(50)), ..none() }).await, 7);
    assert_eq!(count(AuditFilter { action: Some(Action::KeyRevoke), ..none() }).await, 3);
    assert_eq!(count(AuditFilter { target: Some("key_0".into()), ..none() }).await, 2);
    assert_eq!(
        count(AuditFilter {
            target: Some("key_0".into()),
            action: Some(Action::KeyRotate),
            ..none()
        })
        .await,
        1
    );
    assert_eq!(count(AuditFilter { actor: Some("sess_1".into()), ..none() }).await, 8);
    assert_eq!(count(AuditFilter { actor: Some("sess_".into()), ..none() }).await, 0);
    for never in ["aud_0", "aud_00000000000000000000000000"] {
        assert!(
            store.audit(none(), 3, Some(AuditId::known(never))).await.unwrap().is_none(),
            "{never}"
        );
    }
}

pub(crate) async fn nothing_is_left_after_a_row_that_the_retention_deleted(bed: &impl Bed) {
    let store = bed.open().await;
    for n in 0..4 {
        store.note(event(n, Action::KeyCreate, &format!("key_{n}"))).await.unwrap();
    }
    let page = store.audit(AuditFilter::default(), 2, None).await.unwrap().unwrap();
    let after = page[1].id.clone();
    let rest = store.audit(AuditFilter::default(), 10, Some(after.clone())).await.unwrap().unwrap();
    assert_eq!(rest.iter().map(|row| &row.target).collect::<Vec<_>>(), ["key_1", "key_0"]);
    assert_eq!(store.trim_audit(at(0), 1).await.unwrap(), 3);
    let rest = store.audit(AuditFilter::default(), 10, Some(after)).await.unwrap();
    assert_eq!(rest, Some(Vec::new()));
}

/// A query reads only some of the newest rows before it looks up the rows of its period: here there
/// are more. The clock was set back and forth.
pub(crate) async fn rows_of_a_time_are_found_however_many_follow(bed: &impl Bed) {
    let store = bed.open().await;
    for (n, second) in [5, 6, 900_000, 7, 8].into_iter().enumerate() {
        store.note(event(second, Action::KeyCreate, &format!("key_{n}"))).await.unwrap();
    }
    let many = "
        WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n <= ?1)
        INSERT INTO audit (id, at, actor_type, actor, action, target_type, target)
        SELECT 'aud_' || n, ?2 + n, 'user', 'usr_1', 'key.revoke', 'key', 'other' FROM n";
    let insert = |transaction: &Transaction<'_>| transaction.execute(many, &params![NEAR, at(100)]);
    store.write(insert).await.unwrap();
    store.note(event(9, Action::KeyCreate, "key_5")).await.unwrap();
    let targets = async |since: Option<i64>,
                         until: Option<i64>,
                         after: Option<AuditId>|
           -> Vec<(AuditId, String)> {
        let filter =
            AuditFilter { since: since.map(at), until: until.map(at), ..AuditFilter::default() };
        let rows = store.audit(filter, 4, after).await.unwrap().unwrap();
        rows.into_iter().map(|row| (row.id, row.target)).collect()
    };
    let named = |rows: &[(AuditId, String)]| {
        rows.iter().map(|(_, target)| target.clone()).collect::<Vec<_>>()
    };
    let first = targets(None, Some(50), None).await;
    assert_eq!(named(&first), ["key_5", "key_4", "key_3", "key_1"]);
    assert_eq!(named(&targets(None, Some(50), Some(first[3].0.clone())).await), ["key_0"]);
    assert_eq!(named(&targets(Some(6), Some(9), None).await), ["key_4", "key_3", "key_1"]);
    assert_eq!(named(&targets(Some(800_000), None, None).await), ["key_2"]);
    assert!(
        targets(Some(1_000_000), None, None).await.is_empty()
            && targets(None, Some(5), None).await.is_empty()
    );
}

async fn note(store: &Store, second: i64, times: usize) {
    for n in 0..times {
        let actor = Actor { kind: "session".into(), id: "sess_1".into() };
        let id = format!("{second}-{n}");
        store.note(Event::new(at(second), actor, Action::KeyCreate, "key", &id)).await.unwrap();
    }
}

async fn left(store: &Store) -> Vec<String> {
    let rows = store.audit(AuditFilter::default(), 10_000, None).await.unwrap().unwrap();
    rows.into_iter().map(|row| row.target).collect()
}

pub(crate) async fn rows_leave_by_age_and_by_number_in_steps(bed: &impl Bed) {
    let store = bed.open().await;
    note(&store, 0, 3).await;
    note(&store, 10, 2).await;
    note(&store, 30, RETENTION_BATCH + 100).await;
    let all = left(&store).await;
    assert_eq!(store.trim_audit(at(0), 10_000).await.unwrap(), 0);
    assert_eq!(store.trim_audit(at(0), all.len() as u64).await.unwrap(), 0);
    assert_eq!(left(&store).await, all, "within the retention no row leaves");
    assert_eq!(store.trim_audit(at(10), 10_000).await.unwrap(), 3);
    assert_eq!(left(&store).await, all[..all.len() - 3], "the oldest by their time");
    // In more than one step, the oldest first.
    let surplus = RETENTION_BATCH as u64 + 72;
    assert_eq!(store.trim_audit(at(0), 30).await.unwrap(), surplus);
    assert_eq!(left(&store).await, all[..30]);
    // A row from a clock that was set ahead is kept by its age, and deleted by its number.
    note(&store, 900_000, 1).await;
    note(&store, 40, 5).await;
    assert_eq!(store.trim_audit(at(50), 3).await.unwrap(), 35);
    note(&store, 60, 2).await;
    assert_eq!(store.trim_audit(at(50), 3).await.unwrap(), 1);
    assert_eq!(left(&store).await, ["60-1", "60-0"]);
    assert_eq!(store.trim_audit(at(100), 0).await.unwrap(), 2);
    note(&store, 40, 1).await;
    // Only the retention deletes.
    refuses(&store, "DELETE FROM audit").await;
}

/// Checks that a statement on audit rows is refused, whoever runs it.
async fn refuses(store: &Store, statement: &'static str) {
    let refused = store.write(move |transaction| transaction.execute(statement, &[])).await;
    assert!(refused.is_err(), "{statement}");
}

pub(crate) async fn rows_are_neither_changed_nor_taken_out(bed: &impl Bed) {
    let store = bed.open().await;
    store.note(event(0, Action::KeyCreate, "key_1")).await.unwrap();
    refuses(&store, "UPDATE audit SET actor = 'x'").await;
    refuses(&store, "DELETE FROM audit").await;
    assert_eq!(all(&store).await, [("key.create".to_owned(), "key_1".to_owned())]);
}
