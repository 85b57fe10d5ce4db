//! Gateways that died: found by their silence, on the clock of the finder. A row that has not been
//! renewed for a lease since it was seen belongs to a gateway without a lease, if it is deleted in
//! the state in which it was seen.

use std::collections::HashMap;
use std::time::Duration;

use super::lease::Timing;
use super::peers::Peer;

/// The last renewal of each other gateway, and when it was first seen.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    seen: HashMap<String, (u64, Duration)>,
    looked: Duration,
}

impl Reaper {
    /// Takes in the rows of the others, read before `now`. Returns those of gateways that are dead:
    /// their ids, and the renewals that they must still have when they are deleted.
    pub(super) fn look(
        &mut self,
        now: Duration,
        timing: Timing,
        others: &[Peer],
    ) -> Vec<(String, u64)> {
        // While the database was away nobody could renew: that is no sign of death.
        if now >= self.looked + timing.lease / 2 {
            self.seen.clear();
        }
        self.looked = now;
        self.seen.retain(|id, _| others.iter().any(|other| other.id == *id));
        let mut dead = Vec::new();
        for other in others {
            let entry = self.seen.entry(other.id.clone()).or_insert((other.renewals, now));
            if entry.0 != other.renewals {
                *entry = (other.renewals, now);
            }
            // One that goes on without a lease has to be told dead by somebody who knows.
            if !other.serves_stale && now >= entry.1 + timing.until_stopped() {
                dead.push((other.id.clone(), other.renewals));
            }
        }
        dead
    }
}

#[cfg(test)]
#[path = "reaper_tests.rs"]
mod tests;
