//! A revocation from end to end: dead in memory, then durable, then answered. When the store fails the caller hears of
//! it, the key stays dead, and the write is tried until the store takes it.

use std::sync::PoisonError;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::Auth;
use crate::id::KeyId;
use crate::store::{Committed, Store, StoreError};

/// The first wait between tries; it doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);
/// See [`FIRST`].
const LONGEST: Duration = Duration::from_secs(30);

impl Auth {
    /// Ends a key for good. An error says that this is not yet durable; then it is being tried on. The work goes on
    /// when the caller goes away.
    pub async fn revoke(&self, store: &Store, id: &KeyId, at: Timestamp) -> Result<Committed, StoreError> {
        self.kill(id);
        let (reply, first) = oneshot::channel();
        tokio::spawn(bring(self.clone(), store.clone(), id.clone(), at, reply));
        first.await.map_err(|_| StoreError::Unavailable("the revocation was cut short".into()))?
    }

    /// How many revocations the store has yet to take.
    pub fn unsaved_revocations(&self) -> usize {
        self.0.revoking.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

async fn bring(auth: Auth, store: Store, id: KeyId, at: Timestamp, reply: oneshot::Sender<Result<Committed, StoreError>>) {
    let first = store.revoke_key(&id, at).await;
    let failed = matches!(first, Err(StoreError::Unavailable(_)));
    // One task a key goes on trying, however often the caller repeats.
    let tries = failed && auth.0.revoking.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    // A caller that went away needs no reply.
    let _gone = reply.send(first);
    if !tries {
        return;
    }
    let mut wait = FIRST;
    loop {
        tokio::time::sleep(wait).await;
        match store.revoke_key(&id, at).await {
            Err(StoreError::Unavailable(cause)) => log::warn!("revocation of {id} is not durable yet: {cause}"),
            _ => break,
        }
        wait = (wait * 2).min(LONGEST);
    }
    auth.0.revoking.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
}
