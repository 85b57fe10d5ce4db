//! The changes that wait for other gateways, the search for dead gateways, and the pruning of the
//! log. One task does all three. While a change waits, it looks for gateways that are behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::barrier::{Barrier, BarrierEnd, BarrierStep};
use super::change_log;
use super::peers;
use super::reaper::Reaper;
use super::state::ClusterState;
use crate::postgres::Database;
use crate::sql::Transaction;
use crate::{Result, StoreError, attempts, holders};
use rerouter_base::clock::since_boot;

/// Least and longest time between two looks at the rows while a change waits. In between it is
/// half of the time that the newest change has waited, so a slow gateway costs few looks.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Time between two prunings of the log.
const PRUNE: Duration = Duration::from_secs(60);
/// How long attempts to log in and to register are kept: longer than any of them counts.
const ATTEMPTS_KEPT: Duration = Duration::from_secs(2 * 3600);

/// The answer has the names of the gateways that may lack the change.
pub(super) struct Acknowledgement {
    pub(super) rev: u64,
    pub(super) reply: oneshot::Sender<Result<Vec<String>>>,
}

struct Waiting {
    barrier: Barrier,
    reply: oneshot::Sender<Result<Vec<String>>>,
}

pub(super) struct Acknowledger {
    shared: Arc<ClusterState>,
    worker: Database,
    asked: mpsc::Receiver<Acknowledgement>,
    waiting: Vec<Waiting>,
    reaper: Reaper,
    /// When the rows of the other gateways were last searched for dead ones.
    reaped: Duration,
    pruned: Duration,
}

impl Acknowledger {
    pub(super) fn new(
        shared: Arc<ClusterState>,
        worker: Database,
        asked: mpsc::Receiver<Acknowledgement>,
    ) -> Self {
        let (reaper, now) = (Reaper::default(), since_boot());
        Acknowledger {
            shared,
            worker,
            asked,
            waiting: Vec::new(),
            reaper,
            reaped: now,
            pruned: now,
        }
    }

    pub(super) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut failing = false;
        while !*stopping.borrow_and_update() {
            let pause = match self.waiting.last() {
                None => self.shared.jittered(self.shared.timing.heartbeat()),
                Some(last) => {
                    let waited = since_boot().saturating_sub(last.barrier.began);
                    (waited / 2).clamp(LOOK.0, LOOK.1)
                }
            };
            tokio::select! {
                asked = self.asked.recv() => match asked {
                    Some(asked) => self.take(asked),
                    None => return,
                },
                _ = timeout(pause, self.shared.others_applied.notified()) => {}
                _ = stopping.changed() => {}
            }
            // These are taken before the rows are read, so that the rows are newer than each
            // waiting change.
            while let Ok(asked) = self.asked.try_recv() {
                self.take(asked);
            }
            let round = self.round().await;
            if let Err(error) = &round {
                if !failing {
                    log::warn!("the other gateways cannot be looked up: {error}");
                }
                self.give_up(error);
                tokio::time::sleep(LOOK.1).await;
            }
            failing = round.is_err();
        }
    }

    fn take(&mut self, asked: Acknowledgement) {
        let barrier = Barrier::new(asked.rev, since_boot());
        self.waiting.push(Waiting { barrier, reply: asked.reply });
    }

    async fn round(&mut self) -> Result<()> {
        let now = since_boot();
        let reaps = now >= self.reaped + self.shared.timing.heartbeat();
        if self.waiting.is_empty() && !reaps {
            return Ok(());
        }
        if let Some(rev) = self.waiting.iter().map(|one| one.barrier.rev).max() {
            let process = self.shared.identity.process.clone();
            let behind =
                move |transaction: &Transaction<'_>| peers::behind(transaction, &process, rev);
            let behind = self.worker.one(behind).await?;
            self.step(&behind).await?;
        }
        if reaps {
            let (own, rev) = (self.shared.identity.clone(), *self.shared.applied.borrow());
            let suspects =
                move |transaction: &Transaction<'_>| peers::suspects(transaction, &own, rev);
            let suspects = self.worker.one(suspects).await?;
            self.reap(&suspects).await?;
        }
        if now >= self.pruned + PRUNE {
            self.worker.write_beside(upkeep).await?;
            self.pruned = now;
        }
        Ok(())
    }

    /// Advances all waiting changes. `others` are behind one of them.
    async fn step(&mut self, others: &[peers::Peer]) -> Result<()> {
        let (now, timing) = (since_boot(), self.shared.timing);
        let (mut fence, mut over) = (None, Vec::new());
        let mut waiting = Vec::with_capacity(self.waiting.len());
        for one in std::mem::take(&mut self.waiting) {
            match one.barrier.step(now, timing, others) {
                BarrierStep::Wait => waiting.push(one),
                BarrierStep::Fence => {
                    fence = fence.max(Some(one.barrier.rev));
                    waiting.push(one);
                }
                BarrierStep::Done(end) => over.extend(self.answer(one, end)),
            }
        }
        self.waiting = waiting;
        if let Some(rev) = fence {
            self.fence(rev, others).await?;
        }
        if !over.is_empty() {
            let delete =
                move |transaction: &Transaction<'_>| peers::delete_fenced(transaction, &over);
            self.worker.one(delete).await?;
        }
        Ok(())
    }

    /// Fences the gateways that are behind `rev`, for all changes that have waited long enough.
    async fn fence(&mut self, rev: u64, others: &[peers::Peer]) -> Result<()> {
        let process = self.shared.identity.process.clone();
        let fence = move |transaction: &Transaction<'_>| peers::fence(transaction, &process, rev);
        let ids = self.worker.write_beside(fence).await?;
        let now = since_boot();
        for other in others.iter().filter(|other| ids.contains(&other.id)) {
            log::warn!(
                "the gateway {} does not apply changes (it is at {}, the newest is {rev}): its \
                 lease is not renewed",
                other.name,
                other.applied
            );
        }
        for one in self.waiting.iter_mut().filter(|one| one.barrier.rev <= rev) {
            one.barrier.fenced(now, &ids);
        }
        Ok(())
    }

    /// Tells the caller of a change how its wait ended. Returns the ids of gateways whose rows can
    /// be deleted.
    fn answer(&self, one: Waiting, end: BarrierEnd) -> Vec<String> {
        let took = since_boot().saturating_sub(one.barrier.began);
        self.shared.metrics.cluster.acknowledged.observe(took.as_secs_f64());
        if !end.unconfirmed.is_empty() {
            log::error!(
                "change {} is not confirmed by {}, which answer without a lease",
                one.barrier.rev,
                end.unconfirmed.join(", ")
            );
        }
        // A caller that went away needs no answer.
        let _gone = one.reply.send(Ok(end.unconfirmed));
        end.over
    }

    /// Answers the changes that waited too long for the database.
    fn give_up(&mut self, why: &StoreError) {
        let timing = self.shared.timing;
        let most = 2 * (timing.patience() + timing.until_stopped());
        let (late, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|one| since_boot() >= one.barrier.began + most);
        self.waiting = waiting;
        for one in late {
            let error = format!("it is durable, but not every gateway has confirmed it: {why}");
            let _gone = one.reply.send(Err(StoreError::Unavailable(error)));
        }
    }

    async fn reap(&mut self, others: &[peers::Peer]) -> Result<()> {
        let now = since_boot();
        let applied = *self.shared.applied.borrow();
        let furthest = others.iter().map(|other| applied.saturating_sub(other.applied)).max();
        self.shared
            .metrics
            .cluster
            .lag
            .set(i64::try_from(furthest.unwrap_or(0)).unwrap_or(i64::MAX));
        let own = &self.shared.identity;
        let before = &self.shared.predecessor;
        let dead = self.reaper.look(now, self.shared.timing, (own, before), others);
        self.reaped = now;
        let is_alone = others.iter().all(|other| other.directory != own.directory);
        self.shared.is_alone.store(is_alone, Ordering::Release);
        let twin = others.iter().find(|other| self.reaper.twin() == Some(&*other.id));
        self.shared.twin.store(twin.map(|twin| twin.name.clone().into()));
        for (id, renewals) in dead {
            let name = others.iter().find(|other| other.id == id).map(|other| other.name.clone());
            let delete = move |transaction: &Transaction<'_>| {
                let is_deleted = peers::delete_dead(transaction, &id, renewals)?;
                holders::end_dead_holders(transaction).map(|()| is_deleted)
            };
            if self.worker.write_beside(delete).await? {
                log::warn!("the gateway {} is gone", name.unwrap_or_default());
            }
        }
        Ok(())
    }
}

fn upkeep(transaction: &Transaction<'_>) -> Result<()> {
    change_log::prune(transaction)?;
    holders::end_dead_holders(transaction)?;
    attempts::trim(transaction, ATTEMPTS_KEPT)
}
