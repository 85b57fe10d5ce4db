//! The `usage` of a ROUTER key: the state of the limits that its requests count against.

use jiff::Timestamp;

use crate::app::App;
use rerouter_access::auth::Key;
use rerouter_access::limits::{self, BudgetStatus, CountStatus};
use rerouter_base::money::dollars;
use rerouter_records::key::{BudgetUsage, ConcurrencyUsage, KeyUsage, RateUsage};
use rerouter_store::KeyState;

/// The limit of each kind with the least left, as in the headers of answers. It may be a limit of
/// the key, of an ancestor or of the user. `None` for a key that has ended.
pub(super) fn usage(app: &App, key: &Key, now: Timestamp) -> Option<KeyUsage> {
    if matches!(key.state(now), KeyState::Expired | KeyState::Revoked) {
        return None;
    }
    let left = app.limits.remaining(&limits::draws_of_key(&app.auth, key.row()), now);
    let [requests, tokens, concurrency] = left.counts;
    Some(KeyUsage {
        requests: requests.map(|count| of_rate(&count, now, false)),
        tokens: tokens.map(|count| of_rate(&count, now, true)),
        concurrency: concurrency.map(of_places),
        budget: left.money.map(of_money),
    })
}

/// The spent or reserved share, from 0 to 1, of the budget with the least left; below 0 without a
/// budget.
pub(super) fn budget_used(app: &App, key: &Key, now: Timestamp) -> f64 {
    let draws = limits::draws_of_key(&app.auth, key.row());
    if draws.iter().all(|draw| draw.caps.budget.is_none()) {
        return -1.0;
    }
    let money = app.limits.remaining(&draws, now).money;
    money.map_or(-1.0, |money| 1.0 - dollars(money.remaining()) / dollars(money.budget.nano))
}

fn of_rate(rate: &CountStatus, now: Timestamp, reserves: bool) -> RateUsage {
    RateUsage {
        of: rate.whose,
        limit: rate.left.limit,
        used: rate.used,
        reserved: reserves.then_some(rate.reserved),
        remaining: rate.left.remaining,
        resets_at: now.checked_add(rate.left.reset).unwrap_or(Timestamp::MAX).into(),
    }
}

fn of_places(places: CountStatus) -> ConcurrencyUsage {
    ConcurrencyUsage {
        of: places.whose,
        limit: places.left.limit,
        in_use: places.used,
        remaining: places.left.remaining,
    }
}

fn of_money(money: BudgetStatus) -> BudgetUsage {
    BudgetUsage {
        of: money.whose,
        limit_usd: dollars(money.budget.nano),
        per: money.budget.per,
        spent_usd: dollars(money.spent),
        estimated_usd: dollars(money.estimated),
        reserved_usd: dollars(money.reserved),
        held_usd: dollars(money.held),
        lost_usd: dollars(money.lost),
        remaining_usd: dollars(money.remaining()),
        resets_at: money.resets_at.into(),
    }
}
