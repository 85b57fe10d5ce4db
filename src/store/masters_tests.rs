//! Master keys as the store knows them, and digests that move from one pepper to the next.

use std::path::Path;

use super::*;
use crate::id::{Random, UserId};
use crate::store::tests::{at, key, session, user};
use crate::store::{DataDir, KeyRow, NewSecret, Seen, SessionRow, schema};

fn numbers(store: &Path) -> Vec<(u32, Vec<u8>, bool)> {
    let mut connection = rusqlite::Connection::open(store.join("accounts.db")).unwrap();
    let rows = super::claim::<_, StoreError>(&mut connection, |masters| masters.rows()).unwrap();
    rows.into_iter().map(|row| (row.number, row.fingerprint, row.pepper.is_some())).collect()
}

#[tokio::test]
async fn what_a_claim_does_holds_or_has_not_happened() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path(), b"one").await.unwrap());
    let next = |masters: &Masters<'_>| {
        masters.retire(1, Some(b"sealed"), None)?;
        masters.begin(2, b"two", at(5))?;
        Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()))
    };
    let failed = Store::open_in(DataDir::take(dir.path()).unwrap(), move |masters| {
        next(masters)?;
        Err::<(SecretBytes, ()), _>(StoreError::unavailable("killed"))
    });
    assert!(failed.await.is_err());
    assert_eq!(numbers(dir.path()), [(1, b"one".to_vec(), false)]);
    drop(Store::open(dir.path(), b"one").await.unwrap());
    let (store, ()) = Store::open_in(DataDir::take(dir.path()).unwrap(), next).await.unwrap();
    drop(store);
    assert_eq!(numbers(dir.path()), [(2, b"two".to_vec(), false), (1, b"one".to_vec(), true)]);
    assert!(matches!(Store::open(dir.path(), b"one").await, Err(StoreError::OtherMasterKey)));
    let store = Store::open(dir.path(), b"two").await.unwrap();
    store.forget_pepper(1).await.unwrap();
    drop(store);
    assert_eq!(numbers(dir.path()), [(2, b"two".to_vec(), false), (1, b"one".to_vec(), false)]);
}

#[tokio::test]
async fn a_store_from_before_master_keys_had_numbers_has_its_first() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(3);
    let (ann, login) = (
        user("ann@example.com", &random),
        session(&user("ann@example.com", &random).id, 1, &random),
    );
    let login = SessionRow { user: ann.id.clone(), ..login };
    {
        let file = rusqlite::Connection::open(dir.path().join("accounts.db")).unwrap();
        let before = schema::ACCOUNTS
            .iter()
            .position(|step| step.contains("CREATE TABLE master_keys"))
            .unwrap();
        schema::ACCOUNTS[..before].iter().for_each(|step| file.execute_batch(step).unwrap());
        file.pragma_update(None, "user_version", u32::try_from(before).unwrap()).unwrap();
        file.execute("INSERT INTO state (one, rev, master) VALUES (1, 4, ?1)", [&b"one"[..]])
            .unwrap();
        let insert_user = "INSERT INTO users (id, email, role, password, disabled, labels, created_at) VALUES (?1, ?2, 'user', 'x', 0, '{}', 0)";
        file.execute(insert_user, params![ann.id.as_str(), ann.email]).unwrap();
        let values = params![
            login.id.as_str(),
            ann.id.as_str(),
            login.cookie_digest,
            login.token_digest,
            at(1).as_microsecond()
        ];
        let insert = "INSERT INTO sessions (id, user, cookie_digest, token_digest, created_at, expires_at, last_seen)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?5 + 100000000, ?5)";
        file.execute(insert, values).unwrap();
    }
    assert!(matches!(Store::open(dir.path(), b"two").await, Err(StoreError::OtherMasterKey)));
    let store = Store::open(dir.path(), b"one").await.unwrap();
    let read = store.load().await.unwrap();
    assert_eq!((read.rev, read.sessions), (4, vec![login]));
    drop(store);
    assert_eq!(numbers(dir.path()), [(1, b"one".to_vec(), false)]);
}

/// What is known of a key by now.
async fn row(store: &Store, id: &KeyId) -> KeyRow {
    store.load().await.unwrap().keys.into_iter().find(|key| key.id == *id).unwrap()
}

fn moved(of: DigestOf, from: [u8; 32], to: u8) -> MovedDigest {
    MovedDigest { of, from, to: [to; 32], pepper: 2 }
}

#[tokio::test]
async fn digests_of_keys_move_where_they_are_and_nothing_else_changes() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(4);
    let store = Store::open(dir.path(), b"one").await.unwrap();
    let [own, graced, ended] =
        [0; 3].map(|_| KeyRow { expires_at: None, ..key(&UserId::admin(), &random) });
    for key in [&own, &graced, &ended] {
        store.create_key(key.clone()).await.unwrap();
    }
    let of = |key: &KeyRow| DigestOf::Key(key.id.clone());
    // Between the use and the move the secret was replaced, and has a grace.
    let secret = NewSecret {
        redacted: "rtr_new…".into(),
        digest: [7; 32],
        pepper: 2,
        grace_ends: Some(at(60)),
    };
    store
        .rotate_key(&graced.id, secret, Seen { generation: 1, ..Seen::default() }, at(3))
        .await
        .unwrap();
    store.revoke_key(&ended.id, at(3)).await.unwrap();
    let left = |keys, sessions| Left { keys, sessions };
    assert_eq!(store.known_by_pepper(1, at(4)).await.unwrap(), left(2, 0));
    assert_eq!(store.known_by_pepper(1, at(60)).await.unwrap(), left(1, 0), "a grace that is over");
    assert_eq!(store.known_by_pepper(2, at(4)).await.unwrap(), left(1, 0));
    let batch = vec![
        moved(of(&own), own.digest, 11),
        moved(of(&graced), graced.digest, 12),
        moved(of(&ended), ended.digest, 13),
        moved(of(&own), [99; 32], 14),
        moved(of(&own), own.digest, 15),
    ];
    let committed = store.move_digests(batch.clone()).await.unwrap();
    let changed: Vec<&KeyId> = committed
        .changes
        .iter()
        .map(|change| if let Change::Key(key) = change { &key.id } else { panic!() })
        .collect();
    assert_eq!(changed, [&own.id, &graced.id]);
    assert_eq!(row(&store, &own.id).await, KeyRow { digest: [11; 32], pepper: 2, ..own.clone() });
    let previous = row(&store, &graced.id).await.previous.unwrap();
    assert_eq!((previous.digest, previous.pepper, previous.expires_at), ([12; 32], 2, at(60)));
    assert_eq!(row(&store, &graced.id).await.digest, [7; 32]);
    assert_eq!(row(&store, &ended.id).await, KeyRow { revoked_at: Some(at(3)), ..ended });
    assert!(store.known_by_pepper(1, at(4)).await.unwrap().is_nothing());
    let again = store.move_digests(batch).await.unwrap();
    assert_eq!((again.rev, again.changes.len()), (committed.rev, 0));
    assert!(!format!("{:?}", moved(of(&own), own.digest, 11)).contains("11"), "no digest is shown");
}

#[tokio::test]
async fn a_session_s_two_secrets_move_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let random = Random::seeded(5);
    let store = Store::open(dir.path(), b"one").await.unwrap();
    let ann = user("ann@example.com", &random);
    let login = session(&ann.id, 2, &random);
    store.create_user(ann.clone()).await.unwrap();
    store.create_session(login.clone(), ann.password, 20).await.unwrap();
    let sessions = |sessions| Left { keys: 0, sessions };
    store
        .move_digests(vec![moved(DigestOf::Token(login.id.clone()), login.token_digest, 21)])
        .await
        .unwrap();
    let half = SessionRow { token_digest: [21; 32], token_pepper: 2, ..login.clone() };
    assert_eq!(store.load().await.unwrap().sessions, std::slice::from_ref(&half));
    assert_eq!(store.known_by_pepper(1, at(4)).await.unwrap(), sessions(1));
    let wrong = moved(DigestOf::Token(login.id.clone()), login.cookie_digest, 22);
    assert!(store.move_digests(vec![wrong]).await.unwrap().changes.is_empty());
    let committed = store
        .move_digests(vec![moved(DigestOf::Cookie(login.id.clone()), login.cookie_digest, 22)])
        .await
        .unwrap();
    let whole = SessionRow { cookie_digest: [22; 32], cookie_pepper: 2, ..half };
    assert_eq!(committed.changes, [Change::Session(whole)]);
    assert_eq!(store.known_by_pepper(1, at(4)).await.unwrap(), sessions(0));
    assert_eq!(store.known_by_pepper(2, at(1_000)).await.unwrap(), sessions(0), "one that is over");
}
