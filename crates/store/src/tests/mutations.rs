//! The common part of all mutations: they are durable, in one order, and followed.

use std::sync::{Arc, Mutex};

use super::*;
use crate::fixtures::{self, follower};

pub(crate) async fn what_was_answered_is_there_after_reopening(bed: &impl Bed) {
    let random = Random::seeded(1);
    let ann = user("ann@example.com", &random);
    let (live, ended) = (key(&ann.id, &random), key(&ann.id, &random));
    let login = session(&ann.id, 2, &random);
    {
        let store = bed.open().await;
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
    let store = bed.open().await;
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

pub(crate) async fn a_failed_write_changes_nothing_and_nobody_hears_of_it(bed: &impl Bed) {
    let random = Random::seeded(4);
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    store.follow(follower(move |committed| ear.lock().unwrap().push(committed.rev))).await.unwrap();
    assert!(!store.follow(follower(|_| ())).await.unwrap());

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

pub(crate) async fn a_panic_before_the_commit_ends_one_mutation(bed: &impl Bed) {
    let (random, faults) = (Random::seeded(4), Faults::default());
    let store = bed.open().await.with_faults(faults.clone());
    let [ann, bob] = ["a@b.c", "b@b.c"].map(|email| user(email, &random));
    faults.panic_at(PanicPoint::Commit, 1, "the canary");
    assert!(matches!(
        store.create_user(ann.clone()).await,
        Err(StoreError::Unavailable(why)) if !why.contains("canary")
    ));
    assert!(store.healthy().await);
    assert!(store.load().await.unwrap().users.is_empty(), "it is rolled back");
    store.create_user(bob.clone()).await.unwrap();
    assert_eq!(store.load().await.unwrap().users, [bob]);
}

pub(crate) async fn reads_fail_on_demand_and_a_start_reads_nevertheless(bed: &impl Bed) {
    let faults = Faults::default();
    let store = bed.open().await.with_faults(faults.clone());
    faults.fail_every_read();
    let failed = store.audit(AuditFilter::default(), 1, None).await;
    assert!(matches!(failed, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.live_document().await, Err(StoreError::Unavailable(_))));
    assert_eq!(store.load().await.unwrap().rev, 0);
    faults.clear();
    assert_eq!(store.live_document().await.unwrap(), None);
}

/// When one of several mutations at the same time returns, the follower has seen it.
pub(crate) async fn revisions_are_in_the_order_of_commits(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(44));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    store.follow(follower(move |committed| ear.lock().unwrap().push(committed.rev))).await.unwrap();
    let revs = futures::future::join_all((0..40).map(|_| async {
        let rev = store.create_key(key(&UserId::admin(), &random)).await.unwrap().rev;
        assert!(heard.lock().unwrap().last().is_some_and(|last| *last >= rev));
        rev
    }));
    let mut revs = revs.await;
    revs.sort_unstable();
    assert_eq!(revs, (1..=40).collect::<Vec<u64>>());
    let heard = heard.lock().unwrap();
    assert!(heard.is_sorted() && heard.last() == Some(&40), "{heard:?}");
}

/// Two keys at a time are made, and a reader never sees one without the other.
pub(crate) async fn a_start_reads_one_revision(bed: &impl Bed) {
    let (store, random) = (bed.open().await, Random::seeded(45));
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for _ in 0..30 {
                let pair = [0, 1].map(|_| key(&UserId::admin(), &random)).to_vec();
                store.create_keys(pair).await.unwrap();
            }
        }
    });
    while !writing.is_finished() {
        let read = store.load().await.unwrap();
        assert_eq!(read.keys.len() as u64, 2 * read.rev);
    }
    writing.await.unwrap();
    assert_eq!(store.load().await.unwrap().keys.len(), 60);
    let loaded = fixtures::Loaded::default();
    store.follow(std::sync::Arc::new(loaded.clone())).await.unwrap();
    assert_eq!(*loaded.0.lock().unwrap(), (60, 30), "of each row one change");
}
