//! The counters of a key or user.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::budget::{Account, KnownSpend, Period, period};
use super::draw::{Caps, Draw, Subject};
use super::rate::{Bucket, RateLeft};
use super::remaining::{CountStatus, Remaining};
use super::write_queue::WriteQueue;
use rerouter_base::money::NanoUsd;
use rerouter_store::{ByCount, COUNTS, LimitOwner};

/// The spend of budgets that have no account.
pub(super) type KnownBudgets = DashMap<(Subject, Period), KnownSpend>;

/// Removes and returns the spend of a budget, for its new account.
pub(super) fn recall(known: &KnownBudgets, subject: &Subject, period: Period) -> KnownSpend {
    let known = known.remove(&(subject.clone(), period));
    known.map_or(KnownSpend::default(), |(_, known)| known)
}

pub(super) struct SubjectEntry {
    pub(super) subject: Subject,
    pub(super) counts: Mutex<SubjectCounters>,
    pub(super) queue: Arc<WriteQueue>,
    /// Wakes requests that wait for a hold.
    pub(super) written: Notify,
}

#[derive(Default)]
pub(super) struct SubjectCounters {
    pub(super) caps: Caps,
    pub(super) buckets: ByCount<Bucket>,
    /// Tokens that requests under way have reserved.
    pub(super) reserved: u64,
    pub(super) running: u64,
    pub(super) account: Option<Account>,
}

pub(super) struct SubjectHold {
    pub(super) counted: Arc<SubjectEntry>,
    pub(super) whose: LimitOwner,
    pub(super) money: Option<(Period, NanoUsd)>,
}

impl SubjectEntry {
    pub(super) fn counts(&self) -> MutexGuard<'_, SubjectCounters> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SubjectCounters {
    /// Updates the counters to the current limits and the time.
    pub(super) fn follow(&mut self, draw: &Draw, now: Timestamp, known: &KnownBudgets) {
        self.caps = draw.caps;
        self.fill(now);
        let Some(budget) = draw.caps.budget else { return };
        let recall = |period| recall(known, &draw.subject, period);
        let Some(account) = &mut self.account else {
            let spend = recall(period(budget.per, now));
            self.account = Some(Account::open(budget, now, spend));
            return;
        };
        if account.follow(budget) {
            return account.turn(now, recall);
        }
        account.change(budget, now, recall);
    }

    /// The account, if the limits have a budget now.
    pub(super) fn account(&mut self) -> Option<&mut Account> {
        self.account.as_mut().filter(|_| self.caps.budget.is_some())
    }

    pub(super) fn fill(&mut self, now: Timestamp) {
        for ((bucket, limit), row) in self.buckets.iter_mut().zip(self.caps.counts).zip(&COUNTS) {
            match (bucket.as_mut(), limit.zip(row.window)) {
                (_, None) => *bucket = None,
                (None, Some((limit, window))) => *bucket = Some(Bucket::full(limit, window, now)),
                (Some(bucket), Some((limit, _))) => bucket.follow(limit, now),
            }
        }
    }

    pub(super) fn admit(&mut self, tokens: u64) {
        self.running += 1;
        self.reserved = self.reserved.saturating_add(tokens);
        self.take(1, signed(tokens));
    }

    /// A negative amount is put back.
    pub(super) fn take(&mut self, requests: i64, tokens: i64) {
        for (bucket, row) in self.buckets.iter_mut().zip(&COUNTS) {
            if let Some(bucket) = bucket {
                bucket.take(row.counts.of(requests, tokens));
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running == 0
            && self.buckets.iter().flatten().all(Bucket::is_full)
            && self.account.as_ref().is_none_or(Account::is_done)
    }
}

/// Locks the counters of all that a request draws on, in the order of subjects: so no two requests
/// deadlock.
pub(super) fn lock(held: &[SubjectHold]) -> Vec<MutexGuard<'_, SubjectCounters>> {
    held.iter().map(|held| held.counted.counts()).collect()
}

impl Remaining {
    /// What is left of all limits of a request. The counters must be up to date.
    pub(super) fn of(held: &[SubjectHold], all: &[MutexGuard<'_, SubjectCounters>]) -> Self {
        let mut least = Remaining::default();
        for (counts, held) in all.iter().zip(held) {
            let Remaining { counts, money } = counts.remaining(held.whose);
            for (least, count) in least.counts.iter_mut().zip(counts) {
                keep(least, count, |count| (count.left.remaining, count.left.limit));
            }
            keep(&mut least.money, money, |money| (money.remaining(), money.budget.nano));
        }
        least
    }
}

/// Keeps the one with less left.
fn keep<T>(least: &mut Option<T>, other: Option<T>, by: fn(&T) -> (u64, u64)) {
    if let Some(other) = other
        && least.as_ref().is_none_or(|least| by(&other) < by(least))
    {
        *least = Some(other);
    }
}

impl SubjectCounters {
    pub(super) fn remaining(&self, whose: LimitOwner) -> Remaining {
        let mut counts = ByCount::default();
        let kinds = COUNTS.iter().zip(&self.buckets).zip(self.caps.counts);
        for (status, ((row, bucket), limit)) in counts.iter_mut().zip(kinds) {
            *status = limit.map(|limit| match bucket {
                Some(bucket) => {
                    let left = bucket.left();
                    let gone = left.limit.saturating_sub(left.remaining);
                    // The bucket may have filled up although requests still reserve a part.
                    let reserved = row.counts.of(0, self.reserved).min(gone);
                    CountStatus { whose, left, used: gone - reserved, reserved }
                }
                None => {
                    let remaining = limit.saturating_sub(self.running);
                    let left = RateLeft { limit, remaining, reset: Duration::ZERO };
                    CountStatus { whose, left, used: self.running, reserved: 0 }
                }
            });
        }
        Remaining {
            counts,
            money: self
                .account
                .as_ref()
                .filter(|_| self.caps.budget.is_some())
                .map(|account| account.money(whose)),
        }
    }
}

pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
