//! The routing document, from its tree to `RoutingSpec`: shapes, words and ranges. What names mean is checked by `routing`.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::authorities;
use super::expand::{Failure, Lookup, expand};
use super::read::{Faults, Field, Section};
use super::tree::{Entry, Node, Value};
use crate::bounds;
use crate::capture::query::holds_credential;
use crate::routing::{
    Authorities, BaseUrl, BreakerSpec, HealthCheck, Located, ModelSpec, Protocol, ProviderOptions,
    ProviderSpec, RecipeSpec, RetryOn, RetrySpec, RoutingSpec, RuleSpec, ShadowSpec, Strategy,
    StreamUsage, TargetSpec, TimeoutsSpec,
};
use crate::secret::{Secret, is_credential};

/// Headers of a request to a provider that are ours to set.
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
/// What a model can be said to be able to do.
const CAPABILITIES: [&str; 4] = ["tools", "vision", "json", "audio"];
/// A deadline beyond this is a mistake of units.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Often enough to see an outage before many clients do.
const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
/// Errors of an hour ago say nothing of now.
const BREAKER_WINDOW_MAX: Duration = Duration::from_secs(3600);

/// Stands for what a variable holds where none is read: a host that is none (RFC 2606).
const PLACEHOLDER: &str = "unexpanded.invalid";

/// The same for a variable of this name, so that two are not taken for one credential.
pub(super) fn placeholder(name: &str) -> String {
    format!("{}.{PLACEHOLDER}", name.replace('_', "-"))
}

/// What a variable in a provider's address may stand for, besides a host or a path: all of it, its scheme, its port.
const URL_FILLINGS: [&str; 3] = ["https://unexpanded.invalid", "https", "1"];

/// How the texts that may hold variables are read.
pub(super) struct Credentials<'a> {
    pub(super) lookup: &'a Lookup<'a>,
    /// The document came by the API: a credential may stand in it as `${…}` only.
    pub(super) given: bool,
    /// Variables have their values, not a placeholder.
    pub(super) expanded: bool,
    /// Placeholders stand for variables without a value or a default.
    pub(super) no_env: bool,
}

/// Reads the document from its tree; `lookup` is for credentials only.
pub(super) fn read(
    root: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> Option<RoutingSpec> {
    let mut top = root.section(faults)?;
    let mut spec = RoutingSpec {
        timezone: top.read("timezone", faults, |f, p| f.name(p)),
        providers: named(&mut top, "providers", faults, |name, field, faults| {
            provider(name, field, lookup, faults)
        }),
        models: named(&mut top, "models", faults, model),
        keywords: named(&mut top, "keywords", faults, |name, field, faults| {
            Some((name, field.each(faults, bounds::KEYWORDS, |word, faults| word.name(faults))))
        }),
        recipes: named(&mut top, "recipes", faults, recipe),
        aliases: named(&mut top, "aliases", faults, |name, field, faults| {
            Some((name, field.name(faults)?))
        }),
        warnings: Vec::new(),
    };
    // A document with neither is most likely the first half of one.
    ["recipes", "aliases"].into_iter().for_each(|key| top.written_out(key, faults));
    top.finish(faults);
    spec.warnings = std::mem::take(&mut faults.warnings);
    Some(spec)
}

/// Each pair of a mapping from the document's own names.
fn named<'a, T>(
    top: &mut Section<'a>,
    key: &'static str,
    faults: &mut Faults,
    mut read: impl FnMut(Located<String>, &Field<'a>, &mut Faults) -> Option<T>,
) -> Vec<T> {
    let pairs = top.below(key, faults).named();
    pairs.into_iter().filter_map(|(name, field)| read(name, &field, faults)).collect()
}

fn provider(
    name: Located<String>,
    field: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> Option<ProviderSpec> {
    let mut section = field.section(faults)?;
    let protocol = section.read("protocol", faults, |field, faults| {
        let words = [
            ("openai", Protocol::OpenAi),
            ("anthropic", Protocol::Anthropic),
            ("mock", Protocol::Mock),
        ];
        field.word(faults, &words).map(|protocol| field.located(protocol))
    });
    if section.take("protocol").is_none() {
        section.missing("protocol", faults);
    }
    let spec = ProviderSpec {
        name,
        protocol,
        base_url: section.read("base_url", faults, |f, p| url(f, lookup, p)),
        api_key: section.read("api_key", faults, |f, p| api_key(f, lookup, p)),
        headers: section.read("headers", faults, |f, p| headers(f, lookup, p)).unwrap_or_default(),
        timeouts: timeouts(&mut section, faults),
        latency: section
            .read("latency", faults, |f, p| f.duration(p).map(|latency| f.located(latency))),
        options: options(&mut section, lookup, faults),
    };
    section.finish(faults);
    Some(spec)
}

/// A provider's address. Where variables are not read, it is well written if some value of them makes it an address.
fn url(
    field: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> Option<Located<Secret>> {
    let url = secret(field, lookup, faults)?;
    let text = field.text(faults)?;
    let shows_one =
        |url: &str| url.split_once('?').is_some_and(|(_, query)| holds_credential(query));
    if shows_one(text) || shows_one(url.value.expose()) {
        faults.push(
            field
                .fault("the query of the URL must not hold a credential")
                .hint(Some("use `api_key` or `headers`")),
        );
        return None;
    }
    let known = lookup.expanded && !url.value.expose().contains(PLACEHOLDER);
    if known || BaseUrl::with_query(url.value.expose()).is_ok() {
        return Some(url);
    }
    let filled = |filling: &&str| {
        expand(text, &|name| (lookup.lookup)(name).map(|_| Some((*filling).to_owned()))).ok()
    };
    let found =
        URL_FILLINGS.iter().filter_map(filled).find(|filled| BaseUrl::with_query(filled).is_ok());
    Some(found.map_or(url, |found| field.located(Secret::new(found))))
}

/// A text that is to be kept from readers of the document.
fn credential(
    field: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> Option<Located<Secret>> {
    let by_name = is_by_name(field.text(faults)?);
    if lookup.given && !by_name {
        let mut fault =
            field.fault("a document that comes by the API may hold a credential as `${…}` only");
        fault.hint = Some(
            "put it into the environment of the gateway and name the variable: ${OPENAI_API_KEY}"
                .to_owned(),
        );
        faults.push(fault);
        return None;
    }
    if !by_name {
        let warning = field.fault("a credential stands in the document in clear");
        let hint = "put it into the environment of the gateway and name the variable, for example `${OPENAI_API_KEY}`";
        faults.warnings.push(warning.hint(Some(hint)));
    }
    secret(field, lookup, faults)
}

/// Whether a text names its credential instead of holding it: variables without defaults, and at most a scheme before them.
fn is_by_name(text: &str) -> bool {
    let text = ["Bearer ", "Basic ", "Token "]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .unwrap_or(text);
    let mut rest = text;
    while let Some((name, after)) =
        rest.strip_prefix("${").and_then(|inside| inside.split_once('}'))
    {
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return false;
        }
        rest = after;
    }
    rest.is_empty() && !text.is_empty()
}

/// Puts a mark in the place of every credential that stands in clear. Whether there was one.
pub(super) fn hide_credentials(root: &mut Node) -> bool {
    let mut hidden = false;
    for provider in below(root, "providers").into_iter().flat_map(entries) {
        for entry in entries(&mut provider.node) {
            match entry.key.as_str() {
                "api_key" => hidden |= hide(&mut entry.node),
                "api_keys" => {
                    if let Value::List(keys) = &mut entry.node.value {
                        hidden |= keys.iter_mut().fold(false, |any, key| hide(key) | any);
                    }
                }
                "headers" => {
                    let headers = entries(&mut entry.node)
                        .filter(|header| is_credential(&header.key.to_ascii_lowercase()));
                    hidden |= headers.fold(false, |any, header| hide(&mut header.node) | any);
                }
                _ => {}
            }
        }
    }
    hidden
}

fn hide(node: &mut Node) -> bool {
    let clear = !matches!(&node.value, Value::Null)
        && !matches!(&node.value, Value::Text { text, .. } if is_by_name(text));
    if clear {
        node.value = Value::Text { text: "[redacted]".to_owned(), plain: false };
    }
    clear
}

fn entries(node: &mut Node) -> impl Iterator<Item = &mut Entry> {
    match &mut node.value {
        Value::Map(entries) => entries.iter_mut(),
        _ => [].iter_mut(),
    }
}

fn below<'a>(node: &'a mut Node, key: &str) -> Option<&'a mut Node> {
    entries(node).find(|entry| entry.key == key).map(|entry| &mut entry.node)
}

/// A text that may hold variables, and is never shown once it has them.
fn secret(
    field: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> Option<Located<Secret>> {
    let text = field.text(faults)?;
    let expanded = match expand(text, lookup.lookup) {
        Err(Failure::Unset(_)) if lookup.no_env => {
            expand(text, &|name| (lookup.lookup)(name).map(|_| Some(placeholder(name))))
        }
        expanded => expanded,
    };
    match expanded {
        Ok(text) => Some(field.located(Secret::new(text))),
        Err(failure) => {
            faults.push(field.fault(failure.message()).hint(Some(super::expand::HINT)));
            None
        }
    }
}

fn headers(
    field: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
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
            faults.push(name.fault("is here twice").hint(Some("keep one of them")));
            continue;
        }
        let read = if is_credential(header.as_str()) { credential } else { secret };
        let Some(text) = read(&field, lookup, faults) else { continue };
        match HeaderValue::from_str(text.value.expose()) {
            Ok(mut value) => {
                value.set_sensitive(true);
                found.push((Located { value: header, path: name.path, at: name.at }, value));
            }
            Err(_) => faults.push(
                field
                    .fault("must be visible ASCII characters")
                    .hint(Some("look for a line break at its end")),
            ),
        }
    }
    Some(found)
}

fn api_key(
    field: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> Option<Located<Secret>> {
    let key = credential(field, lookup, faults)?;
    let sendable = !key.value.is_empty() && HeaderValue::from_str(key.value.expose()).is_ok();
    if !sendable {
        let fault = field.fault("must be visible ASCII characters, as it is sent in a header");
        faults.push(fault.hint(Some("look for a line break at its end")));
    }
    sendable.then_some(key)
}

/// A provider's own authorities. A document that came by the API is not told what is wrong with a file: it must not be able
/// to look around in the file system; and where it is only looked at, no file is read.
fn authorities(
    field: &Field<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> Option<Located<Authorities>> {
    let path = secret(field, lookup, faults)?;
    if !lookup.expanded || path.value.expose().contains(PLACEHOLDER) {
        return Some(field.located(Authorities::new(Vec::new())));
    }
    match authorities::load(path.value.expose()) {
        Ok(found) => Some(field.located(found)),
        Err(why) => {
            let why =
                if lookup.given { "is no file of certificates in PEM".to_owned() } else { why };
            faults.lacking(
                field.fault(why).hint(Some(
                    "the path of a file of certificates in PEM, on the gateway's machine",
                )),
            );
            None
        }
    }
}

fn options(
    section: &mut Section<'_>,
    lookup: &Credentials<'_>,
    faults: &mut Faults,
) -> ProviderOptions {
    let number = |value: u64| u32::try_from(value).ok();
    ProviderOptions {
        api_keys: section.read("api_keys", faults, |field, faults| {
            if field.is_empty_list() {
                faults.push(
                    field
                        .fault("must name a key at least")
                        .hint(Some("for example `[\"${OPENAI_API_KEY}\"]`")),
                );
            }
            Some(
                field.located(
                    field.each(faults, bounds::PROVIDER_KEYS, |f, p| api_key(f, lookup, p)),
                ),
            )
        }),
        ca: section.read("ca", faults, |f, p| authorities(f, lookup, p)),
        http2: section.read("http2", faults, |f, p| f.bool(p).map(|http2| f.located(http2))),
        health: section.read("health", faults, health),
        max_concurrency: section
            .read("max_concurrency", faults, |f, p| f.whole(p, 1, bounds::PROVIDER_CONCURRENCY))
            .and_then(number),
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

fn health(field: &Field<'_>, faults: &mut Faults) -> Option<Located<HealthCheck>> {
    let mut section = field.section(faults)?;
    let path = section.read("path", faults, |field, faults| {
        let path = field.text(faults)?;
        let whole = path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
        if !whole || path.contains('#') {
            faults.push(
                field
                    .fault("must be a path")
                    .hint(Some("from the root of the host, for example `/v1/models`")),
            );
        }
        Some(path.to_owned())
    });
    if section.take("path").is_none() {
        section.missing("path", faults);
    }
    let interval = section.read("interval", faults, |field, faults| {
        let interval = field.duration(faults)?;
        if !(bounds::HEALTH_CHECK_LEAST..=bounds::HEALTH_CHECK_MOST).contains(&interval) {
            faults.push(
                field.fault("must be from 1 second to 1 hour").hint(Some("for example `30s`")),
            );
        }
        Some(interval)
    });
    section.finish(faults);
    Some(field.located(HealthCheck { path: path?, interval: interval.unwrap_or(HEALTH_INTERVAL) }))
}

fn breaker(mut section: Section<'_>, faults: &mut Faults) -> BreakerSpec {
    let number = |value: u64| u32::try_from(value).ok();
    let mut time = |key, most: Duration, faults: &mut Faults| {
        section.read(key, faults, |field, faults| {
            let found = field.positive_duration(faults)?;
            if found > most {
                faults.push(
                    field
                        .fault(format!("must be at most {} minutes", most.as_secs() / 60))
                        .hint(Some("for example `10s`")),
                );
            }
            Some(found)
        })
    };
    let (window, open) = (
        time("window", BREAKER_WINDOW_MAX, faults),
        time("open", bounds::BREAKER_OPEN_MAX, faults),
    );
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

fn timeouts(section: &mut Section<'_>, faults: &mut Faults) -> TimeoutsSpec {
    let mut below = section.below("timeouts", faults);
    let mut read = |key, faults: &mut Faults| {
        below.read(key, faults, |field, faults| {
            let found = field.positive_duration(faults)?;
            if found > TIMEOUT_MAX {
                faults.push(field.fault("must be at most a day").hint(Some("for example `600s`")));
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

fn model(name: Located<String>, field: &Field<'_>, faults: &mut Faults) -> Option<ModelSpec> {
    let mut section = field.section(faults)?;
    let mut price = |key, faults: &mut Faults| {
        section.read(key, faults, |field, faults| {
            let price = field.number(faults)?;
            if price < 0.0 {
                faults.push(
                    field
                        .fault("a price cannot be negative")
                        .hint(Some("leave out a price that is unknown")),
                );
            }
            Some(price)
        })
    };
    let spec = ModelSpec {
        name,
        input_per_mtok: price("input_per_mtok", faults),
        output_per_mtok: price("output_per_mtok", faults),
        cached_input_per_mtok: price("cached_input_per_mtok", faults),
        context: section.read("context", faults, |f, p| f.whole(p, 1, 1 << 40)),
        capabilities: section.read("capabilities", faults, |f, p| {
            let words = CAPABILITIES.map(|word| (word, word));
            Some(f.each(p, CAPABILITIES.len(), |item, p| item.word(p, &words).map(str::to_owned)))
        }),
    };
    section.finish(faults);
    Some(spec)
}

fn recipe(name: Located<String>, field: &Field<'_>, faults: &mut Faults) -> Option<RecipeSpec> {
    let mut section = field.section(faults)?;
    let rules = section.take("rules");
    if rules.is_none() {
        section.missing("rules", faults);
    }
    let rules = rules.map(|field| field.each(faults, bounds::RULES, rule));
    let retry = retry(section.below("retry", faults), faults);
    let shadow = section.read("shadow", faults, shadow);
    section.finish(faults);
    Some(RecipeSpec { name, rules: rules?, retry, shadow })
}

fn shadow(field: &Field<'_>, faults: &mut Faults) -> Option<ShadowSpec> {
    let mut section = field.section(faults)?;
    let target = section.read("target", faults, |f, p| f.name(p));
    let percent = section.read("percent", faults, |field, faults| {
        let percent = field.number(faults)?;
        if !(0.0..=100.0).contains(&percent) {
            faults.push(
                field
                    .fault("must be from 0 to 100")
                    .hint(Some("for example `1`, or `0.1` for one request in a thousand")),
            );
        }
        Some(percent)
    });
    for key in ["target", "percent"] {
        if section.take(key).is_none() {
            section.missing(key, faults);
        }
    }
    section.finish(faults);
    Some(ShadowSpec { target: target?, percent: percent? })
}

fn rule(field: &Field<'_>, faults: &mut Faults) -> Option<RuleSpec> {
    let mut section = field.section(faults)?;
    let name = section.read("name", faults, |f, p| f.name(p));
    if section.take("name").is_none() {
        section.missing("name", faults);
    }
    let when = section.read("when", faults, |f, p| match &f.node.value {
        // `when: true` and `when: stream` are expressions as well as texts.
        Value::Bool(value) => Some(f.located(value.to_string())),
        _ => f.name(p),
    });
    let strategy = section.read("strategy", faults, |field, faults| {
        field.word(faults, &Strategy::ALL.map(|strategy| (strategy.as_str(), strategy)))
    });
    let mut key = section.read("key", faults, |f, p| f.name(p));
    // Weights and keys are judged by the strategy that was meant.
    let strategy_is_wrong = strategy.is_none() && section.take("strategy").is_some();
    let targets = section.take("targets");
    if targets.is_none() {
        section.missing("targets", faults);
    }
    let mut targets =
        targets.map(|field| field.each(faults, bounds::RULE_TARGETS, target)).unwrap_or_default();
    if strategy_is_wrong {
        targets.iter_mut().for_each(|target| target.weight = None);
        key = None;
    }
    section.finish(faults);
    let name = name.unwrap_or_else(|| field.located("unnamed".to_owned()));
    Some(RuleSpec { name, when, strategy: strategy.unwrap_or_default(), key, targets })
}

fn target(field: &Field<'_>, faults: &mut Faults) -> Option<TargetSpec> {
    let mut section = field.section(faults)?;
    let target = section.read("target", faults, |f, p| f.name(p));
    if section.take("target").is_none() {
        section.missing("target", faults);
    }
    let weight = section.read("weight", faults, |f, p| f.number(p).map(|weight| f.located(weight)));
    section.finish(faults);
    Some(TargetSpec { target: target?, weight })
}

fn retry(mut section: Section<'_>, faults: &mut Faults) -> RetrySpec {
    let attempts =
        section.read("attempts", faults, |f, p| f.whole(p, 1, bounds::ATTEMPTS_MAX as u64));
    let on = section.read("on", faults, |field, faults| {
        let mut on = RetryOn::default();
        field.each(faults, 4, |item, faults| {
            if matches!(item.node.value, Value::Int(429)) {
                on.rate_limited = true;
                return Some(());
            }
            match item.word(faults, &[("connect", 0), ("timeout", 1), ("429", 2), ("5xx", 3)])? {
                0 => on.connect = true,
                1 => on.timeout = true,
                2 => on.rate_limited = true,
                _ => on.server_error = true,
            }
            Some(())
        });
        Some(on)
    });
    let budget_percent = section.read("budget", faults, |f, p| f.percent(p, 0, 1_000));
    section.finish(faults);
    RetrySpec { attempts: attempts.and_then(|n| usize::try_from(n).ok()), on, budget_percent }
}
