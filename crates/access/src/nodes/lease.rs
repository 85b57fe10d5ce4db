//! The state of a node by its heartbeats: its status and load, and for how long they hold.

use std::time::Instant;

use jiff::Timestamp;

use super::nonces::SpentNonces;
use rerouter_store::NodeStatus;

/// The last heartbeat of a node.
#[derive(Default)]
pub(super) struct Lease {
    /// Epoch of the registration that the heartbeat belongs to.
    pub(super) epoch: u64,
    /// Epoch of a newer registration that continues the lease.
    pub(super) carried: Option<u64>,
    /// Sequence number of the last heartbeat; none since the start of this process.
    pub(super) seq: Option<u64>,
    /// End of the lease by the wall clock.
    pub(super) until: Option<Timestamp>,
    /// Start of the lease by the monotonic clock.
    pub(super) started: Option<Instant>,
    pub(super) status: NodeStatus,
    pub(super) reported: NodeLoad,
    /// Our requests in flight at the time of the heartbeat.
    pub(super) inflight_then: u32,
    pub(super) nonces: SpentNonces,
}

impl Lease {
    /// Whether the lease belongs to this registration.
    pub(super) fn is_of(&self, epoch: u64) -> bool {
        self.epoch == epoch || self.carried == Some(epoch)
    }
}

/// Requests at a node, as it reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub running: u32,
    pub queued: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Heartbeat {
    /// Epoch of the registration that it belongs to, if it names one.
    pub epoch: Option<u64>,
    /// Time of its signature by the node's clock, in seconds since 1970.
    pub signed_s: i64,
    /// Sequence number. It rises within a registration.
    pub seq: u64,
    pub status: NodeStatus,
    pub load: NodeLoad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatRefusal {
    /// Its sequence number does not rise.
    Seq,
    /// It belongs to an older registration.
    Epoch,
    Unregistered,
}
