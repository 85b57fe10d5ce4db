//! A shutdown while the store fails, and after it works again.

use std::sync::Arc;

use super::*;
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{KeyId, Random};
use rerouter_base::secret::SecretBytes;
use rerouter_store::fixtures;
use rerouter_store::{ChangeUser, Faults, Store};

async fn world(dir: &std::path::Path) -> (Auth, Store, Faults) {
    let faults = Faults::default();
    let store = Store::open(dir).await.unwrap().with_faults(faults.clone());
    let auth = Auth::new(&SecretBytes::new([1; 32]), None, None, Duration::from_secs(60));
    auth.attach(&store).await.unwrap();
    (auth, store, faults)
}

#[tokio::test]
async fn no_wait_is_long_once_the_process_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let (auth, ..) = world(dir.path()).await;
    let hour = Duration::from_secs(3_600);
    let mut pause = std::pin::pin!(auth.pause(hour));
    assert!(futures::poll!(pause.as_mut()).is_pending());
    assert!(auth.flush_pending(Duration::ZERO).await.is_empty());
    pause.await;
    auth.pause(hour).await;
}

#[tokio::test]
async fn what_the_store_does_not_take_until_the_end_is_named_and_what_it_takes_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (auth, store, faults) = world(dir.path()).await;
    let (random, now) = (Random::seeded(3), at(0));
    let user = fixtures::user("ann@example.com", &random);
    store.create_user(user.clone()).await.unwrap();
    let disable: ChangeUser = Arc::new(|user| {
        user.disabled = true;
        Ok(())
    });
    faults.fail_every_write();
    let key = KeyId::new(now, &random);
    auth.revoke(&store, &key, now).await.unwrap_err();
    auth.disable(&store, &user.id, false, disable).await.unwrap_err();
    assert_eq!((auth.unsaved_revocations(), auth.unsaved_disablings()), (1, 1));
    assert_eq!(auth.flush_pending(Duration::ZERO).await, [key.to_string(), user.id.to_string()]);
    faults.clear();
    assert!(auth.flush_pending(Duration::from_secs(60)).await.is_empty());
    assert_eq!((auth.unsaved_revocations(), auth.unsaved_disablings()), (0, 0));
    assert!(store.load().await.unwrap().users[0].disabled);
}
