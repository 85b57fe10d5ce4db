//! A provider of a compiled document: its address, protocol, credentials and deadlines.

use std::fmt;
use std::sync::{Arc, OnceLock};

use http::{HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::base_url::BaseUrl;
use super::health::ProviderState;
use super::request_head::{RequestHead, header_of};
use super::settings::{
    Authorities, BreakerSettings, HealthCheck, KeyHeader, Protocol, StreamUsage, Timeouts,
};
use rerouter_base::secret::{Mask, Secret, is_credential};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::protocol::Way;

#[derive(Debug)]
pub struct Provider {
    pub name: Arc<str>,
    /// The name as a header value.
    pub shown: HeaderValue,
    pub protocol: Protocol,
    /// The endpoints that it has. A request to another endpoint that generates answers is
    /// translated to the first of these endpoints that generates answers.
    pub endpoints: Vec<Endpoint>,
    pub base: BaseUrl,
    /// Credentials. If there are several, attempts use them in turn.
    pub api_keys: Vec<Secret>,
    /// Headers for every request, marked sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Prepared heads of requests; `None` if a part of them is no valid header or URI.
    pub head: Option<RequestHead>,
    /// The credentials again, to mask them in answers.
    pub known_by: Mask,
    pub timeouts: Timeouts,
    /// Accepted certificate authorities; `None`: the system's.
    pub ca: Option<Arc<Authorities>>,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    pub health: Option<HealthCheck>,
    /// Limit on concurrent requests, all models together.
    pub max_concurrency: Option<u32>,
    pub stream_usage: StreamUsage,
    /// The name of its part of the shipped price list, if the list applies.
    pub price_list: Option<&'static str>,
    pub breaker: BreakerSettings,
    /// Identifies its health state, together with the name.
    pub identity: ProviderIdentity,
    pub(super) state: OnceLock<Arc<ProviderState>>,
}

/// Provider name of targets on nodes. It is reserved.
pub const NODES: &str = "nodes";

impl Provider {
    /// The provider of `nodes/…` targets. It has no address: each attempt goes to one node.
    pub(super) fn all_nodes() -> Provider {
        Provider::of_node(BaseUrl::default(), None, None, Arc::default())
    }

    /// How requests to an endpoint reach this provider; `None` if they cannot.
    pub fn way(&self, endpoint: Endpoint) -> Option<Way> {
        self.protocol.way(&self.endpoints, endpoint)
    }

    /// Whether it takes `max_completion_tokens`. OpenAI's newer models refuse `max_tokens`. Other
    /// servers with its protocol know only `max_tokens`.
    pub fn takes_completion_tokens(&self) -> bool {
        let host = self.base.host.as_str();
        host.ends_with(".openai.com") || host.ends_with(".azure.com")
    }

    /// Whether it takes earlier thinking as `reasoning_content`. These refuse calls of tools
    /// without it (api-docs.deepseek.com/guides/thinking_mode, platform.moonshot.ai/docs/guide).
    pub fn takes_reasoning_content(&self) -> bool {
        let hosts = ["api.deepseek.com", "api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"];
        hosts.contains(&self.base.host.as_str())
    }

    /// A node as a provider. `state` counts the requests to it.
    pub fn of_node(
        base: BaseUrl,
        api_key: Option<Secret>,
        max_concurrency: Option<u32>,
        state: Arc<ProviderState>,
    ) -> Provider {
        let api_keys: Vec<Secret> = api_key.into_iter().collect();
        Provider {
            name: NODES.into(),
            shown: header_of(NODES),
            protocol: Protocol::OpenAi,
            endpoints: Protocol::OpenAi.endpoints().to_vec(),
            identity: ProviderIdentity::of(Protocol::OpenAi, &base, &api_keys, &[]),
            head: RequestHead::new((Protocol::OpenAi, KeyHeader::Bearer), &base, &api_keys, &[]),
            base,
            known_by: credentials(&api_keys, &[]),
            api_keys,
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            ca: None,
            http2: false,
            health: None,
            max_concurrency,
            stream_usage: StreamUsage::default(),
            price_list: None,
            breaker: BreakerSettings::default(),
            state: OnceLock::from(state),
        }
    }

    /// Whether it is a node, or the provider of all `nodes/…` targets.
    pub fn is_of_nodes(&self) -> bool {
        &*self.name == NODES
    }

    /// Its health state. A live document takes it over from its predecessor; any other document has
    /// its own.
    pub fn state(&self) -> &ProviderState {
        self.state.get_or_init(Arc::default)
    }
}

/// Digest of protocol, base URL, keys and headers. A provider that changes one of them is a new
/// provider to [`super::health`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProviderIdentity([u8; 32]);

impl ProviderIdentity {
    /// The order of keys and headers does not matter.
    pub fn of(
        protocol: Protocol,
        base: &BaseUrl,
        keys: &[Secret],
        headers: &[(HeaderName, HeaderValue)],
    ) -> ProviderIdentity {
        let mut digest = Sha256::new();
        // The length before each part keeps different lists of parts apart.
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        let port = base.port.to_be_bytes();
        let address = [
            protocol.as_str().as_bytes(),
            &[u8::from(base.tls)],
            base.host.as_bytes(),
            &port,
            base.path.as_bytes(),
            base.query.as_bytes(),
        ];
        address.into_iter().for_each(&mut add);
        let mut keys: Vec<&str> = keys.iter().map(Secret::expose).collect();
        keys.sort_unstable();
        add(&(keys.len() as u64).to_be_bytes());
        keys.into_iter().for_each(|key| add(key.as_bytes()));
        let mut headers: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_unstable();
        headers.into_iter().flat_map(|(name, value)| [name.as_bytes(), value]).for_each(add);
        ProviderIdentity(digest.finalize().into())
    }
}

impl fmt::Debug for ProviderIdentity {
    /// Omits the digest: it is made of secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderIdentity")
    }
}

/// Keys, and the values of credential headers without their scheme.
pub(super) fn credentials(api_keys: &[Secret], headers: &[(HeaderName, HeaderValue)]) -> Mask {
    let headers = headers.iter().filter(|(name, _)| is_credential(name.as_str()));
    let of_headers = headers.filter_map(|(_, value)| value.to_str().ok()?.rsplit(' ').next());
    Mask::new(api_keys.iter().map(Secret::expose).chain(of_headers))
}
