//! Which hosts, interfaces and proxies a server document allows.

use std::net::{IpAddr, SocketAddr};

use super::{Problem, Server};
use crate::interface::Interface;
use crate::routing::BaseUrl;

impl Server {
    /// A problem with the value at a path, with its place in the document.
    pub fn problem(&self, path: &str, message: String, hint: &str) -> Problem {
        self.positions.problem(path, message, hint)
    }

    /// Whether the value at a path is certain: it has no fault and needs no unread variable.
    pub fn knows(&self, path: &str) -> bool {
        self.positions.knows(path)
    }

    /// Whether clients use https, be it that a proxy terminates it.
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

    /// Whether the metrics listener accepts a `Host`. On loopback it accepts names of this machine
    /// and those of `metrics.hosts` only, against DNS rebinding. A client without `Host` is no
    /// browser.
    pub fn accepts_metrics_host(&self, authority: Option<&str>) -> bool {
        let Some(authority) = authority.filter(|_| self.metrics.ip().to_canonical().is_loopback())
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
            || self.metrics_hosts.iter().any(|own| *own == authority || own == host)
    }

    /// Whether the listener at this address serves a path of this interface. `/v1/auth`, `/health`
    /// and `/version` are served with PIN and with ROUTER.
    pub fn serves(&self, at: Option<SocketAddr>, interface: Interface, path: &str) -> bool {
        let Some(listener) = at.and_then(|at| self.listener_at(at)) else {
            // A listener of the embedding server: it serves everything.
            return true;
        };
        let shared = path == "/health"
            || path == "/version"
            || path == "/v1/auth"
            || path.starts_with("/v1/auth/");
        listener.interfaces.contains(&interface)
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

    /// Every address that this process listens on.
    pub fn own_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.address).chain([self.metrics])
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

    /// Whether an unnamed proxy on this machine may be in front: the public URL is not local, and
    /// `trusted_proxies` is empty. Then connections from loopback may be from anywhere.
    pub fn may_be_fronted(&self) -> bool {
        let public = self.public_url.as_deref().and_then(|url| BaseUrl::parse(url).ok());
        let local = |host: &str| {
            host == "localhost"
                || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        };
        self.trusted_proxies.is_empty() && public.is_some_and(|public| !local(&public.host))
    }

    /// Whether the `X-Forwarded-For` of this hop is trusted.
    pub fn trusts_proxy(&self, hop: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(hop))
    }

    /// Whether any listener is reachable from another machine.
    pub fn listens_publicly(&self) -> bool {
        !self.listeners.iter().all(|listener| listener.address.ip().to_canonical().is_loopback())
    }
}

/// Whether brackets are around IPv6 addresses only (RFC 9110 section 7.2).
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
mod tests {
    use crate::config::read_server;
    use crate::interface::Interface;

    fn server(text: &str) -> crate::config::Server {
        read_server("test", text, &|_| None).unwrap()
    }

    #[test]
    fn metrics_on_loopback_accept_local_hosts_only() {
        let own = server("metrics: { address: 127.0.0.1:9090 }\nhosts: [never.test]\n");
        let own = crate::config::Server { metrics_hosts: vec!["gw.test".into()], ..own };
        for (host, taken) in [
            (None, true),
            (Some("127.0.0.1:9090"), true),
            (Some("LocalHost:9090"), true),
            (Some("[::1]:9090"), true),
            (Some("127.0.0.9"), true),
            (Some("gw.test:1"), true),
            (Some("localhost.:9090"), true),
            (Some(""), true),
            (Some("never.test"), false),
            (Some("evil.example:9090"), false),
            (Some("127.0.0.1.evil.example"), false),
            (Some("10.0.0.1:9090"), false),
            (Some("."), true),
        ] {
            assert_eq!(own.accepts_metrics_host(host), taken, "{host:?}");
        }
        assert!(
            server("metrics: { address: 0.0.0.0:9090 }\n")
                .accepts_metrics_host(Some("gateway.svc:9090"))
        );
    }

    #[test]
    fn a_loopback_gateway_knows_its_names() {
        let server = server("hosts: [gw.test]\npublic_url: https://gw.example.com\n");
        for good in [
            "127.0.0.1:8080",
            "127.0.0.1",
            "localhost:1",
            "gw.test",
            "gw.test:99",
            "gw.example.com",
            "gw.example.com:443",
        ] {
            assert!(server.accepts_host(good, None), "{good}");
        }
        for bad in ["evil.example", "gw.test.evil", "10.0.0.1:8080", "[::2]"] {
            assert!(!server.accepts_host(bad, None), "{bad}");
        }
        assert!(server.public_https());
    }

    #[test]
    fn a_public_listener_without_a_list_takes_any() {
        let asked = |hosts: &str, at: &str| {
            let listeners = "[{ address: 0.0.0.0:80 }, { address: 127.0.0.1:8080 }, { address: '[::1]:80' }, { address: 10.0.0.1:8080 }]";
            let server = server(&format!("listeners: {listeners}\nhosts: {hosts}\n"));
            server.accepts_host("any.example", Some(at.parse().unwrap()))
        };
        for (at, any) in [
            ("10.0.0.7:80", true),
            ("127.0.0.1:80", true),
            ("[::ffff:10.0.0.7]:80", true),
            ("10.0.0.1:8080", true),
            ("127.0.0.1:8080", false),
            ("[::ffff:127.0.0.1]:8080", false),
            ("[::1]:80", false),
            // Of an embedding server, by its address.
            ("10.0.0.7:81", true),
            ("127.0.0.1:81", false),
        ] {
            assert_eq!((asked("[]", at), asked("[a]", at)), (any, false), "{at}");
        }
        assert!(server("listeners: [{ address: 0.0.0.0:80 }]\n").accepts_host("any.example", None));
        assert!(
            !server("listeners: [{ address: 0.0.0.0:80 }]\nhosts: [a]\n")
                .accepts_host("any.example", None)
        );
    }

    #[test]
    fn a_public_name_without_a_named_proxy_may_be_fronted() {
        for (text, fronted) in [
            ("{}", false),
            ("public_url: http://127.0.0.1:8080\n", false),
            ("public_url: http://localhost\n", false),
            ("public_url: 'http://[::1]:8080'\n", false),
            ("public_url: https://gw.example.com\n", true),
            ("public_url: https://192.0.2.1\n", true),
            ("public_url: https://gw.example.com\ntrusted_proxies: [127.0.0.1]\n", false),
        ] {
            assert_eq!(server(text).may_be_fronted(), fronted, "{text}");
        }
    }

    #[test]
    fn nodes_sign_the_public_name_else_the_address_that_they_connected_to() {
        let signed = |text: &str, at: &str, tls: bool| {
            server(text).signed_authority(Some(at.parse().unwrap()), tls)
        };
        for (at, tls, authority) in [
            ("127.0.0.1:8080", false, "127.0.0.1:8080"),
            ("127.0.0.1:80", false, "127.0.0.1"),
            ("127.0.0.1:443", false, "127.0.0.1:443"),
            ("127.0.0.1:443", true, "127.0.0.1"),
            ("127.0.0.1:80", true, "127.0.0.1:80"),
            ("[::1]:8080", false, "[::1]:8080"),
            ("[::1]:80", false, "[::1]"),
            ("[::ffff:127.0.0.1]:8080", false, "127.0.0.1:8080"),
        ] {
            assert_eq!(signed("{}", at, tls), authority, "{at}");
        }
        for (public, authority) in [
            ("https://GW.example.com/", "gw.example.com"),
            ("https://gw.example.com:443", "gw.example.com"),
            ("https://gw.example.com:80", "gw.example.com:80"),
            ("http://gw.example.com:80", "gw.example.com"),
            ("http://gw.example.com:8080", "gw.example.com:8080"),
            ("https://[2001:DB8::1]:8443", "[2001:db8::1]:8443"),
            ("https://[2001:db8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(
                signed(&format!("public_url: '{public}'\n"), "127.0.0.1:8080", false),
                authority,
                "{public}"
            );
        }
        assert_eq!(server("{}").signed_authority(None, false), "", "nothing can be signed for it");
        // A node signs the path that arrives: a public URL with a path would change it.
        assert!(
            read_server("test", "public_url: https://gw.example.com/llm\n", &|_| None).is_err()
        );
    }

    #[test]
    fn interfaces_are_by_listener() {
        let server = server(
            "listeners: [{ address: 127.0.0.1:1, interfaces: [router] }, { address: 127.0.0.1:2, interfaces: [agent] },
               { address: 127.0.0.2:2, interfaces: [pin] }, { address: 0.0.0.0:3, interfaces: [pin] }]\n",
        );
        let at = |address: &str| Some(address.parse().unwrap());
        assert!(server.serves(at("127.0.0.1:1"), Interface::Router, "/v1/chat/completions"));
        assert!(server.serves(at("127.0.0.1:1"), Interface::Pin, "/v1/auth/login"));
        assert!(!server.serves(at("127.0.0.1:1"), Interface::Pin, "/v1/apikeys"));
        assert!(!server.serves(at("127.0.0.1:1"), Interface::Agent, "/v1/agents"));
        assert!(server.serves(at("127.0.0.1:2"), Interface::Agent, "/v1/agents"));
        assert!(!server.serves(at("127.0.0.1:2"), Interface::Pin, "/health"));
        assert!(
            !server.serves(at("127.0.0.2:2"), Interface::Agent, "/v1/agents"),
            "one port, another address"
        );
        assert!(!server.serves(at("10.0.0.7:3"), Interface::Agent, "/v1/agents"));
        assert!(server.serves(at("10.0.0.7:3"), Interface::Pin, "/v1/apikeys"));
    }
}
