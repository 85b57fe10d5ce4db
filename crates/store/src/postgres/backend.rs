//! The tables of accounts in PostgreSQL: one thread writes, another one reads beside it.

use std::time::Duration;

use super::schema;
use super::session::{Patience, Session, WRITE};
use super::url::PostgresUrl;
use crate::sql::{Transaction, Work};
use crate::steps::{self, Base};
use crate::worker::Worker;
use crate::{Result, StoreError};

/// How long PostgreSQL may take to accept a connection, and for each answer. The server itself
/// gives up a statement after four fifths of this time, and the wait for a lock after half of it.
pub(crate) const DATABASE_ANSWER: Duration = Duration::from_secs(10);
/// Maximum time of a migration of the tables, for which starting gateways wait, and of a copy.
const DATABASE_MIGRATION: Duration = Duration::from_secs(300);
/// Longest wait before another try to connect to PostgreSQL: keys are served again soon after the
/// database is back.
const DATABASE_RETRY_MOST: Duration = Duration::from_secs(1);

const PATIENCE: Patience = Patience { answer: DATABASE_ANSWER, retry: DATABASE_RETRY_MOST };

/// The threads with their connections.
pub(crate) struct PostgresBackend {
    writer: Worker<Session>,
    reader: Worker<Session>,
}

impl PostgresBackend {
    /// Connects, and makes or migrates the tables. `unlock` runs in a transaction, which commits if
    /// it succeeds. Blocking.
    pub(crate) fn open<T, E: From<StoreError>>(
        url: &PostgresUrl,
        unlock: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<(Self, T), E> {
        let patience = Patience { answer: DATABASE_MIGRATION, ..PATIENCE };
        schema::prepare(&mut Session::new(url, patience)?)?;
        let mut writer = Session::new(url, PATIENCE)?;
        let unlocked = writer.write(unlock)?;
        let reader = Session::new(url, PATIENCE)?;
        let backend = PostgresBackend {
            reader: Worker::start("store-reader", reader)?,
            writer: Worker::start("store-writer", writer)?,
        };
        Ok((backend, unlocked))
    }

    /// See [`crate::backend::Backend::write`].
    pub(crate) async fn write<T, U: Send + 'static>(
        &self,
        work: impl Work<T>,
        after: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        self.writer.run(|session| session.write(work).map(after)).await
    }

    /// See [`crate::backend::Backend::read`].
    pub(crate) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.reader.run(|session| session.read(work)).await
    }

    /// See [`crate::backend::Backend::read_after_writes`].
    pub(crate) async fn read_after_writes<T: Send + 'static>(
        &self,
        work: impl Work<T>,
    ) -> Result<T> {
        self.writer.run(|session| session.read(work)).await
    }
}

/// Creates missing tables, and fills them: `work` runs in one transaction, which commits if it
/// succeeds, and may take its time.
pub(crate) fn fill<T, E: From<StoreError>>(
    url: &PostgresUrl,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let patience = Patience { answer: DATABASE_MIGRATION, ..PATIENCE };
    let mut session = Session::new(url, patience)?;
    schema::prepare(&mut session)?;
    let first = "SET LOCAL idle_in_transaction_session_timeout = 0;
         SELECT rev FROM state FOR UPDATE";
    session.transact(WRITE, first, work)
}

/// Reads an existing database without writing. `None` if it has no store yet and one can be
/// created.
pub(crate) fn look<T, E: From<StoreError>>(
    url: &PostgresUrl,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Option<T>, E> {
    let mut session = Session::new(url, PATIENCE)?;
    session.read(|transaction| match steps::level(transaction, Base::Postgres)? {
        0 => schema::can_make(transaction).map(|()| None).map_err(E::from),
        _ => work(transaction).map(Some),
    })
}
