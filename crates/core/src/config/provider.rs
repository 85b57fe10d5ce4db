//! Reads the section `providers` of the routing document.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::authorities;
use super::credentials::{CredentialReader, PLACEHOLDER};
use super::diagnostics::Diagnostics;
use super::expand::expand;
use super::read::{Field, Section};
use rerouter_base::secret::{Secret, is_credential};
use rerouter_captures::redaction::is_in_query;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_routing::health::BREAKER_OPEN_MAX;
use rerouter_routing::{
    Authorities, BaseUrl, BreakerSpec, HealthCheck, Located, PRESETS, Protocol, ProviderOptions,
    ProviderSpec, StreamUsage, TimeoutsSpec,
};

/// Keys of one provider: each is looked at for an attempt.
const PROVIDER_KEYS: usize = 32;
/// Shortest interval of a health check.
const HEALTH_CHECK_MIN: Duration = Duration::from_secs(1);
/// Longest interval of a health check.
const HEALTH_CHECK_MAX: Duration = Duration::from_secs(3_600);
/// Largest `max_concurrency` of a provider.
pub const PROVIDER_CONCURRENCY: u64 = 1_000_000;

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
/// Whether documents cannot set this request header, in lower case.
pub fn is_own_header(name: &str) -> bool {
    OUR_HEADERS.contains(&name)
}

/// A longer deadline is a mistake in the unit.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Detects an outage before many clients do.
const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
/// Older errors say nothing about the present.
const BREAKER_WINDOW_MAX: Duration = Duration::from_secs(3600);

/// Sample values of a variable in a URL that is not read: a whole URL, a scheme, a port.
const URL_SAMPLES: [&str; 3] = ["https://unexpanded.invalid", "https", "1"];

pub(super) fn read(
    name: Located<String>,
    field: &Field<'_>,
    credentials: &CredentialReader<'_>,
    faults: &mut Diagnostics,
) -> Option<ProviderSpec> {
    let mut section = field.section(faults)?;
    let protocol = section.read("protocol", faults, |field, faults| {
        let words = Protocol::ALL.map(|protocol| (protocol.as_str(), protocol));
        field.word(faults, &words).map(|protocol| field.located(protocol))
    });
    let preset = section.read("preset", faults, |field, faults| {
        let words = PRESETS.each_ref().map(|preset| (preset.name, preset));
        field.word(faults, &words).map(|preset| field.located(preset))
    });
    let has_preset = preset.is_some() || section.take("preset").is_some();
    if !has_preset {
        section.require("protocol", faults);
    }
    let spec = ProviderSpec {
        name,
        protocol,
        base_url: section.read("base_url", faults, |f, p| url(f, credentials, p)),
        api_key: section.read("api_key", faults, |f, p| api_key(f, credentials, p)),
        headers: section
            .read("headers", faults, |f, p| headers(f, credentials, p))
            .unwrap_or_default(),
        timeouts: timeouts(&mut section, faults),
        latency: section
            .read("latency", faults, |f, p| f.duration(p).map(|latency| f.located(latency))),
        options: ProviderOptions { preset, ..options(&mut section, credentials, faults) },
    };
    section.finish(faults);
    Some(spec)
}

/// The URL of a provider. If variables are not read, it is valid if some sample value makes it so.
fn url(
    field: &Field<'_>,
    credentials: &CredentialReader<'_>,
    faults: &mut Diagnostics,
) -> Option<Located<Secret>> {
    let url = credentials.secret(field, faults)?;
    let text = field.text(faults)?;
    let shows_one = |url: &str| url.split_once('?').is_some_and(|(_, query)| is_in_query(query));
    if shows_one(text) || shows_one(url.value.expose()) {
        field.reject(
            faults,
            "the query of the URL must not hold a credential",
            "use `api_key` or `headers`",
        );
        return None;
    }
    let known = credentials.expanded && !url.value.expose().contains(PLACEHOLDER);
    if known || BaseUrl::with_query(url.value.expose()).is_ok() {
        return Some(url);
    }
    let expanded_url = |sample: &&str| {
        expand(text, &|name| (credentials.lookup)(name).map(|_| Some((*sample).to_owned()))).ok()
    };
    let found = URL_SAMPLES
        .iter()
        .filter_map(expanded_url)
        .find(|expanded_url| BaseUrl::with_query(expanded_url).is_ok());
    Some(found.map_or(url, |found| field.located(Secret::new(found))))
}

fn headers(
    field: &Field<'_>,
    credentials: &CredentialReader<'_>,
    faults: &mut Diagnostics,
) -> Option<Vec<(Located<HeaderName>, HeaderValue)>> {
    let mut found: Vec<(Located<HeaderName>, HeaderValue)> = Vec::new();
    for (name, field) in field.section(faults)?.named() {
        let Ok(header) = name.value.parse::<HeaderName>() else {
            faults.push(
                name.fault("must be the name of a header").hint(Some("for example `x-team`")),
            );
            continue;
        };
        if OUR_HEADERS.contains(&header.as_str()) {
            faults.push(name.fault("is set by the gateway").hint(Some("remove it")));
            continue;
        }
        if found.iter().any(|(other, _)| other.value == header) {
            faults.push(name.fault("is a duplicate").hint(Some("keep one of them")));
            continue;
        }
        let text = match is_credential(header.as_str()) {
            true => credentials.credential(&field, faults),
            false => credentials.secret(&field, faults),
        };
        let Some(text) = text else { continue };
        match HeaderValue::from_str(text.value.expose()) {
            Ok(mut value) => {
                value.set_sensitive(true);
                found.push((Located { value: header, path: name.path, at: name.at }, value));
            }
            Err(_) => field.reject(
                faults,
                "must be visible ASCII characters",
                "check for a trailing line break",
            ),
        }
    }
    Some(found)
}

fn api_key(
    field: &Field<'_>,
    credentials: &CredentialReader<'_>,
    faults: &mut Diagnostics,
) -> Option<Located<Secret>> {
    let key = credentials.credential(field, faults)?;
    let sendable = !key.value.is_empty() && HeaderValue::from_str(key.value.expose()).is_ok();
    if !sendable {
        let fault = field.fault("must be visible ASCII characters");
        faults.push(fault.hint(Some("check for a trailing line break")));
    }
    sendable.then_some(key)
}

/// Authorities of a provider. A document from the API is not told what is wrong with the file, so
/// that nobody can probe the file system; a document that is only checked reads no file.
fn authorities(
    field: &Field<'_>,
    credentials: &CredentialReader<'_>,
    faults: &mut Diagnostics,
) -> Option<Located<Authorities>> {
    let path = credentials.secret(field, faults)?;
    if !credentials.expanded || path.value.expose().contains(PLACEHOLDER) {
        return Some(field.located(Authorities::new(Vec::new())));
    }
    match authorities::load(path.value.expose()) {
        Ok(found) => Some(field.located(found)),
        Err(why) => {
            let why = if credentials.from_api {
                "is not a PEM file of certificates".to_owned()
            } else {
                why
            };
            faults.push_local(field.fault(why).hint(Some(
                "the path of a PEM file of certificates on the machine of the gateway",
            )));
            None
        }
    }
}

fn options(
    section: &mut Section<'_>,
    credentials: &CredentialReader<'_>,
    faults: &mut Diagnostics,
) -> ProviderOptions {
    let number = |value: u64| u32::try_from(value).ok();
    ProviderOptions {
        preset: None,
        api_keys: section.read("api_keys", faults, |field, faults| {
            if field.is_empty_list() {
                field.reject(
                    faults,
                    "must have at least one key",
                    "for example `[\"${OPENAI_API_KEY}\"]`",
                );
            }
            Some(
                field.located(field.each(faults, PROVIDER_KEYS, |f, p| api_key(f, credentials, p))),
            )
        }),
        ca: section.read("ca", faults, |f, p| authorities(f, credentials, p)),
        http2: section.read("http2", faults, |f, p| f.bool(p).map(|http2| f.located(http2))),
        health: section.read("health", faults, health),
        max_concurrency: section
            .read("max_concurrency", faults, |f, p| f.whole(p, 1, PROVIDER_CONCURRENCY))
            .and_then(number),
        endpoints: section.read("endpoints", faults, |field, faults| {
            if field.is_empty_list() {
                let hint = "for example `[chat.completions]`";
                field.reject(faults, "must have at least one endpoint", hint);
            }
            let words = Endpoint::ALL.map(|endpoint| (endpoint.as_str(), endpoint));
            Some(field.each(faults, words.len(), |field, faults| {
                field.word(faults, &words).map(|endpoint| field.located(endpoint))
            }))
        }),
        stream_usage: section.read("stream_usage", faults, |field, faults| {
            field.word(
                faults,
                &[
                    ("auto", StreamUsage::Auto),
                    ("inject", StreamUsage::Inject),
                    ("never", StreamUsage::Never),
                ],
            )
        }),
        breaker: breaker(section.below("breaker", faults), faults),
    }
}

fn health(field: &Field<'_>, faults: &mut Diagnostics) -> Option<Located<HealthCheck>> {
    let mut section = field.section(faults)?;
    let path = section.read("path", faults, |field, faults| {
        let path = field.text(faults)?;
        let whole = path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
        if !whole || path.contains('#') {
            field.reject(
                faults,
                "must be a path",
                "from the root of the host, for example `/v1/models`",
            );
        }
        Some(path.to_owned())
    });
    section.require("path", faults);
    let interval = section.read("interval", faults, |field, faults| {
        let interval = field.duration(faults)?;
        if !(HEALTH_CHECK_MIN..=HEALTH_CHECK_MAX).contains(&interval) {
            field.reject(faults, "must be from 1 second to 1 hour", "for example `30s`");
        }
        Some(interval)
    });
    section.finish(faults);
    Some(field.located(HealthCheck { path: path?, interval: interval.unwrap_or(HEALTH_INTERVAL) }))
}

fn breaker(mut section: Section<'_>, faults: &mut Diagnostics) -> BreakerSpec {
    let number = |value: u64| u32::try_from(value).ok();
    let mut time = |key, most: Duration, faults: &mut Diagnostics| {
        section.read(key, faults, |field, faults| {
            let found = field.positive_duration(faults)?;
            if found > most {
                field.reject(
                    faults,
                    format!("must be at most {} minutes", most.as_secs() / 60),
                    "for example `10s`",
                );
            }
            Some(found)
        })
    };
    let (window, open) =
        (time("window", BREAKER_WINDOW_MAX, faults), time("open", BREAKER_OPEN_MAX, faults));
    let spec = BreakerSpec {
        consecutive: section
            .read("consecutive", faults, |f, p| f.whole(p, 1, 1_000_000))
            .and_then(number),
        error_percent: section.read("error_rate", faults, |f, p| f.percent(p, 1, 100)),
        min_requests: section
            .read("min_requests", faults, |f, p| f.whole(p, 1, 1_000_000))
            .and_then(number),
        window,
        open,
    };
    section.finish(faults);
    spec
}

fn timeouts(section: &mut Section<'_>, faults: &mut Diagnostics) -> TimeoutsSpec {
    let mut below = section.below("timeouts", faults);
    let mut read = |key, faults: &mut Diagnostics| {
        below.read(key, faults, |field, faults| {
            let found = field.positive_duration(faults)?;
            if found > TIMEOUT_MAX {
                field.reject(faults, "must be at most a day", "for example `600s`");
            }
            Some(found)
        })
    };
    let spec = TimeoutsSpec {
        connect: read("connect", faults),
        first_byte: read("first_byte", faults),
        idle: read("idle", faults),
        total: read("total", faults),
    };
    below.finish(faults);
    spec
}
