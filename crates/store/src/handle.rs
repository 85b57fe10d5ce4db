//! The handle of a store: how it is opened, and how it reads and writes.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::audit::{self, Event};
use super::backend::Backend;
use super::captures::{SharedCaptures, take_prefix};
use super::changes::{Change, Committed, Follower};
use super::cluster::Cluster;
use super::data_dir::{self, DataDir};
use super::directory_names::DirectoryNames;
use super::faults::Faults;
use super::root_key::{self, Opening};
use super::sql::{Transaction, Work};
use super::sqlite::CaptureDatabase;
use super::transaction;
use super::{Result, StoreError, StoreUrl};
use rerouter_base::blocking::blocking;
use rerouter_base::secret::SecretBytes;

/// How long a health check waits.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// A cheap handle of the store. The last one dropped closes the files.
#[derive(Clone)]
pub struct Store {
    pub(super) databases: Arc<Databases>,
    pub(super) faults: Faults,
    /// Permits one health check at a time.
    checking: Arc<Semaphore>,
    /// The audit event of its mutations.
    pub(super) event: Option<Arc<Event>>,
    /// The key that seals texts of documents.
    pub(super) documents: SecretBytes,
}

/// The state that all handles share. Fields are dropped in order, so the directory is unlocked
/// after the threads have ended.
pub(super) struct Databases {
    pub(super) accounts: Backend,
    pub(super) captures: CaptureDatabase,
    /// Set if gateways share the index of captures.
    pub(super) shared_captures: Option<SharedCaptures>,
    pub(super) follower: Arc<OnceLock<Arc<dyn Follower>>>,
    /// Set if other gateways may change the store too.
    pub(super) cluster: OnceLock<Cluster>,
    pub(super) handover: HandoverState,
    pub(super) dir: DataDir,
}

#[derive(Default)]
pub(super) struct HandoverState {
    /// Set while mutations are refused.
    pub(super) frozen: Arc<AtomicBool>,
    /// Set when another process has taken over.
    pub(super) handed_over: AtomicBool,
    /// The revision of the tables in memory, from the time on when only [`Store::catch_up`] changes
    /// them.
    pub(super) caught_up: tokio::sync::Mutex<u64>,
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
    pub async fn open(data_dir: &Path) -> Result<Store> {
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
            // This is read before the database, because a process that hands over writes both.
            let noted = match &url {
                StoreUrl::Sqlite => data_dir::noted_revision(dir.path()),
                StoreUrl::Postgres(_) => 0,
            };
            let names = match &url {
                StoreUrl::Sqlite => None,
                StoreUrl::Postgres(_) => Some(DirectoryNames::of(&dir)?),
            };
            let unlock = |transaction: &Transaction<'_>| {
                let lost = noted.saturating_sub(transaction.revision()?);
                if lost > 0 {
                    return Err(StoreError::LostChanges(lost).into());
                }
                let prefix = names.as_ref().map(|names| take_prefix(transaction, names));
                let (unlocked, replaced) = root_key::unlock(transaction, unlock)?;
                Ok::<_, E>(((unlocked, prefix.transpose()?), replaced))
            };
            let (accounts, (unlocked, prefix)) = Backend::open(&url, dir.path(), unlock)?;
            let captures = CaptureDatabase::open(dir.path(), dir.predecessor().runs())?;
            let shared_captures = match (&accounts, names, prefix) {
                (Backend::Postgres(database), Some(names), Some(prefix)) => {
                    Some(SharedCaptures::of(database.clone(), names, prefix))
                }
                _ => None,
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

    /// Writes an audit row of an action that does not change this database.
    pub async fn note(&self, event: Event) -> Result<()> {
        self.write(move |transaction| audit::insert(transaction, &event)).await
    }

    /// Whether the database of accounts can be written to.
    pub async fn healthy(&self) -> bool {
        let check = async {
            // Anybody may request a check, and the queue is for writes, so it holds one check at
            // most.
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

    /// Moves the write-ahead logs into the databases and empties them. Returns `false` if a reader
    /// was in the way. Acknowledged writes are durable without it.
    pub async fn checkpoint(&self) -> Result<bool> {
        let Databases { accounts, captures, .. } = &*self.databases;
        let (accounts, captures) = tokio::join!(accounts.checkpoint(), captures.checkpoint());
        Ok(accounts? & captures?)
    }

    pub fn dir(&self) -> &Path {
        self.databases.dir.path()
    }

    /// Runs a mutation: it is durable, then the tables in memory follow it, then it is
    /// acknowledged.
    pub(super) async fn mutate(&self, work: impl Work<Vec<Change>>) -> Result<Committed> {
        let event = self.event.clone();
        let frozen = Arc::clone(&self.databases.handover.frozen);
        let mutate = move |transaction: &Transaction<'_>| {
            if frozen.load(Ordering::Acquire) {
                return Err(StoreError::unavailable("a new process is taking over"));
            }
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
    pub(super) async fn write<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        let written = self.databases.accounts.write(self.faults.clone().writing(work), |done| done);
        let done = written.await?;
        self.faults.answer_write().map(|()| done)
    }

    /// The connection for what requests wait for. Where gateways share the store, it is that of the
    /// lease: the other one may be busy for seconds, as with a long list.
    pub(super) fn prompt(&self) -> &Backend {
        self.databases.cluster.get().map_or(&self.databases.accounts, |cluster| &cluster.prompt)
    }

    /// As [`Store::write`], on this connection, for a write that waits for no mutation.
    pub(super) async fn write_beside<T: Send + 'static>(
        &self,
        connection: &Backend,
        work: impl Work<T>,
    ) -> Result<T> {
        let done = connection.write_beside(self.faults.clone().writing(work)).await?;
        self.faults.answer_write().map(|()| done)
    }

    /// As [`Store::write_beside`], for one statement, which may be sent again.
    pub(super) async fn write_one<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        let done = self.databases.accounts.write_one(self.faults.clone().writing(work)).await?;
        self.faults.answer_write().map(|()| done)
    }

    /// Reads with one short statement, after the writes that were requested earlier.
    pub(super) async fn read_one<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.prompt().read_one(self.faults.clone().reading(work)).await
    }

    /// Reads without waiting for writes.
    pub(super) async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T> {
        self.databases.accounts.read(self.faults.clone().reading(work)).await
    }

    /// Reads after the writes that were requested earlier.
    pub(super) async fn read_after_writes<T: Send + 'static>(
        &self,
        work: impl Work<T>,
    ) -> Result<T> {
        self.databases.accounts.read_after_writes(self.faults.clone().reading(work)).await
    }
}
