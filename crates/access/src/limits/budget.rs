//! Budgets of a day or a month in UTC. Money is reserved before it is spent and settled by what was
//! spent. A process reserves within its hold only. The store has written a hold before it is drawn
//! on, and all holds and all spend together stay within the budget.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use super::remaining::BudgetStatus;
use rerouter_base::money::NanoUsd;
use rerouter_store::{Budget, Hold, HoldWrite, LimitOwner, OthersSpend, Per};

/// A hold covers what was spent and reserved at once in one of the last two spans of this length.
const DEMAND_SPAN: Duration = Duration::from_secs(2);

/// A day as `yyyymmdd`, or a month as `yyyymm00`.
pub(crate) type Period = i64;

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
    let last = if day == 0 { first.last_of_month() } else { first };
    Some(last.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The amount that a request reserves of each of its budgets: `most`, or what is left of a budget
/// of which nobody else holds a part. A request is refused if that is less than `least`.
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

    /// From `least` to `most`. `least` is at least 1 if the request may cost money.
    pub fn between(least: NanoUsd, most: NanoUsd) -> Self {
        Reserve { least: least.clamp(most.min(1), most), most }
    }
}

/// Why money cannot be reserved, from the shortest to the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BudgetRefusal {
    /// The hold has to be written first, here or by a process that gives back a part of its own.
    NotHeld,
    /// Running requests have reserved the rest.
    Reserved,
    /// The rest of the budget is too small.
    Spent,
}

/// What this process spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnSpend {
    pub(super) spent: NanoUsd,
    /// The part of `spent` that was estimated.
    pub(super) estimated: NanoUsd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownSpend {
    pub(super) own: OwnSpend,
    pub(super) others: OthersSpend,
}

#[derive(Clone, Copy, Debug)]
struct PeriodSpend {
    period: Period,
    /// Start of the next period.
    ends: Timestamp,
    known: KnownSpend,
    reserved: NanoUsd,
    /// Limit on what this process has spent and reserved: its hold, counted from zero spend.
    limit: NanoUsd,
    /// The `own` and the `limit` that the store has; `None` if unknown.
    written: Option<(OwnSpend, NanoUsd)>,
}

impl PeriodSpend {
    fn new(period: Period, known: KnownSpend) -> Self {
        PeriodSpend {
            period,
            ends: end(period).unwrap_or(Timestamp::MAX),
            known,
            reserved: 0,
            limit: known.own.spent,
            written: Some((known.own, known.own.spent)),
        }
    }

    /// Spent and reserved by this process.
    fn used(&self) -> NanoUsd {
        self.known.own.spent.saturating_add(self.reserved)
    }

    fn is_done(&self) -> bool {
        self.reserved == 0 && self.written == Some((self.known.own, self.known.own.spent))
    }

    /// The write that the store needs, if any. A lower limit holds at once, before it is written.
    fn write(&mut self, limit: NanoUsd, budget: NanoUsd) -> Option<HoldWrite> {
        let own = self.known.own;
        self.limit = self.limit.min(limit);
        (self.written != Some((own, limit))).then(|| {
            self.written = None;
            HoldWrite {
                key: (String::new(), self.period),
                spent: own.spent,
                estimated: own.estimated,
                held: limit.saturating_sub(own.spent),
                least: self.reserved,
                budget,
            }
        })
    }

    fn wrote(&mut self, write: &HoldWrite, hold: Hold) -> bool {
        let own = OwnSpend { spent: write.spent, estimated: write.estimated };
        let before = (self.limit, self.known.others);
        self.limit = write.spent.saturating_add(hold.held);
        self.known.others = hold.others;
        self.written = Some((own, self.limit));
        (self.limit, self.known.others) != before
    }
}

/// The most that was spent and reserved at once in each of the last two spans.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    since: Timestamp,
    /// Spent when the span began.
    from: NanoUsd,
    present: NanoUsd,
    before: NanoUsd,
    /// Sum of the reserves that wait for a larger hold.
    lacking: NanoUsd,
}

impl Demand {
    fn note(&mut self, now: Timestamp, spent: NanoUsd, reserved: NanoUsd) {
        let passed = now.duration_since(self.since).unsigned_abs();
        if passed >= DEMAND_SPAN {
            self.before = if passed < 2 * DEMAND_SPAN { self.present } else { 0 };
            (self.since, self.from, self.present) = (now, spent, 0);
        }
        let used = spent.saturating_add(reserved).saturating_sub(self.from);
        self.present = self.present.max(used);
    }
}

/// The budget of one subject.
#[derive(Debug)]
pub(super) struct Account {
    budget: Budget,
    now: PeriodSpend,
    /// Earlier periods, until their last request has ended and is stored; and those of the other
    /// kind, as the budget may be changed back.
    before: Vec<PeriodSpend>,
    demand: Demand,
}

impl Account {
    pub(super) fn open(budget: Budget, at: Timestamp, known: KnownSpend) -> Self {
        let now = PeriodSpend::new(period(budget.per, at), known);
        Account { budget, now, before: Vec::new(), demand: Demand::default() }
    }

    /// Changes the amount of the budget. `false` if the new budget has another kind of period.
    pub(super) fn follow(&mut self, budget: Budget) -> bool {
        if self.budget.per == budget.per {
            self.budget = budget;
        }
        self.budget.per == budget.per
    }

    /// Changes to a budget with another kind of period.
    pub(super) fn change(
        &mut self,
        budget: Budget,
        at: Timestamp,
        known: impl FnOnce(Period) -> KnownSpend,
    ) {
        self.budget = budget;
        let next = period(budget.per, at);
        let before = self.before.iter().position(|before| before.period == next);
        let next = match before.map(|at| self.before.swap_remove(at)) {
            Some(before) => before,
            None => PeriodSpend::new(next, known(next)),
        };
        self.begin(next);
    }

    /// Moves on to the period of `at`; never back, so that no day counts twice.
    pub(super) fn turn(&mut self, at: Timestamp, known: impl FnOnce(Period) -> KnownSpend) {
        if at >= self.now.ends {
            let next = period(self.budget.per, at);
            self.begin(PeriodSpend::new(next, known(next)));
        }
    }

    fn begin(&mut self, next: PeriodSpend) {
        self.before.push(std::mem::replace(&mut self.now, next));
        self.demand = Demand::default();
    }

    /// What this process holds, or has reserved, beyond what it spent.
    pub(super) fn held(&self) -> NanoUsd {
        let periods = std::iter::once(&self.now).chain(&self.before);
        let held =
            |one: &PeriodSpend| one.limit.max(one.used()).saturating_sub(one.known.own.spent);
        periods.map(held).fold(0, NanoUsd::saturating_add)
    }

    pub(super) fn known(&self) -> impl Iterator<Item = (Period, KnownSpend)> {
        std::iter::once(&self.now).chain(&self.before).map(|one| (one.period, one.known))
    }

    /// `false` if the account is not in that period.
    pub(super) fn learn(&mut self, period: Period, others: OthersSpend) -> bool {
        let one = self.periods().find(|one| one.period == period);
        one.map(|one| one.known.others = others).is_some()
    }

    fn periods(&mut self) -> impl Iterator<Item = &mut PeriodSpend> {
        std::iter::once(&mut self.now).chain(&mut self.before)
    }

    pub(super) fn money(&self, whose: LimitOwner) -> BudgetStatus {
        let PeriodSpend { ends, known: KnownSpend { own, others }, reserved, .. } = self.now;
        BudgetStatus {
            whose,
            budget: self.budget,
            spent: own.spent.saturating_add(others.spent),
            estimated: own.estimated.saturating_add(others.estimated),
            reserved,
            held: others.held,
            lost: others.lost,
            resets_at: ends,
        }
    }

    /// Whether the budget is spent, even if others gave back all that they hold.
    pub(super) fn is_spent(&self) -> bool {
        self.refusal(1) == Some(BudgetRefusal::Spent)
    }

    /// The part of the budget that nobody has spent, reserved or held.
    pub(super) fn room(&self) -> NanoUsd {
        let others = self.now.known.others.total();
        self.budget.nano.saturating_sub(others).saturating_sub(self.now.used())
    }

    fn refusal(&self, amount: NanoUsd) -> Option<BudgetRefusal> {
        let KnownSpend { own, others } = self.now.known;
        let spent = own.spent.saturating_add(others.spent).saturating_add(others.lost);
        if amount <= self.room() {
            None
        } else if spent.saturating_add(amount) > self.budget.nano {
            Some(BudgetRefusal::Spent)
        } else if others.held > 0 {
            Some(BudgetRefusal::NotHeld)
        } else {
            Some(BudgetRefusal::Reserved)
        }
    }

    /// Whether `amount` can be reserved, in place of `wanted.most`. `may_draw`: whether the hold is
    /// still valid.
    pub(super) fn check(
        &self,
        wanted: Reserve,
        amount: NanoUsd,
        may_draw: bool,
    ) -> Result<(), BudgetRefusal> {
        if amount == 0 {
            return Ok(());
        }
        if let Some(refusal) = self.refusal(amount) {
            return Err(refusal);
        }
        // Only one request at a time gets a remainder that is less than it wants.
        if self.room() < wanted.most {
            if self.now.known.others.held > 0 {
                return Err(BudgetRefusal::NotHeld);
            }
            if !self.is_idle() {
                return Err(BudgetRefusal::Reserved);
            }
        }
        let is_held = may_draw && self.now.used().saturating_add(amount) <= self.now.limit;
        if is_held { Ok(()) } else { Err(BudgetRefusal::NotHeld) }
    }

    pub(super) fn lacks(&mut self, amount: NanoUsd) {
        self.demand.lacking = self.demand.lacking.saturating_add(amount);
    }

    pub(super) fn lacks_no_more(&mut self, amount: NanoUsd) {
        self.demand.lacking = self.demand.lacking.saturating_sub(amount);
    }

    /// Reserves a checked amount. Returns the period to settle it in.
    pub(super) fn reserve(&mut self, amount: NanoUsd, at: Timestamp) -> Period {
        self.now.reserved = self.now.reserved.saturating_add(amount);
        self.demand.note(at, self.now.known.own.spent, self.now.reserved);
        self.now.period
    }

    /// Replaces a reserve by what was spent, in the period in which it was reserved. Returns
    /// whether the hold should be written now, so that the next such request need not wait.
    pub(super) fn settle(&mut self, period: Period, reserved: NanoUsd, spent: OwnSpend) -> bool {
        for one in self.periods().filter(|one| one.period == period) {
            one.reserved = one.reserved.saturating_sub(reserved);
            let own = &mut one.known.own;
            own.spent = own.spent.saturating_add(spent.spent);
            own.estimated = own.estimated.saturating_add(spent.estimated);
        }
        let next = self.now.used().saturating_add(reserved);
        let is_now = period == self.now.period;
        is_now && reserved > 0 && next > self.now.limit && reserved <= self.room()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.now.reserved == 0 && self.before.iter().all(|before| before.reserved == 0)
    }

    /// Whether nothing is held and all spend is stored.
    pub(super) fn is_done(&self) -> bool {
        self.now.is_done() && self.before.iter().all(PeriodSpend::is_done)
    }

    /// Shrinks the next hold to what is reserved, because another process found no room.
    pub(super) fn give_back(&mut self) {
        (self.demand.present, self.demand.before) = (0, 0);
    }

    pub(super) fn writes(&mut self, at: Timestamp) -> Vec<HoldWrite> {
        let is_of_months_now = is_of_months(self.now.period);
        self.before.retain(|one| is_of_months(one.period) != is_of_months_now || !one.is_done());
        let PeriodSpend { reserved, known, .. } = self.now;
        let demand = &mut self.demand;
        demand.note(at, known.own.spent, reserved);
        let lacking = reserved.saturating_add(demand.lacking);
        let held = lacking.max(demand.present).max(demand.before);
        let limit = known.own.spent.saturating_add(held);
        let budget = self.budget.nano;
        let before = self.before.iter_mut().filter_map(|one| one.write(one.used(), budget));
        self.now.write(limit, budget).into_iter().chain(before).collect()
    }

    /// The writes at the end of the process. They lower each hold to what running requests have
    /// reserved.
    pub(super) fn last_writes(&mut self) -> Vec<HoldWrite> {
        let budget = self.budget.nano;
        self.periods().filter_map(|one| one.write(one.used(), budget)).collect()
    }

    /// Returns whether it changes what can be reserved.
    pub(super) fn wrote(&mut self, write: &HoldWrite, hold: Hold) -> bool {
        let one = self.periods().find(|one| one.period == write.key.1);
        one.is_some_and(|one| one.wrote(write, hold))
    }

    /// Forgets the hold, so that it is written again before it is drawn on.
    pub(super) fn is_unsure(&mut self) {
        self.periods().for_each(|one| (one.limit, one.written) = (0, None));
    }
}
