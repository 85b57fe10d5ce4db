//! The nodes in memory: who they are, by their signatures, and what they are doing, by their reports. Enrolments and
//! registrations change only by following the store; leases, reported load and breakers are this process's own, and begin anew
//! with it: a node that is known to the store is unreachable until its next report.

mod reseal;
mod standing;
mod turn;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use jiff::Timestamp;

pub use self::standing::Standing;
use self::turn::Turn;
use crate::auth::signature::Signed;
use crate::bounds;
use crate::id::{NodeId, Random};
use crate::routing::decide::state_against;
use crate::routing::health::TargetState;
use crate::routing::inputs::{Breaker, NodeFacts, TargetHealth};
use crate::routing::on_nodes;
use crate::routing::provider::{Authorities, Base, Provider};
use crate::routing::recipe::{Routing, Target};
use crate::secret::{Keyring, Secret, SecretBytes, open, seal};
use crate::store::{Change, Committed, NodeRow};

pub use reseal::resealed;

/// A cheap handle to the table.
#[derive(Clone)]
pub struct Nodes(Arc<Table>);

struct Table {
    sealing: SecretBytes,
    /// Who may vouch for the certificates of nodes; none: those whom the system trusts.
    authorities: Option<Arc<Authorities>>,
    known: RwLock<BTreeMap<NodeId, Arc<Node>>>,
    /// With which all of them take turns.
    turns: Turn,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nodes")
    }
}

/// One node as it is now.
pub struct Node {
    row: Arc<NodeRow>,
    /// Its secrets by generation, the older one with its end.
    secrets: Vec<(u32, Secret, Option<Timestamp>)>,
    /// How it is reached; none before it registers, and after it left.
    serving: Option<Serving>,
    /// Outlives changes of the row.
    life: Arc<Mutex<Life>>,
}

#[derive(Clone)]
struct Serving {
    epoch: u64,
    provider: Arc<Provider>,
    state: Arc<TargetState>,
    turn: Turn,
}

/// What is known by reports only.
#[derive(Default)]
struct Life {
    /// Of these reports.
    epoch: u64,
    /// The last report's; none since this process runs.
    seq: Option<u64>,
    lease_until: Option<Timestamp>,
    /// When the lease began, by the clock that nobody sets.
    leased: Option<Instant>,
    status: Status,
    reported: Load,
    /// Requests of ours that were there when it reported.
    ours_then: u32,
    events: Remembered,
}

/// Requests at a node, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Being served.
    pub running: u32,
    /// Waiting.
    pub queued: u32,
}

/// What a node says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It serves.
    #[default]
    Ready,
    /// It takes no new requests.
    Draining,
    /// It cannot serve.
    Error,
}

impl Status {
    /// Reads the word of a report.
    pub fn parse(word: &str) -> Option<Status> {
        match word {
            "ready" => Some(Status::Ready),
            "draining" => Some(Status::Draining),
            "error" => Some(Status::Error),
            _ => None,
        }
    }
}

/// A report of a node.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Rises from report to report of an epoch.
    pub seq: u64,
    /// How it is.
    pub status: Status,
    /// What it is doing.
    pub load: Load,
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untaken {
    /// Its number does not rise.
    Seq,
    /// The node has not registered, or has left.
    Unregistered,
}

/// Ids of events, the newest ones.
#[derive(Default)]
struct Remembered {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl Remembered {
    fn is_new(&mut self, id: &str) -> bool {
        if !self.ids.insert(id.to_owned()) {
            return false;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > bounds::NODE_EVENT_IDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

/// What an operator is shown of a node.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its row.
    pub row: Arc<NodeRow>,
    /// How it stands.
    pub standing: Standing,
    /// Its last report's.
    pub load: Load,
    /// Until when its last report holds.
    pub lease_until: Option<Timestamp>,
    /// Requests of ours under way there.
    pub inflight: u32,
    /// Its breaker; none before it registers, and after it left.
    pub breaker: Option<Breaker>,
}

/// A node that may be given a request.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Which.
    pub id: NodeId,
    provider: Arc<Provider>,
    state: Arc<TargetState>,
    models: Vec<String>,
    load: u32,
    inflight: u32,
    turn: Turn,
}

impl Ready {
    /// Whether nothing of its state speaks against asking it.
    pub fn may_be_asked(&self, now: Timestamp) -> bool {
        state_against(&self.state.at_node(&self.provider, now), now).is_none()
    }

    /// The target as it is at this node, which is about to be asked.
    pub fn target(&self, planned: &Target) -> Target {
        self.turn.take();
        planned.at_node(self.provider.clone(), self.state.clone())
    }
}

impl Nodes {
    /// An empty table; secrets are sealed under a key of this keyring.
    pub fn new(keys: impl Into<Keyring>) -> Nodes {
        Nodes(Arc::new(Table { sealing: keys.into().nodes().clone(), authorities: None, known: RwLock::default(), turns: Turn::default() }))
    }

    /// An empty table of nodes for whose certificates these vouch, instead of those whom the system trusts.
    #[must_use]
    pub fn vouched_for_by(self, authorities: Option<Arc<Authorities>>) -> Nodes {
        let Table { sealing, turns, .. } = &*self.0;
        Nodes(Arc::new(Table { sealing: sealing.clone(), authorities, known: RwLock::default(), turns: turns.clone() }))
    }

    /// Takes in what the store has at the start.
    pub fn load(&self, rows: Vec<NodeRow>) {
        rows.into_iter().for_each(|row| self.put(row.into()));
    }

    /// Takes in one mutation.
    pub fn apply(&self, committed: &Committed) {
        for change in &committed.changes {
            match change {
                Change::Node(row) => self.put(row.clone()),
                Change::NodeDeleted(id) => _ = self.0.known.write().unwrap_or_else(PoisonError::into_inner).remove(id),
                _ => {}
            }
        }
    }

    fn put(&self, row: Arc<NodeRow>) {
        let before = self.get(&row.id);
        let unsealed = |sealed: &[u8], generation: u32| open(&self.0.sealing, &secret_context(&row.id, generation), sealed);
        let mut secrets = Vec::new();
        let previous =
            row.previous.as_ref().map(|previous| (row.generation.saturating_sub(1), &previous.secret, Some(previous.expires_at)));
        for (generation, sealed, end) in [(row.generation, &row.secret, None)].into_iter().chain(previous) {
            match unsealed(sealed, generation).and_then(|bytes| String::from_utf8(bytes).ok()) {
                Some(secret) => secrets.push((generation, Secret::new(secret), end)),
                None => log::error!("the secret of {} cannot be opened: rotate it", row.id),
            }
        }
        let serving = self.serving(&row, before.as_deref());
        let life = before.map(|before| before.life.clone()).unwrap_or_default();
        let node = Arc::new(Node { row: row.clone(), secrets, serving, life });
        self.0.known.write().unwrap_or_else(PoisonError::into_inner).insert(row.id.clone(), node);
    }

    /// How the node is reached by its registration. A new epoch has a new breaker; requests of the one before still take its places.
    fn serving(&self, row: &NodeRow, before: Option<&Node>) -> Option<Serving> {
        let registration = row.registration.as_ref().filter(|registration| !registration.ended)?;
        let before = before.and_then(|before| before.serving.as_ref());
        if let Some(same) = before.filter(|before| before.epoch == registration.epoch) {
            return Some(same.clone());
        }
        let base = Base::parse(&registration.endpoint).ok()?.versioned();
        let key = match &registration.api_key {
            None => None,
            Some(sealed) => match open(&self.0.sealing, &key_context(&row.id), sealed).and_then(|bytes| String::from_utf8(bytes).ok()) {
                Some(key) => Some(Secret::new(key)),
                None => {
                    log::error!("the key that {} wants cannot be opened: it has to register again", row.id);
                    return None;
                }
            },
        };
        let ca = self.0.authorities.clone().filter(|_| base.tls);
        let before_it = before.map(|before| &*before.provider);
        let mut provider = Provider::of_node(base, key, registration.max_concurrency, before_it);
        provider.ca = ca;
        let turn = before.map_or_else(|| self.0.turns.another(), |before| before.turn.clone());
        Some(Serving { epoch: registration.epoch, provider: provider.into(), state: Arc::default(), turn })
    }

    /// Seals a secret of a generation; `None` only if the cipher refuses.
    pub fn seal_secret(&self, id: &NodeId, generation: u32, secret: &Secret, random: &Random) -> Option<Vec<u8>> {
        seal(&self.0.sealing, &secret_context(id, generation), secret.expose().as_bytes(), random)
    }

    /// Seals what a node wants to be shown.
    pub fn seal_key(&self, id: &NodeId, key: &Secret, random: &Random) -> Option<Vec<u8>> {
        seal(&self.0.sealing, &key_context(id), key.expose().as_bytes(), random)
    }

    /// Whose signature it is. The error is a word of the metric: `key`, `skew` or `mac`. Whether its nonce is new, the store
    /// knows.
    pub fn identify(&self, signed: &Signed, now: Timestamp) -> Result<NodeId, &'static str> {
        let node = NodeId::parse(&signed.node).and_then(|id| self.get(&id)).ok_or("key")?;
        let secret = node.secret(signed.generation, now).ok_or("key")?;
        if !signed.is_timely(now.as_second()) {
            return Err("skew");
        }
        if signed.is_made_with(secret.expose().as_bytes()) { Ok(node.row.id.clone()) } else { Err("mac") }
    }

    /// Whether a secret of this generation is taken.
    pub fn takes(&self, id: &NodeId, generation: u32, now: Timestamp) -> bool {
        self.get(id).is_some_and(|node| node.secret(generation, now).is_some())
    }

    fn get(&self, id: &NodeId) -> Option<Arc<Node>> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn all(&self) -> Vec<Arc<Node>> {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A node's row.
    pub fn row(&self, id: &NodeId) -> Option<Arc<NodeRow>> {
        self.get(id).map(|node| node.row.clone())
    }

    /// A node as an operator is shown it.
    pub fn show(&self, id: &NodeId, now: Timestamp) -> Option<Shown> {
        self.get(id).map(|node| node.show(now))
    }

    /// Up to `limit` nodes, newest first, older than `after`.
    pub fn page(&self, after: Option<&NodeId>, limit: usize, now: Timestamp) -> Vec<Shown> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        let older = |id: &NodeId| after.is_none_or(|after| id < after);
        known.iter().rev().filter(|(id, _)| older(id)).take(limit).map(|(_, node)| node.show(now)).collect()
    }

    /// How many nodes stand how.
    pub fn count(&self, standing: Standing, now: Timestamp) -> usize {
        self.all().iter().filter(|node| node.standing(&node.life(), now) == standing).count()
    }

    /// Hosts and ports of the nodes that registered.
    pub fn places(&self) -> Vec<(String, u16)> {
        let all = self.all();
        let bases = all.iter().filter_map(|node| node.serving.as_ref()).map(|serving| &serving.provider.base);
        bases.map(|base| (base.host.clone(), base.port)).collect()
    }

    /// A node's epoch has begun: its lease runs, and reports count from anew.
    pub fn begin(&self, id: &NodeId, now: Timestamp) {
        let Some((node, epoch)) = self.get(id).and_then(|node| node.epoch().map(|epoch| (node, epoch))) else { return };
        let mut life = node.life();
        let events = std::mem::take(&mut life.events);
        *life = Life { epoch, lease_until: lease(now), leased: Some(Instant::now()), events, ..Life::default() };
    }

    /// Takes a report.
    pub fn report(&self, id: &NodeId, report: Report, now: Timestamp) -> Result<(), Untaken> {
        let node = self.get(id).ok_or(Untaken::Unregistered)?;
        let (epoch, serving) = node.epoch().zip(node.serving.as_ref()).ok_or(Untaken::Unregistered)?;
        let mut life = node.life();
        if life.epoch == epoch && life.seq.is_some_and(|last| report.seq <= last) {
            return Err(Untaken::Seq);
        }
        life.epoch = epoch;
        life.seq = Some(report.seq);
        life.lease_until = lease(now);
        life.leased = Some(Instant::now());
        life.status = report.status;
        life.reported = report.load;
        life.ours_then = serving.state.under_way();
        Ok(())
    }

    /// Of a node's events, those that it had not told before.
    pub fn new_events(&self, id: &NodeId, ids: &[&str]) -> Vec<bool> {
        let Some(node) = self.get(id) else { return vec![false; ids.len()] };
        let mut life = node.life();
        ids.iter().map(|id| life.events.is_new(id)).collect()
    }

    /// The nodes that may be given a request for the model, in the order to ask them: the least loaded first, of equal ones the
    /// one that was asked longest ago.
    pub fn ready(&self, model: &str, now: Timestamp) -> Vec<Ready> {
        let mut ready: Vec<Ready> = self.all().iter().filter(|node| node.serves(model)).filter_map(|node| node.ready(now)).collect();
        ready.sort_by_cached_key(|ready| (ready.load, ready.inflight, ready.turn.last(), ready.id.clone()));
        ready
    }

    /// Puts the state of every node that serves, and of the document's targets on nodes, beside that of the other targets. Nothing
    /// where the document has no such target.
    pub fn look(&self, routing: &Routing, now: Timestamp, health: &mut BTreeMap<String, TargetHealth>) {
        if !routing.targets().any(|target| target.is_on_nodes()) {
            return;
        }
        for ready in self.all().iter().filter_map(|node| node.ready(now)) {
            let told = ready.state.at_node(&ready.provider, now);
            let facts = NodeFacts { models: ready.models, load: ready.load };
            health.insert(ready.id.to_string(), TargetHealth { node: Some(facts), ..told });
        }
        on_nodes::fill(routing, health, now, true);
    }
}

impl Node {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epoch(&self) -> Option<u64> {
        self.row.registration.as_ref().filter(|registration| !registration.ended).map(|registration| registration.epoch)
    }

    fn secret(&self, generation: u32, now: Timestamp) -> Option<&Secret> {
        let taken = |end: &Option<Timestamp>| end.is_none_or(|end| now < end);
        self.secrets.iter().find(|(known, _, end)| *known == generation && taken(end)).map(|(_, secret, _)| secret)
    }

    fn standing(&self, life: &Life, now: Timestamp) -> Standing {
        let Some(registration) = &self.row.registration else { return Standing::Pending };
        if registration.ended {
            return Standing::Gone;
        }
        // By both clocks: one that was set back makes no lease longer, and a request that came before the report is none the worse.
        let lasts = life.leased.is_some_and(|begun| begun.elapsed() < bounds::NODE_LEASE);
        let held = lasts && life.epoch == registration.epoch && life.lease_until.is_some_and(|until| now < until);
        match (held && self.serving.is_some(), life.status) {
            (false, _) => Standing::Unreachable,
            (true, Status::Ready) => Standing::Ready,
            (true, Status::Draining | Status::Error) => Standing::Draining,
        }
    }

    fn serves(&self, model: &str) -> bool {
        self.row.registration.as_ref().is_some_and(|registration| registration.models.iter().any(|served| served.id == model))
    }

    /// As it may be given requests, if it may.
    fn ready(&self, now: Timestamp) -> Option<Ready> {
        let (registration, serving) = (self.row.registration.as_ref()?, self.serving.as_ref()?);
        let life = self.life();
        if self.standing(&life, now) != Standing::Ready {
            return None;
        }
        let inflight = serving.state.under_way();
        let reported = life.reported.running.saturating_add(life.reported.queued);
        // What it said, and what we have given it, or had back, since.
        let load = reported.saturating_add(inflight).saturating_sub(life.ours_then).max(inflight);
        Some(Ready {
            id: self.row.id.clone(),
            provider: serving.provider.clone(),
            state: serving.state.clone(),
            models: registration.models.iter().map(|model| model.id.clone()).collect(),
            load,
            inflight,
            turn: serving.turn.clone(),
        })
    }

    fn show(&self, now: Timestamp) -> Shown {
        let life = self.life();
        Shown {
            row: self.row.clone(),
            standing: self.standing(&life, now),
            load: life.reported,
            lease_until: life.lease_until.filter(|_| self.epoch() == Some(life.epoch)),
            inflight: self.serving.as_ref().map_or(0, |serving| serving.state.under_way()),
            breaker: self.serving.as_ref().map(|serving| serving.state.at_node(&serving.provider, now).breaker),
        }
    }
}

fn lease(now: Timestamp) -> Option<Timestamp> {
    now.checked_add(bounds::NODE_LEASE).ok()
}

/// A sealed secret opens for its node and generation only.
fn secret_context(id: &NodeId, generation: u32) -> Vec<u8> {
    format!("{id} secret {generation}").into_bytes()
}

fn key_context(id: &NodeId) -> Vec<u8> {
    format!("{id} key").into_bytes()
}

#[cfg(test)]
mod tests;
