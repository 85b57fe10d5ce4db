//! One node: its secrets, its registration, its lease and its load.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use super::lease::{Lease, NodeLoad};
use super::ready::ReadyNode;
use super::round_robin::RoundRobin;
use rerouter_base::bounds;
use rerouter_base::secret::Secret;
use rerouter_records::node::NodeState;
use rerouter_routing::health::{ProviderState, TargetState, TargetStatus};
use rerouter_routing::{Abilities, BreakerState, Provider};
use rerouter_store::{NodeRow, NodeStatus};

pub(super) struct NodeEntry {
    pub(super) row: Arc<NodeRow>,
    /// Bounds of its models, by model.
    pub(super) abilities: Arc<BTreeMap<String, Arc<Abilities>>>,
    /// Its secrets by generation. The previous one has an expiry.
    pub(super) secrets: Vec<(u32, Secret, Option<Timestamp>)>,
    /// Present while it is registered.
    pub(super) serving: Option<Serving>,
    /// Counts our requests in flight, under any of its registrations: its concurrency limit
    /// includes requests that it began before it registered again.
    pub(super) inflight: Arc<ProviderState>,
    /// The lease, which is kept when the row changes.
    pub(super) lease: Arc<Mutex<Lease>>,
}

/// How a registered node is reached.
#[derive(Clone)]
pub(super) struct Serving {
    pub(super) epoch: u64,
    pub(super) provider: Arc<Provider>,
    pub(super) state: Arc<TargetState>,
    pub(super) turn: RoundRobin,
}

/// A node as operators see it.
#[derive(Clone, Debug)]
pub struct NodeSnapshot {
    pub row: Arc<NodeRow>,
    pub standing: NodeState,
    /// Load by its last heartbeat.
    pub load: NodeLoad,
    pub lease_until: Option<Timestamp>,
    /// Our requests in flight.
    pub inflight: u32,
    /// State of its breaker, while it is registered.
    pub breaker: Option<BreakerState>,
}

impl NodeEntry {
    pub(super) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// State of the node as a target, all its models together.
    pub(super) fn doing(&self, now: Timestamp) -> Option<TargetStatus> {
        let serving = self.serving.as_ref()?;
        Some(TargetStatus {
            inflight: self.inflight.under_way(),
            ..serving.state.show(&serving.provider, now)
        })
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        epoch(&self.row)
    }

    /// The secret of a generation, unless it has expired.
    pub(super) fn secret(&self, generation: u32, now: Timestamp) -> Option<&Secret> {
        let taken = |end: &Option<Timestamp>| end.is_none_or(|end| now < end);
        self.secrets
            .iter()
            .find(|(known, _, end)| *known == generation && taken(end))
            .map(|(_, secret, _)| secret)
    }

    pub(super) fn standing(&self, lease: &Lease, now: Timestamp) -> NodeState {
        let Some(registration) = &self.row.registration else { return NodeState::Pending };
        if registration.ended {
            return NodeState::Gone;
        }
        // Both clocks count: a wall clock that goes back must not prolong a lease, and `now` may be
        // older than the heartbeat.
        let lasts = lease.started.is_some_and(|start| start.elapsed() < bounds::NODE_LEASE);
        let held = lasts
            && lease.is_of(registration.epoch)
            && lease.until.is_some_and(|until| now < until);
        match (held && self.serving.is_some(), lease.status) {
            (false, _) => NodeState::Unreachable,
            (true, NodeStatus::Ready) => NodeState::Ready,
            (true, NodeStatus::Draining | NodeStatus::Error) => NodeState::Draining,
        }
    }

    pub(super) fn serves(&self, model: &str) -> bool {
        self.row
            .registration
            .as_ref()
            .is_some_and(|registration| registration.models.iter().any(|served| served.id == model))
    }

    pub(super) fn ready(&self, now: Timestamp) -> Option<ReadyNode> {
        let serving = self.serving.as_ref()?;
        let lease = self.lease();
        if self.standing(&lease, now) != NodeState::Ready {
            return None;
        }
        let inflight = self.inflight.under_way();
        let reported = lease.reported.running.saturating_add(lease.reported.queued);
        // The heartbeat's load, corrected by our requests since.
        let load =
            reported.saturating_add(inflight).saturating_sub(lease.inflight_then).max(inflight);
        Some(ReadyNode {
            id: self.row.id.clone(),
            provider: serving.provider.clone(),
            state: serving.state.clone(),
            row: self.row.clone(),
            abilities: self.abilities.clone(),
            load,
            inflight,
            turn: serving.turn.clone(),
        })
    }

    pub(super) fn show(&self, now: Timestamp) -> NodeSnapshot {
        let lease = self.lease();
        NodeSnapshot {
            row: self.row.clone(),
            standing: self.standing(&lease, now),
            load: lease.reported,
            lease_until: lease
                .until
                .filter(|_| self.epoch().is_some_and(|epoch| lease.is_of(epoch))),
            inflight: self.inflight.under_way(),
            breaker: self
                .serving
                .as_ref()
                .map(|serving| serving.state.at_node(&serving.provider, now).breaker),
        }
    }
}

pub(super) fn epoch(row: &NodeRow) -> Option<u64> {
    row.registration
        .as_ref()
        .filter(|registration| !registration.ended)
        .map(|registration| registration.epoch)
}
