//! Reserves money before a provider is asked.

use std::cmp::Reverse;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::budget::{BudgetRefusal, Reserve};
use super::counters::{SubjectEntry, lock};
use super::refusal::{ungranted, unpaid};
use super::remaining::{BudgetStatus, Remaining};
use super::{LimitPermit, Limiter};
use rerouter_base::clock::Clock;
use rerouter_base::error::Error;
use rerouter_base::money::NanoUsd;

/// Longest that a request waits for its grant where gateways share budgets: others look twice a
/// second for what they are to give back.
pub(super) const GRANT_WAIT: Duration = Duration::from_secs(2);
/// Longest of such a request's pauses between two looks, if nothing wakes it.
const GRANT_LOOK: Duration = Duration::from_millis(100);

impl Limiter {
    /// Reserves the same sum of every budget that the permit draws on, or nothing of any.
    pub fn reserve(
        &self,
        permit: &mut LimitPermit,
        wanted: Reserve,
        now: Timestamp,
    ) -> Result<(), Box<Error>> {
        permit.awaited = None;
        let mut all = lock(&permit.held);
        let mut room = NanoUsd::MAX;
        for counts in &mut all {
            let Some(account) = counts.account() else { continue };
            account.turn(now);
            room = room.min(account.room());
        }
        let amount = wanted.most.min(room).max(wanted.least);
        let mut against = None;
        for (counts, held) in all.iter_mut().zip(&permit.held) {
            let Some(account) = counts.account() else { continue };
            // Only a request alone on the account is cut: two never share a remainder.
            let held_by_others = !account.is_idle() && account.room() < wanted.most;
            let found = account
                .check(account.needs(wanted.least, amount))
                .err()
                .or(held_by_others.then_some(BudgetRefusal::Held));
            let found = found.map(|short| (short, account.money(held.whose), &held.counted));
            // What is spent is spent; the others pass. Of two that are spent the later end counts,
            // and then the one with less left.
            let weight = |(short, money, _): &(BudgetRefusal, BudgetStatus, &Arc<SubjectEntry>)| {
                (*short, money.resets_at, Reverse(money.remaining()))
            };
            against = against.into_iter().chain(found).max_by_key(weight);
        }
        // One that a budget cannot pay will not come to be reserved: grants for it would only be
        // lost in a crash.
        let hopeless = matches!(against, Some((BudgetRefusal::Spent, ..)));
        for (counts, held) in all.iter_mut().zip(&permit.held).filter(|_| !hopeless) {
            held.counted.note_reserve(counts, amount);
        }
        if let Some((short, money, lacking)) = against {
            let may_wait = short == BudgetRefusal::NotGranted && self.is_shared();
            permit.awaited = may_wait.then(|| Arc::clone(lacking));
            return Err(Box::new(unpaid(short, &money, wanted, now)));
        }
        let mut reserved = Vec::with_capacity(all.len());
        for (counts, held) in all.iter_mut().zip(&permit.held) {
            reserved.push(counts.account().map(|account| (account.reserve(amount), amount)));
            held.counted.note_reserve(counts, 0);
        }
        let remaining = Remaining::of(&permit.held, &all);
        drop(all);
        for (held, money) in permit.held.iter_mut().zip(reserved) {
            held.money = money;
        }
        permit.remaining = remaining;
        Ok(())
    }

    /// Reserves as [`Limiter::reserve`] does, after a refusal by a budget whose grant may come: it
    /// waits for that, at most [`GRANT_WAIT`]. 503 at once while grants cannot be stored.
    pub async fn reserve_granted(
        &self,
        permit: &mut LimitPermit,
        wanted: Reserve,
        clock: &Clock,
    ) -> Result<(), Box<Error>> {
        let until = Instant::now() + GRANT_WAIT;
        loop {
            let lacking = permit.awaited.take();
            // Before the look, so that no grant comes unheard between that and the wait.
            let mut granted = pin!(lacking.as_ref().map(|lacking| lacking.granted.notified()));
            if let Some(granted) = granted.as_mut().as_pin_mut() {
                granted.enable();
            }
            let refused = match self.reserve(permit, wanted, clock.now()) {
                Err(refused) if permit.awaits_grant() => refused,
                done => return done,
            };
            if self.failing.load(Ordering::Acquire) {
                return Err(Box::new(ungranted()));
            }
            if Instant::now() >= until {
                return Err(refused);
            }
            if let Some(granted) = granted.as_pin_mut() {
                let _looked = timeout(GRANT_LOOK, granted).await;
            }
        }
    }
}
