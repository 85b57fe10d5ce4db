//! Opens the tables in PostgreSQL.

use std::time::Duration;

use super::database::Database;
use super::schema;
use super::session::{Patience, Session, WRITE};
use super::url::PostgresUrl;
use crate::sql::Transaction;
use crate::steps::{self, Base};
use crate::{Result, StoreError};

/// How long PostgreSQL may take to accept a connection, and for each answer. The server itself
/// gives up a statement after four fifths of this time, and the wait for a lock after half of it.
const DATABASE_ANSWER: Duration = Duration::from_secs(10);
/// Maximum time of a migration of the tables, for which starting gateways wait, and of a copy.
const DATABASE_MIGRATION: Duration = Duration::from_secs(300);
/// Longest wait before another try to connect to PostgreSQL: keys are served again soon after the
/// database is back.
const DATABASE_RETRY_MOST: Duration = Duration::from_secs(1);

const PATIENCE: Patience = Patience { answer: DATABASE_ANSWER, retry: DATABASE_RETRY_MOST };

/// Connects, and makes or migrates the tables. `unlock` runs in a transaction, which commits if it
/// succeeds. The one connection is for all but the lease of a gateway. Blocking.
pub(crate) fn open<T, E: From<StoreError>>(
    url: &PostgresUrl,
    unlock: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<(Database, T), E> {
    let mut session = Session::new(url, Patience { answer: DATABASE_MIGRATION, ..PATIENCE }, None)?;
    schema::prepare(&mut session)?;
    session.set_patience(PATIENCE)?;
    let unlocked = session.write(unlock)?;
    Ok((Database::of("store-shared", session)?, unlocked))
}

/// Creates missing tables, and fills them: `work` runs in one transaction, which commits if it
/// succeeds, and may take its time.
pub(crate) fn fill<T, E: From<StoreError>>(
    url: &PostgresUrl,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let patience = Patience { answer: DATABASE_MIGRATION, ..PATIENCE };
    let mut session = Session::new(url, patience, None)?;
    schema::prepare(&mut session)?;
    let first = "SET LOCAL idle_in_transaction_session_timeout = 0;
         SELECT rev FROM state FOR UPDATE";
    session.transact(WRITE, DATABASE_MIGRATION, first, work)
}

/// Reads an existing database without writing. `None` if it has no store yet and one can be
/// created.
pub(crate) fn look<T, E: From<StoreError>>(
    url: &PostgresUrl,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Option<T>, E> {
    let mut session = Session::new(url, PATIENCE, None)?;
    session.read(|transaction| {
        schema::check_kind(transaction)?;
        match steps::level(transaction, Base::Postgres)? {
            0 => schema::can_make(transaction).map(|()| None).map_err(E::from),
            _ => work(transaction).map(Some),
        }
    })
}
