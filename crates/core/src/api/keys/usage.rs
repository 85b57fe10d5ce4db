//! `usage` of a ROUTER key: the state of the limits that its requests draw on.

use jiff::Timestamp;

use crate::app::App;
use rerouter_access::auth::Key;
use rerouter_access::limits::{self, BudgetStatus, ConcurrencyStatus, RateStatus};
use rerouter_base::money::dollars;
use rerouter_records::key::{BudgetUsage, ConcurrencyUsage, KeyUsage, RateUsage};
use rerouter_store::KeyState;

/// For each kind the limit with the least left, as in the headers of answers: of the key, of an
/// ancestor or of the user. `None` for a key that has ended.
pub(super) fn usage(app: &App, key: &Key, now: Timestamp) -> Option<KeyUsage> {
    if matches!(key.state(now), KeyState::Expired | KeyState::Revoked) {
        return None;
    }
    let left = app.limits.remaining(&limits::draws_of_key(&app.auth, key.row()), now);
    Some(KeyUsage {
        requests: left.requests.map(|rate| of_rate(&rate, now, false)),
        tokens: left.tokens.map(|rate| of_rate(&rate, now, true)),
        concurrency: left.places.map(of_places),
        budget: left.money.map(of_money),
    })
}

/// The share that is spent or reserved of the budget with the least left, of 1; below 0 without a
/// budget.
pub(super) fn budget_used(app: &App, key: &Key, now: Timestamp) -> f64 {
    let draws = limits::draws_of_key(&app.auth, key.row());
    if draws.iter().all(|draw| draw.caps.budget.is_none()) {
        return -1.0;
    }
    let money = app.limits.remaining(&draws, now).money;
    money.map_or(-1.0, |money| 1.0 - dollars(money.remaining()) / dollars(money.budget.nano))
}

fn of_rate(rate: &RateStatus, now: Timestamp, reserves: bool) -> RateUsage {
    RateUsage {
        of: rate.whose,
        limit: rate.left.limit,
        used: rate.used(),
        reserved: reserves.then_some(rate.reserved),
        remaining: rate.left.remaining,
        resets_at: now.checked_add(rate.left.reset).unwrap_or(Timestamp::MAX).into(),
    }
}

fn of_places(places: ConcurrencyStatus) -> ConcurrencyUsage {
    ConcurrencyUsage {
        of: places.whose,
        limit: places.limit,
        in_use: places.in_use,
        remaining: places.remaining(),
    }
}

fn of_money(money: BudgetStatus) -> BudgetUsage {
    BudgetUsage {
        of: money.whose,
        limit_usd: dollars(money.budget.nano),
        per: money.budget.per,
        spent_usd: dollars(money.spent),
        reserved_usd: dollars(money.reserved),
        remaining_usd: dollars(money.remaining()),
        resets_at: money.resets_at.into(),
    }
}
