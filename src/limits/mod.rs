//! What keys and users may use up (contract, section 6.5): requests and tokens a minute, requests at once, money a day or
//! month. A request draws on its key, on every key above it and on its user: on all of them or on none.
//!
//! [`Limiter::admit`] gives a [`Permit`] before the decision, [`Limiter::reserve`] adds the money after it, and
//! [`Permit::settle`] puts what was used in the place of what was reserved. A permit that is dropped instead, on whatever way
//! out, gives everything back. Nothing here waits: no store, no lock across an await. Time is handed in.
//!
//! # What a crash may cost
//!
//! A budget is spent in grants (`budget.rs`). A grant is written down before anything is spent of it, in the background and
//! ahead of need (`ledger.rs`); after a crash all that was granted counts as spent. So a crash never makes a budget larger, and
//! takes from its owner one grant at most: a twentieth of the budget; or where that is little five cents, though no more than a
//! quarter, or eight of its largest reserves. Where a grant is used
//! up before the next is durable, requests are refused with 429 and `Retry-After: 1`. Leaving in order gives unspent grants back.
//! Rates and concurrency are not written down: they begin anew with the process.

mod budget;
mod draw;
mod ledger;
mod rate;
mod wanted;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use jiff::Timestamp;

use crate::bounds;
use crate::error::{Error, Kind};
use crate::store::NanoUsd;

pub use budget::Period;
pub use draw::{Caps, Draw, Subject, draws};
pub use ledger::day;
pub use rate::Left;

use budget::{Account, Short, left_of};
use ledger::Pending;
use rate::Bucket;
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
    running: u64,
    account: Option<Account>,
}

/// What is left of the rates that bind first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of requests a minute.
    pub requests: Option<Left>,
    /// Of tokens a minute.
    pub tokens: Option<Left>,
}

/// What a request reserves of every budget that it draws on: `most`, or, where less is left of one of them and nobody else has
/// reserved of it, all that is left there. It is refused where that is less than `least`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    least: NanoUsd,
    most: NanoUsd,
}

impl Reserve {
    /// So much or nothing.
    pub fn exactly(amount: NanoUsd) -> Self {
        Reserve { least: amount, most: amount }
    }

    /// From `least` to `most`.
    pub fn between(least: NanoUsd, most: NanoUsd) -> Self {
        Reserve { least: least.min(most), most }
    }
}

/// A request that is not let in.
#[derive(Debug)]
pub struct Refused {
    /// What the client is told.
    pub error: Box<Error>,
    /// As they are.
    pub rates: Rates,
}

/// A request that is let in; see the module.
#[derive(Default)]
#[must_use]
pub struct Permit {
    slot: Option<Slot>,
    held: Vec<Held>,
    tokens: u64,
    rates: Rates,
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
    money: Option<(Period, NanoUsd)>,
}

impl Counted {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes on the limits as they are now and the time. What is short by that is noted, and what is new, which may want a grant of
    /// the next period.
    fn follow(&self, counts: &mut Counts, draw: &Draw, now: Timestamp, carried: &DashMap<(Subject, Period), NanoUsd>) {
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
    fn follow(&mut self, draw: &Draw, now: Timestamp, carried: &DashMap<(Subject, Period), NanoUsd>) -> bool {
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
        let counted = carried.remove(&(draw.subject.clone(), period)).map_or(0, |(_, counted)| counted);
        self.account = Some(Account::open(budget, now, counted));
        true
    }

    /// The account, where the limits have a budget now.
    fn account(&mut self) -> Option<&mut Account> {
        self.account.as_mut().filter(|_| self.caps.budget.is_some())
    }

    /// Why a request of so many tokens is not let in.
    fn against(&self, tokens: u64) -> Option<Against> {
        let wait =
            |bucket: &Option<Bucket>, count: u64| bucket.as_ref().filter(|bucket| !bucket.has(count)).map(|bucket| bucket.wait_for(count));
        if let Some(bucket) = self.tokens.as_ref().filter(|bucket| !bucket.could_have(tokens)) {
            return Some(Against::TooLarge { limit: bucket.left().limit });
        }
        let rate = [(wait(&self.requests, 1), "requests a minute"), (wait(&self.tokens, tokens), "tokens a minute")];
        let longest = rate.into_iter().filter_map(|(wait, what)| Some((wait?, what))).max_by_key(|(wait, _)| *wait);
        let full = self.caps.concurrency.is_some_and(|most| self.running >= most);
        longest.or(full.then_some((bounds::LIMIT_RETRY, "requests at once"))).map(|(wait, what)| Against::Rate { wait, what })
    }

    fn is_idle(&self) -> bool {
        let full = |bucket: &Option<Bucket>| bucket.as_ref().is_none_or(Bucket::is_full);
        self.running == 0 && full(&self.requests) && full(&self.tokens) && self.account.as_ref().is_none_or(Account::is_idle)
    }
}

fn follow(bucket: &mut Option<Bucket>, limit: Option<u64>, now: Timestamp) {
    match (bucket.as_mut(), limit) {
        (_, None) => *bucket = None,
        (None, Some(limit)) => *bucket = Some(Bucket::full(limit, now)),
        (Some(bucket), Some(limit)) => bucket.follow(limit, now),
    }
}

/// What speaks against a request.
enum Against {
    TooLarge { limit: u64 },
    Rate { wait: Duration, what: &'static str },
}

impl Against {
    fn wait(&self) -> Duration {
        match self {
            Against::TooLarge { .. } => Duration::MAX,
            Against::Rate { wait, .. } => *wait,
        }
    }

    fn error(&self, whose: &str, tokens: u64) -> Error {
        match self {
            Against::TooLarge { limit } => Error::new(
                Kind::RateLimited,
                format!("The request is too large for {whose}: it is reckoned at {tokens} tokens, and the limit is {limit} a minute."),
            )
            .retry_after(Duration::from_secs(60))
            .hopeless(),
            Against::Rate { wait, what } => {
                Error::new(Kind::RateLimited, format!("The limit on {what} of {whose} is reached.")).retry_after(*wait)
            }
        }
    }
}

impl Limiter {
    /// Lets a request in that is reckoned at `tokens`, or says what speaks against it. Without anything to draw on it is let in.
    pub fn admit(&self, draws: &[Draw], tokens: u64, now: Timestamp) -> Result<Permit, Refused> {
        if draws.is_empty() {
            return Ok(Permit::default());
        }
        let held: Vec<Held> = draws.iter().map(|draw| Held { counted: self.counted(&draw.subject), money: None }).collect();
        // In the order of subjects, which is the same for every request: so no two wait for each other.
        let mut all: Vec<MutexGuard<'_, Counts>> = held.iter().map(|held| held.counted.counts()).collect();
        for ((counts, held), draw) in all.iter_mut().zip(&held).zip(draws) {
            held.counted.follow(counts, draw, now, &self.carried);
        }
        let against = all.iter().zip(draws).filter_map(|(counts, draw)| Some((counts.against(tokens)?, draw)));
        let worst = against.max_by_key(|(against, _)| against.wait());
        if let Some((against, draw)) = worst {
            return Err(Refused { error: Box::new(against.error(draw.whose, tokens)), rates: rates(&all) });
        }
        for counts in &mut all {
            counts.running += 1;
            if let Some(bucket) = &mut counts.requests {
                bucket.take(1);
            }
            if let Some(bucket) = &mut counts.tokens {
                bucket.take(signed(tokens));
            }
        }
        let rates = rates(&all);
        drop(all);
        let slot = Some(Slot(held.iter().map(|held| Arc::clone(&held.counted)).collect()));
        Ok(Permit { slot, held, tokens, rates })
    }

    /// Reserves the same sum from every budget that the permit draws on, or nothing from any.
    pub fn reserve(&self, permit: &mut Permit, wanted: Reserve, now: Timestamp) -> Result<(), Refused> {
        let mut all: Vec<MutexGuard<'_, Counts>> = permit.held.iter().map(|held| held.counted.counts()).collect();
        let mut amount = wanted.most;
        for account in all.iter_mut().filter_map(|counts| counts.account()) {
            account.turn(now);
            amount = amount.min(account.fit(wanted.least, wanted.most));
        }
        let mut short = None;
        for account in all.iter_mut().filter_map(|counts| counts.account()) {
            let found = account.check(wanted.least, amount).err().map(|found| (found, account.budget()));
            // What is spent is spent; the others pass.
            short = match (short, found) {
                (Some((Short::Spent, budget)), _) => Some((Short::Spent, budget)),
                (before, found) => found.or(before),
            };
        }
        // One that a budget cannot pay will not come to be reserved: grants for it would only be lost in a crash.
        let hopeless = matches!(short, Some((Short::Spent, _)));
        for (counts, held) in all.iter_mut().zip(&permit.held).filter(|_| !hopeless) {
            held.counted.expect(counts, amount);
        }
        if short.is_none() {
            let mut periods = Vec::with_capacity(all.len());
            for (counts, held) in all.iter_mut().zip(&permit.held) {
                periods.push(counts.account().map(|account| (account.reserve(amount), amount)));
                held.counted.expect(counts, 0);
            }
            drop(all);
            for (held, money) in permit.held.iter_mut().zip(periods) {
                held.money = money;
            }
        } else {
            drop(all);
        }
        let Some((short, budget)) = short else { return Ok(()) };
        let error = match short {
            Short::Spent => {
                Error::new(Kind::InsufficientQuota, format!("The budget of {budget} is used up, or what is left of it too little."))
                    .retry_after(left_of(budget.per, now))
                    .hopeless()
            }
            Short::Held => {
                Error::new(Kind::RateLimited, "Requests under way hold what is left of the budget.").retry_after(bounds::LIMIT_RETRY)
            }
            Short::NotGranted => Error::new(Kind::RateLimited, "More of the budget is being set aside.").retry_after(bounds::LIMIT_RETRY),
        };
        Err(Refused { error: Box::new(error), rates: permit.rates })
    }

    fn counted(&self, subject: &Subject) -> Arc<Counted> {
        if let Some(counted) = self.counted.get(subject) {
            return Arc::clone(counted.value());
        }
        let new = || Arc::new(Counted { subject: subject.clone(), counts: Mutex::default(), wanted: Arc::clone(&self.wanted) });
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

/// Of each rate, the one with the least left.
fn rates(all: &[MutexGuard<'_, Counts>]) -> Rates {
    let least = |bucket: fn(&Counts) -> &Option<Bucket>| {
        all.iter().filter_map(|counts| bucket(counts).as_ref().map(Bucket::left)).min_by_key(|left| (left.remaining, left.limit))
    };
    Rates { requests: least(|counts| &counts.requests), tokens: least(|counts| &counts.tokens) }
}

impl Permit {
    /// Whether money has to be reserved.
    pub fn has_budget(&self) -> bool {
        self.held.iter().any(|held| held.counted.counts().account().is_some())
    }

    /// Whether what the answer reports as used is held against a limit: of tokens a minute, or of money.
    pub fn counts_tokens(&self) -> bool {
        self.rates.tokens.is_some() || self.has_budget()
    }

    /// What was left of the rates when it was given.
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// The place among the requests at once, to be given back apart.
    pub fn take_slot(&mut self) -> Option<Slot> {
        self.slot.take()
    }

    /// Ends the request: `tokens` and `cost` take the place of what was reserved. Where one is not known the reserve stands.
    pub fn settle(mut self, tokens: Option<u64>, cost: Option<NanoUsd>) {
        let used = tokens.unwrap_or(self.tokens);
        self.end(used, cost);
    }

    fn end(&mut self, tokens: u64, cost: Option<NanoUsd>) {
        let back = signed(tokens).saturating_sub(signed(self.tokens));
        for held in self.held.drain(..) {
            let mut counts = held.counted.counts();
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
            self.end(0, Some(0));
        }
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod restart_tests;
#[cfg(test)]
mod tests;
