//! The routing document as written, one row per key. Values that a check may reject keep their
//! place in the document. `compile` checks them and builds the compiled document.

use std::sync::Arc;

use super::prices::{KindPrices, Prices, price};
use super::provider_spec::ProviderSpec;
use rerouter_dialect::neutral::target_terms::{Effort, ModelTerms};
use rerouter_document::kinds::{
    at, each, entries, flag, inside, keyed, number, number_in, percent, quotable, reader, whole,
    words,
};
use rerouter_document::{
    Diagnostics, Field, Finding, Located, Section, TreeValue, ValueKind, section,
};
use serde_json::json;

/// Maximum number of attempts for one request. Pingora's retry loop has the same bound.
pub const ATTEMPTS_MAX: usize = 16;
/// Maximum number of rules in a recipe, as a decision may evaluate all of them.
pub const RULES: usize = 64;
/// Maximum number of targets in a rule, as a decision ranks all of them.
const RULE_TARGETS: usize = 64;
/// Maximum number of tiers of a model.
const TIERS: usize = 8;
/// Maximum number of words in a keyword set.
const KEYWORDS: usize = 1_000;
/// The capabilities that a model can have.
const CAPABILITIES: [&str; 4] = ["tools", "vision", "json", "audio"];

/// Problems of a document that cannot run.
#[derive(Debug, Default)]
pub struct Findings {
    pub faults: Vec<Finding>,
    /// Likely mistakes that alone would not make the document invalid.
    pub warnings: Vec<Finding>,
}

section! {
    /// The routing document as written.
    #[derive(Debug)]
    pub struct RoutingSpec: Default {
        /// Time zone of the signal `hour`, an IANA name; default: `UTC`.
        pub timezone: Option<Located<String>> = quotable();
        /// `none`: without the
        /// [shipped prices and abilities](../providers.md#prices-and-abilities).
        pub prices: bool = words([("shipped", true), ("none", false)]), or true;
        /// Servers that have models: up to 256. `agent`, `nodes` and `direct` are reserved.
        pub providers: Vec<ProviderSpec> = entries(inside()), or Vec::new();
        /// Prices and abilities of `provider/model`; also makes the name askable. A trailing `*`
        /// matches the rest.
        pub models: Vec<ModelSpec> = entries(inside()), or Vec::new();
        /// Lists of words, in any case, that conditions look for in the last user message.
        pub keywords: Vec<(Located<String>, Vec<Located<String>>)> =
            entries(keyed(each(quotable(), KEYWORDS))), or Vec::new();
        /// Ways to answer: rules, retry, shadow.
        pub recipes: Vec<RecipeSpec> = entries(inside()), explicit;
        /// What clients put into `model`, each with the recipe that it leads to. A trailing `*`
        /// matches the rest.
        pub aliases: Vec<(Located<String>, Located<String>)> = entries(keyed(quotable())), explicit;
    }
}

section! {
    /// Prices and capabilities of one `provider/model`.
    #[derive(Debug)]
    pub struct ModelSpec {
        /// The name of the target.
        pub name: Located<String>, key;
        /// What each kind of usage costs.
        pub prices: KindPrices, inline;
        /// Other prices of requests with long prompts.
        pub tiers: Vec<TierSpec> = each(inside(), TIERS), or Vec::new();
        /// Factors of the prices of tokens, by members of the request and their values.
        pub multipliers: MultiplierSpec, section;
        /// Maximum tokens of prompt and answer together.
        pub context: Option<u64> = whole(1, 1 << 40);
        /// Tokens of an answer that the provider can make in a second. A stream that the client
        /// leaves is charged by it, if a budget pays; default: 200.
        pub tokens_per_second: Option<u64> = whole(1, 1 << 20);
        /// Of `tools`, `vision`, `json`, `audio`; default: all.
        pub capabilities: Option<Vec<&'static str>> =
            each(words(CAPABILITIES.map(|word| (word, word))), CAPABILITIES.len());
        /// Tokens of the longest answer. Translated requests to Anthropic's protocol ask for it, if
        /// the client sets no limit.
        pub longest_answer: Option<u64> = whole(1, 1 << 40);
        /// The efforts of [reasoning](translation.md#reasoning) that it takes, of `none`,
        /// `minimal`, `low`, `medium`, `high`, `xhigh`, `max`; `budget`: a limit in tokens
        /// instead; `[]`: it does not reason; default: all.
        pub reasoning: Option<Vec<Effort>> =
            each(words(Effort::ALL.map(|effort| (effort.as_str(), effort))), Effort::ALL.len());
        /// `false`: of Anthropic's models, without `temperature`, `top_p` and `top_k`.
        pub sampling: Option<bool> = flag();
    }
}

impl ModelSpec {
    pub(super) fn terms(&self) -> ModelTerms {
        ModelTerms {
            longest_answer: self.longest_answer,
            reasoning: self.reasoning.as_deref().map(Arc::from),
            sampling: self.sampling,
        }
    }

    pub(super) fn prices(&self) -> Prices {
        let MultiplierSpec { service_tier, speed, inference_geo } = &self.multipliers;
        let members =
            [("service_tier", service_tier), ("speed", speed), ("inference_geo", inference_geo)];
        let factors = |all: &Vec<(Located<String>, f64)>| {
            all.iter().map(|(mode, factor)| (mode.value.to_ascii_lowercase(), *factor)).collect()
        };
        let multipliers = members
            .into_iter()
            .filter(|(_, all)| !all.is_empty())
            .map(|(member, all)| (member.to_owned(), factors(all)))
            .collect();
        let mut prices = Prices { base: self.prices, tiers: Vec::new(), multipliers };
        self.tiers.iter().for_each(|tier| prices.tier(tier.above, &tier.prices));
        prices
    }
}

section! {
    /// Prices of a model for prompts of more than `above` tokens.
    #[derive(Debug)]
    pub struct TierSpec {
        /// Tokens of the longest prompt that costs less.
        pub above: u64 = whole(1, 1 << 40), report 1;
        /// The prices that differ, for the whole request.
        pub prices: KindPrices, inline;
    }
}

section! {
    /// Factors of a model's prices of tokens. What the answer names counts.
    #[derive(Debug)]
    pub struct MultiplierSpec: Default {
        /// By tier, for example `{ flex: 0.5, priority: 2 }`.
        pub service_tier: Vec<(Located<String>, f64)> = entries(keyed(price())), or Vec::new();
        /// By speed, for example `{ fast: 6 }`.
        pub speed: Vec<(Located<String>, f64)> = entries(keyed(price())), or Vec::new();
        /// By place, for example `{ us: 1.1 }`.
        pub inference_geo: Vec<(Located<String>, f64)> = entries(keyed(price())), or Vec::new();
    }
}

section! {
    /// A recipe as written.
    #[derive(Debug)]
    pub struct RecipeSpec {
        /// Name, unique in its list.
        pub name: Located<String>, key;
        /// The first whose condition is true decides.
        pub rules: Vec<RuleSpec> = each(inside(), RULES), required;
        /// When the next target is tried.
        pub retry: RetryPolicy, section;
        /// Copies of requests to another target; their answers are captured, and not returned.
        pub shadow: Option<ShadowSpec> = inside();
    }
}

section! {
    /// One rule of a recipe.
    #[derive(Debug)]
    pub struct RuleSpec {
        /// The name of the rule, unique in its recipe.
        pub name: Located<String> = quotable(), report Located::default();
        /// A [condition](../routing.md#conditions); the last rule has none.
        pub when: Option<Located<String>> = condition();
        /// A [strategy](../routing.md#strategies).
        pub strategy: Strategy =
            words(Strategy::ALL.map(|strategy| (strategy.as_str(), strategy))),
            or Strategy::Priority;
        /// Of `sticky`: an expression that gives text.
        pub key: Option<Located<String>> = quotable();
        /// Where the request may go.
        pub targets: Vec<TargetSpec> = each(inside(), RULE_TARGETS), report Vec::new();
    }
    check complete
}

impl RuleSpec {
    fn complete(&mut self, section: &mut Section<'_>, _: &mut Diagnostics<'_>) {
        if self.name.path.is_empty() {
            self.name = section.located("unnamed".to_owned());
        }
        // Whether weights and a key are allowed depends on the strategy that was meant. An invalid
        // strategy is reported already, so they are dropped without another report.
        let written = section.take("strategy");
        let is_wrong = |field: Field<'_>| {
            field.text(&mut Diagnostics::default()) != Some(self.strategy.as_str())
        };
        if written.is_some_and(is_wrong) {
            self.targets.iter_mut().for_each(|target| target.weight = None);
            self.key = None;
        }
    }
}

section! {
    /// One target of a rule.
    #[derive(Debug)]
    pub struct TargetSpec {
        /// `provider/model` or `nodes/<model>`; the model may hold `${model}` or `${match}`
        /// ([names](../routing.md#names)).
        pub target: Located<String> = quotable(), required;
        /// Its share, of `weighted`; default: 1.
        pub weight: Option<Located<f64>> = at(number());
    }
}

section! {
    /// Shadow target of a recipe, as written.
    #[derive(Debug)]
    pub struct ShadowSpec {
        /// Where copies of requests go.
        pub target: Located<String> = quotable(), required;
        /// How many of a hundred requests are copied.
        pub percent: f64 =
            number_in(0, 100, "for example `1`, or `0.1` for one request in a thousand"), required;
    }
}

section! {
    /// When the next target of a plan is tried.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RetryPolicy: Default {
        /// Attempts in all, at most 16.
        pub attempts: usize = whole(1, ATTEMPTS_MAX as u64), or 3;
        /// Failures that are tried again, of `connect`, `timeout`, `429`, `5xx`; default: all.
        pub on: RetryOn = retry_on(), or RetryOn::ALL;
        /// Limit on retries, as a share of the recipe's requests over ten seconds.
        pub budget: Option<u16> = percent(0, 1_000);
    }
}

/// A condition: a CEL expression as text, or a boolean such as `when: true`.
fn condition() -> impl ValueKind<Value = Located<String>> {
    reader(
        || json!({ "type": ["string", "boolean"] }),
        |field, faults| match field.value() {
            TreeValue::Bool(value) => Some(field.located(value.to_string())),
            _ => field.name(faults),
        },
    )
}

fn retry_on() -> impl ValueKind<Value = RetryOn> {
    let word = || words([("connect", 0), ("timeout", 1), ("429", 2), ("5xx", 3)]);
    let items = || json!({ "enum": ["connect", "timeout", "429", 429, "5xx"] });
    let schema = move || json!({ "type": "array", "items": items() });
    reader(schema, move |field, faults| {
        let mut on = RetryOn::default();
        field.each(faults, 4, |item, faults| {
            let failure = match item.value() {
                TreeValue::Int(429) => 2,
                _ => word().read(item, faults)?,
            };
            match failure {
                0 => on.connect = true,
                1 => on.timeout = true,
                2 => on.rate_limited = true,
                _ => on.server_error = true,
            }
            Some(())
        });
        Some(on)
    })
}

rerouter_base::words! {
    /// How a rule orders its targets.
    #[derive(Default)]
    pub enum Strategy {
        #[default]
        Priority = "priority",
        /// A random draw in proportion to the weights.
        Weighted = "weighted",
        /// The faster of two random targets.
        LeastLatency = "least_latency",
        /// Fewest requests in flight.
        LeastBusy = "least_busy",
        Cheapest = "cheapest",
        /// Rendezvous hashing of a key.
        Sticky = "sticky",
    }
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
    pub const ALL: RetryOn =
        RetryOn { connect: true, timeout: true, rate_limited: true, server_error: true };
}
