//! Money that a request reserves before a provider is asked.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::budget::Short;
use super::refusal::unpaid;
use super::remaining::{Money, Remaining};
use super::{Limiter, Permit, lock};
use crate::error::Error;
use crate::store::NanoUsd;

/// What a request reserves of every budget that it draws on: `most`. Where less is left of one of
/// them, and nobody else holds a part of it, what is left there. A request is refused where that is
/// less than `least`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    pub(super) least: NanoUsd,
    pub(super) most: NanoUsd,
}

impl Reserve {
    /// So much or nothing.
    pub fn exactly(amount: NanoUsd) -> Self {
        Reserve { least: amount, most: amount }
    }

    /// From `least` to `most`. For a request that may cost something, something has to be left.
    pub fn between(least: NanoUsd, most: NanoUsd) -> Self {
        Reserve { least: least.clamp(most.min(1), most), most }
    }
}

impl Limiter {
    /// Reserves the same sum of every budget that the permit draws on, or nothing of any.
    pub fn reserve(
        &self,
        permit: &mut Permit,
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
            let found = account.check(wanted.least).err().or(held_by_others.then_some(Short::Held));
            let found = found.map(|short| (short, account.money(held.whose)));
            // What is spent is spent; the others pass. Of two that are spent the later end counts,
            // and then the one with less left.
            let weight = |(short, money): &(Short, Money)| {
                (*short, money.resets_at, Reverse(money.remaining()))
            };
            against = against.into_iter().chain(found).max_by_key(weight);
        }
        let amount = wanted.most.min(room).max(wanted.least);
        // One that a budget cannot pay will not come to be reserved: grants for it would only be
        // lost in a crash.
        let hopeless = matches!(against, Some((Short::Spent, _)));
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
