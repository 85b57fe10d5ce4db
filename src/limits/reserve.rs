//! Reserves money before a provider is asked.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::budget::{BudgetShortage, Reserve};
use super::refusal::unpaid;
use super::remaining::{BudgetStatus, Remaining};
use super::{LimitPermit, Limiter, lock};
use crate::error::Error;
use crate::store::NanoUsd;

impl Limiter {
    /// Reserves the same sum of every budget that the permit draws on, or nothing of any.
    pub fn reserve(
        &self,
        permit: &mut LimitPermit,
        wanted: Reserve,
        now: Timestamp,
    ) -> Result<(), Box<Error>> {
        let mut all = lock(&permit.held);
        let mut room = NanoUsd::MAX;
        let mut against = None;
        for (counts, held) in all.iter_mut().zip(&permit.held) {
            let Some(account) = counts.account() else { continue };
            account.turn(now);
            room = room.min(account.room());
            // Only a request alone on the account is cut: two never share a remainder.
            let held_by_others = !account.is_idle() && account.room() < wanted.most;
            let found = account
                .check(account.needs(wanted))
                .err()
                .or(held_by_others.then_some(BudgetShortage::Held));
            let found = found.map(|short| (short, account.money(held.whose)));
            // What is spent is spent; the others pass. Of two that are spent the later end counts,
            // and then the one with less left.
            let weight = |(short, money): &(BudgetShortage, BudgetStatus)| {
                (*short, money.resets_at, Reverse(money.remaining()))
            };
            against = against.into_iter().chain(found).max_by_key(weight);
        }
        let amount = wanted.most.min(room).max(wanted.least);
        // One that a budget cannot pay will not come to be reserved: grants for it would only be
        // lost in a crash.
        let hopeless = matches!(against, Some((BudgetShortage::Spent, _)));
        for (counts, held) in all.iter_mut().zip(&permit.held).filter(|_| !hopeless) {
            held.counted.expect(counts, amount);
        }
        if let Some((short, money)) = against {
            return Err(Box::new(unpaid(short, &money, wanted, now)));
        }
        let mut reserved = Vec::with_capacity(all.len());
        for (counts, held) in all.iter_mut().zip(&permit.held) {
            reserved.push(counts.account().map(|account| (account.reserve(amount), amount)));
            held.counted.expect(counts, 0);
        }
        let remaining = Remaining::of(&permit.held, &all);
        drop(all);
        for (held, money) in permit.held.iter_mut().zip(reserved) {
            held.money = money;
        }
        permit.remaining = remaining;
        Ok(())
    }
}
