//! The nodes in memory: who they are, by their signatures, and what they are doing, by their reports. Enrolments and
//! registrations change only by following the store; leases, reported load and breakers are this process's own, and begin anew
//! with it: a node that is known to the store is unreachable until its next report.

mod life;
mod look;
mod nonces;
mod standing;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use jiff::Timestamp;

use self::life::Life;
pub use self::life::{Load, Report, Status, Untaken};
pub use self::nonces::NonceRefused;
pub use self::standing::Standing;
use self::turn::Turn;
use crate::auth::signature::Signed;
use crate::bounds;
use crate::id::{NodeId, Random};
use crate::routing::decide::state_against;
use crate::routing::health::{ProviderState, Shown as Doing, TargetState};
use crate::routing::inputs::{Abilities, Breaker, Demand, TargetHealth};
use crate::routing::provider::{Authorities, Base, Provider};
use crate::routing::recipe::Target;
use crate::secret::{Keyring, Purpose, Secret, SecretBytes, open, seal};
use crate::store::{Change, Committed, NodeModel, NodeRow};

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
    /// What it said of its models, as decisions are told of it.
    said: Arc<BTreeMap<String, Arc<Abilities>>>,
    /// Its secrets by generation, the older one with its end.
    secrets: Vec<(u32, Secret, Option<Timestamp>)>,
    /// How it is reached; none before it registers, and after it left.
    serving: Option<Serving>,
    /// The requests under way there, whichever of its registrations they were sent under: it has as many places as it says, also
    /// for those that it began before it left and came again.
    places: Arc<ProviderState>,
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
    row: Arc<NodeRow>,
    said: Arc<BTreeMap<String, Arc<Abilities>>>,
    load: u32,
    inflight: u32,
    turn: Turn,
}

impl Ready {
    fn models(&self) -> &[NodeModel] {
        self.row.registration.as_ref().map_or(&[], |registration| &registration.models)
    }

    /// Whether its model is one that can take such a request.
    pub fn takes(&self, model: &str, demand: &Demand<'_>) -> bool {
        let said = self.models().iter().find(|served| served.id == model);
        said.is_some_and(|said| {
            demand.against(said.context, said.capabilities.as_deref()).is_none()
        })
    }

    /// Whether nothing of its state speaks against asking it.
    pub fn may_be_asked(&self, now: Timestamp) -> bool {
        let told = self.state.at_node(&self.provider, now);
        let (inflight, max) = (self.inflight, self.provider.max_concurrency);
        state_against(&TargetHealth { inflight, max, ..told }, now).is_none()
    }

    /// The target as it is at this node, which is about to be asked.
    pub fn target(&self, planned: &Target) -> Target {
        self.turn.take();
        planned.at_node(self.provider.clone(), self.state.clone())
    }
}

impl Nodes {
    /// An empty table; secrets are sealed under a key from this keyring.
    pub fn new(keys: impl Into<Keyring>) -> Nodes {
        Nodes::with(keys.into().derive(Purpose::Nodes, b""), None)
    }

    /// An empty table of nodes for whose certificates these vouch, instead of those whom the system trusts.
    #[must_use]
    pub fn vouched_for_by(self, authorities: Option<Arc<Authorities>>) -> Nodes {
        Nodes::with(self.0.sealing.clone(), authorities)
    }

    fn with(sealing: SecretBytes, authorities: Option<Arc<Authorities>>) -> Nodes {
        let (known, turns) = (RwLock::default(), Turn::default());
        Nodes(Arc::new(Table { sealing, authorities, known, turns }))
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
                Change::NodeDeleted(id) => {
                    _ = self.0.known.write().unwrap_or_else(PoisonError::into_inner).remove(id)
                }
                _ => {}
            }
        }
    }

    fn put(&self, row: Arc<NodeRow>) {
        let before = self.get(&row.id);
        let unsealed = |sealed: &[u8], generation: u32| {
            open(&self.0.sealing, &secret_context(&row.id, generation), sealed)
        };
        let mut secrets = Vec::new();
        let previous = row.previous.as_ref().map(|previous| {
            (row.generation.saturating_sub(1), &previous.secret, Some(previous.expires_at))
        });
        for (generation, sealed, end) in
            [(row.generation, &row.secret, None)].into_iter().chain(previous)
        {
            match unsealed(sealed, generation).and_then(|bytes| String::from_utf8(bytes).ok()) {
                Some(secret) => secrets.push((generation, Secret::new(secret), end)),
                None => log::error!("the secret of {} cannot be opened: rotate it", row.id),
            }
        }
        let places = before.as_ref().map(|before| before.places.clone()).unwrap_or_default();
        let serving = self.serving(&row, before.as_deref(), &places);
        let said = look::said(&row);
        let life = before.as_ref().map(|before| before.life.clone()).unwrap_or_default();
        if let (Some(before), Some(epoch)) =
            (before.as_ref().and_then(|before| before.epoch()), epoch(&row))
        {
            // A registration is a report: the lease goes on until it has begun its own.
            let mut life = life.lock().unwrap_or_else(PoisonError::into_inner);
            if before < epoch && life.is_of(before) {
                life.carried = Some(epoch);
            }
        }
        let node =
            Arc::new(Node { row: row.clone(), said: said.into(), secrets, serving, places, life });
        self.0.known.write().unwrap_or_else(PoisonError::into_inner).insert(row.id.clone(), node);
    }

    /// How the node is reached by its registration. A new epoch has a new breaker; requests of those before still take its places.
    fn serving(
        &self,
        row: &NodeRow,
        before: Option<&Node>,
        places: &Arc<ProviderState>,
    ) -> Option<Serving> {
        let registration = row.registration.as_ref().filter(|registration| !registration.ended)?;
        let before = before.and_then(|before| before.serving.as_ref());
        if let Some(same) = before.filter(|before| before.epoch == registration.epoch) {
            return Some(same.clone());
        }
        let base = Base::parse(&registration.endpoint).ok()?.versioned();
        let key = match &registration.api_key {
            None => None,
            Some(sealed) => match open(&self.0.sealing, &key_context(&row.id), sealed)
                .and_then(|bytes| String::from_utf8(bytes).ok())
            {
                Some(key) => Some(Secret::new(key)),
                None => {
                    log::error!(
                        "the key that {} wants cannot be opened: it has to register again",
                        row.id
                    );
                    return None;
                }
            },
        };
        let mut provider =
            Provider::of_node(base, key, registration.max_concurrency, places.clone());
        provider.ca = self.0.authorities.clone().filter(|_| provider.base.tls);
        let turn = before.map_or_else(|| self.0.turns.another(), |before| before.turn.clone());
        Some(Serving {
            epoch: registration.epoch,
            provider: provider.into(),
            state: Arc::default(),
            turn,
        })
    }

    /// Seals a secret of a generation; `None` only if the cipher refuses.
    pub fn seal_secret(
        &self,
        id: &NodeId,
        generation: u32,
        secret: &Secret,
        random: &Random,
    ) -> Option<Vec<u8>> {
        seal(&self.0.sealing, &secret_context(id, generation), secret.expose().as_bytes(), random)
    }

    /// Seals what a node wants to be shown.
    pub fn seal_key(&self, id: &NodeId, key: &Secret, random: &Random) -> Option<Vec<u8>> {
        seal(&self.0.sealing, &key_context(id), key.expose().as_bytes(), random)
    }

    /// Whose signature it is. The error is a word of the metric: `key`, `skew` or `mac`. Its nonce is spent apart
    /// ([`Nodes::spend_nonce`]).
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
        known
            .iter()
            .rev()
            .filter(|(id, _)| older(id))
            .take(limit)
            .map(|(_, node)| node.show(now))
            .collect()
    }

    /// How many nodes stand how.
    pub fn count(&self, standing: Standing, now: Timestamp) -> usize {
        self.all().iter().filter(|node| node.standing(&node.life(), now) == standing).count()
    }

    /// Hosts and ports of the nodes that registered.
    pub fn places(&self) -> Vec<(String, u16)> {
        let all = self.all();
        let bases = all
            .iter()
            .filter_map(|node| node.serving.as_ref())
            .map(|serving| &serving.provider.base);
        bases.map(|base| (base.host.clone(), base.port)).collect()
    }

    /// A node's epoch has begun: its lease runs, and reports count from anew. Not where a later one has begun meanwhile.
    pub fn begin(&self, id: &NodeId, epoch: u64, now: Timestamp) {
        let Some(node) = self.get(id) else { return };
        let mut life = node.life();
        if life.epoch < epoch {
            let nonces = std::mem::take(&mut life.nonces);
            *life = Life {
                epoch,
                lease_until: lease(now),
                leased: Some(Instant::now()),
                nonces,
                ..Life::default()
            };
        }
    }

    /// Takes a report.
    pub fn report(&self, id: &NodeId, report: Report, now: Timestamp) -> Result<(), Untaken> {
        let node = self.get(id).ok_or(Untaken::Unregistered)?;
        let epoch = node.epoch().filter(|_| node.serving.is_some()).ok_or(Untaken::Unregistered)?;
        if node
            .row
            .registration
            .as_ref()
            .is_some_and(|registration| registration.is_after(report.epoch, report.signed_s))
        {
            return Err(Untaken::Epoch);
        }
        let mut life = node.life();
        // A registration may have come since the node was looked up.
        if life.epoch > epoch {
            return Err(Untaken::Epoch);
        }
        if life.epoch == epoch && life.seq.is_some_and(|last| report.seq <= last) {
            return Err(Untaken::Seq);
        }
        life.epoch = epoch;
        life.carried = None;
        life.seq = Some(report.seq);
        life.lease_until = lease(now);
        life.leased = Some(Instant::now());
        life.status = report.status;
        life.reported = report.load;
        life.ours_then = node.places.under_way();
        Ok(())
    }

    /// Refuses signatures of the present nodes that were made before `start`, the start of this
    /// process: the process before it may have taken their nonces without the store.
    pub fn refuse_signatures_before(&self, start: Timestamp) {
        for node in self.all() {
            node.life().nonces.refuse_before(start.as_second());
        }
    }

    /// Spends the nonce of a good signature in memory, which is enough for this process.
    pub fn spend_nonce(
        &self,
        id: &NodeId,
        nonce: &str,
        created: i64,
        now: Timestamp,
    ) -> Result<(), NonceRefused> {
        self.get(id).ok_or(NonceRefused::Spent)?.life().nonces.spend(nonce, created, now)
    }

    /// Whether a signature of this generation changes nothing in the store. The first use of a generation does: it ends
    /// the one before, durably.
    pub fn changes_nothing(&self, id: &NodeId, generation: u32) -> bool {
        self.get(id)
            .is_some_and(|node| node.row.previous.is_none() || node.row.generation != generation)
    }

    /// Whether a node that serves has not reported for as long as its lease lasts.
    pub fn has_lapsed(&self, id: &NodeId, now: Timestamp) -> bool {
        self.get(id).is_some_and(|node| node.standing(&node.life(), now) == Standing::Unreachable)
    }

    /// The nodes that may be given a request for the model, in the order to ask them: the least loaded first, of equal ones the
    /// one that was asked longest ago.
    pub fn ready(&self, model: &str, now: Timestamp) -> Vec<Ready> {
        let mut ready: Vec<Ready> = self
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

    /// The nodes that serve a model, ready or not, in the order of their ids, as operators are shown them: each with what it is
    /// doing for all of its models together.
    pub fn behind(&self, model: &str, now: Timestamp) -> Vec<(Shown, Doing)> {
        let serving = self.all().into_iter().filter(|node| node.serves(model));
        serving.filter_map(|node| Some((node.show(now), node.doing(now)?))).collect()
    }
}

impl Node {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doing(&self, now: Timestamp) -> Option<Doing> {
        let serving = self.serving.as_ref()?;
        Some(Doing {
            inflight: self.places.under_way(),
            ..serving.state.show(&serving.provider, now)
        })
    }

    fn epoch(&self) -> Option<u64> {
        epoch(&self.row)
    }

    fn secret(&self, generation: u32, now: Timestamp) -> Option<&Secret> {
        let taken = |end: &Option<Timestamp>| end.is_none_or(|end| now < end);
        self.secrets
            .iter()
            .find(|(known, _, end)| *known == generation && taken(end))
            .map(|(_, secret, _)| secret)
    }

    fn standing(&self, life: &Life, now: Timestamp) -> Standing {
        let Some(registration) = &self.row.registration else { return Standing::Pending };
        if registration.ended {
            return Standing::Gone;
        }
        // By both clocks: one that was set back makes no lease longer, and a request that came before the report is none the worse.
        let lasts = life.leased.is_some_and(|begun| begun.elapsed() < bounds::NODE_LEASE);
        let held = lasts
            && life.is_of(registration.epoch)
            && life.lease_until.is_some_and(|until| now < until);
        match (held && self.serving.is_some(), life.status) {
            (false, _) => Standing::Unreachable,
            (true, Status::Ready) => Standing::Ready,
            (true, Status::Draining | Status::Error) => Standing::Draining,
        }
    }

    fn serves(&self, model: &str) -> bool {
        self.row
            .registration
            .as_ref()
            .is_some_and(|registration| registration.models.iter().any(|served| served.id == model))
    }

    /// As it may be given requests, if it may.
    fn ready(&self, now: Timestamp) -> Option<Ready> {
        let serving = self.serving.as_ref()?;
        let life = self.life();
        if self.standing(&life, now) != Standing::Ready {
            return None;
        }
        let inflight = self.places.under_way();
        let reported = life.reported.running.saturating_add(life.reported.queued);
        // What it said, and what we have given it, or had back, since.
        let load = reported.saturating_add(inflight).saturating_sub(life.ours_then).max(inflight);
        Some(Ready {
            id: self.row.id.clone(),
            provider: serving.provider.clone(),
            state: serving.state.clone(),
            row: self.row.clone(),
            said: self.said.clone(),
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
            lease_until: life
                .lease_until
                .filter(|_| self.epoch().is_some_and(|epoch| life.is_of(epoch))),
            inflight: self.places.under_way(),
            breaker: self
                .serving
                .as_ref()
                .map(|serving| serving.state.at_node(&serving.provider, now).breaker),
        }
    }
}

/// The registration that is not ended.
fn epoch(row: &NodeRow) -> Option<u64> {
    row.registration
        .as_ref()
        .filter(|registration| !registration.ended)
        .map(|registration| registration.epoch)
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
