//! The handover of a store to another process, if no other gateway shares the store. The tables of
//! the process that hands it over must not differ from those of its successor.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;

use super::sql::Transaction;
use super::steps::{Base, may_be_in_use};
use super::{Result, Store, StoreError, StoreUrl, load, postgres, sqlite};

/// Checks whether this build can take over the store of a data directory from a process that uses
/// it; [`StoreError::StopFirst`] if it would bring the store to steps that the other build cannot
/// work with. Blocking.
pub fn check_takeover(url: &StoreUrl, dir: &Path) -> Result<()> {
    let may = match url {
        StoreUrl::Sqlite => sqlite::look(dir, |store| may_be_in_use(store, Base::Accounts)),
        StoreUrl::Postgres(url) => {
            postgres::look(url, |store| may_be_in_use(store, Base::Postgres))
        }
    };
    if may? == Some(false) { Err(StoreError::StopFirst) } else { Ok(()) }
}

impl Store {
    /// Refuses mutations from now on, and returns when none is in progress. If gateways share the
    /// store, this does nothing, as their protocol has the same effect.
    pub async fn freeze(&self) -> Result<()> {
        if self.is_shared() {
            return Ok(());
        }
        let handover = &self.databases.handover;
        handover.frozen.store(true, Ordering::Release);
        // When this read runs, the mutations before it are committed, and the tables have followed
        // them.
        let rev =
            self.databases.accounts.read_after_writes(|transaction| transaction.revision()).await?;
        *handover.caught_up.lock().await = rev;
        Ok(())
    }

    /// Notes that another process has taken over.
    pub fn hand_over(&self) {
        self.databases.handover.handed_over.store(true, Ordering::Release);
    }

    /// Notes that no process takes over, and allows mutations again.
    pub fn take_back(&self) {
        self.databases.handover.handed_over.store(false, Ordering::Release);
        self.databases.handover.frozen.store(false, Ordering::Release);
    }

    pub fn is_handed_over(&self) -> bool {
        self.databases.handover.handed_over.load(Ordering::Acquire)
    }

    /// For a process that has handed over: the tables in memory follow every mutation that its
    /// successor has committed by now.
    pub async fn catch_up(&self) -> Result<()> {
        let Some(tables) = self.databases.follower.get().filter(|_| !self.is_shared()) else {
            return Ok(());
        };
        let mut caught_up = self.databases.handover.caught_up.lock().await;
        if self.databases.accounts.read(|transaction| transaction.revision()).await? == *caught_up {
            return Ok(());
        }
        let reload = tables.reload();
        let read = move |transaction: &Transaction<'_>| load::fill(transaction, reload);
        let (rev, reload) = self.databases.accounts.read(read).await?;
        reload.finish(rev);
        *caught_up = rev;
        Ok(())
    }

    /// Whether a process that handed over the data directory may still use it.
    pub fn has_predecessor(&self) -> bool {
        self.databases.dir.predecessor().runs()
    }

    pub fn predecessor_ended(&self) {
        self.databases.dir.predecessor().ended();
    }

    pub fn data_locks(&self) -> &[File] {
        &self.databases.dir.locks
    }
}
