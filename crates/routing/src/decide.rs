//! The decision. It is pure, so that live traffic, reroutes and evaluations of stored requests get
//! identical results. It does not depend on a clock, a random source, an atomic or the order of a
//! hash map. Ties keep document order.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::compiled::{Recipe, Routing, Rule, WeightedTarget};
use super::condition::{EvaluationContext, Signals};
use super::decision::{Candidate, Decision, PlanEntry, Trace};
use super::document::Strategy;
use super::inputs::{BreakerState, Inputs, RefusedFeature};
use super::names::Destination;
use super::refusal::{RoutingRefusal, TooLong, is_permanent};
use super::target::Target;
use super::{node_targets, strategy};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::protocol::Way;

/// `Retry-After` when all targets are at their `max_concurrency`: the time until one is free is
/// unknown.
const CONCURRENCY_RETRY: Duration = Duration::from_secs(1);

/// Decides which targets to try for a request, and in which order.
pub fn decide(routing: &Routing, inputs: &Inputs) -> Result<Decision, RoutingRefusal> {
    let name = &*inputs.request.name;
    let direct = match routing.destination(name) {
        Some(Destination::Alias { alias, recipe, rest }) => {
            return by_recipe(routing, recipe, (alias, rest), inputs);
        }
        Some(Destination::Target(target)) => Some(Arc::clone(target)),
        Some(Destination::Pattern(_)) => routing.target_for(name),
        None => None,
    };
    match direct {
        Some(target) => {
            let choice = WeightedTarget { target, weight: 1.0, template: None };
            let selection = Selection {
                recipe: &routing.direct,
                rule: None,
                alias: None,
                strategy: Strategy::Priority,
                key: None,
                trace: Vec::new(),
            };
            selection.plan(routing, std::slice::from_ref(&choice), inputs)
        }
        None => Err(RoutingRefusal::ModelNotFound { model: inputs.request.model.to_string() }),
    }
}

/// The target for a shadow copy of a decided request. This function is pure; its result is not part
/// of the decision. `None` unless the recipe has a shadow and the draw selects this request. `Err`
/// is the reason why the target is ineligible.
pub fn shadow(
    routing: &Routing,
    inputs: &Inputs,
    decision: &Decision,
) -> Option<Result<Arc<Target>, &'static str>> {
    let recipe = routing.recipe(&decision.recipe)?;
    recipe.shadow.as_ref().filter(|shadow| strategy::is_shadowed(decision.seed, shadow))?;
    let target = routing.shadow_for(recipe, &inputs.request.name)?;
    // Only live traffic may probe a half-open breaker.
    let probing = node_targets::state(&target, inputs)
        .is_some_and(|health| health.breaker != BreakerState::Closed);
    // The gateway itself estimates such an answer, so there is no other answer to compare.
    let asks = way(&target, inputs) != Some(Way::Estimated);
    let against = against(&target, inputs)
        .or(probing.then_some("breaker_open"))
        .or((!asks).then_some("endpoint"));
    Some(against.map_or(Ok(target), Err))
}

fn by_recipe(
    routing: &Routing,
    recipe: &Recipe,
    (alias, rest): (&Arc<str>, &str),
    inputs: &Inputs,
) -> Result<Decision, RoutingRefusal> {
    let facts = Signals::new(inputs, &routing.zone);
    let mut evaluator = Evaluator { facts: &facts, evaluation: None, trace: Vec::new() };
    // A checked recipe ends with a rule that always matches.
    let Some(rule) = recipe.rules.iter().find(|rule| evaluator.matches(rule)) else {
        return Err(RoutingRefusal::NoTarget {
            candidates: Vec::new(),
            retry_after: None,
            too_long: None,
            untranslatable: None,
        });
    };
    by_rule(routing, (recipe, rule), (alias, rest), inputs, evaluator)
}

fn by_rule(
    routing: &Routing,
    (recipe, rule): (&Recipe, &Rule),
    (alias, rest): (&Arc<str>, &str),
    inputs: &Inputs,
    mut evaluator: Evaluator<'_>,
) -> Result<Decision, RoutingRefusal> {
    let key = evaluator.key(rule);
    let selection = Selection {
        recipe: &recipe.name,
        rule: Some(&rule.name),
        alias: Some(alias),
        strategy: rule.strategy,
        key,
        trace: evaluator.trace,
    };
    if rule.has_template {
        let choices = routing.choices_for(rule, &inputs.request.name, rest);
        if choices.is_empty() {
            return Err(RoutingRefusal::ModelNotFound { model: inputs.request.model.to_string() });
        }
        return selection.plan(routing, &choices, inputs);
    }
    selection.plan(routing, &rule.choices, inputs)
}

/// One rule of the recipe that a request leads to, tried independently of the other rules.
pub struct RuleTrial<'r> {
    pub rule: &'r Rule,
    /// Whether its condition holds. The error says why its evaluation failed.
    pub holds: Result<bool, String>,
    /// The decision if this is the first rule that matches.
    pub decision: Result<Decision, RoutingRefusal>,
    /// The signals that its condition names, with their values.
    pub signals: Vec<(&'static str, String)>,
}

/// Every rule of the recipe that a request leads to, in document order. Empty for a direct name.
pub fn trials<'r>(routing: &'r Routing, inputs: &Inputs) -> Vec<RuleTrial<'r>> {
    let Some(Destination::Alias { alias, recipe, rest }) =
        routing.destination(&inputs.request.name)
    else {
        return Vec::new();
    };
    let facts = Signals::new(inputs, &routing.zone);
    let trial = |rule: &'r Rule| {
        let mut evaluator = Evaluator { facts: &facts, evaluation: None, trace: Vec::new() };
        let matches = evaluator.matches(rule);
        let holds = evaluator.trace.pop().map_or(Ok(matches), |trace| Err(trace.error));
        let decision = by_rule(routing, (recipe, rule), (alias, rest), inputs, evaluator);
        let signals =
            rule.when.as_ref().map(|when| facts.named_in(when.text())).unwrap_or_default();
        RuleTrial { rule, holds, decision, signals }
    };
    recipe.rules.iter().map(trial).collect()
}

/// Evaluates the expressions of one decision and collects their errors.
struct Evaluator<'a> {
    facts: &'a Signals<'a>,
    /// Built when the first expression is evaluated.
    evaluation: Option<EvaluationContext<'a>>,
    trace: Vec<Trace>,
}

impl Evaluator<'_> {
    fn matches(&mut self, rule: &Rule) -> bool {
        let Some(when) = &rule.when else { return true };
        let holds =
            when.holds(self.evaluation.get_or_insert_with(|| EvaluationContext::new(self.facts)));
        holds.unwrap_or_else(|error| {
            self.trace.push(Trace { rule: rule.name().to_owned(), error });
            false
        })
    }

    /// The sticky key of the rule; `None` if it has none or its evaluation fails.
    fn key(&mut self, rule: &Rule) -> Option<String> {
        let read = rule
            .key
            .as_ref()?
            .read(self.evaluation.get_or_insert_with(|| EvaluationContext::new(self.facts)));
        read.map_err(|error| {
            self.trace.push(Trace { rule: rule.name().to_owned(), error: format!("key: {error}") })
        })
        .ok()
    }
}

/// The matching rule, before its targets are ordered.
struct Selection<'a> {
    recipe: &'a Arc<str>,
    rule: Option<&'a Arc<str>>,
    alias: Option<&'a Arc<str>>,
    strategy: Strategy,
    key: Option<String>,
    trace: Vec<Trace>,
}

impl Selection<'_> {
    fn plan(
        self,
        routing: &Routing,
        choices: &[WeightedTarget],
        inputs: &Inputs,
    ) -> Result<Decision, RoutingRefusal> {
        let mut eligible = Vec::with_capacity(choices.len());
        let mut candidates = Vec::with_capacity(choices.len());
        for choice in choices {
            let reason = against(&choice.target, inputs);
            candidates.push(Candidate {
                provider: Arc::clone(&choice.target.provider.name),
                model: Arc::clone(&choice.target.model),
                eligible: reason.is_none(),
                reason: reason.map(str::to_owned),
            });
            if reason.is_none() {
                eligible.push(choice);
            }
        }
        let (order, propensity) =
            strategy::order(self.strategy, &eligible, inputs, self.key.as_deref());
        let named = |choice: &&WeightedTarget| PlanEntry {
            provider: Arc::clone(&choice.target.provider.name),
            model: Arc::clone(&choice.target.model),
        };
        let plan: Vec<PlanEntry> =
            order.into_iter().filter_map(|at| eligible.get(at)).map(named).collect();
        let Some(first) = plan.first().cloned() else {
            let retry_after = soonest(choices, &candidates, inputs);
            let too_long = too_long(choices, &candidates, inputs);
            let untranslatable = choices.iter().find_map(|choice| refused(&choice.target, inputs));
            let untranslatable = untranslatable.cloned();
            return Err(RoutingRefusal::NoTarget {
                candidates,
                retry_after,
                too_long,
                untranslatable,
            });
        };
        Ok(Decision {
            provider: first.provider,
            model: first.model,
            recipe: Arc::clone(self.recipe),
            rule: self.rule.cloned(),
            strategy: Cow::Borrowed(self.strategy.as_str()),
            alias: self.alias.cloned(),
            revision: Arc::clone(&routing.revision),
            seed: inputs.seed,
            propensity,
            plan,
            candidates,
            trace: self.trace,
        })
    }
}

/// Time until a target may be free again, if all targets that fit the request are at a limit.
fn soonest(
    choices: &[WeightedTarget],
    candidates: &[Candidate],
    inputs: &Inputs,
) -> Option<Duration> {
    let mut soonest: Option<Duration> = None;
    for (choice, candidate) in choices.iter().zip(candidates) {
        let wait = match candidate.reason.as_deref()? {
            "cooldown" => {
                let until = node_targets::state(&choice.target, inputs)?.cooldown_until?;
                Duration::try_from(until.duration_since(inputs.at)).ok()?
            }
            "concurrency" => CONCURRENCY_RETRY,
            reason if is_permanent(reason) => continue,
            _ => return None,
        };
        soonest = Some(soonest.map_or(wait, |other| other.min(wait)));
    }
    soonest
}

/// The length of the request and the longest context that is too short for it.
fn too_long(
    choices: &[WeightedTarget],
    candidates: &[Candidate],
    inputs: &Inputs,
) -> Option<TooLong> {
    let short = choices
        .iter()
        .zip(candidates)
        .filter(|(_, candidate)| candidate.reason.as_deref() == Some("context"));
    let most =
        short.filter_map(|(choice, _)| node_targets::context(&choice.target, inputs)).max()?;
    let request = &inputs.request;
    Some(TooLong { prompt: request.prompt_tokens, answer: request.max_tokens.unwrap_or(0), most })
}

/// Why a target is ineligible. The request is checked first, then the target's state.
fn against(target: &Target, inputs: &Inputs) -> Option<&'static str> {
    let request = &inputs.request;
    let Some(way) = way(target, inputs) else { return Some("endpoint") };
    if refused(target, inputs).is_some() {
        return Some("translation");
    }
    let is_counted = Endpoint::named(&request.endpoint).is_some_and(Endpoint::counts);
    if is_counted && matches!(way, Way::Estimated) && !target.is_on_nodes() {
        // Nobody is asked.
        return None;
    }
    let demand = request.demand().against(target.context, target.capabilities.as_deref());
    // Clients count tokens to find out whether a prompt fits.
    if let Some(reason) = demand.filter(|_| !is_counted) {
        return Some(reason);
    }
    if let Some(reason) = node_targets::against(target, inputs) {
        return Some(reason);
    }
    let health = node_targets::state(target, inputs)?;
    if health.nodes == Some(0) { Some("no_node") } else { health.against(inputs.at) }
}

fn way(target: &Target, inputs: &Inputs) -> Option<Way> {
    target.provider.way(Endpoint::named(&inputs.request.endpoint)?)
}

/// A feature of the request that the target's dialect cannot carry. `None` for a request that only
/// counts tokens: if the dialect cannot carry its prompt, the gateway estimates the tokens.
pub fn refused<'i>(target: &Target, inputs: &'i Inputs) -> Option<&'i RefusedFeature> {
    let counts = || Endpoint::named(&inputs.request.endpoint).is_some_and(Endpoint::counts);
    match way(target, inputs)? {
        Way::Translated(dialect) => inputs.request.refused(dialect).filter(|_| !counts()),
        Way::Native | Way::Estimated => None,
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
