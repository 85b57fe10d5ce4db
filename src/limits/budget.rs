//! Money for a day or a month in UTC: reserved before it is spent, settled by what was spent. What may be spent has been
//! granted before, and a grant is durable before it counts: so no crash makes a budget larger, but
//! for what one reserve had ahead of its grant (`reserve.rs`).

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::draw::Whose;
use super::refusal::unpaid;
use super::remaining::Money;
use super::reserve::Reserve;
use crate::bounds;
use crate::error::Error;
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

/// Why money is not reserved; the greater, the longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Short {
    /// The grant is used up and the next one not durable yet.
    NotGranted,
    /// It would do if what other requests have reserved came back.
    Held,
    /// What is left of the budget is less than what is asked for.
    Spent,
}

/// A period's spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sheet {
    period: Period,
    /// When the next one begins.
    ends: Timestamp,
    spent: NanoUsd,
    reserved: NanoUsd,
    /// What counts as spent should the process end now.
    granted: NanoUsd,
}

impl Sheet {
    fn new(period: Period, granted: NanoUsd) -> Self {
        Sheet { period, ends: end(period).unwrap_or(Timestamp::MAX), granted, ..Sheet::default() }
    }

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
        let now = Sheet::new(period(budget.per, at), counted);
        Account { budget, now: Sheet { spent: counted, ..now }, next: None, largest: 0 }
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
        if at >= self.now.ends {
            let period = period(self.budget.per, at);
            let granted = self
                .next
                .take()
                .filter(|next| next.period == period)
                .map_or(0, |next| next.counted);
            self.now = Sheet::new(period, granted);
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

    /// What became of it in the period under way.
    pub(super) fn money(&self, whose: Whose) -> Money {
        let Sheet { ends, spent, reserved, .. } = self.now;
        Money { whose, budget: self.budget, spent, reserved, resets_at: ends }
    }

    /// The refusal of any request that costs something, where all of it is spent.
    pub(super) fn used_up(&self, whose: Whose, now: Timestamp) -> Option<Error> {
        let least = Reserve::exactly(1);
        let spent = self.check(least.least) == Err(Short::Spent);
        spent.then(|| unpaid(Short::Spent, &self.money(whose), least, now))
    }

    /// What may still be reserved of it.
    pub(super) fn room(&self) -> NanoUsd {
        self.budget.nano.saturating_sub(self.now.used())
    }

    /// Whether a request could spend so much; what costs nothing always can.
    pub(super) fn check(&self, amount: NanoUsd) -> Result<(), Short> {
        if amount == 0 {
            Ok(())
        } else if self.now.spent.saturating_add(amount) > self.budget.nano {
            Err(Short::Spent)
        } else if self.now.used().saturating_add(amount) > self.budget.nano {
            Err(Short::Held)
        } else if self.now.used().saturating_add(amount) > self.now.granted && !self.may_go_ahead()
        {
            Err(Short::NotGranted)
        } else {
            Ok(())
        }
    }

    /// Whether one reserve may be ahead of its grant: while nothing else is reserved, and all that is
    /// spent is granted. So a first large request need not wait.
    fn may_go_ahead(&self) -> bool {
        self.is_idle() && self.now.spent < self.now.granted
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

    /// What is used ahead of its grant.
    #[cfg(test)]
    pub(super) fn ahead(&self) -> NanoUsd {
        self.now.used().saturating_sub(self.now.granted)
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
        let counted =
            self.now.used().saturating_add(usual).min(self.budget.nano).max(self.now.spent);
        // Where the budget ends what is usual, half of that may be less than a request that it can pay.
        let enough = (usual / 2 + 1).max(self.largest);
        (left < enough && counted > self.now.granted)
            .then_some(Grant { period: self.now.period, counted })
    }

    fn usual(&self) -> NanoUsd {
        let few = (self.budget.nano / 4).min(bounds::GRANT_SMALL);
        let reserves = self.largest.saturating_mul(bounds::GRANT_RESERVES);
        (self.budget.nano / bounds::GRANTS).max(few).max(reserves).min(self.budget.nano).max(1)
    }

    /// What is to be made durable now, that of the next period too when it is near.
    pub(super) fn wants(&self, at: Timestamp) -> Vec<Grant> {
        let near = at
            .checked_add(bounds::GRANT_AHEAD)
            .map_or(self.now.period, |soon| period(self.budget.per, soon));
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

    #[test]
    fn periods_are_days_and_months_in_utc() {
        let late = at("2026-12-31T23:59:30Z");
        assert_eq!((period(Per::Day, late), period(Per::Month, late)), (20_261_231, 20_261_200));
        for (period, next) in [
            (20_261_231, "2027-01-01"),
            (20_261_200, "2027-01-01"),
            (20_260_227, "2026-02-28"),
            (20_280_200, "2028-03-01"),
        ] {
            assert_eq!(end(period), Some(at(&format!("{next}T00:00:00Z"))));
        }
        assert_eq!(end(20_261_301), None);
        let account = Account::open(day(5), late, 7);
        let money = account.money(Whose::Key);
        assert_eq!((money.spent, money.remaining(), money.reset(late).as_secs()), (7, 0, 30));
        // A clock that was set back is told the end of the period that counts.
        assert_eq!(money.reset(at("2026-12-30T23:59:30Z")).as_secs(), 86_430);
    }

    #[test]
    fn nothing_is_spent_that_is_not_granted() {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(1_000), now, 0);
        assert_eq!(account.check(1), Err(Short::NotGranted));
        assert!(account.expect(40));
        assert_eq!(account.wants(now), [Grant { period: 20_261_121, counted: 320 }]);
        grant(&mut account, now);
        let period = account.reserve(320);
        assert_eq!(account.check(1), Err(Short::NotGranted));
        assert_eq!(
            (account.check(680), account.check(681), account.check(1_001)),
            (Err(Short::NotGranted), Err(Short::Held), Err(Short::Spent))
        );
        account.settle(period, 320, 30);
        assert_eq!((account.spent(), account.check(290)), (30, Ok(())));
        // One alone may be ahead of its grant; the next waits until all that is spent is granted.
        assert_eq!((account.check(291), account.check(971)), (Ok(()), Err(Short::Spent)));
        let period = account.reserve(900);
        assert_eq!(account.check(1), Err(Short::NotGranted));
        account.settle(period, 900, 900);
        assert_eq!(account.check(1), Err(Short::NotGranted));
        grant(&mut account, now);
        assert_eq!(account.check(70), Ok(()));
    }

    #[test]
    fn a_request_that_the_budget_can_pay_is_not_refused_for_ever() {
        let now = at("2026-11-21T12:00:00Z");
        let mut account = Account::open(day(1_000), now, 0);
        account.expect(80);
        grant(&mut account, now);
        account.reserve(80);
        // More than half of the budget is granted, and less than this.
        assert_eq!(account.check(800), Err(Short::NotGranted));
        assert!(account.expect(800));
        grant(&mut account, now);
        assert_eq!(account.check(800), Ok(()));
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
        assert_eq!(account.check(1), Err(Short::Spent));
        let ahead = account.wants(late);
        assert_eq!(ahead, [Grant { period: 20_261_201, counted: 250 }]);
        grant(&mut account, late);
        assert!(account.wants(late).is_empty());
        let stale = account.reserve(0);
        account.turn(at("2026-12-01T00:00:00Z"));
        assert_eq!((account.spent(), account.check(50)), (0, Ok(())));
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
        assert_eq!(account.check(1), Err(Short::NotGranted));
    }

    proptest! {
        /// Whatever the order: settled and reserved stay within the budget but for what settled beyond its reserve; and what
        /// would count after a crash is never less than what was used, but for the same.
        #[test]
        fn never_over(budget in 1u64..5_000, steps in proptest::collection::vec((0u8..5, 1u64..300, 0u64..400), 1..200)) {
            let now = at("2026-11-21T12:00:00Z");
            let mut account = Account::open(day(budget), now, 0);
            let (mut open, mut beyond, mut spent) = (Vec::new(), 0, 0);
            // What the one reserve that came alone has beyond what is granted.
            let mut ahead = 0;
            for (step, amount, used) in steps {
                match step {
                    0 => {
                        grant(&mut account, now);
                        ahead = 0;
                    }
                    4 => {
                        let (least, most) = (amount / 8 + 1, amount);
                        let reserve = most.min(account.room()).max(least.min(most));
                        account.expect(reserve);
                        if account.check(least.min(most)).is_ok() {
                            prop_assert!(reserve <= account.room());
                            open.push((account.reserve(reserve), reserve));
                            ahead = account.ahead();
                            prop_assert!(ahead <= most);
                        }
                    }
                    1 => {
                        account.expect(amount);
                        if account.check(amount).is_ok() {
                            open.push((account.reserve(amount), amount));
                            ahead = account.ahead();
                            prop_assert!(ahead <= amount);
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
                prop_assert!(spent + held <= account.now.granted + beyond + ahead);
                prop_assert!(account.now.granted <= budget.max(spent + held));
            }
        }
    }
}
