//! The state that the tasks of a gateway share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};

use super::lease::{Authority, Timing};
use super::peers::GatewayIdentity;
use crate::data_dir::Predecessor;
use rerouter_base::clock::Clock;
use rerouter_base::id::Random;
use rerouter_base::metrics::Metrics;
use rerouter_base::secret::SecretBytes;

pub(super) struct ClusterState {
    pub(super) identity: GatewayIdentity,
    pub(super) timing: Timing,
    pub(super) serves_stale: bool,
    pub(super) clock: Clock,
    pub(super) clock_is_wrong: AtomicBool,
    pub(super) authority: Authority,
    pub(super) documents: SecretBytes,
    pub(super) random: Random,
    pub(super) metrics: Metrics,
    /// The revision of the tables in memory.
    pub(super) applied: watch::Sender<u64>,
    /// Wakes the follower of the log.
    pub(super) changed: Arc<Notify>,
    /// Whether the database has ever sent a notification of a change.
    pub(super) heard: Arc<AtomicBool>,
    /// Wakes the task that waits for other gateways: this one has applied changes, the others may
    /// have too.
    pub(super) others_applied: Arc<Notify>,
    /// The name of another gateway on this data directory or a copy of it. While there is one, this
    /// gateway must not answer.
    pub(super) twin: ArcSwapOption<String>,
    /// Whether no other gateway is listed with the data directory of this one, or a copy of it.
    pub(super) is_alone: AtomicBool,
    pub(super) predecessor: Predecessor,
}

impl ClusterState {
    /// A duration up to a fifth longer or shorter, so that gateways do not act in step.
    pub(super) fn jittered(&self, mean: Duration) -> Duration {
        let part = u32::try_from(self.random.next_u64() % 401).unwrap_or(200);
        mean * (800 + part) / 1000
    }
}
