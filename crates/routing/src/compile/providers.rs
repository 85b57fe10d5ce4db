//! Compiles providers.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::compiler::Compiler;
use super::warnings;
use crate::base_url::BaseUrl;
use crate::presets::Preset;
use crate::price_list;
use crate::provider::{Provider, ProviderIdentity, credentials};
use crate::provider_spec::ProviderSpec;
use crate::request_head::{RequestHead, header_of};
use crate::settings::{KeyHeader, Protocol};
use rerouter_base::bounds;
use rerouter_base::secret::Secret;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_document::Located;

/// Maximum number of static headers of a provider.
const PROVIDER_HEADERS: usize = 32;

const NO_MOCK_SETTING: &str = "a `mock` provider has none: it is part of this process";

impl Compiler<'_> {
    pub(super) fn provider(&mut self, spec: ProviderSpec) {
        self.plain_name(&spec.name, "provider");
        let Some(protocol) = spec.protocol() else { return };
        let preset = spec.preset.as_ref().map(|preset| preset.value);
        let key_header = preset.and_then(|preset| preset.key).unwrap_or(protocol.key_header());
        if let (Some(written), Some(preset)) = (&spec.protocol, preset)
            && preset.protocol != protocol
        {
            let message = format!("`{}` speaks `{}`", preset.name, preset.protocol.as_str());
            self.fault(written, message, "remove `protocol`");
        }
        let base = if protocol.is_remote() {
            let base = self.remote_base(&spec, key_header);
            if protocol.is_versioned() { base.map(BaseUrl::versioned) } else { base }
        } else {
            Some(self.mock_base(&spec))
        };
        let Some(base) = base else { return };
        let price_list = match preset {
            _ if self.without_price_list => None,
            Some(preset) => price_list::part_of(preset),
            None => price_list::part_of_host(&base.host),
        };
        let known = preset.and_then(|preset| preset.endpoints(&base));
        let known = known.unwrap_or(protocol.endpoints());
        let endpoints = self.endpoints(protocol, known, spec.endpoints);
        let api_keys = self.api_keys(spec.api_key, spec.api_keys);
        let headers: Vec<_> =
            spec.headers.into_iter().map(|(name, value)| (name.value, value)).collect();
        let provider = Provider {
            name: spec.name.value.as_str().into(),
            shown: header_of(&spec.name.value),
            protocol,
            endpoints,
            identity: ProviderIdentity::of(protocol, &base, &api_keys, &headers),
            head: RequestHead::new((protocol, key_header), &base, &api_keys, &headers),
            base,
            known_by: credentials(&api_keys, &headers),
            api_keys,
            headers,
            timeouts: spec.timeouts,
            ca: spec.ca.map(|ca| Arc::new(ca.value)),
            http2: spec.http2.is_some_and(|http2| http2.value),
            health: spec.health.map(|health| health.value),
            max_concurrency: spec.max_concurrency,
            stream_usage: spec.stream_usage,
            price_list,
            breaker: spec.breaker,
            state: OnceLock::new(),
        };
        self.providers.push(Arc::new(provider));
    }

    /// The endpoints of a provider: `written` ones, else the `known` ones.
    fn endpoints(
        &mut self,
        protocol: Protocol,
        known: &[Endpoint],
        written: Option<Vec<Located<Endpoint>>>,
    ) -> Vec<Endpoint> {
        let Some(written) = written else { return known.to_vec() };
        let mut found = Vec::with_capacity(written.len());
        for endpoint in written {
            if !protocol.endpoints().contains(&endpoint.value) {
                let word = protocol.as_str();
                let known = protocol.endpoints().iter().map(|known| known.as_str());
                let hint = match known.collect::<Vec<_>>().join(", ") {
                    none if none.is_empty() => "remove `endpoints`".to_owned(),
                    known => format!("it has {known}"),
                };
                self.fault(&endpoint, format!("`{word}` has no such endpoint"), hint);
            } else if found.contains(&endpoint.value) {
                self.fault(&endpoint, "is a duplicate", "keep one of them");
            } else {
                found.push(endpoint.value);
            }
        }
        found
    }

    /// The keys of `api_key` or `api_keys`, without duplicates.
    fn api_keys(
        &mut self,
        one: Option<Located<Secret>>,
        several: Option<Located<Vec<Located<Secret>>>>,
    ) -> Vec<Secret> {
        if let (Some(one), Some(_)) = (&one, &several) {
            self.fault(one, "`api_keys` is set as well", "keep one of the two");
        }
        let mut keys: Vec<Secret> = Vec::new();
        for key in several.into_iter().flat_map(|several| several.value).chain(one) {
            if keys.iter().any(|other| other.expose() == key.value.expose()) {
                self.fault(&key, "repeats an earlier key", "remove one of them");
            } else {
                keys.push(key.value);
            }
        }
        keys
    }

    fn remote_base(&mut self, spec: &ProviderSpec, key_header: KeyHeader) -> Option<BaseUrl> {
        if let Some(latency) = &spec.latency {
            self.fault(latency, "only a `mock` provider has a latency", "remove it");
        }
        let credential = spec.headers.iter().find(|(name, _)| name.value == key_header.name());
        let has_key = spec.api_key.is_some() || spec.api_keys.is_some();
        if let (true, Some((name, _))) = (has_key, credential) {
            self.fault(name, "`api_key` sets this header already", "keep one of the two");
        }
        if spec.headers.len() > PROVIDER_HEADERS {
            let message = format!("more than {} headers", PROVIDER_HEADERS);
            self.fault(&spec.name, message, "remove some");
        }
        let preset = spec.preset.as_ref().map(|preset| preset.value);
        let Some(url) = &spec.base_url else {
            if let Some(base) = preset.and_then(Preset::base) {
                return Some(base);
            }
            let example = match (preset, spec.protocol()) {
                (Some(preset), _) => preset.url,
                (None, protocol) => protocol.unwrap_or(Protocol::OpenAi).example(),
            };
            self.fault(&spec.name, "`base_url` is missing", format!("base_url: {example}"));
            return None;
        };
        let base = match BaseUrl::with_query(url.value.expose()) {
            Ok(base) => preset.map_or_else(|| base.clone(), |preset| preset.complete(base.clone())),
            Err(wrong) => {
                let hint = "for example `https://api.example.com/v1`";
                self.fault(url, format!("the URL {wrong}"), hint);
                return None;
            }
        };
        self.warnings.extend(warnings::of_base(url, &base));
        if !base.tls {
            let hint = "base_url: https://…";
            // HTTP/2 is negotiated within TLS.
            if let Some(http2) = spec.http2.as_ref().filter(|http2| http2.value) {
                self.fault(http2, "HTTP/2 needs https", hint);
            }
            if let Some(ca) = &spec.ca {
                self.fault(ca, "authorities need https", hint);
            }
        }
        Some(base)
    }

    /// The mock is reached like any provider, on a loopback port of this process. The path holds
    /// its latency.
    fn mock_base(&mut self, spec: &ProviderSpec) -> BaseUrl {
        let keys = spec.api_keys.iter().flat_map(|keys| &keys.value);
        for secret in [&spec.base_url, &spec.api_key].into_iter().flatten().chain(keys) {
            self.fault(secret, NO_MOCK_SETTING, "remove it");
        }
        if let Some((name, _)) = spec.headers.first() {
            self.fault(name, "a `mock` provider takes no headers", "remove them");
        }
        if let Some(ca) = &spec.ca {
            self.fault(ca, NO_MOCK_SETTING, "remove it");
        }
        if let Some(http2) = &spec.http2 {
            self.fault(http2, NO_MOCK_SETTING, "remove it");
        }
        if let Some(health) = &spec.health {
            self.fault(health, NO_MOCK_SETTING, "remove it");
        }
        let latency = spec.latency.as_ref().map_or(Duration::ZERO, |latency| latency.value);
        if let Some(over) = spec.latency.as_ref().filter(|_| latency > bounds::MOCK_LATENCY) {
            let message = format!("more than {} seconds", bounds::MOCK_LATENCY.as_secs());
            self.fault(over, message, "for example `20ms`");
        }
        let at = self.origin.mock.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        BaseUrl {
            host: at.ip().to_string(),
            port: at.port(),
            path: format!("/{}/v1", latency.as_millis()),
            ..BaseUrl::default()
        }
    }
}
