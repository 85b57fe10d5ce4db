//! What is left of the limits that a request draws on: as answers say it in headers, refusals in
//! words and keys in their record.

use std::time::Duration;

use jiff::Timestamp;

use super::rate::RateLeft;
use rerouter_base::money::NanoUsd;
use rerouter_store::{Budget, ByCount, LimitOwner};

/// What is left of each kind of limit, by the limit that binds first. `None` where nothing limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    pub counts: ByCount<CountStatus>,
    pub money: Option<BudgetStatus>,
}

/// A limit of requests or tokens, and what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountStatus {
    /// Who has the limit.
    pub whose: LimitOwner,
    pub left: RateLeft,
    /// What is gone of it and not reserved; of requests at once how many there are.
    pub used: u64,
    /// The part of what is gone that requests under way have reserved.
    pub reserved: u64,
}

/// A budget, and what is gone of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetStatus {
    /// Who has the limit.
    pub whose: LimitOwner,
    /// How much for how long.
    pub budget: Budget,
    /// Spent in the period under way: more than the budget where an answer cost more than was
    /// reserved for it.
    pub spent: NanoUsd,
    /// The part of `spent` that was estimated.
    pub estimated: NanoUsd,
    /// Reserved by requests under way.
    pub reserved: NanoUsd,
    /// Held by other gateways.
    pub held: NanoUsd,
    /// Held by processes that died.
    pub lost: NanoUsd,
    /// When the next period begins.
    pub resets_at: Timestamp,
}

impl BudgetStatus {
    /// What may still be reserved.
    pub fn remaining(&self) -> NanoUsd {
        let BudgetStatus { budget, spent, reserved, held, lost, .. } = *self;
        [spent, reserved, held, lost].into_iter().fold(budget.nano, NanoUsd::saturating_sub)
    }

    /// How long until the next period begins.
    pub fn reset(&self, now: Timestamp) -> Duration {
        self.resets_at.duration_since(now).try_into().unwrap_or_default()
    }
}
