//! The audit as users of the store see it, on real files.

use std::path::Path;

use super::*;
use crate::clock::tests::at;
use crate::id::Random;
use crate::store::audit_retention::tests::plan;
use crate::store::fixtures::{key, user};
use crate::store::{Faults, Store};

fn event(second: i64, action: Action, target: &str) -> Event {
    let actor = Actor { kind: "session".into(), id: "sess_1".into() };
    Event::new(at(second), actor, action, "key", target)
        .by(Some(RequestId::known("req_1")), Some("192.0.2.1".parse().unwrap()))
}

async fn open(dir: &Path) -> Store {
    Store::open(dir).await.unwrap()
}

async fn all(store: &Store) -> Vec<(String, String)> {
    let rows = store.audit(AuditFilter::default(), 100, None).await.unwrap().unwrap();
    rows.into_iter().map(|row| (row.action, row.target.id)).collect()
}

#[tokio::test]
async fn a_row_is_there_exactly_when_its_change_is() {
    let dir = tempfile::tempdir().unwrap();
    let (random, faults) = (Random::seeded(1), Faults::default());
    let store = open(dir.path()).await.with_faults(faults.clone());
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let key = key(&ann.id, &random);
    let id = key.id.as_str();
    let making = store.noting(event(1, Action::KeyCreate, id));
    faults.fail_writes(1);
    making.create_key(key.clone()).await.unwrap_err();
    assert_eq!(all(&store).await, []);
    making.create_key(key.clone()).await.unwrap();
    // A refused one, and one that changes nothing, are none.
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
    let store = open(dir.path()).await;
    assert_eq!(all(&store).await, expected);
    let last = store.audit(AuditFilter::default(), 1, None).await.unwrap().unwrap().remove(0);
    assert_eq!(
        (last.at, last.actor.id.as_str(), last.target.kind.as_str()),
        (at(4), "sess_1", "key")
    );
    assert_eq!(
        (last.request.as_deref(), last.address.as_deref()),
        (Some("req_1"), Some("192.0.2.1"))
    );
}

#[tokio::test]
async fn pages_and_filters_find_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    // Within one millisecond, where ids say nothing of the order.
    for n in 0..7 {
        let action = if n % 2 == 0 { Action::KeyCreate } else { Action::KeyRevoke };
        store.note(event(0, action, &format!("key_{n}"))).await.unwrap();
    }
    store.note(event(50, Action::KeyRotate, "key_0")).await.unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = store.audit(AuditFilter::default(), 3, after.clone()).await.unwrap().unwrap();
        seen.extend(page.iter().map(|row| row.target.id.clone()));
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

#[tokio::test]
async fn nothing_is_left_after_a_row_that_the_retention_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for n in 0..4 {
        store.note(event(n, Action::KeyCreate, &format!("key_{n}"))).await.unwrap();
    }
    let page = store.audit(AuditFilter::default(), 2, None).await.unwrap().unwrap();
    let after = page[1].id.clone();
    let rest = store.audit(AuditFilter::default(), 10, Some(after.clone())).await.unwrap().unwrap();
    assert_eq!(rest.iter().map(|row| &row.target.id).collect::<Vec<_>>(), ["key_1", "key_0"]);
    assert_eq!(store.trim_audit(at(0), 1).await.unwrap(), 3);
    let rest = store.audit(AuditFilter::default(), 10, Some(after)).await.unwrap();
    assert_eq!(rest, Some(Vec::new()));
}

#[tokio::test]
async fn rows_are_neither_changed_nor_taken_out_nor_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    store.note(event(0, Action::KeyCreate, "key_1")).await.unwrap();
    drop(store);
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    for statement in [
        "UPDATE audit SET actor = 'x'",
        "DELETE FROM audit",
        "INSERT OR REPLACE INTO audit SELECT seq, 'aud_x', at, actor_type, 'x', action, \
         target_type, target, request, address FROM audit",
        "INSERT OR REPLACE INTO audit SELECT seq + 1, id, at, actor_type, 'x', action, \
         target_type, target, request, address FROM audit",
    ] {
        let refused = file.execute(statement, []).unwrap_err().to_string();
        assert!(refused.contains("audit rows are only added"), "{statement}: {refused}");
    }
    let actors: Vec<String> = file
        .prepare("SELECT actor FROM audit")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(actors, ["sess_1"]);
}

/// By the index of what is named that is the rarest by its nature: an owner of a million rows of
/// `key.create` asks for those of one session, and all of that action would be looked through.
#[tokio::test]
async fn what_is_named_is_found_by_an_index() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).await);
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    let (target, actor, action) =
        (Some("key_1".to_owned()), Some("sess_1".to_owned()), Some(Action::KeyCreate));
    for (filter, index) in [
        (
            AuditFilter { target: target.clone(), ..AuditFilter::default() },
            "audit_target (target=?",
        ),
        (AuditFilter { actor: actor.clone(), ..AuditFilter::default() }, "audit_actor (actor=?"),
        (AuditFilter { action, ..AuditFilter::default() }, "audit_action (action=?"),
        (
            AuditFilter { target, actor: actor.clone(), action, ..AuditFilter::default() },
            "audit_target (target=?",
        ),
        (
            AuditFilter {
                actor,
                action,
                since: Some(at(0)),
                until: Some(at(1)),
                ..AuditFilter::default()
            },
            "audit_actor (actor=?",
        ),
    ] {
        let (conditions, _) = conditions(&filter);
        let steps = plan(&file, &select(&conditions));
        assert!(steps.contains(index) && !steps.contains("TEMP B-TREE"), "{conditions:?}: {steps}");
    }
    let of_time = AuditFilter { since: Some(at(0)), until: Some(at(1)), ..AuditFilter::default() };
    let steps = plan(&file, &select(&conditions(&of_time).0));
    assert_eq!(steps, "SEARCH audit USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)");
    assert_eq!(plan(&file, OF_TIME), "SEARCH audit USING COVERING INDEX audit_at (at>? AND at<?)");
    assert_eq!(plan(&file, LAST), "SEARCH audit");
}

/// More rows than are looked through without looking up where those of a time are; and a clock that
/// was set back and forth.
#[tokio::test]
async fn rows_of_a_time_are_found_however_many_there_are_after_them() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await;
    for (n, second) in [5, 6, 900_000, 7, 8].into_iter().enumerate() {
        store.note(event(second, Action::KeyCreate, &format!("key_{n}"))).await.unwrap();
    }
    let file = Connection::open(dir.path().join("accounts.db")).unwrap();
    file.execute(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n <= ?1)
         INSERT INTO audit (id, at, actor_type, actor, action, target_type, target)
         SELECT 'aud_' || n, ?2 + n, 'user', 'usr_1', 'key.revoke', 'key', 'other' FROM n",
        [NEAR, at(100).as_microsecond()],
    )
    .unwrap();
    store.note(event(9, Action::KeyCreate, "key_5")).await.unwrap();
    let targets = async |since: Option<i64>,
                         until: Option<i64>,
                         after: Option<AuditId>|
           -> Vec<(AuditId, String)> {
        let filter =
            AuditFilter { since: since.map(at), until: until.map(at), ..AuditFilter::default() };
        let rows = store.audit(filter, 4, after).await.unwrap().unwrap();
        rows.into_iter().map(|row| (row.id, row.target.id)).collect()
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
