//! The routing document as run: names resolved, expressions compiled, targets shared. Built only from a checked spec.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::HeaderValue;
use jiff::tz::TimeZone;

use super::condition::{Condition, Key};
use super::decide::Decision;
use super::document::{Fault, Findings, RetryOn, RoutingSpec, Strategy};
use super::health::{Budget, TargetState};
use super::keywords::Keywords;
use super::provider::Provider;
use crate::protocol::usage::Usage;
use crate::store::{dollars, nano_usd};

/// What a document is built with, beside itself.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// First 12 hex digits of its hash.
    pub revision: &'a str,
    /// The document as it was written.
    pub text: &'a str,
    /// Where the in-process mock listens; without it a mock provider cannot be reached.
    pub mock: Option<SocketAddr>,
    /// Lower-case names of the headers that expressions may look at.
    pub signal_headers: &'a [String],
}

/// A routing document that passed every check.
pub struct Routing {
    pub(super) revision: Arc<str>,
    pub(super) text: Arc<str>,
    pub(super) zone: TimeZone,
    pub(super) signals: Costly,
    pub(super) keywords: Keywords,
    pub(super) providers: Vec<Arc<Provider>>,
    pub(super) targets: Vec<Arc<Target>>,
    pub(super) target_index: HashMap<Arc<str>, Arc<Target>>,
    pub(super) recipes: Vec<Arc<Recipe>>,
    pub(super) recipe_index: HashMap<Arc<str>, Arc<Recipe>>,
    pub(super) aliases: Vec<(Arc<str>, Arc<Recipe>)>,
    pub(super) alias_index: HashMap<Arc<str>, Arc<Recipe>>,
    pub(super) warnings: Vec<Fault>,
}

impl Routing {
    /// Checks a spec and builds what runs; every fault at once.
    pub fn build(spec: RoutingSpec, origin: &Origin<'_>) -> Result<Routing, Findings> {
        super::build::build(spec, origin)
    }

    /// What is most likely not meant, although it runs.
    pub fn warnings(&self) -> &[Fault] {
        &self.warnings
    }

    /// First 12 hex digits of the document's hash.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The document as it was written, `${…}` unexpanded.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The zone of `hour`.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The signals that are computed only because an expression of this document looks at them.
    pub fn signals(&self) -> Costly {
        self.signals
    }

    /// Its keyword sets.
    pub fn keywords(&self) -> &Keywords {
        &self.keywords
    }

    /// Providers in document order.
    pub fn providers(&self) -> &[Arc<Provider>] {
        &self.providers
    }

    /// A provider by name.
    pub fn provider(&self, name: &str) -> Option<&Arc<Provider>> {
        self.providers.iter().find(|provider| &*provider.name == name)
    }

    /// Every target that a request can reach: those of recipes, then those of `models`, once each, in document order.
    pub fn targets(&self) -> impl Iterator<Item = &Arc<Target>> {
        self.targets.iter()
    }

    /// A target by `provider/model`.
    pub fn target(&self, name: &str) -> Option<&Arc<Target>> {
        self.target_index.get(name)
    }

    /// The targets of a plan, in its order; entries that this document does not know are left out.
    pub fn targets_of(&self, decision: &Decision) -> Vec<Arc<Target>> {
        let mut name = String::new();
        let named = |choice: &super::decide::Choice| {
            name.clear();
            name.extend([choice.provider.as_str(), "/", choice.model.as_str()]);
            self.target(&name)
        };
        decision.plan.iter().filter_map(named).cloned().collect()
    }

    /// A recipe by name.
    pub fn recipe(&self, name: &str) -> Option<&Arc<Recipe>> {
        self.recipe_index.get(name)
    }

    /// Recipes in document order.
    pub fn recipes(&self) -> &[Arc<Recipe>] {
        &self.recipes
    }

    /// Aliases in document order, with their recipes.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &Arc<Recipe>)> {
        self.aliases.iter().map(|(name, recipe)| (&**name, recipe))
    }

    /// The recipe behind an alias.
    pub fn alias(&self, name: &str) -> Option<&Arc<Recipe>> {
        self.alias_index.get(name)
    }

    /// What a decision's failures are retried on: its recipe's rule, or the default for direct names.
    pub fn retry_of(&self, decision: &Decision) -> Retry {
        self.recipe(&decision.recipe).map_or_else(Retry::default, |recipe| recipe.retry())
    }
}

impl fmt::Debug for Routing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routing").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// Signals that cost more than a look at the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costly {
    /// The language of the last user message.
    pub language: bool,
    /// Which keyword sets it hits.
    pub keywords: bool,
}

/// A provider with one of its models.
#[derive(Debug)]
pub struct Target {
    /// Who serves it.
    pub provider: Arc<Provider>,
    /// The provider's name for the model.
    pub model: Arc<str>,
    /// `provider/model`.
    pub name: Arc<str>,
    /// Its prices, as far as they are known.
    pub prices: Option<Prices>,
    /// Tokens that prompt and answer share.
    pub context: Option<u64>,
    /// What it can do; `None`: taken to do everything.
    pub capabilities: Option<Vec<String>>,
    pub(super) state: OnceLock<Arc<TargetState>>,
}

impl Target {
    /// Whether nodes serve it.
    pub fn is_on_nodes(&self) -> bool {
        self.provider.is_of_nodes()
    }

    /// The same at one node, with the state of that.
    pub fn at_node(&self, provider: Arc<Provider>, state: Arc<TargetState>) -> Target {
        Target {
            provider,
            model: self.model.clone(),
            name: self.name.clone(),
            prices: self.prices,
            context: self.context,
            capabilities: self.capabilities.clone(),
            state: OnceLock::from(state),
        }
    }

    /// What it is doing: shared with the same target of other documents once it is live, else its own.
    pub fn state(&self) -> &TargetState {
        self.state.get_or_init(Arc::default)
    }
}

/// US dollars a million tokens; unknown is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Prompt tokens.
    pub input_per_mtok: Option<f64>,
    /// Completion tokens.
    pub output_per_mtok: Option<f64>,
    /// Prompt tokens read from the provider's cache; unknown: they cost as the others.
    pub cached_input_per_mtok: Option<f64>,
}

impl Prices {
    /// What an answer costs, in dollars: a whole number of nano-dollars, as sums of costs count
    /// them. `None` where a price that it takes is unknown.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        let input = self.input_per_mtok?;
        let cached = usage.cached_tokens.unwrap_or(0).min(usage.prompt_tokens);
        let fresh = usage.prompt_tokens - cached;
        let prompt =
            fresh as f64 * input + cached as f64 * self.cached_input_per_mtok.unwrap_or(input);
        let answer = match usage.output_tokens() {
            // Embeddings: such a model has no price for what it never writes.
            0 => 0.0,
            tokens => tokens as f64 * self.output_per_mtok?,
        };
        Some(dollars(nano_usd((prompt + answer) / 1e6)))
    }
}

/// A named routing policy.
#[derive(Debug)]
pub struct Recipe {
    pub(super) name: Arc<str>,
    pub(super) rules: Vec<Rule>,
    pub(super) retry: Retry,
    pub(super) shadow: Option<Shadow>,
    pub(super) budget: OnceLock<Arc<Budget>>,
}

impl Recipe {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its rules in order; the last has no condition.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// A rule by name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| &*rule.name == name)
    }

    /// When the next target is tried.
    pub fn retry(&self) -> Retry {
        self.retry
    }

    /// Where copies of its requests go.
    pub fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()
    }

    /// Its requests and retries of the last seconds, shared as the states of targets are.
    pub fn budget(&self) -> &Arc<Budget> {
        self.budget.get_or_init(Arc::default)
    }
}

/// Where copies of a recipe's requests go, beside them.
#[derive(Debug)]
pub struct Shadow {
    /// Who gets them.
    pub target: Arc<Target>,
    /// Of how many requests in a hundred, by a draw of each.
    pub percent: f64,
}

/// One rule of a recipe.
#[derive(Debug)]
pub struct Rule {
    pub(super) name: Arc<str>,
    /// The name as a header has it.
    pub(super) header: HeaderValue,
    pub(super) when: Option<Condition>,
    pub(super) strategy: Strategy,
    pub(super) key: Option<Key>,
    pub(super) choices: Vec<Choosable>,
}

impl Rule {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A name as a header has it; those that the document's checks let through are plain.
    pub(super) fn header_of(name: &str) -> HeaderValue {
        HeaderValue::from_str(name).unwrap_or_else(|_| HeaderValue::from_static("unprintable"))
    }

    /// Its name, as the access log and as a header show it. Nothing is copied.
    pub fn shown(&self) -> (Arc<str>, HeaderValue) {
        (self.name.clone(), self.header.clone())
    }

    /// Its condition; absent: it always matches.
    pub fn when(&self) -> Option<&Condition> {
        self.when.as_ref()
    }

    /// How its targets are ordered.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// What stays together where it is `sticky`.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Its targets in document order.
    pub fn choices(&self) -> &[Choosable] {
        &self.choices
    }
}

/// A target with its weight in one rule.
#[derive(Clone, Debug)]
pub struct Choosable {
    pub(super) target: Arc<Target>,
    pub(super) weight: f64,
}

impl Choosable {
    /// The target.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Its weight; 1 where weights have no meaning.
    pub fn weight(&self) -> f64 {
        self.weight
    }
}

/// When the next target of a plan is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Attempts in all.
    pub attempts: usize,
    /// After what.
    pub on: RetryOn,
    /// Most retries of the recipe, in percent of its requests; `None`: as many as its requests ask for.
    pub budget_percent: Option<u16>,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { attempts: 3, on: RetryOn::ALL, budget_percent: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_needs_every_price_it_takes() {
        let (prompt_tokens, completion_tokens) = (1_000_000, 500_000);
        let usage = Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: 1_500_000,
            cached_tokens: Some(400_000),
            estimated: false,
        };
        let prices = Prices {
            input_per_mtok: Some(1.0),
            output_per_mtok: Some(4.0),
            cached_input_per_mtok: Some(0.1),
        };
        assert!((prices.cost(&usage).unwrap() - (0.6 + 0.04 + 2.0)).abs() < 1e-9);
        assert_eq!(Prices { output_per_mtok: None, ..prices }.cost(&usage), None);
        let thinking = Usage { total_tokens: 1_700_000, ..usage };
        assert!((prices.cost(&thinking).unwrap() - (0.6 + 0.04 + 2.8)).abs() < 1e-9);
        let without_cached = Prices { cached_input_per_mtok: None, ..prices };
        assert!((without_cached.cost(&usage).unwrap() - 3.0).abs() < 1e-9);
    }
}
