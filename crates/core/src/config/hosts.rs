//! The hosts, interfaces and proxies that a server document allows.

use std::net::{IpAddr, SocketAddr};

use super::{Problem, Server};
use rerouter_base::interface::Interface;
use rerouter_base::unread::network;
use rerouter_routing::BaseUrl;

impl Server {
    /// A problem with the value at a path, with its place in the document.
    pub fn problem(&self, path: &str, message: String, hint: &str) -> Problem {
        self.positions.problem(path, message, hint)
    }

    /// Whether the value at a path is certain: it has no fault and needs no unread variable.
    pub fn knows(&self, path: &str) -> bool {
        self.positions.knows(path)
    }

    /// Whether clients use https, even if a proxy terminates it.
    pub fn public_https(&self) -> bool {
        self.public_url.as_deref().is_some_and(|url| url.starts_with("https://"))
    }

    /// Whether a listener accepts a `Host` (lower-case): its address, `localhost`, the public URL's
    /// host, or a listed one. Without a list, a public listener accepts any host. A listener on
    /// loopback never does: any web page could reach it by DNS rebinding.
    pub fn accepts_host(&self, authority: &str, listener: Option<SocketAddr>) -> bool {
        let host = host_of(authority);
        let public =
            self.public_url.as_deref().and_then(|url| url.split("://").nth(1)).unwrap_or_default();
        let listed = self.hosts.iter().any(|own| own == authority || own == host);
        let address: Option<IpAddr> = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse()
            .ok()
            .filter(|_| has_correct_brackets(host));
        let ours = || {
            address
                .is_some_and(|address| self.listeners.iter().any(|own| own.address.ip() == address))
        };
        let this_socket =
            address.is_some() && address == listener.map(|listener| listener.ip().to_canonical());
        if listed
            || host == "localhost"
            || (!public.is_empty() && (public == authority || host_of(public) == host))
            || this_socket
            || ours()
        {
            return true;
        }
        let loopback = |at: SocketAddr| {
            self.listener_at(at).map_or(at, |own| own.address).ip().to_canonical().is_loopback()
        };
        self.hosts.is_empty()
            && listener.map_or_else(|| self.listens_publicly(), |at| !loopback(at))
    }

    /// Whether the metrics listener accepts a `Host`. On loopback it accepts only names of this
    /// machine and those of `metrics.hosts`, against DNS rebinding. A request without `Host` is
    /// accepted, because no browser sends one.
    pub fn accepts_metrics_host(&self, authority: Option<&str>) -> bool {
        let Some(authority) =
            authority.filter(|_| self.metrics.address.ip().to_canonical().is_loopback())
        else {
            return true;
        };
        let authority = authority.to_ascii_lowercase();
        let host = host_of(&authority).trim_end_matches('.');
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let loopback =
            bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        let named = matches!(host, "" | "localhost" | "localhost.localdomain" | "ip6-localhost");
        named
            || (loopback && has_correct_brackets(host))
            || self.metrics.hosts.iter().any(|own| *own == authority || own == host)
    }

    /// Whether the listener at this address serves a path of this interface. `/v1/auth`, `/health`
    /// and `/version` are served with PIN and with ROUTER. A console page is served if the listener
    /// has PIN and the interface that the page is about.
    pub fn serves(&self, at: Option<SocketAddr>, interface: Interface, path: &str) -> bool {
        let Some(listener) = at.and_then(|at| self.listener_at(at)) else {
            // A listener of the embedding server, which serves everything.
            return true;
        };
        let shared = path == "/health"
            || path == "/version"
            || path == "/v1/auth"
            || path.starts_with("/v1/auth/");
        let page = path.strip_prefix("/console/").and_then(|rest| rest.split('/').next());
        let stands_for = match page {
            Some("captures" | "clients" | "playground" | "routing") => Interface::Router,
            Some("agent-key" | "agents") => Interface::Agent,
            _ => interface,
        };
        [interface, stands_for].iter().all(|interface| listener.interfaces.contains(interface))
            || (shared && listener.interfaces.contains(&Interface::Router))
    }

    /// The listener that accepts connections to this address.
    pub fn listener_at(&self, at: SocketAddr) -> Option<&super::Listener> {
        let exact = |listener: &&super::Listener| {
            listener.address.ip().to_canonical() == at.ip().to_canonical()
        };
        let wild =
            |listener: &&super::Listener| listener.address.ip().to_canonical().is_unspecified();
        let mut listeners =
            self.listeners.iter().filter(|listener| listener.address.port() == at.port());
        listeners.clone().find(exact).or_else(|| listeners.find(wild))
    }

    pub fn own_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).chain([self.metrics.address])
    }

    /// The `@authority` that nodes sign (RFC 9421 section 2.2.3): that of the public URL, else the
    /// address that they connected to, without the default port of the scheme.
    pub fn signed_authority(&self, connected_to: Option<SocketAddr>, tls: bool) -> String {
        if let Some((_, public)) = self.public_url.as_deref().and_then(|url| url.split_once("://"))
        {
            return public.to_owned();
        }
        let Some(at) = connected_to else { return String::new() };
        let base = BaseUrl {
            tls,
            host: at.ip().to_canonical().to_string(),
            port: at.port(),
            ..BaseUrl::default()
        };
        base.authority()
    }

    /// Whether an unnamed proxy on this machine may be in front of the gateway: the public URL is
    /// not local, and `trusted_proxies` is empty. Then connections from loopback may come from
    /// anywhere.
    pub fn may_be_fronted(&self) -> bool {
        let public = self.public_url.as_deref().and_then(|url| BaseUrl::parse(url).ok());
        let local = |host: &str| {
            host == "localhost"
                || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        };
        self.trusted_proxies.is_empty() && public.is_some_and(|public| !local(&public.host))
    }

    pub fn trusts_proxy(&self, hop: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(hop))
    }

    /// The network whose connections this one counts with. Clients behind a trusted proxy share its
    /// address, so they count with no network.
    pub fn counted(&self, peer: Option<IpAddr>) -> Option<IpAddr> {
        peer.filter(|peer| !self.trusts_proxy(*peer)).map(network)
    }

    /// Whether any listener is reachable from another machine.
    pub fn listens_publicly(&self) -> bool {
        !self.listeners.iter().all(|listener| listener.address.ip().to_canonical().is_loopback())
    }
}

/// Whether the host has brackets exactly if it is an IPv6 address (RFC 9110 section 7.2).
fn has_correct_brackets(host: &str) -> bool {
    let bracketed = host.starts_with('[') && host.ends_with(']');
    bracketed == host.contains(':') && !host.starts_with("[[") && !host.ends_with("]]")
}

/// The host of `host[:port]`.
fn host_of(authority: &str) -> &str {
    match authority.rfind(':') {
        Some(at) if !authority.get(at..).unwrap_or_default().contains(']') => {
            authority.get(..at).unwrap_or(authority)
        }
        _ => authority,
    }
}

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
