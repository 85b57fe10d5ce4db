//! A store that gateways share: which gateways these are, whether this one may answer, and the
//! attempts that they count together.

use std::sync::Arc;
use std::time::Duration;

use super::changes::Follower;
use super::cluster::{self, Authority, Cluster, GatewayRow, Joining};
use super::sql::{Transaction, Work, params};
use super::{AttemptLimit, Result, Store, StoreError, attempts, audit, holders, load};

impl Store {
    /// Whether other gateways may change it too.
    pub fn is_shared(&self) -> bool {
        self.databases.accounts.is_shared()
    }

    /// Loads `tables`. The first tables that are passed follow every mutation from now on. Returns
    /// whether these are the first. For the only process that uses the store.
    pub async fn follow(&self, tables: Arc<dyn Follower>) -> Result<bool> {
        let reload = tables.reload();
        let follows = self.databases.follower.set(tables).is_ok();
        let read = move |transaction: &Transaction<'_>| load::fill(transaction, reload);
        let (rev, reload) = self.databases.accounts.read_after_writes(read).await?;
        reload.finish(rev);
        Ok(follows)
    }

    /// Opens a store that other gateways may change: `tables` follow their mutations too. Returns
    /// when this gateway may answer.
    pub async fn join(&self, tables: Arc<dyn Follower>, joining: Joining) -> Result<()> {
        let Some(url) = joining.url.clone().filter(|_| self.is_shared()) else {
            return self.follow(tables).await.map(drop);
        };
        let predecessor = self.databases.dir.predecessor().clone();
        let documents = self.documents.clone();
        let cluster = Cluster::join(joining, url, documents, tables, predecessor).await?;
        let joined = self.databases.cluster.set(cluster);
        joined.map_err(|_| StoreError::unavailable("it is followed already"))
    }

    /// The name of this gateway among those that share the store; `None` if the store is not
    /// shared.
    pub fn instance(&self) -> Option<&str> {
        self.databases.shared_captures.as_ref().map(|shared| &*shared.instance)
    }

    /// The name of the data directory among those of gateways that share the store: always the
    /// same.
    pub fn directory(&self) -> Option<&str> {
        self.databases.shared_captures.as_ref().map(|shared| &*shared.directory)
    }

    /// Whether no other process writes captures under the name of this data directory.
    pub fn is_alone(&self) -> bool {
        self.databases.cluster.get().is_none_or(Cluster::is_alone)
    }

    /// Whether the tables in memory can be relied on.
    pub fn authority(&self) -> Authority {
        self.databases.cluster.get().map_or_else(Authority::sole, Cluster::authority)
    }

    /// The lease of a gateway; `None` if the store is not shared.
    pub fn lease(&self) -> Option<Duration> {
        self.databases.cluster.get().map(Cluster::lease)
    }

    /// Waits until every gateway that shares the store has applied `rev` or has stopped answering.
    /// Returns the names of gateways that may still answer without `rev`.
    pub async fn acknowledge(&self, rev: u64) -> Result<Vec<String>> {
        match self.databases.cluster.get() {
            Some(cluster) => cluster.acknowledge(rev).await,
            None => Ok(Vec::new()),
        }
    }

    /// The gateways that share the store, the newest registration first.
    pub async fn gateways(&self) -> Result<Vec<GatewayRow>> {
        self.read_shared(Vec::new(), cluster::gateways).await
    }

    /// The name of this process among gateways that share the store.
    pub fn process(&self) -> Option<&str> {
        self.databases.cluster.get().map(Cluster::process)
    }

    /// The names of this process among gateways that share the store, and of its machine; empty
    /// where there are no others.
    pub(super) fn gateway_names(&self) -> (String, String) {
        self.databases.cluster.get().map(Cluster::names).unwrap_or_default()
    }

    /// Takes a dead `serve_stale` gateway off the list; `false` if there is no such row, or if it
    /// was renewed since `row` was read.
    pub async fn forget_gateway(&self, row: &GatewayRow) -> Result<bool> {
        let (id, renewed_at, event) = (row.id.clone(), row.renewed_at, self.event.clone());
        if !self.is_shared() {
            return Ok(false);
        }
        let forget = move |transaction: &Transaction<'_>| {
            let delete = "DELETE FROM gateways
                          WHERE id = ?1 AND serves_stale = 1 AND renewed_at = ?2";
            if transaction.execute(delete, &params![id, renewed_at])? == 0 {
                return Ok(false);
            }
            holders::end_dead_holders(transaction)?;
            event.map_or(Ok(()), |event| audit::insert(transaction, &event))?;
            Ok(true)
        };
        self.write(forget).await
    }

    /// Counts an attempt against all of `limits`. If one of them is reached, nothing is counted,
    /// and the result is the time to wait. If the store is not shared, nothing is counted.
    pub async fn count_attempt(&self, limits: Vec<AttemptLimit>) -> Result<Option<Duration>> {
        self.write_shared(None, move |transaction| attempts::count(transaction, &limits)).await
    }

    /// For the end of the process: takes this gateway off the list, and ends its lease.
    pub async fn leave(&self) -> Result<()> {
        match self.databases.cluster.get() {
            Some(cluster) => cluster.leave().await,
            None => Ok(()),
        }
    }

    /// Writes a few rows of a table that only gateways which share the store have.
    pub(super) async fn write_shared<T: Send + 'static>(
        &self,
        otherwise: T,
        work: impl Work<T>,
    ) -> Result<T> {
        match self.is_shared() {
            true => self.prompt().write_beside(work).await,
            false => Ok(otherwise),
        }
    }

    /// Reads a table that only a shared store has, with one statement or with independent ones.
    /// Returns `otherwise` if the store is not shared.
    pub(super) async fn read_shared<T: Send + 'static>(
        &self,
        otherwise: T,
        work: impl Work<T>,
    ) -> Result<T> {
        match self.is_shared() {
            true => self.databases.accounts.read_one(work).await,
            false => Ok(otherwise),
        }
    }
}
