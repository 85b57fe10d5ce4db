//! How much a revocation ends: a key, or all that descend from it too.

use jiff::Timestamp;

use rerouter_base::id::KeyId;
use rerouter_store::{Committed, Store, StoreError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RevocationScope {
    Key,
    /// The key and all that descend from it.
    Descent,
}

impl RevocationScope {
    pub(super) async fn write(
        self,
        store: &Store,
        id: &KeyId,
        at: Timestamp,
    ) -> Result<Committed, StoreError> {
        match self {
            RevocationScope::Key => store.revoke_key(id, at).await,
            RevocationScope::Descent => store.revoke_descent(id, at).await,
        }
    }
}
