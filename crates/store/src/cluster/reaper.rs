//! Finds dead gateways by their silence, on the clock of this gateway. If a row was not renewed for
//! one duration of its lease since it was seen, its gateway has no lease, provided that the row is
//! deleted in the state in which it was seen. Also finds a gateway that runs on a copy of this data
//! directory: the segments of captures of both would have the same numbers.

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
    /// Compares the rows of the other gateways, read before `now`, with the previous ones. Returns
    /// the dead gateways: their ids, and the number of renewals that the row must still have when
    /// it is deleted. `own` is this gateway, `predecessor` the process that it took over from.
    pub(super) fn look(
        &mut self,
        now: Duration,
        timing: Timing,
        (own, predecessor): (&GatewayIdentity, &Predecessor),
        others: &[Peer],
    ) -> Vec<(String, u64)> {
        // While the database was unreachable no gateway could renew, so that is no sign of death.
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
            // A gateway that goes on without a lease may live although it is silent. Only for
            // former processes of this data directory, the lock on it shows that they have ended.
            let may_be_dead = !other.serves_stale || (is_former && !predecessor.runs());
            if may_be_dead && now >= entry.1 + other.timing(timing).until_stopped() {
                dead.push((other.id.clone(), other.renewals));
            }
        }
        self.twin.take_if(|twin| others.iter().all(|other| other.id != *twin));
        dead
    }

    /// The gateway that has run on the data directory of this gateway, or on a copy of it, since
    /// before this one started, and still renews.
    pub(super) fn twin(&self) -> Option<&str> {
        self.twin.as_deref()
    }
}

#[cfg(test)]
#[path = "reaper_tests.rs"]
mod tests;
