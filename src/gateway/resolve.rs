//! Names of providers to addresses: looked up off the workers, kept for a short time, and never an address that
//! the egress policy denies. The cache holds one entry a provider host, so configuration bounds it.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use dashmap::DashMap;

use crate::bounds::DNS_TTL;
use crate::config::Net;

/// A cache of looked-up names.
pub(super) struct Resolver {
    denied: Vec<Net>,
    known: DashMap<(String, u16), (SocketAddr, Instant)>,
}

/// Why there is no address.
#[derive(Debug)]
pub(super) enum Unresolved {
    /// The name has no address.
    Unknown,
    /// It has only addresses that the egress policy denies.
    Denied,
}

impl Resolver {
    pub(super) fn new(denied: Vec<Net>) -> Self {
        Resolver { denied, known: DashMap::new() }
    }

    /// The address of `host`. `own` says that it is our in-process provider, which the policy does not concern.
    pub(super) async fn address(&self, host: &str, port: u16, own: bool) -> Result<SocketAddr, Unresolved> {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return self.allowed(SocketAddr::new(address, port), own);
        }
        let key = (host.to_string(), port);
        let kept = self.known.get(&key).filter(|kept| kept.1.elapsed() < DNS_TTL).map(|kept| kept.0);
        if let Some(address) = kept {
            return self.allowed(address, own);
        }
        let found = tokio::net::lookup_host((host, port)).await.map_err(|_| Unresolved::Unknown)?;
        let mut why_not = Unresolved::Unknown;
        // IPv4 first: many machines have IPv6 addresses that lead nowhere, and an attempt has one address.
        let mut found: Vec<SocketAddr> = found.collect();
        found.sort_by_key(SocketAddr::is_ipv6);
        for address in found {
            match self.allowed(address, own) {
                Ok(address) => {
                    self.known.insert(key, (address, Instant::now()));
                    return Ok(address);
                }
                Err(why) => why_not = why,
            }
        }
        Err(why_not)
    }

    fn allowed(&self, address: SocketAddr, own: bool) -> Result<SocketAddr, Unresolved> {
        let ip = address.ip().to_canonical();
        if own || !self.denied.iter().any(|net| net.contains(ip)) { Ok(address) } else { Err(Unresolved::Denied) }
    }
}
