//! The database of accounts: which one it is, only this file and `sql.rs` ask. It knows neither
//! nouns nor faults.

use super::StoreError;
use super::sql::Transaction;
use super::sqlite::SqliteBackend;

/// A database, with the threads that use it.
pub(super) enum Backend {
    Sqlite(SqliteBackend),
}

impl Backend {
    /// Runs `work` in a transaction, which commits if it succeeds. Then, when that is durable and
    /// before the next write, it runs `after` on what `work` returned. Both run to their end even
    /// if the caller is dropped. A panic of `work` fails this write only.
    pub(super) async fn write<T, U: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
        after: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U, StoreError> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.write(work, after).await,
        }
    }

    /// Runs `work`, which only reads, on one state of the database. It does not wait for writes.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.read(work).await,
        }
    }

    /// As [`Backend::read`], after the writes that were asked for before.
    pub(super) async fn read_after_writes<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.read_after_writes(work).await,
        }
    }

    /// Makes the files of a database on this machine small and complete.
    pub(super) async fn checkpoint(&self) -> Result<(), StoreError> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.checkpoint().await,
        }
    }
}
