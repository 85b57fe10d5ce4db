//! How a gateway follows the log and keeps its lease. Each round reads the log, applies it to the
//! tables in memory and renews the lease. The lease counts from before the read, as this gateway
//! does not know of later commits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::change_log::{self, LogBatch, LogPosition};
use super::peers;
use super::state::ClusterState;
use crate::changes::{Change, Follower};
use crate::load;
use crate::postgres::{DATABASE_JOIN, Database};
use crate::transaction::abort_if_it_panics;
use crate::{Result, StoreError, document_texts};
use rerouter_base::clock::{since_boot, wrong_clock};
use rerouter_base::id::GatewayId;

/// Number of rounds that found changes without a notification, after which a warning is logged. The
/// first such change may precede the connection that listens.
const UNHEARD: u32 = 5;

pub(super) struct LogFollower {
    shared: Arc<ClusterState>,
    worker: Database,
    tables: Arc<dyn Follower>,
    /// The position of the tables; `None` before the first load, and after a gap in the log.
    position: Option<LogPosition>,
    registration: Option<LiveRegistration>,
    /// Whether a notification began this round: the log has more then.
    is_woken: bool,
    /// Number of rounds that found a change for which the database had sent no notification.
    unheard: u32,
}

struct LiveRegistration {
    id: GatewayId,
    /// Whether it has had a lease.
    is_renewed: bool,
}

/// A complete read of the log, as of the time `began`.
pub(super) struct LogRead {
    began: Duration,
    /// Whether anything was applied.
    is_news: bool,
}

impl LogFollower {
    pub(super) fn new(
        shared: Arc<ClusterState>,
        worker: Database,
        tables: Arc<dyn Follower>,
    ) -> Self {
        let (position, registration, is_woken, unheard) = (None, None, false, 0);
        LogFollower { shared, worker, tables, position, registration, is_woken, unheard }
    }

    /// Runs rounds up to the first lease. Each answer has little time, so that a connection that
    /// hangs costs no lease. One slow answer must not end the start.
    pub(super) async fn begin(&mut self) -> Result<()> {
        let began = since_boot();
        loop {
            match self.round().await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(StoreError::Unavailable(why)) if since_boot() - began < DATABASE_JOIN => {
                    log::warn!("this gateway has no lease yet, and tries again: {why}");
                    tokio::time::sleep(self.shared.timing.heartbeat()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut failing = false;
        while !*stopping.borrow_and_update() {
            let round = self.round().await;
            let pause = match &round {
                Ok(true) => self.shared.jittered(self.shared.timing.heartbeat()),
                // This gateway lost its lease and can have another one at once.
                Ok(false) => Duration::ZERO,
                Err(_) => self.shared.jittered(self.shared.timing.heartbeat() / 4),
            };
            match round {
                Err(ref error) if !failing => log::warn!(
                    "this gateway cannot renew its lease, which ends in {:?}: {error}",
                    self.shared.authority.left().unwrap_or_default()
                ),
                Ok(_) if failing => log::info!("this gateway renews its lease again"),
                _ => {}
            }
            failing = round.is_err();
            self.is_woken = tokio::select! {
                () = tokio::time::sleep(pause) => false,
                () = self.shared.changed.notified() => true,
                _ = stopping.changed() => false,
            }
        }
    }

    /// Runs one round. `false`: this gateway was fenced and has to register anew.
    pub(super) async fn round(&mut self) -> Result<bool> {
        if let Some(twin) = &*self.shared.twin.load() {
            self.shared.authority.refuse();
            return Err(StoreError::unavailable(format_args!(
                "the gateway {twin} runs on the same data directory, or on a copy of it. Stop this \
                 one, and start it with an empty data directory of its own"
            )));
        }
        let began = since_boot();
        if !self.is_woken && self.renew_after(LogRead { began, is_news: false }, true).await? {
            return Ok(true);
        }
        let read = self.read().await?;
        if read.is_news && !self.shared.heard.load(Ordering::Relaxed) {
            self.unheard += 1;
            if self.unheard == UNHEARD {
                log::warn!(
                    "the database tells of no change, so changes take seconds: where `store.url` \
                     is a pooler, name the server itself in `store.direct_url`"
                );
            }
        }
        self.renew(read).await
    }

    /// Registers if necessary, and applies the whole log.
    pub(super) async fn read(&mut self) -> Result<LogRead> {
        let mut position = match self.position.clone() {
            Some(position) => position,
            None => self.load().await?,
        };
        if self.registration.is_none() {
            // This is done before the log is read: a change that does not see this row is in the
            // entries that are read.
            self.register(position.rev).await?;
        }
        let mut is_news = false;
        loop {
            let began = since_boot();
            let (from, key) = (position.clone(), self.shared.documents.clone());
            let read =
                self.worker.one(move |transaction| change_log::read(transaction, &from, &key));
            match read.await? {
                LogBatch::Gap(why) => {
                    log::warn!("the log of changes does not go on from here, {why}: loading all");
                    self.position = None;
                    // Nothing may be answered from tables that may be wrong.
                    self.shared.authority.end();
                    position = self.load().await?;
                    is_news = true;
                }
                LogBatch::Changes { committed, position: next, is_all } => {
                    if !committed.changes.is_empty() {
                        abort_if_it_panics(|| self.tables.apply(&committed));
                        is_news = true;
                    }
                    position = next;
                    self.position = Some(position.clone());
                    self.shared.applied.send_replace(position.rev);
                    if is_all {
                        return Ok(LogRead { began, is_news });
                    }
                }
            }
        }
    }

    /// Renews the lease, based on a read of the log. `false` if this gateway was fenced.
    pub(super) async fn renew(&mut self, read: LogRead) -> Result<bool> {
        if self.renew_after(read, false).await? {
            return Ok(true);
        }
        self.shared.authority.end();
        self.registration = None;
        log::warn!(
            "this gateway lost its lease: it was too slow for a change on another one, or the \
             database has another history, or tables of a later build. It registers anew"
        );
        Ok(false)
    }

    /// Renews the lease. `if_all`: only if the log has nothing more, as that statement sees it; it
    /// is the read then.
    async fn renew_after(&mut self, read: LogRead, if_all: bool) -> Result<bool> {
        let (Some(position), Some(registration)) = (&self.position, &mut self.registration) else {
            return Ok(false);
        };
        let (id, position, is_first) =
            (registration.id.clone(), position.clone(), !registration.is_renewed);
        let (process, document) =
            (self.shared.identity.process.clone(), self.tables.document().unwrap_or_default());
        let clock = self.shared.clock.clone();
        let ahead = clock.machine_ahead().unwrap_or(0);
        let wrong = wrong_clock(ahead);
        if self.shared.clock_is_wrong.swap(wrong.is_some(), Ordering::Relaxed) != wrong.is_some() {
            let told = wrong.as_deref().unwrap_or("right again");
            log::warn!("the clock of this machine is {told}");
        }
        let renew = self.worker.one(move |transaction| {
            let (applied, asked) = ((position.rev, position.mark.as_deref()), since_boot());
            let now = peers::renew(transaction, &id, applied, (&document, ahead), if_all)?;
            now.iter().for_each(|now| clock.learn(*now, asked));
            let renewed = now.is_some();
            if renewed && is_first {
                peers::forget_former(transaction, &process, &id)?;
            }
            Ok(renewed)
        });
        let renewed = renew.await?;
        if renewed {
            registration.is_renewed = true;
            self.shared.authority.hold_until(read.began + self.shared.timing.lease);
            if read.is_news {
                self.shared.others_applied.notify_one();
            }
        }
        Ok(renewed)
    }

    async fn register(&mut self, applied: u64) -> Result<()> {
        self.shared.authority.end();
        let id = GatewayId::new(self.shared.clock.now(), &self.shared.random);
        let (new, identity) = (id.clone(), self.shared.identity.clone());
        let (serves_stale, document) =
            (self.shared.serves_stale, self.tables.document().unwrap_or_default());
        let lease = self.shared.timing.lease;
        let register = self.worker.one(move |transaction| {
            let state = (serves_stale, applied, &*document);
            peers::register(transaction, &new, &identity, lease, state)
        });
        let registered = register.await;
        if let Err(StoreError::OtherSchema { .. }) = registered {
            self.shared.authority.refuse();
        }
        registered?;
        self.registration = Some(LiveRegistration { id, is_renewed: false });
        Ok(())
    }

    /// Loads all rows into the tables. Other rows are removed from the tables.
    async fn load(&mut self) -> Result<LogPosition> {
        let (reload, key) = (self.tables.reload(), self.shared.documents.clone());
        let load = self.worker.read(move |transaction| {
            let (_, mut reload) = load::fill(transaction, reload)?;
            if let Some(document) = document_texts::live(transaction, &key)? {
                reload.row(Change::Document(document));
            }
            Ok((change_log::newest(transaction)?, reload))
        });
        let (position, reload) = load.await?;
        abort_if_it_panics(|| reload.finish(position.rev));
        self.position = Some(position.clone());
        self.shared.applied.send_replace(position.rev);
        Ok(position)
    }
}
