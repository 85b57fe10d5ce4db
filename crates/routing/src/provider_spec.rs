//! A provider of the routing document as written, one row per key.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde_json::json;

use crate::base_url::BaseUrl;
use crate::presets::{PRESETS, Preset};
use crate::settings::{Authorities, BreakerSettings, HealthCheck, Protocol, StreamUsage, Timeouts};
use rerouter_base::secret::{Secret, is_credential};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_document::kinds::{
    at, credential, duration, flag, inside, reader, some, text_as, whole, words,
};
use rerouter_document::{Diagnostics, Field, Located, Section, ValueKind, expand, section};

/// Maximum number of keys of a provider, as an attempt looks at each of them.
const PROVIDER_KEYS: usize = 32;
/// Largest `max_concurrency` of a provider.
pub const PROVIDER_CONCURRENCY: u64 = 1_000_000;
/// Sample values for a variable in a URL if variables are not read: a whole URL, a scheme, a port.
const URL_SAMPLES: [&str; 3] = ["https://unexpanded.invalid", "https", "1"];

/// Request headers that the gateway sets itself.
const OUR_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
];
/// Whether the gateway sets this request header itself, so that documents cannot. `name` is in
/// lower case.
pub fn is_own_header(name: &str) -> bool {
    OUR_HEADERS.contains(&name)
}

section! {
    /// One provider. Credentials are already expanded.
    #[derive(Debug)]
    pub struct ProviderSpec {
        /// Name of the provider.
        pub name: Located<String>, key;
        /// A [known provider](../providers.md#providers-by-one-word).
        pub preset: Option<Located<&'static Preset>> =
            at(words(PRESETS.each_ref().map(|preset| (preset.name, preset))));
        /// `openai`, `anthropic`, `gemini` or `mock`; default: the preset's, else required.
        pub protocol: Option<Located<Protocol>> =
            at(words(Protocol::ALL.map(|protocol| (protocol.as_str(), protocol))));
        /// Root URL of the API; may have a query; default: the preset's, else required, except for
        /// `mock`.
        pub base_url: Option<Located<Secret>> = url();
        /// The credential, if there is one only.
        pub api_key: Option<Located<Secret>> = provider_key();
        /// Several credentials, used in turn.
        pub api_keys: Option<Located<Vec<Located<Secret>>>> = at(some(
            provider_key(),
            PROVIDER_KEYS,
            "must have at least one key",
            "for example `[\"${OPENAI_API_KEY}\"]`",
        ));
        /// Headers for every request.
        pub headers: Vec<(Located<HeaderName>, HeaderValue)> = headers(), or Vec::new();
        /// Deadlines of an attempt.
        pub timeouts: Timeouts, section;
        /// Requests at once, all models together.
        pub max_concurrency: Option<u32> = whole(1, PROVIDER_CONCURRENCY);
        /// A check in the background; a failure opens the breakers.
        pub health: Option<Located<HealthCheck>> = at(inside());
        /// When a target that fails is left out, and for how long.
        pub breaker: BreakerSettings, section;
        /// Those that the [provider has](../providers.md#endpoints-of-a-provider); others are
        /// translated to the first; default: the preset's or the protocol's.
        pub endpoints: Option<Vec<Located<Endpoint>>> = some(
            at(words(Endpoint::ALL.map(|endpoint| (endpoint.as_str(), endpoint)))),
            Endpoint::ALL.len(),
            "must have at least one endpoint",
            "for example `[chat.completions]`",
        );
        /// Whether streams are asked for their usage: `auto`, `inject`, `never`.
        pub stream_usage: StreamUsage = words([
            ("auto", StreamUsage::Auto),
            ("inject", StreamUsage::Inject),
            ("never", StreamUsage::Never),
        ]), or StreamUsage::Auto;
        /// Offer HTTP/2; default: `false`.
        pub http2: Option<Located<bool>> = at(flag());
        /// Authorities to trust, a PEM file; default: the system's.
        pub ca: Option<Located<Authorities>> = authorities();
        /// How long `mock` waits before it answers; default: none.
        pub latency: Option<Located<Duration>> = at(duration());
    }
    check needs_protocol
}

impl ProviderSpec {
    /// The protocol as written, else the preset's.
    pub fn protocol(&self) -> Option<Protocol> {
        let written = self.protocol.as_ref().map(|protocol| protocol.value);
        written.or(self.preset.as_ref().map(|preset| preset.value.protocol))
    }

    fn needs_protocol(&mut self, section: &mut Section<'_>, faults: &mut Diagnostics<'_>) {
        if !section.is_set("preset") {
            section.require("protocol", faults);
        }
    }
}

/// The URL of a provider. If variables are not read, it is valid if one of the sample values makes
/// it a valid URL.
fn url() -> impl ValueKind<Value = Located<Secret>> {
    text_as("", |field, faults| {
        let variables = faults.variables?;
        let url = variables.secret(field, faults)?;
        let text = field.text(faults)?;
        let has_credential = |url: &str| {
            url.split_once('?').is_some_and(|(_, query)| (variables.has_credential)(query))
        };
        if has_credential(text) || has_credential(url.value.expose()) {
            let message = "the query of the URL must not hold a credential";
            field.reject(faults, message, "use `api_key` or `headers`");
            return None;
        }
        if !variables.expanded {
            // Defaults can be used without the environment, and tell which models the host has.
            let defaults = |name: &str| (variables.lookup)(name).map(|_| None);
            let by_defaults = expand(text, &defaults).ok();
            if let Some(url) = by_defaults.filter(|url| BaseUrl::with_query(url).is_ok()) {
                return Some(field.located(Secret::new(url)));
            }
        }
        if variables.knows(&url.value) || BaseUrl::with_query(url.value.expose()).is_ok() {
            return Some(url);
        }
        let expanded_url = |sample: &&str| {
            let lookup = |name: &str| (variables.lookup)(name).map(|_| Some((*sample).to_owned()));
            expand(text, &lookup).ok()
        };
        let found = URL_SAMPLES
            .iter()
            .filter_map(expanded_url)
            .find(|expanded_url| BaseUrl::with_query(expanded_url).is_ok());
        Some(found.map_or(url, |found| field.located(Secret::new(found))))
    })
}

fn headers() -> impl ValueKind<Value = Vec<(Located<HeaderName>, HeaderValue)>> {
    let schema = || json!({ "type": "object", "additionalProperties": { "type": "string" } });
    reader(schema, |field, faults| {
        let mut found: Vec<(Located<HeaderName>, HeaderValue)> = Vec::new();
        for field in field.section(faults)?.values() {
            let Some(name) = header_name(&field, &found, faults) else { continue };
            let variables = faults.variables?;
            let text = match is_credential(name.value.as_str()) {
                true => variables.credential(&field, faults),
                false => variables.secret(&field, faults),
            };
            let Some(text) = text else { continue };
            match HeaderValue::from_str(text.value.expose()) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    found.push((name, value));
                }
                Err(_) => field.reject(
                    faults,
                    "must be visible ASCII characters",
                    "check for a trailing line break",
                ),
            }
        }
        Some(found)
    })
}

fn header_name(
    field: &Field<'_>,
    found: &[(Located<HeaderName>, HeaderValue)],
    faults: &mut Diagnostics<'_>,
) -> Option<Located<HeaderName>> {
    let key = field.key();
    let (message, hint) = match key.value.parse::<HeaderName>() {
        Err(_) => ("must be the name of a header", "for example `x-team`"),
        Ok(name) if OUR_HEADERS.contains(&name.as_str()) => ("is set by the gateway", "remove it"),
        Ok(name) if found.iter().any(|(other, _)| other.value == name) => {
            ("is a duplicate", "keep one of them")
        }
        Ok(name) => return Some(Located { value: name, path: key.path, at: key.at }),
    };
    faults.push(key.fault(message).hint(Some(hint)));
    None
}

fn provider_key() -> impl ValueKind<Value = Located<Secret>> {
    text_as("", |field, faults| {
        let key = credential().read(field, faults)?;
        let sendable = !key.value.is_empty() && HeaderValue::from_str(key.value.expose()).is_ok();
        if !sendable {
            let hint = "check for a trailing line break";
            field.reject(faults, "must be visible ASCII characters", hint);
        }
        sendable.then_some(key)
    })
}

/// The certificate authorities of a provider. A fault in a document from the API does not say what
/// is wrong with the file, so that nobody can probe the file system. If variables are not read, the
/// file is not read either.
fn authorities() -> impl ValueKind<Value = Located<Authorities>> {
    text_as("", |field, faults| {
        let variables = faults.variables?;
        let path = variables.secret(field, faults)?;
        if !variables.knows(&path.value) {
            return Some(field.located(Authorities::new(Vec::new())));
        }
        let hint = "the path of a PEM file of certificates on the machine of the gateway";
        match (variables.load_authorities)(path.value.expose()) {
            Ok(found) => return Some(field.located(Authorities::new(found))),
            Err(_) if variables.from_api => {
                let fault = field.fault("is not a PEM file of certificates");
                faults.push_local(fault.hint(Some(hint)));
            }
            Err(why) => faults.push_local(field.fault(why).hint(Some(hint))),
        }
        None
    })
}
