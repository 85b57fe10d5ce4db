//! The server document: how this process listens, keeps and bounds. Every key has its default here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::authorities;
use super::limits::{self, LimitSettings};
use super::net::Net;
use super::read::{Faults, Field, Section, to_usize};
use super::written::Written;
use crate::bounds;
use crate::capture::redact::{Expression, Redactor};
use crate::interface::Interface;
use crate::routing::{Authorities, BaseUrl};

/// The settings of this process.
#[derive(Clone)]
pub struct Server {
    /// Where clients connect.
    pub listeners: Vec<Listener>,
    /// How clients reach us: `https://gw.example.com`, without a slash at its end.
    pub public_url: Option<String>,
    /// Accepted `Host` values beside the obvious ones, lower-case.
    pub hosts: Vec<String>,
    /// Where metrics and probes are served.
    pub metrics: SocketAddr,
    /// The names, beside this machine's, that they are asked by where only this machine reaches them.
    pub metrics_hosts: Vec<String>,
    /// Worker threads; 0: one a core.
    pub threads: usize,
    /// Where accounts, keys and captures are kept.
    pub data_dir: PathBuf,
    /// Where the routing document comes from.
    pub routing: RoutingFile,
    /// What is kept of requests.
    pub capture: CaptureSettings,
    /// Whether anybody may register.
    pub registration_open: bool,
    /// Whether requests may go through agents whose last writer showed no credential: as `agent.call_untrusted` says, and always
    /// where all listeners are on loopback.
    pub call_untrusted: bool,
    /// How long logins last.
    pub session: SessionSettings,
    /// What a client may take.
    pub limits: LimitSettings,
    /// Who may vouch for the certificates of nodes; none: those whom the system trusts.
    pub node_authorities: Option<Arc<Authorities>>,
    /// Networks that are never connected to.
    pub egress_deny: Vec<Net>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Net>,
    /// How long, and how much, is kept of who did what.
    pub audit: AuditRetention,
    /// Whether each request is logged, as JSON.
    pub access_log: bool,
    /// Where the document says what.
    pub(super) written: Written,
}

impl fmt::Debug for Server {
    /// Shows nothing: any value may have come from the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

/// One address that is listened on.
#[derive(Clone)]
pub struct Listener {
    /// Its path in the document.
    pub path: String,
    /// Address and port.
    pub address: SocketAddr,
    /// Certificate chain and key, as PEM files.
    pub tls: Option<TlsFiles>,
    /// What is served there.
    pub interfaces: Vec<Interface>,
}

/// The files of a listener's identity.
#[derive(Clone)]
pub struct TlsFiles {
    /// Certificate chain.
    pub cert: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Where the routing document comes from, and what it may see.
#[derive(Clone)]
pub struct RoutingFile {
    /// Its file, if the server document names one.
    pub file: Option<PathBuf>,
    /// Whether the store holds it, to be changed by the API only.
    pub stored: bool,
    /// Patterns of the environment variables that it may use.
    pub env_allow: Vec<String>,
    /// Lower-case names of the headers that its expressions may look at.
    pub signal_headers: Vec<String>,
}

/// What is kept of requests.
#[derive(Clone)]
pub struct CaptureSettings {
    /// Anything at all.
    pub enabled: bool,
    /// Bodies too, not heads only.
    pub bodies: bool,
    /// Bodies encrypted at rest.
    pub encrypt: bool,
    /// Whether a client may keep its bodies out.
    pub client_opt_out: bool,
    /// Bytes of a body beyond which it is cut and the capture marked.
    pub max_body: usize,
    /// What is taken out of captures before they are written.
    pub redactor: Redactor,
    /// How long, and how much.
    pub retention: Retention,
}

/// For how long captures are kept, and how many bytes of them; the oldest go first.
#[derive(Clone)]
pub struct Retention {
    /// Older ones go.
    pub age: Duration,
    /// Beyond it the oldest go.
    pub size: u64,
}

/// For how long rows of the audit are kept, and how many of them.
#[derive(Clone)]
pub struct AuditRetention {
    /// Older ones go.
    pub age: Duration,
    /// Beyond it those go first that are strangers' doing, then users', the oldest of them.
    pub rows: u64,
}

/// How long logins last.
#[derive(Clone)]
pub struct SessionSettings {
    /// Without use.
    pub idle: Duration,
    /// In all.
    pub absolute: Duration,
}

/// Variables that a routing document may use.
const ENV_ALLOW: [&str; 2] = ["*_API_KEY", "*_BASE_URL"];
/// Headers that expressions never see: they would be copied into captures.
const CREDENTIAL_HEADERS: [&str; 6] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"];

/// Reads the document from its expanded tree.
pub(super) fn read(root: &Field<'_>, faults: &mut Faults) -> Option<Server> {
    let mut top = root.section(faults)?;
    let listeners = listeners(&mut top, faults);
    let (metrics, metrics_hosts) = metrics(&mut top, &listeners, faults);
    let loopback_only =
        listeners.iter().all(|listener| listener.address.ip().to_canonical().is_loopback());
    let server = Server {
        public_url: top.read("public_url", faults, public_url),
        hosts: top
            .read("hosts", faults, |f, p| Some(f.each(p, bounds::SERVER_LIST, host)))
            .unwrap_or_default(),
        metrics,
        metrics_hosts,
        threads: top.read("threads", faults, |f, p| f.whole(p, 0, 1024)).map_or(0, to_usize),
        data_dir: top.read("data_dir", faults, path).unwrap_or_else(|| PathBuf::from("./data")),
        routing: routing_file(&mut top, faults),
        capture: capture(&mut top, faults),
        registration_open: registration(&mut top, faults).unwrap_or(loopback_only),
        call_untrusted: call_untrusted(&mut top, faults).unwrap_or(false) || loopback_only,
        session: session(&mut top, faults),
        limits: limits::read(&mut top, faults),
        node_authorities: nodes(&mut top, faults),
        egress_deny: egress(&mut top, faults),
        trusted_proxies: top
            .read("trusted_proxies", faults, |f, p| Some(f.each(p, bounds::SERVER_LIST, net)))
            .unwrap_or_default(),
        audit: audit(&mut top, faults),
        access_log: access_log(&mut top, faults),
        listeners,
        written: Written::default(),
    };
    store(&mut top, faults);
    top.finish(faults);
    Some(server)
}

fn call_untrusted(top: &mut Section<'_>, faults: &mut Faults) -> Option<bool> {
    let mut agent = top.below("agent", faults);
    let call_untrusted = agent.read("call_untrusted", faults, |field, faults| field.bool(faults));
    agent.finish(faults);
    call_untrusted
}

fn path(field: &Field<'_>, faults: &mut Faults) -> Option<PathBuf> {
    let text = field.text(faults)?;
    if text.is_empty() || text.contains('\0') {
        faults.push(
            field
                .fault("must be the path of a file or directory")
                .hint(Some("for example `./data`")),
        );
        return None;
    }
    Some(PathBuf::from(text))
}

fn address(field: &Field<'_>, faults: &mut Faults) -> Option<SocketAddr> {
    let found = field.text(faults)?.parse().ok();
    if found.is_none() {
        faults.push(
            field
                .fault("must be an address and a port")
                .hint(Some("for example `127.0.0.1:8080` or `[::]:8080`")),
        );
    }
    found
}

/// Whether two addresses cannot be listened on at once. With port 0 each gets a port of its own; on
/// Linux `[::]` takes IPv4 along.
fn is_one(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers = |a: IpAddr, b: IpAddr| a.is_unspecified() && (a.is_ipv6() || b.is_ipv4());
    one.port() != 0 && one.port() == other.port() && (a == b || covers(a, b) || covers(b, a))
}

fn net(field: &Field<'_>, faults: &mut Faults) -> Option<Net> {
    let found = Net::parse(field.text(faults)?);
    if found.is_none() {
        faults.push(field.fault("must be a network").hint(Some("for example `10.0.0.0/8`")));
    }
    found
}

fn host(field: &Field<'_>, faults: &mut Faults) -> Option<String> {
    let text = field.text(faults)?;
    let authority = text
        .parse::<http::uri::Authority>()
        .ok()
        .filter(|authority| !authority.as_str().contains('@'));
    if authority.is_none() {
        faults.push(
            field
                .fault("must be a host name, with a port if it is not the usual one")
                .hint(Some("for example `gw.example.com`")),
        );
    }
    authority.map(|authority| authority.as_str().to_ascii_lowercase())
}

fn public_url(field: &Field<'_>, faults: &mut Faults) -> Option<String> {
    let found = BaseUrl::parse(field.text(faults)?);
    let wrong = match &found {
        Ok(base) if base.path.is_empty() => None,
        Ok(_) => Some("must not have a path"),
        Err(wrong) => Some(*wrong),
    };
    if let Some(wrong) = wrong {
        faults.push(
            field
                .fault(format!("the URL {wrong}"))
                .hint(Some("for example `https://gw.example.com`")),
        );
    }
    found
        .ok()
        .map(|base| format!("{}://{}", if base.tls { "https" } else { "http" }, base.authority()))
}

fn listeners(top: &mut Section<'_>, faults: &mut Faults) -> Vec<Listener> {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
    let Some(field) = top.take("listeners") else {
        return vec![Listener {
            path: "listeners[0]".to_owned(),
            address: usual,
            tls: None,
            interfaces: Interface::ALL.to_vec(),
        }];
    };
    let mut seen = Vec::new();
    let read = field.each(faults, bounds::SERVER_LIST, |field, faults| {
        let mut section = field.section(faults)?;
        let address = section.read("address", faults, address);
        if section.take("address").is_none() {
            section.missing("address", faults);
        }
        if address.is_some_and(|address| seen.iter().any(|other| is_one(*other, address))) {
            faults.push(
                field
                    .fault("another listener has this address")
                    .hint(Some("give each its own port")),
            );
        }
        seen.extend(address);
        let tls = section.read("tls", faults, tls);
        let interfaces = section.read("interfaces", faults, |field, faults| {
            let words = Interface::ALL.map(|interface| (interface.as_str(), interface));
            let found =
                field.each(faults, Interface::ALL.len(), |item, faults| item.word(faults, &words));
            if field.is_empty_list() {
                faults.push(
                    field
                        .fault("a listener serves at least one interface")
                        .hint(Some("without `interfaces` it serves all")),
                );
            }
            Some(found)
        });
        section.finish(faults);
        let interfaces = interfaces.unwrap_or_else(|| Interface::ALL.to_vec());
        Some(Listener { path: field.path.clone(), address: address?, tls, interfaces })
    });
    if field.is_empty_list() {
        faults.push(
            field
                .fault("at least one listener is needed")
                .hint(Some("without `listeners` there is one on 127.0.0.1:8080")),
        );
    }
    read
}

fn tls(field: &Field<'_>, faults: &mut Faults) -> Option<TlsFiles> {
    let mut section = field.section(faults)?;
    let (cert, key) = (section.read("cert", faults, path), section.read("key", faults, path));
    for name in ["cert", "key"] {
        if section.take(name).is_none() {
            section.missing(name, faults);
        }
    }
    section.finish(faults);
    Some(TlsFiles { cert: cert?, key: key? })
}

/// Metrics ask for no credential, so they never share an address with clients.
fn metrics(
    top: &mut Section<'_>,
    listeners: &[Listener],
    faults: &mut Faults,
) -> (SocketAddr, Vec<String>) {
    let mut section = top.below("metrics", faults);
    let written = section.take("address");
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 9090));
    let found = written.as_ref().map_or(Some(usual), |field| address(field, faults));
    if found.is_some_and(|found| listeners.iter().any(|listener| is_one(listener.address, found))) {
        let place = written.or_else(|| top.take("listeners"));
        faults.extend(place.map(|field| {
            field
                .fault("a listener has the address of metrics")
                .hint(Some("give each its own port"))
        }));
    }
    let hosts = section
        .read("hosts", faults, |f, p| Some(f.each(p, bounds::SERVER_LIST, host)))
        .unwrap_or_default();
    section.finish(faults);
    (found.unwrap_or(usual), hosts)
}

fn store(top: &mut Section<'_>, faults: &mut Faults) {
    let mut section = top.below("store", faults);
    section.read("url", faults, |field, faults| {
        let url = field.text(faults)?;
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            field.unsupported(faults);
        } else if url != "sqlite" {
            faults.push(field.fault("must be `sqlite`").hint(Some("without it, it is")));
        }
        Some(())
    });
    section.finish(faults);
}

fn routing_file(top: &mut Section<'_>, faults: &mut Faults) -> RoutingFile {
    let mut section = top.below("routing", faults);
    let file = section.read("file", faults, path);
    let stored = section.read("store", faults, |field, faults| {
        let stored = field.bool(faults)?;
        if stored && file.is_some() {
            let fault =
                field.fault("keeps the document in the store, yet `routing.file` names a file");
            faults.push(fault.hint(Some("remove one of them")));
        }
        Some(stored)
    });
    let found = RoutingFile {
        file,
        stored: stored.unwrap_or(false),
        env_allow: section
            .read("env_allow", faults, |f, p| {
                Some(f.each(p, bounds::SERVER_LIST, |item, p| item.text(p).map(str::to_owned)))
            })
            .unwrap_or_else(|| ENV_ALLOW.map(str::to_owned).to_vec()),
        signal_headers: section
            .read("signal_headers", faults, |f, p| Some(f.each(p, bounds::SIGNAL_HEADERS, header)))
            .unwrap_or_default(),
    };
    section.finish(faults);
    found
}

fn header(field: &Field<'_>, faults: &mut Faults) -> Option<String> {
    let Ok(name) = field.text(faults)?.parse::<http::HeaderName>() else {
        faults.push(field.fault("must be the name of a header").hint(Some("for example `x-tier`")));
        return None;
    };
    if CREDENTIAL_HEADERS.contains(&name.as_str()) {
        faults.push(
            field
                .fault("holds credentials and is never shown to expressions")
                .hint(Some("name a header that holds no secret")),
        );
        return None;
    }
    Some(name.as_str().to_owned())
}

fn capture(top: &mut Section<'_>, faults: &mut Faults) -> CaptureSettings {
    let mut section = top.below("capture", faults);
    let flag = |section: &mut Section<'_>, key, faults: &mut Faults| {
        section.read(key, faults, |f, p| f.bool(p)).unwrap_or(true)
    };
    let found = CaptureSettings {
        enabled: flag(&mut section, "enabled", faults),
        bodies: flag(&mut section, "bodies", faults),
        encrypt: flag(&mut section, "encrypt", faults),
        client_opt_out: flag(&mut section, "client_opt_out", faults),
        max_body: section.read("max_body", faults, |f, p| f.size(p)).map_or(8 << 20, to_usize),
        retention: retention(&mut section, faults),
        redactor: Redactor::new(
            section
                .read("redact", faults, |f, p| {
                    Some(f.each(p, bounds::REDACT_EXPRESSIONS, expression))
                })
                .unwrap_or_default(),
        ),
    };
    if let Some(field) = section.take("objects")
        && !field.is_null()
    {
        field.unsupported(faults);
    }
    section.finish(faults);
    found
}

fn expression(field: &Field<'_>, faults: &mut Faults) -> Option<Expression> {
    let wrong = |why| {
        field
            .fault(format!("no expression to redact by: {why}"))
            .hint(Some("for example `\\b\\d{16}\\b`"))
    };
    Expression::new(field.text(faults)?).map_err(|why| faults.push(wrong(why))).ok()
}

fn retention(capture: &mut Section<'_>, faults: &mut Faults) -> Retention {
    let mut section = capture.below("retention", faults);
    let found = Retention {
        age: section
            .read("age", faults, |f, p| f.duration(p))
            .unwrap_or(Duration::from_secs(7 * 24 * 3600)),
        size: section.read("size", faults, |f, p| f.size(p)).unwrap_or(10 << 30),
    };
    section.finish(faults);
    found
}

fn audit(top: &mut Section<'_>, faults: &mut Faults) -> AuditRetention {
    let mut audit = top.below("audit", faults);
    let mut section = audit.below("retention", faults);
    let found = AuditRetention {
        age: section
            .read("age", faults, |f, p| f.positive_duration(p))
            .unwrap_or(Duration::from_secs(400 * 24 * 3600)),
        rows: section
            .read("rows", faults, |f, p| {
                f.whole(p, bounds::AUDIT_ROWS_LEAST, bounds::AUDIT_ROWS_MOST)
            })
            .unwrap_or(1_000_000),
    };
    section.finish(faults);
    audit.finish(faults);
    found
}

fn registration(top: &mut Section<'_>, faults: &mut Faults) -> Option<bool> {
    let mut section = top.below("pin", faults);
    let found = section
        .read("registration", faults, |f, p| f.word(p, &[("open", true), ("closed", false)]));
    section.finish(faults);
    found
}

fn session(top: &mut Section<'_>, faults: &mut Faults) -> SessionSettings {
    let mut section = top.below("session", faults);
    let idle = section
        .read("idle", faults, |f, p| f.positive_duration(p))
        .unwrap_or(Duration::from_secs(30 * 60));
    let absolute = section
        .read("absolute", faults, |f, p| f.positive_duration(p))
        .unwrap_or(Duration::from_secs(12 * 3600));
    if let Some(field) = section.take("idle").filter(|_| idle > absolute) {
        faults.push(
            field.fault("longer than `absolute`").hint(Some("shorten it, or lengthen `absolute`")),
        );
    }
    section.finish(faults);
    SessionSettings { idle, absolute }
}

fn nodes(top: &mut Section<'_>, faults: &mut Faults) -> Option<Arc<Authorities>> {
    let mut section = top.below("nodes", faults);
    let found =
        section.read("ca", faults, |field, faults| match authorities::load(field.text(faults)?) {
            Ok(found) => Some(Arc::new(found)),
            Err(why) => {
                faults.lacking(
                    field.fault(why).hint(Some("the path of a file of certificates in PEM")),
                );
                None
            }
        });
    section.finish(faults);
    found
}

fn egress(top: &mut Section<'_>, faults: &mut Faults) -> Vec<Net> {
    let mut section = top.below("egress", faults);
    let found = section.read("deny", faults, |f, p| Some(f.each(p, bounds::SERVER_LIST, net)));
    section.finish(faults);
    found.unwrap_or_else(Net::denied)
}

fn access_log(top: &mut Section<'_>, faults: &mut Faults) -> bool {
    let mut section = top.below("access_log", faults);
    // Plain `off` is text in YAML 1.2, and a boolean to those who know 1.1.
    let found = section.read("format", faults, |f, p| f.word(p, &[("json", true), ("off", false)]));
    section.finish(faults);
    found.unwrap_or(true)
}
