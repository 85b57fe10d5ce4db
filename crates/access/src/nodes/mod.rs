//! The nodes in memory: identified by their signatures, with the state that their heartbeats
//! report. Enrolments and registrations follow the store. Leases, reported load and breakers belong
//! to this process: after a restart a node is unreachable until its next heartbeat. An upgrade
//! hands leases and load over.

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
pub mod fixtures;
mod health_snapshot;
mod lease;
mod node;
mod nonces;
mod ready;
mod round_robin;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::lease::Lease;
use self::node::{NodeEntry, Serving, epoch};
use self::round_robin::RoundRobin;
use crate::auth::signature::Signed;
use rerouter_base::bounds;
use rerouter_base::id::{NodeId, Random};
use rerouter_base::secret::{Keyring, Purpose, Secret, SecretBytes, open, seal};
use rerouter_records::node::NodeState;
use rerouter_routing::health::{ProviderState, TargetStatus};
use rerouter_routing::{Authorities, BaseUrl, Provider};
use rerouter_store::{Change, Committed, Follower, NodeReport, NodeRow, NodeStatus, Reload};

pub use self::lease::{Heartbeat, HeartbeatRefusal, NodeLoad};
pub use self::node::NodeSnapshot;
pub use self::nonces::NonceRefusal;
pub use self::ready::ReadyNode;

/// Clones share the table.
#[derive(Clone)]
pub struct Nodes(Arc<NodeTable>);

struct NodeTable {
    sealing: SecretBytes,
    /// Certificate authorities for nodes; `None`: the system's.
    authorities: Option<Arc<Authorities>>,
    known: RwLock<BTreeMap<NodeId, Arc<NodeEntry>>>,
    rotation: RoundRobin,
}

impl Follower for Nodes {
    fn apply(&self, committed: &Committed) {
        for change in &committed.changes {
            match change {
                Change::Node(row) => self.put(row.clone()),
                Change::NodeDeleted(id) => self.remove(id),
                _ => {}
            }
        }
    }

    fn reload(&self) -> Box<dyn Reload> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        Box::new(NodesReload { nodes: self.clone(), unseen: known.keys().cloned().collect() })
    }
}

struct NodesReload {
    nodes: Nodes,
    unseen: BTreeSet<NodeId>,
}

impl Reload for NodesReload {
    fn row(&mut self, row: Change) {
        if let Change::Node(row) = row {
            self.unseen.remove(&row.id);
            self.nodes.put(row);
        }
    }

    fn finish(self: Box<Self>, _rev: u64) {
        self.unseen.iter().for_each(|id| self.nodes.remove(id));
    }
}

impl Nodes {
    /// An empty table; secrets are sealed under a key from this keyring.
    pub fn new(keys: impl Into<Keyring>) -> Nodes {
        Nodes::with(keys.into().derive(Purpose::Nodes, b""), None)
    }

    /// An empty table with these certificate authorities; `None`: the system's.
    #[must_use]
    pub fn vouched_for_by(self, authorities: Option<Arc<Authorities>>) -> Nodes {
        Nodes::with(self.0.sealing.clone(), authorities)
    }

    fn with(sealing: SecretBytes, authorities: Option<Arc<Authorities>>) -> Nodes {
        let (known, rotation) = (RwLock::default(), RoundRobin::default());
        Nodes(Arc::new(NodeTable { sealing, authorities, known, rotation }))
    }

    fn remove(&self, id: &NodeId) {
        self.0.known.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    fn put(&self, row: Arc<NodeRow>) {
        let before = self.get(&row.id);
        let mut secrets = Vec::new();
        let previous = row.previous.as_ref().map(|previous| {
            (row.generation.saturating_sub(1), &previous.secret, Some(previous.expires_at))
        });
        for (generation, sealed, end) in
            [(row.generation, &row.secret, None)].into_iter().chain(previous)
        {
            match self.opened(&secret_context(&row.id, generation), sealed) {
                Some(secret) => secrets.push((generation, secret, end)),
                None => log::error!("the secret of {} cannot be opened: rotate it", row.id),
            }
        }
        let inflight = before.as_ref().map(|before| before.inflight.clone()).unwrap_or_default();
        let serving = self.serving(&row, before.as_deref(), &inflight);
        let abilities = ready::abilities(&row).into();
        let lease = before.as_ref().map(|before| before.lease.clone()).unwrap_or_default();
        if let (Some(before), Some(epoch)) =
            (before.as_ref().and_then(|before| before.epoch()), epoch(&row))
        {
            // The lease continues until the new registration has its own.
            let mut lease = lease.lock().unwrap_or_else(PoisonError::into_inner);
            if before < epoch && lease.is_of(before) {
                lease.carried = Some(epoch);
            }
        }
        let node =
            Arc::new(NodeEntry { row: row.clone(), abilities, secrets, serving, inflight, lease });
        self.0.known.write().unwrap_or_else(PoisonError::into_inner).insert(row.id.clone(), node);
    }

    /// A new epoch starts with a new breaker. Requests of earlier epochs still count as in flight.
    fn serving(
        &self,
        row: &NodeRow,
        before: Option<&NodeEntry>,
        inflight: &Arc<ProviderState>,
    ) -> Option<Serving> {
        let registration = row.registration.as_ref().filter(|registration| !registration.ended)?;
        let before = before.and_then(|before| before.serving.as_ref());
        if let Some(same) = before.filter(|before| before.epoch == registration.epoch) {
            return Some(same.clone());
        }
        let base = BaseUrl::parse(&registration.endpoint).ok()?.versioned();
        let sealed = registration.api_key.as_ref();
        let key = sealed.and_then(|sealed| self.opened(&key_context(&row.id), sealed));
        if key.is_none() && sealed.is_some() {
            log::error!(
                "the API key of {} cannot be opened: the node has to register again",
                row.id
            );
            return None;
        }
        let mut provider =
            Provider::of_node(base, key, registration.max_concurrency, inflight.clone());
        provider.ca = self.0.authorities.clone().filter(|_| provider.base.tls);
        let turn = before.map_or_else(|| self.0.rotation.another(), |before| before.turn.clone());
        Some(Serving {
            epoch: registration.epoch,
            provider: provider.into(),
            state: Arc::default(),
            turn,
        })
    }

    fn opened(&self, context: &[u8], sealed: &[u8]) -> Option<Secret> {
        let bytes = open(&self.0.sealing, context, sealed)?;
        String::from_utf8(bytes).ok().map(Secret::new)
    }

    /// `None` only if the cipher fails.
    pub fn seal_secret(
        &self,
        id: &NodeId,
        generation: u32,
        secret: &Secret,
        random: &Random,
    ) -> Option<Vec<u8>> {
        seal(&self.0.sealing, &secret_context(id, generation), secret.expose().as_bytes(), random)
    }

    /// Seals the API key that a node expects.
    pub fn seal_key(&self, id: &NodeId, key: &Secret, random: &Random) -> Option<Vec<u8>> {
        seal(&self.0.sealing, &key_context(id), key.expose().as_bytes(), random)
    }

    /// The node that made a signature. The error is a label of the metric: `key`, `skew` or `mac`.
    /// The caller checks the nonce.
    pub fn identify(&self, signed: &Signed, now: Timestamp) -> Result<NodeId, &'static str> {
        let node = NodeId::parse(&signed.node).and_then(|id| self.get(&id)).ok_or("key")?;
        let secret = node.secret(signed.generation, now).ok_or("key")?;
        if !signed.is_timely(now.as_second()) {
            return Err("skew");
        }
        if signed.is_made_with(secret.expose().as_bytes()) {
            Ok(node.row.id.clone())
        } else {
            Err("mac")
        }
    }

    /// Whether the secret of this generation is valid.
    pub fn takes(&self, id: &NodeId, generation: u32, now: Timestamp) -> bool {
        self.get(id).is_some_and(|node| node.secret(generation, now).is_some())
    }

    fn get(&self, id: &NodeId) -> Option<Arc<NodeEntry>> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn all(&self) -> Vec<Arc<NodeEntry>> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub fn row(&self, id: &NodeId) -> Option<Arc<NodeRow>> {
        self.get(id).map(|node| node.row.clone())
    }

    pub fn show(&self, id: &NodeId, now: Timestamp) -> Option<NodeSnapshot> {
        self.get(id).map(|node| node.show(now))
    }

    /// Up to `limit` nodes older than `after`, newest first.
    pub fn page(&self, after: Option<&NodeId>, limit: usize, now: Timestamp) -> Vec<NodeSnapshot> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        let older = (Bound::Unbounded, after.map_or(Bound::Unbounded, Bound::Excluded));
        let newest = known.range::<NodeId, _>(older).rev().take(limit);
        newest.map(|(_, node)| node.show(now)).collect()
    }

    pub fn count(&self, standing: NodeState, now: Timestamp) -> usize {
        self.all().iter().filter(|node| node.standing(&node.lease(), now) == standing).count()
    }

    /// Hosts and ports of the registered nodes.
    pub fn places(&self) -> Vec<(String, u16)> {
        let all = self.all();
        let bases = all
            .iter()
            .filter_map(|node| node.serving.as_ref())
            .map(|serving| &serving.provider.base);
        bases.map(|base| (base.host.clone(), base.port)).collect()
    }

    /// Starts the lease of a new registration, unless a later one has started.
    pub fn begin(&self, id: &NodeId, epoch: u64, now: Timestamp) {
        let Some(node) = self.get(id) else { return };
        let mut lease = node.lease();
        if lease.epoch < epoch {
            let nonces = std::mem::take(&mut lease.nonces);
            *lease = Lease {
                epoch,
                until: lease_end(now),
                started: Some(Instant::now()),
                nonces,
                ..Lease::default()
            };
        }
    }

    pub fn report(
        &self,
        id: &NodeId,
        report: Heartbeat,
        now: Timestamp,
    ) -> Result<(), HeartbeatRefusal> {
        let node = self.get(id).ok_or(HeartbeatRefusal::Unregistered)?;
        let registration = node.row.registration.as_ref().filter(|_| node.serving.is_some());
        let registration = registration.ok_or(HeartbeatRefusal::Unregistered)?;
        if registration.is_after(report.epoch, report.signed_s) {
            return Err(HeartbeatRefusal::Epoch);
        }
        let epoch = registration.epoch;
        let mut lease = node.lease();
        // A newer registration may have come since the look-up.
        if lease.epoch > epoch {
            return Err(HeartbeatRefusal::Epoch);
        }
        if lease.epoch == epoch && lease.seq.is_some_and(|last| report.seq <= last) {
            return Err(HeartbeatRefusal::Seq);
        }
        lease.epoch = epoch;
        lease.carried = None;
        lease.seq = Some(report.seq);
        lease.until = lease_end(now);
        lease.started = Some(Instant::now());
        lease.status = report.status;
        lease.reported = report.load;
        lease.inflight_then = node.inflight.under_way();
        Ok(())
    }

    /// The last heartbeats of nodes whose leases run, with their age, for another process.
    pub fn reports(&self, now: Timestamp) -> Vec<(NodeReport, Duration)> {
        let report = |node: &Arc<NodeEntry>| {
            let lease = node.lease();
            let left = lease.until?.duration_since(now).unsigned_abs();
            let NodeLoad { running, queued } = lease.reported;
            let report = NodeReport {
                node: node.row.id.clone(),
                epoch: node.epoch().filter(|epoch| lease.is_of(*epoch))?,
                seq: lease.seq,
                status: lease.status.as_str().to_owned(),
                running,
                queued,
            };
            (lease.until? > now).then(|| (report, bounds::NODE_LEASE.saturating_sub(left)))
        };
        self.all().iter().filter_map(report).collect()
    }

    /// Applies a heartbeat that another gateway received, `age` ago.
    pub fn learn(&self, report: &NodeReport, age: Duration, now: Timestamp) {
        let node = self.get(&report.node).filter(|node| node.epoch() == Some(report.epoch));
        let (Some(node), Some(status)) = (node, NodeStatus::parse(&report.status)) else { return };
        let mut lease = node.lease();
        if lease.epoch > report.epoch
            || lease.epoch == report.epoch && (lease.until.is_some() && lease.seq >= report.seq)
        {
            return;
        }
        lease.epoch = report.epoch;
        lease.carried = None;
        lease.seq = report.seq;
        lease.until = lease_end(now.checked_sub(age).unwrap_or(now));
        lease.started = Instant::now().checked_sub(age);
        lease.status = status;
        lease.reported = NodeLoad { running: report.running, queued: report.queued };
        lease.inflight_then = node.inflight.under_way();
    }

    /// Restarts the leases that have not expired: what nodes report to other gateways is not known.
    pub fn hold(&self, now: Timestamp) {
        for node in self.all() {
            let mut lease = node.lease();
            if let NodeState::Ready | NodeState::Draining = node.standing(&lease, now) {
                (lease.until, lease.started) = (lease_end(now), Some(Instant::now()));
            }
        }
    }

    /// Refuses for two minutes signatures of the present nodes that were made in the second of
    /// `start` or before. `start` is the start of this process: the previous process may have
    /// accepted those signatures.
    pub fn refuse_signatures_until(&self, start: Timestamp) {
        for node in self.all() {
            node.lease().nonces.start(start.as_second(), Instant::now());
        }
    }

    /// Spends the nonce of a valid signature in memory, which is enough for this process.
    pub fn spend_nonce(
        &self,
        id: &NodeId,
        nonce: &str,
        created: i64,
        now: Timestamp,
    ) -> Result<(), NonceRefusal> {
        self.get(id).ok_or(NonceRefusal::Spent)?.lease().nonces.spend(nonce, created, now)
    }

    /// Whether a signature of this generation changes nothing in the store. The first use of a
    /// generation does: it ends the previous one, durably.
    pub fn changes_nothing(&self, id: &NodeId, generation: u32) -> bool {
        self.get(id)
            .is_some_and(|node| node.row.previous.is_none() || node.row.generation != generation)
    }

    /// Whether the lease of a registered node has expired.
    pub fn has_lapsed(&self, id: &NodeId, now: Timestamp) -> bool {
        self.get(id).is_some_and(|node| node.standing(&node.lease(), now) == NodeState::Unreachable)
    }

    /// The nodes that may take a request for the model, in the order to try: the least loaded
    /// first, then the one that was used longest ago.
    pub fn ready(&self, model: &str, now: Timestamp) -> Vec<ReadyNode> {
        let mut ready: Vec<ReadyNode> = self
            .all()
            .iter()
            .filter(|node| node.serves(model))
            .filter_map(|node| node.ready(now))
            .collect();
        ready.sort_by_cached_key(|ready| {
            (ready.load, ready.inflight, ready.turn.last(), ready.id.clone())
        });
        ready
    }

    /// The nodes that serve a model, ready or not, in id order. The [`TargetStatus`] covers all
    /// models of the node.
    pub fn behind(&self, model: &str, now: Timestamp) -> Vec<(NodeSnapshot, TargetStatus)> {
        let serving = self.all().into_iter().filter(|node| node.serves(model));
        serving.filter_map(|node| Some((node.show(now), node.doing(now)?))).collect()
    }
}

fn lease_end(now: Timestamp) -> Option<Timestamp> {
    now.checked_add(bounds::NODE_LEASE).ok()
}

/// Binds a sealed secret to its node and generation.
fn secret_context(id: &NodeId, generation: u32) -> Vec<u8> {
    format!("{id} secret {generation}").into_bytes()
}

fn key_context(id: &NodeId) -> Vec<u8> {
    format!("{id} key").into_bytes()
}

#[cfg(test)]
mod tests;
