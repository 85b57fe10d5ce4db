//! The process: a gateway made from its documents, its services, and its shutdown.
//! [`Gateway::add_to`] adds a gateway to any Pingora server; [`run`] is `rerouter serve`.
//!
//! # In your own Pingora server
//!
//! ```text
//! let document = config::load_server(Some(Path::new("rerouter.yaml")), &variable)?;
//! let environment = Environment {
//!     admin_key: Some(Secret::new(admin)),
//!     variables: Arc::new(variable),
//!     ..Environment::default()
//! };
//! let gateway = runtime.block_on(Gateway::prepare(document, environment))?;
//! gateway.add_to(&mut server)?; // beside the services that `server` has already
//! server.run(RunArgs::default());
//! ```
//!
//! `examples/beside_your_own.rs` is a complete program. What the gateway uses of your process:
//!
//! - **Environment**: none is read; [`Environment`] holds it all. Without an `agent_key`, AGENT is
//!   open.
//! - **Listeners and threads** come from the server document, not from your [`ServerConf`]. Taken
//!   from that: the size of each connection pool, local addresses, the CA file, work stealing.
//!   [`Gateway::add_to`] binds the addresses, so Pingora's own upgrade does not hand them over.
//! - **Open files**: the limit of your process is not changed. Connections beyond it are refused,
//!   and a warning says so.
//! - **Logs**: diagnostics go to the `log` facade, and you choose the logger. Targets name the
//!   crate, as `rerouter_gateway::server`; each begins with `rerouter`. The access log goes to
//!   standard output or [`Environment::access_log`], unless `access_log: { format: off }`.
//! - **Signals**: your server decides when to stop. SIGHUP is received, to reload the documents.
//! - **Shutdown**: after a graceful signal Pingora waits for `grace_period_seconds`. Requests end
//!   and captures are written meanwhile; the rest is cut off.

mod announce;
mod backup;
mod boot;
mod boot_error;
mod checkpoints;
mod console_link;
mod descriptors;
mod drain;
mod first_key;
mod listeners;
mod master;
mod master_file;
mod metrics_pages;
mod prepared;
pub mod ready;
mod services;
mod systemd;
mod tls;
mod upgrade;

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use log::info;
use pingora::server::configuration::ServerConf;
use pingora::server::{RunArgs, Server};
use pingora::services::background::background_service;
use pingora_proxy::http_proxy;
use tokio::sync::Notify;

pub use backup::back_up;
pub use boot::Environment;
pub use boot_error::BootError;
pub use drain::CaughtSignals;
pub use master::{MASTER_KEY, MASTER_KEY_OLD};
pub use prepared::Gateway;

use self::drain::{DrainService, StopSignals};
use self::listeners::{ListeningService, Sockets};
use self::systemd::SystemdService;
use self::upgrade::Offering;
use crate::{CallStages, ConnectionAcceptor, ConnectionGate, ConnectionLimits, Edge, TlsAcceptors};
use rerouter_core::config;
use rerouter_routing::ATTEMPTS_MAX;
use rerouter_routing::Inputs;
use rerouter_store::Faults;

/// Without `limits.connections_per_address`, one address may have `limits.connections` divided by
/// this.
pub const CONNECTIONS_SHARE: usize = 4;
/// Most connections of the metrics listener: enough for some collectors and probes. The listener
/// has its own reserve.
const METRICS_CONNECTIONS: usize = 16;

impl Gateway {
    /// Opens the store and builds a gateway from checked documents.
    pub async fn prepare(
        server: config::Server,
        environment: Environment,
    ) -> Result<Self, BootError> {
        boot::prepare(server, environment, Faults::default(), false).await
    }

    /// Prepares a gateway that takes over from the one that uses the data directory. Only for
    /// [`run`].
    pub async fn prepare_upgrade(
        server: config::Server,
        environment: Environment,
    ) -> Result<Self, BootError> {
        // The sockets of the running one come as descriptors.
        descriptors::raise();
        boot::prepare(server, environment, Faults::default(), true).await
    }

    /// For tests: [`Gateway::prepare`] with injected failures.
    pub async fn prepare_failing(
        server: config::Server,
        environment: Environment,
        faults: Faults,
    ) -> Result<Self, BootError> {
        boot::prepare(server, environment, faults, false).await
    }

    /// For benches: a data plane call whose stages can be run one by one.
    #[doc(hidden)]
    pub fn call_stages(&self, inputs: &Inputs, body: Bytes) -> Option<CallStages> {
        CallStages::new(&self.app, inputs, body)
    }

    /// Adds listeners and background services to a Pingora server. Binds the listeners.
    pub fn add_to(self, server: &mut Server) -> Result<(), BootError> {
        let sockets = self.sockets(Vec::new())?;
        listeners::listen(&sockets.again()?)?;
        self.add_with(server, sockets)
    }

    fn sockets(&self, inherited: Vec<(SocketAddr, TcpListener)>) -> Result<Sockets, BootError> {
        let server = &self.app.server;
        let each = acceptors(server);
        let listeners = server.listeners.iter().map(|listener| (listener.address, each));
        Sockets::open(listeners.chain([(server.metrics.address, 1)]), inherited)
    }

    fn add_with(self, server: &mut Server, mut sockets: Sockets) -> Result<(), BootError> {
        let hooks = crate::ProxyHooks::new(self.app.clone());
        let background = crate::BackgroundWork::of(&hooks, &proxy_conf(&server.configuration, 1));
        let identities = self.add_listeners(server, &hooks, &mut sockets)?;
        self.add_metrics_listener(server, &mut sockets);
        let Gateway { app, writer, mock, takeover: _ } = self;
        services::add(
            server,
            &app,
            services::ServiceParts { writer, mock, background, identities },
        );
        Ok(())
    }

    /// Returns the certificates that have to be reloaded.
    fn add_listeners(
        &self,
        server: &mut Server,
        hooks: &crate::ProxyHooks,
        sockets: &mut Sockets,
    ) -> Result<Vec<tls::TlsIdentity>, BootError> {
        let (mut identities, mut certificates) = (Vec::new(), TlsAcceptors::new());
        for listener in &self.app.server.listeners {
            if let Some(files) = &listener.tls {
                let metrics = self.app.metrics.clone();
                let identity = tls::TlsIdentity::load(listener.address, files, metrics);
                let identity = identity.map_err(BootError)?;
                certificates.insert(listener.address, identity.acceptor().map_err(BootError)?);
                identities.push(identity);
            }
        }
        let limits = &self.app.server.limits;
        let acceptors = acceptors(&self.app.server);
        let most = descriptors::fit(limits.connections, acceptors, self.app.server.listeners.len());
        let share = limits.connections_per_address.unwrap_or(most.div_ceil(CONNECTIONS_SHARE));
        let room = ConnectionLimits { most, share, limit: "limits.connections" };
        let gate = Arc::new(ConnectionGate::new(self.app.clone(), room, certificates));
        let threads = threads(&self.app.server) / acceptors;
        let conf = Arc::new(proxy_conf(&server.configuration, threads));
        for part in 0..acceptors {
            let edge = Edge::new(self.app.clone(), Arc::new(http_proxy(&conf, hooks.clone())));
            let acceptor = ConnectionAcceptor::new(gate.clone(), edge);
            let mut service = ListeningService::new("rerouter", acceptor, Some(threads));
            for listener in &self.app.server.listeners {
                let own = sockets.take(listener.address, part, acceptors);
                service.listen(own, listener.tls.is_some());
            }
            server.add_service(service);
        }
        Ok(identities)
    }

    fn add_metrics_listener(&self, server: &mut Server, sockets: &mut Sockets) {
        let most = METRICS_CONNECTIONS;
        let room = ConnectionLimits { most, share: most, limit: "those of the metrics listener" };
        let gate = Arc::new(ConnectionGate::new(self.app.clone(), room, TlsAcceptors::new()));
        let pages = metrics_pages::MetricsPages::new(self.app.clone());
        let mut service =
            ListeningService::new("metrics", ConnectionAcceptor::new(gate, pages), None);
        service.listen(sockets.take(self.app.server.metrics.address, 0, 1), false);
        server.add_service(service);
    }
}

/// The settings of outgoing connections: those of the surrounding server, with our number of
/// threads.
fn proxy_conf(server: &ServerConf, threads: usize) -> ServerConf {
    ServerConf {
        threads,
        // Each attempt may be repeated once on a new connection if its pooled connection is dead.
        max_retries: ATTEMPTS_MAX * 2,
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

/// How many services accept connections.
fn acceptors(server: &config::Server) -> usize {
    if server.isolate_threads { threads(server) } else { 1 }
}

/// Runs the gateway until it is told to stop; this is all of `rerouter serve`. `next` is the
/// program that SIGQUIT starts, with its arguments. `caught` has the signals since the start of the
/// process. If `notifies_systemd`, systemd is notified.
pub fn run(
    mut gateway: Gateway,
    next: (PathBuf, Vec<OsString>),
    mut caught: CaughtSignals,
    notifies_systemd: bool,
) -> Result<(), BootError> {
    let app = gateway.app.clone();
    descriptors::raise();
    let mut takeover = gateway.takeover.take();
    let inherited = takeover.as_mut().map(|it| std::mem::take(&mut it.sockets)).unwrap_or_default();
    // Bound here, because Pingora would panic without a reason if it cannot bind.
    let bound = gateway.sockets(inherited)?;
    let sockets = bound.again()?;
    let conf = ServerConf {
        threads: threads(&app.server),
        // A maximum: the drain service exits as soon as no request is under way.
        grace_period_seconds: Some(3600),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    gateway.add_with(&mut server, bound)?;
    server.add_service(background_service("drain", DrainService { app: app.clone() }));
    if notifies_systemd {
        server.add_service(background_service("systemd", SystemdService(app.clone())));
    }
    if let Some(takeover) = &takeover {
        takeover.begin(&app)?;
    }
    // Before the log says that this process serves: the next upgrade may follow at once.
    let (quit, socket) = (caught.quit.take(), upgrade::listen(app.store.dir()));
    listeners::listen(&sockets)?;
    announce::announce(&app);
    if takeover.is_some() {
        info!("took over from the running gateway");
    }
    let handed_over = Arc::new(Notify::new());
    let caught = Mutex::new(Some(caught));
    let stop = StopSignals { caught, handed_over: Arc::clone(&handed_over) };
    services::add_upgrade(
        &mut server,
        Offering { app, sockets, quit, socket, before: takeover, next, handed_over },
    );
    server.run(RunArgs { shutdown_signal: Box::new(stop) });
    Ok(())
}
