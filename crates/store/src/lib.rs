//! The store: everything durable except the bodies of captures. Its API is async. A mutation is
//! acknowledged when it is on the disk and the tables in memory have followed it. The store takes
//! no decision about who may do what.
//!
//! `transaction.rs` has what all mutations share; each noun has a file with its methods and
//! statements. Statements pass through `sql.rs`, so a noun names no database; [`backend`] says
//! which one there is, and `sqlite/` and `postgres/` alone know theirs. The index of captures
//! ([`CaptureIndex`]) is in `captures/`. [`Faults`] wrap what a database is
//! asked to do.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

mod agents;
mod attempts;
mod audit;
mod audit_query;
mod audit_retention;
mod backend;
mod captures;
mod changes;
mod cluster;
mod columns;
mod creations;
mod data_dir;
mod directory_names;
mod document_texts;
mod documents;
mod error;
mod faults;
mod handover;
mod key_changes;
mod keys;
mod latency;
mod limits;
mod load;
mod migrate;
mod node_reports;
mod nodes;
mod pairs;
mod postgres;
mod reach;
mod reroutes;
mod root_key;
mod rows;
mod sessions;
mod settings;
mod sharing;
mod spend_recalls;
mod sql;
mod sqlite;
mod transaction;
mod usage;
mod usage_query;
mod usage_sums;
mod users;
mod uses;
mod value;
mod worker;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;

use backend::Backend;
use captures::SharedCaptures;
use cluster::Cluster;
use directory_names::DirectoryNames;
use handover::HandoverState;
use rerouter_base::blocking::blocking;
use rerouter_base::secret::SecretBytes;
use sql::Transaction;
use sqlite::CaptureDatabase;

pub use attempts::AttemptLimit;
pub use audit::{Action, Event};
pub use audit_query::{AuditFilter, AuditRow};
pub use captures::CaptureFilter;
pub use captures::{ByteRange, CaptureIndex, CaptureLocation, CaptureRow, SegmentRow, Shadows};
pub use changes::{Change, Committed, Follower, LiveDocument, Reload};
pub use cluster::{Authority, GatewayIdentity, GatewayRow, Joining};
pub use creations::KeptCreation;
pub use data_dir::DataDir;
pub use data_dir::{DataLocks, free_bytes};
pub use directory_names::INSTANCE;
pub use error::StoreError;
pub use faults::{Faults, PanicPoint};
pub use keys::KEYS_PER_OWNER;
pub use latency::LatencyCounts;
pub use limits::Limits;
pub use limits::{Budget, LIMIT_MODELS, Per, covers};
pub use migrate::migrate;
pub use node_reports::NodeReport;
pub use nodes::SpentNonce;
pub use pairs::Pairs;
pub use postgres::{PostgresTarget, TargetError};
pub use reach::Reach;
pub use reroutes::{KnownReroute, NamedReroute, RerouteAnswer};
pub use reroutes::{REPEATS_AGE, REPEATS_SHARE, REPEATS_SHARE_BYTES, REROUTE_CLAIM};
pub use root_key::inspect;
pub use root_key::{Opening, WrappedRootKey};
pub use rows::{Actor, KeyRow, KeyStatus};
pub use rows::{
    AgentRow, DocumentRow, KeyPatch, NewSecret, NodeModel, NodeRow, PreviousNodeSecret,
    Registration, Role, Seen, SessionRow, UserRow,
};
pub use settings::{OnLeaseLost, StoreSettings, StoreUrl};
pub use sqlite::{copy_accounts, copy_capture_index, drop_segments_of_copy};
pub use usage::{BudgetGrant, BudgetShare, SpendWish};
pub use usage_query::{UsageColumn, UsageGroup, UsageOrder, UsageQuery};
pub use usage_sums::{BatchNumber, UsageBatch, UsageInterval};
pub use usage_sums::{UsageKey, UsageSums, usage_slot};
pub use users::ChangeUser;

/// How long a health check waits.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A cheap handle of the store. The last one dropped closes the files.
#[derive(Clone)]
pub struct Store {
    databases: Arc<Databases>,
    faults: Faults,
    /// Permits one health check at a time.
    checking: Arc<Semaphore>,
    /// What its mutations are audited as.
    event: Option<Arc<Event>>,
    /// The key that seals texts of documents.
    documents: SecretBytes,
}

/// What all handles share. Fields are dropped in order: the directory is unlocked when the threads
/// have ended.
struct Databases {
    accounts: Backend,
    captures: CaptureDatabase,
    /// Where gateways share the index of captures.
    shared_captures: Option<SharedCaptures>,
    follower: Arc<OnceLock<Arc<dyn Follower>>>,
    /// Where other gateways may change the store too.
    cluster: OnceLock<Cluster>,
    handover: HandoverState,
    dir: DataDir,
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

    /// As [`Store::open_at`], with SQLite.
    pub async fn open_in<T, E>(
        dir: DataDir,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T), E> + Send + 'static,
    ) -> Result<(Store, T), E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        Store::open_at(dir, &StoreUrl::Sqlite, unlock).await
    }

    /// Opens the store with a locked directory, or makes it. `unlock` opens the root key, in a
    /// transaction that commits if it succeeds. It returns the key that seals texts of documents,
    /// and a value for the caller.
    pub async fn open_at<T, E>(
        dir: DataDir,
        url: &StoreUrl,
        unlock: impl FnOnce(&Opening<'_>) -> Result<(SecretBytes, T), E> + Send + 'static,
    ) -> Result<(Store, T), E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let url = url.clone();
        let open = move || {
            // Before the database is read: a process that hands over writes both.
            let noted = match &url {
                StoreUrl::Sqlite => data_dir::noted_revision(dir.path()),
                StoreUrl::Postgres(_) => 0,
            };
            let unlock = |transaction: &Transaction<'_>| {
                let lost = noted.saturating_sub(transaction.revision()?);
                if lost > 0 {
                    return Err(StoreError::LostChanges(lost).into());
                }
                root_key::unlock(transaction, unlock)
            };
            let (accounts, unlocked) = Backend::open(&url, dir.path(), unlock)?;
            let captures = CaptureDatabase::open(dir.path(), dir.has_predecessor())?;
            let shared_captures = match &url {
                StoreUrl::Sqlite => None,
                StoreUrl::Postgres(target) => {
                    Some(SharedCaptures::open(target, DirectoryNames::of(&dir)?)?)
                }
            };
            let (follower, handover) = (Arc::default(), HandoverState::default());
            let cluster = OnceLock::new();
            let databases =
                Databases { accounts, captures, shared_captures, follower, cluster, handover, dir };
            Ok::<_, E>((databases, unlocked))
        };
        let (databases, (documents, unlocked)) =
            blocking(open).await.map_err(StoreError::from)??;
        let store = Store {
            databases: databases.into(),
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

    /// This store for an audited action: each mutation by the returned handle that changes anything
    /// writes a row of `event` in its transaction.
    #[must_use]
    pub fn noting(&self, event: Event) -> Store {
        Store { event: Some(event.into()), ..self.clone() }
    }

    /// Writes an audit row of an action that this database does not hold.
    pub async fn note(&self, event: Event) -> Result<(), StoreError> {
        self.write(move |transaction| audit::insert(transaction, &event)).await
    }

    /// Whether the database of accounts can be written to.
    pub async fn healthy(&self) -> bool {
        let check = async {
            // Anybody may ask, and the queue is for writes: there is one check in it at most.
            let permit = Arc::clone(&self.checking).acquire_owned().await;
            let permit = permit.map_err(StoreError::unavailable)?;
            let check = move |transaction: &Transaction<'_>| {
                let _checking = permit;
                transaction.revision()
            };
            self.databases.accounts.try_out(check).await
        };
        let checked = tokio::time::timeout(HEALTH_TIMEOUT, check);
        !self.faults.broken() && matches!(checked.await, Ok(Ok(_)))
    }

    /// Moves the write-ahead logs into the databases and empties them, unless a reader is in the
    /// way. Acknowledged writes are durable without it.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let Databases { accounts, captures, .. } = &*self.databases;
        let (accounts, captures) = tokio::join!(accounts.checkpoint(), captures.checkpoint());
        accounts.and(captures)
    }

    /// The data directory, which the store has locked.
    pub fn dir(&self) -> &Path {
        self.databases.dir.path()
    }

    /// Runs a mutation: it is durable, then the tables in memory follow it, then it is
    /// acknowledged.
    async fn mutate(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<Vec<Change>, StoreError> + Send + 'static,
    ) -> Result<Committed, StoreError> {
        let event = self.event.clone();
        let frozen = self.databases.handover.frozen();
        let mutate = move |transaction: &Transaction<'_>| {
            frozen.check()?;
            transaction::mutate(transaction, event.as_deref(), work)
        };
        let follower = Arc::clone(&self.databases.follower);
        let noted = (!self.is_shared()).then(|| self.dir().to_owned());
        let follow = move |committed: Committed| {
            if let Some(dir) = noted.filter(|_| !committed.changes.is_empty()) {
                data_dir::note_revision(&dir, committed.rev);
            }
            transaction::follow(&follower, &committed);
            committed
        };
        let write = self.databases.accounts.write(self.faults.clone().writing(mutate), follow);
        let committed = write.await?;
        if let Some(cluster) = self.databases.cluster.get() {
            cluster.follow_up(committed.rev).await?;
        }
        Ok(committed)
    }

    /// Runs a transaction that no table in memory follows.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let written = self.databases.accounts.write(self.faults.clone().writing(work), |done| done);
        let done = written.await?;
        self.faults.answer_write().map(|()| done)
    }

    /// Reads beside the writer.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.databases.accounts.read(self.faults.clone().reading(work)).await
    }

    /// Reads after the writes that were asked for before.
    async fn read_after_writes<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.databases.accounts.read_after_writes(self.faults.clone().reading(work)).await
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
pub mod fixtures;
#[cfg(any(test, feature = "testing"))]
pub use sqlite::fixtures::hold_accounts;
#[cfg(test)]
mod tests;
