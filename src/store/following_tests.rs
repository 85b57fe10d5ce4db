//! What a panic on the thread that writes accounts leaves: before the commit nothing, after it nobody's trust.

use std::sync::Mutex;

use super::tests::user;
use super::*;
use crate::id::Random;

/// Before the commit a panic is the end of its mutation, afterwards that of all trust in what should have followed it.
#[tokio::test]
async fn a_panic_ends_a_mutation_and_one_of_what_follows_ends_them_all() {
    let dir = tempfile::tempdir().unwrap();
    let (random, faults) = (Random::seeded(4), Faults::default());
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&heard);
    store.follow(Box::new(move |committed| {
        ear.lock().unwrap().push(committed.rev);
        assert!(committed.rev < 3, "the canary");
    }));
    let (ann, bob, cat, dan) = (
        user("a@b.c", &random),
        user("b@b.c", &random),
        user("c@b.c", &random),
        user("d@b.c", &random),
    );
    for place in [FaultPlace::Store, FaultPlace::Commit] {
        faults.panic_at(place, 1, "the canary");
        assert!(
            matches!(store.create_user(ann.clone()).await, Err(StoreError::Unavailable(why)) if !why.contains("canary"))
        );
        assert!(store.check().is_ok() && store.healthy().await);
        assert!(store.load().await.unwrap().users.is_empty(), "{place:?}: it is rolled back");
    }
    store.create_user(ann.clone()).await.unwrap();
    store.create_user(bob.clone()).await.unwrap();
    assert!(store.check().is_ok());
    // Of the third it is heard, and no more than that.
    assert!(
        matches!(store.create_user(cat.clone()).await, Err(StoreError::Unavailable(why)) if !why.contains("canary"))
    );
    for _ in 0..2 {
        assert!(store.check().is_err() && !store.healthy().await);
        assert!(matches!(store.create_user(dan.clone()).await, Err(StoreError::Unavailable(_))));
    }
    assert_eq!(*heard.lock().unwrap(), [1, 2, 3]);
    assert_eq!(
        store.load().await.unwrap().users,
        [ann, bob, cat.clone()],
        "it is durable, and nothing after it"
    );
    drop(store);
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    assert!(store.check().is_ok() && store.load().await.unwrap().users.contains(&cat));
    store.follow(Box::new(|_| ()));
    faults.panic_at(FaultPlace::Following, 1, "the canary");
    assert!(store.create_user(dan).await.is_err() && store.check().is_err());
}
