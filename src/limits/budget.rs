//! Money for a day or a month in UTC: reserved before it is spent, settled by what was spent. What may be spent has been
//! granted before, and a grant is durable before it counts: so no crash makes a budget larger.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::bounds;
use crate::store::{Budget, NanoUsd, Per};

/// A day as `yyyymmdd`, or a month as `yyyymm00`.
pub type Period = i64;

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

/// How long until the next period begins.
pub(super) fn left_of(per: Per, at: Timestamp) -> Duration {
    let date = at.to_zoned(TimeZone::UTC).date();
    let next: Option<Date> = match per {
        Per::Day => date.tomorrow().ok(),
        Per::Month => date.last_of_month().tomorrow().ok(),
    };
    let begin = next.and_then(|next| next.to_zoned(TimeZone::UTC).ok()).map_or(at, |zoned| zoned.timestamp());
    begin.duration_since(at).try_into().unwrap_or_default()
}

/// Why money is not reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Short {
    /// What is left of the budget is less than what is asked for.
    Spent,
    /// It would do if what other requests have reserved came back.
    Held,
    /// The grant is used up and the next one not durable yet.
    NotGranted,
}

/// A period's spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sheet {
    period: Period,
    spent: NanoUsd,
    reserved: NanoUsd,
    /// What counts as spent should the process end now.
    granted: NanoUsd,
}

impl Sheet {
    fn used(&self) -> NanoUsd {
        self.spent.saturating_add(self.reserved)
    }
}

/// A grant that is to be made durable: from then on so much counts as spent, whatever happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) period: Period,
    pub(super) counted: NanoUsd,
}

/// The budget of one subject.
#[derive(Debug)]
pub(super) struct Account {
    budget: Budget,
    now: Sheet,
    /// Granted for the period to come, so that its first request finds it.
    next: Option<Grant>,
    /// The largest reserve so far: a grant holds several.
    largest: NanoUsd,
}

impl Account {
    /// An account of which `counted` of this period is spent.
    pub(super) fn open(budget: Budget, at: Timestamp, counted: NanoUsd) -> Self {
        let now = Sheet { period: period(budget.per, at), spent: counted, reserved: 0, granted: counted };
        Account { budget, now, next: None, largest: 0 }
    }

    pub(super) fn budget(&self) -> Budget {
        self.budget
    }

    /// Takes on another sum for the same kind of period; `false` when the kind is another.
    pub(super) fn follow(&mut self, budget: Budget) -> bool {
        if self.budget.per == budget.per {
            self.budget = budget;
        }
        self.budget.per == budget.per
    }

    /// Turns to the period of `at`. Never back: a clock that does, does not give a day twice.
    pub(super) fn turn(&mut self, at: Timestamp) {
        let period = period(self.budget.per, at);
        if period > self.now.period {
            let granted = self.next.take().filter(|next| next.period == period).map_or(0, |next| next.counted);
            self.now = Sheet { period, granted, ..Sheet::default() };
        }
    }

    /// The period under way.
    pub(super) fn period(&self) -> Period {
        self.now.period
    }

    /// What is spent of it.
    pub(super) fn spent(&self) -> NanoUsd {
        self.now.spent
    }

    /// What a request may reserve that wants `most`, and `least` at least: all that is left where that is less and nothing else is
    /// reserved. So requests that may cost more than they reserve come one at a time.
    pub(super) fn fit(&self, least: NanoUsd, most: NanoUsd) -> NanoUsd {
        let room = self.budget.nano.saturating_sub(self.now.used());
        if self.is_idle() && room >= least { most.min(room) } else { most }
    }

    /// Whether a request could spend so much; where it could spend `least` once all else is settled, not for ever.
    pub(super) fn check(&self, least: NanoUsd, amount: NanoUsd) -> Result<(), Short> {
        if self.now.spent.saturating_add(least) > self.budget.nano {
            Err(Short::Spent)
        } else if self.now.used().saturating_add(amount) > self.budget.nano {
            Err(Short::Held)
        } else if self.now.used().saturating_add(amount) > self.now.granted {
            Err(Short::NotGranted)
        } else {
            Ok(())
        }
    }

    /// Notes what requests ask for; gives whether a grant is wanted now.
    pub(super) fn expect(&mut self, amount: NanoUsd) -> bool {
        self.largest = self.largest.max(amount);
        self.is_short()
    }

    /// Whether a grant is wanted now.
    pub(super) fn is_short(&self) -> bool {
        self.wanted().is_some()
    }

    /// Reserves what has been checked, in the period that it gives.
    pub(super) fn reserve(&mut self, amount: NanoUsd) -> Period {
        self.now.reserved = self.now.reserved.saturating_add(amount);
        self.now.period
    }

    /// Gives back a reserve and takes what was spent instead. In a later period neither counts.
    pub(super) fn settle(&mut self, period: Period, reserved: NanoUsd, spent: NanoUsd) {
        if self.now.period == period {
            self.now.reserved = self.now.reserved.saturating_sub(reserved);
            self.now.spent = self.now.spent.saturating_add(spent);
        }
    }

    /// Whether nothing is reserved.
    pub(super) fn is_idle(&self) -> bool {
        self.now.reserved == 0
    }

    /// The grant that should be made durable: when less than half of a usual one is left. A usual one is a twentieth
    /// of the budget; or more, where that is little: a few cents up to a quarter, or several of the largest reserves.
    fn wanted(&self) -> Option<Grant> {
        let usual = self.usual();
        let left = self.now.granted.saturating_sub(self.now.used());
        let counted = self.now.used().saturating_add(usual).min(self.budget.nano).max(self.now.spent);
        // Where the budget ends what is usual, half of that may be less than a request that it can pay.
        let enough = (usual / 2 + 1).max(self.largest);
        (left < enough && counted > self.now.granted).then_some(Grant { period: self.now.period, counted })
    }

    fn usual(&self) -> NanoUsd {
        let few = (self.budget.nano / 4).min(bounds::GRANT_SMALL);
        let reserves = self.largest.saturating_mul(bounds::GRANT_RESERVES);
        (self.budget.nano / bounds::GRANTS).max(few).max(reserves).min(self.budget.nano).max(1)
    }

    /// What is to be made durable now, that of the next period too when it is near.
    pub(super) fn wants(&self, at: Timestamp) -> Vec<Grant> {
        let near = at.checked_add(bounds::GRANT_AHEAD).map_or(self.now.period, |soon| period(self.budget.per, soon));
        let ahead = near > self.now.period && self.next.is_none_or(|next| next.period != near);
        let ahead = ahead.then(|| Grant { period: near, counted: self.usual() });
        self.wanted().into_iter().chain(ahead).collect()
    }

    /// The grant is durable. One of days is nothing to a budget of months, nor the other way round: it was asked for before a change.
    pub(super) fn granted(&mut self, grant: Grant) {
        if is_of_months(grant.period) != is_of_months(self.now.period) {
            return;
        }
        if grant.period == self.now.period {
            self.now.granted = self.now.granted.max(grant.counted);
        } else if grant.period > self.now.period {
            self.next = Some(grant);
        }
    }

    /// What counts as spent when the process leaves in order: from now on nothing is granted any more.
    pub(super) fn close(&mut self) -> Vec<Grant> {
        self.now.granted = 0;
        let last = Grant { period: self.now.period, counted: self.now.used() };
        let next = self.next.take().map(|next| Grant { counted: 0, ..next });
        std::iter::once(last).chain(next).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn day(nano: NanoUsd) -> Budget {
        Budget { nano, per: Per::Day }
    }

    fn grant(account: &mut Account, now: Timestamp) {
        for wanted in account.wants(now) {
            account.granted(wanted);
        }
    }

    fn check(account: &Account, amount: NanoUsd) -> Result<(), Short> {
        account.check(amount, amount)
    }

    #[test]
    fn periods_are_days_and_months_in_utc() {
        let late = at("2026-12-31T23:59:30Z");
        assert_eq!((period(Per::Day, late), period(Per::Month, late)), (20_261_231, 20_261_200));
        assert_eq!(left_of(Per::Day, late), Duration::from_secs(30));
        assert_eq!(left_of(Per::Month, late), Duration::from_secs(30));
        assert_eq!(left_of(Per::Month, at("2026-02-27T00:00:00Z")), Duration::from_secs(2 * 86_400));
    }

    #[test]
    fn nothing_is_spent_that_is_not_granted() {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(1_000), now, 0);
        assert_eq!(check(&account, 1), Err(Short::NotGranted));
        assert!(account.expect(40));
        assert_eq!(account.wants(now), [Grant { period: 20_261_121, counted: 320 }]);
        grant(&mut account, now);
        assert_eq!((check(&account, 320), check(&account, 321)), (Ok(()), Err(Short::NotGranted)));
        let period = account.reserve(320);
        assert_eq!(check(&account, 1), Err(Short::NotGranted));
        assert_eq!(
            (check(&account, 680), check(&account, 681), check(&account, 1_001)),
            (Err(Short::NotGranted), Err(Short::Held), Err(Short::Spent))
        );
        account.settle(period, 320, 30);
        assert_eq!((account.spent(), check(&account, 290)), (30, Ok(())));
    }

    #[test]
    fn what_is_left_goes_to_one_request_at_a_time() {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(1_000), now, 0);
        account.expect(1_000);
        grant(&mut account, now);
        assert_eq!((account.fit(100, 600), account.fit(100, 2_000)), (600, 1_000));
        let period = account.reserve(600);
        // Less is left than the next one wants: it has to wait, and is not refused for good.
        assert_eq!((account.fit(100, 600), account.check(100, 600)), (600, Err(Short::Held)));
        account.settle(period, 600, 550);
        assert_eq!((account.fit(100, 600), account.check(100, 450)), (450, Ok(())));
        account.reserve(450);
        assert_eq!(account.check(100, account.fit(100, 600)), Err(Short::Held));
        account.settle(period, 450, 430);
        assert_eq!(account.check(100, account.fit(100, 600)), Err(Short::Spent));
        assert_eq!(account.fit(20, 600), 20);
    }

    #[test]
    fn a_request_that_the_budget_can_pay_is_not_refused_for_ever() {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(1_000), now, 0);
        account.expect(80);
        grant(&mut account, now);
        let period = account.reserve(80);
        account.settle(period, 80, 10);
        // More than half of the budget is granted, and less than this.
        assert_eq!(check(&account, 800), Err(Short::NotGranted));
        assert!(account.expect(800));
        grant(&mut account, now);
        assert_eq!(check(&account, 800), Ok(()));
    }

    #[test]
    fn a_grant_that_was_asked_for_by_another_kind_of_period_is_none() {
        let now = at("2026-11-21T23:59:50Z");
        let mut account = Account::open(Budget { nano: 1_000, per: Per::Month }, now, 0);
        account.granted(Grant { period: 20_261_122, counted: 250 });
        assert_eq!(account.close(), [Grant { period: 20_261_100, counted: 0 }]);
    }

    #[test]
    fn a_new_period_begins_with_what_was_granted_ahead() {
        let late = at("2026-11-30T23:59:50Z");
        let mut account = Account::open(day(1_000), late, 1_000);
        assert_eq!(check(&account, 1), Err(Short::Spent));
        let ahead = account.wants(late);
        assert_eq!(ahead, [Grant { period: 20_261_201, counted: 250 }]);
        grant(&mut account, late);
        assert!(account.wants(late).is_empty());
        let stale = account.reserve(0);
        account.turn(at("2026-12-01T00:00:00Z"));
        assert_eq!((account.spent(), check(&account, 50)), (0, Ok(())));
        account.settle(stale, 0, 400);
        assert_eq!(account.spent(), 0, "what began yesterday is yesterday's");
        account.reserve(50);
        account.turn(late);
        assert_eq!(account.period(), 20_261_201, "a clock that goes back gives no day twice");
    }

    #[test]
    fn leaving_in_order_loses_nothing() {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(1_000), now, 7);
        grant(&mut account, now);
        account.settle(20_261_121, 0, 3);
        assert_eq!(account.close(), [Grant { period: 20_261_121, counted: 10 }]);
        assert_eq!(check(&account, 1), Err(Short::NotGranted));
    }

    proptest! {
        /// Whatever the order: settled and reserved stay within the budget but for what settled beyond its reserve; and what
        /// would count after a crash is never less than what was used, but for the same.
        #[test]
        fn never_over(budget in 1u64..5_000, steps in proptest::collection::vec((0u8..4, 1u64..300, 0u64..400), 1..200)) {
            let now = at("2026-11-21T12:00:00Z");
            let mut account = Account::open(day(budget), now, 0);
            let (mut open, mut beyond, mut spent) = (Vec::new(), 0, 0);
            for (step, amount, used) in steps {
                match step {
                    0 => grant(&mut account, now),
                    1 => {
                        account.expect(amount);
                        if check(&account, amount).is_ok() {
                            open.push((account.reserve(amount), amount));
                        }
                    }
                    _ => if let Some((period, reserved)) = open.pop() {
                        let used = if step == 2 { used } else { 0 };
                        account.settle(period, reserved, used);
                        spent += used;
                        beyond += used.saturating_sub(reserved);
                    },
                }
                let held: u64 = open.iter().map(|(_, reserved)| reserved).sum();
                prop_assert_eq!((account.spent(), account.now.reserved), (spent, held));
                prop_assert!(spent + held <= budget + beyond);
                prop_assert!(spent + held <= account.now.granted + beyond);
                prop_assert!(account.now.granted <= budget.max(spent + held));
            }
        }
    }
}
