//! What is done for providers outside of calls: their names are looked up again, so that no call waits for that, and
//! those that have a `health` are asked whether they are well.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderValue, StatusCode, Uri};
use log::{info, warn};
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::ALPN;
use pingora::{Error, ErrorType};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::attempt::{credit, value};
use super::reach::Reach;
use super::resolve::Unresolved;
use super::under_way::tell;
use crate::app::App;
use crate::bounds;
use crate::routing::{HealthCheck, NODES, Protocol, Provider, ProviderIdentity};

/// The upkeep of one gateway's providers.
pub struct Upkeep {
    app: Arc<App>,
    reach: Arc<Reach>,
    connector: Arc<Connector>,
}

/// Who is asked: a provider by its name, as it was reached then.
type Who = (Arc<str>, ProviderIdentity);

fn who(provider: &Provider) -> Who {
    (provider.name.clone(), provider.identity)
}

/// What a health check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Well,
    Unwell(&'static str),
    /// It answered, but not to that question: it is busy, or does not know us.
    Unclear,
}

impl Upkeep {
    pub(super) fn new(app: Arc<App>, reach: Arc<Reach>) -> Self {
        Upkeep { app, reach, connector: Arc::new(Connector::new(None)) }
    }

    /// Goes on until it is dropped.
    pub async fn run(&self) {
        tokio::join!(self.keep_names(), self.keep_asking());
    }

    /// Names of the live document, and no others.
    async fn keep_names(&self) {
        let mut tick = tokio::time::interval(bounds::UPKEEP_INTERVAL);
        let mut tried: HashMap<(String, u16), Instant> = HashMap::new();
        let resolver = &self.reach.resolver;
        loop {
            tick.tick().await;
            let live = self.app.live();
            let remote = live
                .routing
                .providers()
                .iter()
                .filter(|provider| provider.protocol != Protocol::Mock);
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
            tried.retain(|name, at| names.contains_key(name) && at.elapsed() < bounds::DNS_TTL);
            let due = names
                .into_iter()
                .filter(|(name, _)| resolver.is_due(&name.0, name.1) && !tried.contains_key(name));
            let due: Vec<_> = due.collect();
            tried.extend(due.iter().map(|(name, _)| (name.clone(), Instant::now())));
            let looked_up = futures::stream::iter(due).map(|((host, port), provider)| async move {
                let found = tokio::time::timeout(bounds::DNS_TIME, resolver.look_up(&host, port)).await;
                if let Err(why) = found.unwrap_or(Err(Unresolved::Unknown)) {
                    // Not the host: it may come from the environment.
                    warn!("provider {provider}: no address to connect to: {why:?}; one that was known stays");
                }
            });
            looked_up.buffer_unordered(bounds::DNS_LOOKUPS).collect::<Vec<()>>().await;
        }
    }

    /// Each provider at its own interval, never twice at once. One whose endpoint or credential
    /// changes is another.
    async fn keep_asking(&self) {
        let mut tick = tokio::time::interval(bounds::UPKEEP_INTERVAL);
        let mut next: HashMap<Who, Instant> = HashMap::new();
        let mut last: HashMap<Who, Found> = HashMap::new();
        let mut asking: JoinSet<(Who, Found)> = JoinSet::new();
        let mut asked: HashSet<Who> = HashSet::new();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                Some(done) = asking.join_next(), if !asking.is_empty() => {
                    // A check that panicked is over as well; the next tick sees that nothing runs any more.
                    if let Ok((who, found)) = done {
                        asked.remove(&who);
                        let before = last.get(&who).copied();
                        if found != Found::Unclear {
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
                    .providers()
                    .iter()
                    .filter_map(|provider| Some((provider, provider.health.as_ref()?)))
            };
            let known: HashSet<Who> = checked().map(|(provider, _)| who(provider)).collect();
            next.retain(|who, _| known.contains(who));
            last.retain(|who, _| known.contains(who));
            for (provider, check) in checked() {
                let who = who(provider);
                let due = next.get(&who).is_none_or(|at| *at <= now);
                if due && asked.insert(who.clone()) {
                    next.insert(who.clone(), now + check.interval);
                    let (reach, connector) = (self.reach.clone(), self.connector.clone());
                    let (provider, check) = (provider.clone(), check.clone());
                    asking.spawn(
                        async move { (who, ask(&reach, &connector, &provider, &check).await) },
                    );
                }
            }
        }
    }

    /// Tells the targets of the provider, as the live document has them now. What was found at an
    /// endpoint that the provider has left says nothing of it.
    fn judge(&self, asked: &Who, found: Found, before: Option<Found>) {
        let (live, now) = (self.app.live(), self.app.clock.now());
        let is_asked = |provider: &Provider| provider.health.is_some() && who(provider) == *asked;
        if !live.routing.providers().iter().any(|provider| is_asked(provider)) {
            return;
        }
        for target in live.routing.targets().filter(|target| is_asked(&target.provider)) {
            let (change, why) = match found {
                Found::Well => (target.state().check_passed(), ""),
                Found::Unwell(why) => {
                    (target.state().check_failed(&target.provider.breaker, now), why)
                }
                Found::Unclear => (None, ""),
            };
            tell(change, target, None, why);
        }
        let name = &asked.0;
        match found {
            Found::Unwell(why) if before != Some(found) => {
                warn!("provider {name} is not well: {why}")
            }
            Found::Well if matches!(before, Some(Found::Unwell(_))) => {
                info!("provider {name} is well again")
            }
            _ => {}
        }
    }
}

async fn ask(
    reach: &Reach,
    connector: &Connector,
    provider: &Provider,
    check: &HealthCheck,
) -> Found {
    let most = bounds::HEALTH_CHECK_TIME
        .min(provider.timeouts.connect + provider.timeouts.first_byte)
        .max(Duration::from_millis(1));
    match tokio::time::timeout(most, status(reach, connector, provider, check)).await {
        Err(_) => Found::Unwell("no answer in time"),
        Ok(Err(_)) => Found::Unwell("no answer"),
        Ok(Ok(status)) => match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
                Found::Unclear
            }
            status if status.is_success() => Found::Well,
            status if status.is_server_error() => Found::Unwell("a status of 5xx"),
            _ => Found::Unwell("a status that is none of success"),
        },
    }
}

async fn status(
    reach: &Reach,
    connector: &Connector,
    provider: &Provider,
    check: &HealthCheck,
) -> pingora::Result<StatusCode> {
    let unknown = |_| Error::explain(ErrorType::ConnectError, "no address");
    let mut peer = reach.peer(provider).await.map_err(unknown)?;
    // Every server of HTTP/2 over TLS speaks HTTP/1.1 too, and one question needs no streams.
    peer.options.alpn = ALPN::H1;
    let (mut session, _) = connector.get_http_session(&peer).await?;
    session.set_read_timeout(Some(bounds::HEALTH_CHECK_TIME));
    session.set_write_timeout(Some(bounds::HEALTH_CHECK_TIME));
    let (mut head, ()) = http::Request::new(()).into_parts();
    head.uri = value(Uri::try_from(check.path.as_str()))?;
    head.headers.insert(HOST, value(HeaderValue::try_from(provider.base.authority()))?);
    head.headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    head.headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("rerouter/", env!("CARGO_PKG_VERSION"))),
    );
    credit(&mut head.headers, provider, provider.api_keys.first())?;
    session.write_request_header(Box::new(RequestHeader::from(head))).await?;
    session.finish_request_body().await?;
    session.read_response_header().await?;
    let status = session.response_header().map(|head| head.status);
    // Whatever the body is, it is not read; so the connection cannot be used again.
    session.shutdown().await;
    status.ok_or_else(|| Error::explain(ErrorType::InvalidHTTPHeader, "no status"))
}
