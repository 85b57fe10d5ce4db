//! The store: everything durable except the bodies of captures. Its API is async. A mutation is
//! acknowledged when it is on the disk and the tables in memory have followed it. The store takes
//! no decision about who may do what.
//!
//! `transaction.rs` has what all mutations share; each noun has a file with its methods and
//! statements. `sqlite.rs` has the threads and connections.

mod agents;
mod audit;
mod audit_retention;
mod backup;
mod capture_file;
mod capture_index;
mod capture_list;
mod capture_rows;
mod changes;
mod columns;
mod data_dir;
mod documents;
mod error;
mod faults;
mod key_changes;
mod keys;
mod limits;
mod load;
mod nodes;
mod pairs;
mod root_key;
mod rows;
mod schema;
mod sessions;
mod sqlite;
mod transaction;
mod usage;
mod users;
mod worker;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, Transaction};
use tokio::sync::Semaphore;

use crate::blocking::blocking;
use crate::secret::SecretBytes;
use sqlite::Sqlite;

pub(crate) use audit::{Action, AuditFilter, AuditRow, Event};
pub(crate) use backup::{copy_accounts, copy_capture_index, drop_segments_of_copy};
pub(crate) use capture_index::CaptureIndex;
pub use capture_rows::CaptureFilter;
pub(crate) use capture_rows::{ByteRange, CaptureLocation, CaptureRow, SegmentRow, Shadows};
pub(crate) use changes::{Change, Committed};
pub use data_dir::DataDir;
pub use error::StoreError;
pub use faults::{Faults, PanicPoint};
pub use limits::Limits;
pub(crate) use limits::{Budget, NanoUsd, Per, covers, dollars, nano_usd};
pub(crate) use nodes::SpentNonce;
pub(crate) use pairs::Pairs;
pub(crate) use root_key::inspect;
pub use root_key::{Opening, WrappedRootKey};
pub use rows::{Actor, KeyRow, KeyStatus};
pub(crate) use rows::{
    AgentRow, DocumentRow, KeyPatch, NewSecret, NodeModel, NodeRow, PreviousNodeSecret,
    Registration, Role, Seen, SessionRow, UserRow,
};
pub(crate) use usage::{SpendRow, UsageColumn, UsageGroup, UsageKey, UsageQuery, UsageSums};
pub(crate) use users::ChangeUser;

/// Is called with every mutation, in the order of revisions, before its caller gets an answer. It
/// must not block.
pub(crate) type Follower = Box<dyn Fn(&Committed) + Send + Sync>;

/// How long a health check waits.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A cheap handle of the store. The last one dropped closes the files.
#[derive(Clone)]
pub struct Store {
    sqlite: Arc<Sqlite>,
    faults: Faults,
    /// Permits one health check at a time.
    checking: Arc<Semaphore>,
    /// What its mutations are audited as.
    event: Option<Arc<Event>>,
    /// The key that seals texts of documents.
    documents: SecretBytes,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// For tests and benches: opens the store in a directory, or makes it. The key of documents is
    /// not secret.
    #[doc(hidden)]
    pub async fn open(data_dir: &Path) -> Result<Store, StoreError> {
        let unlock = |_: &Opening<'_>| Ok::<_, StoreError>((SecretBytes::new([5; 32]), ()));
        Ok(Store::open_in(DataDir::take(data_dir)?, unlock).await?.0)
    }

    /// Opens the store in a locked directory, or makes it. `unlock` opens the root key, in a
    /// transaction that commits if it succeeds. It returns the key that seals texts of documents,
    /// and a value for the caller.
    pub async fn open_in<T, E>(
        dir: DataDir,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T), E> + Send + 'static,
    ) -> Result<(Store, T), E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let opened = blocking(move || Sqlite::open(dir, unlock)).await;
        let (sqlite, documents, unlocked) = opened.map_err(StoreError::from)??;
        let store = Store {
            sqlite: sqlite.into(),
            faults: Faults::default(),
            checking: Semaphore::new(1).into(),
            event: None,
            documents,
        };
        Ok((store, unlocked))
    }

    /// The same store, failing as `faults` says.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Store {
        Store { faults, ..self }
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Calls `follower` with every mutation from now on. `false` if there is a follower already.
    pub fn follow(&self, follower: Follower) -> bool {
        self.sqlite.follow(follower)
    }

    /// Waits until every gateway that shares the store has applied `rev`. Only one gateway can use
    /// this store, and has applied it.
    pub async fn acknowledge(&self, _rev: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether the database of accounts can be written to.
    pub async fn healthy(&self) -> bool {
        let check = async {
            // Anybody may ask, and the queue is for writes: there is one check in it at most.
            let permit = Arc::clone(&self.checking).acquire_owned().await;
            let permit = permit.map_err(StoreError::unavailable)?;
            let check = move |connection: &mut Connection| {
                let _checking = permit;
                transaction::check_health(connection)
            };
            self.sqlite.accounts.run(check).await
        };
        let checked = tokio::time::timeout(HEALTH_TIMEOUT, check);
        !self.faults.broken() && matches!(checked.await, Ok(Ok(())))
    }

    /// Moves the write-ahead logs into the databases and empties them, unless a reader is in the
    /// way. Acknowledged writes are durable without it.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.sqlite.checkpoint().await
    }

    /// The data directory, which the store has locked.
    pub fn dir(&self) -> &Path {
        self.sqlite.dir()
    }

    /// Runs a mutation that tables in memory follow.
    async fn mutate(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<Vec<Change>, StoreError> + Send + 'static,
    ) -> Result<Committed, StoreError> {
        self.sqlite.mutate(&self.faults, self.event.clone(), work).await
    }

    /// Runs a transaction that no table in memory follows.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.sqlite.write(&self.faults, work).await
    }

    /// Reads on a connection of its own, beside the writer.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.sqlite.accounts_reader.read(&self.faults, work).await
    }

    /// Reads on the connection that writes, after the writes before it.
    async fn read_after_writes<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.sqlite.accounts.read(&self.faults, work).await
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
