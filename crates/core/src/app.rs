//! The state of one gateway, passed down as one handle; there are no statics. No code keeps a copy
//! of any part that a reload or a revocation would make stale.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::config::{Server, Variables};
use rerouter_access::auth::{Auth, FirstAdminLink, Passwords, Throttle};
use rerouter_access::limits::Limiter;
use rerouter_access::nodes::Nodes;
use rerouter_base::body_memory::BodyMemory;
use rerouter_base::bounds;
use rerouter_base::clock::Clock;
use rerouter_base::count_guard::CountGuard;
use rerouter_base::error::Error;
use rerouter_base::id::{Random, RequestId};
use rerouter_base::log::AccessLog;
use rerouter_base::metrics::Metrics;
use rerouter_base::repeats::Repeats;
use rerouter_base::turns::Turns;
use rerouter_base::unread::UnreadAnswers;
use rerouter_captures::archive::Archive;
use rerouter_captures::capture::queue::CaptureQueue;
use rerouter_captures::telemetry::Telemetry;
use rerouter_records::key::KeyWithSecret;
use rerouter_routing::health::HealthRegistry;
use rerouter_routing::{EstimateCorrection, Routing, TargetHealth};
use rerouter_store::{Authority, Store};

/// Most concurrent reroutes: they spend money and hold bodies in memory.
const REROUTES: usize = 16;
/// Most concurrent reroutes of one caller.
pub const REROUTES_SHARE: usize = 4;
/// Longest wait of a reroute for its turn: clients wait at least as long.
const REROUTE_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most large or compressed bodies that are read at once.
const READERS: usize = 2;
/// Most large or compressed bodies of one caller that are read at once.
const READERS_SHARE: usize = 1;
/// Longest wait of a large body for its turn to be read.
const READ_QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most concurrent shadows: each holds a body and an answer in memory.
pub const SHADOWS: usize = 32;
/// Most concurrent evaluations: each keeps a thread busy that requests could use.
pub(super) const EVALUATIONS: usize = 2;
/// Most concurrent evaluations of one caller.
const EVALUATIONS_SHARE: usize = 1;
/// Longest wait of an evaluation, or of a gated change, for its turn.
const EVALUATE_QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// Most gated changes that are evaluated at once. They have their own turns, so that evaluations
/// never delay a change of routing.
const GATES: usize = 1;
/// All answers that wait for their clients may take `limits.body_memory` divided by this.
const UNREAD_PART: usize = 8;
/// Smallest limit on the bytes of waiting answers: even clients that read are slow at times.
const UNREAD_MIN: usize = 32 << 20;
/// Most TLS handshakes that begin in a second: each takes up to two milliseconds of a core.
const HANDSHAKES: usize = 1_000;
/// Most TLS handshakes of one network that begin in a second.
const HANDSHAKES_SHARE: usize = 200;

/// The part of the state that a reload replaces, in one step. A request takes it once and keeps it
/// to its end.
pub struct Live {
    pub routing: Routing,
    /// The time from which this process runs this revision.
    pub since: Timestamp,
}

/// A routing document that this gateway received and refused.
pub(crate) struct DocumentRefusal {
    pub at: Timestamp,
    pub problems: Vec<String>,
    /// The revision of the document, if it is the live one of the store.
    pub revision: Option<String>,
}

/// The answer to a reroute, remembered for repeats of the call.
#[derive(Clone)]
pub struct RerouteAnswer {
    /// The id of the new capture, if there is one.
    pub replay: Option<RequestId>,
    pub body: Bytes,
}

pub struct App {
    /// The server document, with its defaults.
    pub server: Server,
    /// Accounts, keys, sessions, documents, and the index of captures.
    pub store: Store,
    /// Whether the tables in memory are valid: the lease of this gateway.
    pub authority: Authority,
    /// Keys, sessions and users in memory.
    pub auth: Auth,
    pub nodes: Nodes,
    /// Password hashing, on its own threads.
    pub passwords: Passwords,
    /// The offer of a link that makes the first admin without a credential.
    pub first_admin: FirstAdminLink,
    /// Throttles of logins and registrations, by network.
    pub throttle: Throttle,
    pub limits: Limiter,
    pub metrics: Arc<Metrics>,
    pub access_log: AccessLog,
    pub telemetry: Telemetry,
    pub clock: Clock,
    pub random: Random,
    /// Breakers, cooldowns and latencies of the targets.
    pub health: HealthRegistry,
    /// Corrections of prompt estimates, from recent errors.
    pub bias: EstimateCorrection,
    pub captures: CaptureQueue,
    pub archive: Archive,
    pub body_memory: BodyMemory,
    pub unread: UnreadAnswers,
    pub handshakes: Turns,
    /// Turns for reading large bodies.
    pub readers: Turns,
    pub reroutes: Turns,
    /// Creations of keys with an `Idempotency-Key`: the answer, and the revision of the tables with
    /// the key.
    pub creations: Arc<Repeats<(KeyWithSecret, u64)>>,
    /// Reroutes with an `Idempotency-Key`.
    pub named_reroutes: Arc<Repeats<RerouteAnswer>>,
    pub shadows: Arc<Semaphore>,
    pub evaluations: Turns,
    /// Turns for evaluating a change before it goes live.
    pub gates: Turns,
    /// The permit for an import: one at a time, because its bodies are large.
    pub imports: Semaphore,
    pub mock: Option<SocketAddr>,
    /// The environment, for `${NAME}` in documents.
    pub variables: Variables,
    /// The permit for a change of the routing document: one at a time.
    pub configuring: Semaphore,
    pub started: Timestamp,
    live: ArcSwap<Live>,
    refused: ArcSwapOption<DocumentRefusal>,
    under_way: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    draining: AtomicBool,
}

pub struct AppParts {
    pub server: Server,
    pub store: Store,
    pub auth: Auth,
    pub nodes: Nodes,
    pub access_log: AccessLog,
    pub telemetry: Telemetry,
    pub metrics: Arc<Metrics>,
    pub clock: Clock,
    pub random: Random,
    pub routing: Routing,
    pub captures: CaptureQueue,
    pub archive: Archive,
    pub mock: Option<SocketAddr>,
    pub variables: Variables,
}

impl App {
    pub fn new(parts: AppParts) -> Self {
        let memory = parts.server.limits.body_memory();
        parts.metrics.live_revision(parts.routing.revision());
        parts.metrics.process.agent_open.set(i64::from(!parts.auth.agent_is_enforced()));
        let since = parts.clock.now();
        let health = HealthRegistry::default();
        health.attach(&parts.routing);
        App {
            server: parts.server,
            authority: parts.store.authority(),
            store: parts.store,
            auth: parts.auth,
            nodes: parts.nodes,
            passwords: Passwords::new(parts.random.clone()),
            first_admin: FirstAdminLink::default(),
            throttle: Throttle::default(),
            limits: Limiter::default(),
            metrics: parts.metrics,
            access_log: parts.access_log,
            telemetry: parts.telemetry,
            clock: parts.clock,
            random: parts.random,
            health,
            bias: EstimateCorrection::default(),
            captures: parts.captures,
            archive: parts.archive,
            body_memory: BodyMemory::new(memory),
            unread: UnreadAnswers::new((memory / UNREAD_PART).max(UNREAD_MIN)),
            handshakes: Turns::new(HANDSHAKES, HANDSHAKES_SHARE, bounds::KEEP_ALIVE),
            readers: Turns::new(READERS, READERS_SHARE, READ_QUEUE_TIMEOUT),
            reroutes: Turns::new(REROUTES, REROUTES_SHARE, REROUTE_QUEUE_TIMEOUT),
            creations: Arc::default(),
            named_reroutes: Arc::default(),
            shadows: Arc::new(Semaphore::new(SHADOWS)),
            evaluations: Turns::new(EVALUATIONS, EVALUATIONS_SHARE, EVALUATE_QUEUE_TIMEOUT),
            gates: Turns::new(GATES, GATES, EVALUATE_QUEUE_TIMEOUT),
            imports: Semaphore::new(1),
            mock: parts.mock,
            variables: parts.variables,
            configuring: Semaphore::new(1),
            started: since,
            live: ArcSwap::from_pointee(Live { routing: parts.routing, since }),
            refused: ArcSwapOption::empty(),
            under_way: Arc::default(),
            connections: Arc::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// The health of the document's targets at the time `at`. Includes the nodes behind the targets
    /// that `name` may lead to or, without a name, behind all targets.
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

    /// A request takes it once.
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    pub fn revision(&self) -> String {
        self.live.load().routing.revision().to_string()
    }

    /// Makes a checked document live in one atomic step. Requests under way keep the old document.
    pub fn replace(&self, routing: Routing) {
        self.health.attach(&routing);
        self.metrics.live_revision(routing.revision());
        let targets: Vec<(String, String)> = routing
            .targets()
            .map(|target| (target.provider.name.to_string(), target.model.to_string()))
            .collect();
        let rules: Vec<(String, String)> = routing
            .recipes
            .iter()
            .flat_map(|recipe| {
                recipe.rules.iter().map(|rule| (recipe.name().to_string(), rule.name().to_string()))
            })
            .collect();
        self.bias.retain(&routing);
        let before = self.live.load();
        // The revision is unchanged: only the values of its variables are new.
        let since = if before.routing.revision() == routing.revision() {
            before.since
        } else {
            self.clock.now()
        };
        self.live.store(Arc::new(Live { routing, since }));
        self.refused.store(None);
        self.metrics.retain_targets(&targets);
        self.metrics.retain_rules(&rules);
    }

    /// Counts and remembers a document that did not become live. `revision`: the document's, if it
    /// is live in the store.
    pub(crate) fn refuse_document(&self, problems: Vec<String>, revision: Option<String>) {
        self.metrics.reload("failure");
        let refused = DocumentRefusal { at: self.clock.now(), problems, revision };
        self.refused.store(Some(Arc::new(refused)));
    }

    /// The last refused document, unless a document became live since.
    pub(crate) fn refused_document(&self) -> Option<Arc<DocumentRefusal>> {
        self.refused.load_full()
    }

    /// Counts a request under way. A drain waits until the count is zero.
    pub fn begin_request(&self) -> CountGuard {
        CountGuard::new(&self.under_way)
    }

    pub fn begin_connection(&self) -> CountGuard {
        CountGuard::new(&self.connections)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// The shared counter of requests under way, for background work that yields to requests.
    pub fn traffic(&self) -> Arc<AtomicUsize> {
        self.under_way.clone()
    }

    pub fn requests_under_way(&self) -> usize {
        self.under_way.load(Ordering::Acquire)
    }

    /// Makes the gateway report that it is not ready.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Whether another process has taken over: then this process accepts neither connections nor
    /// changes.
    pub fn is_handed_over(&self) -> bool {
        self.store.is_handed_over()
    }

    /// Brings the tables up to date after another process has taken over, because they do not
    /// follow its changes. Must be called before a credential is checked.
    pub async fn catch_up(&self) -> Result<(), Error> {
        match self.is_handed_over() {
            // Boxed, to keep the futures of requests small.
            true => Box::pin(self.store.catch_up()).await.map_err(Error::store_unavailable),
            false => Ok(()),
        }
    }

    /// The reason why the gateway must not serve, if there is one. With a shared store only the
    /// lease counts: without the database every gateway serves until its lease ends.
    pub async fn unready(&self) -> Option<&'static str> {
        match self.authority.left() {
            Some(_) if self.authority.is_valid() => None,
            Some(_) if self.authority.is_refused() => Some(
                "no lease: another gateway runs on the same data directory, or on a copy of it",
            ),
            Some(_) => Some("no lease: the database of keys cannot be reached"),
            None if self.store.healthy().await => None,
            None => Some("the store does not answer"),
        }
    }

    /// Whether the live document comes from a store that other gateways change too.
    pub(crate) fn follows_documents(&self) -> bool {
        self.server.routing.store && self.store.is_shared()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Whether connections close with their next answer, because this process ends.
    pub fn is_leaving(&self) -> bool {
        self.is_draining() || self.is_handed_over()
    }
}
