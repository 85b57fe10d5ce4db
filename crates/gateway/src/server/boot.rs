//! Builds a gateway from documents and environment: master key, store, tables, routing document.

use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use jiff::Timestamp;
use log::{info, warn};

use super::master::{MasterKeys, Unlocked};
use super::{BootError, Gateway, tls, upgrade};
use crate::mock::Mock;
use rerouter_access::auth::Auth;
use rerouter_access::nodes::Nodes;
use rerouter_base::blocking::blocking;
use rerouter_base::clock::Clock;
use rerouter_base::id::{GatewayId, Random};
use rerouter_base::log::AccessLog;
use rerouter_base::metrics::Metrics;
use rerouter_base::secret::{Keyring, Purpose, Secret};
use rerouter_captures::archive::Archive;
use rerouter_captures::capture::queue::CaptureQueue;
use rerouter_captures::telemetry::Telemetry;
use rerouter_core::app::{App, AppParts};
use rerouter_core::config::{self, Egress, Server, Variables};
use rerouter_core::reload::{self, DocumentFollower};
use rerouter_routing::Routing;
use rerouter_store::{
    DataDir, Faults, GatewayIdentity, Joining, OnLeaseLost, Opening, Role, Store, StoreError,
    StoreSettings, StoreUrl, UserRow, check_takeover,
};

/// The inputs that a gateway takes from the environment of its process.
pub struct Environment {
    /// `ADMIN_API_KEY`; empty counts as unset.
    pub admin_key: Option<Secret>,
    /// `AGENT_CLOUD_API_KEY`; empty counts as unset.
    pub agent_key: Option<Secret>,
    /// `REROUTER_MASTER_KEY`: 32 bytes in base64.
    pub master_key: Option<Secret>,
    /// `REROUTER_MASTER_KEY_OLD`: the previous master key, for the start that replaces it by
    /// `master_key`.
    pub master_key_old: Option<Secret>,
    /// Looks up other variables, for `${…}` in documents.
    pub variables: Variables,
    /// The clock, which tests may set.
    pub clock: Clock,
    /// Where access lines go, unless the document turns them off. Default: standard output.
    pub access_log: Option<AccessLog>,
}

impl Default for Environment {
    fn default() -> Self {
        let variables: Variables = Arc::new(|_| None);
        Environment {
            admin_key: None,
            agent_key: None,
            master_key: None,
            master_key_old: None,
            variables,
            clock: Clock::System,
            access_log: None,
        }
    }
}

/// `upgrades`: the new gateway takes over from the one that uses the data directory.
pub(super) async fn prepare(
    mut server: Server,
    environment: Environment,
    faults: Faults,
    upgrades: bool,
) -> Result<Gateway, BootError> {
    choose_ports(&mut server)?;
    tls::check_authorities().map_err(BootError)?;
    let (mock, mock_address) = Mock::bind()
        .map_err(|error| BootError(format!("cannot bind the mock provider: {error}")))?;
    let variables = environment.variables;
    // Found once: a file that appears later was never read.
    server.routing.file = config::routing_path(&server);
    // A routing document in a file is read before anything is written.
    let read = |source| read_routing(source, &server, &variables, mock_address);
    let from_file = match server.routing.store {
        true => None,
        false => Some(read(config::load_routing(&server).map_err(problems)?)?),
    };
    // The data directory is locked while it is still empty: if two gateways start, only one makes a
    // master key.
    let (dir, takeover) = match upgrades {
        false => (DataDir::take(&server.data_dir)?, None),
        true => {
            let (url, dir) = (server.store.url.clone(), server.data_dir.clone());
            blocking(move || check_takeover(&url, &dir)).await.map_err(StoreError::from)??;
            let (dir, takeover) = upgrade::take_over(&server.data_dir).await?;
            (dir, Some(takeover))
        }
    };
    let (random, clock) = (Random::System, environment.clock);
    let (key, old) = (environment.master_key, environment.master_key_old);
    let (path, now) = (dir.path().to_owned(), clock.now());
    let master_keys = MasterKeys { dir: path, key, old, random: random.clone(), now };
    let (store, keys) = open_store(dir, &server.store.url, master_keys).await?;
    let store = store.with_faults(faults);
    let clock = if store.is_shared() { Clock::Store(Arc::default()) } else { clock };
    let routing = match from_file {
        Some(routing) => routing,
        None => read(config::stored_routing(store.live_document().await?))?,
    };
    let (admin_key, agent_key) = (environment.admin_key, environment.agent_key);
    warn_if_short("ADMIN_API_KEY", admin_key.as_ref());
    warn_if_short("AGENT_CLOUD_API_KEY", agent_key.as_ref());
    let has_admin_key = admin_key.as_ref().is_some_and(|key| !key.is_empty());
    let auth = Auth::new(&keys, admin_key, agent_key, server.session.idle);
    let metrics = Arc::new(Metrics::new().map_err(BootError)?);
    let joining = joining(&server, &store, &metrics, clock.clone());
    let nodes = Nodes::new(&keys).vouched_for_by(server.nodes.ca.clone());
    let documents = DocumentFollower::default();
    // From here on these tables follow the store.
    let tables = auth.follower(vec![Arc::new(nodes.clone()), Arc::new(documents.clone())]);
    store.join(tables, joining).await?;
    if !store.is_shared() {
        nodes.refuse_signatures_until(now);
    }
    warn_without_admin(has_admin_key, &auth);
    let archive = open_archive(&server, &store, &keys, &auth, &metrics, &random, &variables)?;
    let archive = archive.with_clock(clock.clone());
    if let Err(error) = archive.recover().await {
        // Traffic does not need the segments, and the first capture tries again.
        warn!("the segments of captures cannot be listed: {error}");
    }
    let (captures, writer) = CaptureQueue::new(metrics.clone());
    let access_log = open_access_log(&server, environment.access_log, &variables)?;
    let telemetry = start_telemetry(&server, &metrics, &random)?;
    let app = Arc::new(App::new(AppParts {
        server,
        store,
        auth,
        nodes,
        access_log,
        telemetry,
        metrics,
        clock,
        random,
        routing,
        captures,
        archive,
        mock: Some(mock_address),
        variables,
    }));
    documents.bind(&app);
    app.limits.open(&app.store, app.clock.now()).await?;
    let stored = reload::store_text_at_start(&app, &app.live().routing).await;
    stored.map_err(|error| BootError(error.to_string()))?;
    Ok(Gateway { app, writer, mock, takeover })
}

async fn open_store(
    dir: DataDir,
    url: &StoreUrl,
    master_keys: MasterKeys,
) -> Result<(Store, Keyring), BootError> {
    let unlock = move |opening: &Opening<'_>| {
        let unlocked = master_keys.unlock(opening)?;
        Ok::<_, BootError>((unlocked.keys.derive(Purpose::Documents, b""), unlocked))
    };
    let (store, Unlocked { keys, rewrapped }) = Store::open_at(dir, url, unlock).await?;
    if rewrapped {
        info!("the master key was changed; the previous one is needed for older backups only");
    }
    Ok((store, keys))
}

fn joining(server: &Server, store: &Store, metrics: &Metrics, clock: Clock) -> Joining {
    let StoreSettings { url, direct_url, lease, on_lease_lost } = &server.store;
    let url = match url {
        StoreUrl::Sqlite => None,
        StoreUrl::Postgres(url) => Some(direct_url.as_ref().unwrap_or(url).clone()),
    };
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let address =
        server.listeners.first().map_or(server.metrics.address, |listener| listener.address);
    let instance = store.instance().unwrap_or_default().to_owned();
    let identity = GatewayIdentity {
        instance,
        directory: store.directory().unwrap_or_default().to_owned(),
        process: GatewayId::new(Timestamp::now(), &Random::System).to_string(),
        name: format!("{machine}:{}", address.port()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        address: address.to_string(),
    };
    Joining {
        identity,
        metrics: metrics.clone(),
        url,
        lease: *lease,
        serves_stale: *on_lease_lost == OnLeaseLost::ServeStale,
        clock,
    }
}

fn read_routing(
    source: config::DocumentSource,
    server: &Server,
    variables: &Variables,
    mock: SocketAddr,
) -> Result<Routing, BootError> {
    let config::DocumentSource { file, text } = source;
    let routing = config::read_routing(&file, &text, server, &**variables, Some(mock));
    let routing = routing.map_err(problems)?;
    if file == config::DEMO {
        match server.routing.store {
            true => warn!(
                "the store has no routing document: a mock provider answers until \
                 `rerouter config put FILE` stores one, also if there are keys of providers"
            ),
            false => warn!("there is no routing document: a mock provider answers"),
        }
    }
    config::warnings(&file, &routing).iter().for_each(|warning| warn!("{warning}"));
    Ok(routing)
}

fn open_archive(
    server: &Server,
    store: &Store,
    keys: &Keyring,
    auth: &Auth,
    metrics: &Arc<Metrics>,
    random: &Random,
    variables: &Variables,
) -> Result<Archive, BootError> {
    let kept = &server.capture.retention;
    let archive = Archive::new(store.clone(), keys, random.clone(), server.capture.encrypt)
        .kept_for(kept.age, kept.size)
        .counting(Metrics::clone(metrics))
        .redacting(server.capture.redact.clone().veiling(auth.key_redactor().clone()));
    let Some(location) = &server.capture.objects else { return Ok(archive) };
    let opened = location.open(&**variables);
    let objects = opened.map_err(|why| BootError(format!("capture.objects: {why}")))?;
    Ok(archive.uploading(objects, store.dir()))
}

fn open_access_log(
    server: &Server,
    given: Option<AccessLog>,
    variables: &Variables,
) -> Result<AccessLog, BootError> {
    let Some(format) = server.access_log.format else { return Ok(AccessLog::off()) };
    if let Some(given) = given {
        return Ok(given);
    }
    AccessLog::stdout(format.form(std::io::stdout().is_terminal(), &**variables))
        .map_err(|error| BootError(format!("cannot start the access log: {error}")))
}

fn start_telemetry(
    server: &Server,
    metrics: &Arc<Metrics>,
    random: &Random,
) -> Result<Telemetry, BootError> {
    let Some(settings) = &server.telemetry.otlp() else { return Ok(Telemetry::off()) };
    Telemetry::start(settings, metrics, random, Egress::of(server, None))
        .map_err(|error| BootError(format!("cannot start the export of traces: {error}")))
}

fn warn_without_admin(has_admin_key: bool, auth: &Auth) {
    let is_admin = |user: &UserRow| user.role == Role::Admin && !user.disabled;
    if !has_admin_key && auth.users_with(is_admin).is_empty() {
        warn!(
            "there is no admin: start with ADMIN_API_KEY set to a long random value, \
             which makes users, or use the link for the console"
        );
    }
}

/// Chooses a port for each address with port 0, so that the log, the interfaces and the check
/// against loops know it.
fn choose_ports(server: &mut Server) -> Result<(), BootError> {
    let addresses = server
        .listeners
        .iter_mut()
        .map(|listener| &mut listener.address)
        .chain([&mut server.metrics.address]);
    // Each socket is held until all ports are chosen, so that no two are equal.
    let mut held = Vec::new();
    for address in addresses.filter(|address| address.port() == 0) {
        let cannot =
            |error: std::io::Error| BootError(format!("cannot listen on {address}: {error}"));
        let socket = TcpListener::bind(*address).map_err(cannot)?;
        let port = socket.local_addr().map_err(cannot)?.port();
        address.set_port(port);
        held.push(socket);
    }
    Ok(())
}

fn problems(problems: Vec<config::Problem>) -> BootError {
    BootError(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn warn_if_short(name: &str, key: Option<&Secret>) {
    if key.is_some_and(|key| !key.is_empty() && key.expose().chars().count() < 32) {
        warn!("{name} has fewer than 32 characters; make it long and random");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rerouter_core::reload::WATCH_EQUAL_READS;

    #[tokio::test]
    async fn nothing_is_written_into_a_directory_that_another_has() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let taken = DataDir::take(&data).unwrap();
        let text = format!("data_dir: {data:?}\nmetrics: {{ address: '127.0.0.1:0' }}\n");
        let server = || config::read_server("test", &text, &|_| None).unwrap();
        let refused = prepare(server(), Environment::default(), Faults::default(), false)
            .await
            .map(|_| ())
            .unwrap_err();
        assert!(
            refused.to_string().contains("another process uses the data directory"),
            "{refused}"
        );
        assert!(!data.join("master.key").exists());
        drop(taken);
        let gateway =
            prepare(server(), Environment::default(), Faults::default(), false).await.unwrap();
        assert!(data.join("master.key").exists());
        assert_ne!(
            gateway.app.server.metrics.address.port(),
            0,
            "a port is chosen before anybody is told of it"
        );
    }

    #[tokio::test]
    async fn a_document_that_changes_while_the_gateway_starts_is_not_missed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let document = |latency: &str| config::demo_routing().replace("latency: 20ms", latency);
        std::fs::write(path("routing.yaml"), document("latency: 20ms")).unwrap();
        let text = format!(
            "data_dir: {:?}\nrouting: {{ file: {:?} }}\n",
            path("data"),
            path("routing.yaml")
        );
        let server = config::read_server("test", &text, &|_| None).unwrap();
        let gateway =
            prepare(server, Environment::default(), Faults::default(), false).await.unwrap();
        let before = gateway.app.revision();
        let mut watcher = reload::Watcher::new(gateway.app.clone());
        std::fs::write(path("routing.yaml"), document("latency: 30ms")).unwrap();
        for _ in 0..WATCH_EQUAL_READS {
            watcher.check().await;
        }
        assert_ne!(gateway.app.revision(), before);
        let reloads = |result: &str| {
            gateway
                .app
                .metrics
                .render()
                .contains(&format!("rerouter_reloads_total{{result=\"{result}\"}} 1"))
        };
        assert!(reloads("success") && !reloads("unchanged"));
    }
}
