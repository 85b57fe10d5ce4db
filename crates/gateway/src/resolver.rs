//! Resolves names of providers to addresses: looked up on other threads, cached, renewed in the
//! background. Never returns an address that the egress policy denies, or an address of our own.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use tokio::net::TcpStream;
use tokio::time::timeout;

use rerouter_core::config::{Egress, EgressPeer};

/// Age at which a resolved address is renewed.
pub(super) const DNS_TTL: Duration = Duration::from_secs(30);
/// Time for which an address that could not be connected to is used only if there is no other.
const DEAD: Duration = Duration::from_secs(60);
/// Most resolved names in the cache; above that, the expired ones are dropped.
const DNS_NAMES: usize = 1_024;

/// Longest wait for a server on this machine to accept a connection.
const LOCAL_CONNECT: Duration = Duration::from_millis(100);

/// A cache of resolved names. `whose` selects the rules of the egress policy for an address: `None`
/// for the in-process mock provider, which has no rules.
pub(super) struct Resolver {
    egress: Egress,
    known: DashMap<(String, u16), (Vec<SocketAddr>, Instant)>,
    /// Addresses that could not be connected to, of names with several.
    dead: DashMap<SocketAddr, Instant>,
}

/// Why there is no address. The messages leave out the host, which may come from the environment.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("DNS has no address of its host, or did not answer in time")]
    Unknown,
    #[error("the addresses of its host are denied by `egress`")]
    Denied,
}

impl Resolver {
    pub(super) fn new(egress: Egress) -> Self {
        Resolver { egress, known: DashMap::new(), dead: DashMap::new() }
    }

    /// The address of `host`. Waits for a look-up only if the cache has none.
    pub(super) async fn address(
        &self,
        host: &str,
        port: u16,
        whose: Option<EgressPeer>,
        within: Duration,
    ) -> Result<SocketAddr, ResolveError> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return self.allowed(SocketAddr::new(address, port), whose);
        }
        // The cached address is used at any age: the background task renews it, and no request
        // waits for that.
        if let Some(kept) = self.known.get(&(host.to_string(), port)) {
            return self.usable(&kept.0, whose);
        }
        let finding = Box::pin(self.find(host, port, whose));
        timeout(within, finding).await.map_err(|_| ResolveError::Unknown)?
    }

    /// Whether `host` is a name that the cache lacks, or has had for longer than [`DNS_TTL`].
    pub(super) fn is_due(&self, host: &str, port: u16) -> bool {
        let literal = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        !literal
            && self
                .known
                .get(&(host.to_string(), port))
                .is_none_or(|kept| kept.1.elapsed() >= DNS_TTL)
    }

    /// Notes that an address could not be connected to. Returns whether its name has another one.
    pub(super) fn cannot_connect(&self, host: &str, address: SocketAddr) -> bool {
        let Some(kept) = self.known.get(&(host.to_string(), address.port())) else { return false };
        if kept.0.len() > 1 {
            self.dead.insert(address, Instant::now());
        }
        kept.0.iter().any(|other| *other != address && !self.is_dead(other))
    }

    fn is_dead(&self, address: &SocketAddr) -> bool {
        self.dead.get(address).is_some_and(|since| since.elapsed() < DEAD)
    }

    /// Looks up a name again. The cached addresses stay if the look-up fails.
    pub(super) async fn look_up(&self, host: &str, port: u16) -> Result<SocketAddr, ResolveError> {
        // Addresses that are denied to nodes only are refused when they are used.
        self.find(host, port, Some(EgressPeer::Provider)).await
    }

    pub(super) fn retain(&self, names: impl Fn(&(String, u16)) -> bool) {
        self.known.retain(|name, _| names(name));
        self.dead.retain(|_, since| since.elapsed() < DEAD);
    }

    async fn find(
        &self,
        host: &str,
        port: u16,
        whose: Option<EgressPeer>,
    ) -> Result<SocketAddr, ResolveError> {
        let found =
            tokio::net::lookup_host((host, port)).await.map_err(|_| ResolveError::Unknown)?;
        let addresses = self.choose(found.collect(), whose).await?;
        let address = self.usable(&addresses, whose)?;
        if self.known.len() >= DNS_NAMES {
            self.known.retain(|_, kept| kept.1.elapsed() < DNS_TTL);
        }
        self.known.insert((host.to_string(), port), (addresses, Instant::now()));
        Ok(address)
    }

    /// The allowed addresses, IPv4 before IPv6: many machines have IPv6 without a route. Of several
    /// loopback addresses, those that accept a connection: `localhost` has two, and a server may
    /// listen on only one of them.
    async fn choose(
        &self,
        mut found: Vec<SocketAddr>,
        whose: Option<EgressPeer>,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        found.sort_by_key(SocketAddr::is_ipv6);
        let (several, mut first) = (found.len() > 1, Err(ResolveError::Unknown));
        let mut chosen = Vec::new();
        for address in found {
            let allowed = self.allowed(address, whose);
            let local = several && address.ip().is_loopback();
            let connect = timeout(LOCAL_CONNECT, TcpStream::connect(address));
            if allowed.is_ok() && (!local || matches!(connect.await, Ok(Ok(_)))) {
                chosen.push(address);
            }
            first = first.or(allowed);
        }
        if chosen.is_empty() { Ok(vec![first?]) } else { Ok(chosen) }
    }

    /// The first address that is allowed and did not fail lately, or else the first allowed one.
    fn usable(
        &self,
        addresses: &[SocketAddr],
        whose: Option<EgressPeer>,
    ) -> Result<SocketAddr, ResolveError> {
        let mut first = Err(ResolveError::Unknown);
        for address in addresses {
            let allowed = self.allowed(*address, whose);
            if allowed.is_ok() && (addresses.len() == 1 || !self.is_dead(address)) {
                return allowed;
            }
            first = first.or(allowed);
        }
        first
    }

    fn allowed(
        &self,
        address: SocketAddr,
        whose: Option<EgressPeer>,
    ) -> Result<SocketAddr, ResolveError> {
        whose
            .map_or(Ok(()), |whose| self.egress.check(address, whose))
            .map(|()| address)
            .map_err(|_| ResolveError::Denied)
    }
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
