//! The decision: pure, so that live traffic, reroutes and evaluations of stored requests agree to the bit.
//! No clock, no random source, no atomics, no map order; ties go by document order.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::condition::{Evaluation, Facts};
use super::document::Strategy;
use super::inputs::{Breaker, Inputs, TargetHealth};
use super::recipe::{Choosable, Recipe, Routing, Rule, Target};
use super::{inputs, on_nodes, strategy};
use crate::bounds;
use crate::error::{Error, Kind};
use crate::protocol::endpoint::Endpoint;

/// What was decided, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Provider of the plan's first entry.
    pub provider: String,
    /// Model of the plan's first entry.
    pub model: String,
    /// The recipe, or `direct` where `provider/model` was asked for.
    pub recipe: String,
    /// The rule that matched; none for direct names.
    pub rule: Option<String>,
    /// How the plan was ordered.
    pub strategy: String,
    /// The alias asked for; none for direct names.
    pub alias: Option<String>,
    /// The document's revision.
    pub revision: String,
    /// Source of the draws.
    #[serde(with = "inputs::hex")]
    pub seed: u64,
    /// With which probability the first entry came first, given what was eligible.
    pub propensity: f64,
    /// Every eligible target, in the order to try them.
    pub plan: Vec<Choice>,
    /// Every target of the rule, in document order, with what spoke against it.
    pub candidates: Vec<Candidate>,
    /// Expressions that failed to evaluate: conditions, which then counted as false, and keys, which then were none.
    #[serde(default)]
    pub trace: Vec<Trace>,
}

/// One entry of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Provider.
    pub provider: String,
    /// Model.
    pub model: String,
}

/// One target that was considered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Provider.
    pub provider: String,
    /// Model.
    pub model: String,
    /// Whether it is in the plan.
    pub eligible: bool,
    /// Why not: `endpoint`, `capability`, `context`, `no_node`, `breaker_open`, `cooldown` or `concurrency`.
    pub reason: Option<String>,
}

/// An expression that failed to evaluate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Name of the rule.
    pub rule: String,
    /// What went wrong.
    pub error: String,
}

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The document has no such name.
    ModelNotFound {
        /// What was asked for.
        model: String,
    },
    /// Every target of the rule is ineligible.
    NoTarget {
        /// The targets, each with its reason.
        candidates: Vec<Candidate>,
        /// Where those that could serve the request are all limited: until the first of them may be free again.
        retry_after: Option<Duration>,
        /// Where the request is longer than the context of a target.
        too_long: Option<TooLong>,
    },
}

/// How long a request is, and how long it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// Tokens of the prompt, estimated.
    pub prompt: u64,
    /// Tokens of the answer, as asked for.
    pub answer: u64,
    /// The longest context of the targets that are too short.
    pub most: u64,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::ModelNotFound { model } => {
                let shown: String = model.chars().take(crate::bounds::MODEL_NAME_BYTES).collect();
                Error::new(
                    Kind::ModelNotFound,
                    format!("The model `{shown}` does not exist or you do not have access to it."),
                )
                .at("model")
            }
            Refusal::NoTarget { candidates, retry_after, too_long } => {
                no_target(&candidates, retry_after, too_long)
            }
        }
    }
}

/// 400 where the request is at fault, 429 where waiting helps, else 503; each says what spoke against which target.
fn no_target(
    candidates: &[Candidate],
    retry_after: Option<Duration>,
    too_long: Option<TooLong>,
) -> Error {
    let reasons = || candidates.iter().filter_map(|candidate| candidate.reason.as_deref());
    let why: Vec<String> = candidates
        .iter()
        .map(|candidate| {
            format!(
                "{}/{}: {}",
                candidate.provider,
                candidate.model,
                candidate.reason.as_deref().unwrap_or("eligible")
            )
        })
        .collect();
    let why = why.join(", ");
    if candidates.is_empty() {
        Error::new(Kind::NoTarget, "No rule leads this request to a target.")
    } else if let Some(too_long) =
        too_long.filter(|_| reasons().all(|reason| matches!(reason, "context" | "endpoint")))
    {
        Error::new(Kind::ContextLengthExceeded, too_long.told(&why)).at("messages")
    } else if reasons().all(|reason| reason == "endpoint") {
        let message = format!(
            "No provider that the request may go to speaks the protocol of this endpoint ({why})."
        );
        Error::new(Kind::UnsupportedFeature, message).at("model")
    } else if reasons().all(is_of_the_request) {
        Error::new(
            Kind::UnsupportedFeature,
            format!("No model that the request may go to can do all that it asks for ({why})."),
        )
    } else if let Some(wait) = retry_after {
        Error::new(
            Kind::RateLimited,
            format!("Every target that the request may go to is at its limit ({why})."),
        )
        .retry_after(wait)
    } else {
        Error::new(Kind::NoTarget, format!("No target can take the request now ({why})."))
    }
}

impl TooLong {
    /// In the words of OpenAI and of Anthropic, which clients look for.
    fn told(self, why: &str) -> String {
        let TooLong { prompt, answer, most } = self;
        let limit = format!("This model's maximum context length is {most} tokens");
        if prompt > most {
            return format!(
                "{limit}, and the prompt is too long: {prompt} tokens > {most} maximum, as estimated ({why})."
            );
        }
        let sum = format!(
            "input length and `max_tokens` exceed context limit: {prompt} + {answer} > {most}"
        );
        format!("{limit}, and {sum}, as estimated (context_length_exceeded; {why}).")
    }
}

/// Whether the reason lies in what the request is: another try would meet it again.
fn is_of_the_request(reason: &str) -> bool {
    matches!(reason, "endpoint" | "capability" | "context")
}

/// Decides where a request goes.
pub fn decide(routing: &Routing, inputs: &Inputs) -> Result<Decision, Refusal> {
    let asked = inputs.request.name.as_str();
    if let Some(recipe) = routing.alias(asked) {
        return by_recipe(routing, recipe, asked, inputs);
    }
    match routing.target(asked) {
        Some(target) => {
            let choice = Choosable { target: Arc::clone(target), weight: 1.0 };
            let found = Found {
                recipe: "direct",
                rule: None,
                alias: None,
                strategy: Strategy::Priority,
                key: None,
                trace: Vec::new(),
            };
            found.plan(routing, std::slice::from_ref(&choice), inputs)
        }
        None => Err(Refusal::ModelNotFound { model: inputs.request.model.clone() }),
    }
}

/// Where a copy of a request is sent beside it, once it is decided: as pure as the decision, and no part of it. `None` unless
/// the recipe has a shadow and the draw fell on this request; the error is what speaks against the target.
pub fn shadow<'r>(
    routing: &'r Routing,
    inputs: &Inputs,
    decision: &Decision,
) -> Option<Result<&'r Arc<Target>, &'static str>> {
    let shadow = routing
        .recipe(&decision.recipe)?
        .shadow()
        .filter(|shadow| strategy::is_shadowed(decision.seed, shadow))?;
    // The probe of a breaker is for live traffic: a copy proves nothing.
    let probing = on_nodes::state(&shadow.target, inputs)
        .is_some_and(|health| health.breaker != Breaker::Closed);
    let against = against(&shadow.target, inputs).or(probing.then_some("breaker_open"));
    Some(against.map_or(Ok(&shadow.target), Err))
}

fn by_recipe(
    routing: &Routing,
    recipe: &Recipe,
    alias: &str,
    inputs: &Inputs,
) -> Result<Decision, Refusal> {
    let facts = Facts::new(inputs, routing.zone());
    let mut evaluator = Evaluator { facts: &facts, evaluation: None, trace: Vec::new() };
    // A built recipe ends with a rule that always matches; a recipe without one has no target.
    let Some(rule) = recipe.rules().iter().find(|rule| evaluator.matches(rule)) else {
        return Err(Refusal::NoTarget {
            candidates: Vec::new(),
            retry_after: None,
            too_long: None,
        });
    };
    let key = evaluator.key(rule);
    let found = Found {
        recipe: recipe.name(),
        rule: Some(rule.name()),
        alias: Some(alias),
        strategy: rule.strategy(),
        key,
        trace: evaluator.trace,
    };
    found.plan(routing, rule.choices(), inputs)
}

/// The expressions of one decision, and what went wrong with them.
struct Evaluator<'a> {
    facts: &'a Facts<'a>,
    /// Made when the first expression asks for it.
    evaluation: Option<Evaluation<'a>>,
    trace: Vec<Trace>,
}

impl Evaluator<'_> {
    fn matches(&mut self, rule: &Rule) -> bool {
        let Some(when) = rule.when() else { return true };
        let holds = when.holds(self.evaluation.get_or_insert_with(|| Evaluation::new(self.facts)));
        holds.unwrap_or_else(|error| {
            self.trace.push(Trace { rule: rule.name().to_owned(), error });
            false
        })
    }

    /// What the rule keeps together; none where it fails to say.
    fn key(&mut self, rule: &Rule) -> Option<String> {
        let read =
            rule.key()?.read(self.evaluation.get_or_insert_with(|| Evaluation::new(self.facts)));
        read.map_err(|error| {
            self.trace.push(Trace { rule: rule.name().to_owned(), error: format!("key: {error}") })
        })
        .ok()
    }
}

/// How the rule was found, before its targets are ranked.
struct Found<'a> {
    recipe: &'a str,
    rule: Option<&'a str>,
    alias: Option<&'a str>,
    strategy: Strategy,
    key: Option<String>,
    trace: Vec<Trace>,
}

impl Found<'_> {
    fn plan(
        self,
        routing: &Routing,
        choices: &[Choosable],
        inputs: &Inputs,
    ) -> Result<Decision, Refusal> {
        let mut eligible = Vec::with_capacity(choices.len());
        let mut candidates = Vec::with_capacity(choices.len());
        for choice in choices {
            let reason = against(choice.target(), inputs);
            candidates.push(Candidate {
                provider: choice.target().provider.name.to_string(),
                model: choice.target().model.to_string(),
                eligible: reason.is_none(),
                reason: reason.map(str::to_owned),
            });
            if reason.is_none() {
                eligible.push(choice);
            }
        }
        let (order, propensity) =
            strategy::order(self.strategy, &eligible, inputs, self.key.as_deref());
        let named = |choice: &&Choosable| Choice {
            provider: choice.target().provider.name.to_string(),
            model: choice.target().model.to_string(),
        };
        let plan: Vec<Choice> =
            order.into_iter().filter_map(|at| eligible.get(at)).map(named).collect();
        let Some(first) = plan.first().cloned() else {
            let retry_after = soonest(choices, &candidates, inputs);
            let too_long = too_long(choices, &candidates, inputs);
            return Err(Refusal::NoTarget { candidates, retry_after, too_long });
        };
        Ok(Decision {
            provider: first.provider,
            model: first.model,
            recipe: self.recipe.to_owned(),
            rule: self.rule.map(str::to_owned),
            strategy: self.strategy.as_str().to_owned(),
            alias: self.alias.map(str::to_owned),
            revision: routing.revision().to_owned(),
            seed: inputs.seed,
            propensity,
            plan,
            candidates,
            trace: self.trace,
        })
    }
}

/// Until one of the targets may be free again, where all that could serve the request are limited.
fn soonest(choices: &[Choosable], candidates: &[Candidate], inputs: &Inputs) -> Option<Duration> {
    let mut soonest: Option<Duration> = None;
    for (choice, candidate) in choices.iter().zip(candidates) {
        let wait = match candidate.reason.as_deref()? {
            "cooldown" => {
                let until = on_nodes::state(choice.target(), inputs)?.cooldown_until?;
                Duration::try_from(until.duration_since(inputs.at)).ok()?
            }
            "concurrency" => bounds::CONCURRENCY_RETRY,
            reason if is_of_the_request(reason) => continue,
            _ => return None,
        };
        soonest = Some(soonest.map_or(wait, |other| other.min(wait)));
    }
    soonest
}

/// How long the request is, and the longest context of the targets that are too short for it.
fn too_long(choices: &[Choosable], candidates: &[Candidate], inputs: &Inputs) -> Option<TooLong> {
    let short = choices
        .iter()
        .zip(candidates)
        .filter(|(_, candidate)| candidate.reason.as_deref() == Some("context"));
    let most = short.filter_map(|(choice, _)| on_nodes::context(choice.target(), inputs)).max()?;
    let request = &inputs.request;
    Some(TooLong { prompt: request.prompt_tokens, answer: request.max_tokens.unwrap_or(0), most })
}

/// What speaks against a target: first what the request is, then what the target's state is.
fn against(target: &Target, inputs: &Inputs) -> Option<&'static str> {
    let request = &inputs.request;
    if !Endpoint::named(&request.endpoint)
        .is_some_and(|endpoint| target.provider.protocol.serves(endpoint))
    {
        return Some("endpoint");
    }
    if let Some(reason) = request.demand().against(target.context, target.capabilities.as_deref()) {
        return Some(reason);
    }
    if let Some(reason) = on_nodes::against(target, inputs) {
        return Some(reason);
    }
    let health = on_nodes::state(target, inputs)?;
    if health.nodes == Some(0) { Some("no_node") } else { state_against(&health, inputs.at) }
}

/// What the state of a target, or of a node, speaks against it.
pub fn state_against(health: &TargetHealth, at: Timestamp) -> Option<&'static str> {
    let TargetHealth { breaker, probe_free, cooldown_until, inflight, max, .. } = health;
    if *breaker == Breaker::Open || (*breaker == Breaker::HalfOpen && !probe_free) {
        Some("breaker_open")
    } else if cooldown_until.is_some_and(|until| until > at) {
        Some("cooldown")
    } else if max.is_some_and(|max| *inflight >= max) {
        Some("concurrency")
    } else {
        None
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
