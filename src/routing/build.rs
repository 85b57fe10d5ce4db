//! From the document as written to what runs: every check within the document, all faults at once.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use jiff::tz::TimeZone;

use super::condition::Condition;
use super::document::{
    BreakerSpec, Fault, Located, ModelSpec, ProtocolSpec, ProviderSpec, RecipeSpec, RetryOn, RoutingSpec, RuleSpec, Strategy, TargetSpec,
    did_you_mean,
};
use super::health::BreakerSettings;
use super::recipe::{Base, Choosable, Origin, Prices, Protocol, Provider, Recipe, Retry, Routing, Rule, Target, Timeouts};
use crate::bounds;
use crate::secret::Secret;

/// Names with a meaning of their own as the first segment of a model.
const RESERVED: [&str; 3] = ["agent", "nodes", "direct"];

pub(super) fn build(spec: RoutingSpec, origin: &Origin<'_>) -> Result<Routing, Vec<Fault>> {
    let mut build = Build::new(origin);
    let zone = build.zone(spec.timezone.as_ref());
    build.limit(spec.providers.iter().map(|p| &p.name), bounds::PROVIDERS, "providers");
    build.limit(spec.models.iter().map(|m| &m.name), bounds::ROUTING_NAMES, "models");
    build.limit(spec.recipes.iter().map(|r| &r.name), bounds::ROUTING_NAMES, "recipes");
    build.limit(spec.aliases.iter().map(|(name, _)| name), bounds::ROUTING_NAMES, "aliases");
    // Known before they are read, so that a provider with a fault of its own is not "unknown" as well.
    build.provider_names = spec.providers.iter().map(|provider| provider.name.value.clone()).collect();
    for provider in spec.providers {
        build.provider(provider);
    }
    let models: Vec<&ModelSpec> = spec.models.iter().filter(|model| build.model(model)).collect();
    let recipe_names: Vec<String> = spec.recipes.iter().map(|recipe| recipe.name.value.clone()).collect();
    let recipes: Vec<Arc<Recipe>> = spec.recipes.into_iter().map(|recipe| Arc::new(build.recipe(recipe))).collect();
    let recipe_index: HashMap<Arc<str>, Arc<Recipe>> = recipes.iter().map(|r| (Arc::clone(&r.name), Arc::clone(r))).collect();
    let mut aliases = Vec::new();
    for (alias, recipe) in &spec.aliases {
        build.alias_name(alias);
        match recipe_index.get(recipe.value.as_str()) {
            Some(found) => aliases.push((Arc::from(alias.value.as_str()), Arc::clone(found))),
            None => build.unknown("recipe", recipe, &recipe_names),
        }
    }
    // Reachable by name only: after those of recipes.
    for model in models {
        build.target(&model.name);
    }
    if !build.faults.is_empty() {
        return Err(build.faults);
    }
    Ok(Routing {
        revision: origin.revision.into(),
        text: origin.text.into(),
        zone,
        providers: build.providers,
        targets: build.targets,
        target_index: build.target_index,
        recipes,
        recipe_index,
        alias_index: aliases.iter().cloned().collect(),
        aliases,
    })
}

struct Build<'o> {
    origin: &'o Origin<'o>,
    faults: Vec<Fault>,
    provider_names: Vec<String>,
    providers: Vec<Arc<Provider>>,
    models: HashMap<String, Abilities>,
    targets: Vec<Arc<Target>>,
    target_index: HashMap<Arc<str>, Arc<Target>>,
}

#[derive(Clone, Default)]
struct Abilities {
    prices: Option<Prices>,
    context: Option<u64>,
    capabilities: Option<Vec<String>>,
}

impl<'o> Build<'o> {
    fn new(origin: &'o Origin<'o>) -> Self {
        Build {
            origin,
            faults: Vec::new(),
            provider_names: Vec::new(),
            providers: Vec::new(),
            models: HashMap::new(),
            targets: Vec::new(),
            target_index: HashMap::new(),
        }
    }

    fn zone(&mut self, name: Option<&Located<String>>) -> TimeZone {
        let Some(name) = name else { return TimeZone::UTC };
        TimeZone::get(&name.value).unwrap_or_else(|_| {
            self.faults.push(name.fault("unknown time zone").hint(Some("an IANA name such as UTC or Europe/Berlin")));
            TimeZone::UTC
        })
    }

    fn limit<'a>(&mut self, mut names: impl Iterator<Item = &'a Located<String>>, most: usize, what: &str) {
        if let Some(over) = names.nth(most) {
            self.faults.push(over.fault(format!("more than {most} {what}")));
        }
    }

    fn unknown(&mut self, what: &str, name: &Located<String>, known: &[String]) {
        let hint = did_you_mean(&name.value, known.iter().map(String::as_str)).or_else(|| Some(format!("it is not in `{what}s`")));
        self.faults.push(name.fault(format!("unknown {what} `{}`", name.value)).hint(hint));
    }

    /// Names of providers, recipes and rules become headers and metric labels.
    fn plain_name(&mut self, name: &Located<String>, what: &str) {
        let fits = !name.value.is_empty() && name.value.len() <= bounds::ROUTING_NAME_BYTES;
        if !fits || !name.value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
            let message = format!("a {what}'s name is 1 to {} letters, digits, `-`, `_` or `.`", bounds::ROUTING_NAME_BYTES);
            self.faults.push(name.fault(message));
        } else if RESERVED.contains(&name.value.as_str()) {
            self.faults.push(name.fault(format!("`{}` is a reserved name", name.value)));
        }
    }

    fn alias_name(&mut self, alias: &Located<String>) {
        if !is_model_name(&alias.value) {
            self.faults.push(alias.fault(format!("an alias is 1 to {} visible ASCII characters", bounds::MODEL_NAME_BYTES)));
        } else if RESERVED.contains(&alias.value.split('/').next().unwrap_or("")) {
            self.faults.push(alias.fault(format!("`{}` begins with a reserved name", alias.value)));
        }
    }

    /// One key or several, each once.
    fn keys(&mut self, one: Option<Located<Secret>>, several: Option<Located<Vec<Located<Secret>>>>) -> Vec<Secret> {
        if let (Some(one), Some(_)) = (&one, &several) {
            self.faults.push(one.fault("`api_keys` is there as well"));
        }
        let mut keys: Vec<Secret> = Vec::new();
        for key in several.into_iter().flat_map(|several| several.value).chain(one) {
            if keys.iter().any(|other| other.expose() == key.value.expose()) {
                self.faults.push(key.fault("is the same key as one before it"));
            } else {
                keys.push(key.value);
            }
        }
        keys
    }

    fn provider(&mut self, spec: ProviderSpec) {
        self.plain_name(&spec.name, "provider");
        let Some(protocol) = spec.protocol.as_ref().map(|protocol| protocol.value) else { return };
        let base = match protocol {
            ProtocolSpec::OpenAi => self.remote_base(&spec),
            ProtocolSpec::Mock => self.mock_base(&spec),
        };
        let (Some(base), timeouts) = (base, spec.timeouts) else { return };
        let usual = Timeouts::default();
        let provider = Provider {
            name: spec.name.value.as_str().into(),
            protocol: if protocol == ProtocolSpec::Mock { Protocol::Mock } else { Protocol::OpenAi },
            base,
            api_keys: self.keys(spec.api_key, spec.options.api_keys),
            headers: spec.headers.into_iter().map(|(name, value)| (name.value, value)).collect(),
            timeouts: Timeouts {
                connect: timeouts.connect.unwrap_or(usual.connect),
                first_byte: timeouts.first_byte.unwrap_or(usual.first_byte),
                idle: timeouts.idle.unwrap_or(usual.idle),
                total: timeouts.total.unwrap_or(usual.total),
            },
            ca: spec.options.ca.map(|ca| Arc::new(ca.value)),
            http2: spec.options.http2.is_some_and(|http2| http2.value),
            health: spec.options.health.map(|health| health.value),
            max_concurrency: spec.options.max_concurrency,
            breaker: breaker(&spec.options.breaker),
            state: OnceLock::new(),
        };
        self.providers.push(Arc::new(provider));
    }

    fn remote_base(&mut self, spec: &ProviderSpec) -> Option<Base> {
        if let Some(latency) = &spec.latency {
            self.faults.push(latency.fault("only a `mock` provider has a latency"));
        }
        let authorization = spec.headers.iter().find(|(name, _)| name.value == http::header::AUTHORIZATION);
        let has_key = spec.api_key.is_some() || spec.options.api_keys.is_some();
        if let (true, Some((name, _))) = (has_key, authorization) {
            self.faults.push(name.fault("`api_key` sets this header already"));
        }
        if spec.headers.len() > bounds::PROVIDER_HEADERS {
            self.faults.push(spec.name.fault(format!("more than {} headers", bounds::PROVIDER_HEADERS)));
        }
        let Some(url) = &spec.base_url else {
            self.faults.push(spec.name.fault("`base_url` is missing").hint(Some("base_url: https://api.example.com/v1")));
            return None;
        };
        let base = Base::parse(url.value.expose()).map_err(|wrong| self.faults.push(url.fault(format!("the URL {wrong}")))).ok()?;
        if !base.tls {
            let hint = Some("base_url: https://…");
            let http2 = spec.options.http2.as_ref().filter(|http2| http2.value);
            // Which version is spoken is agreed on within TLS.
            self.faults.extend(http2.map(|http2| http2.fault("HTTP/2 needs https").hint(hint)));
            self.faults.extend(spec.options.ca.as_ref().map(|ca| ca.fault("authorities need https").hint(hint)));
        }
        Some(base)
    }

    /// The mock is reached like any provider: on the loopback port of this process, with its delay in the path.
    fn mock_base(&mut self, spec: &ProviderSpec) -> Option<Base> {
        let keys = spec.options.api_keys.iter().flat_map(|keys| &keys.value);
        for secret in [&spec.base_url, &spec.api_key].into_iter().flatten().chain(keys) {
            self.faults.push(secret.fault("a `mock` provider has none: it is part of this process"));
        }
        if let Some((name, _)) = spec.headers.first() {
            self.faults.push(name.fault("a `mock` provider takes no headers"));
        }
        let options = &spec.options;
        let places = [options.ca.as_ref().map(|ca| ca.fault("")), options.http2.as_ref().map(|http2| http2.fault(""))];
        for mut fault in places.into_iter().flatten().chain(options.health.as_ref().map(|health| health.fault(""))) {
            fault.message = "a `mock` provider has none: it is part of this process".to_owned();
            self.faults.push(fault);
        }
        let latency = spec.latency.as_ref().map_or(std::time::Duration::ZERO, |latency| latency.value);
        if let Some(over) = spec.latency.as_ref().filter(|latency| latency.value > bounds::MOCK_LATENCY) {
            self.faults.push(over.fault(format!("more than {} seconds", bounds::MOCK_LATENCY.as_secs())));
        }
        let at = self.origin.mock.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        Some(Base { tls: false, host: at.ip().to_string(), port: at.port(), path: format!("/{}/v1", latency.as_millis()) })
    }

    /// Whether its name is one that can be asked for.
    fn model(&mut self, spec: &ModelSpec) -> bool {
        let prices = Prices {
            input_per_mtok: spec.input_per_mtok,
            output_per_mtok: spec.output_per_mtok,
            cached_input_per_mtok: spec.cached_input_per_mtok,
        };
        let prices = (prices != Prices::default()).then_some(prices);
        let abilities = Abilities { prices, context: spec.context, capabilities: spec.capabilities.clone() };
        self.models.insert(spec.name.value.clone(), abilities);
        self.named_provider(&spec.name).is_some()
    }

    /// The provider that `provider/model` names, with the model; otherwise says what is wrong, once a place.
    fn named_provider<'n>(&mut self, name: &'n Located<String>) -> Option<(Arc<Provider>, &'n str)> {
        let Some((provider, model)) = name.value.split_once('/').filter(|(_, model)| is_model_name(model)) else {
            self.faults.push(name.fault("a target is `provider/model`").hint(Some("for example `openai/gpt-5-mini`")));
            return None;
        };
        if provider == "nodes" {
            self.faults.push(name.fault("targets on nodes are not supported by this version"));
            return None;
        }
        if !self.provider_names.iter().any(|known| known == provider) {
            let known = self.provider_names.clone();
            self.unknown("provider", &Located { value: provider.to_owned(), path: name.path.clone(), at: name.at }, &known);
            return None;
        }
        self.providers.iter().find(|known| &*known.name == provider).map(|found| (Arc::clone(found), model))
    }

    fn target(&mut self, name: &Located<String>) -> Option<Arc<Target>> {
        if let Some(target) = self.target_index.get(name.value.as_str()) {
            return Some(Arc::clone(target));
        }
        let (provider, model) = self.named_provider(name)?;
        let Abilities { prices, context, capabilities } = self.models.get(&name.value).cloned().unwrap_or_default();
        let target = Arc::new(Target {
            provider,
            model: model.into(),
            name: name.value.as_str().into(),
            prices,
            context,
            capabilities,
            state: OnceLock::new(),
        });
        self.targets.push(Arc::clone(&target));
        self.target_index.insert(Arc::clone(&target.name), Arc::clone(&target));
        Some(target)
    }

    fn recipe(&mut self, spec: RecipeSpec) -> Recipe {
        self.plain_name(&spec.name, "recipe");
        if spec.rules.is_empty() {
            self.faults.push(spec.name.fault("a recipe needs at least one rule"));
        }
        let mut names: HashSet<&str> = HashSet::new();
        let mut conditions: HashMap<&str, &str> = HashMap::new();
        let mut always: Option<&str> = None;
        for rule in &spec.rules {
            self.plain_name(&rule.name, "rule");
            if !names.insert(&rule.name.value) {
                self.faults.push(rule.name.fault(format!("a rule `{}` comes before", rule.name.value)));
            }
            if let Some(before) = always {
                self.faults.push(rule.name.fault(format!("never reached: `{before}` before it always matches")));
            } else if let Some(when) = &rule.when
                && let Some(before) = conditions.insert(when.value.trim(), &rule.name.value)
            {
                self.faults.push(when.fault(format!("never reached: `{before}` before it has the same condition")));
            }
            if rule.when.is_none() {
                always = Some(&rule.name.value);
            }
        }
        if let (None, Some(last)) = (always, spec.rules.last()) {
            let hint = "add a last rule without `when`, for what no other rule matches";
            self.faults.push(last.name.fault("the last rule must have no `when`").hint(Some(hint)));
        }
        let retry = Retry {
            attempts: spec.retry.attempts.unwrap_or(Retry::default().attempts),
            on: spec.retry.on.unwrap_or(RetryOn::ALL),
            budget_percent: spec.retry.budget_percent,
        };
        let rules = spec.rules.into_iter().map(|rule| self.rule(rule)).collect();
        Recipe { name: spec.name.value.as_str().into(), rules, retry, budget: OnceLock::new() }
    }

    fn rule(&mut self, spec: RuleSpec) -> Rule {
        let when = spec.when.as_ref().and_then(|when| match Condition::compile(&when.value) {
            Ok(condition) => {
                let known = self.origin.signal_headers;
                for header in condition.headers().iter().filter(|header| !known.contains(header)) {
                    let fault = when.fault(format!("the header `{header}` is not in `routing.signal_headers` of the server document"));
                    self.faults.push(fault.hint(did_you_mean(header, known.iter().map(String::as_str))));
                }
                Some(condition)
            }
            Err(flaws) => {
                self.faults.extend(flaws.into_iter().map(|flaw| when.fault(flaw.message).hint(flaw.hint)));
                None
            }
        });
        if spec.targets.is_empty() {
            self.faults.push(spec.name.fault("a rule needs at least one target"));
        }
        self.weights(&spec);
        let mut seen = HashSet::new();
        let mut choices = Vec::with_capacity(spec.targets.len());
        for TargetSpec { target, weight } in &spec.targets {
            if !seen.insert(target.value.as_str()) {
                self.faults.push(target.fault(format!("`{}` comes before in this rule", target.value)));
                continue;
            }
            let weight = weight.as_ref().map_or(1.0, |weight| weight.value);
            choices.extend(self.target(target).map(|target| Choosable { target, weight }));
        }
        Rule { name: spec.name.value.as_str().into(), when, strategy: spec.strategy, choices }
    }

    fn weights(&mut self, spec: &RuleSpec) {
        let written: Vec<&Located<f64>> = spec.targets.iter().filter_map(|target| target.weight.as_ref()).collect();
        for weight in &written {
            if spec.strategy != Strategy::Weighted {
                let hint = Some("strategy: weighted");
                self.faults.push(weight.fault(format!("`{}` does not use weights", spec.strategy.as_str())).hint(hint));
            } else if !(0.0..=bounds::WEIGHT_MAX).contains(&weight.value) {
                self.faults.push(weight.fault(format!("a weight is from 0 to {}", bounds::WEIGHT_MAX)));
            }
        }
        let all_zero = !written.is_empty() && written.len() == spec.targets.len() && written.iter().all(|weight| weight.value == 0.0);
        if let (true, Strategy::Weighted, Some(first)) = (all_zero, spec.strategy, written.first()) {
            self.faults.push(first.fault("the weights of this rule sum to 0"));
        }
    }
}

fn breaker(spec: &BreakerSpec) -> BreakerSettings {
    let usual = BreakerSettings::default();
    BreakerSettings {
        consecutive: spec.consecutive.unwrap_or(usual.consecutive),
        error_percent: spec.error_percent.unwrap_or(usual.error_percent),
        min_requests: spec.min_requests.unwrap_or(usual.min_requests),
        window: spec.window.unwrap_or(usual.window),
        open: spec.open.unwrap_or(usual.open),
    }
}

/// Whether it can be a header's value and a metric's label.
fn is_model_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= bounds::MODEL_NAME_BYTES && name.bytes().all(|b| b.is_ascii_graphic())
}
