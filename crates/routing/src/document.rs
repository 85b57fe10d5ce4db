//! The routing document as written: plain structs that keep the position of everything a check may
//! reject. `config/` builds them from YAML; `compile` checks them and builds what runs.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::presets::Preset;
use super::settings::{Authorities, BreakerSettings, HealthCheck, Protocol, StreamUsage};
use rerouter_base::secret::Secret;
use rerouter_dialect::endpoint::Endpoint;

/// A position in a document. Lines and columns count from one, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    /// Column in characters, from one.
    pub column: usize,
}

/// A value with its position in the document.
#[derive(Clone, Debug)]
pub struct Located<T> {
    pub value: T,
    /// Path in the document, such as `recipes.balanced.rules[0].when`.
    pub path: String,
    /// Position in the document.
    pub at: Position,
}

impl<T> Located<T> {
    /// A problem with this value.
    pub fn fault(&self, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), at: self.at, message: message.into(), hint: None }
    }
}

/// A problem at one position of a document. Messages quote names, never credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Path of the value.
    pub path: String,
    /// Position of the value.
    pub at: Position,
    /// Description of the problem.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl Finding {
    #[must_use]
    pub fn hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into);
        self
    }
}

/// Problems of a document that cannot run.
#[derive(Debug, Default)]
pub struct Findings {
    pub faults: Vec<Finding>,
    /// Likely mistakes that alone would not stop the document.
    pub warnings: Vec<Finding>,
}

#[derive(Debug, Default)]
pub struct RoutingSpec {
    /// IANA time zone of the signal `hour`.
    pub timezone: Option<Located<String>>,
    /// Providers in document order.
    pub providers: Vec<ProviderSpec>,
    /// Prices and capabilities in document order.
    pub models: Vec<ModelSpec>,
    /// Keyword sets in document order, each with its words.
    pub keywords: Vec<(Located<String>, Vec<Located<String>>)>,
    /// Recipes in document order.
    pub recipes: Vec<RecipeSpec>,
    /// Aliases in document order, each with the name of its recipe.
    pub aliases: Vec<(Located<String>, Located<String>)>,
    /// Whether the shipped prices and abilities stay out.
    pub without_price_list: bool,
    /// Warnings of the reader.
    pub warnings: Vec<Finding>,
}

/// One provider. Credentials are already expanded.
#[derive(Debug)]
pub struct ProviderSpec {
    /// Name of the provider.
    pub name: Located<String>,
    /// The wire protocol; `None` if it was reported as an error.
    pub protocol: Option<Located<Protocol>>,
    /// Root URL of the API.
    pub base_url: Option<Located<Secret>>,
    /// The credential, if there is one only.
    pub api_key: Option<Located<Secret>>,
    /// Headers for every request.
    pub headers: Vec<(Located<HeaderName>, HeaderValue)>,
    /// Deadlines that differ from the defaults.
    pub timeouts: TimeoutsSpec,
    /// Delay before a mock answers.
    pub latency: Option<Located<Duration>>,
    pub options: ProviderOptions,
}

impl ProviderSpec {
    /// The protocol as written, else the preset's.
    pub fn protocol(&self) -> Option<Protocol> {
        let written = self.protocol.as_ref().map(|protocol| protocol.value);
        written.or(self.options.preset.as_ref().map(|preset| preset.value.protocol))
    }
}

/// Optional settings of a provider.
#[derive(Debug, Default)]
pub struct ProviderOptions {
    /// The provider, if it is one that is known by name.
    pub preset: Option<Located<&'static Preset>>,
    /// The credentials, if there are several.
    pub api_keys: Option<Located<Vec<Located<Secret>>>>,
    /// Certificate authorities that replace the system's.
    pub ca: Option<Located<Authorities>>,
    /// Whether HTTP/2 is offered.
    pub http2: Option<Located<bool>>,
    /// Limit on concurrent requests.
    pub max_concurrency: Option<u32>,
    pub health: Option<Located<HealthCheck>>,
    /// The endpoints that it has, if they are not those of its protocol.
    pub endpoints: Option<Vec<Located<Endpoint>>>,
    /// When a stream's usage is requested.
    pub stream_usage: Option<StreamUsage>,
    /// Breaker settings that differ from the defaults.
    pub breaker: BreakerSpec,
}

/// A provider's breaker settings as written.
#[derive(Debug, Default)]
pub struct BreakerSpec {
    pub consecutive: Option<u32>,
    /// Error rate in percent.
    pub error_percent: Option<u16>,
    /// Requests in the window before the error rate counts.
    pub min_requests: Option<u32>,
    /// Length of the window.
    pub window: Option<Duration>,
    /// Time open after the first failure.
    pub open: Option<Duration>,
}

impl BreakerSpec {
    /// The settings, with defaults for what is absent.
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

/// Deadlines of a provider as written.
#[derive(Debug, Default)]
pub struct TimeoutsSpec {
    /// Until connected, including TLS.
    pub connect: Option<Duration>,
    /// From the end of the request to the first byte of the answer.
    pub first_byte: Option<Duration>,
    /// Between two reads of the answer.
    pub idle: Option<Duration>,
    /// For the whole attempt.
    pub total: Option<Duration>,
}

/// Prices and capabilities of one `provider/model`.
#[derive(Debug)]
pub struct ModelSpec {
    pub name: Located<String>,
    /// US dollars per million prompt tokens.
    pub input_per_mtok: Option<f64>,
    /// US dollars per million completion tokens.
    pub output_per_mtok: Option<f64>,
    /// US dollars per million prompt tokens read from the provider's cache.
    pub cached_input_per_mtok: Option<f64>,
    /// Context length in tokens, prompt and answer together.
    pub context: Option<u64>,
    pub capabilities: Option<Vec<String>>,
}

#[derive(Debug)]
pub struct RecipeSpec {
    /// Name, unique in its list.
    pub name: Located<String>,
    /// Rules in document order.
    pub rules: Vec<RuleSpec>,
    /// When the next target is tried.
    pub retry: RetrySpec,
    /// Target for copies of requests.
    pub shadow: Option<ShadowSpec>,
}

/// One rule of a recipe.
#[derive(Debug)]
pub struct RuleSpec {
    /// Name, unique in its list.
    pub name: Located<String>,
    /// CEL condition; absent: always true.
    pub when: Option<Located<String>>,
    /// Order of the targets.
    pub strategy: Strategy,
    /// CEL expression of the sticky key, for `sticky` only.
    pub key: Option<Located<String>>,
    /// The targets in document order.
    pub targets: Vec<TargetSpec>,
}

/// How a rule orders its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    #[default]
    Priority,
    /// A random draw in proportion to the weights.
    Weighted,
    /// The faster of two random targets.
    LeastLatency,
    /// Fewest requests in flight.
    LeastBusy,
    Cheapest,
    /// Rendezvous hashing of a key.
    Sticky,
}

impl Strategy {
    pub const ALL: [Strategy; 6] = [
        Strategy::Priority,
        Strategy::Weighted,
        Strategy::LeastLatency,
        Strategy::LeastBusy,
        Strategy::Cheapest,
        Strategy::Sticky,
    ];

    /// Name in documents and decisions.
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
    pub target: Located<String>,
    /// Weight, for `weighted` only.
    pub weight: Option<Located<f64>>,
}

/// Shadow target of a recipe, as written.
#[derive(Debug)]
pub struct ShadowSpec {
    pub target: Located<String>,
    /// Percentage of requests to copy.
    pub percent: f64,
}

/// Retry policy of a recipe, as written.
#[derive(Debug, Default)]
pub struct RetrySpec {
    pub attempts: Option<usize>,
    /// Failures that are retried; absent: all that can be.
    pub on: Option<RetryOn>,
    /// Limit on retries, in percent of the recipe's requests.
    pub budget_percent: Option<u16>,
}

/// Failures after which the next target of the plan is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryOn {
    pub connect: bool,
    /// A deadline passed before the first content.
    pub timeout: bool,
    /// The provider answered 429.
    pub rate_limited: bool,
    /// The provider answered 5xx.
    pub server_error: bool,
}

impl RetryOn {
    /// Every failure that can be retried.
    pub const ALL: RetryOn =
        RetryOn { connect: true, timeout: true, rate_limited: true, server_error: true };
}
