//! Writes holds before they are drawn on, what was spent, and usage by day; more seldom usage by
//! hour and by five minutes. A batch of up to a thousand rows is one transaction. A batch that the
//! store refuses is kept and retried.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use log::{info, warn};
use tokio::time::Instant;

use super::Limiter;
use super::bounds::USAGE_WRITE_ROWS;
use super::budget::{Account, KnownSpend, Period, period};
use super::counters::{SubjectEntry, recall};
use super::draw::Subject;
use super::pending::lock;
use rerouter_base::id::UserId;
use rerouter_base::money::NanoUsd;
use rerouter_store::{HoldWrite, Per, Since, SpendNews, Store, StoreError, UsageKey, UsageSums};

/// Seconds between two writes of usage by hour and by five minutes. A crash may lose the usage of
/// this time.
pub(super) const USAGE_RECENT_INTERVAL_S: i64 = 10;
/// Days that usage is kept.
pub(super) const USAGE_DAYS: i64 = 400;
/// Time that usage by hour is kept: a week, and the day in which the week begins.
const USAGE_HOURS_KEPT: Duration = Duration::from_secs(8 * 86_400);
/// Time that usage by five minutes is kept.
const USAGE_MINUTES_KEPT: Duration = Duration::from_secs(6 * 3_600);

/// The day in UTC that `at` is in, as `yyyymmdd`.
pub fn day(at: Timestamp) -> i64 {
    period(Per::Day, at)
}

/// The periods of budgets that count. Requests of yesterday may still be running.
fn since(now: Timestamp) -> Since {
    let yesterday = now.checked_sub(Duration::from_secs(86_400)).unwrap_or(now);
    Since { month: period(Per::Month, yesterday), day: day(yesterday) }
}

impl Limiter {
    /// Loads what is spent and held of all budgets. Call it once, before the first request.
    pub async fn open(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let shared = store.is_shared() || store.has_predecessor();
        self.shared.store(shared, Ordering::Relaxed);
        if let Err(error) = store.open_holder(self.holder.0).await {
            // Traffic without a budget does not wait for a disk.
            warn!("budgets cannot be spent until the store can be written: {error}");
        }
        let news = store.spend_news(self.holder.0, "", since(now)).await?;
        self.learn(store, news, now);
        Ok(())
    }

    pub fn set_shared(&self, shared: bool) {
        self.is_alone.store(false, Ordering::Relaxed);
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Notes that no other process of this data directory uses the budgets any more. The next round
    /// of writes ends the others.
    pub fn draw_alone(&self) {
        self.is_alone.store(true, Ordering::Relaxed);
    }

    /// Reads what others spent and hold, after a change in the store. If the store cannot be read
    /// now, the next round does it.
    pub async fn refresh(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        self.is_stale.store(true, Ordering::Relaxed);
        let _turn = self.writing.lock().await;
        let seen = lock(&self.seen).clone();
        let news = store.spend_news(self.holder.0, &seen, since(now)).await?;
        self.is_stale.store(false, Ordering::Relaxed);
        self.learn(store, news, now);
        Ok(())
    }

    /// What this process holds of all budgets, and what dead processes held of those of `now`.
    pub fn held_and_lost(&self, now: Timestamp) -> (NanoUsd, NanoUsd) {
        let current = [period(Per::Month, now), day(now)];
        let (mut held, mut lost): (NanoUsd, NanoUsd) = (0, 0);
        let mut add = |of: Period, known: KnownSpend| {
            lost = lost.saturating_add(if current.contains(&of) { known.others.lost } else { 0 });
        };
        for entry in &self.counted {
            if let Some(account) = &entry.value().counts().account {
                held = held.saturating_add(account.held());
                account.known().for_each(|(of, known)| add(of, known));
            }
        }
        self.known.iter().for_each(|entry| add(entry.key().1, *entry.value()));
        (held, lost)
    }

    /// Notes what a request used, to be written with the next batch.
    pub fn used(&self, key: UsageKey, sums: &UsageSums) {
        lock(&self.pending).add(key, sums);
    }

    pub fn usage_waiting(&self) -> usize {
        lock(&self.pending).len() + lock(&self.recent).len()
    }

    /// Resolves with `true` as soon as a request waits for its hold, else with `false` at this
    /// time.
    pub async fn due(&self, at: Instant) -> bool {
        self.queue.due(at).await
    }

    pub async fn write_due_usage(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        self.keep_days(store, None).await?;
        let wait = self.recent_due.load(Ordering::Relaxed).saturating_sub(now.as_second());
        // A longer wait means that the clock was set back.
        if !(1..=USAGE_RECENT_INTERVAL_S).contains(&wait) {
            self.keep_recent(store, None).await?;
            let next = now.as_second().saturating_add(USAGE_RECENT_INTERVAL_S);
            self.recent_due.store(next, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes the spend and the holds of the budgets that are queued: of all, or only of those for
    /// which requests wait. Requests can draw on the holds from then on.
    pub async fn write_spend(
        &self,
        store: &Store,
        now: Timestamp,
        all: bool,
    ) -> Result<(), StoreError> {
        if all && self.is_alone.load(Ordering::Relaxed) && !store.is_shared() {
            store.end_other_holders(self.holder.0).await?;
            // Unless an upgrade has begun meanwhile.
            if self.is_alone.swap(false, Ordering::Relaxed) {
                self.set_shared(false);
            }
        }
        if all && (self.shared.load(Ordering::Relaxed) || self.is_stale.load(Ordering::Relaxed)) {
            self.refresh(store, now).await?;
        }
        if !self.is_holder.load(Ordering::Relaxed) && !self.closed.load(Ordering::Acquire) {
            self.revive(store, now).await?;
        }
        // Only what is queued now: later entries are for the next round.
        for _ in 0..self.queue.len(all).div_ceil(USAGE_WRITE_ROWS) {
            let _turn = self.writing.lock().await;
            let subjects = self.queue.take(USAGE_WRITE_ROWS, all);
            self.write_budgets(store, now, subjects).await?;
        }
        Ok(())
    }

    /// Notes what others spent and hold. Shrinks holds of budgets in which others found no room.
    fn learn(&self, store: &Store, news: SpendNews, now: Timestamp) {
        for ((subject, period), others) in news.changed {
            let subject = Subject::known(&subject);
            let mut is_learned = false;
            self.with_account(&subject, |account| is_learned = account.learn(period, others));
            if !is_learned {
                self.known.entry((subject.clone(), period)).or_default().others = others;
                // The account may have been opened meanwhile.
                self.with_account(&subject, |account| _ = account.learn(period, others));
            }
        }
        for (subject, _) in news.wanted {
            let subject = Subject::known(&subject);
            self.with_account(&subject, Account::give_back);
            self.queue.note(&subject);
        }
        *lock(&self.seen) = news.seen;
        self.is_holder.store(news.is_holder, Ordering::Relaxed);
        // Holds stay valid for the time of a lease after the store was asked.
        let lease = store.lease().and_then(|lease| now.checked_add(lease).ok());
        let until = if news.is_holder { lease.unwrap_or(Timestamp::MAX) } else { Timestamp::MIN };
        self.may_draw_until.store(until.as_microsecond(), Ordering::Release);
    }

    /// Registers this process again, after others took it for dead or if the start could not. Its
    /// holds must be written again, as an admin may have settled them.
    async fn revive(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        for entry in &self.counted {
            if let Some(account) = &mut entry.value().counts().account {
                account.is_unsure();
                self.queue.note(entry.key());
            }
        }
        let opened = store.open_holder(self.holder.0).await;
        self.failing.store(opened.is_err(), Ordering::Release);
        opened?;
        let news = store.spend_news(self.holder.0, "", since(now)).await?;
        info!("budgets can be spent again, and holds are written anew");
        self.learn(store, news, now);
        Ok(())
    }

    /// Writes the holds that these budgets need, in one transaction. The caller holds `writing`.
    async fn write_budgets(
        &self,
        store: &Store,
        now: Timestamp,
        subjects: Vec<Subject>,
    ) -> Result<(), StoreError> {
        let mut writes = Vec::new();
        for subject in subjects.iter().filter(|_| !self.closed.load(Ordering::Acquire)) {
            self.with_account(subject, |account| {
                account.turn(now, |period| recall(&self.known, subject, period));
                let wanted = account.writes(now);
                writes.extend(wanted.into_iter().map(|write| (subject.clone(), write)));
                // Queued until it holds nothing.
                if !account.is_done() {
                    self.queue.note(subject);
                }
            });
        }
        self.write_holds(store, writes).await
    }

    /// Writes holds in one transaction. Without an acknowledgement they are written again.
    async fn write_holds(
        &self,
        store: &Store,
        mut writes: Vec<(Subject, HoldWrite)>,
    ) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        for (subject, write) in &mut writes {
            write.key.0 = subject.as_str().to_owned();
        }
        let holds = writes.iter().map(|(_, write)| write.clone()).collect();
        let held = store.write_holds(self.holder.0, holds).await;
        self.failing.store(held.is_err(), Ordering::Release);
        let Some(held) = held? else {
            self.is_holder.store(false, Ordering::Relaxed);
            self.may_draw_until.store(i64::MIN, Ordering::Release);
            return Ok(());
        };
        for ((subject, write), held) in writes.iter().zip(held) {
            let mut is_new = false;
            self.with_account(subject, |account| is_new = account.wrote(write, held));
            // Without a change the waiting requests would only ask for the same write again.
            if let Some(counted) = self.counted.get(subject).filter(|_| is_new) {
                counted.written.notify_waiters();
            }
        }
        Ok(())
    }

    fn with_account(&self, subject: &Subject, act: impl FnOnce(&mut Account)) {
        let counted = self.counted.get(subject).map(|counted| Arc::clone(counted.value()));
        if let Some(account) = counted
            .as_ref()
            .map(|counted| counted.counts())
            .as_mut()
            .and_then(|counts| counts.account.as_mut())
        {
            act(account);
        }
    }

    /// Writes the usage that waits, of one user or of all. A read after it sees every request that
    /// has ended.
    pub async fn write_usage(
        &self,
        store: &Store,
        user: Option<&UserId>,
    ) -> Result<(), StoreError> {
        self.keep_days(store, user).await?;
        self.keep_recent(store, user).await
    }

    /// Lets no request spend a budget any more.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Writes what was spent and gives back what is held. No budget can be spent after it.
    pub async fn close(&self, store: &Store) -> Result<(), StoreError> {
        self.stop();
        let held = self.end_holds(store).await;
        self.keep_days(store, None).await?;
        self.keep_recent(store, None).await?;
        held
    }

    async fn end_holds(&self, store: &Store) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        self.closed.store(true, Ordering::Release);
        let mut last = Vec::new();
        for entry in &self.counted {
            let writes = entry.value().counts().account.as_mut().map(Account::last_writes);
            last.extend(writes.into_iter().flatten().map(|write| (entry.key().clone(), write)));
        }
        // A failed chunk does not make the others wrong.
        let mut failed = None;
        for some in last.chunks(USAGE_WRITE_ROWS) {
            failed = self.write_holds(store, some.to_vec()).await.err().or(failed);
        }
        if !self.is_holder.load(Ordering::Relaxed) {
            // Others took this process for dead: its last sums need its registration again.
            failed = store.open_holder(self.holder.0).await.err();
            for some in last.chunks(USAGE_WRITE_ROWS) {
                failed = self.write_holds(store, some.to_vec()).await.err().or(failed);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => store.close_holder(self.holder.0).await,
        }
    }

    /// Writes usage by day, of one user or of all.
    async fn keep_days(&self, store: &Store, user: Option<&UserId>) -> Result<(), StoreError> {
        // Locked even if no batch waits: another task may be writing one.
        let _turn = self.keeping.lock().await;
        let batches = lock(&self.pending).batches();
        for _ in 0..=batches {
            let Some(batch) = lock(&self.pending).take(user) else { break };
            if let Err(error) = store.write_usage(batch.clone()).await {
                lock(&self.pending).take_back(batch);
                return Err(error);
            }
            let mut recent = lock(&self.recent);
            batch.sums.into_iter().for_each(|(key, sums)| recent.add(key, &sums));
        }
        Ok(())
    }

    /// Writes usage that is not stored by hour and by five minutes yet, of one user or of all.
    async fn keep_recent(&self, store: &Store, user: Option<&UserId>) -> Result<(), StoreError> {
        let _turn = self.keeping.lock().await;
        let batches = lock(&self.recent).batches();
        for _ in 0..=batches {
            let Some(batch) = lock(&self.recent).take(user) else { break };
            let kept = store.write_recent_usage(batch.clone()).await;
            if kept.is_err() {
                lock(&self.recent).take_back(batch);
                return kept;
            }
        }
        Ok(())
    }

    /// Forgets subjects that are idle.
    pub fn sweep(&self, now: Timestamp) {
        let all: Vec<Subject> = self.counted.iter().map(|entry| entry.key().clone()).collect();
        // One by one, so that no request waits for all of them.
        for subject in all {
            self.counted.remove_if(&subject, |_, counted| self.may_forget(&subject, counted, now));
        }
        let Since { month, day } = since(now);
        self.known.retain(|(_, period), _| *period == month || *period >= day);
    }

    /// Whether a subject is idle. Its spend is kept. Call it while nobody can get the counters.
    fn may_forget(&self, subject: &Subject, counted: &Arc<SubjectEntry>, now: Timestamp) -> bool {
        // Each running request has a reference.
        if Arc::strong_count(counted) > 1 {
            return false;
        }
        let mut counts = counted.counts();
        counts.fill(now);
        let idle = counts.is_idle();
        if let Some(account) = counts.account.as_ref().filter(|_| idle) {
            for (period, known) in account.known() {
                self.known.insert((subject.clone(), period), known);
            }
        }
        idle
    }

    /// Deletes usage and spend that no query can ask for any more.
    pub async fn trim(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let oldest =
            now.checked_sub(Duration::from_secs(86_400 * USAGE_DAYS.unsigned_abs())).map_or(0, day);
        store.trim_spend(since(now), oldest).await?;
        store.trim_recent_usage(now, USAGE_HOURS_KEPT, USAGE_MINUTES_KEPT).await
    }
}
