//! A revocation from end to end: dead in memory, then durable, then answered. When the store fails the caller hears of
//! it, the key stays dead, and the write is tried until the store takes it.

use std::sync::PoisonError;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::Auth;
use super::leaving::{FIRST, LONGEST};
use crate::id::KeyId;
use crate::store::{Committed, Store, StoreError};

/// How much a revocation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reach {
    /// The key.
    One,
    /// And all that descend from it.
    Descent,
}

impl Reach {
    async fn end(self, store: &Store, id: &KeyId, at: Timestamp) -> Result<Committed, StoreError> {
        match self {
            Reach::One => store.revoke_key(id, at).await,
            Reach::Descent => store.revoke_descent(id, at).await,
        }
    }
}

impl Auth {
    /// Ends a key for good. An error says that this is not yet durable; then it is being tried on. The work goes on
    /// when the caller goes away.
    pub async fn revoke(
        &self,
        store: &Store,
        id: &KeyId,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        self.kill(id);
        self.end(store, id, Reach::One, at).await
    }

    /// Ends a key and all that descend from it, whosever they are, for good: as [`Auth::revoke`], all of them at one moment.
    pub async fn revoke_descent(
        &self,
        store: &Store,
        id: &KeyId,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        self.kill_descent(id);
        self.end(store, id, Reach::Descent, at).await
    }

    async fn end(
        &self,
        store: &Store,
        id: &KeyId,
        reach: Reach,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        let (reply, first) = oneshot::channel();
        tokio::spawn(bring(self.clone(), store.clone(), (id.clone(), reach), at, reply));
        first.await.map_err(|_| StoreError::Unavailable("the revocation was cut short".into()))?
    }
}

async fn bring(
    auth: Auth,
    store: Store,
    (id, reach): (KeyId, Reach),
    at: Timestamp,
    reply: oneshot::Sender<Result<Committed, StoreError>>,
) {
    let first = reach.end(&store, &id, at).await;
    let failed = first.as_ref().is_err_and(may_pass);
    // One task a revocation goes on trying, however often the caller repeats.
    let tries = failed
        && auth
            .0
            .revoking
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((id.clone(), reach));
    // A caller that went away needs no reply.
    let _gone = reply.send(first);
    if !tries {
        return;
    }
    let mut wait = FIRST;
    loop {
        auth.pause(wait).await;
        match reach.end(&store, &id, at).await {
            Err(cause) if may_pass(&cause) => {
                log::warn!("revocation of {id} is not durable yet: {cause}")
            }
            _ => break,
        }
        wait = (wait * 2).min(LONGEST);
    }
    auth.0.revoking.lock().unwrap_or_else(PoisonError::into_inner).remove(&(id, reach));
}

/// Whether the same may succeed later: all but what the rows themselves say.
fn may_pass(error: &StoreError) -> bool {
    !matches!(error, StoreError::NotFound | StoreError::Conflict)
}
