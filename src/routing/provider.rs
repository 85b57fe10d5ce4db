//! A provider as run: where it is, what it speaks, its credentials and deadlines.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::document::ProtocolSpec;
use super::health::{BreakerSettings, ProviderState};
use crate::protocol::endpoint::Endpoint;
use crate::protocol::query::decode_leniently;
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
    /// What its health belongs to, together with its name.
    pub identity: Identity,
    pub(super) state: OnceLock<Arc<ProviderState>>,
}

/// The name under which targets on nodes are found, as that of a provider; no provider has it.
pub const NODES: &str = "nodes";

impl From<ProtocolSpec> for Protocol {
    fn from(written: ProtocolSpec) -> Self {
        match written {
            ProtocolSpec::OpenAi => Protocol::OpenAi,
            ProtocolSpec::Anthropic => Protocol::Anthropic,
            ProtocolSpec::Mock => Protocol::Mock,
        }
    }
}

impl Provider {
    /// What stands for all nodes in a document. Requests go to one of them: this one is nowhere.
    pub(super) fn all_nodes() -> Provider {
        Provider::of_node(Base::default(), None, None, Arc::default())
    }

    /// A node as a provider: what it wants to be shown is its one key, and `places` are those that requests to it take.
    pub fn of_node(
        base: Base,
        api_key: Option<Secret>,
        max_concurrency: Option<u32>,
        places: Arc<ProviderState>,
    ) -> Provider {
        let api_keys: Vec<Secret> = api_key.into_iter().collect();
        Provider {
            name: NODES.into(),
            protocol: Protocol::OpenAi,
            identity: Identity::of(Protocol::OpenAi, &base, &api_keys, &[]),
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

/// An endpoint and what it is asked with: protocol, base URL, keys and headers. It is a digest, as
/// keys and headers hold credentials. A provider that changes any of them is another one to
/// [`super::health`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity([u8; 32]);

impl Identity {
    /// That of a provider with these. The order of keys and headers does not matter.
    pub fn of(
        protocol: Protocol,
        base: &Base,
        keys: &[Secret],
        headers: &[(HeaderName, HeaderValue)],
    ) -> Identity {
        let mut digest = Sha256::new();
        // Each part with its length, so that no two lists of parts read the same.
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        let port = base.port.to_be_bytes();
        let place = [
            protocol.as_str().as_bytes(),
            &[u8::from(base.tls)],
            base.host.as_bytes(),
            &port,
            base.path.as_bytes(),
            base.query.as_bytes(),
        ];
        place.into_iter().for_each(&mut add);
        let mut keys: Vec<&str> = keys.iter().map(Secret::expose).collect();
        keys.sort_unstable();
        add(&(keys.len() as u64).to_be_bytes());
        keys.into_iter().for_each(|key| add(key.as_bytes()));
        let mut headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_unstable();
        headers.into_iter().flat_map(|(name, value)| [name.as_bytes(), value]).for_each(add);
        Identity(digest.finalize().into())
    }
}

impl fmt::Debug for Identity {
    /// Shows nothing: it is made of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
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
        f.debug_struct("Authorities")
            .field("certificates", &self.certificates.len())
            .finish_non_exhaustive()
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
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// Whether by https.
    pub tls: bool,
    /// Name or address, an IPv6 address without its brackets.
    pub host: String,
    /// Port, the scheme's own if none was written.
    pub port: u16,
    /// Path that endpoints are appended to: empty, or `/…` without a slash at its end.
    pub path: String,
    /// The query of every request, without its `?`; mostly empty.
    pub query: String,
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
        let host =
            authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        if host.is_empty() {
            return Err("names no host");
        }
        let port = match authority.port() {
            Some(port) if port.as_u16() == 0 => return Err("has port 0"),
            Some(port) => port.as_u16(),
            None if authority.as_str().ends_with(':')
                || authority.as_str().rsplit(']').next().is_some_and(|rest| rest.contains(':')) =>
            {
                return Err("has a port that is none");
            }
            None => default_port(tls),
        };
        Ok(Base {
            tls,
            host,
            port,
            path: uri.path().trim_end_matches('/').to_owned(),
            query: String::new(),
        })
    }

    /// The same where there may be a query, such as Azure's `?api-version=…`.
    pub fn with_query(url: &str) -> Result<Base, &'static str> {
        let Some((root, query)) = url.split_once('?') else { return Base::parse(url) };
        if query.contains('#') {
            return Err("must not have a fragment");
        }
        let base = Base::parse(root)?;
        // As a part of a URL that has no other flaw.
        url.parse::<http::Uri>().map_err(|_| "is not a URL")?;
        Ok(Base { query: query.to_owned(), ..base })
    }

    /// The target of a request to this endpoint: below the path, with the query of its own first.
    /// Of the client's query it has what its own does not set.
    pub fn target(&self, endpoint: Endpoint, query: Option<&str>) -> String {
        let mut target = [self.path.as_str(), endpoint.path()].concat();
        let own = self.query.as_str();
        let is_free =
            |part: &&str| own.is_empty() || !parameters(own).any(|set| set == name_of(part));
        let mut mark = '?';
        let clients = query.into_iter().flat_map(|query| query.split('&').filter(is_free));
        for part in (!own.is_empty()).then_some(own).into_iter().chain(clients) {
            target.push(std::mem::replace(&mut mark, '&'));
            target.push_str(part);
        }
        target
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
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }
}

/// The names of a query's parameters.
fn parameters(query: &str) -> impl Iterator<Item = String> {
    query.split('&').map(name_of)
}

fn name_of(parameter: &str) -> String {
    decode_leniently(parameter.split('=').next().unwrap_or_default())
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
        Timeouts {
            connect: seconds(5),
            first_byte: seconds(120),
            idle: seconds(60),
            total: seconds(600),
        }
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
