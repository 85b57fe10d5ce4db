//! What keys and users may use up (contract, section 6.5): requests and tokens a minute, requests at once, money a day or
//! month. A request draws on its key, on every key above it and on its user: on all of them or on none.
//!
//! [`Limiter::admit`] gives a [`Permit`] before the decision, [`Limiter::reserve`] adds the money after it, and
//! [`Permit::settle`] puts what was used in the place of what was reserved. A permit that is
//! released or dropped instead gives everything back, the request too: what is refused draws on
//! nothing. Nothing here waits: no store, no lock across an await. Time is handed in.
//!
//! # What may go beyond a budget
//!
//! A request reserves the most that it can cost, as far as it limits the length of its answer.
//! Without `max_tokens` an answer is reserved as [`ANSWER_TOKENS`](crate::bounds::ANSWER_TOKENS). A
//! longer one is charged in full, and the next request is refused. Where less than that is left,
//! the reserve of this answer is cut to what is left ([`Reserve`]). It then holds all that is left,
//! so no other request passes on the same remainder.
//!
//! # What a crash may cost
//!
//! A budget is spent in grants (`budget.rs`). A grant is written down before anything is spent of it, in the background and
//! ahead of need (`ledger.rs`); after a crash all that was granted counts as spent. So a crash makes a budget larger by no more than a part of one request, and
//! takes from its owner one grant at most: a twentieth of the budget; or where that is little five cents, though no more than a
//! quarter, or eight of its largest reserves. Where a grant is used
//! up before the next is durable, requests are refused with 429 and `Retry-After: 1`. Leaving in order gives unspent grants back.
//! A request that comes while no other is under way may reserve more than is granted, so that a
//! first request need not wait for a grant of its size. The rest is granted next, before another
//! request passes. A crash in between forgets that much of one request.
//! Rates and concurrency are not written down: they begin anew with the process.

mod budget;
mod draw;
mod ledger;
mod rate;
mod refusal;
mod remaining;
mod reserve;
mod wanted;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dashmap::DashMap;
use jiff::Timestamp;

use crate::error::Error;
use crate::store::NanoUsd;

pub use budget::Period;
pub use draw::{Caps, Draw, Subject, Whose, draws, draws_of_key};
pub use ledger::day;
pub use rate::Left;
pub use remaining::{Money, Places, Rate, Remaining};
pub use reserve::Reserve;

use budget::Account;
use ledger::Pending;
use rate::Bucket;
use refusal::Against;
use wanted::Wanted;

/// What is counted, of whom.
#[derive(Default)]
pub struct Limiter {
    counted: DashMap<Subject, Arc<Counted>>,
    /// What counts as spent of budgets that have no account yet.
    carried: DashMap<(Subject, Period), NanoUsd>,
    pending: Mutex<Pending>,
    /// One batch at a time goes to the store.
    writing: tokio::sync::Mutex<()>,
    wanted: Arc<Wanted>,
    closed: AtomicBool,
}

/// One subject: a key or a user.
struct Counted {
    subject: Subject,
    counts: Mutex<Counts>,
    wanted: Arc<Wanted>,
}

#[derive(Default)]
struct Counts {
    caps: Caps,
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    /// Tokens that requests under way have reserved.
    reserved: u64,
    running: u64,
    account: Option<Account>,
}

/// A request that is not let in.
#[derive(Debug)]
pub struct Refused {
    /// What the client is told.
    pub error: Error,
    /// As it is without the request.
    pub remaining: Remaining,
}

/// A request that is let in; see the module.
#[derive(Default)]
#[must_use]
pub struct Permit {
    slot: Option<Slot>,
    held: Vec<Held>,
    tokens: u64,
    remaining: Remaining,
}

/// A place among the requests at once; free again when it is dropped. It may be given back before the rest, so that who reads the
/// end of an answer finds it free.
pub struct Slot(Vec<Arc<Counted>>);

impl Drop for Slot {
    fn drop(&mut self) {
        for counted in &self.0 {
            let mut counts = counted.counts();
            counts.running = counts.running.saturating_sub(1);
        }
    }
}

struct Held {
    counted: Arc<Counted>,
    whose: Whose,
    money: Option<(Period, NanoUsd)>,
}

impl Counted {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes on the limits as they are now and the time. What is short by that is noted, and what is new, which may want a grant of
    /// the next period.
    fn follow(
        &self,
        counts: &mut Counts,
        draw: &Draw,
        now: Timestamp,
        carried: &DashMap<(Subject, Period), NanoUsd>,
    ) {
        let opened = counts.follow(draw, now, carried);
        if opened || counts.account().is_some_and(|account| account.is_short()) {
            self.wanted.note(&self.subject);
        }
    }

    /// Notes that a grant is wanted soon, where it is.
    fn expect(&self, counts: &mut Counts, amount: NanoUsd) {
        if counts.account().is_some_and(|account| account.expect(amount)) {
            self.wanted.soon(&self.subject);
        }
    }
}

impl Counts {
    /// Gives whether an account was opened.
    fn follow(
        &mut self,
        draw: &Draw,
        now: Timestamp,
        carried: &DashMap<(Subject, Period), NanoUsd>,
    ) -> bool {
        self.caps = draw.caps;
        follow(&mut self.requests, draw.caps.rpm, now);
        follow(&mut self.tokens, draw.caps.tpm, now);
        let Some(budget) = draw.caps.budget else { return false };
        if let Some(account) = &mut self.account {
            if account.follow(budget) {
                account.turn(now);
                return false;
            }
            carried.insert((draw.subject.clone(), account.period()), account.spent());
        }
        let period = budget::period(budget.per, now);
        let counted =
            carried.remove(&(draw.subject.clone(), period)).map_or(0, |(_, counted)| counted);
        self.account = Some(Account::open(budget, now, counted));
        true
    }

    /// The account, where the limits have a budget now.
    fn account(&mut self) -> Option<&mut Account> {
        self.account.as_mut().filter(|_| self.caps.budget.is_some())
    }

    /// Takes a request in.
    fn take(&mut self, tokens: u64) {
        self.running += 1;
        self.reserved = self.reserved.saturating_add(tokens);
        if let Some(bucket) = &mut self.requests {
            bucket.take(1);
        }
        if let Some(bucket) = &mut self.tokens {
            bucket.take(signed(tokens));
        }
    }

    fn is_idle(&self) -> bool {
        let full = |bucket: &Option<Bucket>| bucket.as_ref().is_none_or(Bucket::is_full);
        self.running == 0
            && full(&self.requests)
            && full(&self.tokens)
            && self.account.as_ref().is_none_or(Account::is_idle)
    }
}

fn follow(bucket: &mut Option<Bucket>, limit: Option<u64>, now: Timestamp) {
    match (bucket.as_mut(), limit) {
        (_, None) => *bucket = None,
        (None, Some(limit)) => *bucket = Some(Bucket::full(limit, now)),
        (Some(bucket), Some(limit)) => bucket.follow(limit, now),
    }
}

/// The counts of all that a request draws on. In the order of subjects, which is the same for every
/// request: so no two wait for each other.
fn lock(held: &[Held]) -> Vec<MutexGuard<'_, Counts>> {
    held.iter().map(|held| held.counted.counts()).collect()
}

impl Limiter {
    /// Lets a request in that is reckoned at `tokens`, or says what speaks against it. Without anything to draw on it is let in.
    pub fn admit(
        &self,
        draws: &[Draw],
        tokens: u64,
        now: Timestamp,
    ) -> Result<Permit, Box<Refused>> {
        if draws.is_empty() {
            return Ok(Permit::default());
        }
        let held = self.hold(draws);
        let mut all = self.follow(&held, draws, now);
        let against = all
            .iter()
            .zip(draws)
            .filter_map(|(counts, draw)| Against::of(counts, draw.whose, tokens));
        if let Some(worst) = against.max_by_key(Against::wait) {
            return Err(Box::new(Refused {
                error: worst.error(tokens),
                remaining: Remaining::of(&held, &all),
            }));
        }
        all.iter_mut().for_each(|counts| counts.take(tokens));
        let remaining = Remaining::of(&held, &all);
        drop(all);
        let slot = Some(Slot(held.iter().map(|held| Arc::clone(&held.counted)).collect()));
        Ok(Permit { slot, held, tokens, remaining })
    }

    /// Whether another request could be let in at all, whatever it is: what has no room for the
    /// least of requests needs no look at this one. `costs`: whether it may cost money.
    pub fn look(&self, draws: &[Draw], costs: bool, now: Timestamp) -> Result<(), Box<Refused>> {
        if draws.is_empty() {
            return Ok(());
        }
        let held = self.hold(draws);
        let mut all = self.follow(&held, draws, now);
        let against =
            all.iter().zip(draws).filter_map(|(counts, draw)| Against::of(counts, draw.whose, 0));
        let mut refusal = against.max_by_key(Against::wait).map(|worst| worst.error(0));
        for (counts, held) in all.iter_mut().zip(&held) {
            let account = counts.account().filter(|_| costs);
            let used_up = account.and_then(|account| account.used_up(held.whose, now));
            refusal = refusal.or(used_up);
        }
        match refusal {
            None => Ok(()),
            Some(error) => Err(Refused { error, remaining: Remaining::of(&held, &all) }.into()),
        }
    }

    /// What is left now for requests that draw on these.
    pub fn remaining(&self, draws: &[Draw], now: Timestamp) -> Remaining {
        let held = self.hold(draws);
        let all = self.follow(&held, draws, now);
        Remaining::of(&held, &all)
    }

    fn hold(&self, draws: &[Draw]) -> Vec<Held> {
        draws
            .iter()
            .map(|draw| Held {
                counted: self.counted(&draw.subject),
                whose: draw.whose,
                money: None,
            })
            .collect()
    }

    /// The counts of these, brought up to now.
    fn follow<'a>(
        &self,
        held: &'a [Held],
        draws: &[Draw],
        now: Timestamp,
    ) -> Vec<MutexGuard<'a, Counts>> {
        let mut all = lock(held);
        for ((counts, held), draw) in all.iter_mut().zip(held).zip(draws) {
            held.counted.follow(counts, draw, now, &self.carried);
        }
        all
    }

    fn counted(&self, subject: &Subject) -> Arc<Counted> {
        if let Some(counted) = self.counted.get(subject) {
            return Arc::clone(counted.value());
        }
        let new = || {
            Arc::new(Counted {
                subject: subject.clone(),
                counts: Mutex::default(),
                wanted: Arc::clone(&self.wanted),
            })
        };
        Arc::clone(self.counted.entry(subject.clone()).or_insert_with(new).value())
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// How many subjects are remembered.
    pub fn subjects(&self) -> usize {
        self.counted.len()
    }
}

impl Permit {
    /// Whether money has to be reserved.
    pub fn has_budget(&self) -> bool {
        self.remaining.money.is_some()
    }

    /// Whether what the answer reports as used is held against a limit: of tokens a minute, or of money.
    pub fn counts_tokens(&self) -> bool {
        self.remaining.tokens.is_some() || self.has_budget()
    }

    /// What was left once the request had its part.
    pub fn remaining(&self) -> Remaining {
        self.remaining
    }

    /// The place among the requests at once, to be given back apart.
    pub fn take_slot(&mut self) -> Option<Slot> {
        self.slot.take()
    }

    /// Ends the request: `tokens` and `cost` take the place of what was reserved. Where one is not known the reserve stands.
    pub fn settle(mut self, tokens: Option<u64>, cost: Option<NanoUsd>) {
        let used = tokens.unwrap_or(self.tokens);
        self.end(true, used, cost);
        self.held.clear();
    }

    /// Gives everything back, as if the request had not been let in, and what is left then.
    pub fn release(mut self) -> Remaining {
        self.slot = None;
        self.end(false, 0, Some(0));
        let held = std::mem::take(&mut self.held);
        Remaining::of(&held, &lock(&held))
    }

    /// Takes what was used in the place of what was reserved; the request itself counts, or it does
    /// not.
    fn end(&mut self, counts_request: bool, tokens: u64, cost: Option<NanoUsd>) {
        let back = signed(tokens).saturating_sub(signed(self.tokens));
        for held in &self.held {
            let mut counts = held.counted.counts();
            counts.reserved = counts.reserved.saturating_sub(self.tokens);
            if let Some(bucket) = counts.requests.as_mut().filter(|_| !counts_request) {
                bucket.take(-1);
            }
            if let Some(bucket) = &mut counts.tokens {
                bucket.take(back);
            }
            if let (Some(account), Some((period, reserved))) = (&mut counts.account, held.money) {
                account.settle(period, reserved, cost.unwrap_or(reserved));
                // Also where the budget was taken off meanwhile: it may come back.
                if account.is_short() {
                    held.counted.wanted.soon(&held.counted.subject);
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            self.end(false, 0, Some(0));
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod reserve_tests;
#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;
