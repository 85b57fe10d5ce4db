//! Gateways that died: found by their silence, on the clock of the finder. A row that has not been
//! renewed for a lease of its own since it was seen belongs to a gateway without a lease, if it is
//! deleted in the state in which it was seen. And a gateway that runs on a copy of the data
//! directory of another: segments of captures of both have the same numbers.

use std::collections::HashMap;
use std::time::Duration;

use super::lease::Timing;
use super::peers::{GatewayIdentity, Peer};
use crate::data_dir::Predecessor;

/// The last renewal of each other gateway, and when it was first seen.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    seen: HashMap<String, (u64, Duration)>,
    looked: Duration,
    /// See [`Reaper::twin`].
    twin: Option<String>,
}

impl Reaper {
    /// Takes in the rows of the others, read before `now`. Returns those of gateways that are dead:
    /// their ids, and the renewals that they must still have when they are deleted. `own`: this
    /// gateway, and the one that it took over from.
    pub(super) fn look(
        &mut self,
        now: Duration,
        timing: Timing,
        (own, predecessor): (&GatewayIdentity, &Predecessor),
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
            let is_former = other.directory == own.directory && other.process < own.process;
            if entry.0 != other.renewals {
                *entry = (other.renewals, now);
                if is_former && !predecessor.is(&other.process) {
                    self.twin = Some(other.id.clone());
                }
            }
            // One that goes on without a lease has to be told dead by somebody who knows. Of the
            // processes before this one the lock on the data directory tells it.
            let may_be_dead = !other.serves_stale || (is_former && !predecessor.runs());
            if may_be_dead && now >= entry.1 + other.timing(timing).until_stopped() {
                dead.push((other.id.clone(), other.renewals));
            }
        }
        self.twin.take_if(|twin| others.iter().all(|other| other.id != *twin));
        dead
    }

    /// The gateway that has run on the data directory of this one, or a copy, since before this one
    /// started, and goes on.
    pub(super) fn twin(&self) -> Option<&str> {
        self.twin.as_deref()
    }
}

#[cfg(test)]
#[path = "reaper_tests.rs"]
mod tests;
