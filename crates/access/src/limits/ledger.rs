//! What is written behind the requests: grants before they count, and usage by day; more seldom
//! usage by hour and by five minutes. A batch of some thousand rows is one transaction. A batch
//! that the store refuses is kept and retried.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use log::warn;

use super::Limiter;
use super::bounds::{GRANT_AHEAD, USAGE_PENDING, USAGE_WRITE_ROWS};
use super::budget::{Account, Grant, GrantWish, Period, period};
use super::counters::SubjectEntry;
use super::draw::{Draw, Subject, of_key, of_user};
use super::pending::lock;
use crate::auth::Auth;
use rerouter_base::id::UserId;
use rerouter_store::{
    BudgetGrant, KeyRow, Limits, Per, SpendWish, Store, StoreError, UsageBatch, UsageKey, UsageSums,
};

/// Budgets that each round checks for the first grant of the next day: half a million within
/// [`GRANT_AHEAD`].
pub(super) const GRANT_AHEAD_BUDGETS: usize = 2_000;
/// Seconds between two writes of usage by hour and by five minutes. A crash may lose the usage of
/// this time.
pub(super) const USAGE_RECENT_INTERVAL_S: i64 = 10;
/// Days that usage is kept.
pub(super) const USAGE_DAYS: i64 = 400;
/// How long usage by hour is kept: a week, and the day that it begins in.
const USAGE_HOURS_KEPT: Duration = Duration::from_secs(8 * 86_400);
/// How long usage by five minutes is kept.
const USAGE_MINUTES_KEPT: Duration = Duration::from_secs(6 * 3_600);

/// The day in UTC that `at` is in, as `yyyymmdd`.
pub fn day(at: Timestamp) -> i64 {
    period(Per::Day, at)
}

impl Limiter {
    /// Loads what counts as spent and writes the first grants of all budgets. A grant that cannot
    /// be written now is retried, and its requests wait until then. Call it once, before the first
    /// request.
    pub async fn open(&self, auth: &Auth, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let shared = store.is_shared() || store.has_predecessor();
        self.carried.shared.store(shared, Ordering::Relaxed);
        for row in store.spend(period(Per::Month, now)).await? {
            self.carried.counted.insert((Subject::known(&row.subject), row.period), row.counted);
        }
        self.sweep(auth, now);
        if let Err(error) = self.write(store, now).await {
            // Traffic without a budget is not to wait for a disk.
            warn!("the first grants of budgets could not be written: {error}");
        }
        Ok(())
    }

    /// Has the first grant of a new key's budget written, so that its first request finds it.
    pub async fn expect_key(&self, auth: &Auth, key: &KeyRow, store: &Store, now: Timestamp) {
        self.expect_all(&of_key(auth, key), store, now).await;
    }

    /// Has the first grant of a user's budget written.
    pub async fn expect_user(&self, user: &UserId, limits: &Limits, store: &Store, now: Timestamp) {
        self.expect_all(of_user(user, limits).as_slice(), store, now).await;
    }

    async fn expect_all(&self, draws: &[Draw], store: &Store, now: Timestamp) {
        let paid = draws.iter().filter(|draw| draw.caps.budget.is_some());
        let subjects: Vec<Subject> = paid
            .inspect(|draw| self.open_account(draw, now))
            .map(|draw| draw.subject.clone())
            .collect();
        if subjects.is_empty() {
            return;
        }
        let _turn = self.writing.lock().await;
        if let Err(error) = self.grant(store, now, subjects, None).await {
            warn!("the first grant of a budget could not be written: {error}");
        }
    }

    pub(super) fn open_account(&self, draw: &Draw, now: Timestamp) {
        if draw.caps.budget.is_some() {
            let counted = self.counted(&draw.subject);
            counted.follow(&mut counted.counts(), draw, now, &self.carried);
        }
    }

    /// Notes what a request used, to be written with the next batch.
    pub fn used(&self, key: UsageKey, sums: &UsageSums) {
        lock(&self.pending).add(key, sums);
    }

    /// Resolves when something should be written, at the latest after
    /// [`super::USAGE_WRITE_INTERVAL`].
    pub async fn due(&self) {
        self.wanted.due().await;
    }

    /// Writes what waits: usage, and the grants that are wanted, which count from then on.
    pub async fn write(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let written = self.round(store, now).await;
        self.failing.store(written.is_err(), Ordering::Release);
        written.map(|_| ())
    }

    /// The same; gives how many budgets were looked at.
    pub(super) async fn round(&self, store: &Store, now: Timestamp) -> Result<usize, StoreError> {
        let soon = now.checked_add(GRANT_AHEAD).unwrap_or(now);
        let all = || self.counted.iter().map(|entry| entry.key().clone()).collect();
        self.wanted.look_ahead(day(soon), GRANT_AHEAD_BUDGETS, all);
        // Of what waits by now: what comes meanwhile is for the next time.
        let wanted = self.wanted.len().div_ceil(USAGE_WRITE_ROWS);
        let waits = wanted.max(lock(&self.pending).batches());
        let mut looked = 0;
        if self.is_shared() && !self.is_closed() {
            self.give_back(store, now).await?;
        }
        for _ in 0..waits {
            let _turn = self.writing.lock().await;
            let subjects = self.wanted.take(USAGE_WRITE_ROWS);
            looked += subjects.len();
            let batch = lock(&self.pending).take(None);
            self.grant(store, now, subjects, batch).await?;
        }
        let due = self.recent_due.load(Ordering::Relaxed);
        if now.as_second() >= due {
            let _turn = self.writing.lock().await;
            self.keep_recent(store, None).await?;
            let next = now.as_second().saturating_add(USAGE_RECENT_INTERVAL_S);
            self.recent_due.store(next, Ordering::Relaxed);
        }
        Ok(looked)
    }

    /// Gives back what is not used of the budgets that another gateway lacks.
    async fn give_back(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        let mut back = Vec::new();
        for (subject, period) in store.recalled_spend().await? {
            let subject = Subject::known(&subject);
            self.with_account(&subject, |account| {
                back.extend(account.give_back(period, now).map(|wish| (subject.clone(), wish)));
            });
        }
        self.keep_grants(store, back, None).await
    }

    /// Writes the usage that waits, of one user or of all. A read after it sees every request that
    /// has ended.
    pub async fn write_usage(
        &self,
        store: &Store,
        user: Option<&UserId>,
    ) -> Result<(), StoreError> {
        for _ in 0..=USAGE_PENDING / USAGE_WRITE_ROWS {
            // Also where none waits: some may be on their way.
            let _turn = self.writing.lock().await;
            let Some(batch) = lock(&self.pending).take(user) else { break };
            self.keep(store, &[], Some(batch)).await?;
        }
        let _turn = self.writing.lock().await;
        self.keep_recent(store, user).await
    }

    /// Writes what was really spent, so that no grant is lost. No budget can be spent after it.
    pub async fn close(&self, store: &Store) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        self.closed.store(true, Ordering::Release);
        let mut last: HashMap<(Subject, Period), GrantWish> = HashMap::new();
        // What is carried was counted by others, where there are any.
        if !self.is_shared() {
            last.extend(self.carried_wishes());
        }
        // It replaces what was carried: an earlier process may have had a grant of the same period.
        for entry in &self.counted {
            let ends = entry.value().counts().account.as_mut().map(Account::close);
            let ends = ends.into_iter().flatten();
            last.extend(ends.map(|wish| ((entry.key().clone(), wish.period), wish)));
        }
        let last: Vec<(Subject, GrantWish)> =
            last.into_iter().map(|((subject, _), wish)| (subject, wish)).collect();
        // Each is true by itself; of one that cannot be written its grant counts as spent.
        let mut failed = None;
        for some in last.chunks(USAGE_WRITE_ROWS) {
            failed = self.keep(store, some, None).await.err().or(failed);
        }
        loop {
            let Some(batch) = lock(&self.pending).take(None) else { break };
            self.keep(store, &[], Some(batch)).await?;
        }
        self.keep_recent(store, None).await?;
        failed.map_or(Ok(()), Err)
    }

    /// What is carried, to be written.
    pub(super) fn carried_wishes(&self) -> HashMap<(Subject, Period), GrantWish> {
        let carried = self.carried.counted.iter();
        let wish = |(subject, period): &(Subject, Period), counted| {
            ((subject.clone(), *period), GrantWish::carried(*period, counted))
        };
        carried.map(|entry| wish(entry.key(), *entry.value())).collect()
    }

    /// Writes the grants that these budgets want, with usage, in one transaction. The grants count
    /// once it is durable. The caller holds `writing`.
    async fn grant(
        &self,
        store: &Store,
        now: Timestamp,
        subjects: Vec<Subject>,
        batch: Option<UsageBatch>,
    ) -> Result<(), StoreError> {
        let mut grants = Vec::new();
        for subject in subjects.iter().filter(|_| !self.is_closed()) {
            self.with_account(subject, |account| {
                account.turn(now);
                grants.extend(account.wants(now).into_iter().map(|grant| (subject.clone(), grant)));
            });
        }
        self.keep_grants(store, grants, batch).await
    }

    /// Writes grants, with usage, in one transaction. They count once it is durable. Those that the
    /// store did not acknowledge are wanted again: it may have them.
    pub(super) async fn keep_grants(
        &self,
        store: &Store,
        wishes: Vec<(Subject, GrantWish)>,
        batch: Option<UsageBatch>,
    ) -> Result<(), StoreError> {
        let kept = self.keep(store, &wishes, batch).await;
        if kept.is_err() {
            wishes.iter().for_each(|(subject, _)| self.wanted.note(subject));
        }
        let granted = kept?;
        for ((subject, wish), granted) in wishes.into_iter().zip(granted) {
            let (held, others) = (granted.held, granted.others);
            let reserved = (wish.recalls && store.is_shared()).then_some(granted.reserved);
            let (period, holder) = (wish.period, wish.share.holder);
            let grant = Grant { period, holder, held, others, reserved };
            let mut is_new = false;
            self.with_account(&subject, |account| is_new = account.granted(grant));
            // For what is as it was nobody has to look again.
            if let Some(counted) = self.counted.get(&subject).filter(|_| is_new) {
                counted.granted.notify_waiters();
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

    pub(super) async fn keep(
        &self,
        store: &Store,
        wishes: &[(Subject, GrantWish)],
        batch: Option<UsageBatch>,
    ) -> Result<Vec<BudgetGrant>, StoreError> {
        if batch.is_none() && wishes.is_empty() {
            return Ok(Vec::new());
        }
        let spend = wishes.iter().map(|(subject, wish)| SpendWish {
            subject: subject.as_str().to_owned(),
            period: wish.period,
            share: wish.share,
            recalls: wish.recalls,
            reserved: wish.reserved,
        });
        let kept =
            store.write_spend_and_usage(spend.collect(), batch.clone().unwrap_or_default()).await;
        match batch {
            Some(batch) if kept.is_err() => lock(&self.pending).take_back(batch),
            Some(batch) => {
                let mut recent = lock(&self.recent);
                batch.sums.into_iter().for_each(|(key, sums)| recent.add(key, &sums));
            }
            None => {}
        }
        kept
    }

    /// Writes what the sums by hour and by five minutes lack, of one user or of all. The caller
    /// holds `writing`.
    async fn keep_recent(&self, store: &Store, user: Option<&UserId>) -> Result<(), StoreError> {
        for _ in 0..=USAGE_PENDING / USAGE_WRITE_ROWS {
            let Some(batch) = lock(&self.recent).take(user) else { break };
            let kept = store.write_recent_usage(batch.clone()).await;
            if kept.is_err() {
                lock(&self.recent).take_back(batch);
                return kept;
            }
        }
        Ok(())
    }

    /// Opens accounts for all budgets, so that grants precede requests, and forgets subjects that
    /// are idle.
    pub fn sweep(&self, auth: &Auth, now: Timestamp) {
        let mut live = HashSet::new();
        let mut note = |draw: Draw| {
            if draw.caps.budget.is_some() && !live.contains(&draw.subject) {
                self.open_account(&draw, now);
                live.insert(draw.subject);
            }
        };
        for user in auth.users_with(|user| user.limits.budget.is_some()) {
            of_user(&user.id, &user.limits).into_iter().for_each(&mut note);
        }
        for key in auth.keys_with_budget(now) {
            of_key(auth, key.row()).into_iter().for_each(&mut note);
        }
        let others = self
            .counted
            .iter()
            .filter(|entry| !live.contains(entry.key()))
            .map(|entry| entry.key().clone());
        // One by one, so that nobody waits until all of them are looked at.
        for subject in others.collect::<Vec<_>>() {
            self.counted.remove_if(&subject, |_, counted| self.may_forget(&subject, counted, now));
        }
        let month = period(Per::Month, now);
        self.carried.counted.retain(|(_, period), _| *period >= month);
    }

    /// Whether a subject is idle; what it spent is carried. Call it while nobody can take the
    /// counters.
    fn may_forget(&self, subject: &Subject, counted: &Arc<SubjectEntry>, now: Timestamp) -> bool {
        // Whoever takes a request in holds it.
        if Arc::strong_count(counted) > 1 {
            return false;
        }
        let mut counts = counted.counts();
        counts.fill(now);
        let idle = counts.is_idle();
        if let Some(account) = counts.account.as_ref().filter(|_| idle) {
            self.carried.counted.insert((subject.clone(), account.period()), account.spent());
        }
        idle
    }

    /// Deletes what is too old to be asked for.
    pub async fn trim(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let oldest =
            now.checked_sub(Duration::from_secs(86_400 * USAGE_DAYS.unsigned_abs())).map_or(0, day);
        let month = period(Per::Month, now);
        store.trim_spend_and_usage(month, oldest).await?;
        // Requests of yesterday may be under way.
        let yesterday = now.checked_sub(Duration::from_secs(86_400)).map_or(0, day);
        store.trim_shares(month, yesterday).await?;
        store.trim_recent_usage(now, USAGE_HOURS_KEPT, USAGE_MINUTES_KEPT).await
    }
}
