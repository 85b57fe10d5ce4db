//! What is written down behind the requests: grants before they count, and usage by day. One batch is one transaction; a
//! batch that the store refuses is kept and offered again.

use std::collections::HashMap;
use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use log::warn;

use super::Limiter;
use super::budget::{Grant, period};
use super::draw::{Draw, Subject, of_key, of_user};
use crate::auth::Auth;
use crate::bounds;
use crate::id::UserId;
use crate::store::{KeyRow, Limits, Per, SpendRow, Store, StoreError, UsageKey, UsageSums};

/// Usage that waits to be written.
#[derive(Default)]
pub(super) struct Pending {
    sums: HashMap<UsageKey, UsageSums>,
    dropped: u64,
}

impl Pending {
    fn add(&mut self, key: UsageKey, sums: &UsageSums) {
        let full = self.sums.len() >= bounds::BOOKS_PENDING;
        match self.sums.entry(key) {
            Entry::Occupied(mut entry) => entry.get_mut().add(sums),
            Entry::Vacant(_) if full => self.dropped += sums.requests,
            Entry::Vacant(entry) => _ = entry.insert(*sums),
        }
    }
}

/// The day in UTC that `at` is in, as `yyyymmdd`.
pub fn day(at: Timestamp) -> i64 {
    period(Per::Day, at)
}

impl Limiter {
    /// Takes in what counts as spent, and has the first grants of all budgets written; those that cannot be now are written as soon
    /// as they can, and what draws on them waits until then. Call once, before the first request.
    pub async fn open(&self, auth: &Auth, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        for row in store.spend(period(Per::Month, now)).await? {
            self.carried.insert((Subject::known(&row.subject), row.period), row.counted);
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
        let draws = of_key(auth, key);
        if draws.iter().any(|draw| draw.caps.budget.is_some()) {
            draws.iter().for_each(|draw| self.expect(draw, now));
            if let Err(error) = self.write(store, now).await {
                warn!("the first grant of a budget could not be written: {error}");
            }
        }
    }

    /// The same of a user's budget.
    pub async fn expect_user(&self, user: &UserId, limits: &Limits, store: &Store, now: Timestamp) {
        if let Some(draw) = of_user(user, limits).filter(|draw| draw.caps.budget.is_some()) {
            self.expect(&draw, now);
            if let Err(error) = self.write(store, now).await {
                warn!("the first grant of a budget could not be written: {error}");
            }
        }
    }

    fn expect(&self, draw: &Draw, now: Timestamp) {
        if draw.caps.budget.is_some() {
            self.counted(&draw.subject).counts().follow(draw, now, &self.carried);
        }
    }

    /// Notes what a request used, to be written with the next batch.
    pub fn used(&self, key: UsageKey, sums: &UsageSums) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).add(key, sums);
    }

    /// Resolves when something should be written soon, at the latest after [`bounds::BOOKS_INTERVAL`].
    pub async fn due(&self) {
        // Nobody woke us in time: then it is time.
        let _elapsed = tokio::time::timeout(bounds::BOOKS_INTERVAL, self.wake.notified()).await;
    }

    /// Writes what waits: usage, and the grants that are wanted, which count from then on.
    pub async fn write(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        let grants = if self.is_closed() { Vec::new() } else { self.wanted(now) };
        self.keep(store, &grants).await?;
        for (subject, grant) in grants {
            let counted = self.counted.get(&subject).map(|counted| Arc::clone(counted.value()));
            if let Some(account) = counted.as_ref().map(|counted| counted.counts()).as_mut().and_then(|counts| counts.account.as_mut()) {
                account.granted(grant);
            }
        }
        Ok(())
    }

    /// Writes down what was really spent, so that nothing of the grants is lost. From now on no budget is spent any more.
    pub async fn close(&self, store: &Store) -> Result<(), StoreError> {
        let _turn = self.writing.lock().await;
        self.closed.store(true, Ordering::Release);
        let without = self.carried.iter().map(|entry| {
            let (subject, period) = entry.key();
            (subject.clone(), Grant { period: *period, counted: *entry.value() })
        });
        let mut last: Vec<(Subject, Grant)> = without.collect();
        // After what was carried, and so in its place: an account may have come to a period of which a process before this one
        // had a grant.
        last.extend(self.each_account(|account| account.close()));
        self.keep(store, &last).await
    }

    async fn keep(&self, store: &Store, grants: &[(Subject, Grant)]) -> Result<(), StoreError> {
        let Pending { sums, dropped } = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        if dropped > 0 {
            warn!("{dropped} request(s) are missing in the sums of usage: the store was too slow for so many different ones");
        }
        if sums.is_empty() && grants.is_empty() {
            return Ok(());
        }
        let spend = grants.iter().map(|(subject, grant)| SpendRow {
            subject: subject.as_str().to_owned(),
            period: grant.period,
            counted: grant.counted,
        });
        let usage: Vec<(UsageKey, UsageSums)> = sums.into_iter().collect();
        let kept = store.keep_books(spend.collect(), usage.clone()).await;
        if kept.is_err() {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            usage.into_iter().for_each(|(key, sums)| pending.add(key, &sums));
        }
        kept
    }

    fn wanted(&self, now: Timestamp) -> Vec<(Subject, Grant)> {
        self.each_account(|account| {
            account.turn(now);
            account.wants(now)
        })
    }

    fn each_account(&self, ask: impl Fn(&mut super::Account) -> Vec<Grant>) -> Vec<(Subject, Grant)> {
        let mut found = Vec::new();
        for entry in &self.counted {
            if let Some(account) = &mut entry.value().counts().account {
                found.extend(ask(account).into_iter().map(|grant| (entry.key().clone(), grant)));
            }
        }
        found
    }

    /// Looks up who has a budget now, so that grants are there before requests are, and forgets who has used nothing of late.
    pub fn sweep(&self, auth: &Auth, now: Timestamp) {
        let mut live = HashSet::new();
        let mut note = |draw: Draw| {
            if draw.caps.budget.is_some() && !live.contains(&draw.subject) {
                self.expect(&draw, now);
                live.insert(draw.subject);
            }
        };
        for user in auth.users_with(|user| user.limits.budget.is_some()) {
            of_user(&user.id, &user.limits).into_iter().for_each(&mut note);
        }
        for key in auth.keys_with_budget(now) {
            of_key(auth, key.row()).into_iter().for_each(&mut note);
        }
        self.counted.retain(|subject, counted| {
            // Whoever takes a request in holds it; nobody can take hold of it while this looks.
            if live.contains(subject) || Arc::strong_count(counted) > 1 {
                return true;
            }
            let mut counts = counted.counts();
            let caps = counts.caps;
            super::follow(&mut counts.requests, caps.rpm, now);
            super::follow(&mut counts.tokens, caps.tpm, now);
            if !counts.is_idle() {
                return true;
            }
            if let Some(account) = &counts.account {
                self.carried.insert((subject.clone(), account.period()), account.spent());
            }
            false
        });
        let month = period(Per::Month, now);
        self.carried.retain(|(_, period), _| *period >= month);
    }

    /// Deletes what is too old to be asked for.
    pub async fn trim(&self, store: &Store, now: Timestamp) -> Result<(), StoreError> {
        let oldest = now.checked_sub(Duration::from_secs(86_400 * bounds::USAGE_DAYS.unsigned_abs())).map_or(0, day);
        store.trim_books(period(Per::Month, now), oldest).await
    }
}
