//! A panic on the thread that writes accounts: before the commit it ends one mutation, after it the process.

use std::process::Command;

use super::tests::user;
use super::*;
use crate::id::Random;

#[tokio::test]
async fn a_panic_before_the_commit_ends_one_mutation() {
    let dir = tempfile::tempdir().unwrap();
    let (random, faults) = (Random::seeded(4), Faults::default());
    let store = Store::open(dir.path()).await.unwrap().with_faults(faults.clone());
    let [ann, bob] = ["a@b.c", "b@b.c"].map(|email| user(email, &random));
    faults.panic_at(FaultPlace::Commit, 1, "the canary");
    assert!(
        matches!(store.create_user(ann.clone()).await, Err(StoreError::Unavailable(why)) if !why.contains("canary"))
    );
    assert!(store.healthy().await);
    assert!(store.load().await.unwrap().users.is_empty(), "it is rolled back");
    store.create_user(bob.clone()).await.unwrap();
    assert_eq!(store.load().await.unwrap().users, [bob]);
}

/// The directory of the store, for the process that is to abort.
const DIR: &str = "REROUTER_TEST_ABORTS_IN";

/// In a process of its own, as it must not end this one: the test runs itself.
#[tokio::test]
async fn a_panic_in_a_table_that_follows_aborts_the_process_and_the_change_is_durable() {
    let ann = user("a@b.c", &Random::seeded(4));
    if let Some(dir) = std::env::var_os(DIR) {
        let store = Store::open(Path::new(&dir)).await.unwrap();
        store.follow(Box::new(|_| panic!("a mistake in a table")));
        let _unreached = store.create_user(ann).await;
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let name = std::thread::current().name().unwrap().to_owned();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
    assert_eq!(signal, Some(6), "SIGABRT: {}", String::from_utf8_lossy(&child.stdout));
    let store = Store::open(dir.path()).await.unwrap();
    assert_eq!(store.load().await.unwrap().users, [ann]);
}
