//! Keys: created, rotated, changed, revoked and deleted.

use jiff::Timestamp;

use super::*;
use crate::KEYS_PER_OWNER;
use crate::keys::ENDED_KEYS_PER_OWNER;
use crate::rows::PreviousSecret;

pub(crate) async fn a_taken_email_a_full_owner_and_an_ended_parent_are_refused(bed: &impl Bed) {
    let random = Random::seeded(2);
    let store = bed.open().await;
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
        (0..KEYS_PER_OWNER + 5).map(|_| store.create_key(key(&ann.id, &random))),
    )
    .await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), KEYS_PER_OWNER);
    assert!(
        made.iter()
            .filter_map(|made| made.as_ref().err())
            .all(|error| matches!(error, StoreError::LimitReached))
    );
    store.create_key(key(&UserId::admin(), &random)).await.unwrap();
}

pub(crate) async fn a_rotation_keeps_the_secret_before_it_for_a_while(bed: &impl Bed) {
    let random = Random::seeded(7);
    let row = KeyRow { expires_at: None, ..key(&UserId::admin(), &random) };
    let secret =
        NewSecret { redacted: "rtr_new…".into(), digest: [9; 32], grace_ends: Some(at(60)) };
    let rotated = {
        let store = bed.open().await;
        store.create_key(row.clone()).await.unwrap();
        let committed = store.rotate_key(&row.id, secret.clone(), seen(1), at(3)).await.unwrap();
        let [Change::Key(rotated)] = committed.changes.as_slice() else { panic!("{committed:?}") };
        KeyRow::clone(rotated)
    };
    let previous = Some(PreviousSecret { digest: row.digest, expires_at: at(60) }.into());
    let expected = KeyRow {
        redacted: "rtr_new…".into(),
        digest: [9; 32],
        rotated_at: Some(at(3)),
        generation: 2,
        previous,
        ..row.clone()
    };
    assert!(rotated == expected, "{rotated:?}");
    let store = bed.open().await;
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

/// A rotation of a key in this generation, without a key of the caller.
fn seen(generation: u32) -> Seen {
    Seen { generation, ..Seen::default() }
}

pub(crate) async fn of_two_rotations_on_one_look_one_is_refused(bed: &impl Bed) {
    let random = Random::seeded(10);
    let store = bed.open().await;
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

pub(crate) async fn of_keys_that_ended_only_the_newest_are_kept(bed: &impl Bed) {
    let (random, owner) = (Random::seeded(11), UserId::admin());
    let most = i64::try_from(ENDED_KEYS_PER_OWNER).unwrap();
    let made = |second: i64, expires: Option<i64>| KeyRow {
        id: KeyId::new(at(second), &random),
        created_at: at(second),
        expires_at: expires.map(at),
        ..key(&owner, &random)
    };
    let store = bed.open().await;
    let [first, second] = [0, 1].map(|second| made(second, Some(most * 3)));
    let child = KeyRow { parent: Some(first.id.clone()), ..made(2, None) };
    for key in [&first, &second, &child] {
        store.create_key(key.clone()).await.unwrap();
    }
    for key in [&first, &second] {
        store.revoke_key(&key.id, at(3)).await.unwrap();
    }
    // Each key expires when the next one is created. The last creation deletes `second`, but not
    // `first`, which has a live child.
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
    let store = bed.open().await;
    let keys = store.load().await.unwrap().keys;
    assert_eq!(keys.len(), ENDED_KEYS_PER_OWNER + 3);
    assert!(
        keys.contains(&child)
            && keys.contains(&live)
            && !keys.iter().any(|key| key.id == second.id)
    );
    assert!(keys.iter().any(|key| key.id == first.id));
}

pub(crate) async fn a_patch_is_decided_on_what_is_there(bed: &impl Bed) {
    let random = Random::seeded(31);
    let store = bed.open().await;
    let (maker, own) = (key(&UserId::admin(), &random), key(&UserId::admin(), &random));
    let child = KeyRow { parent: Some(maker.id.clone()), ..key(&UserId::admin(), &random) };
    for row in [&maker, &own, &child] {
        store.create_key(row.clone()).await.unwrap();
    }
    let name = |name: &str| KeyChange { name: Some(name.into()), ..KeyChange::default() };
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
    // The limits of a maker bind the keys that it made even after it has ended. A key that has
    // ended cannot act.
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
    // A key is created only if its parent still has the generation that was seen.
    let next = || KeyRow { parent: Some(child.id.clone()), ..key(&UserId::admin(), &random) };
    assert!(matches!(store.create_key_by(next(), Some(1)).await, Err(StoreError::Conflict)));
    store.create_key_by(next(), Some(2)).await.unwrap();
}

pub(crate) async fn descendants_end_and_are_narrowed_with_a_key(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(41));
    let own = key(&UserId::admin(), &random);
    let below = |parent: &KeyRow| KeyRow {
        parent: Some(parent.id.clone()),
        ..key(&UserId::admin(), &random)
    };
    let child = below(&own);
    let [grandchild, other] = [below(&child), key(&UserId::admin(), &random)];
    let family = vec![own.clone(), child.clone(), grandchild.clone(), other.clone()];
    assert_eq!(store.create_keys(family).await.unwrap().rev, 1, "one mutation");
    let patch = KeyChange { expires_at: Some(at(500)), ..KeyChange::default() };
    let patched = store.patch_key(&own.id, patch, seen(1)).await.unwrap().changes;
    let narrowed = |row: &KeyRow, generation| {
        Change::Key(KeyRow { expires_at: Some(at(500)), generation, ..row.clone() }.into())
    };
    assert_eq!(patched, [narrowed(&own, 2), narrowed(&child, 2), narrowed(&grandchild, 2)]);
    store.revoke_key(&grandchild.id, at(7)).await.unwrap();
    let ended = store.revoke_descent(&own.id, at(9)).await.unwrap().changes;
    let ended: HashSet<KeyId> = ended
        .into_iter()
        .map(|change| match change {
            Change::Key(key) if key.revoked_at == Some(at(9)) => key.id.clone(),
            change => panic!("{change:?}"),
        })
        .collect();
    assert_eq!(ended, HashSet::from([own.id.clone(), child.id]));
    assert!(store.revoke_descent(&own.id, at(10)).await.unwrap().changes.is_empty());
    let keys = store.load().await.unwrap().keys;
    let revoked: HashMap<_, _> = keys.into_iter().map(|key| (key.id, key.revoked_at)).collect();
    assert_eq!((revoked[&grandchild.id], revoked[&other.id]), (Some(at(7)), None));
}

pub(crate) async fn the_last_use_of_a_key_only_moves_on(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(42));
    let own = key(&UserId::admin(), &random);
    store.create_key(own.clone()).await.unwrap();
    let gone = KeyId::new(at(0), &random);
    for (second, noted) in [(20, 20), (10, 20), (30, 30)] {
        let used = vec![(own.id.clone(), at(second)), (gone.clone(), at(second))];
        store.note_used(used).await.unwrap();
        let read = store.load().await.unwrap();
        assert_eq!((read.rev, read.keys[0].last_used_at), (1, Some(at(noted))), "no mutation");
    }
}

pub(crate) async fn every_field_comes_back_as_it_was(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(46));
    let text = "'; DROP TABLE keys; -- \"?1\" $1 \u{1f511} \u{7f} \\ \n%_";
    let labels = BTreeMap::from([(text.to_owned(), String::new())]);
    let parent = key(&UserId::admin(), &random);
    let full = KeyRow {
        name: text.into(),
        redacted: Box::default(),
        created_by: Actor { kind: text.into(), id: text.into() }.into(),
        parent: Some(parent.id.clone()),
        scopes: vec![text.into(), String::new()].into(),
        labels: labels.clone().into(),
        limits: Limits { rpm: Some(u64::MAX), tpm: Some(0), ..Limits::default() }.into(),
        status: KeyStatus::Inactive,
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: Some(Timestamp::from_second(253_402_200_000).unwrap()),
        rotated_at: Some(Timestamp::from_microsecond(-1).unwrap()),
        generation: u32::MAX,
        previous: Some(PreviousSecret { digest: [255; 32], expires_at: at(-9) }.into()),
        made_open: true,
        maker: Some(UserId::known("usr_maker")),
        last_used_at: Some(at(0)),
        metadata: labels.into(),
        ..key(&UserId::known("usr_owner"), &random)
    };
    let bare = KeyRow { expires_at: None, digest: [0; 32], ..key(&UserId::admin(), &random) };
    store.create_keys(vec![parent, full.clone(), bare.clone()]).await.unwrap();
    let keys = store.load().await.unwrap().keys;
    assert!(keys.contains(&full) && keys.contains(&bare));
}
