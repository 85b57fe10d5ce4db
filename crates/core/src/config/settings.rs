//! The server document: one row per key.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::net::Net;
use super::positions::Positions;
use super::telemetry::TelemetrySettings;
use super::values::{
    access_format, address, expressions, host, network, node_authorities, objects, public_url,
    signal_header,
};
use rerouter_base::interface::Interface;
use rerouter_base::log::LogFormat;
use rerouter_captures::archive::ObjectLocation;
use rerouter_captures::redaction::Redactor;
use rerouter_document::kinds::{
    duration, each, flag, inside, path, positive_duration, rate, size, some, text, whole, words,
};
use rerouter_document::{Diagnostics, Located, Section, section};
use rerouter_routing::Authorities;
use rerouter_store::{StoreSettings, StoreUrl};

/// Most entries of a list in the server document.
const SERVER_LIST: usize = 256;
/// Most headers that conditions may test: each is copied into every capture.
const SIGNAL_HEADERS: usize = 32;

section! {
    /// The server document, checked and with its defaults filled in.
    #[derive(Clone)]
    pub struct Server {
        /// Addresses to listen on, each with the interfaces that it serves; default: one at
        /// `127.0.0.1:8080`.
        pub listeners: Vec<Listener> = some(
            inside(),
            SERVER_LIST,
            "at least one listener is needed",
            "without `listeners` there is one on 127.0.0.1:8080",
        ), or vec![Listener::default()];
        /// How clients reach the gateway, without a path: `https://gw.example.com`. Decides the
        /// cookie's `Secure` flag. Where PIN has a listener without ROUTER, the console keeps the
        /// address of that listener.
        pub public_url: Option<String> = public_url();
        /// Accepted `Host` values besides the obvious ones. Empty: loopback listeners take no
        /// others, public ones any.
        pub hosts: Vec<String> = each(host(), SERVER_LIST), or Vec::new();
        /// Networks whose `X-Forwarded-For` is trusted.
        pub trusted_proxies: Vec<Net> = each(network(), SERVER_LIST), or Vec::new();
        /// The listener of metrics and probes.
        pub metrics: MetricsSettings, section;
        /// Worker threads; 0: one a core.
        pub threads: usize = whole(0, 1024), or 0;
        /// Each thread accepts its own connections and has its own connections to providers.
        /// `false`: all threads share them, which spreads few connections evenly.
        pub isolate_threads: bool = flag(), or true;
        /// Directory of accounts, keys and captures, of one process at a time.
        pub data_dir: PathBuf = path(), or PathBuf::from("./data");
        /// The database of accounts, keys and documents.
        pub store: StoreSettings, section;
        /// Where the routing document is, and what it may use.
        pub routing: RoutingFile, section;
        /// What is kept of requests, and for how long.
        pub capture: CaptureSettings, section;
        /// Accounts of people.
        pub pin: PinSettings, section;
        /// Agents.
        pub agent: AgentSettings, section;
        /// Whether the [console](../console.md) is served, beside PIN.
        pub console: bool = flag(), or true;
        /// Sessions of people.
        pub session: SessionSettings, section;
        /// Limits of connections and bodies.
        pub limits: LimitSettings, section;
        /// Machines that serve models.
        pub nodes: NodeSettings, section;
        /// Connections of the gateway to others.
        pub egress: EgressSettings, section;
        /// Who did what.
        pub audit: AuditSettings, section;
        /// Diagnostics, on standard error.
        pub log: LogSettings, section;
        /// A line a request, on standard output.
        pub access_log: AccessLogSettings, section;
        /// What is exported of calls.
        pub telemetry: TelemetrySettings, section;
        /// Places of the values in the document.
        pub(super) positions: Positions, derived;
        /// A routing document that the start made, for a gateway without a file.
        pub made_routing: Option<String>, derived;
    }
    check fits_together
}

impl fmt::Debug for Server {
    /// Hides all values, because any of them may come from the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    fn fits_together(&mut self, section: &mut Section<'_>, faults: &mut Diagnostics<'_>) {
        let mut seen: Vec<SocketAddr> = Vec::new();
        for Listener { place, address, .. } in &self.listeners {
            if seen.iter().any(|other| collide(*other, *address)) {
                let fault = place.fault("another listener has this address");
                faults.push(fault.hint(Some("give each its own port")));
            }
            seen.push(*address);
        }
        // Metrics need no credential, so they must not share an address with clients.
        if seen.iter().any(|listener| collide(*listener, self.metrics.address)) {
            let metrics = section.below("metrics", &mut Diagnostics::default()).take("address");
            if let Some(field) = metrics.or_else(|| section.take("listeners")) {
                let message = "a listener has the address of metrics";
                field.reject(faults, message, "give each its own port");
            }
        }
        let objects = section.below("capture", &mut Diagnostics::default()).take("objects");
        if let Some(field) = objects.filter(|_| !self.may_share_its_store(section)) {
            let hint = "only gateways that share PostgreSQL read it: set `store.url`";
            field.reject(faults, "has no use with SQLite", hint);
        }
    }

    /// Whether other gateways may share the store. Also true if its URL is not known.
    fn may_share_its_store(&self, section: &mut Section<'_>) -> bool {
        let mut store = section.below("store", &mut Diagnostics::default());
        let written = store.take("url").and_then(|url| url.text(&mut Diagnostics::default()));
        matches!(self.store.url, StoreUrl::Postgres(_))
            || (store.is_set("url") && written != Some("sqlite"))
    }

    pub fn registration_is_open(&self) -> bool {
        self.pin.registration.unwrap_or(!self.listens_publicly())
    }

    /// Whether requests may use agents that were last written without a credential.
    pub(crate) fn calls_untrusted(&self) -> bool {
        self.agent.call_untrusted || !self.listens_publicly()
    }
}

/// Whether two listeners at these addresses would conflict. With port 0 each gets its own port. On
/// Linux, `[::]` includes IPv4.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers = |a: IpAddr, b: IpAddr| a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    one.port() != 0 && one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

section! {
    /// An address to listen on.
    #[derive(Clone)]
    pub struct Listener {
        /// Its place in the document.
        pub place: Located<String>, key;
        /// Address and port.
        pub address: SocketAddr = address(), required;
        /// Certificate and key; without them the listener has no TLS.
        pub tls: Option<TlsFiles> = inside();
        /// What is served there.
        pub interfaces: Vec<Interface> = some(
            words(Interface::ALL.map(|interface| (interface.as_str(), interface))),
            Interface::ALL.len(),
            "a listener must serve at least one interface",
            "without `interfaces` it serves all",
        ), or Interface::ALL.to_vec();
    }
}

impl Default for Listener {
    fn default() -> Self {
        let path = "listeners[0]".to_owned();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        let place = Located { path, ..Located::default() };
        Listener { place, address, tls: None, interfaces: Interface::ALL.to_vec() }
    }
}

section! {
    /// PEM files of a listener.
    #[derive(Clone)]
    pub struct TlsFiles {
        /// The chain of certificates, a PEM file; read again when it changes.
        pub cert: PathBuf = path(), required;
        /// The private key, a PEM file; read again when it changes.
        pub key: PathBuf = path(), required;
    }
}

section! {
    #[derive(Clone)]
    pub struct MetricsSettings {
        /// Address of metrics and probes.
        pub address: SocketAddr = address(), or SocketAddr::from((Ipv4Addr::LOCALHOST, 9090));
        /// Further accepted `Host` values of metrics on loopback.
        pub hosts: Vec<String> = each(host(), SERVER_LIST), or Vec::new();
        /// A label of keys, such as `team`: calls, tokens and cost are also counted by its value,
        /// in `rerouter_label_…`.
        pub label: Option<String> = text();
    }
}

section! {
    #[derive(Clone)]
    pub struct RoutingFile {
        /// The routing document; default: `conf/routing.yaml` if it is there.
        pub file: Option<PathBuf> = path();
        /// Keep the routing document in the store; only the API changes it.
        pub store: bool = flag(), or false;
        /// Patterns of the environment variables that it may use.
        pub env_allow: Vec<String> =
            each(text(), SERVER_LIST), or ["*_API_KEY", "*_BASE_URL"].map(str::to_owned).to_vec();
        /// Headers that conditions may look at; copied into captures.
        pub signal_headers: Vec<String> = each(signal_header(), SIGNAL_HEADERS), or Vec::new();
    }
    check has_one_source
}

impl RoutingFile {
    fn has_one_source(&mut self, section: &mut Section<'_>, faults: &mut Diagnostics<'_>) {
        let stored = section.take("store").filter(|_| self.store && self.file.is_some());
        if let Some(field) = stored {
            field.reject(faults, "conflicts with `routing.file`", "remove one of them");
        }
    }
}

section! {
    #[derive(Clone)]
    pub struct CaptureSettings {
        /// Whether requests are captured.
        pub enabled: bool = flag(), or true;
        /// `false`: heads only, nothing can be replayed.
        pub bodies: bool = flag(), or true;
        /// AES-256-GCM, a key for each capture.
        pub encrypt: bool = flag(), or true;
        /// Whether `x-rerouter-capture: off` counts.
        pub client_opt_out: bool = flag(), or true;
        /// Longer bodies are truncated, and cannot be replayed.
        pub max_body: usize = size(0, u64::MAX), or 8 << 20;
        /// Regular expressions; what they match is not kept.
        pub redact: Redactor = expressions(), or Redactor::new(Vec::new());
        /// How long captures are kept, and how many bytes of them.
        pub retention: Retention, section;
        /// With PostgreSQL: where segments of captures go, `s3://bucket/folder`, `gs://…`,
        /// `az://container/…` or `file:///folder`; see
        /// [captures](../operate/captures.md#several-gateways).
        pub objects: Option<ObjectLocation> = objects();
    }
}

section! {
    /// Retention of captures; the oldest are deleted first.
    #[derive(Clone)]
    pub struct Retention {
        /// How long captures are kept.
        pub age: Duration = duration(), or Duration::from_secs(7 * 24 * 3600);
        /// Bytes of captures that are kept; the oldest leave first.
        pub size: u64 = size(0, u64::MAX), or 10 << 30;
    }
}

section! {
    #[derive(Clone)]
    pub struct PinSettings {
        /// Whether people may register: `open` or `closed`; default: `open` if all listeners are
        /// on loopback.
        pub registration: Option<bool> = words([("open", true), ("closed", false)]);
    }
}

section! {
    #[derive(Clone)]
    pub struct AgentSettings {
        /// Whether [untrusted agents](../agents.md) answer; always true if all listeners are on
        /// loopback.
        pub call_untrusted: bool = flag(), or false;
    }
}

section! {
    #[derive(Clone)]
    pub struct SessionSettings {
        /// How long a session lasts without use.
        pub idle: Duration = positive_duration(), or Duration::from_secs(30 * 60);
        /// How long a session lasts in all.
        pub absolute: Duration = positive_duration(), or Duration::from_secs(12 * 3600);
    }
    check ends_in_order
}

impl SessionSettings {
    fn ends_in_order(&mut self, section: &mut Section<'_>, faults: &mut Diagnostics<'_>) {
        if let Some(field) = section.take("idle").filter(|_| self.idle > self.absolute) {
            field.reject(faults, "longer than `absolute`", "shorten it, or lengthen `absolute`");
        }
    }
}

section! {
    /// Limits of connections and bodies.
    #[derive(Clone)]
    pub struct LimitSettings {
        /// For the whole head of a request; the first from the accept on.
        pub header_timeout: Duration = positive_duration(), or Duration::from_secs(10);
        /// Slower bodies are 408; 0: any rate.
        pub body_min_rate: u64 = rate(), or 1 << 10;
        /// Bytes of a request body, as sent, and decoded.
        pub request_body: usize = size(1, 1 << 30), or 32 << 20;
        /// Bytes of all bodies in memory, at least four times `request_body`; default: `512MiB`, or
        /// four times `request_body`.
        pub body_memory: Option<usize> = size(0, u64::MAX);
        /// Connections at once, and further HTTP/2 requests on them.
        pub connections: usize = whole(1, 1_000_000), or 20_000;
        /// Those of one IPv4 address or IPv6 /56; default: a quarter of them.
        pub connections_per_address: Option<usize> = whole(1, 1_000_000);
    }
    check bodies_fit
}

impl LimitSettings {
    /// Each body is held together with its copy for a provider, or with its compressed form.
    fn bodies_fit(&mut self, section: &mut Section<'_>, faults: &mut Diagnostics<'_>) {
        let too_small = self.body_memory.is_some_and(|memory| memory < 4 * self.request_body);
        if let Some(field) = section.take("body_memory").filter(|_| too_small) {
            faults.push(field.fault("must be at least four times `request_body`"));
        }
    }

    /// Maximum bytes of all bodies in memory.
    pub fn body_memory(&self) -> usize {
        self.body_memory.unwrap_or((512 << 20).max(4 * self.request_body))
    }
}

section! {
    #[derive(Clone)]
    pub struct NodeSettings {
        /// Authorities for nodes with https endpoints, a PEM file; default: the system's.
        pub ca: Option<Arc<Authorities>> = node_authorities();
    }
}

section! {
    #[derive(Clone)]
    pub struct EgressSettings {
        /// Networks that are never connected to for providers, nodes and traces; default:
        /// unspecified and metadata addresses.
        pub deny: Vec<Net> = each(network(), SERVER_LIST), or Net::denied_by_default();
    }
}

section! {
    #[derive(Clone)]
    pub struct AuditSettings {
        /// How long rows of the audit are kept, and how many.
        pub retention: AuditRetention, section;
    }
}

section! {
    /// Retention of the audit. What led to a change can still be seen; more rows than a disk holds
    /// are a mistake.
    #[derive(Clone)]
    pub struct AuditRetention {
        /// How long rows are kept.
        pub age: Duration = positive_duration(), or Duration::from_secs(400 * 24 * 3600);
        /// Rows that are kept; the oldest leave first.
        pub rows: u64 = whole(100, 1_000_000_000), or 1_000_000;
    }
}

section! {
    #[derive(Clone)]
    pub struct LogSettings {
        /// Form of the diagnostics: `auto` (text on a terminal, else JSON), `text`, `json`.
        pub format: LogFormat = words(LogFormat::WORDS), or LogFormat::Auto;
    }
}

section! {
    #[derive(Clone)]
    pub struct AccessLogSettings {
        /// The same for the access log; or `off`.
        pub format: Option<LogFormat> = access_format(), or Some(LogFormat::Auto);
    }
}
