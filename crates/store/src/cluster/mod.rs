//! Several gateways on one PostgreSQL database: a key that one of them revokes is invalid on all of
//! them when the call returns. Each gateway keeps all keys in memory, follows the log of changes,
//! and answers only while it holds a lease. A change is acknowledged once every other gateway has
//! applied it, or has no lease any more.
//!
//! A commit notifies all gateways. That one has applied a change is not notified, as it would wake
//! each for each of the others: who waits for a change looks for the rows that are behind.
//!
//! `lease.rs` has the clock, `follow.rs` the round that applies the log and renews the lease,
//! `barrier.rs` the wait of a change, and `reaper.rs` the search for dead gateways. The last two do
//! no input or output; `acknowledge.rs` does it for them. `peers.rs` and `change_log.rs` have the
//! statements, `state.rs` the state that the tasks share. No lease depends on a wall clock. With
//! each renewal a gateway learns the time of the database, by which all gateways decide what has
//! expired.

mod acknowledge;
mod barrier;
mod change_log;
mod follow;
mod lease;
mod peers;
mod reaper;
mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use self::acknowledge::{Acknowledgement, Acknowledger};
use self::follow::LogFollower;
use self::lease::Timing;
use self::state::ClusterState;
use super::backend::Backend;
use super::changes::Follower;
use super::data_dir::Predecessor;
use super::postgres::{Database, Listening, PostgresUrl};
use super::sql::NOW;
use super::{Result, StoreError};
use rerouter_base::clock::{Clock, since_boot};
use rerouter_base::id::Random;
use rerouter_base::metrics::Metrics;
use rerouter_base::secret::SecretBytes;

pub(super) use change_log::record;
pub use lease::Authority;
pub(crate) use peers::all as gateways;
pub use peers::{GatewayIdentity, GatewayRow};

/// Maximum number of changes that wait for other gateways at once.
const WAITING: usize = 1024;

pub struct Joining {
    pub identity: GatewayIdentity,
    pub metrics: Metrics,
    /// The server itself, if the store is reached through a pooler.
    pub url: Option<PostgresUrl>,
    pub lease: Duration,
    /// Whether it answers without a lease too.
    pub serves_stale: bool,
    /// Learns the time of the database.
    pub clock: Clock,
}

pub(super) struct Cluster {
    shared: Arc<ClusterState>,
    asked: mpsc::Sender<Acknowledgement>,
    /// The connection of the lease, on which nothing takes long.
    pub(super) prompt: Backend,
    stopping: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Cluster {
    /// Loads the tables, registers, and follows the log from then on. Returns once this gateway has
    /// its first lease. `documents` is the key that opens texts of documents.
    pub(super) async fn join(
        joining: Joining,
        url: PostgresUrl,
        documents: SecretBytes,
        tables: Arc<dyn Follower>,
        predecessor: Predecessor,
    ) -> Result<Self> {
        let Joining { mut identity, metrics, lease, serves_stale, clock, .. } = joining;
        let (changed, heard) = (Arc::default(), Arc::<AtomicBool>::default());
        let listening = Listening {
            wakes: vec![(change_log::CHANGED, Arc::clone(&changed))],
            heard: Arc::clone(&heard),
        };
        // A connection that hangs must cost no lease: a round has several statements.
        let database = Database::listening("store-lease", &url, lease / 4, listening)?;
        let asked = since_boot();
        let now = format!("SELECT {NOW}");
        let began = database.one(move |transaction| transaction.int(&now, &[])).await?.unwrap_or(0);
        clock.learn(began, asked);
        identity.process = format!("{began:020} {}", identity.process);
        let shared = Arc::new(ClusterState {
            identity,
            timing: Timing { lease },
            serves_stale,
            clock,
            clock_is_wrong: AtomicBool::new(false),
            authority: Authority::leased(serves_stale),
            documents,
            random: Random::System,
            metrics,
            applied: watch::Sender::new(0),
            changed,
            heard,
            others_applied: Arc::default(),
            twin: ArcSwapOption::empty(),
            is_alone: AtomicBool::new(false),
            predecessor,
        });
        let mut follower = LogFollower::new(Arc::clone(&shared), database.clone(), tables);
        follower.begin().await?;
        let (asked, changes) = mpsc::channel(WAITING);
        let acknowledger = Acknowledger::new(Arc::clone(&shared), database.clone(), changes);
        let (stopping, _) = watch::channel(false);
        let thread = Mutex::new(Some(run(follower, acknowledger, &stopping)?));
        let prompt = Backend::Postgres(database.behind());
        Ok(Cluster { shared, asked, prompt, stopping, thread })
    }

    pub(super) fn authority(&self) -> Authority {
        self.shared.authority.clone()
    }

    pub(super) fn lease(&self) -> Duration {
        self.shared.timing.lease
    }

    /// Waits until the tables of this gateway have a change that is committed.
    pub(super) async fn follow_up(&self, rev: u64) -> Result<()> {
        let shared = &self.shared;
        let mut applied = shared.applied.subscribe();
        if *applied.borrow() < rev {
            shared.changed.notify_one();
        }
        let followed = applied.wait_for(|applied| *applied >= rev);
        match timeout(2 * shared.timing.until_stopped(), followed).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(StoreError::unavailable(
                "the change is durable, but this gateway could not read it back; repeat the call",
            )),
        }
    }

    /// Waits until every other gateway has applied `rev`, or has no lease. Returns the names of
    /// gateways that answer without a lease and have not applied `rev`.
    pub(super) async fn acknowledge(&self, rev: u64) -> Result<Vec<String>> {
        let (reply, answer) = oneshot::channel();
        self.asked.try_send(Acknowledgement { rev, reply }).map_err(StoreError::unavailable)?;
        answer.await.map_err(StoreError::unavailable)?
    }

    pub(super) fn is_alone(&self) -> bool {
        self.shared.is_alone.load(Ordering::Acquire)
    }

    pub(super) fn process(&self) -> &str {
        &self.shared.identity.process
    }

    /// The names of this process and of its machine.
    pub(super) fn names(&self) -> (String, String) {
        let identity = &self.shared.identity;
        (identity.process.clone(), identity.name.clone())
    }

    /// Ends the lease and takes this gateway off the list, so that no change waits for it.
    pub(super) async fn leave(&self) -> Result<()> {
        self.stopping.send_replace(true);
        // This gateway must not register again after it has left.
        while self.is_running() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.shared.authority.end();
        let process = self.shared.identity.process.clone();
        self.prompt.write_one(move |transaction| peers::leave(transaction, &process)).await
    }

    fn is_running(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the tasks, and waits for the end.
    fn stop(&self) {
        self.stopping.send_replace(true);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ended = thread.join();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs the tasks on a separate thread: a lease must not end because requests keep all workers
/// busy.
fn run(
    follower: LogFollower,
    acknowledger: Acknowledger,
    stopping: &watch::Sender<bool>,
) -> Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StoreError::unavailable)?;
    let (first, second) = (stopping.subscribe(), stopping.subscribe());
    let tasks = async move { tokio::join!(follower.run(first), acknowledger.run(second)) };
    std::thread::Builder::new()
        .name("store-cluster".to_owned())
        .spawn(move || _ = runtime.block_on(tasks))
        .map_err(StoreError::unavailable)
}

#[cfg(test)]
mod tests;
