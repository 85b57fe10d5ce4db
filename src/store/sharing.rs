//! What a store is beside others: which gateways share it, and whether this one may answer.

use std::sync::Arc;
use std::time::Duration;

use super::captures::SharedCaptures;
use super::changes::Follower;
use super::cluster::{Authority, Cluster, GatewayRow, Joining};
use super::sql::{Transaction, params};
use super::{DataDir, Store, StoreError, audit, load};
use crate::atomic_file;
use crate::id::{GatewayId, Random};

/// The file in the data directory with [`DirectoryNames`], a line each.
pub(crate) const INSTANCE: &str = "gateway.id";

impl Store {
    /// Whether other gateways may change it too.
    pub(crate) fn is_shared(&self) -> bool {
        self.databases.accounts.is_shared()
    }

    /// Loads `tables`. The first ones follow every mutation from now on; whether these do. For the
    /// only process that uses the store.
    pub(crate) async fn follow(&self, tables: Arc<dyn Follower>) -> Result<bool, StoreError> {
        let reload = tables.reload();
        let follows = self.databases.follower.set(tables).is_ok();
        let read = move |transaction: &Transaction<'_>| load::fill(transaction, reload);
        let (rev, reload) = self.databases.accounts.read_after_writes(read).await?;
        reload.finish(rev);
        Ok(follows)
    }

    /// The same where other gateways may change the store: `tables` follow their mutations too.
    /// Returns when this gateway may answer.
    pub(crate) async fn join(
        &self,
        tables: Arc<dyn Follower>,
        joining: Joining,
    ) -> Result<(), StoreError> {
        let Some(target) = joining.target.clone().filter(|_| self.is_shared()) else {
            return self.follow(tables).await.map(drop);
        };
        let cluster = Cluster::join(joining, target, self.documents.clone(), tables).await?;
        let joined = self.databases.cluster.set(cluster);
        joined.map_err(|_| StoreError::unavailable("it is followed already"))
    }

    /// The name of this gateway among those that share the store; `None` where there are no others.
    pub(crate) fn instance(&self) -> Option<&str> {
        self.databases.shared_captures.as_ref().map(SharedCaptures::instance)
    }

    /// Whether the tables in memory may be believed.
    pub(crate) fn authority(&self) -> Authority {
        self.databases.cluster.get().map_or_else(Authority::sole, Cluster::authority)
    }

    /// The lease of a gateway; none where the store is not shared.
    pub(crate) fn lease(&self) -> Option<Duration> {
        self.databases.cluster.get().map(Cluster::lease)
    }

    /// Waits until every gateway that shares the store has applied `rev`, or answers nobody.
    /// Returns the names of those that may answer without it.
    pub async fn acknowledge(&self, rev: u64) -> Result<Vec<String>, StoreError> {
        match self.databases.cluster.get() {
            Some(cluster) => cluster.acknowledge(rev).await,
            None => Ok(Vec::new()),
        }
    }

    /// The gateways that share the store, the newest registration first.
    pub(crate) async fn gateways(&self) -> Result<Vec<GatewayRow>, StoreError> {
        match self.databases.cluster.get() {
            Some(cluster) => cluster.gateways().await,
            None => Ok(Vec::new()),
        }
    }

    /// Whether a row of the gateways is that of this one.
    pub(crate) fn is_instance(&self, instance: &str) -> bool {
        self.databases.cluster.get().is_some_and(|cluster| cluster.is_instance(instance))
    }

    /// Takes a dead gateway off the list; whether it was there.
    pub(crate) async fn forget_gateway(&self, id: &str) -> Result<bool, StoreError> {
        let (id, event) = (id.to_owned(), self.event.clone());
        if !self.is_shared() {
            return Ok(false);
        }
        let forget = move |transaction: &Transaction<'_>| {
            let delete = "DELETE FROM gateways WHERE id = ?1";
            if transaction.execute(delete, &params![id])? == 0 {
                return Ok(false);
            }
            event.map_or(Ok(()), |event| audit::insert(transaction, &event))?;
            Ok(true)
        };
        self.write(forget).await
    }

    /// For the end of the process: takes this gateway off the list, and ends its lease.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        match self.databases.cluster.get() {
            Some(cluster) => cluster.leave().await,
            None => Ok(()),
        }
    }

    /// Writes a table that only gateways which share the store have, and waits for no mutation.
    pub(super) async fn write_shared<T: Send + 'static>(
        &self,
        otherwise: T,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.databases.cluster.get() {
            Some(cluster) => cluster.write(work).await,
            None => Ok(otherwise),
        }
    }

    /// Reads such a table.
    pub(super) async fn read_shared<T: Send + 'static>(
        &self,
        otherwise: T,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        match self.databases.cluster.get() {
            Some(cluster) => cluster.read(work).await,
            None => Ok(otherwise),
        }
    }
}

/// The names in a data directory, each the id of a gateway.
pub(super) struct DirectoryNames {
    /// Of this gateway among those that share its store: the same after each start. The lock on the
    /// directory shows that the process before is gone; where it is not, after an upgrade, this
    /// process has a name of its own.
    pub(super) instance: String,
    /// Of the directory, always the same: the first instance.
    pub(super) directory: String,
}

impl DirectoryNames {
    /// Reads the file, or makes it. Blocking.
    pub(super) fn of(dir: &DataDir) -> Result<Self, StoreError> {
        let path = dir.path().join(INSTANCE);
        let directory = match std::fs::read_to_string(&path) {
            Ok(found) => {
                let mut names = found.lines().map(str::to_owned);
                let instance = names.next().unwrap_or_default();
                let directory = names.next().unwrap_or_else(|| instance.clone());
                if [&instance, &directory].iter().any(|name| GatewayId::parse(name).is_none()) {
                    return Err(StoreError::Damaged(path.display().to_string()));
                }
                if !dir.has_predecessor() {
                    return Ok(DirectoryNames { instance, directory });
                }
                Some(directory)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let instance = GatewayId::new(jiff::Timestamp::now(), &Random::System).to_string();
        let directory = directory.unwrap_or_else(|| instance.clone());
        atomic_file::write(&path, format!("{instance}\n{directory}\n").as_bytes())?;
        Ok(DirectoryNames { instance, directory })
    }
}
