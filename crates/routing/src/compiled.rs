//! The compiled routing document: names resolved, expressions compiled, targets shared. `compile`
//! builds it from a checked spec.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use bytes::Bytes;
use http::HeaderValue;
use jiff::tz::TimeZone;

use super::condition::{Condition, ContentPatterns, StickyKey};
use super::decision::{Decision, PlanEntry};
use super::document::{RetryPolicy, Strategy};
use super::health::RetryBudget;
use super::keywords::Keywords;
use super::name_patterns::{ModelTemplate, Patterns};
use super::price_list;
use super::provider::Provider;
use super::target::Target;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_document::Finding;

pub(super) type NameIndex<T> = HashMap<Arc<str>, Arc<T>, RandomState>;

/// A routing document that passed every check.
pub struct Routing {
    pub(super) revision: Arc<str>,
    /// Value of [`Decision::recipe`] for direct names: `direct`.
    pub(super) direct: Arc<str>,
    pub(super) text: Arc<str>,
    /// Time zone of the signal `hour`.
    pub(super) zone: TimeZone,
    pub shown_revision: HeaderValue,
    /// Signals that are computed only because an expression of this document reads them.
    pub signals: ExpensiveSignals,
    /// The headers that its expressions read.
    pub(super) header_names: BTreeSet<String>,
    /// Keyword sets in document order.
    pub keywords: Keywords,
    pub(super) content: ContentPatterns,
    /// Providers in document order.
    pub providers: Vec<Arc<Provider>>,
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) target_index: NameIndex<Target>,
    /// Recipes in document order.
    pub recipes: Vec<Arc<Recipe>>,
    pub(super) recipe_index: NameIndex<Recipe>,
    pub(super) aliases: Vec<(Arc<str>, Arc<Recipe>)>,
    pub(super) alias_index: NameIndex<Recipe>,
    pub(super) alias_patterns: Patterns<Arc<Recipe>>,
    pub(super) target_patterns: Patterns<Arc<Target>>,
    pub(super) known_names: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// The endpoints whose requests are translated for at least one target.
    pub(super) translated: Vec<Endpoint>,
    /// Names of targets with shipped prices.
    pub(super) shipped: Vec<Arc<str>>,
    /// Likely mistakes of a document that runs.
    pub warnings: Vec<Finding>,
}

impl Routing {
    /// The date of the shipped prices, and the names of the targets that use them: exact names, and
    /// patterns of providers in the price list.
    pub fn shipped_prices(&self) -> (&'static str, Vec<&str>) {
        let listed = |target: &&Arc<Target>| {
            target.is_pattern() && target.prices.is_none() && target.provider.price_list.is_some()
        };
        let patterns = self.targets().filter(listed).map(|target| &*target.name);
        (price_list::date(), self.shipped.iter().map(|name| &**name).chain(patterns).collect())
    }

    /// First 12 hex digits of the document's hash.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The document as written, with `${…}` unexpanded.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the providers' credentials in the text by stars.
    pub fn masked(&self, text: Bytes) -> Bytes {
        self.providers.iter().fold(text, |text, provider| provider.known_by.mask(text))
    }

    pub fn provider(&self, name: &str) -> Option<&Arc<Provider>> {
        self.providers.iter().find(|provider| &*provider.name == name)
    }

    /// Every target that a request can reach, without duplicates: first targets of recipes, then
    /// those of `models`, each in document order. A pattern counts as one target.
    pub fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter()
    }

    /// A target by its exact `provider/model`.
    pub fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.target_index.get(name)
    }

    /// The targets of a plan in its order, without those that this document does not have.
    pub fn targets_of(&self, decision: &Decision) -> Vec<Arc<Target>> {
        let mut name = String::new();
        let named = |choice: &PlanEntry| {
            name.clear();
            name.extend([&*choice.provider, "/", &*choice.model]);
            self.target_for(&name)
        };
        decision.plan.iter().filter_map(named).collect()
    }

    pub fn recipe(&self, name: &str) -> Option<&Arc<Recipe>> {
        self.recipe_index.get(name)
    }

    /// Aliases in document order, with their recipes.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &Arc<Recipe>)> {
        self.aliases.iter().map(|(name, recipe)| (&**name, recipe))
    }

    /// Known names that match patterns, each with its provider if it is a direct name.
    pub fn known_names(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.known_names.iter().map(|(name, owner)| (&**name, owner.as_deref()))
    }
}

impl fmt::Debug for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routing").field("revision", &self.revision).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpensiveSignals {
    /// `language`: detection on the last user message.
    pub language: bool,
    /// `keywords`: a search in the last user message.
    pub keywords: bool,
}

/// A named routing policy.
#[derive(Debug)]
pub struct Recipe {
    pub(super) name: Arc<str>,
    /// The name as a header value.
    pub shown: HeaderValue,
    /// Rules in document order. The last has no condition.
    pub rules: Vec<Rule>,
    pub retry: RetryPolicy,
    /// Target for copies of requests.
    pub shadow: Option<Shadow>,
    /// The endpoints whose requests are translated for at least one of its targets.
    pub(super) translated: Vec<Endpoint>,
    pub(super) budget: OnceLock<Arc<RetryBudget>>,
}

impl Recipe {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| &*rule.name == name)
    }

    /// Recent requests and retries. Live documents share it with their predecessors.
    pub fn budget(&self) -> &Arc<RetryBudget> {
        self.budget.get_or_init(Arc::default)
    }
}

#[derive(Debug)]
pub struct Shadow {
    pub target: Arc<Target>,
    /// Template of the target's name, if the model depends on the requested name.
    pub(super) template: Option<Arc<ModelTemplate>>,
    /// Percentage of requests to copy. Each request is drawn independently.
    pub percent: f64,
}

#[derive(Debug)]
pub struct Rule {
    pub(super) name: Arc<str>,
    /// The name as a header value.
    pub(super) header: HeaderValue,
    /// Its condition; `None`: always true.
    pub when: Option<Condition>,
    pub strategy: Strategy,
    /// Sticky key, for `sticky` only.
    pub key: Option<StickyKey>,
    /// Its targets in document order.
    pub choices: Vec<WeightedTarget>,
    /// Whether the model of some target depends on the requested name.
    pub(super) has_template: bool,
}

impl Rule {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name for the access log and for a response header, without copying.
    pub fn shown(&self) -> (Arc<str>, HeaderValue) {
        (self.name.clone(), self.header.clone())
    }
}

#[derive(Clone, Debug)]
pub struct WeightedTarget {
    /// If there is a template: the pattern of all targets that it can name.
    pub target: Arc<Target>,
    /// Its weight; 1 for strategies without weights.
    pub weight: f64,
    /// Template of the target's name, if the model depends on the requested name.
    pub(super) template: Option<Arc<ModelTemplate>>,
}
