//! From the document as written to what runs: every check within the document, all faults at once.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use jiff::tz::TimeZone;

use super::condition::{Compiled, Condition, Flaw, Key};
use super::document::{
    Fault, Findings, Located, ModelSpec, ProtocolSpec, ProviderSpec, RecipeSpec, RetryOn,
    RoutingSpec, RuleSpec, Strategy, TargetSpec, did_you_mean,
};
use super::keywords::{self, Keywords};
use super::provider::{Base, Identity, NODES, Protocol, Provider, Timeouts, known_by};
use super::recipe::{
    Choosable, Costly, Origin, Prices, Recipe, Retry, Routing, Rule, Shadow, Target,
};
use super::warnings;
use crate::bounds;
use crate::secret::Secret;

/// Names with a meaning of their own as the first segment of a model.
const RESERVED: [&str; 3] = ["agent", NODES, "direct"];

pub(super) fn build(spec: RoutingSpec, origin: &Origin<'_>) -> Result<Routing, Findings> {
    let mut build = Build::new(origin);
    build.warnings = spec.warnings;
    let zone = build.zone(spec.timezone.as_ref());
    build.limit(spec.providers.iter().map(|p| &p.name), bounds::PROVIDERS, "providers");
    build.limit(spec.models.iter().map(|m| &m.name), bounds::ROUTING_NAMES, "models");
    build.limit(spec.recipes.iter().map(|r| &r.name), bounds::ROUTING_NAMES, "recipes");
    build.limit(spec.aliases.iter().map(|(name, _)| name), bounds::ROUTING_NAMES, "aliases");
    // Known before they are read, so that a provider with a fault of its own is not "unknown" as well.
    build.provider_names =
        spec.providers.iter().map(|provider| provider.name.value.clone()).collect();
    for provider in spec.providers {
        build.provider(provider);
    }
    let models: Vec<&ModelSpec> = spec.models.iter().filter(|model| build.model(model)).collect();
    let keywords = build.keywords(&spec.keywords);
    let recipe_names: Vec<String> =
        spec.recipes.iter().map(|recipe| recipe.name.value.clone()).collect();
    let recipes: Vec<Arc<Recipe>> =
        spec.recipes.into_iter().map(|recipe| Arc::new(build.recipe(recipe))).collect();
    let recipe_index: HashMap<Arc<str>, Arc<Recipe>> =
        recipes.iter().map(|r| (Arc::clone(&r.name), Arc::clone(r))).collect();
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
    let (true, Some(keywords)) = (build.faults.is_empty(), keywords) else {
        return Err(Findings { faults: build.faults, warnings: build.warnings });
    };
    Ok(Routing {
        revision: origin.revision.into(),
        text: origin.text.into(),
        zone,
        signals: build.signals,
        keywords,
        providers: build.providers,
        targets: build.targets,
        target_index: build.target_index,
        recipes,
        recipe_index,
        alias_index: aliases.iter().cloned().collect(),
        aliases,
        warnings: build.warnings,
    })
}

struct Build<'o> {
    origin: &'o Origin<'o>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
    provider_names: Vec<String>,
    set_names: Vec<String>,
    signals: Costly,
    providers: Vec<Arc<Provider>>,
    /// What all targets on nodes have for a provider.
    nodes: Arc<Provider>,
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
            warnings: Vec::new(),
            provider_names: Vec::new(),
            set_names: Vec::new(),
            signals: Costly::default(),
            providers: Vec::new(),
            nodes: Arc::new(Provider::all_nodes()),
            models: HashMap::new(),
            targets: Vec::new(),
            target_index: HashMap::new(),
        }
    }

    fn zone(&mut self, name: Option<&Located<String>>) -> TimeZone {
        let Some(name) = name else { return TimeZone::UTC };
        TimeZone::get(&name.value).unwrap_or_else(|_| {
            self.faults.push(
                name.fault("unknown time zone")
                    .hint(Some("an IANA name such as UTC or Europe/Berlin")),
            );
            TimeZone::UTC
        })
    }

    fn limit<'a>(
        &mut self,
        mut names: impl Iterator<Item = &'a Located<String>>,
        most: usize,
        what: &str,
    ) {
        if let Some(over) = names.nth(most) {
            self.faults
                .push(over.fault(format!("more than {most} {what}")).hint(Some("remove some")));
        }
    }

    fn unknown(&mut self, what: &str, name: &Located<String>, known: &[String]) {
        let hint = did_you_mean(&name.value, known.iter().map(String::as_str))
            .or_else(|| Some(format!("it is not in `{what}s`")));
        self.faults.push(name.fault(format!("unknown {what} `{}`", name.value)).hint(hint));
    }

    /// Names of providers, recipes and rules become headers and metric labels.
    fn plain_name(&mut self, name: &Located<String>, what: &str) {
        let fits = !name.value.is_empty() && name.value.len() <= bounds::ROUTING_NAME_BYTES;
        if !fits
            || !name
                .value
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        {
            let message = format!(
                "a {what}'s name is 1 to {} letters, digits, `-`, `_` or `.`",
                bounds::ROUTING_NAME_BYTES
            );
            self.faults.push(name.fault(message).hint(Some("for example `main`")));
        } else if RESERVED.contains(&name.value.as_str()) {
            self.faults.push(
                name.fault(format!("`{}` is a reserved name", name.value))
                    .hint(Some("choose another")),
            );
        }
    }

    fn alias_name(&mut self, alias: &Located<String>) {
        if !is_model_name(&alias.value) {
            self.faults.push(
                alias
                    .fault(format!(
                        "an alias is 1 to {} visible ASCII characters",
                        bounds::MODEL_NAME_BYTES
                    ))
                    .hint(Some("for example `auto`")),
            );
        } else if RESERVED.contains(&alias.value.split('/').next().unwrap_or("")) {
            self.faults.push(
                alias
                    .fault(format!("`{}` begins with a reserved name", alias.value))
                    .hint(Some("choose another")),
            );
        }
    }

    /// One key or several, each once.
    fn keys(
        &mut self,
        one: Option<Located<Secret>>,
        several: Option<Located<Vec<Located<Secret>>>>,
    ) -> Vec<Secret> {
        if let (Some(one), Some(_)) = (&one, &several) {
            self.faults
                .push(one.fault("`api_keys` is there as well").hint(Some("keep one of the two")));
        }
        let mut keys: Vec<Secret> = Vec::new();
        for key in several.into_iter().flat_map(|several| several.value).chain(one) {
            if keys.iter().any(|other| other.expose() == key.value.expose()) {
                self.faults.push(
                    key.fault("is the same key as one before it").hint(Some("remove one of them")),
                );
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
            ProtocolSpec::OpenAi => self.remote_base(&spec, Protocol::OpenAi),
            ProtocolSpec::Anthropic => {
                self.remote_base(&spec, Protocol::Anthropic).map(Base::versioned)
            }
            ProtocolSpec::Mock => self.mock_base(&spec),
        };
        let (Some(base), timeouts) = (base, spec.timeouts) else { return };
        let usual = Timeouts::default();
        let protocol = Protocol::from(protocol);
        let api_keys = self.keys(spec.api_key, spec.options.api_keys);
        let headers: Vec<_> =
            spec.headers.into_iter().map(|(name, value)| (name.value, value)).collect();
        let provider = Provider {
            name: spec.name.value.as_str().into(),
            protocol,
            identity: Identity::of(protocol, &base, &api_keys, &headers),
            base,
            known_by: known_by(&api_keys, &headers),
            api_keys,
            headers,
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
            stream_usage: spec.options.stream_usage.unwrap_or_default(),
            breaker: spec.options.breaker.settings(),
            state: OnceLock::new(),
        };
        self.providers.push(Arc::new(provider));
    }

    fn remote_base(&mut self, spec: &ProviderSpec, protocol: Protocol) -> Option<Base> {
        if let Some(latency) = &spec.latency {
            self.faults.push(
                latency.fault("only a `mock` provider has a latency").hint(Some("remove it")),
            );
        }
        let credential = spec.headers.iter().find(|(name, _)| name.value == protocol.key_header());
        let has_key = spec.api_key.is_some() || spec.options.api_keys.is_some();
        if let (true, Some((name, _))) = (has_key, credential) {
            self.faults.push(
                name.fault("`api_key` sets this header already").hint(Some("keep one of the two")),
            );
        }
        if spec.headers.len() > bounds::PROVIDER_HEADERS {
            self.faults.push(
                spec.name
                    .fault(format!("more than {} headers", bounds::PROVIDER_HEADERS))
                    .hint(Some("remove some")),
            );
        }
        let Some(url) = &spec.base_url else {
            let hint = if protocol == Protocol::Anthropic {
                "https://api.anthropic.com"
            } else {
                "https://api.example.com/v1"
            };
            self.faults.push(
                spec.name.fault("`base_url` is missing").hint(Some(format!("base_url: {hint}"))),
            );
            return None;
        };
        let base = Base::with_query(url.value.expose())
            .map_err(|wrong| {
                self.faults.push(
                    url.fault(format!("the URL {wrong}"))
                        .hint(Some("for example `https://api.example.com/v1`")),
                )
            })
            .ok()?;
        self.warnings.extend(warnings::of_base(url, &base));
        if !base.tls {
            let hint = Some("base_url: https://…");
            let http2 = spec.options.http2.as_ref().filter(|http2| http2.value);
            // Which version is spoken is agreed on within TLS.
            self.faults.extend(http2.map(|http2| http2.fault("HTTP/2 needs https").hint(hint)));
            self.faults.extend(
                spec.options.ca.as_ref().map(|ca| ca.fault("authorities need https").hint(hint)),
            );
        }
        Some(base)
    }

    /// The mock is reached like any provider: on the loopback port of this process, with its delay in the path.
    fn mock_base(&mut self, spec: &ProviderSpec) -> Option<Base> {
        let keys = spec.options.api_keys.iter().flat_map(|keys| &keys.value);
        for secret in [&spec.base_url, &spec.api_key].into_iter().flatten().chain(keys) {
            self.faults.push(
                secret
                    .fault("a `mock` provider has none: it is part of this process")
                    .hint(Some("remove it")),
            );
        }
        if let Some((name, _)) = spec.headers.first() {
            self.faults
                .push(name.fault("a `mock` provider takes no headers").hint(Some("remove them")));
        }
        let options = &spec.options;
        let places = [
            options.ca.as_ref().map(|ca| ca.fault("")),
            options.http2.as_ref().map(|http2| http2.fault("")),
        ];
        for mut fault in places
            .into_iter()
            .flatten()
            .chain(options.health.as_ref().map(|health| health.fault("")))
        {
            fault.message = "a `mock` provider has none: it is part of this process".to_owned();
            fault.hint = Some("remove it".to_owned());
            self.faults.push(fault);
        }
        let latency =
            spec.latency.as_ref().map_or(std::time::Duration::ZERO, |latency| latency.value);
        if let Some(over) =
            spec.latency.as_ref().filter(|latency| latency.value > bounds::MOCK_LATENCY)
        {
            self.faults.push(
                over.fault(format!("more than {} seconds", bounds::MOCK_LATENCY.as_secs()))
                    .hint(Some("for example `20ms`")),
            );
        }
        let at = self.origin.mock.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        Some(Base {
            host: at.ip().to_string(),
            port: at.port(),
            path: format!("/{}/v1", latency.as_millis()),
            ..Base::default()
        })
    }

    /// Whether its name is one that can be asked for.
    fn model(&mut self, spec: &ModelSpec) -> bool {
        let prices = Prices {
            input_per_mtok: spec.input_per_mtok,
            output_per_mtok: spec.output_per_mtok,
            cached_input_per_mtok: spec.cached_input_per_mtok,
        };
        let prices = (prices != Prices::default()).then_some(prices);
        let abilities =
            Abilities { prices, context: spec.context, capabilities: spec.capabilities.clone() };
        self.models.insert(spec.name.value.clone(), abilities);
        self.named_provider(&spec.name).is_some()
    }

    /// The provider that `provider/model` names, with the model; otherwise says what is wrong, once a place.
    fn named_provider<'n>(
        &mut self,
        name: &'n Located<String>,
    ) -> Option<(Arc<Provider>, &'n str)> {
        let Some((provider, model)) =
            name.value.split_once('/').filter(|(_, model)| is_model_name(model))
        else {
            self.faults.push(
                name.fault("a target is `provider/model`")
                    .hint(Some("for example `openai/gpt-5-mini`")),
            );
            return None;
        };
        if provider == NODES {
            return Some((Arc::clone(&self.nodes), model));
        }
        if !self.provider_names.iter().any(|known| known == provider) {
            let known = self.provider_names.clone();
            self.unknown(
                "provider",
                &Located { value: provider.to_owned(), path: name.path.clone(), at: name.at },
                &known,
            );
            return None;
        }
        self.providers
            .iter()
            .find(|known| &*known.name == provider)
            .map(|found| (Arc::clone(found), model))
    }

    fn target(&mut self, name: &Located<String>) -> Option<Arc<Target>> {
        if let Some(target) = self.target_index.get(name.value.as_str()) {
            return Some(Arc::clone(target));
        }
        let (provider, model) = self.named_provider(name)?;
        let Abilities { prices, context, capabilities } =
            self.models.get(&name.value).cloned().unwrap_or_default();
        self.warnings.extend(warnings::of_price(name, &provider, prices));
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

    /// `None` when the sets are at fault.
    fn keywords(&mut self, sets: &[(Located<String>, Vec<Located<String>>)]) -> Option<Keywords> {
        self.limit(sets.iter().map(|(name, _)| name), bounds::KEYWORD_SETS, "keyword sets");
        self.set_names = sets.iter().map(|(name, _)| name.value.clone()).collect();
        let before = self.faults.len();
        for (name, words) in sets {
            self.plain_name(name, "keyword set");
            if words.is_empty() {
                self.faults.push(
                    name.fault(
                        "a keyword set needs at least one word: this one could never be hit",
                    )
                    .hint(Some("add a word, or remove it")),
                );
            }
            let mut seen = HashSet::new();
            for word in words {
                if word.value.trim().is_empty() {
                    self.faults.push(
                        word.fault("a keyword needs a letter: this one is in every text")
                            .hint(Some("remove it")),
                    );
                } else if word.value.len() > bounds::KEYWORD_BYTES {
                    self.faults.push(
                        word.fault(format!(
                            "a keyword is at most {} bytes long",
                            bounds::KEYWORD_BYTES
                        ))
                        .hint(Some("shorten it")),
                    );
                } else if !seen.insert(keywords::lower(&word.value)) {
                    self.faults.push(
                        word.fault("comes before in this set, whatever its case")
                            .hint(Some("remove one of them")),
                    );
                }
            }
        }
        let lowered = sets.iter().map(|(name, words)| {
            let words: BTreeSet<String> =
                words.iter().map(|word| keywords::lower(&word.value)).collect();
            (name.value.as_str(), words)
        });
        match Keywords::build(lowered) {
            Ok(keywords) => (self.faults.len() == before).then_some(keywords),
            Err(why) => {
                self.faults.extend(sets.first().map(|(name, _)| {
                    name.fault(format!("the keywords cannot be searched for: {why}"))
                        .hint(Some("have fewer or shorter ones"))
                }));
                None
            }
        }
    }

    fn recipe(&mut self, spec: RecipeSpec) -> Recipe {
        self.plain_name(&spec.name, "recipe");
        if spec.rules.is_empty() {
            self.faults.push(spec.name.fault("a recipe needs at least one rule").hint(Some(
                "for example `{ name: default, targets: [{ target: openai/gpt-5-mini }] }`",
            )));
        }
        let mut names: HashSet<&str> = HashSet::new();
        let mut always: Option<&str> = None;
        for rule in &spec.rules {
            self.plain_name(&rule.name, "rule");
            if !names.insert(&rule.name.value) {
                self.faults.push(
                    rule.name
                        .fault(format!("a rule `{}` comes before", rule.name.value))
                        .hint(Some("choose another name")),
                );
            }
            if let Some(before) = always {
                self.faults.push(
                    rule.name
                        .fault(format!("never reached: `{before}` before it always matches"))
                        .hint(Some("move it up, or remove it")),
                );
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
        let whens: Vec<Option<Located<String>>> =
            spec.rules.iter().map(|rule| rule.when.clone()).collect();
        let rules: Vec<Rule> = spec.rules.into_iter().map(|rule| self.rule(rule)).collect();
        self.reachable(&rules, &whens);
        let shadow = spec.shadow.and_then(|shadow| {
            Some(Shadow { target: self.target(&shadow.target)?, percent: shadow.percent })
        });
        Recipe {
            name: spec.name.value.as_str().into(),
            rules,
            retry,
            shadow,
            budget: OnceLock::new(),
        }
    }

    /// A rule whose condition holds only where that of an earlier one does is never reached.
    fn reachable(&mut self, rules: &[Rule], whens: &[Option<Located<String>>]) {
        for (at, (rule, written)) in rules.iter().zip(whens).enumerate() {
            let (Some(when), Some(written)) = (&rule.when, written) else { continue };
            let covers =
                |earlier: &&Rule| earlier.when.as_ref().is_some_and(|earlier| earlier.covers(when));
            if let Some(before) = rules.iter().take(at).find(covers) {
                let message =
                    format!("never reached: `{}` before it holds whenever this does", before.name);
                self.faults
                    .push(written.fault(message).hint(Some("move it up, change it, or remove it")));
            }
        }
    }

    fn rule(&mut self, spec: RuleSpec) -> Rule {
        let when = spec
            .when
            .as_ref()
            .and_then(|when| self.compiled(when, Condition::compile(&when.value)));
        let key = self.key(&spec);
        if spec.targets.is_empty() {
            self.faults.push(
                spec.name
                    .fault("a rule needs at least one target")
                    .hint(Some("for example `targets: [{ target: openai/gpt-5-mini }]`")),
            );
        }
        self.weights(&spec);
        self.warnings.extend(warnings::of_weights(&spec));
        let mut seen = HashSet::new();
        let mut choices = Vec::with_capacity(spec.targets.len());
        for TargetSpec { target, weight } in &spec.targets {
            if !seen.insert(target.value.as_str()) {
                self.faults.push(
                    target
                        .fault(format!("`{}` comes before in this rule", target.value))
                        .hint(Some("remove one of them")),
                );
                continue;
            }
            let weight = weight.as_ref().map_or(1.0, |weight| weight.value);
            choices.extend(self.target(target).map(|target| Choosable { target, weight }));
        }
        let header = Rule::header_of(&spec.name.value);
        Rule {
            name: spec.name.value.as_str().into(),
            header,
            when,
            strategy: spec.strategy,
            key,
            choices,
        }
    }

    /// A compiled expression, if the names in it are known here too.
    fn compiled<E: Compiled>(
        &mut self,
        text: &Located<String>,
        compiled: Result<E, Vec<Flaw>>,
    ) -> Option<E> {
        match compiled {
            Ok(expression) => {
                let uses = expression.uses();
                let doubts = expression.doubts().iter();
                self.warnings.extend(
                    doubts.map(|doubt| text.fault(doubt.message.clone()).hint(doubt.hint.clone())),
                );
                self.signals.language |= uses.language;
                self.signals.keywords |= uses.keywords;
                for set in uses.sets.iter().filter(|set| !self.set_names.contains(set)) {
                    let hint = did_you_mean(set, self.set_names.iter().map(String::as_str))
                        .unwrap_or("it is not in `keywords`".to_owned());
                    self.faults
                        .push(text.fault(format!("unknown keyword set `{set}`")).hint(Some(hint)));
                }
                let known = self.origin.signal_headers;
                for header in uses.headers.iter().filter(|header| !known.contains(header)) {
                    let fault = text.fault(format!("the header `{header}` is not in `routing.signal_headers` of the server document"));
                    let hint = did_you_mean(header, known.iter().map(String::as_str))
                        .or_else(|| Some("add it there".to_owned()));
                    self.faults.push(fault.hint(hint));
                }
                Some(expression)
            }
            Err(flaws) => {
                let usual = || {
                    Some(
                        "CEL over the signals, for example `prompt_tokens > 1000 && !stream`"
                            .to_owned(),
                    )
                };
                self.faults.extend(
                    flaws
                        .into_iter()
                        .map(|flaw| text.fault(flaw.message).hint(flaw.hint.or_else(usual))),
                );
                None
            }
        }
    }

    fn key(&mut self, spec: &RuleSpec) -> Option<Key> {
        match (&spec.key, spec.strategy) {
            (Some(key), Strategy::Sticky) => self.compiled(key, Key::compile(&key.value)),
            (Some(key), other) => {
                let fault = key.fault(format!("`{}` does not use a key", other.as_str()));
                self.faults.push(fault.hint(Some("strategy: sticky")));
                None
            }
            (None, Strategy::Sticky) => {
                let fault = spec.name.fault("a `sticky` rule needs a `key`: what stays together");
                self.faults.push(fault.hint(Some("for example `key: user.id`")));
                None
            }
            (None, _) => None,
        }
    }

    fn weights(&mut self, spec: &RuleSpec) {
        let written: Vec<&Located<f64>> =
            spec.targets.iter().filter_map(|target| target.weight.as_ref()).collect();
        for weight in &written {
            if spec.strategy != Strategy::Weighted {
                let hint = Some("strategy: weighted");
                self.faults.push(
                    weight
                        .fault(format!("`{}` does not use weights", spec.strategy.as_str()))
                        .hint(hint),
                );
            } else if !(0.0..=bounds::WEIGHT_MAX).contains(&weight.value) {
                self.faults.push(
                    weight
                        .fault(format!("a weight is from 0 to {}", bounds::WEIGHT_MAX))
                        .hint(Some("for example `9`")),
                );
            }
        }
        let all_zero = !written.is_empty()
            && written.len() == spec.targets.len()
            && written.iter().all(|weight| weight.value == 0.0);
        if let (true, Strategy::Weighted, Some(first)) = (all_zero, spec.strategy, written.first())
        {
            self.faults.push(
                first
                    .fault("the weights of this rule sum to 0")
                    .hint(Some("give one target a weight above 0")),
            );
        }
    }
}

/// Whether it can be a header's value and a metric's label.
fn is_model_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= bounds::MODEL_NAME_BYTES
        && name.bytes().all(|b| b.is_ascii_graphic())
}
