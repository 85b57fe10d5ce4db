//! The root key of a store, and the transaction of a start that reads or writes it.

use std::path::Path;

use super::audit::{self, Event};
use super::rows::Stored;
use super::rows::stored::row;
use super::sql::{Transaction, params};
use super::{Result, StoreError};
use super::{StoreUrl, postgres, sqlite};

row! { "root_key" =>
    /// The root key of a store, wrapped by its master key.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct WrappedRootKey {
        /// Generation of the master key: 1 at first, one more at each change.
        pub generation: u32,
        /// Nonce, ciphertext and tag (see [`rerouter_base::secret::Keyring::wrap`]).
        pub wrapped: Vec<u8>,
    }
}

/// A store that is being opened, within one transaction.
pub struct Opening<'a> {
    pub(super) transaction: &'a Transaction<'a>,
}

impl Opening<'_> {
    /// The root key; none if the store is new.
    pub fn root_key(&self) -> Result<Option<WrappedRootKey>> {
        self.transaction.row(&WrappedRootKey::select(""), &[], WrappedRootKey::of)
    }

    /// Writes the root key in place of the previous wrapping.
    pub fn put_root_key(&self, key: &WrappedRootKey) -> Result<()> {
        let put = "INSERT INTO root_key (one, generation, wrapped) VALUES (1, ?1, ?2)
             ON CONFLICT (one) DO UPDATE
               SET generation = excluded.generation, wrapped = excluded.wrapped";
        self.transaction.execute(put, &params![key.generation, key.wrapped]).map(drop)
    }

    pub fn note(&self, event: &Event) -> Result<()> {
        audit::insert(self.transaction, event)
    }
}

/// Reads an existing store without writing; a process may use it. `None` if there is no store, or
/// if it cannot be read without writing because a crash left it with a journal only.
pub fn inspect<T, E>(
    url: &StoreUrl,
    dir: &Path,
    read: impl FnOnce(&Opening<'_>) -> Result<T, E>,
) -> Result<Option<T>, E>
where
    E: From<StoreError>,
{
    let read = |transaction: &Transaction<'_>| read(&Opening { transaction });
    match url {
        StoreUrl::Sqlite => sqlite::look(dir, read),
        StoreUrl::Postgres(url) => postgres::look(url, read),
    }
}

/// Runs `unlock`. Also returns whether it replaced the wrapped root key; the former one must not
/// remain in any file.
pub(super) fn unlock<T, E: From<StoreError>>(
    transaction: &Transaction<'_>,
    unlock: impl FnOnce(&Opening<'_>) -> Result<T, E>,
) -> Result<(T, bool), E> {
    let opening = Opening { transaction };
    let before = opening.root_key()?;
    let unlocked = unlock(&opening)?;
    let rewrapped = before.is_some() && opening.root_key()? != before;
    Ok((unlocked, rewrapped))
}
