//! A provider as run: where it is, what it speaks, its credentials and deadlines.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::health::{BreakerSettings, ProviderState};
use crate::protocol::endpoint::Endpoint;
use crate::secret::{Mask, Secret, is_credential};

/// A place that serves models.
#[derive(Debug)]
pub struct Provider {
    /// Its name in the document.
    pub name: Arc<str>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Where it is.
    pub base: Base,
    /// Its credentials; with several, attempts take them in turn.
    pub api_keys: Vec<Secret>,
    /// Sent with every request; marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// What it is sent to know us by, as its answers must not say it to others.
    pub known_by: Mask,
    /// Its deadlines.
    pub timeouts: Timeouts,
    /// Who may vouch for its certificate; `None`: those whom the system trusts.
    pub ca: Option<Arc<Authorities>>,
    /// Whether HTTP/2 is offered to it.
    pub http2: bool,
    /// How it is asked whether it is well.
    pub health: Option<HealthCheck>,
    /// Requests that it may be given at once, all its models together.
    pub max_concurrency: Option<u32>,
    /// Whether it is asked for the usage of streams of which no client asked it.
    pub stream_usage: StreamUsage,
    /// When the breakers of its targets open.
    pub breaker: BreakerSettings,
    pub(super) state: OnceLock<Arc<ProviderState>>,
}

/// The name under which targets on nodes are found, as that of a provider; no provider has it.
pub const NODES: &str = "nodes";

impl Provider {
    /// What stands for all nodes in a document. Requests go to one of them: this one is nowhere.
    pub(super) fn all_nodes() -> Provider {
        let base = Base { tls: false, host: String::new(), port: 0, path: String::new() };
        Provider::of_node(base, None, None, Arc::default())
    }

    /// A node as a provider: what it wants to be shown is its one key, and `places` are those that requests to it take.
    pub fn of_node(base: Base, api_key: Option<Secret>, max_concurrency: Option<u32>, places: Arc<ProviderState>) -> Provider {
        let api_keys: Vec<Secret> = api_key.into_iter().collect();
        Provider {
            name: NODES.into(),
            protocol: Protocol::OpenAi,
            base,
            known_by: known_by(&api_keys, &[]),
            api_keys,
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            ca: None,
            http2: false,
            health: None,
            max_concurrency,
            stream_usage: StreamUsage::default(),
            breaker: BreakerSettings::default(),
            state: OnceLock::from(places),
        }
    }

    /// Whether it is a node, or stands for all of them.
    pub fn is_of_nodes(&self) -> bool {
        &*self.name == NODES
    }

    /// What it is doing: shared with the same provider of other documents once it is live, else its own.
    pub fn state(&self) -> &ProviderState {
        self.state.get_or_init(Arc::default)
    }
}

/// What a provider is sent to know us by: its keys, and of each header that is meant to hold a
/// credential the value without its scheme.
pub(super) fn known_by(api_keys: &[Secret], headers: &[(HeaderName, HeaderValue)]) -> Mask {
    let headers = headers.iter().filter(|(name, _)| is_credential(name.as_str()));
    let of_headers = headers.filter_map(|(_, value)| value.to_str().ok()?.rsplit(' ').next());
    Mask::new(api_keys.iter().map(Secret::expose).chain(of_headers))
}

/// Certificates of authorities.
pub struct Authorities {
    certificates: Vec<Vec<u8>>,
    mark: u64,
}

impl Authorities {
    /// Of certificates in DER that have been checked.
    pub fn new(certificates: Vec<Vec<u8>>) -> Self {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        certificates.iter().for_each(|certificate| hasher.update(certificate));
        Authorities { certificates, mark: hasher.digest() }
    }

    /// Them, in DER.
    pub fn certificates(&self) -> &[Vec<u8>] {
        &self.certificates
    }

    /// Tells one set from another: connections made under one are not used under another.
    pub fn mark(&self) -> u64 {
        self.mark
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("certificates", &self.certificates.len()).finish_non_exhaustive()
    }
}

/// How a provider is asked in the background whether it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Path of the GET, from the root of its host.
    pub path: String,
    /// Time from one to the next.
    pub interval: Duration,
}

/// When a provider is asked for a stream's usage (`stream_options.include_usage`) although the client did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUsage {
    /// Where the caller has a limit that it counts against.
    #[default]
    Auto,
    /// Always.
    Inject,
    /// Never: it refuses what it does not know, or tells it unasked.
    Never,
}

/// What a provider speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OpenAI's HTTP API.
    OpenAi,
    /// Anthropic's HTTP API.
    Anthropic,
    /// The in-process mock, which speaks both.
    Mock,
}

impl Protocol {
    /// The word for it in documents and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::OpenAi => "openai",
            Protocol::Anthropic => "anthropic",
            Protocol::Mock => "mock",
        }
    }

    /// Whether a provider that speaks it can be asked for this.
    pub fn serves(self, endpoint: Endpoint) -> bool {
        match self {
            Protocol::OpenAi => !endpoint.is_anthropic(),
            Protocol::Anthropic => endpoint.is_anthropic(),
            Protocol::Mock => true,
        }
    }

    /// The header that a provider's key is sent in.
    pub fn key_header(self) -> HeaderName {
        match self {
            Protocol::Anthropic => HeaderName::from_static("x-api-key"),
            Protocol::OpenAi | Protocol::Mock => http::header::AUTHORIZATION,
        }
    }
}

/// The root of a provider's API.
#[derive(Clone, PartialEq, Eq)]
pub struct Base {
    /// Whether by https.
    pub tls: bool,
    /// Name or address, an IPv6 address without its brackets.
    pub host: String,
    /// Port, the scheme's own if none was written.
    pub port: u16,
    /// Path that endpoints are appended to: empty, or `/…` without a slash at its end.
    pub path: String,
}

impl Base {
    /// Reads an http or https URL. What is wrong is said without quoting it: it may come from the environment.
    pub fn parse(url: &str) -> Result<Base, &'static str> {
        let uri: http::Uri = url.parse().map_err(|_| "is not a URL")?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("must begin with https:// or http://"),
        };
        let authority = uri.authority().ok_or("names no host")?;
        if authority.as_str().contains('@') {
            return Err("must not hold credentials; use `api_key`");
        }
        if uri.query().is_some() || url.contains('#') {
            return Err("must not have a query or a fragment");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err("names no host");
        }
        let port = match authority.port() {
            Some(port) if port.as_u16() == 0 => return Err("has port 0"),
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(':') || authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':')) => {
                return Err("has a port that is none");
            }
            None => default_port(tls),
        };
        Ok(Base { tls, host, port, path: uri.path().trim_end_matches('/').to_owned() })
    }

    /// With `/v1` at its end, whether it was written or not: Anthropic's clients are given a base without it, OpenAI's one
    /// with it, and people write both.
    #[must_use]
    pub fn versioned(mut self) -> Base {
        if !self.path.ends_with("/v1") {
            self.path.push_str("/v1");
        }
        self
    }

    /// `host` or `host:port`, as the `Host` header has it.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

impl fmt::Debug for Base {
    /// Shows no host or path: they may come from the environment.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("tls", &self.tls).finish_non_exhaustive()
    }
}

/// Deadlines of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until connected, TLS included.
    pub connect: Duration,
    /// From the end of the request to the first byte of the answer.
    pub first_byte: Duration,
    /// Longest silence within an answer.
    pub idle: Duration,
    /// The whole attempt.
    pub total: Duration,
}

impl Default for Timeouts {
    /// Long enough for reasoning models to begin, short enough that a dead provider is left.
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Timeouts { connect: seconds(5), first_byte: seconds(120), idle: seconds(60), total: seconds(600) }
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
