//! Background work on providers: DNS look-ups of their names, so that calls do not wait for them,
//! and health checks as the routing document asks for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::{StatusCode, Uri};
use log::{info, warn};
use pingora::connectors::ConnectorOptions;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::ALPN;
use pingora::server::configuration::ServerConf;
use pingora::{Error, ErrorType};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ProxyHooks;
use super::attempt_guard::log_change;
use super::peers::Peers;
use super::provider_headers::written;
use super::resolver::{DNS_TTL, ResolveError};
use rerouter_base::bounds;
use rerouter_core::app::App;
use rerouter_routing::{HealthCheck, NODES, Provider, ProviderIdentity};

/// Longest time of a health check: a provider that takes longer is unhealthy.
const HEALTH_CHECK_TIME: Duration = Duration::from_secs(10);
/// Time between two looks for due health checks and DNS look-ups.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(500);
/// DNS look-ups in the background at once: each takes a thread.
const DNS_LOOKUPS: usize = 8;

pub(crate) struct BackgroundWork {
    app: Arc<App>,
    peers: Arc<Peers>,
    connector: Arc<Connector>,
}

/// A provider by its name and identity: with another endpoint or credential it is another provider.
type ProviderKey = (Arc<str>, ProviderIdentity);

fn key_of(provider: &Provider) -> ProviderKey {
    (provider.name.clone(), provider.identity)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProviderHealth {
    Healthy,
    Unhealthy(&'static str),
    /// The provider answered 401, 403 or 429, which says nothing about its health.
    Unclear,
}

impl BackgroundWork {
    /// It shares the address cache and the settings of connections with calls.
    pub(crate) fn of(hooks: &ProxyHooks, conf: &ServerConf) -> Self {
        let (app, peers) = (hooks.app.clone(), hooks.peers.clone());
        let connector = Connector::new(Some(ConnectorOptions::from_server_conf(conf)));
        BackgroundWork { app, peers, connector: Arc::new(connector) }
    }

    /// Runs until it is dropped.
    pub(crate) async fn run(&self) {
        tokio::join!(self.renew_names(), self.check_health());
    }

    /// Renews the addresses of the live document's providers in the resolver's cache, and drops all
    /// others.
    async fn renew_names(&self) {
        let mut tick = tokio::time::interval(UPKEEP_INTERVAL);
        let mut tried: HashMap<(String, u16), Instant> = HashMap::new();
        let resolver = &self.peers.resolver;
        loop {
            tick.tick().await;
            let live = self.app.live();
            let remote =
                live.routing.providers.iter().filter(|provider| provider.protocol.is_remote());
            let names: HashMap<(String, u16), Arc<str>> = remote
                .map(|provider| {
                    ((provider.base.host.clone(), provider.base.port), provider.name.clone())
                })
                .collect();
            let of_nodes =
                self.app.nodes.places().into_iter().map(|place| (place, Arc::from(NODES)));
            let names: HashMap<_, _> = of_nodes.chain(names).collect();
            drop(live);
            resolver.retain(|name| names.contains_key(name));
            tried.retain(|name, at| names.contains_key(name) && at.elapsed() < DNS_TTL);
            let due = names
                .into_iter()
                .filter(|(name, _)| resolver.is_due(&name.0, name.1) && !tried.contains_key(name));
            let due: Vec<_> = due.collect();
            tried.extend(due.iter().map(|(name, _)| (name.clone(), Instant::now())));
            let looked_up = futures::stream::iter(due).map(|((host, port), provider)| async move {
                let found =
                    tokio::time::timeout(bounds::DNS_TIME, resolver.look_up(&host, port)).await;
                if let Err(why) = found.unwrap_or(Err(ResolveError::Unknown)) {
                    warn!("provider {provider}: {why}; if one was known before, it stays in use");
                }
            });
            looked_up.buffer_unordered(DNS_LOOKUPS).collect::<Vec<()>>().await;
        }
    }

    /// Checks the health of each provider at its own interval, one check at a time.
    async fn check_health(&self) {
        let mut tick = tokio::time::interval(UPKEEP_INTERVAL);
        let mut next: HashMap<ProviderKey, Instant> = HashMap::new();
        let mut last: HashMap<ProviderKey, ProviderHealth> = HashMap::new();
        let mut asking: JoinSet<(ProviderKey, ProviderHealth)> = JoinSet::new();
        let mut asked: HashSet<ProviderKey> = HashSet::new();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                Some(done) = asking.join_next(), if !asking.is_empty() => {
                    // A check that panicked has ended too, but names no provider.
                    if let Ok((who, found)) = done {
                        asked.remove(&who);
                        let before = last.get(&who).copied();
                        if found != ProviderHealth::Unclear {
                            last.insert(who.clone(), found);
                        }
                        self.judge(&who, found, before);
                    } else {
                        asked.clear();
                    }
                    continue;
                }
            }
            let (live, now) = (self.app.live(), Instant::now());
            let checked = || {
                live.routing
                    .providers
                    .iter()
                    .filter_map(|provider| Some((provider, provider.health.as_ref()?)))
            };
            let known: HashSet<ProviderKey> =
                checked().map(|(provider, _)| key_of(provider)).collect();
            next.retain(|who, _| known.contains(who));
            last.retain(|who, _| known.contains(who));
            for (provider, check) in checked() {
                let who = key_of(provider);
                let due = next.get(&who).is_none_or(|at| *at <= now);
                if due && asked.insert(who.clone()) {
                    next.insert(who.clone(), now + check.interval);
                    let (peers, connector) = (self.peers.clone(), self.connector.clone());
                    let (provider, check) = (provider.clone(), check.clone());
                    asking.spawn(async move {
                        (who, check_one(&peers, &connector, &provider, &check).await)
                    });
                }
            }
        }
    }

    /// Passes the result on to the provider's targets in the live document, unless the provider has
    /// another endpoint by now.
    fn judge(&self, asked: &ProviderKey, found: ProviderHealth, before: Option<ProviderHealth>) {
        let (live, now) = (self.app.live(), self.app.clock.now());
        let is_asked =
            |provider: &Provider| provider.health.is_some() && key_of(provider) == *asked;
        if !live.routing.providers.iter().any(|provider| is_asked(provider)) {
            return;
        }
        for target in live.routing.targets().filter(|target| is_asked(&target.provider)) {
            let (change, why) = match found {
                ProviderHealth::Healthy => (target.state().check_passed(), ""),
                ProviderHealth::Unhealthy(why) => {
                    (target.state().check_failed(&target.provider.breaker, now), why)
                }
                ProviderHealth::Unclear => (None, ""),
            };
            log_change(change, target, None, why);
        }
        let name = &asked.0;
        match found {
            ProviderHealth::Unhealthy(why) if before != Some(found) => {
                warn!("provider {name} is unhealthy: {why}")
            }
            ProviderHealth::Healthy if matches!(before, Some(ProviderHealth::Unhealthy(_))) => {
                info!("provider {name} is healthy again")
            }
            _ => {}
        }
    }
}

async fn check_one(
    peers: &Peers,
    connector: &Connector,
    provider: &Provider,
    check: &HealthCheck,
) -> ProviderHealth {
    let most = HEALTH_CHECK_TIME
        .min(provider.timeouts.connect + provider.timeouts.first_byte)
        .max(Duration::from_millis(1));
    match tokio::time::timeout(most, status(peers, connector, provider, check)).await {
        Err(_) => ProviderHealth::Unhealthy("no answer in time"),
        Ok(Err(_)) => ProviderHealth::Unhealthy("no answer"),
        Ok(Ok(status)) => match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
                ProviderHealth::Unclear
            }
            status if status.is_success() => ProviderHealth::Healthy,
            status if status.is_server_error() => ProviderHealth::Unhealthy("a status of 5xx"),
            _ => ProviderHealth::Unhealthy("a status that is no success"),
        },
    }
}

async fn status(
    peers: &Peers,
    connector: &Connector,
    provider: &Provider,
    check: &HealthCheck,
) -> pingora::Result<StatusCode> {
    let unknown = |_| Error::explain(ErrorType::ConnectError, "no address");
    let mut peer = peers.peer(provider).await.map_err(unknown)?;
    // Providers with HTTP/2 over TLS speak HTTP/1.1 too, and one request needs no streams.
    peer.options.alpn = ALPN::H1;
    let (mut session, _) = connector.get_http_session(&*peer).await?;
    session.set_read_timeout(Some(HEALTH_CHECK_TIME));
    session.set_write_timeout(Some(HEALTH_CHECK_TIME));
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.uri = written(Uri::try_from(check.path.as_str()).ok())?;
    head.headers = written(provider.head.as_ref().map(|head| head.check().clone()))?;
    session.write_request_header(Box::new(RequestHeader::from(head))).await?;
    session.finish_request_body().await?;
    session.read_response_header().await?;
    let status = session.response_header().map(|head| head.status);
    // The body is not read, so the connection cannot be used again.
    session.shutdown().await;
    status.ok_or_else(|| Error::explain(ErrorType::InvalidHTTPHeader, "no status"))
}
