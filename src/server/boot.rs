//! From documents and environment to a gateway: master key, store, tables, live routing document.

use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;

use log::{info, warn};

use super::Gateway;
use super::master::{MasterKeys, Unlocked};
use crate::app::{App, Parts};
use crate::auth::Auth;
use crate::capture::index::Archive;
use crate::capture::queue::CaptureQueue;
use crate::clock::Clock;
use crate::config::{self, Server, Variables};
use crate::id::Random;
use crate::log::AccessLog;
use crate::metrics::Metrics;
use crate::nodes::Nodes;
use crate::protocol::mock::Mock;
use crate::reload;
use crate::secret::{Purpose, Secret};
use crate::store::{DataDir, Faults, Opening, Role, Store, StoreError};

/// Why a gateway cannot start, in words for the operator.
#[derive(Debug)]
pub struct BootError(pub String);

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BootError {}

impl From<StoreError> for BootError {
    fn from(error: StoreError) -> Self {
        BootError(error.to_string())
    }
}

/// What the process environment says; the one place that holds it.
pub struct Environment {
    /// `ADMIN_API_KEY`; empty counts as unset.
    pub admin_key: Option<Secret>,
    /// `AGENT_CLOUD_API_KEY`; empty counts as unset.
    pub agent_key: Option<Secret>,
    /// `REROUTER_MASTER_KEY`: 32 bytes in base64.
    pub master_key: Option<Secret>,
    /// `REROUTER_MASTER_KEY_OLD`: the previous master key, at the start that replaces it by `master_key`.
    pub master_key_old: Option<Secret>,
    /// Looks up any other variable, for `${…}` in documents.
    pub variables: Variables,
    /// The time; a test's own, where it does not want to wait.
    pub clock: Clock,
    /// Where access lines go, unless the document says that there are none; without it standard output.
    pub access_log: Option<AccessLog>,
}

impl Default for Environment {
    /// An environment in which nothing is set.
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

pub(super) async fn prepare(
    mut server: Server,
    environment: Environment,
    faults: Faults,
) -> Result<Gateway, BootError> {
    choose_ports(&mut server)?;
    let (mock, mock_address) = Mock::bind()
        .map_err(|error| BootError(format!("cannot bind the mock provider: {error}")))?;
    let read = |source: config::Source, server: &Server| {
        let routing = config::read_routing(
            &source.file,
            &source.text,
            server,
            &*environment.variables,
            Some(mock_address),
        );
        let routing = routing.map_err(problems)?;
        config::warnings(&source.file, &routing).iter().for_each(|warning| warn!("{warning}"));
        Ok::<_, BootError>(routing)
    };
    // A document that is a file is read first: one that is wrong leaves no trace.
    let of_file = if server.routing.stored {
        None
    } else {
        Some(read(config::load_routing(&server).map_err(problems)?, &server)?)
    };
    // Before anything is in it: of two that start at once only one makes a master key.
    let dir = DataDir::take(&server.data_dir)?;
    let (random, clock) = (Random::System, environment.clock);
    let (key, old) = (environment.master_key.clone(), environment.master_key_old.clone());
    let (path, now) = (dir.path().to_owned(), clock.now());
    let master_keys = MasterKeys { dir: path, key, old, random: random.clone(), now };
    let unlock = move |opening: &Opening<'_>| {
        let unlocked = master_keys.unlock(opening)?;
        Ok::<_, BootError>((unlocked.keys.derive(Purpose::Documents, b""), unlocked))
    };
    let (store, Unlocked { keys, rewrapped }) = Store::open_in(dir, unlock).await?;
    if rewrapped {
        info!("the master key was changed; the previous one is needed for older backups only");
    }
    let store = store.with_faults(faults);
    let routing = match of_file {
        Some(routing) => routing,
        None => read(config::stored_routing(store.live_document().await?), &server)?,
    };
    let (admin_key, agent_key) = (environment.admin_key.clone(), environment.agent_key.clone());
    warn_if_short("ADMIN_API_KEY", admin_key.as_ref());
    warn_if_short("AGENT_CLOUD_API_KEY", agent_key.as_ref());
    let no_admin_key = admin_key.as_ref().is_none_or(Secret::is_empty);
    let auth = Auth::new(&keys, admin_key, agent_key, server.session.idle);
    let nodes = Nodes::new(&keys).vouched_for_by(server.node_authorities.clone());
    let following = nodes.clone();
    nodes.load(
        auth.attach_with(&store, Box::new(move |committed| following.apply(committed))).await?,
    );
    nodes.refuse_signatures_before(now);
    if no_admin_key && auth.users_with(|user| user.role == Role::Admin && !user.disabled).is_empty()
    {
        warn!(
            "there is no admin: start with ADMIN_API_KEY set to a long random value, and with it as a Bearer token make the first one: \
             POST /v1/users {{\"email\": …, \"password\": …, \"role\": \"admin\"}}"
        );
    }
    let metrics = Arc::new(Metrics::new().map_err(BootError)?);
    let kept = &server.capture.retention;
    let archive = Archive::new(store.clone(), &keys, random.clone(), server.capture.encrypt);
    let archive = archive
        .kept_for(kept.age, kept.size)
        .counting(Metrics::clone(&metrics))
        .redacting(server.capture.redactor.clone().veiling(auth.key_redactor().clone()));
    if let Err(error) = archive.recover().await {
        // A full disk, or a damaged file: that is no reason to refuse traffic.
        warn!("captures of the last run could not be looked through: {error}");
    }
    let (captures, writer) = CaptureQueue::new(metrics.clone());
    let access_log = match environment.access_log {
        _ if !server.access_log => AccessLog::off(),
        Some(given) => given,
        None => AccessLog::stdout()
            .map_err(|error| BootError(format!("cannot start the access log: {error}")))?,
    };
    let (mock_address, variables) = (Some(mock_address), environment.variables);
    let parts = Parts {
        server,
        store,
        auth,
        nodes,
        access_log,
        metrics,
        clock,
        random,
        routing,
        captures,
        archive,
        mock: mock_address,
        variables,
    };
    let app = Arc::new(App::new(parts));
    app.limits.open(&app.auth, &app.store, app.clock.now()).await?;
    reload::keep_at_start(&app, &app.live().routing)
        .await
        .map_err(|error| BootError(error.to_string()))?;
    Ok(Gateway { app, writer, mock })
}

/// Gives each address with port 0 the port that it will have, so that logs, interfaces and the refusal of loops know it.
fn choose_ports(server: &mut Server) -> Result<(), BootError> {
    let addresses = server
        .listeners
        .iter_mut()
        .map(|listener| &mut listener.address)
        .chain([&mut server.metrics]);
    // Held until all are chosen, so that no two are the same.
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

    #[tokio::test]
    async fn nothing_is_written_into_a_directory_that_another_has() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let taken = DataDir::take(&data).unwrap();
        let text = format!("data_dir: {data:?}\nmetrics: {{ address: '127.0.0.1:0' }}\n");
        let server = || config::read_server("test", &text, &|_| None).unwrap();
        let refused = prepare(server(), Environment::default(), Faults::default())
            .await
            .map(|_| ())
            .unwrap_err();
        assert!(
            refused.to_string().contains("another process uses the data directory"),
            "{refused}"
        );
        assert!(!data.join("master.key").exists());
        drop(taken);
        let gateway = prepare(server(), Environment::default(), Faults::default()).await.unwrap();
        assert!(data.join("master.key").exists());
        assert_ne!(
            gateway.app.server.metrics.port(),
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
        let gateway = prepare(server, Environment::default(), Faults::default()).await.unwrap();
        let before = gateway.app.revision();
        let mut watcher = reload::Watcher::new(gateway.app.clone());
        std::fs::write(path("routing.yaml"), document("latency: 30ms")).unwrap();
        for _ in 0..crate::bounds::WATCH_LOOKS {
            watcher.look().await;
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
