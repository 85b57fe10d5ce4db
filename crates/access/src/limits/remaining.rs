//! What is left of the limits of a request, for the headers of answers, the texts of refusals and
//! the records of keys.

use std::time::Duration;

use jiff::Timestamp;

use super::rate::RateLeft;
use rerouter_base::money::NanoUsd;
use rerouter_store::{Budget, ByCount, LimitOwner};

/// What is left of each kind of limit, by the limit with the least left. `None` without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    pub counts: ByCount<CountStatus>,
    pub money: Option<BudgetStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountStatus {
    pub whose: LimitOwner,
    pub left: RateLeft,
    /// The used part; for concurrency, the number of running requests.
    pub used: u64,
    /// The part that running requests have reserved.
    pub reserved: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    pub whose: LimitOwner,
    pub budget: Budget,
    /// Spent in the current period. It exceeds the budget if an answer cost more than its reserve.
    pub spent: NanoUsd,
    /// The part of `spent` that was estimated.
    pub estimated: NanoUsd,
    /// Reserved by running requests.
    pub reserved: NanoUsd,
    /// Held by other gateways.
    pub held: NanoUsd,
    /// Held by processes that died.
    pub lost: NanoUsd,
    /// When the next period begins.
    pub resets_at: Timestamp,
}

impl BudgetStatus {
    /// The amount that can still be reserved.
    pub fn remaining(&self) -> NanoUsd {
        let BudgetStatus { budget, spent, reserved, held, lost, .. } = *self;
        [spent, reserved, held, lost].into_iter().fold(budget.nano, NanoUsd::saturating_sub)
    }

    pub fn reset(&self, now: Timestamp) -> Duration {
        self.resets_at.duration_since(now).try_into().unwrap_or_default()
    }
}
