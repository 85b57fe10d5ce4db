//! Reserves money before a provider is asked.

use std::cmp::Reverse;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::budget::{BudgetRefusal, Reserve};
use super::counters::{SubjectEntry, lock, recall};
use super::refusal::{not_held, unpaid};
use super::remaining::{BudgetStatus, Remaining};
use super::{LimitPermit, Limiter};
use rerouter_base::clock::Clock;
use rerouter_base::error::Error;
use rerouter_base::money::NanoUsd;

/// Longest time that a request waits for its hold. Other processes check twice a second what they
/// should give back.
pub(super) const HOLD_WAIT: Duration = Duration::from_secs(2);
/// Longest time between two checks of a waiting request, if nothing wakes it.
const HOLD_LOOK: Duration = Duration::from_millis(100);

impl Limiter {
    /// Reserves the same sum of every budget that the permit draws on, or nothing of any.
    pub fn reserve(
        &self,
        permit: &mut LimitPermit,
        wanted: Reserve,
        now: Timestamp,
    ) -> Result<(), Box<Error>> {
        permit.awaited = None;
        let may_draw = !self.stopped.load(Ordering::Acquire)
            && now.as_microsecond() < self.may_draw_until.load(Ordering::Acquire);
        let mut all = lock(&permit.held);
        let mut room = NanoUsd::MAX;
        for (counts, held) in all.iter_mut().zip(&permit.held) {
            let Some(account) = counts.account() else { continue };
            account.turn(now, |period| recall(&self.known, &held.counted.subject, period));
            room = room.min(account.room());
        }
        let amount = wanted.most.min(room).max(wanted.least);
        let mut against = None;
        for (counts, held) in all.iter_mut().zip(&permit.held) {
            let Some(account) = counts.account() else { continue };
            let found = account.check(wanted, amount, may_draw).err();
            let found = found.map(|refusal| (refusal, account.money(held.whose), &held.counted));
            // A spent budget outweighs the others, whose refusals pass. Of two spent budgets the
            // one that ends later counts, then the one with less left.
            let weight =
                |(refusal, money, _): &(BudgetRefusal, BudgetStatus, &Arc<SubjectEntry>)| {
                    (*refusal, money.resets_at, Reverse(money.remaining()))
                };
            against = against.into_iter().chain(found).max_by_key(weight);
        }
        let waits = matches!(against, Some((BudgetRefusal::NotHeld, ..)));
        let lacking = if waits { wanted.most } else { 0 };
        let lacked = std::mem::replace(&mut permit.lacking, lacking);
        for (counts, held) in all.iter_mut().zip(&permit.held).filter(|_| waits || lacked > 0) {
            // The budget may be gone since the request began to wait.
            if let Some(account) = &mut counts.account {
                account.lacks_no_more(lacked);
            }
            let Some(account) = counts.account() else { continue };
            account.lacks(lacking);
            if waits {
                // All budgets of the request are queued, so that one write covers them.
                held.counted.queue.soon(&held.counted.subject);
            }
        }
        if let Some((refusal, money, lacking)) = against {
            permit.awaited = waits.then(|| Arc::clone(lacking));
            return Err(Box::new(unpaid(refusal, &money, wanted, now)));
        }
        let reserve = |account: &mut super::budget::Account| (account.reserve(amount, now), amount);
        let reserved: Vec<_> = all.iter_mut().map(|counts| counts.account().map(reserve)).collect();
        let remaining = Remaining::of(&permit.held, &all);
        drop(all);
        for (held, money) in permit.held.iter_mut().zip(reserved) {
            held.money = money;
        }
        permit.remaining = remaining;
        Ok(())
    }

    /// Reserves as [`Limiter::reserve`] does, after a refusal for want of a hold: waits for the
    /// hold, at most [`HOLD_WAIT`]. 503 at once while holds cannot be stored.
    pub async fn reserve_held(
        &self,
        permit: &mut LimitPermit,
        wanted: Reserve,
        clock: &Clock,
    ) -> Result<(), Box<Error>> {
        let until = Instant::now() + HOLD_WAIT;
        loop {
            let lacking = permit.awaited.take();
            // Registered before the check, so that no write between check and wait is missed.
            let mut written = pin!(lacking.as_ref().map(|lacking| lacking.written.notified()));
            if let Some(written) = written.as_mut().as_pin_mut() {
                written.enable();
            }
            let refused = match self.reserve(permit, wanted, clock.now()) {
                Err(refused) if permit.awaits_hold() => refused,
                done => return done,
            };
            if self.failing.load(Ordering::Acquire) || self.stopped.load(Ordering::Acquire) {
                return Err(Box::new(not_held()));
            }
            if Instant::now() >= until {
                return Err(refused);
            }
            if let Some(written) = written.as_pin_mut() {
                let _looked = timeout(HOLD_LOOK, written).await;
            }
        }
    }
}
