//! The root key of a store, and the transaction of a start that reads or writes it.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::audit::{self, Event};
use super::worker::{checkpoint, open_to_look};
use super::{StoreError, schema};

/// The root key of a store, wrapped by its master key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedRootKey {
    /// Generation of the master key: 1 at first, one more at each change.
    pub generation: u32,
    /// Nonce, ciphertext and tag (see [`crate::secret::Keyring::wrap`]).
    pub wrapped: Vec<u8>,
}

/// A store that is being opened, within one transaction.
pub struct Opening<'a> {
    transaction: &'a Transaction<'a>,
}

impl Opening<'_> {
    /// The root key; none if the store is new.
    pub fn root_key(&self) -> Result<Option<WrappedRootKey>, StoreError> {
        let row = |row: &Row<'_>| {
            Ok(WrappedRootKey { generation: row.get("generation")?, wrapped: row.get("wrapped")? })
        };
        Ok(self.transaction.query_row("SELECT * FROM root_key", [], row).optional()?)
    }

    /// Writes the root key in place of the previous wrapping.
    pub fn put_root_key(&self, key: &WrappedRootKey) -> Result<(), StoreError> {
        self.transaction.execute(
            "INSERT INTO root_key (one, generation, wrapped) VALUES (1, ?1, ?2)
             ON CONFLICT (one) DO UPDATE
               SET generation = excluded.generation, wrapped = excluded.wrapped",
            params![key.generation, key.wrapped],
        )?;
        Ok(())
    }

    /// Writes an audit row in the same transaction.
    pub fn note(&self, event: &Event) -> Result<(), StoreError> {
        audit::insert(self.transaction, event)
    }

    pub(super) fn transaction(&self) -> &Transaction<'_> {
        self.transaction
    }
}

/// Reads an existing store without writing; a process may use it. `None` if there is no store, or
/// if it cannot be read without writing because a crash left it with a journal only.
pub(crate) fn inspect<T, E>(
    dir: &Path,
    read: impl FnOnce(&Opening<'_>) -> Result<T, E>,
) -> Result<Option<T>, E>
where
    E: From<StoreError>,
{
    let Some(mut connection) = open_to_look(&dir.join("accounts.db"))? else { return Ok(None) };
    let transaction = connection.transaction().map_err(StoreError::from)?;
    if !schema::is_there(&transaction, &schema::ACCOUNTS)? {
        return Ok(None);
    }
    read(&Opening { transaction: &transaction }).map(Some)
}

/// Runs `unlock` in one transaction, which commits if it succeeds. No file holds a wrapping that it
/// replaced.
pub(super) fn unlock<T, E: From<StoreError>>(
    connection: &mut Connection,
    unlock: impl FnOnce(&Opening<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(StoreError::from)?;
    let opening = Opening { transaction: &transaction };
    let before = opening.root_key()?;
    let unlocked = unlock(&opening)?;
    let rewrapped = before.is_some() && opening.root_key()? != before;
    transaction.commit().map_err(StoreError::from)?;
    if rewrapped && let Err(error) = checkpoint(connection) {
        // The new wrapping is durable, so the start goes on. A later checkpoint does it.
        log::warn!("the previous wrapping of the root key may still be in accounts.db: {error}");
    }
    Ok(unlocked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretBytes;
    use crate::store::{DataDir, Store};

    fn key(generation: u32, wrapped: &[u8]) -> WrappedRootKey {
        WrappedRootKey { generation, wrapped: wrapped.to_vec() }
    }

    #[tokio::test]
    async fn a_rewrap_is_durable_or_has_not_happened() {
        let dir = tempfile::tempdir().unwrap();
        let open = |put: Option<WrappedRootKey>, fails: bool| {
            Store::open_in(DataDir::take(dir.path()).unwrap(), move |opening| {
                let before = opening.root_key()?;
                if let Some(key) = put {
                    opening.put_root_key(&key)?;
                }
                match fails {
                    true => Err(StoreError::unavailable("killed")),
                    false => Ok((SecretBytes::new([5; 32]), before)),
                }
            })
        };
        assert_eq!(open(Some(key(1, b"one")), false).await.unwrap().1, None);
        assert!(open(Some(key(2, b"two")), true).await.is_err());
        assert_eq!(open(None, false).await.unwrap().1, Some(key(1, b"one")));
        assert_eq!(open(Some(key(2, b"two")), false).await.unwrap().1, Some(key(1, b"one")));
        assert_eq!(open(None, false).await.unwrap().1, Some(key(2, b"two")));
        let inspected = inspect(dir.path(), |opening| opening.root_key()).unwrap();
        assert_eq!(inspected, Some(Some(key(2, b"two"))));
    }

    #[tokio::test]
    async fn a_rewrap_leaves_nothing_of_the_previous_wrapping() {
        let dir = tempfile::tempdir().unwrap();
        let holds = |wrapped: &[u8]| {
            ["accounts.db", "accounts.db-wal"].iter().any(|name| {
                let bytes = std::fs::read(dir.path().join(name)).unwrap_or_default();
                memchr::memmem::find(&bytes, wrapped).is_some()
            })
        };
        // Of another length: SQLite writes the row anew.
        let (old, new) = (b"the old wrapping".as_slice(), b"a new one".as_slice());
        for (generation, wrapped) in [(1, old), (2, new)] {
            let open = Store::open_in(DataDir::take(dir.path()).unwrap(), move |opening| {
                opening.put_root_key(&key(generation, wrapped))?;
                Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()))
            });
            let (_open, ()) = open.await.unwrap();
            assert!(holds(wrapped));
        }
        assert!(!holds(old));
    }
}
