//! Budgets of a day or a month in UTC. Money is reserved before it is spent and settled by what was
//! spent. What may be spent is granted before, and a grant is durable before it counts. So a crash
//! makes no budget larger, except by one reserve that was ahead of its grant (see the room).
//!
//! Gateways that share their store have a grant each, and all grants together stay within the
//! budget. One that finds no room, while others hold grants, asks them to give back what they do
//! not use.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::bounds;
use super::remaining::BudgetStatus;
use rerouter_base::id::Random;
use rerouter_base::money::NanoUsd;
use rerouter_store::{Budget, BudgetShare, LimitOwner, Per};

/// A day as `yyyymmdd`, or a month as `yyyymm00`.
pub(crate) type Period = i64;

/// The period that `at` is in.
pub(super) fn period(per: Per, at: Timestamp) -> Period {
    let date = at.to_zoned(TimeZone::UTC).date();
    let month = i64::from(date.year()) * 10_000 + i64::from(date.month()) * 100;
    match per {
        Per::Day => month + i64::from(date.day()),
        Per::Month => month,
    }
}

fn is_of_months(period: Period) -> bool {
    period % 100 == 0
}

/// When the period after this one begins.
fn end(period: Period) -> Option<Timestamp> {
    let (year, month, day) = (period / 10_000, period / 100 % 100, period % 100);
    let first = Date::new(
        i16::try_from(year).ok()?,
        i8::try_from(month).ok()?,
        i8::try_from(day.max(1)).ok()?,
    )
    .ok()?;
    let last = if is_of_months(period) { first.last_of_month() } else { first };
    Some(last.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// What a request reserves of every budget that it draws on: `most`. Where less is left of one of
/// them, and nobody else holds a part of it, what is left there. A request is refused where that is
/// less than `least`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    pub(super) least: NanoUsd,
    pub(super) most: NanoUsd,
}

impl Reserve {
    /// A reserve of exactly this amount, or of nothing.
    pub fn exactly(amount: NanoUsd) -> Self {
        Reserve { least: amount, most: amount }
    }

    /// From `least` to `most`. For a request that may cost something, something has to be left.
    pub fn between(least: NanoUsd, most: NanoUsd) -> Self {
        Reserve { least: least.clamp(most.min(1), most), most }
    }
}

/// Why money cannot be reserved, from the shortest to the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BudgetRefusal {
    /// The grant is used up, and the next one is not durable yet.
    NotGranted,
    /// Other requests have reserved it, here or at another gateway.
    Held,
    /// The rest of the budget is too small.
    Spent,
}

/// What is spent and reserved in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PeriodSpend {
    period: Period,
    /// Start of the next period.
    ends: Timestamp,
    spent: NanoUsd,
    reserved: NanoUsd,
    /// What counts as spent after a crash.
    granted: NanoUsd,
    /// What others hold, and earlier processes: a part of `spent` and of `granted`.
    others: NanoUsd,
}

impl PeriodSpend {
    fn new(period: Period, held: NanoUsd, others: NanoUsd) -> Self {
        PeriodSpend {
            period,
            ends: end(period).unwrap_or(Timestamp::MAX),
            spent: others,
            granted: others.saturating_add(held),
            others,
            ..PeriodSpend::default()
        }
    }

    fn used(&self) -> NanoUsd {
        self.spent.saturating_add(self.reserved)
    }
}

/// A grant that is to be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GrantWish {
    pub(super) period: Period,
    /// What this process is to hold, in place of what it holds.
    pub(super) share: BudgetShare,
    /// Whether others are asked to give back where there is no room.
    pub(super) recalls: bool,
    /// For another gateway that asked: what requests under way have reserved here.
    pub(super) reserved: NanoUsd,
}

impl GrantWish {
    /// What an earlier process spent of a period.
    pub(super) fn carried(period: Period, counted: NanoUsd) -> Self {
        let share =
            BudgetShare { budget: counted, others: Some(counted), ..BudgetShare::default() };
        GrantWish { period, share, recalls: false, reserved: 0 }
    }
}

/// A durable grant: what this process holds, and what others hold. After a crash all of it counts
/// as spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) period: Period,
    pub(super) holder: i64,
    pub(super) held: NanoUsd,
    pub(super) others: NanoUsd,
    /// What of `others` is reserved, where others were asked to give back.
    pub(super) reserved: Option<NanoUsd>,
}

/// The budget of one subject.
#[derive(Debug)]
pub(super) struct Account {
    /// The name in the store of what it holds, random: an account that is opened again starts with
    /// nothing, and what the one before held counts as that of others.
    holder: i64,
    budget: Budget,
    now: PeriodSpend,
    /// The first grant of the next period.
    next: Option<Grant>,
    /// The largest reserve so far: a grant holds several.
    largest: NanoUsd,
    /// The last reserve that was wanted: what others are asked for.
    latest: NanoUsd,
    /// Whether other gateways draw on the budget.
    shared: bool,
    /// When others were last asked to give back.
    asked: Option<Timestamp>,
    /// What others are known to have spent of what they hold: they answered that.
    settled: NanoUsd,
    /// Until then it is granted no more than it needs: another gateway lacks it.
    lean_until: Timestamp,
    /// Whether a wish was not answered, so far: the store may have granted it.
    is_unsure: bool,
    /// The latest time that it was told.
    seen: Timestamp,
}

impl Account {
    /// An account of which `counted` of this period is spent.
    pub(super) fn open(budget: Budget, at: Timestamp, counted: NanoUsd, shared: bool) -> Self {
        Account {
            holder: Random::System.next_u64().cast_signed(),
            budget,
            now: PeriodSpend::new(period(budget.per, at), 0, counted),
            next: None,
            largest: 0,
            latest: 0,
            shared,
            asked: None,
            settled: 0,
            lean_until: Timestamp::MIN,
            is_unsure: false,
            seen: at,
        }
    }

    /// Changes the sum. Returns `false` if the new budget has another kind of period.
    pub(super) fn follow(&mut self, budget: Budget) -> bool {
        if self.budget.per == budget.per {
            self.budget = budget;
        }
        self.budget.per == budget.per
    }

    /// Moves on to the period of `at`; never back, so that no day counts twice.
    pub(super) fn turn(&mut self, at: Timestamp) {
        self.seen = self.seen.max(at);
        if at >= self.now.ends {
            let period = period(self.budget.per, at);
            let next = self.next.take().filter(|next| next.period == period);
            let (held, others) = next.map_or((0, 0), |next| (next.held, next.others));
            self.now = PeriodSpend::new(period, held, others);
            (self.asked, self.settled) = (None, 0);
        }
    }

    /// Notes whether others draw on the budget too from now on.
    pub(super) fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// To hold what it holds. The answer tells what others hold.
    pub(super) fn holds(&self) -> GrantWish {
        self.wish(self.now.granted, false)
    }

    /// The period under way.
    pub(super) fn period(&self) -> Period {
        self.now.period
    }

    /// What is spent of it.
    pub(super) fn spent(&self) -> NanoUsd {
        self.now.spent
    }

    /// What became of it in the period under way.
    pub(super) fn money(&self, whose: LimitOwner) -> BudgetStatus {
        let PeriodSpend { ends, spent, reserved, .. } = self.now;
        let (budget, is_shared) = (self.budget, self.shared);
        BudgetStatus { whose, budget, spent, reserved, is_shared, resets_at: ends }
    }

    /// Whether all of the budget is spent.
    pub(super) fn is_spent(&self) -> bool {
        self.lacks(1) && !self.may_recall(1)
    }

    /// What may still be reserved of it.
    pub(super) fn room(&self) -> NanoUsd {
        self.budget.nano.saturating_sub(self.now.used())
    }

    /// Whether this amount can be reserved. An amount of nothing always can.
    pub(super) fn check(&self, amount: NanoUsd) -> Result<(), BudgetRefusal> {
        if amount == 0 {
            Ok(())
        } else if self.used_with(amount) > self.budget.nano && self.may_recall(amount) {
            Err(BudgetRefusal::NotGranted)
        } else if self.lacks(amount) {
            Err(BudgetRefusal::Spent)
        } else if self.used_with(amount) > self.budget.nano {
            Err(BudgetRefusal::Held)
        } else if self.used_with(amount) > self.now.granted && !self.may_go_ahead() {
            Err(BudgetRefusal::NotGranted)
        } else {
            Ok(())
        }
    }

    /// Whether one reserve may be ahead of its grant: nothing else is reserved, and all that is
    /// spent is granted. So a first large request need not wait.
    fn may_go_ahead(&self) -> bool {
        // Each of several gateways might.
        !self.shared && self.is_idle() && self.now.spent < self.now.granted
    }

    /// How much of `amount`, of which `least` has to be there, must be granted. Where each gateway
    /// keeps to its grant, all of it.
    pub(super) fn needs(&self, least: NanoUsd, amount: NanoUsd) -> NanoUsd {
        if self.shared { amount } else { least }
    }

    fn used_with(&self, amount: NanoUsd) -> NanoUsd {
        self.now.used().saturating_add(amount)
    }

    /// Whether so much is spent that `amount` has no room. What others hold may be a reserve that
    /// costs less, or what a gateway has yet to give back: it is spent once they have said so.
    fn lacks(&self, amount: NanoUsd) -> bool {
        let others = if self.shared { self.settled } else { self.now.others };
        let here = self.now.spent.saturating_sub(self.now.others);
        here.saturating_add(others).saturating_add(amount) > self.budget.nano
    }

    /// Whether there may be room for `amount` once the others have given back what they do not use.
    /// They answer within seconds, and are asked again after some seconds. Where they have spent
    /// it, after a minute: one of them may have been cut off.
    fn may_recall(&self, amount: NanoUsd) -> bool {
        let here = self.used_with(amount).saturating_sub(self.now.others);
        let is_time = |asked| match self.since(asked) {
            since if self.lacks(amount) => since >= bounds::GRANT_RECALL_SPENT,
            since => since < bounds::GRANT_RECALL || since >= bounds::GRANT_RECALL_AGAIN,
        };
        self.shared
            && self.now.others > 0
            && here <= self.budget.nano
            && self.asked.is_none_or(is_time)
    }

    fn since(&self, asked: Timestamp) -> Duration {
        self.seen.duration_since(asked).unsigned_abs()
    }

    /// Notes the size of a reserve. Returns whether a grant is wanted.
    pub(super) fn note_reserve(&mut self, amount: NanoUsd) -> bool {
        self.largest = self.largest.max(amount);
        if amount > 0 {
            self.latest = amount;
        }
        self.is_short()
    }

    /// Whether a grant is wanted now.
    pub(super) fn is_short(&self) -> bool {
        self.wanted().is_some()
    }

    /// Reserves a checked amount. Returns the period to settle it in.
    pub(super) fn reserve(&mut self, amount: NanoUsd) -> Period {
        self.now.reserved = self.now.reserved.saturating_add(amount);
        self.now.period
    }

    /// Replaces a reserve by what was spent. Neither counts in a later period.
    pub(super) fn settle(&mut self, period: Period, reserved: NanoUsd, spent: NanoUsd) {
        if self.now.period == period {
            self.now.reserved = self.now.reserved.saturating_sub(reserved);
            self.now.spent = self.now.spent.saturating_add(spent);
        }
    }

    /// What is used ahead of its grant.
    #[cfg(test)]
    pub(super) fn ahead(&self) -> NanoUsd {
        self.now.used().saturating_sub(self.now.granted)
    }

    /// Whether nothing is reserved.
    pub(super) fn is_idle(&self) -> bool {
        self.now.reserved == 0
    }

    /// The grant to make durable, when less than half of a usual one is left. A usual one is a
    /// twentieth of the budget. If that is little, it is a few cents or several of the largest
    /// reserves, up to a quarter of the budget, but never less than one such reserve.
    fn wanted(&self) -> Option<GrantWish> {
        let usual = self.usual();
        let left = self.now.granted.saturating_sub(self.now.used());
        let counted =
            self.now.used().saturating_add(usual).min(self.budget.nano).max(self.now.spent);
        // At the end of the budget, half of a usual grant may be less than a request that it can
        // pay.
        let enough = (usual / 2 + 1).max(self.largest);
        let asked = self.latest.max(1);
        let recalls = self.used_with(asked) > self.budget.nano && self.may_recall(asked);
        (left < enough && counted > self.now.granted || recalls).then(|| {
            let counted = if recalls { self.used_with(usual) } else { counted };
            self.wish(counted, recalls)
        })
    }

    /// The wish to hold `counted` together with the others.
    fn wish(&self, counted: NanoUsd, recalls: bool) -> GrantWish {
        let PeriodSpend { period, granted, others, spent, .. } = self.now;
        // Another gateway must not get what is reserved here.
        let least = if self.shared { self.now.used() } else { spent };
        let share = BudgetShare {
            holder: self.holder,
            held: granted.saturating_sub(others),
            wanted: counted.saturating_sub(others),
            least: least.saturating_sub(others),
            budget: self.budget.nano,
            others: (!self.shared).then_some(others),
        };
        GrantWish { period, share, recalls, reserved: 0 }
    }

    fn usual(&self) -> NanoUsd {
        if self.seen < self.lean_until {
            return self.largest.max(1);
        }
        let quarter = self.budget.nano / 4;
        let few = quarter.min(bounds::GRANT_SMALL);
        // A crash may cost a grant: at most a quarter of the budget, or one reserve.
        let several = self.largest.saturating_mul(bounds::GRANT_RESERVES);
        let reserves = several.min(quarter).max(self.largest);
        (self.budget.nano / bounds::GRANTS).max(few).max(reserves).min(self.budget.nano).max(1)
    }

    /// The grants to make durable now, also for the next period if that is near. What it holds, if
    /// the store may have another grant than this account knows of.
    pub(super) fn wants(&mut self, at: Timestamp) -> Vec<GrantWish> {
        let near = at
            .checked_add(bounds::GRANT_AHEAD)
            .map_or(self.now.period, |soon| period(self.budget.per, soon));
        let ahead = near > self.now.period && self.next.is_none_or(|next| next.period != near);
        let ahead = ahead.then(|| {
            let share = BudgetShare {
                holder: self.holder,
                held: 0,
                wanted: self.usual(),
                least: 0,
                budget: self.budget.nano,
                others: (!self.shared).then_some(0),
            };
            GrantWish { period: near, share, recalls: false, reserved: 0 }
        });
        let wanted = self.wanted();
        if wanted.is_some_and(|wish| wish.recalls) {
            let is_answered = |asked: &Timestamp| self.since(*asked) < bounds::GRANT_RECALL;
            self.asked = self.asked.filter(is_answered).or(Some(at));
        }
        let wanted = wanted.or_else(|| self.is_unsure.then(|| self.holds()));
        let wishes: Vec<GrantWish> = wanted.into_iter().chain(ahead).collect();
        self.is_unsure |= !wishes.is_empty();
        wishes
    }

    /// Gives back what is not used of the grant, for another gateway, and tells what is reserved:
    /// from now on the rest counts no more.
    pub(super) fn give_back(&mut self, period: Period, at: Timestamp) -> Option<GrantWish> {
        self.turn(at);
        self.lean_until = at.checked_add(bounds::GRANT_LEAN).unwrap_or(at);
        let PeriodSpend { granted, reserved, .. } = self.now;
        let used = self.now.used();
        let is_held = granted > used || reserved > 0 || self.is_unsure;
        if self.now.period != period || !is_held {
            return None;
        }
        let wish = GrantWish { reserved, ..self.wish(used, false) };
        // Before the answer: a request must not be let in on what is given back.
        self.is_unsure = true;
        self.now.granted = granted.min(used);
        Some(wish)
    }

    /// Counts a durable grant; whether it changes what may be spent now. One of days does not fit a
    /// budget of months, nor the reverse: it was requested before the budget changed.
    pub(super) fn granted(&mut self, grant: Grant) -> bool {
        if grant.holder != self.holder
            || is_of_months(grant.period) != is_of_months(self.now.period)
        {
            return false;
        }
        self.is_unsure = false;
        let before = (self.now.granted, self.now.others);
        if grant.period == self.now.period {
            let mine = self.now.spent.saturating_sub(self.now.others);
            self.now.others = grant.others;
            self.now.spent = mine.saturating_add(grant.others);
            self.now.granted = grant.others.saturating_add(grant.held);
            let others_answered =
                self.asked.is_some_and(|asked| self.since(asked) >= bounds::GRANT_ANSWERED);
            self.settled = match grant.reserved.filter(|_| others_answered) {
                Some(reserved) => grant.others.saturating_sub(reserved),
                None => self.settled.min(grant.others),
            };
        } else if grant.period > self.now.period {
            self.next = Some(grant);
        }
        (self.now.granted, self.now.others) != before
    }

    /// Ends granting and returns what counts as spent after an orderly shutdown.
    pub(super) fn close(&mut self) -> Vec<GrantWish> {
        let last = self.wish(self.now.used(), false);
        self.now.granted = 0;
        let next = self.next.take().map(|next| GrantWish {
            period: next.period,
            share: BudgetShare {
                holder: self.holder,
                held: next.held,
                wanted: 0,
                least: 0,
                budget: self.budget.nano,
                others: (!self.shared).then_some(next.others),
            },
            recalls: false,
            reserved: 0,
        });
        std::iter::once(last).chain(next).collect()
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
