//! The server document as values.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::limits::LimitSettings;
use super::net::Net;
use super::positions::Positions;
use rerouter_base::interface::Interface;
use rerouter_base::log::LogFormat;
use rerouter_captures::archive::ObjectTarget;
use rerouter_captures::redaction::Redactor;
use rerouter_captures::telemetry::OtlpSettings;
use rerouter_routing::Authorities;
use rerouter_store::StoreSettings;

/// The server document, checked and with its defaults filled in.
#[derive(Clone)]
pub struct Server {
    /// Addresses, each with the interfaces that it serves.
    pub listeners: Vec<Listener>,
    /// URL of the gateway for clients, without a path: `https://gw.example.com`.
    pub public_url: Option<String>,
    /// Further accepted `Host` values, lower-case.
    pub hosts: Vec<String>,
    /// Address of metrics and probes.
    pub metrics: SocketAddr,
    /// Further accepted `Host` values of a metrics listener on loopback.
    pub metrics_hosts: Vec<String>,
    /// Worker threads; 0: one per core.
    pub threads: usize,
    /// Directory of accounts, keys and captures.
    pub data_dir: PathBuf,
    /// The database of accounts and keys.
    pub store: StoreSettings,
    /// Source of the routing document.
    pub routing: RoutingFile,
    /// What captures keep, and for how long.
    pub capture: CaptureSettings,
    /// Whether people may register themselves as PIN users.
    pub registration_open: bool,
    /// Requests may use agents that were last written without a credential: `agent.call_untrusted`,
    /// and always if all listeners are on loopback.
    pub call_untrusted: bool,
    /// Whether the pages of the console are served, beside PIN.
    pub console: bool,
    /// Cookie and lifetime of sessions.
    pub session: SessionSettings,
    /// Limits of connections and bodies.
    pub limits: LimitSettings,
    /// Trusted authorities for certificates of nodes. Default: those of the system.
    pub node_authorities: Option<Arc<Authorities>>,
    /// Networks that the gateway never connects to.
    pub egress_deny: Vec<Net>,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Net>,
    /// Retention of the audit.
    pub audit: AuditRetention,
    /// Form of the diagnostics.
    pub log: LogFormat,
    /// Form of the access log; `None`: off.
    pub access_log: Option<LogFormat>,
    /// Where traces are exported; `None`: nowhere.
    pub telemetry: Option<OtlpSettings>,
    /// Places of the values in the document.
    pub(super) positions: Positions,
}

impl fmt::Debug for Server {
    /// Hides everything: any value may be from the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// An address to listen on.
#[derive(Clone)]
pub struct Listener {
    /// Its path in the document.
    pub path: String,
    pub address: SocketAddr,
    /// Certificate chain and key, as PEM files.
    pub tls: Option<TlsFiles>,
    /// Interfaces that are served there.
    pub interfaces: Vec<Interface>,
}

/// PEM files of a listener.
#[derive(Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Source of the routing document, and what it may use.
#[derive(Clone)]
pub struct RoutingFile {
    pub file: Option<PathBuf>,
    /// The store holds the document; only the API changes it.
    pub stored: bool,
    /// A document that the start made, for a gateway without a file.
    pub made: Option<String>,
    /// Patterns of the environment variables that it may use.
    pub env_allow: Vec<String>,
    /// Headers that conditions may use, lower-case.
    pub signal_headers: Vec<String>,
}

/// What is captured of requests.
#[derive(Clone)]
pub struct CaptureSettings {
    pub enabled: bool,
    /// Bodies are captured too.
    pub bodies: bool,
    /// Bodies are encrypted at rest.
    pub encrypt: bool,
    /// A client may keep its bodies out.
    pub client_opt_out: bool,
    /// Maximum bytes of a captured body; longer ones are truncated.
    pub max_body: usize,
    /// Redacts captures before they are written.
    pub redactor: Redactor,
    pub retention: Retention,
    /// Where complete segments go; `None`: they stay in the data directory only.
    pub objects: Option<ObjectTarget>,
}

/// Retention of captures; the oldest are deleted first.
#[derive(Clone)]
pub struct Retention {
    pub age: Duration,
    pub size: u64,
}

/// Retention of the audit.
#[derive(Clone)]
pub struct AuditRetention {
    pub age: Duration,
    /// Maximum number of rows.
    pub rows: u64,
}

#[derive(Clone)]
pub struct SessionSettings {
    /// Maximum time without use.
    pub idle: Duration,
    /// Maximum time in all.
    pub absolute: Duration,
}
