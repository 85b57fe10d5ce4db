//! The state of a compilation: problems found so far, and the names and targets known so far.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use jiff::tz::TimeZone;

use super::warnings;
use crate::compiled::{ExpensiveSignals, NameIndex, Recipe, Routing};
use crate::condition::ContentPatterns;
use crate::document::ModelSpec;
use crate::keywords::Keywords;
use crate::name_patterns::{MODEL_NAME_BYTES, ModelTemplate, Patterns, beginning, is_model_name};
use crate::price_list;
use crate::prices::Prices;
use crate::provider::{NODES, Provider};
use crate::request_head::header_of;
use crate::target::{Target, translated};
use rerouter_dialect::neutral::target_terms::ModelTerms;
use rerouter_document::{Finding, Located, did_you_mean};

/// Maximum length in bytes of the name of a provider, recipe or rule. The names become header
/// values and metric labels.
const ROUTING_NAME_BYTES: usize = 64;

/// Reserved first segments of a model name.
const RESERVED: [&str; 3] = ["agent", NODES, "direct"];

const ASKED_MODEL: &str = "`provider/${model}` serves the model that is asked for";

#[derive(Clone, Copy, Debug)]
pub struct BuildContext<'a> {
    /// First 12 hex digits of the document's hash.
    pub revision: &'a str,
    /// The document as written.
    pub text: &'a str,
    /// Address of the in-process mock. Without it a mock provider is unreachable.
    pub mock: Option<SocketAddr>,
    /// Lower-case names of the headers that expressions may read.
    pub signal_headers: &'a [String],
}

pub(super) struct Compiler<'o> {
    pub(super) origin: &'o BuildContext<'o>,
    pub(super) faults: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    pub(super) provider_names: Vec<String>,
    pub(super) set_names: Vec<String>,
    pub(super) signals: ExpensiveSignals,
    pub(super) header_names: BTreeSet<String>,
    pub(super) content: ContentPatterns,
    pub(super) providers: Vec<Arc<Provider>>,
    /// The provider of all `nodes/…` targets.
    nodes: Arc<Provider>,
    pub(super) without_price_list: bool,
    pub(super) shipped: Vec<Arc<str>>,
    models: HashMap<String, ModelSettings>,
    /// The entries of `models` that are patterns, longest first.
    model_patterns: Patterns<ModelSettings>,
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) target_index: NameIndex<Target>,
}

/// Settings of a `provider/model` in `models`.
#[derive(Clone, Default)]
struct ModelSettings {
    prices: Option<Arc<Prices>>,
    context: Option<u64>,
    tokens_per_second: Option<u64>,
    capabilities: Option<Vec<String>>,
    terms: ModelTerms,
}

impl<'o> Compiler<'o> {
    pub(super) fn new(origin: &'o BuildContext<'o>, warnings: Vec<Finding>) -> Self {
        Compiler {
            origin,
            faults: Vec::new(),
            warnings,
            provider_names: Vec::new(),
            set_names: Vec::new(),
            signals: ExpensiveSignals::default(),
            header_names: BTreeSet::new(),
            content: ContentPatterns::default(),
            providers: Vec::new(),
            nodes: Arc::new(Provider::all_nodes()),
            without_price_list: false,
            shipped: Vec::new(),
            models: HashMap::new(),
            model_patterns: Patterns::new([]),
            targets: Vec::new(),
            target_index: NameIndex::default(),
        }
    }

    pub(super) fn fault<T>(
        &mut self,
        at: &Located<T>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.faults.push(at.fault(message).hint(Some(hint)));
    }

    pub(super) fn unknown(&mut self, what: &str, name: &Located<String>, known: &[String]) {
        let hint = did_you_mean(&name.value, known.iter().map(String::as_str))
            .unwrap_or_else(|| format!("it is not in `{what}s`"));
        self.fault(name, format!("unknown {what} `{}`", name.value), hint);
    }

    pub(super) fn zone(&mut self, name: Option<&Located<String>>) -> TimeZone {
        let Some(name) = name else { return TimeZone::UTC };
        TimeZone::get(&name.value).unwrap_or_else(|_| {
            self.fault(name, "unknown time zone", "an IANA name such as UTC or Europe/Berlin");
            TimeZone::UTC
        })
    }

    pub(super) fn limit<'a>(
        &mut self,
        mut names: impl Iterator<Item = &'a Located<String>>,
        most: usize,
        what: &str,
    ) {
        if let Some(over) = names.nth(most) {
            self.fault(over, format!("more than {most} {what}"), "remove some");
        }
    }

    /// Checks a name that becomes a header value and a metric label.
    pub(super) fn plain_name(&mut self, name: &Located<String>, what: &str) {
        let fits = (1..=ROUTING_NAME_BYTES).contains(&name.value.len());
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if !fits || !name.value.bytes().all(is_plain) {
            let most = ROUTING_NAME_BYTES;
            let message =
                format!("a {what}'s name is 1 to {most} letters, digits, `-`, `_` or `.`");
            self.fault(name, message, "for example `main`");
        } else if RESERVED.contains(&name.value.as_str()) {
            self.fault(name, format!("`{}` is a reserved name", name.value), "choose another");
        }
    }

    fn alias_name(&mut self, alias: &Located<String>) {
        if !is_model_name(&alias.value) {
            let most = MODEL_NAME_BYTES;
            let message = format!("an alias is 1 to {most} visible ASCII characters");
            self.fault(alias, message, "for example `auto`");
        } else if RESERVED.contains(&alias.value.split('/').next().unwrap_or("")) {
            let message = format!("`{}` begins with a reserved name", alias.value);
            self.fault(alias, message, "choose another");
        } else {
            self.star(alias);
        }
    }

    /// The aliases with their recipes, in document order. Reports wrong names and unknown recipes.
    pub(super) fn aliases(
        &mut self,
        specs: &[(Located<String>, Located<String>)],
        recipes: &[Arc<Recipe>],
    ) -> Vec<(Arc<str>, Arc<Recipe>)> {
        let by_name: HashMap<&str, _> = recipes.iter().map(|r| (&*r.name, r)).collect();
        let mut aliases = Vec::new();
        for (alias, recipe) in specs {
            self.alias_name(alias);
            if let Some(found) = by_name.get(recipe.value.as_str()) {
                aliases.push((Arc::from(alias.value.as_str()), Arc::clone(found)));
            } else {
                let known: Vec<String> = recipes.iter().map(|r| r.name.to_string()).collect();
                self.unknown("recipe", recipe, &known);
            }
        }
        aliases
    }

    /// Checks that a name has no `*` except at its end. Returns whether the check passed.
    fn star(&mut self, name: &Located<String>) -> bool {
        let inside = beginning(&name.value).unwrap_or(&name.value).contains('*');
        if inside {
            self.fault(name, "a `*` stands at the end of a name only", "for example `claude-*`");
        }
        !inside
    }

    /// Stores the settings of a model. Returns whether its name is valid.
    pub(super) fn model(&mut self, spec: &ModelSpec) -> bool {
        let prices = spec.prices();
        let settings = ModelSettings {
            prices: (prices != Prices::default()).then(|| Arc::new(prices)),
            context: spec.context,
            tokens_per_second: spec.tokens_per_second,
            capabilities: spec
                .capabilities
                .as_ref()
                .map(|all| all.iter().map(ToString::to_string).collect()),
            terms: spec.terms(),
        };
        self.models.insert(spec.name.value.clone(), settings);
        self.star(&spec.name) && self.named_provider(&spec.name).is_some()
    }

    /// Sorts the patterns of `models`, after all entries are stored.
    pub(super) fn sort_models(&mut self) {
        let patterns =
            self.models.iter().map(|(name, settings)| (name.as_str().into(), settings.clone()));
        self.model_patterns = Patterns::new(patterns);
    }

    /// Settings of a target in `models`: those of its exact name, then those of matching patterns,
    /// longest first. All prices come from one entry.
    fn settings(&self, name: &str) -> ModelSettings {
        let mut settings = self.models.get(name).cloned().unwrap_or_default();
        for under in self.model_patterns.matching(name) {
            settings.prices = settings.prices.or_else(|| under.to.prices.clone());
            settings.context = settings.context.or(under.to.context);
            settings.tokens_per_second = settings.tokens_per_second.or(under.to.tokens_per_second);
            let capabilities = || under.to.capabilities.clone();
            settings.capabilities = settings.capabilities.or_else(capabilities);
            settings.terms = settings.terms.or(&under.to.terms);
        }
        settings
    }

    /// The provider and the model of `provider/model`. Reports a wrong or unknown name.
    fn named_provider<'n>(
        &mut self,
        name: &'n Located<String>,
    ) -> Option<(Arc<Provider>, &'n str)> {
        let Some((provider, model)) =
            name.value.split_once('/').filter(|(_, model)| is_model_name(model))
        else {
            self.fault(name, "a target is `provider/model`", "for example `openai/gpt-5-mini`");
            return None;
        };
        if provider == NODES {
            if beginning(model).is_some() {
                let message = "a target on nodes names one model";
                self.fault(name, message, "for example `nodes/qwen3-32b`");
                return None;
            }
            return Some((Arc::clone(&self.nodes), model));
        }
        if !self.provider_names.iter().any(|known| known == provider) {
            let known = self.provider_names.clone();
            let provider =
                Located { value: provider.to_owned(), path: name.path.clone(), at: name.at };
            self.unknown("provider", &provider, &known);
            return None;
        }
        let found = self.providers.iter().find(|known| &*known.name == provider)?;
        Some((Arc::clone(found), model))
    }

    /// All uses of a name share one target.
    pub(super) fn target(&mut self, name: &Located<String>) -> Option<Arc<Target>> {
        if let Some(target) = self.target_index.get(name.value.as_str()) {
            return Some(Arc::clone(target));
        }
        let (provider, model) = self.named_provider(name)?;
        if !provider.base.takes(model) && beginning(model).is_none() {
            let message = "the model stands in a path: letters, digits, `-`, `_` and `.` only";
            self.fault(name, message, "the name of a deployment");
            return None;
        }
        let ModelSettings {
            mut prices,
            mut context,
            tokens_per_second,
            mut capabilities,
            mut terms,
        } = self.settings(&name.value);
        // For a target under a pattern, `Target::under` looks them up later by its name.
        if let Some(listed) = price_list::find(provider.price_list, model) {
            if prices.is_none() {
                prices = Some(Arc::clone(&listed.prices));
                self.shipped.push(name.value.as_str().into());
            }
            context = context.or(listed.context);
            capabilities = capabilities.or_else(|| listed.capabilities.clone());
            terms = terms.or(&listed.terms);
        }
        self.warnings.extend(warnings::of_price(name, &provider, prices.as_deref()));
        let target = Arc::new(Target {
            provider,
            shown: header_of(model),
            model: model.into(),
            name: name.value.as_str().into(),
            prices,
            context,
            tokens_per_second,
            capabilities,
            terms,
            is_direct: beginning(model).is_none() || self.models.contains_key(&name.value),
            pattern: None,
            state: OnceLock::new(),
            meters: Arc::default(),
        });
        self.targets.push(Arc::clone(&target));
        self.target_index.insert(Arc::clone(&target.name), Arc::clone(&target));
        Some(target)
    }

    /// Reports a pattern of `models` that an alias hides, unless it has settings for targets of a
    /// recipe.
    pub(super) fn hidden_pattern(
        &mut self,
        name: &Located<String>,
        aliases: &[(Arc<str>, Arc<Recipe>)],
    ) {
        let Some(beginning) = beginning(&name.value) else { return };
        if !aliases.iter().any(|(alias, _)| **alias == *name.value) {
            return;
        }
        // The targets of recipes are compiled already.
        if !self.targets.iter().any(|target| target.name.starts_with(beginning)) {
            let message = format!("never reached: the alias `{}` is asked first", name.value);
            self.fault(name, message, "remove one of them");
        }
    }

    /// The target of a rule or shadow: an exact target, or a template with the pattern of the
    /// targets that it can name.
    pub(super) fn rule_target(
        &mut self,
        name: &Located<String>,
    ) -> Option<(Arc<Target>, Option<Arc<ModelTemplate>>)> {
        let template = match ModelTemplate::parse(&name.value) {
            None if name.value.contains('*') => {
                self.fault(name, "a target names one model", ASKED_MODEL);
                return None;
            }
            None => return Some((self.target(name)?, None)),
            Some(Ok(template)) => template,
            Some(Err(why)) => {
                self.fault(name, why, ASKED_MODEL);
                return None;
            }
        };
        let pattern = Located { value: template.pattern(), path: name.path.clone(), at: name.at };
        if !self.star(&pattern) {
            return None;
        }
        Some((self.target(&pattern)?, Some(Arc::new(template))))
    }

    /// The compiled document, without [`Routing::known_names`].
    pub(super) fn finish(
        self,
        zone: TimeZone,
        keywords: Keywords,
        recipes: Vec<Arc<Recipe>>,
        aliases: Vec<(Arc<str>, Arc<Recipe>)>,
    ) -> Routing {
        let (patterns, exact): (Vec<_>, Vec<_>) =
            self.target_index.into_iter().partition(|(_, target)| target.is_pattern());
        let exact_aliases = aliases.iter().filter(|(name, _)| beginning(name).is_none());
        Routing {
            translated: translated(self.targets.iter()),
            revision: self.origin.revision.into(),
            shown_revision: header_of(self.origin.revision),
            text: self.origin.text.into(),
            zone,
            signals: self.signals,
            header_names: self.header_names,
            keywords,
            content: self.content,
            providers: self.providers,
            targets: self.targets,
            target_index: exact.into_iter().collect(),
            target_patterns: Patterns::new(patterns),
            recipe_index: recipes.iter().map(|r| (Arc::clone(&r.name), Arc::clone(r))).collect(),
            recipes,
            direct: "direct".into(),
            alias_index: exact_aliases.cloned().collect(),
            alias_patterns: Patterns::new(aliases.iter().cloned()),
            aliases,
            known_names: Vec::new(),
            shipped: self.shipped,
            warnings: self.warnings,
        }
    }
}
