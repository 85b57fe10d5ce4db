//! The store as its users see it, on real files.

use std::sync::Mutex;

use super::rows::PreviousSecret;
use super::*;
use crate::clock::tests::at;
use crate::id::{AgentId, KeyId, Random, UserId};
use crate::store::fixtures::{agent, key, node, session, user};

async fn refused(dir: &Path) -> StoreError {
    match Store::open(dir).await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn what_was_answered_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(1);
    let ann = user("ann@example.com", &random);
    let (live, ended) = (key(&ann.id, &random), key(&ann.id, &random));
    let login = session(&ann.id, 2, &random);
    {
        let store = Store::open(dir.path()).await.unwrap();
        assert_eq!(store.create_user(ann.clone()).await.unwrap().rev, 1);
        assert_eq!(
            store.create_key(live.clone()).await.unwrap().changes,
            [Change::Key(live.clone().into())]
        );
        store.create_key(ended.clone()).await.unwrap();
        store.create_session(login.clone(), ann.password.clone(), 20).await.unwrap();
        assert_eq!(store.revoke_key(&ended.id, at(9)).await.unwrap().rev, 5);
        store.keep_document("0123456789ab", "a: 1", at(3)).await.unwrap();
        store.keep_document("0123456789ab", "other", at(4)).await.unwrap();
    }
    let store = Store::open(dir.path()).await.unwrap();
    let read = store.load().await.unwrap();
    assert_eq!(read.rev, 5);
    assert_eq!(read.users, [ann]);
    assert_eq!(read.sessions, [login]);
    assert_eq!(read.keys.len(), 2);
    assert!(read.keys.contains(&live));
    assert!(read.keys.contains(&KeyRow { revoked_at: Some(at(9)), ..ended.clone() }));
    assert_eq!(
        store.document("0123456789ab").await.unwrap().as_deref(),
        Some("other"),
        "the newest wording"
    );
    assert_eq!(store.document("ba9876543210").await.unwrap(), None);
    let again = store.revoke_key(&ended.id, at(50)).await.unwrap();
    assert_eq!((again.rev, again.changes.len()), (5, 0));
    assert!(matches!(
        store.revoke_key(&KeyId::new(at(0), &random), at(1)).await,
        Err(StoreError::NotFound)
    ));
}

#[tokio::test]
async fn a_taken_email_a_full_owner_and_an_ended_parent_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(2);
    let store = Store::open(dir.path()).await.unwrap();
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    assert!(matches!(
        store.create_user(user("ann@example.com", &random)).await,
        Err(StoreError::Conflict)
    ));

    let parent = key(&ann.id, &random);
    store.create_key(parent.clone()).await.unwrap();
    store.revoke_key(&parent.id, at(2)).await.unwrap();
    let child = KeyRow { parent: Some(parent.id.clone()), ..key(&ann.id, &random) };
    assert!(matches!(store.create_key(child).await, Err(StoreError::KeyRevoked)));

    let made = futures::future::join_all(
        (0..crate::bounds::KEYS_PER_OWNER + 5).map(|_| store.create_key(key(&ann.id, &random))),
    )
    .await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), crate::bounds::KEYS_PER_OWNER);
    assert!(
        made.iter()
            .filter_map(|made| made.as_ref().err())
            .all(|error| matches!(error, StoreError::LimitReached))
    );
    store.create_key(key(&UserId::admin(), &random)).await.unwrap();
}

#[tokio::test]
async fn another_schema_and_a_second_process_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = Store::open(dir.path()).await.unwrap();
    assert!(matches!(refused(dir.path()).await, StoreError::Locked(_)));
    drop(first);
    for schema in [1, 13, 99] {
        rusqlite::Connection::open(dir.path().join("accounts.db"))
            .unwrap()
            .pragma_update(None, "user_version", schema)
            .unwrap();
        let error = refused(dir.path()).await;
        assert!(matches!(error, StoreError::OtherSchema { found, .. } if found == schema));
        assert!(error.to_string().contains(&format!("schema {schema},")), "{error}");
    }
}

#[tokio::test]
async fn a_user_keeps_the_newest_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(3);
    let store = Store::open(dir.path()).await.unwrap();
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let sessions: Vec<SessionRow> =
        (0..4).map(|second| session(&ann.id, second, &random)).collect();
    for login in &sessions[..3] {
        store.create_session(login.clone(), ann.password.clone(), 3).await.unwrap();
    }
    let last = store.create_session(sessions[3].clone(), ann.password.clone(), 3).await.unwrap();
    assert_eq!(
        last.changes,
        [Change::SessionEnded(sessions[0].id.clone()), Change::Session(sessions[3].clone())]
    );
    let swept = store
        .sweep_sessions(vec![(sessions[2].id.clone(), at(60))], vec![sessions[1].id.clone()])
        .await
        .unwrap();
    assert_eq!(swept.changes, [Change::SessionEnded(sessions[1].id.clone())]);
    let mut left = store.load().await.unwrap().sessions;
    left.sort_by_key(|row| row.created_at);
    assert_eq!(
        left,
        [SessionRow { last_seen: at(60), ..sessions[2].clone() }, sessions[3].clone()]
    );
}

#[tokio::test]
async fn a_session_begins_only_with_the_password_that_is_and_for_a_user_who_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(33);
    let store = Store::open(dir.path()).await.unwrap();
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let begin = async |password: &str| {
        store.create_session(session(&ann.id, 1, &random), password.to_owned(), 20).await
    };
    let first = session(&ann.id, 0, &random);
    store.create_session(first.clone(), ann.password.clone(), 20).await.unwrap();
    store.change_password(&ann.id, ann.password.clone(), "new".into(), &first.id).await.unwrap();
    assert!(matches!(begin(&ann.password).await, Err(StoreError::Conflict)));
    begin("new").await.unwrap();
    let disable = |disabled: bool| -> ChangeUser {
        std::sync::Arc::new(move |user: &mut UserRow| {
            user.disabled = disabled;
            Ok(())
        })
    };
    store.update_user(&ann.id, true, disable(true)).await.unwrap();
    assert!(matches!(begin("new").await, Err(StoreError::Conflict)));
    assert!(store.load().await.unwrap().sessions.is_empty());
    store.update_user(&ann.id, true, disable(false)).await.unwrap();
    begin("new").await.unwrap();
    let other = session(&UserId::known("usr_nobody"), 1, &random);
    assert!(matches!(
        store.create_session(other, "new".into(), 20).await,
        Err(StoreError::Conflict)
    ));
}

#[tokio::test]
async fn a_failed_write_changes_nothing_and_followers_hear_only_of_what_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(4);
    let faults = Faults::default();
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    assert!(store.follow(Box::new(move |committed| ear.lock().unwrap().push(committed.rev))));
    assert!(!store.follow(Box::new(|_| ())));

    faults.fail_writes(1);
    assert!(matches!(
        store.create_user(user("a@b.c", &random)).await,
        Err(StoreError::Unavailable(_))
    ));
    store.create_user(user("a@b.c", &random)).await.unwrap();
    faults.fail_every_write();
    assert!(store.create_user(user("d@e.f", &random)).await.is_err());
    assert!(!store.healthy().await);
    faults.clear();
    assert!(store.healthy().await);
    store.create_user(user("d@e.f", &random)).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), [1, 2]);
}

#[tokio::test]
async fn health_checks_take_one_place_in_the_queue_of_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (random, faults) = (Random::seeded(5), Faults::default());
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    faults.stall_writes();
    let write = |email: &str| {
        let (store, user) = (store.clone(), user(email, &random));
        tokio::spawn(async move { store.create_user(user).await })
    };
    let first = write("a@b.c");
    let checks: Vec<_> = (0..3_000)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.healthy().await })
        })
        .collect();
    tokio::task::yield_now().await;
    // A caller that is dropped leaves its check in the queue.
    checks[..1_500].iter().for_each(|check| check.abort());
    tokio::task::yield_now().await;
    let second = write("d@e.f");
    tokio::task::yield_now().await;
    faults.clear();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    for check in checks.into_iter().skip(1_500) {
        assert!(check.await.unwrap());
    }
}

#[tokio::test]
async fn nobody_else_reads_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    store.create_user(user("a@example.org", &Random::seeded(1))).await.unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.contains(".db") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "two databases and a journal");
}

#[tokio::test]
async fn a_rotation_keeps_the_secret_before_it_and_is_refused_for_a_key_that_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(7);
    let row = KeyRow { expires_at: None, ..key(&UserId::admin(), &random) };
    let secret =
        NewSecret { redacted: "rtr_new…".into(), digest: [9; 32], grace_ends: Some(at(60)) };
    let rotated = {
        let store = Store::open(dir.path()).await.unwrap();
        store.create_key(row.clone()).await.unwrap();
        let committed = store.rotate_key(&row.id, secret.clone(), seen(1), at(3)).await.unwrap();
        let [Change::Key(rotated)] = committed.changes.as_slice() else { panic!("{committed:?}") };
        KeyRow::clone(rotated)
    };
    let previous = Some(PreviousSecret { digest: row.digest, expires_at: at(60) });
    let expected = KeyRow {
        redacted: "rtr_new…".into(),
        digest: [9; 32],
        rotated_at: Some(at(3)),
        generation: 2,
        previous,
        ..row.clone()
    };
    assert!(rotated == expected, "{rotated:?}");
    let store = Store::open(dir.path()).await.unwrap();
    assert!(store.load().await.unwrap().keys == [expected]);
    store.revoke_key(&row.id, at(4)).await.unwrap();
    assert!(matches!(
        store.rotate_key(&row.id, secret.clone(), seen(2), at(5)).await,
        Err(StoreError::KeyRevoked)
    ));
    let short = KeyRow { expires_at: Some(at(6)), ..key(&UserId::admin(), &random) };
    store.create_key(short.clone()).await.unwrap();
    assert!(matches!(
        store.rotate_key(&short.id, secret.clone(), seen(1), at(6)).await,
        Err(StoreError::KeyExpired)
    ));
    assert!(matches!(
        store.rotate_key(&KeyId::new(at(0), &random), secret, seen(1), at(6)).await,
        Err(StoreError::NotFound)
    ));
}

/// A rotation by nobody's key of one in this generation.
fn seen(generation: u32) -> Seen {
    Seen { generation, ..Seen::default() }
}

#[tokio::test]
async fn of_two_rotations_on_one_look_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(10);
    let store = Store::open(dir.path()).await.unwrap();
    let [own, other] = [0, 1].map(|_| key(&UserId::admin(), &random));
    for key in [&own, &other] {
        store.create_key(key.clone()).await.unwrap();
    }
    let secret =
        |digest| NewSecret {
            redacted: "rtr_new…".into(), digest: [digest; 32], grace_ends: None
        };
    store.rotate_key(&own.id, secret(1), seen(1), at(2)).await.unwrap();
    let by = |generation| Seen {
        generation: 1,
        by: Some((own.id.clone(), generation)),
        ..Seen::default()
    };
    for (id, seen) in [(&own.id, seen(1)), (&other.id, seen(2)), (&other.id, by(1))] {
        assert!(matches!(
            store.rotate_key(id, secret(2), seen, at(3)).await,
            Err(StoreError::Conflict)
        ));
    }
    store.rotate_key(&other.id, secret(3), by(2), at(4)).await.unwrap();
    store.revoke_key(&own.id, at(5)).await.unwrap();
    let late = Seen { generation: 2, by: Some((own.id.clone(), 2)), ..Seen::default() };
    assert!(
        matches!(
            store.rotate_key(&other.id, secret(4), late, at(6)).await,
            Err(StoreError::Conflict)
        ),
        "who acts has ended"
    );
}

#[tokio::test]
async fn of_keys_that_ended_only_the_newest_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (random, owner) = (Random::seeded(11), UserId::admin());
    let most = i64::try_from(crate::bounds::ENDED_KEYS_PER_OWNER).unwrap();
    let made = |second: i64, expires: Option<i64>| KeyRow {
        id: KeyId::new(at(second), &random),
        created_at: at(second),
        expires_at: expires.map(at),
        ..key(&owner, &random)
    };
    let store = Store::open(dir.path()).await.unwrap();
    let [first, second] = [0, 1].map(|second| made(second, Some(most * 3)));
    let child = KeyRow { parent: Some(first.id.clone()), ..made(2, None) };
    for key in [&first, &second, &child] {
        store.create_key(key.clone()).await.unwrap();
    }
    for key in [&first, &second] {
        store.revoke_key(&key.id, at(3)).await.unwrap();
    }
    // Each is over when the next is made. The last of them still finds room for all but the first,
    // which made a key that lives.
    let expiring = (0..most).map(|n| store.create_key(made(10 + n, Some(11 + n))));
    for made in futures::future::join_all(expiring).await {
        assert_eq!(made.unwrap().changes.len(), 1);
    }
    let live = made(most + 20, None);
    let changes = store.create_key(live.clone()).await.unwrap().changes;
    assert_eq!(
        changes,
        [Change::KeyForgotten(second.id.clone()), Change::Key(live.clone().into())],
        "a child keeps those it draws on"
    );
    drop(store);
    let store = Store::open(dir.path()).await.unwrap();
    let keys = store.load().await.unwrap().keys;
    assert_eq!(keys.len(), crate::bounds::ENDED_KEYS_PER_OWNER + 3);
    assert!(
        keys.contains(&child)
            && keys.contains(&live)
            && !keys.iter().any(|key| key.id == second.id)
    );
    assert!(keys.iter().any(|key| key.id == first.id));
}

#[tokio::test]
async fn of_two_changes_of_a_password_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(8);
    let store = Store::open(dir.path()).await.unwrap();
    let ann = user("ann@example.com", &random);
    store.create_user(ann.clone()).await.unwrap();
    let sessions: Vec<SessionRow> =
        (0..3).map(|second| session(&ann.id, second, &random)).collect();
    for login in &sessions {
        store.create_session(login.clone(), ann.password.clone(), 20).await.unwrap();
    }
    let committed = store
        .change_password(&ann.id, ann.password.clone(), "new".into(), &sessions[1].id)
        .await
        .unwrap();
    let changed = UserRow { password: "new".into(), ..ann.clone() };
    assert!(committed.changes.contains(&Change::User(changed.clone().into())));
    for ended in [0, 2] {
        assert!(committed.changes.contains(&Change::SessionEnded(sessions[ended].id.clone())));
    }
    let late =
        store.change_password(&ann.id, ann.password.clone(), "other".into(), &sessions[1].id).await;
    assert!(matches!(late, Err(StoreError::Conflict)));
    let read = store.load().await.unwrap();
    assert_eq!((read.users, read.sessions), (vec![changed], vec![sessions[1].clone()]));
}

#[tokio::test]
async fn agents_have_one_name_each_and_there_are_not_too_many() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(9);
    let agent = |name: &str| agent(name, &random);
    let first = agent("first");
    {
        let store = Store::open(dir.path()).await.unwrap();
        store.create_agent(first.clone()).await.unwrap();
        assert!(matches!(store.create_agent(agent("first")).await, Err(StoreError::Conflict)));
        let surplus =
            (1..crate::bounds::AGENTS).map(|n| store.create_agent(agent(&format!("a-{n}"))));
        assert!(futures::future::join_all(surplus).await.iter().all(Result::is_ok));
        assert!(matches!(store.create_agent(agent("last")).await, Err(StoreError::LimitReached)));
    }
    let store = Store::open(dir.path()).await.unwrap();
    assert!(store.load().await.unwrap().agents.contains(&first));
    let renamed = AgentRow { name: "renamed".into(), updated_at: at(3), ..first.clone() };
    assert_eq!(
        store.update_agent(renamed.clone(), first.etag()).await.unwrap().changes,
        [Change::Agent(renamed.clone().into())]
    );
    assert!(matches!(
        store.update_agent(first.clone(), first.etag()).await,
        Err(StoreError::Stale)
    ));
    let taken = AgentRow { name: "a-1".into(), ..renamed.clone() };
    assert!(matches!(store.update_agent(taken, renamed.etag()).await, Err(StoreError::Conflict)));
    let absent = AgentRow { id: AgentId::new(at(9), &random), ..renamed.clone() };
    assert!(matches!(store.update_agent(absent, renamed.etag()).await, Err(StoreError::NotFound)));
    assert!(store.load().await.unwrap().agents.contains(&renamed));
    assert!(matches!(
        store.delete_agent(&first.id, Some(first.etag())).await,
        Err(StoreError::Stale)
    ));
    assert_eq!(
        store.delete_agent(&first.id, None).await.unwrap().changes,
        [Change::AgentDeleted(first.id.clone())]
    );
    assert_eq!(store.delete_agent(&first.id, None).await.unwrap().changes, []);
    store.create_agent(agent("last")).await.unwrap();
}

#[tokio::test]
async fn a_nonce_is_spent_once_and_the_first_use_of_a_generation_ends_the_one_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    let node = node(&Random::seeded(5));
    let id = node.id.clone();
    store.create_node(node.clone()).await.unwrap();
    assert!(matches!(store.create_node(node.clone()).await, Err(StoreError::Conflict)));
    let spend = async |store: &Store, generation: u32, nonce: &str, second: i64| {
        let spent = SpentNonce {
            node: id.clone(),
            generation,
            nonce: nonce.into(),
            created: at(second).as_second(),
            at: at(second),
        };
        match store.spend_nonce(spent).await {
            Ok(committed) => format!("{} change(s)", committed.changes.len()),
            Err(error) => format!("{error:?}"),
        }
    };
    assert_eq!(
        (spend(&store, 1, "a", 0).await, spend(&store, 1, "a", 0).await),
        ("0 change(s)".into(), "Conflict".into())
    );
    drop(store);
    let store = Store::open(dir.path()).await.unwrap();
    assert_eq!(
        spend(&store, 1, "a", 120).await,
        "Conflict",
        "after a restart, for as long as it could come again"
    );
    assert_eq!(spend(&store, 1, "a", 241).await, "Conflict", "and longer: a clock may be set back");
    assert_eq!(spend(&store, 2, "b", 0).await, "NotFound");

    let previous = Some(PreviousNodeSecret { secret: vec![1], expires_at: at(600) });
    let next = NodeRow {
        generation: 2,
        secret: vec![2],
        previous,
        rotated_at: Some(at(0)),
        ..node.clone()
    };
    store.rotate_node(next.clone()).await.unwrap();
    assert!(
        matches!(store.rotate_node(next).await, Err(StoreError::Conflict)),
        "one of two at once"
    );
    assert_eq!(
        (spend(&store, 1, "c", 599).await, spend(&store, 1, "d", 600).await),
        ("0 change(s)".into(), "NotFound".into())
    );
    assert_eq!(
        (spend(&store, 2, "e", 300).await, spend(&store, 1, "f", 300).await),
        ("1 change(s)".into(), "NotFound".into())
    );
    let known = store.load().await.unwrap().nodes;
    assert_eq!(
        (known[0].generation, known[0].previous.is_some(), known[0].secret.clone()),
        (2, false, vec![2])
    );
    store.delete_node(&id).await.unwrap();
    assert!(store.delete_node(&id).await.unwrap().changes.is_empty());
    assert_eq!(spend(&store, 2, "g", 300).await, "NotFound");
}

#[tokio::test]
async fn a_patch_is_decided_on_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(31);
    let store = Store::open(dir.path()).await.unwrap();
    let (maker, own) = (key(&UserId::admin(), &random), key(&UserId::admin(), &random));
    let child = KeyRow { parent: Some(maker.id.clone()), ..key(&UserId::admin(), &random) };
    for row in [&maker, &own, &child] {
        store.create_key(row.clone()).await.unwrap();
    }
    let name = |name: &str| KeyPatch { name: Some(name.into()), ..KeyPatch::default() };
    let of = |by: u32, maker_at: u32| Seen {
        generation: 1,
        by: Some((own.id.clone(), by)),
        maker: Some((maker.id.clone(), maker_at)),
    };
    for stale in [Seen { generation: 2, ..of(1, 1) }, of(2, 1), of(1, 2)] {
        assert!(matches!(
            store.patch_key(&child.id, name("x"), stale).await,
            Err(StoreError::Conflict)
        ));
    }
    // What a maker has bounds what it made also when it has ended; one that has ended does not act.
    store.revoke_key(&maker.id, at(2)).await.unwrap();
    let patched = store.patch_key(&child.id, name("x"), of(1, 1)).await.unwrap();
    let expected = KeyRow { name: "x".into(), generation: 2, ..child.clone() };
    assert_eq!(patched.changes, [Change::Key(expected.clone().into())]);
    let same = Seen { generation: 2, ..of(1, 1) };
    assert_eq!(
        store.patch_key(&child.id, name("x"), same.clone()).await.unwrap(),
        Committed { rev: patched.rev, changes: vec![] }
    );
    store.revoke_key(&own.id, at(2)).await.unwrap();
    assert!(matches!(store.patch_key(&child.id, name("y"), same).await, Err(StoreError::Conflict)));
    assert!(matches!(
        store.patch_key(&own.id, name("y"), Seen { generation: 1, ..Seen::default() }).await,
        Err(StoreError::KeyRevoked)
    ));
    assert!(store.load().await.unwrap().keys.contains(&expected));
    // A key is made by what its maker was when that was looked at.
    let next = || KeyRow { parent: Some(child.id.clone()), ..key(&UserId::admin(), &random) };
    assert!(matches!(store.create_child(next(), 1).await, Err(StoreError::Conflict)));
    store.create_child(next(), 2).await.unwrap();
}
