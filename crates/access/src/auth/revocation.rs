//! Revocation of a key: the key is dead in memory, then durably, then the caller gets an answer. If
//! the store fails, the caller gets its error, the key stays dead in this process, and the write is
//! repeated.

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::Auth;
use super::revocation_scope::RevocationScope;
use rerouter_base::id::KeyId;
use rerouter_store::{Committed, Store, StoreError};

impl Auth {
    /// Ends a key in this process at once. It stays dead, whatever the store says until it has the
    /// revocation.
    pub fn kill(&self, id: &KeyId) {
        self.0.keys.kill(id);
    }

    /// Revokes a key. An error means that the revocation is not durable yet. The write is repeated
    /// then, unless the state of the row caused the error. The work goes on even if the caller goes
    /// away.
    pub async fn revoke(
        &self,
        store: &Store,
        id: &KeyId,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        self.kill(id);
        self.write_revocation(store, id, RevocationScope::Key, at).await
    }

    /// Revokes a key and all that descend from it, whoever owns them, in one transaction. See
    /// [`Auth::revoke`].
    pub async fn revoke_descent(
        &self,
        store: &Store,
        id: &KeyId,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        self.0.keys.kill_descent(id);
        self.write_revocation(store, id, RevocationScope::Descent, at).await
    }

    async fn write_revocation(
        &self,
        store: &Store,
        id: &KeyId,
        scope: RevocationScope,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        let (reply, first) = oneshot::channel();
        let (auth, store, id) = (self.clone(), store.clone(), id.clone());
        tokio::spawn(async move {
            let first = scope.write(&store, &id, at).await;
            let failed = first.as_ref().is_err_and(is_transient);
            // One task for each revocation repeats it, however often the caller does.
            let repeats = failed && auth.revoking().insert((id.clone(), scope));
            // A caller that went away needs no reply.
            let _gone = reply.send(first);
            if !repeats {
                return;
            }
            let attempt = || async {
                match scope.write(&store, &id, at).await {
                    Err(cause) if is_transient(&cause) => Err(cause),
                    _ => Ok(()),
                }
            };
            auth.retry(&format!("the revocation of {id}"), attempt).await;
            auth.revoking().remove(&(id, scope));
        });
        first.await.map_err(|_| StoreError::unavailable("the revocation was interrupted"))?
    }

    fn revoking(&self) -> MutexGuard<'_, HashSet<(KeyId, RevocationScope)>> {
        self.0.revoking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the same write may succeed later: for every error but those that the state of the row
/// causes.
fn is_transient(error: &StoreError) -> bool {
    !matches!(error, StoreError::NotFound | StoreError::Conflict)
}
