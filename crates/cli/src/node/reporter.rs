//! The life of a node: registration, heartbeats, drain, deregistration.

use std::time::{Duration, Instant};

use super::super::output::print_error;
use super::arguments::NodeArguments;
use super::backoff::{Backoff, NODE_RETRY};
use super::gateway::{GatewayClient, Reply};
use super::server_formats::ServerLoad;
use super::signals::Stop;
use super::upstream::{ProbeError, Upstream};
use rerouter_base::bounds;
use rerouter_base::id::{NodeId, Random};
use rerouter_base::secret::Secret;
use rerouter_core::config::Env;
use rerouter_records::node::{NewRegistration, NodeHeartbeat, NodeLeaving};
use rerouter_records::{NodeModel, ShownSecret};
use rerouter_routing::BaseUrl;
use rerouter_store::NodeStatus;

pub(super) struct Reporter {
    id: NodeId,
    gateway: GatewayClient,
    upstream: Upstream,
    endpoint: String,
    max_concurrency: Option<u32>,
    drain: Duration,
    random: Random,
    /// The models that the gateway accepted last; `None` before the first registration.
    accepted: Option<Vec<NodeModel>>,
    /// The models that the gateway refused last: not sent again until they change.
    refused: Option<Vec<NodeModel>>,
}

enum HeartbeatsEnded {
    Reregister,
    /// The gateway does not know the registration.
    Lost,
    Stopped,
    /// Another process owns the registration: it must not be touched.
    Superseded,
}

/// The last known state of the server.
#[derive(Default)]
struct ServerState {
    /// The last probe timed out. A single timeout may only mean that the server is busy.
    timed_out: bool,
    load: ServerLoad,
}

fn log(line: &str) {
    print_error(&format!("{line}\n"));
}

impl Reporter {
    pub(super) fn new(arguments: &NodeArguments, env: &Env<'_>) -> Result<Reporter, String> {
        let variable = |name: &str| env(name).filter(|value| !value.is_empty()).map(Secret::new);
        let url = |option: &str, text: &str| {
            BaseUrl::parse(text).map_err(|wrong| format!("--{option}: the URL {wrong}"))
        };
        if let Some(endpoint) = &arguments.endpoint {
            url("endpoint", endpoint)?;
        }
        let id = NodeId::parse(&arguments.id).ok_or("--id is like node_… with 26 characters")?;
        let secret =
            variable("REROUTER_NODE_SECRET").ok_or("no secret: set REROUTER_NODE_SECRET")?;
        let gateway = GatewayClient::new(
            url("gateway", &arguments.gateway)?,
            arguments.ca.as_deref(),
            id.clone(),
            arguments.generation,
            secret,
        )?;
        let upstream = Upstream::new(
            url("upstream", &arguments.upstream)?,
            arguments.upstream_ca.as_deref(),
            variable("REROUTER_NODE_API_KEY"),
            arguments.models.clone(),
        )?;
        Ok(Reporter {
            id,
            gateway,
            upstream,
            endpoint: arguments.endpoint.as_ref().unwrap_or(&arguments.upstream).clone(),
            max_concurrency: arguments.max_concurrency,
            drain: Duration::from_secs(arguments.drain),
            random: Random::System,
            accepted: None,
            refused: None,
        })
    }

    /// Registers and sends heartbeats, and registers again when the gateway asks for it, until
    /// the node is stopped.
    pub(super) fn run(&mut self, stop: &Stop) -> Result<(), String> {
        let (mut backoff, mut losses) = (Backoff::default(), 0);
        loop {
            match self.register() {
                Reply::Accepted => {
                    log(&format!("{} is registered", self.id));
                    let begun = Instant::now();
                    backoff = Backoff::default();
                    match self.send_heartbeats(stop) {
                        HeartbeatsEnded::Stopped => return self.deregister(),
                        HeartbeatsEnded::Superseded => return Ok(()),
                        HeartbeatsEnded::Reregister => continue,
                        HeartbeatsEnded::Lost => {}
                    }
                    // A gateway may lose a registration once. If it is lost again within a lease,
                    // another process has taken it, and would lose it to us next.
                    losses = if begun.elapsed() < bounds::NODE_LEASE { losses + 1 } else { 1 };
                    if losses > 1 {
                        return Err(format!("another process reports as {}: giving way", self.id));
                    }
                    continue;
                }
                Reply::Refused(_, why) if self.accepted.is_none() => return Err(why),
                // It was accepted before: a clock, a secret or an enrolment may be restored.
                Reply::Refused(_, why) => log(&format!("cannot register again, retrying: {why}")),
                Reply::Unregistered => {}
                Reply::Unavailable(why) => log(&format!("cannot register yet: {why}")),
            }
            if stop.wait(backoff.next(&self.random)) {
                if self.accepted.is_none() {
                    log(&format!("{} stops before its first registration", self.id));
                    return Ok(());
                }
                log(&format!("{} stops while it is not registered", self.id));
                return self.deregister();
            }
        }
    }

    fn register(&mut self) -> Reply {
        let models = match self.upstream.probe() {
            Ok(status) => status.models,
            Err(ProbeError::Timeout(why) | ProbeError::Unavailable(why)) => {
                return Reply::Unavailable(why);
            }
        };
        if let Some(accepted) =
            self.accepted.clone().filter(|_| self.refused.as_ref() == Some(&models))
        {
            return self.register_with(accepted);
        }
        let reply = self.register_with(models.clone());
        match (&reply, self.accepted.clone()) {
            (Reply::Refused(400 | 403, why), Some(accepted)) if accepted != models => {
                self.note_refused(models, why);
                self.register_with(accepted)
            }
            _ => reply,
        }
    }

    fn register_with(&mut self, models: Vec<NodeModel>) -> Reply {
        let registration = NewRegistration {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            endpoint: self.endpoint.clone(),
            api_key: self.upstream.api_key().cloned().map(ShownSecret),
            models,
            max_concurrency: self.max_concurrency,
            labels: None,
        };
        let reply = self.gateway.call("register", &registration);
        if matches!(reply, Reply::Accepted) {
            self.accepted = Some(registration.models);
        }
        reply
    }

    fn note_refused(&mut self, models: Vec<NodeModel>, why: &str) {
        log(&format!("the gateway refuses the server's new models, the old ones stay: {why}"));
        self.refused = Some(models);
    }

    fn send_heartbeats(&mut self, stop: &Stop) -> HeartbeatsEnded {
        let (mut seq, mut state, mut backoff) = (0, ServerState::default(), Backoff::default());
        loop {
            let due = Instant::now() + bounds::NODE_HEARTBEAT;
            seq += 1;
            let mut heartbeat = self.prepare(seq, &mut state);
            heartbeat.models =
                heartbeat.models.filter(|models| self.refused.as_ref() != Some(models));
            let mut reply = self.gateway.call("heartbeat", &heartbeat);
            if let Reply::Refused(400 | 403, why) = &reply
                && let Some(models) = heartbeat.models.take()
            {
                self.note_refused(models, why);
                seq += 1;
                heartbeat.seq = seq;
                reply = self.gateway.call("heartbeat", &heartbeat);
            }
            let stopped = match reply {
                Reply::Accepted => {
                    backoff = Backoff::default();
                    self.accepted = heartbeat.models.take().or(self.accepted.take());
                    self.rest(stop, due, heartbeat.status == NodeStatus::Error)
                }
                Reply::Unregistered => return HeartbeatsEnded::Lost,
                Reply::Unavailable(why) => {
                    log(&format!("a heartbeat failed: {why}"));
                    stop.wait(backoff.next(&self.random))
                }
                // A registration shows whether the refusal is permanent.
                Reply::Refused(_, why) => {
                    log(&format!("a heartbeat was refused: {why}"));
                    let stopped = stop.wait(backoff.next(&self.random));
                    return if stopped {
                        HeartbeatsEnded::Stopped
                    } else {
                        HeartbeatsEnded::Reregister
                    };
                }
            };
            if stopped {
                return self.drain(seq);
            }
        }
    }

    /// Probes the server for a heartbeat. Its models are asked for each time.
    fn prepare(&mut self, seq: u64, state: &mut ServerState) -> NodeHeartbeat {
        let (status, models) = match self.upstream.probe() {
            Ok(status) => {
                *state = ServerState { timed_out: false, load: status.load.unwrap_or_default() };
                (NodeStatus::Ready, Some(status.models))
            }
            Err(ProbeError::Timeout(_)) if !state.timed_out => {
                state.timed_out = true;
                (NodeStatus::Ready, None)
            }
            Err(ProbeError::Timeout(why) | ProbeError::Unavailable(why)) => {
                log(&format!("the server is unavailable: {why}"));
                *state = ServerState { timed_out: true, load: ServerLoad::default() };
                (NodeStatus::Error, None)
            }
        };
        NodeHeartbeat { models, ..self.heartbeat(seq, status, state.load) }
    }

    /// Waits until the next heartbeat is due, or until an unavailable server answers again.
    /// Returns whether the node has to stop.
    fn rest(&self, stop: &Stop, due: Instant, unavailable: bool) -> bool {
        let left = || due.saturating_duration_since(Instant::now());
        while unavailable && left() > NODE_RETRY {
            if stop.wait(NODE_RETRY) {
                return true;
            }
            if self.upstream.is_up() {
                return false;
            }
        }
        stop.wait(left())
    }

    fn heartbeat(&self, seq: u64, status: NodeStatus, load: ServerLoad) -> NodeHeartbeat {
        let (epoch, ServerLoad { running, queued }) = (self.gateway.epoch, load);
        NodeHeartbeat { epoch, seq, status, running, queued, models: None }
    }

    /// Refuses new requests and waits for the running ones, until the server reports none or the
    /// time is over.
    #[expect(clippy::disallowed_methods, reason = "a command that has nothing else to do")]
    fn drain(&mut self, mut seq: u64) -> HeartbeatsEnded {
        let end = Instant::now() + self.drain;
        let mut load = Some(ServerLoad { running: 1, queued: 0 });
        let (mut idle, mut gateway_knows) = (0, false);
        loop {
            seq += 1;
            let load_now = load.unwrap_or_default();
            let heartbeat = self.heartbeat(seq, NodeStatus::Draining, load_now);
            match self.gateway.call("heartbeat", &heartbeat) {
                Reply::Unregistered => {
                    log(&format!("another process reports as {}: it stays registered", self.id));
                    return HeartbeatsEnded::Superseded;
                }
                Reply::Unavailable(why) | Reply::Refused(_, why) => {
                    log(&format!("a heartbeat failed: {why}"));
                }
                Reply::Accepted => gateway_knows = true,
            }
            load = self.upstream.load();
            // Idle twice: a request that the gateway sent just before it knew may still arrive.
            let is_idle = gateway_knows && load == Some(ServerLoad::default());
            idle = if is_idle { idle + 1 } else { 0 };
            if idle == 2 || Instant::now() >= end {
                return HeartbeatsEnded::Stopped;
            }
            let left = end.saturating_duration_since(Instant::now());
            std::thread::sleep(NODE_RETRY.min(left));
        }
    }

    fn deregister(&mut self) -> Result<(), String> {
        match self.gateway.call("deregister", &NodeLeaving { epoch: self.gateway.epoch }) {
            Reply::Accepted | Reply::Unregistered => {
                log(&format!("{} is deregistered", self.id));
                Ok(())
            }
            Reply::Unavailable(why) | Reply::Refused(_, why) => {
                Err(format!("cannot deregister: {why}"))
            }
        }
    }
}
