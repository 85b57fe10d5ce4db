//! The routing document as written: plain structs with the place of everything that a check may complain about.
//! Built by `config/`, which knows YAML; checked and turned into what runs by `recipe`.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::health::BreakerSettings;
use super::provider::{Authorities, HealthCheck, StreamUsage};
use crate::secret::Secret;

/// A position in a document, both counted from one; columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

/// A value with where it was written.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Its path in the document, `recipes.balanced.rules[0].when`.
    pub path: String,
    /// Its position in the document.
    pub at: Place,
}

impl<T> Located<T> {
    /// A complaint about this value.
    pub fn fault(&self, message: impl Into<String>) -> Fault {
        Fault { path: self.path.clone(), at: self.at, message: message.into(), hint: None }
    }
}

/// What is wrong at one place of a document. Messages quote names, never credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the value at fault.
    pub path: String,
    /// Where it stands.
    pub at: Place,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Fault {
    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }
}

/// What was found in a document that cannot run.
#[derive(Debug, Default)]
pub struct Findings {
    /// What keeps it from running.
    pub faults: Vec<Fault>,
    /// What would not, and is most likely not meant.
    pub warnings: Vec<Fault>,
}

/// The whole document.
#[derive(Debug, Default)]
pub struct RoutingSpec {
    /// IANA name of the zone of `hour`.
    pub timezone: Option<Located<String>>,
    /// Providers in document order.
    pub providers: Vec<ProviderSpec>,
    /// Prices and abilities in document order.
    pub models: Vec<ModelSpec>,
    /// Named keyword sets in document order, with their words.
    pub keywords: Vec<(Located<String>, Vec<Located<String>>)>,
    /// Recipes in document order.
    pub recipes: Vec<RecipeSpec>,
    /// Aliases in document order, with the recipe each names.
    pub aliases: Vec<(Located<String>, Located<String>)>,
    /// What its reader found odd.
    pub warnings: Vec<Fault>,
}

/// One provider; credentials are expanded already.
#[derive(Debug)]
pub struct ProviderSpec {
    /// Its name, with its place.
    pub name: Located<String>,
    /// The wire protocol; `None` when it was reported as wrong.
    pub protocol: Option<Located<ProtocolSpec>>,
    /// Root of its API.
    pub base_url: Option<Located<Secret>>,
    /// Its credential.
    pub api_key: Option<Located<Secret>>,
    /// Headers sent with every request to it.
    pub headers: Vec<(Located<HeaderName>, HeaderValue)>,
    /// Deadlines, where they differ from the defaults.
    pub timeouts: TimeoutsSpec,
    /// Delay of a mock's answers.
    pub latency: Option<Located<Duration>>,
    /// What else is said of it.
    pub options: ProviderOptions,
}

/// What may be said of a provider beyond where it is.
#[derive(Debug, Default)]
pub struct ProviderOptions {
    /// Its credentials, where it has several.
    pub api_keys: Option<Located<Vec<Located<Secret>>>>,
    /// Who may vouch for its certificate, instead of those whom the system trusts.
    pub ca: Option<Located<Authorities>>,
    /// Whether HTTP/2 is offered to it.
    pub http2: Option<Located<bool>>,
    /// Requests that it may be given at once.
    pub max_concurrency: Option<u32>,
    /// How it is asked whether it is well.
    pub health: Option<Located<HealthCheck>>,
    /// When it is asked for the usage of streams.
    pub stream_usage: Option<StreamUsage>,
    /// When the breakers of its targets open, where that differs from the defaults.
    pub breaker: BreakerSpec,
}

/// A provider's breaker settings as written.
#[derive(Debug, Default)]
pub struct BreakerSpec {
    /// Errors in a row.
    pub consecutive: Option<u32>,
    /// Errors in a hundred requests.
    pub error_percent: Option<u16>,
    /// Requests before their share of errors means anything.
    pub min_requests: Option<u32>,
    /// Over how long errors are counted.
    pub window: Option<Duration>,
    /// How long it is open the first time.
    pub open: Option<Duration>,
}

impl BreakerSpec {
    /// As it runs, with the default for what is not said.
    pub fn settings(&self) -> BreakerSettings {
        let usual = BreakerSettings::default();
        BreakerSettings {
            consecutive: self.consecutive.unwrap_or(usual.consecutive),
            error_percent: self.error_percent.unwrap_or(usual.error_percent),
            min_requests: self.min_requests.unwrap_or(usual.min_requests),
            window: self.window.unwrap_or(usual.window),
            open: self.open.unwrap_or(usual.open),
        }
    }
}

/// The protocols this version speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolSpec {
    /// OpenAI's HTTP API.
    OpenAi,
    /// Anthropic's HTTP API.
    Anthropic,
    /// The in-process mock, which speaks both.
    Mock,
}

/// Deadlines of a provider as written.
#[derive(Debug, Default)]
pub struct TimeoutsSpec {
    /// Until connected, TLS included.
    pub connect: Option<Duration>,
    /// From the end of the request to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// Longest silence within an answer.
    pub idle: Option<Duration>,
    /// The whole attempt.
    pub total: Option<Duration>,
}

/// Prices and abilities of one `provider/model`.
#[derive(Debug)]
pub struct ModelSpec {
    /// `provider/model`.
    pub name: Located<String>,
    /// US dollars a million prompt tokens.
    pub input_per_mtok: Option<f64>,
    /// US dollars a million completion tokens.
    pub output_per_mtok: Option<f64>,
    /// US dollars a million prompt tokens read from the provider's cache.
    pub cached_input_per_mtok: Option<f64>,
    /// Tokens that prompt and answer share.
    pub context: Option<u64>,
    /// What it can do; absent: taken to do everything.
    pub capabilities: Option<Vec<String>>,
}

/// One recipe.
#[derive(Debug)]
pub struct RecipeSpec {
    /// Its name.
    pub name: Located<String>,
    /// Its rules in order.
    pub rules: Vec<RuleSpec>,
    /// When to try the next target.
    pub retry: RetrySpec,
    /// Where copies of its requests go.
    pub shadow: Option<ShadowSpec>,
}

/// One rule of a recipe.
#[derive(Debug)]
pub struct RuleSpec {
    /// Its name.
    pub name: Located<String>,
    /// The CEL expression; absent: always matches.
    pub when: Option<Located<String>>,
    /// How targets are ordered.
    pub strategy: Strategy,
    /// The CEL expression of what stays together, for `sticky` only.
    pub key: Option<Located<String>>,
    /// The targets in document order.
    pub targets: Vec<TargetSpec>,
}

/// How a rule orders its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// As written.
    #[default]
    Priority,
    /// By a draw in proportion to the weights.
    Weighted,
    /// The quicker of two that are drawn.
    LeastLatency,
    /// By the requests under way.
    LeastBusy,
    /// By what the request would cost.
    Cheapest,
    /// The same target for the same key, as long as it is there.
    Sticky,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 6] = [
        Strategy::Priority,
        Strategy::Weighted,
        Strategy::LeastLatency,
        Strategy::LeastBusy,
        Strategy::Cheapest,
        Strategy::Sticky,
    ];

    /// The word for it in documents and decisions.
    pub fn as_str(self) -> &'static str {
        match self {
            Strategy::Priority => "priority",
            Strategy::Weighted => "weighted",
            Strategy::LeastLatency => "least_latency",
            Strategy::LeastBusy => "least_busy",
            Strategy::Cheapest => "cheapest",
            Strategy::Sticky => "sticky",
        }
    }
}

/// One target of a rule.
#[derive(Debug)]
pub struct TargetSpec {
    /// `provider/model`.
    pub target: Located<String>,
    /// Its weight, for `weighted` only.
    pub weight: Option<Located<f64>>,
}

/// Where copies of a recipe's requests go, as written.
#[derive(Debug)]
pub struct ShadowSpec {
    /// `provider/model`.
    pub target: Located<String>,
    /// Of how many requests in a hundred.
    pub percent: f64,
}

/// When to try the next target, as written.
#[derive(Debug, Default)]
pub struct RetrySpec {
    /// Attempts in all.
    pub attempts: Option<usize>,
    /// What is tried again; absent: everything that can be.
    pub on: Option<RetryOn>,
    /// Most retries, in percent of the recipe's requests.
    pub budget_percent: Option<u16>,
}

/// The failures after which the next target of the plan is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryOn {
    /// No connection.
    pub connect: bool,
    /// A deadline passed before the first content.
    pub timeout: bool,
    /// 429.
    pub rate_limited: bool,
    /// 5xx.
    pub server_error: bool,
}

impl RetryOn {
    /// Everything that can be tried again.
    pub const ALL: RetryOn =
        RetryOn { connect: true, timeout: true, rate_limited: true, server_error: true };
}

/// The name of `known` that `word` was probably meant to be: nearest by edit distance, at most a third of its length away.
fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 128 {
        return None;
    }
    let allowed = (word.chars().count().max(3)) / 3;
    known
        .into_iter()
        .filter(|name| name.len() <= 128)
        .map(|name| (distance(word, name), name))
        .filter(|(away, name)| *away <= allowed.max(1) && *away < name.chars().count())
        .min_by_key(|(away, _)| *away)
        .map(|(_, name)| name)
}

/// A hint for a reader: the name of `known` that `word` was probably meant to be.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|name| format!("did you mean `{name}`?"))
}

/// Edits (insert, delete, replace, swap neighbours) between two words, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_none() {
        let known = ["strategy", "targets", "when", "name"];
        assert_eq!(nearest("stragety", known), Some("strategy"));
        assert_eq!(nearest("Target", known), Some("targets"));
        assert_eq!(nearest("wehn", known), Some("when"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }
}
