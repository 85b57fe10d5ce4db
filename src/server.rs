//! The process: a gateway from its documents, its services for any Pingora server, and how it leaves.
//! [`Gateway::add_to`] is all that another server needs; [`run`] is what our own binary does with it.
//!
//! # In a Pingora server of yours
//!
//! ```ignore
//! let document = config::load_server(Some(Path::new("rerouter.yaml")), &variable)?;
//! let environment = Environment { admin_key: Some(Secret::new(admin)), variables: Arc::new(variable), ..Environment::default() };
//! let gateway = runtime.block_on(Gateway::prepare(document, environment))?;
//! gateway.add_to(&mut server)?; // beside whatever `server` has already
//! server.run(RunArgs::default());
//! ```
//!
//! `examples/beside_your_own.rs` is the whole of it. What is yours, and what the gateway brings:
//!
//! - **Environment**: nothing is read from the process; [`Environment`] says it all. Without an `agent_key` AGENT is open.
//! - **Listeners and threads** are those of the server document, not of your [`ServerConf`]; of that are taken: size of the
//!   connection pool, local addresses, CA file, work stealing. Pingora binds in `run`, and panics there when an address is taken.
//! - **Open files**: the limit of your process stays as it is. Connections that do not fit into it are not taken, and the log says so.
//! - **Logs**: diagnostics go to the `log` facade, and you choose the logger. The access log is on standard output, or where
//!   [`Environment::access_log`] writes, unless the document says `access_log: { format: off }`.
//! - **Signals**: leaving is your server's affair. SIGHUP is taken, to reload the documents.
//! - **Leaving**: after a graceful signal Pingora sleeps through `grace_period_seconds`; requests under way end and captures are
//!   written meanwhile, and what is left at its end is cut off. [`drained`] tells when nothing is, for a server that goes sooner.

mod admin;
mod announce;
mod backup;
mod boot;
mod checkpoints;
mod descriptors;
mod master;
mod master_file;
pub mod ready;
mod tls;

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use jiff::Timestamp;
use log::{info, warn};
use pingora::listeners::{L4BufferSettings, ListenerConfig};
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use pingora::services::background::{BackgroundService, background_service};
use pingora::services::listening::Service;
use pingora_proxy::http_proxy;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

pub use backup::{BackedUp, back_up};
pub use boot::{BootError, Environment};
pub use master::{MASTER_KEY, MASTER_KEY_OLD};

use crate::app::App;
use crate::bounds;
use crate::capture::queue::CaptureWriter;
use crate::config;
use crate::gateway::{Door, Edge, Identities, Room, Upkeep};
use crate::protocol::mock;
use crate::reload::{self, Watcher};
use crate::store::{Faults, PanicPoint};
use checkpoints::Checkpointing;

/// A gateway that is ready to serve, but not bound to its addresses yet.
pub struct Gateway {
    app: Arc<App>,
    writer: CaptureWriter,
    mock: TcpListener,
}

impl Gateway {
    /// Opens the store and makes everything from the two documents, which have been checked.
    pub async fn prepare(
        server: config::Server,
        environment: Environment,
    ) -> Result<Self, BootError> {
        boot::prepare(server, environment, Faults::default()).await
    }

    /// The same, failing as `faults` says: for tests.
    pub async fn prepare_failing(
        server: config::Server,
        environment: Environment,
        faults: Faults,
    ) -> Result<Self, BootError> {
        boot::prepare(server, environment, faults).await
    }

    /// The state behind it.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Adds our services to a Pingora server: listeners, capture writer, reload, mock provider, metrics.
    pub fn add_to(self, server: &mut Server) -> Result<(), BootError> {
        let hooks = crate::gateway::Gateway::new(self.app.clone());
        let upkeep = hooks.upkeep();
        let proxy = Arc::new(http_proxy(
            &Arc::new(proxy_conf(&server.configuration, threads(&self.app.server))),
            hooks,
        ));
        let edge = Edge::new(self.app.clone(), proxy);
        let reroutes = edge.sweeper();
        let (mut identities, mut acceptors) = (Vec::new(), Identities::new());
        for listener in &self.app.server.listeners {
            if let Some(files) = &listener.tls {
                let identity = tls::Identity::load(files).map_err(BootError)?;
                acceptors.insert(listener.address, identity.acceptor().map_err(BootError)?);
                identities.push(identity);
            }
        }
        let limits = &self.app.server.limits;
        let most = descriptors::fit(limits.connections);
        let share =
            limits.connections_per_address.unwrap_or(most.div_ceil(bounds::CONNECTIONS_SHARE));
        let room = Room { most, share, limit: "limits.connections" };
        let mut service = Service::new(
            "rerouter".to_string(),
            Door::new(self.app.clone(), edge, room, acceptors),
        );
        service.threads = Some(threads(&self.app.server));
        for listener in &self.app.server.listeners {
            service.add_listener(endpoint(listener.address, listener.tls.is_some()));
        }
        server.add_service(service);
        let most = bounds::METRICS_CONNECTIONS;
        let room = Room { most, share: most, limit: "those of the metrics listener" };
        let admin = admin::Admin::new(self.app.clone());
        let mut metrics = Service::new(
            "metrics".to_string(),
            Door::new(self.app.clone(), admin, room, Identities::new()),
        );
        metrics.add_listener(endpoint(self.app.server.metrics, false));
        server.add_service(metrics);
        server.add_service(background_service(
            "capture writer",
            Writing { writer: Mutex::new(Some(self.writer)), app: self.app.clone() },
        ));
        server.add_service(background_service(
            "reload",
            Reloading { app: self.app.clone(), identities },
        ));
        server.add_service(background_service("providers", Keeping { upkeep }));
        server.add_service(background_service("mock provider", Mocking { listener: self.mock }));
        server.add_service(background_service("books", Bookkeeping { app: self.app.clone() }));
        server.add_service(background_service("captures", Tending { app: self.app.clone() }));
        server.add_service(background_service("checkpoints", Checkpointing::of(&self.app)));
        server.add_service(background_service("sessions", Sweeping { app: self.app, reroutes }));
        Ok(())
    }
}

/// Where Pingora accepts. Its buffer of 64 KiB before each connection is nothing to those who say nothing: what reads from a
/// connection without TLS has one of its own, and with TLS a record is enough.
fn endpoint(address: SocketAddr, tls: bool) -> ListenerConfig {
    let ahead = if tls { bounds::TLS_READ_AHEAD } else { 0 };
    ListenerConfig::tcp(address.to_string()).l4_buffer(L4BufferSettings::default().read(ahead))
}

/// How our proxy connects: as the server it is in, with as many threads as we have.
fn proxy_conf(server: &ServerConf, threads: usize) -> ServerConf {
    ServerConf {
        threads,
        // Each attempt may be repeated once on a fresh connection when a pooled one turns out dead.
        max_retries: bounds::ATTEMPTS_MAX * 2,
        upstream_keepalive_pool_size: server.upstream_keepalive_pool_size,
        client_bind_to_ipv4: server.client_bind_to_ipv4.clone(),
        client_bind_to_ipv6: server.client_bind_to_ipv6.clone(),
        ca_file: server.ca_file.clone(),
        ..ServerConf::default()
    }
}

fn threads(server: &config::Server) -> usize {
    match server.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        threads => threads,
    }
}

/// Runs the gateway until it is told to leave; the binary's `serve`.
pub fn run(gateway: Gateway) -> Result<(), BootError> {
    let app = gateway.app.clone();
    descriptors::raise();
    for address in
        app.server.listeners.iter().map(|listener| listener.address).chain([app.server.metrics])
    {
        // Pingora panics when an address is taken; this says which and why.
        ready::bindable(address).map_err(|(_, why)| BootError(why))?;
    }
    let conf = ServerConf {
        threads: threads(&app.server),
        // The drain service leaves as soon as nothing is under way; this is only the longest it may take.
        grace_period_seconds: Some(3600),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    gateway.add_to(&mut server)?;
    server.add_service(background_service("drain", Draining { app: app.clone() }));
    announce::announce(&app);
    server.run(RunArgs { shutdown_signal: Box::new(Leaving) });
    Ok(())
}

/// From now on the gateway says that it is not ready; resolves when no request is under way, and every capture and what was
/// spent is durable, and what was ended; of that the log names what the store does not take. Keys with a budget are refused from then on.
/// It refuses nobody: tell the server to leave, so that no new connection comes, and bound the wait.
pub async fn drained(app: &App) {
    app.drain();
    while app.requests_under_way() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let captured = async {
        app.captures.flush().await;
        if let Err(error) = app.archive.close().await {
            warn!(
                "captures could not be closed, and are looked through at the next start: {error}"
            );
        }
    };
    let (unsaved, ()) = tokio::join!(app.auth.flush_pending(bounds::LEAVING_TRIES), captured);
    for id in unsaved {
        warn!(
            "the end of {id} could not be written: the next start does not know of it, and it has to be ended again"
        );
    }
    if let Err(error) = app.auth.sweep_uses(&app.store).await {
        warn!("when keys were last used could not be written: {error}");
    }
    if let Err(error) = app.limits.close(&app.store).await {
        warn!(
            "spend and usage could not be written: what was granted of budgets counts as spent ({error})"
        );
    }
    // A store that hangs has hung before.
    let _late = tokio::time::timeout(bounds::LEAVING_TRIES, checkpoints::make(app)).await;
}

/// Its number on Linux and macOS, but for MIPS; it comes with a write beyond the limit on the size of files (setrlimit(2)).
const SIGXFSZ: i32 = 25;

/// SIGTERM and SIGINT begin a drain; a second one ends it ([`Draining`]).
struct Leaving;

#[async_trait]
impl ShutdownSignalWatch for Leaving {
    async fn recv(&self) -> ShutdownSignal {
        // A file that may not grow is an error of its write then, as a full disk is, and not the end of the process.
        let _ignored = signal(SignalKind::from_raw(SIGXFSZ));
        next_signal_to_leave().await;
        ShutdownSignal::GracefulTerminate
    }
}

async fn next_signal_to_leave() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        warn!("signals cannot be received; only SIGKILL ends this process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Leaves when the last request is answered and captured. Pingora's own way is to sleep through its grace period.
struct Draining {
    app: Arc<App>,
}

#[async_trait]
impl BackgroundService for Draining {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        if shutdown.changed().await.is_err() {
            return;
        }
        info!("draining: {} request(s) under way", self.app.requests_under_way());
        tokio::select! {
            () = drained(&self.app) => info!("drained"),
            () = next_signal_to_leave() => warn!("told to leave at once: {} request(s) cut off", self.app.requests_under_way()),
        }
        self.app.access_log.flush(Duration::from_secs(1));
        std::process::exit(0);
    }
}

/// Writes captures for as long as there are any.
struct Writing {
    writer: Mutex<Option<CaptureWriter>>,
    app: Arc<App>,
}

#[async_trait]
impl BackgroundService for Writing {
    async fn start(&self, _: ShutdownWatch) {
        // Not ended by the shutdown: requests that are being drained are captured too.
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            writer.run(self.app.archive.clone()).await;
        }
    }
}

/// Writes down usage, and the grants of budgets before they are spent.
struct Bookkeeping {
    app: Arc<App>,
}

#[async_trait]
impl BackgroundService for Bookkeeping {
    async fn start(&self, _: ShutdownWatch) {
        // Not ended by the shutdown: requests that are being drained are counted too.
        let mut failing = false;
        loop {
            self.app.limits.due().await;
            let write = async {
                self.app.store.faults().pass(PanicPoint::Books);
                self.app.limits.write(&self.app.store, self.app.clock.now()).await
            };
            match round(&self.app, write).await {
                Some(Ok(())) => failing = false,
                failed => {
                    if let Some(Err(error)) = failed.filter(|_| !failing) {
                        warn!(
                            "spend and usage could not be written, and are kept until they can: {error}"
                        );
                    }
                    failing = true;
                    // Every request that waits for a grant would wake us at once.
                    tokio::time::sleep(bounds::BOOKS_INTERVAL).await;
                }
            }
        }
    }
}

/// Follows the routing document's file, the certificates, and SIGHUP.
struct Reloading {
    app: Arc<App>,
    identities: Vec<tls::Identity>,
}

#[async_trait]
impl BackgroundService for Reloading {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut watcher = Watcher::new(self.app.clone());
        let Ok(mut hangup) = signal(SignalKind::hangup()) else {
            warn!("SIGHUP cannot be received; no document is reloaded");
            return;
        };
        let mut tick = tokio::time::interval(reload::INTERVAL);
        // Looks are to be apart from each other, also after one that took long.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = hangup.recv() => {
                    watcher.reload().await;
                    self.identities.iter().for_each(tls::Identity::reload);
                }
                _ = tick.tick() => {
                    watcher.look().await;
                    self.identities.iter().for_each(tls::Identity::look);
                }
            }
        }
    }
}

/// Keeps providers' names and health.
struct Keeping {
    upkeep: Upkeep,
}

#[async_trait]
impl BackgroundService for Keeping {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.upkeep.run() => {}
        }
    }
}

/// Serves the in-process mock provider.
struct Mocking {
    listener: TcpListener,
}

#[async_trait]
impl BackgroundService for Mocking {
    async fn start(&self, _: ShutdownWatch) {
        match self.listener.try_clone() {
            // Not ended by the shutdown: requests that are being drained may still need it.
            Ok(listener) => mock::serve(listener, std::future::pending())
                .await
                .unwrap_or_else(|error| warn!("the mock provider has stopped: {error}")),
            Err(error) => warn!("the mock provider cannot serve: {error}"),
        }
    }
}

/// Ends what is over: sessions, what was counted long ago, and answers that are not told again.
struct Sweeping {
    app: Arc<App>,
    /// Forgets old answers of reroutes.
    reroutes: Box<dyn Fn(Timestamp) + Send + Sync>,
}

#[async_trait]
impl BackgroundService for Sweeping {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let mut tick = tokio::time::interval(bounds::SWEEP_INTERVAL);
        loop {
            tokio::select! {
                _ = shutdown.changed() => return,
                _ = tick.tick() => {
                    round(&self.app, self.sweep()).await;
                }
            }
        }
    }
}

impl Sweeping {
    async fn sweep(&self) {
        self.app.made_keys.sweep(self.app.clock.now());
        (self.reroutes)(self.app.clock.now());
        if let Err(error) =
            self.app.auth.sweep_sessions(&self.app.store, self.app.clock.now()).await
        {
            warn!("sessions could not be swept: {error}");
        }
        if let Err(error) = self.app.auth.sweep_uses(&self.app.store).await {
            warn!(
                "when keys were last used could not be written, and is kept until it can: {error}"
            );
        }
        sweep_audit(&self.app).await;
        self.app.limits.sweep(&self.app.auth, self.app.clock.now());
        if let Err(error) = self.app.limits.trim(&self.app.store, self.app.clock.now()).await {
            warn!("old usage could not be deleted: {error}");
        }
    }
}

/// One round of work that goes on for as long as the process does: a mistake of ours in it ends the round, and not those to come.
async fn round<T>(app: &App, work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    if done.is_err() {
        app.metrics.panic();
    }
    done.ok()
}

/// Keeps the audit for as long and as large as the server document says.
async fn sweep_audit(app: &App) {
    let kept = &app.server.audit;
    let before = app.clock.now().checked_sub(kept.age).unwrap_or(Timestamp::MIN);
    match app.store.trim_audit(before, kept.rows).await {
        Ok(0) => {}
        Ok(left) => info!("{left} rows of the audit were beyond its retention, and have left"),
        Err(error) => {
            warn!("rows of the audit that are beyond its retention could not be deleted: {error}")
        }
    }
}

/// Completes the index of captures, and keeps captures for as long and as many as the server document says.
struct Tending {
    app: Arc<App>,
}

#[async_trait]
impl BackgroundService for Tending {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let complete = self.app.archive.catch_up_at_last();
        // Also while the index is made again, or cannot be: the disk has its end.
        let tend = async {
            let mut tick = tokio::time::interval(bounds::SWEEP_INTERVAL);
            loop {
                tick.tick().await;
                let (retention, now) = (&self.app.server.capture.retention, self.app.clock.now());
                let before =
                    now.checked_sub(retention.age).map_or(i64::MIN, |at| at.as_microsecond());
                if let Some(Err(error)) =
                    round(&self.app, self.app.archive.tend(now, before, retention.size)).await
                {
                    warn!(
                        "captures beyond their retention, or deleted ones, could not be taken off the disk: {error}"
                    );
                }
            }
        };
        tokio::select! {
            _ = shutdown.changed() => {}
            _ = async { tokio::join!(complete, tend) } => {}
        }
    }
}
