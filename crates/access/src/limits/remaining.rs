//! What is left of the limits that a request draws on: as answers say it in headers, refusals in
//! words and keys in their record.

use std::sync::MutexGuard;
use std::time::Duration;

use jiff::Timestamp;

use super::draw::LimitOwner;
use super::rate::{Bucket, RateLeft};
use super::{SubjectCounters, SubjectHold};
use rerouter_base::money::NanoUsd;
use rerouter_store::Budget;

/// Of each limit, the one that binds first; `None` where nothing limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Of requests a minute.
    pub requests: Option<RateStatus>,
    /// Of tokens a minute.
    pub tokens: Option<RateStatus>,
    /// Of requests at once.
    pub places: Option<ConcurrencyStatus>,
    pub money: Option<BudgetStatus>,
}

/// A rate and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateStatus {
    /// Who has the limit.
    pub whose: LimitOwner,
    /// The rate, what is left, and when it is full again.
    pub left: RateLeft,
    /// Of what is gone, as much as requests under way have reserved.
    pub reserved: u64,
}

/// A limit of requests at once, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyStatus {
    /// Who has the limit.
    pub whose: LimitOwner,
    /// How many there may be.
    pub limit: u64,
    /// How many there are.
    pub in_use: u64,
}

/// A budget, and what is gone of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    /// Who has the limit.
    pub whose: LimitOwner,
    /// How much for how long.
    pub budget: Budget,
    /// Spent in the period under way, or held by other gateways: more than the budget where an
    /// answer cost more than was reserved for it.
    pub spent: NanoUsd,
    /// Reserved by requests under way.
    pub reserved: NanoUsd,
    /// Whether other gateways draw on it too.
    pub is_shared: bool,
    /// When the next period begins.
    pub resets_at: Timestamp,
}

impl RateStatus {
    /// What is gone of it and not reserved.
    pub fn used(&self) -> u64 {
        self.left.limit.saturating_sub(self.left.remaining).saturating_sub(self.reserved)
    }
}

impl ConcurrencyStatus {
    /// How many more there may be.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.in_use)
    }
}

impl BudgetStatus {
    /// What may still be reserved.
    pub fn remaining(&self) -> NanoUsd {
        self.budget.nano.saturating_sub(self.spent).saturating_sub(self.reserved)
    }

    /// How long until the next period begins.
    pub fn reset(&self, now: Timestamp) -> Duration {
        self.resets_at.duration_since(now).try_into().unwrap_or_default()
    }
}

impl Remaining {
    /// Of all that a request draws on, each brought up to now.
    pub(super) fn of(held: &[SubjectHold], all: &[MutexGuard<'_, SubjectCounters>]) -> Self {
        let mut least = Remaining::default();
        for (counts, held) in all.iter().zip(held) {
            let Remaining { requests, tokens, places, money } = counts.remaining(held.whose);
            keep(&mut least.requests, requests, |rate| (rate.left.remaining, rate.left.limit));
            keep(&mut least.tokens, tokens, |rate| (rate.left.remaining, rate.left.limit));
            keep(&mut least.places, places, |places| (places.remaining(), places.limit));
            keep(&mut least.money, money, |money| (money.remaining(), money.budget.nano));
        }
        least
    }
}

/// Keeps the lesser of the two.
fn keep<T>(least: &mut Option<T>, other: Option<T>, by: fn(&T) -> (u64, u64)) {
    if let Some(other) = other
        && least.as_ref().is_none_or(|least| by(&other) < by(least))
    {
        *least = Some(other);
    }
}

impl SubjectCounters {
    /// What is left of the limits of one subject.
    pub(super) fn remaining(&self, whose: LimitOwner) -> Remaining {
        let rate = |bucket: &Option<Bucket>, reserved: u64| {
            let left = bucket.as_ref()?.left();
            // A bucket may have filled up again under what is still reserved.
            let reserved = reserved.min(left.limit.saturating_sub(left.remaining));
            Some(RateStatus { whose, left, reserved })
        };
        Remaining {
            requests: rate(&self.requests, 0),
            tokens: rate(&self.tokens, self.reserved),
            places: self.caps.concurrency.map(|limit| ConcurrencyStatus {
                whose,
                limit,
                in_use: self.running,
            }),
            money: self
                .account
                .as_ref()
                .filter(|_| self.caps.budget.is_some())
                .map(|account| account.money(whose)),
        }
    }
}
