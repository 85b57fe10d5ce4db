//! The database of accounts, `accounts.db`: one thread writes, another one reads beside it.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, Row, TransactionBehavior};

use super::super::sql::{Transaction, Work};
use super::super::steps::{self, Base};
use super::super::worker::Worker;
use super::super::{Result, StoreError};
use super::backup::{close_checked, copy};
use super::connection::{Durability, checkpoint, discard_log, open, open_to_look, open_to_read};
use super::transaction::SqliteTransaction;
use rerouter_base::atomic_file::allow_absent;

const FILE: &str = "accounts.db";
/// Number of prepared statements that a connection keeps: enough for all of the store.
const STATEMENTS: usize = 128;

pub(crate) struct SqliteBackend {
    writer: Worker<Connection>,
    reader: Worker<Connection>,
    /// Whether a commit failed and its part of the log could not be discarded yet.
    commit_failed: Arc<AtomicBool>,
}

impl SqliteBackend {
    /// Opens or creates the file in `dir`. `unlock` runs in a transaction, which commits if it
    /// succeeds. It also returns whether it replaced data that must not remain in any file.
    /// Blocking.
    pub(crate) fn open<T, E: From<StoreError>>(
        dir: &Path,
        unlock: impl FnOnce(&Transaction<'_>) -> Result<(T, bool), E>,
    ) -> Result<(Self, T), E> {
        let path = dir.join(FILE);
        let mut connection = open_current(dir)?;
        let (unlocked, replaced) = write(&mut connection, unlock, &mut false)?;
        if replaced && let Err(error) = checkpoint(&mut connection) {
            // The new wrapping is durable, so the start goes on. A later checkpoint removes the
            // previous one.
            log::warn!("the previous wrapping of the root key may still be in {FILE}: {error}");
        }
        let reader = open_to_read(&path)?;
        for connection in [&connection, &reader] {
            connection.set_prepared_statement_cache_capacity(STATEMENTS);
        }
        let backend = SqliteBackend {
            reader: Worker::start("store-audit", reader)?,
            writer: Worker::start("store-accounts", connection)?,
            commit_failed: Arc::default(),
        };
        Ok((backend, unlocked))
    }

    /// As `Backend::write`.
    pub(crate) async fn write<T, U: Send + 'static>(
        &self,
        work: impl Work<T>,
        after: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        let commit_failed = Arc::clone(&self.commit_failed);
        let work = move |connection: &mut Connection| {
            // A commit whose sync fails is reported as failed, but it may be in the log as a whole:
            // a start would read it, and the tables in memory do not have it.
            let discard = |connection: &mut Connection| {
                discard_log(connection)?;
                commit_failed.store(false, Ordering::Release);
                Ok::<_, StoreError>(())
            };
            if commit_failed.load(Ordering::Acquire) {
                discard(connection)?;
            }
            let mut committing = false;
            let done = write(connection, work, &mut committing);
            // If the disk was full, the end of the commit was not written.
            let may_be_whole = committing && !matches!(done, Ok(_) | Err(StoreError::Full(_)));
            if may_be_whole {
                commit_failed.store(true, Ordering::Release);
                if let Err(error) = discard(connection) {
                    log::error!("a failed commit may still be in the log of {FILE}: {error}");
                }
            }
            done.map(after)
        };
        self.writer.run(work).await
    }

    /// As `Backend::read`.
    pub(crate) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.reader.run(move |connection| read(connection, work)).await
    }

    /// As `Backend::read_after_writes`.
    pub(crate) async fn read_after_writes<T: Send + 'static>(
        &self,
        work: impl Work<T>,
    ) -> Result<T> {
        self.writer.run(move |connection| read(connection, work)).await
    }

    /// Moves the write-ahead log into the database. Returns `false` if a reader was in the way.
    pub(crate) async fn checkpoint(&self) -> Result<bool> {
        self.writer.run(checkpoint).await
    }
}

/// Opens or creates the file in `dir`, and brings it to the last step. That is done on a copy,
/// which then replaces the file.
pub(crate) fn open_current(dir: &Path) -> Result<Connection> {
    let (path, next) = (dir.join(FILE), dir.join("accounts.db-next"));
    let mut file = open(&path, Durability::Full)?;
    // A file that has all steps is not written to, so a start needs no space on the disk.
    if read(&mut file, |transaction| steps::is_current(transaction, Base::Accounts))? {
        return Ok(file);
    }
    // The log of this file would be taken for the log of its replacement.
    let mode = |row: &Row<'_>| row.get::<_, String>(0);
    if file.pragma_update_and_check(None, "journal_mode", "DELETE", mode)? != "delete" {
        return Err(StoreError::unavailable(format_args!("another process reads {FILE}")));
    }
    drop(file);
    for left in [next.clone(), dir.join("accounts.db-next-journal")] {
        allow_absent(std::fs::remove_file(left))?;
    }
    let mut file = copy(&path, &next)?;
    let step = |transaction: &Transaction<'_>| steps::bring_up(transaction, Base::Accounts);
    write(&mut file, step, &mut false)?;
    close_checked(file, &next)?;
    std::fs::rename(&next, &path)?;
    File::open(dir)?.sync_all()?;
    open(&path, Durability::Full)
}

/// Reads an existing file without writing; a process may use it. `None` if there is none, or if it
/// cannot be read without writing because a crash left it with a journal only.
pub(crate) fn look<T, E: From<StoreError>>(
    dir: &Path,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<Option<T>, E> {
    let Some(mut connection) = open_to_look(&dir.join(FILE))? else { return Ok(None) };
    read(&mut connection, |transaction| match steps::level(transaction, Base::Accounts)? {
        0 => Ok(None),
        _ => work(transaction).map(Some),
    })
}

/// Runs `work` in a transaction, which commits if it succeeds. Sets `committing` before the commit.
fn write<T, E: From<StoreError>>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    committing: &mut bool,
) -> Result<T, E> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(StoreError::from)?;
    let done = work(&Transaction::Sqlite(SqliteTransaction(&transaction)))?;
    *committing = true;
    transaction.commit().map_err(StoreError::from)?;
    Ok(done)
}

/// Runs `work`, which only reads, on a consistent snapshot of the database.
fn read<T, E: From<StoreError>>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let transaction = connection.transaction().map_err(StoreError::from)?;
    work(&Transaction::Sqlite(SqliteTransaction(&transaction)))
}
