//! The state of one gateway: handles that are passed down, no statics. Whoever has an [`App`] has everything;
//! nobody keeps a part of it that a reload or a revocation would leave stale.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::auth::{Auth, Passwords, Throttle};
use crate::body_memory::BodyMemory;
use crate::bounds;
use crate::capture::index::Archive;
use crate::capture::queue::CaptureQueue;
use crate::clock::Clock;
use crate::config::{Server, Variables};
use crate::id::Random;
use crate::idempotency::IdempotencyCache;
use crate::limits::Limiter;
use crate::log::AccessLog;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::routing::health::HealthRegistry;
use crate::routing::{EstimateCorrection, Routing, TargetHealth};
use crate::secret::Secret;
use crate::store::Store;
use crate::turns::Turns;

/// What a reload replaces, all at once. A request takes it once and keeps it to its end.
pub struct Live {
    /// The routing document as run.
    pub routing: Routing,
    /// Since when this process runs this revision.
    pub since: Timestamp,
}

/// The answer that made a key. Its secret is in it, so it is nowhere but in memory.
#[derive(Clone)]
pub struct MadeKey {
    /// The key.
    pub id: crate::id::KeyId,
    /// The path of the key.
    pub location: http::HeaderValue,
    /// The body of the 201.
    pub body: Secret,
}

/// One gateway.
pub struct App {
    /// The server document as run.
    pub server: Server,
    /// Accounts, keys, sessions, documents, captures.
    pub store: Store,
    /// The tables that decide who a request is.
    pub auth: Auth,
    /// The machines that serve models themselves.
    pub nodes: Nodes,
    /// Password hashing, off the workers.
    pub passwords: Passwords,
    /// Logins and registrations by network.
    pub throttle: Throttle,
    /// What keys and users may use up.
    pub limits: Limiter,
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// One line a request.
    pub access_log: AccessLog,
    /// The time.
    pub clock: Clock,
    /// Ids, seeds, secrets.
    pub random: Random,
    /// What the live document's targets are doing.
    pub health: HealthRegistry,
    /// How far estimates of prompts are off of late.
    pub bias: EstimateCorrection,
    /// Where captures are offered.
    pub captures: CaptureQueue,
    /// Where captures are read.
    pub archive: Archive,
    /// What bodies take in memory.
    pub body_memory: BodyMemory,
    /// Turns at reading large bodies.
    pub readers: Turns,
    /// Turns at rerouting.
    pub reroutes: Turns,
    /// A permit for each shadow under way.
    pub shadows: Arc<Semaphore>,
    /// Turns at evaluating.
    pub evaluations: Turns,
    /// Turns at evaluating a change before it goes live.
    pub gates: Turns,
    /// A permit for the one import that may be under way: a body of it is large.
    pub imports: Semaphore,
    /// Where the in-process mock provider listens.
    pub mock: Option<SocketAddr>,
    /// The environment, for `${…}` in documents.
    pub variables: Variables,
    /// One change of the routing document at a time.
    pub configuring: Semaphore,
    /// Keys that were made with an `Idempotency-Key`, as they were answered.
    pub made_keys: IdempotencyCache<MadeKey>,
    live: ArcSwap<Live>,
    under_way: Arc<AtomicUsize>,
    draining: AtomicBool,
}

/// What [`App::new`] cannot make itself.
#[allow(missing_docs)] // as the fields of `App`
pub struct Parts {
    pub server: Server,
    pub store: Store,
    pub auth: Auth,
    pub nodes: Nodes,
    pub access_log: AccessLog,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    pub random: Random,
    pub routing: Routing,
    pub captures: CaptureQueue,
    pub archive: Archive,
    pub mock: Option<SocketAddr>,
    pub variables: Variables,
}

/// A request under way; a drain waits until the last of them is dropped.
pub struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl App {
    /// Puts a gateway together.
    pub fn new(parts: Parts) -> Self {
        let body_memory = BodyMemory::new(parts.server.limits.body_memory);
        parts.metrics.live_revision(parts.routing.revision());
        parts.metrics.agent_open(!parts.auth.agent_is_enforced());
        let since = parts.clock.now();
        let health = HealthRegistry::default();
        health.attach(&parts.routing);
        App {
            server: parts.server,
            store: parts.store,
            auth: parts.auth,
            nodes: parts.nodes,
            passwords: Passwords::new(parts.random.clone()),
            throttle: Throttle::default(),
            limits: Limiter::default(),
            metrics: parts.metrics,
            access_log: parts.access_log,
            clock: parts.clock,
            random: parts.random,
            health,
            bias: EstimateCorrection::default(),
            captures: parts.captures,
            archive: parts.archive,
            body_memory,
            readers: Turns::new(bounds::READERS, bounds::READERS_SHARE, bounds::READ_PATIENCE),
            reroutes: Turns::new(
                bounds::REROUTES,
                bounds::REROUTES_SHARE,
                bounds::REROUTE_PATIENCE,
            ),
            shadows: Arc::new(Semaphore::new(bounds::SHADOWS)),
            evaluations: Turns::new(
                bounds::EVALUATIONS,
                bounds::EVALUATIONS_SHARE,
                bounds::EVALUATE_PATIENCE,
            ),
            gates: Turns::new(bounds::GATES, bounds::GATES, bounds::EVALUATE_PATIENCE),
            imports: Semaphore::new(1),
            mock: parts.mock,
            variables: parts.variables,
            configuring: Semaphore::new(1),
            made_keys: IdempotencyCache::new("body"),
            live: ArcSwap::from_pointee(Live { routing: parts.routing, since }),
            under_way: Arc::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// What the document's targets are doing at `at`, and the nodes behind those to which a name may lead; without one, behind all.
    pub fn standing(
        &self,
        routing: &Routing,
        name: Option<&str>,
        at: Timestamp,
    ) -> BTreeMap<String, TargetHealth> {
        let mut standing = self.health.snapshot(routing, at);
        self.nodes.look(routing, name, at, &mut standing);
        standing
    }

    /// What is live now. Taken once a request.
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// The revision of the live routing document.
    pub fn revision(&self) -> String {
        self.live.load().routing.revision().to_string()
    }

    /// Makes a checked document live: one atomic step; requests under way keep theirs.
    pub fn replace(&self, routing: Routing) {
        self.health.attach(&routing);
        self.metrics.live_revision(routing.revision());
        let targets: Vec<(String, String)> = routing
            .targets()
            .map(|target| (target.provider.name.to_string(), target.model.to_string()))
            .collect();
        let rules: Vec<(String, String)> = routing
            .recipes()
            .iter()
            .flat_map(|recipe| {
                recipe
                    .rules()
                    .iter()
                    .map(|rule| (recipe.name().to_string(), rule.name().to_string()))
            })
            .collect();
        self.bias.retain(&routing);
        let before = self.live.load();
        // The same revision again: only values behind its `${…}` are new.
        let since = if before.routing.revision() == routing.revision() {
            before.since
        } else {
            self.clock.now()
        };
        self.live.store(Arc::new(Live { routing, since }));
        self.metrics.retain_targets(&targets);
        self.metrics.retain_rules(&rules);
    }

    /// Notes that a request has begun.
    pub fn begin_request(&self) -> Busy {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Busy(self.under_way.clone())
    }

    /// How many requests are under way, for those who look while they work.
    pub fn traffic(&self) -> Arc<AtomicUsize> {
        self.under_way.clone()
    }

    /// Requests under way.
    pub fn requests_under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }

    /// From now on the gateway says that it is not ready.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether it is leaving.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}
