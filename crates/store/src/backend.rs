//! The database of accounts, SQLite or PostgreSQL. Only this file and `sql.rs` tell the two apart.
//! Nothing here depends on users, keys or other nouns of the store, or on injected faults.

use std::path::Path;

use super::postgres::{self, Database};
use super::sql::{Transaction, Work};
use super::sqlite::SqliteBackend;
use super::{Result, StoreError, StoreUrl};

pub(super) enum Backend {
    Sqlite(SqliteBackend),
    Postgres(Database),
}

impl Backend {
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Backend::Postgres(_))
    }

    /// Opens or creates the database. `unlock` runs in a transaction, which commits if it succeeds.
    /// It also returns whether it replaced data that must not remain in any file. Blocking.
    pub(super) fn open<T, E: From<StoreError>>(
        url: &StoreUrl,
        dir: &Path,
        unlock: impl FnOnce(&Transaction<'_>) -> Result<(T, bool), E>,
    ) -> Result<(Self, T), E> {
        match url {
            StoreUrl::Sqlite => SqliteBackend::open(dir, unlock)
                .map(|(sqlite, unlocked)| (Backend::Sqlite(sqlite), unlocked)),
            // The gateway does not manage the files of the server.
            StoreUrl::Postgres(url) => postgres::open(url, unlock)
                .map(|(postgres, (unlocked, _))| (Backend::Postgres(postgres), unlocked)),
        }
    }

    /// Runs `work` in a transaction, which commits if it succeeds. After the commit is durable and
    /// before the next write, `after` runs on the result of `work`. Both run to their end even if
    /// the caller is dropped. A panic of `work` fails this write only.
    pub(super) async fn write<T, U: Send + 'static>(
        &self,
        work: impl Work<T>,
        after: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.write(work, after).await,
            Backend::Postgres(postgres) => postgres.write(work, after).await,
        }
    }

    /// As [`Backend::write`], but in PostgreSQL without the lock under which the writes of all
    /// gateways follow one another.
    pub(super) async fn write_beside<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.write(work, |done| done).await,
            Backend::Postgres(postgres) => postgres.write_beside(work).await,
        }
    }

    /// As [`Backend::write_beside`], for one statement, which is the whole transaction. If its
    /// answer is lost, it may be sent again.
    pub(super) async fn write_one<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.write(work, |done| done).await,
            Backend::Postgres(postgres) => postgres.one(work).await,
        }
    }

    /// As [`Backend::read_after_writes`], for one statement.
    pub(super) async fn read_one<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.read_after_writes(work).await,
            Backend::Postgres(postgres) => postgres.one(work).await,
        }
    }

    /// Runs `work`, which only reads, on a consistent snapshot of the database. It waits for no
    /// write of another gateway.
    pub(super) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.read(work).await,
            Backend::Postgres(postgres) => postgres.read(work).await,
        }
    }

    /// As [`Backend::read`], but after all writes that were requested earlier.
    pub(super) async fn read_after_writes<T: Send + 'static>(
        &self,
        work: impl Work<T>,
    ) -> Result<T> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.read_after_writes(work).await,
            Backend::Postgres(postgres) => postgres.read(work).await,
        }
    }

    /// Runs `work`, which only reads, in such a way that it succeeds only if writes can succeed.
    pub(super) async fn try_out(&self, work: impl Work<u64>) -> Result<u64> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.write(work, |done| done).await,
            // The connection leads to a primary, so a read is enough. Frequent health checks must
            // not delay the writes of all gateways.
            Backend::Postgres(postgres) => postgres.one(work).await,
        }
    }

    /// Moves the write-ahead log of a database on this machine into its file. Returns `false` if a
    /// reader was in the way.
    pub(super) async fn checkpoint(&self) -> Result<bool> {
        match self {
            Backend::Sqlite(sqlite) => sqlite.checkpoint().await,
            Backend::Postgres(_) => Ok(true),
        }
    }
}
