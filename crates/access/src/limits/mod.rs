//! Limits of keys and users: requests and tokens a minute, concurrent requests, money a day or
//! month. A request counts against its key, every key above the key, and its user: against all of
//! them or none.
//!
//! [`Limiter::admit`] returns a [`LimitPermit`] before the decision, [`Limiter::reserve`] adds the
//! money after it, and [`LimitPermit::settle`] replaces what was reserved by what was used. A
//! permit that is released, or dropped before a provider was asked, gives everything back, so a
//! refused request uses up nothing. None of these waits for the store or holds a lock across an
//! await. The caller passes the time.
//!
//! # What may go beyond a budget
//!
//! A request reserves the most that it can cost, as far as it limits the length of its answer.
//! Without `max_tokens` an answer is reserved as [`rerouter_base::bounds::ANSWER_TOKENS`]. A longer
//! one is charged in full, and the next request is refused. If less than that is left, the reserve
//! of this answer is cut to what is left ([`Reserve`]). It then holds all that is left, so no other
//! request passes on the same remainder. Two more things can cost more than the reserve: a tool
//! that the provider runs in a loop, as each round reads the context again, and failed attempts
//! that a provider bills.
//!
//! # Holds
//!
//! A process reserves within its hold of a budget (`budget.rs`), which the store has written before
//! (`ledger.rs`). The first request of a subject waits for that write, and so does one that finds
//! the hold too small. A hold is as large as what was used at once in the last seconds, and goes
//! back some seconds after the last request. At any moment the spend and the holds of all processes
//! stay within the budget. What a process holds when it is killed is lost, until an admin settles
//! it or the period ends. Rates and concurrency are not written: they start anew with the process.
//!
//! Where gateways share a store, one that finds no room says so by a row, and each gives back
//! within a second what it does not use. Each gateway counts rates and concurrency for itself.

mod bounds;
mod budget;
mod counters;
mod draw;
mod ledger;
mod pending;
pub mod rate;
mod refusal;
mod refused_heads;
mod remaining;
mod reserve;
mod write_queue;

use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, MutexGuard};

use dashmap::DashMap;
use jiff::Timestamp;
use tokio::sync::Notify;

use rerouter_base::error::Error;
use rerouter_base::id::{KeyId, UserId};
use rerouter_base::money::NanoUsd;
use rerouter_store::{COUNTS, Counted};

pub use budget::Reserve;
pub use draw::{Caps, Draw, Subject, draws, draws_of_key};
pub use ledger::day;
pub use remaining::{BudgetStatus, CountStatus, Remaining};
pub use write_queue::USAGE_WRITE_INTERVAL;

use budget::{BudgetRefusal, OwnSpend};
use counters::{KnownBudgets, SubjectCounters, SubjectEntry, SubjectHold, lock, signed};
use pending::{Pending, WriterNumber};
use refusal::{LimitHit, unpaid};
use refused_heads::RefusedHeads;
use write_queue::WriteQueue;

#[derive(Default)]
pub struct Limiter {
    counted: DashMap<Subject, Arc<SubjectEntry>>,
    known: KnownBudgets,
    holder: WriterNumber,
    /// Whether other processes draw on the same budgets.
    shared: AtomicBool,
    /// Whether the store knows this process.
    is_holder: AtomicBool,
    /// Whether the other processes of this data directory are still to be ended in the store.
    is_alone: AtomicBool,
    /// Whether a change in the store is still to be read.
    is_stale: AtomicBool,
    /// When holds are not valid any more, in microseconds since the epoch.
    may_draw_until: AtomicI64,
    /// The writes of spend that are known here; empty for none.
    seen: Mutex<String>,
    pending: Mutex<Pending>,
    /// Usage that is stored by day, but not yet by hour and by five minutes.
    recent: Mutex<Pending>,
    /// When `recent` is written next, in seconds since the epoch.
    recent_due: AtomicI64,
    /// Held while holds are written, or what others hold is read.
    writing: tokio::sync::Mutex<()>,
    /// Held while usage is written.
    keeping: tokio::sync::Mutex<()>,
    queue: Arc<WriteQueue>,
    refused_heads: RefusedHeads,
    /// Whether no request may spend a budget any more.
    stopped: AtomicBool,
    /// Whether the last sums of this process are written.
    closed: AtomicBool,
    /// Whether the store failed when holds were last to be written.
    failing: AtomicBool,
}

#[derive(Debug)]
pub struct LimitRefusal {
    pub error: Error,
    pub remaining: Remaining,
}

/// An admitted request; see the module.
#[derive(Default)]
#[must_use]
pub struct LimitPermit {
    slot: Option<ConcurrencySlot>,
    held: Vec<SubjectHold>,
    tokens: u64,
    remaining: Remaining,
    /// The budget whose hold was too small for the reserve.
    awaited: Option<Arc<SubjectEntry>>,
    /// The amount that the budgets know this request to wait for.
    lacking: NanoUsd,
    is_sent: bool,
}

/// One of the concurrent requests. It is free again when dropped, which may be before the permit
/// ends: a client that has read the end of an answer finds it free.
pub struct ConcurrencySlot(Vec<Arc<SubjectEntry>>);

impl Drop for ConcurrencySlot {
    fn drop(&mut self) {
        for counted in &self.0 {
            let mut counts = counted.counts();
            counts.running = counts.running.saturating_sub(1);
        }
    }
}

impl Limiter {
    /// Admits a request of an estimated `tokens`. A request without limits is always admitted.
    pub fn admit(
        &self,
        draws: &[Draw],
        tokens: u64,
        now: Timestamp,
    ) -> Result<LimitPermit, Box<LimitRefusal>> {
        if draws.is_empty() {
            return Ok(LimitPermit::default());
        }
        let held = self.hold(draws);
        let mut all = self.follow(&held, draws, now);
        let against = all
            .iter()
            .zip(draws)
            .filter_map(|(counts, draw)| LimitHit::of(counts, draw.whose, tokens));
        if let Some(worst) = against.max_by_key(LimitHit::wait) {
            return Err(Box::new(LimitRefusal {
                error: worst.error(tokens),
                remaining: Remaining::of(&held, &all),
            }));
        }
        all.iter_mut().for_each(|counts| counts.admit(tokens));
        let remaining = Remaining::of(&held, &all);
        drop(all);
        let slot =
            Some(ConcurrencySlot(held.iter().map(|held| Arc::clone(&held.counted)).collect()));
        Ok(LimitPermit { slot, held, tokens, remaining, awaited: None, lacking: 0, is_sent: false })
    }

    /// Whether any request could be admitted. If not, the body of this one need not be read.
    /// `costs`: whether it may cost money.
    pub fn look(
        &self,
        draws: &[Draw],
        costs: bool,
        now: Timestamp,
    ) -> Result<(), Box<LimitRefusal>> {
        if draws.is_empty() {
            return Ok(());
        }
        let held = self.hold(draws);
        let mut all = self.follow(&held, draws, now);
        let against =
            all.iter().zip(draws).filter_map(|(counts, draw)| LimitHit::of(counts, draw.whose, 0));
        let mut refusal = against.max_by_key(LimitHit::wait).map(|worst| worst.error(0));
        for (counts, held) in all.iter_mut().zip(&held) {
            if let Some(account) = counts.account().filter(|account| costs && account.is_spent()) {
                let status = account.money(held.whose);
                let reserve = Reserve::exactly(1);
                refusal =
                    refusal.or_else(|| Some(unpaid(BudgetRefusal::Spent, &status, reserve, now)));
            }
        }
        match refusal {
            None => Ok(()),
            Some(error) => {
                Err(LimitRefusal { error, remaining: Remaining::of(&held, &all) }.into())
            }
        }
    }

    pub fn remaining(&self, draws: &[Draw], now: Timestamp) -> Remaining {
        let held = self.hold(draws);
        let all = self.follow(&held, draws, now);
        Remaining::of(&held, &all)
    }

    fn hold(&self, draws: &[Draw]) -> Vec<SubjectHold> {
        draws
            .iter()
            .map(|draw| SubjectHold {
                counted: self.counted(&draw.subject),
                whose: draw.whose,
                money: None,
            })
            .collect()
    }

    /// The counters of these subjects, updated to `now`.
    fn follow<'a>(
        &self,
        held: &'a [SubjectHold],
        draws: &[Draw],
        now: Timestamp,
    ) -> Vec<MutexGuard<'a, SubjectCounters>> {
        let mut all = lock(held);
        for (counts, draw) in all.iter_mut().zip(draws) {
            counts.follow(draw, now, &self.known);
        }
        all
    }

    fn counted(&self, subject: &Subject) -> Arc<SubjectEntry> {
        if let Some(counted) = self.counted.get(subject) {
            return Arc::clone(counted.value());
        }
        let new = || {
            Arc::new(SubjectEntry {
                subject: subject.clone(),
                counts: Mutex::default(),
                queue: Arc::clone(&self.queue),
                written: Notify::new(),
            })
        };
        Arc::clone(self.counted.entry(subject.clone()).or_insert_with(new).value())
    }

    /// Whether a refusal by a limit is to be captured: the first one of its caller in a second.
    pub fn keeps_refusal(&self, user: &UserId, key: Option<&KeyId>, now: Timestamp) -> bool {
        self.refused_heads.is_first(user, key, now)
    }

    #[cfg(test)]
    pub(super) fn subjects(&self) -> usize {
        self.counted.len()
    }
}

impl LimitPermit {
    /// Whether money has to be reserved.
    pub fn has_budget(&self) -> bool {
        self.remaining.money.is_some()
    }

    /// Whether the usage of the answer counts against a limit of tokens or money.
    pub fn counts_tokens(&self) -> bool {
        let mut counts = self.remaining.counts.iter().zip(&COUNTS);
        let tokens = counts.any(|(left, row)| left.is_some() && row.counts == Counted::Tokens);
        tokens || self.has_budget()
    }

    /// The money that is reserved of each budget.
    pub fn reserved(&self) -> NanoUsd {
        let reserved = self.held.iter().filter_map(|held| held.money).map(|(_, amount)| amount);
        reserved.min().unwrap_or(0)
    }

    pub fn awaits_hold(&self) -> bool {
        self.awaited.is_some()
    }

    /// What was left after the request was admitted.
    pub fn remaining(&self) -> Remaining {
        self.remaining
    }

    /// Takes the concurrency slot out of the permit, to free it earlier.
    pub fn take_slot(&mut self) -> Option<ConcurrencySlot> {
        self.slot.take()
    }

    /// Notes that a provider may bill the request from now on. If the permit is dropped, its
    /// reserve counts as spent.
    pub fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Ends the request: `tokens` and `cost` replace what was reserved. `None` leaves the reserve
    /// as used. `estimated`: the bill is unknown.
    pub fn settle(mut self, tokens: Option<u64>, cost: Option<NanoUsd>, estimated: bool) {
        let used = tokens.unwrap_or(self.tokens);
        self.end(true, used, cost, estimated);
        self.held.clear();
    }

    /// Gives everything back, as if the request had not been admitted. Returns what is left then.
    pub fn release(mut self) -> Remaining {
        self.slot = None;
        self.end(false, 0, Some(0), false);
        let held = std::mem::take(&mut self.held);
        Remaining::of(&held, &lock(&held))
    }

    /// Replaces what was reserved by what was used. `counts_request`: whether the request counts
    /// against the rate.
    fn end(&mut self, counts_request: bool, tokens: u64, cost: Option<NanoUsd>, estimated: bool) {
        let back = signed(tokens).saturating_sub(signed(self.tokens));
        let lacking = std::mem::take(&mut self.lacking);
        for held in &self.held {
            let mut counts = held.counted.counts();
            if let Some(account) = &mut counts.account {
                account.lacks_no_more(lacking);
            }
            counts.reserved = counts.reserved.saturating_sub(self.tokens);
            counts.take(if counts_request { 0 } else { -1 }, back);
            if let (Some(account), Some((period, reserved))) = (&mut counts.account, held.money) {
                let spent = cost.unwrap_or(reserved);
                let estimated = if estimated { spent } else { 0 };
                let is_low = account.settle(period, reserved, OwnSpend { spent, estimated });
                let (queue, subject) = (&held.counted.queue, &held.counted.subject);
                if is_low { queue.soon(subject) } else { queue.note(subject) }
            }
        }
    }
}

impl Drop for LimitPermit {
    fn drop(&mut self) {
        match self.is_sent {
            _ if self.held.is_empty() => {}
            true => self.end(true, self.tokens, None, true),
            false => self.end(false, 0, Some(0), false),
        }
    }
}

#[cfg(test)]
mod hold_wait_tests;
#[cfg(test)]
mod holds_tests;
#[cfg(test)]
mod reserve_tests;
#[cfg(test)]
mod tests;
