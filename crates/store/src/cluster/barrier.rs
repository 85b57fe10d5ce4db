//! The wait of one change for all other gateways, as a state machine. It gets the time and the rows
//! of `gateways`, and returns what to do next.
//!
//! The wait for a gateway ends once the gateway has applied the change, or once it is fenced and
//! its lease is over. A fenced gateway cannot renew its lease. Each of its renewals was committed
//! before the fence, and it counts its lease from before the renewal. So its lease is over one
//! lease duration after the commit of the fence at the latest, whatever any wall clock says. A
//! lease that has passed is not enough: the gateway may have read the log before the change and be
//! about to renew.

use std::collections::BTreeSet;
use std::time::Duration;

use super::lease::Timing;
use super::peers::Peer;

#[derive(Debug)]
pub(super) struct Barrier {
    pub(super) rev: u64,
    pub(super) began: Duration,
    fence: Option<Fence>,
}

#[derive(Debug)]
struct Fence {
    /// When the fence was known to be committed.
    at: Duration,
    /// The gateways that are fenced and have not applied the change.
    ids: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BarrierStep {
    /// Read the rows again.
    Wait,
    /// Fence all gateways that have not applied the change.
    Fence,
    Done(BarrierEnd),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BarrierEnd {
    /// Gateways whose lease is over: their rows can be deleted.
    pub(super) over: Vec<String>,
    /// The names of gateways that may still answer from tables without the change.
    pub(super) unconfirmed: Vec<String>,
}

impl Barrier {
    pub(super) fn new(rev: u64, now: Duration) -> Self {
        Barrier { rev, began: now, fence: None }
    }

    /// What to do at `now`, given the rows of the other gateways as they were read after the last
    /// step.
    pub(super) fn step(&self, now: Duration, timing: Timing, others: &[Peer]) -> BarrierStep {
        let behind = others.iter().filter(|other| other.applied < self.rev);
        let Some(fence) = &self.fence else {
            return match behind.count() {
                0 => BarrierStep::Done(BarrierEnd::default()),
                _ if now < self.began + timing.patience() => BarrierStep::Wait,
                _ => BarrierStep::Fence,
            };
        };
        // A row that was added since belongs to a gateway that reads the log before its first
        // lease.
        let left: Vec<&Peer> = behind.filter(|other| fence.ids.contains(&other.id)).collect();
        let holds = |other: &&Peer| now < fence.at + other.timing(timing).until_stopped();
        if left.iter().any(holds) {
            return BarrierStep::Wait;
        }
        let mut end = BarrierEnd::default();
        for other in left {
            match other.serves_stale {
                true => end.unconfirmed.push(other.name.clone()),
                false => end.over.push(other.id.clone()),
            }
        }
        BarrierStep::Done(end)
    }

    /// Notes that all gateways that were behind are fenced, unless that is noted already. `now` is
    /// taken after the commit of the fence.
    pub(super) fn fenced(&mut self, now: Duration, ids: &BTreeSet<String>) {
        self.fence.get_or_insert_with(|| Fence { at: now, ids: ids.clone() });
    }
}

#[cfg(test)]
#[path = "barrier_tests.rs"]
mod tests;
