//! Explains one recorded decision for people: each rule, and the outcome of each target. A pure
//! function: the rules are tried again on the captured inputs.

use super::decided_case::{DecidedCase, first};
use super::judge::target_name;
use super::otherwise;
use rerouter_captures::capture::record::{Attempt, CaptureState, Head};
use rerouter_records::explanation::{ExplainedRule, ExplainedTarget, Explanation};
use rerouter_routing::{
    Candidate, Decision, Inputs, Routing, RuleTrial, Strategy, decide, estimated_cost,
    node_targets, refused, trials,
};

/// Explains the decision of a capture; `None` if there is none. `document` is the decision's
/// document, if that is still known. Only callers who `may_read` the document see its rules.
pub fn why(head: &Head, document: Option<&Routing>, may_read: bool) -> Option<Explanation> {
    let (inputs, decision) = (head.inputs.as_ref()?, head.decision.as_deref()?);
    // With another version of the inputs, or if redaction took a part of them, the document may
    // decide otherwise now, and would explain another decision.
    let repeats = |document: &&Routing| {
        inputs.version == Inputs::VERSION
            && decide(document, inputs)
                .is_ok_and(|again| again.rule == decision.rule && again.plan == decision.plan)
    };
    let case = DecidedCase { head, inputs, decision, document: document.filter(repeats) };
    let tried = case.document.filter(|_| may_read).map(|document| trials(document, inputs));
    let rules = tried.as_ref().map(|tried| tried.iter().map(|trial| rule(trial, decision)));
    Some(Explanation {
        document: case.document.is_some(),
        rules: rules.map(Iterator::collect),
        order: order(decision),
        targets: case.targets(),
        otherwise: otherwise::otherwise(&case, tried.as_deref().unwrap_or_default()),
    })
}

fn rule(trial: &RuleTrial<'_>, decision: &Decision) -> ExplainedRule {
    let signals = trial.signals.iter();
    ExplainedRule {
        rule: trial.rule.name().to_owned(),
        when: trial.rule.when.as_ref().map(|when| when.text().to_owned()),
        signals: signals.map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        matches: trial.holds.as_ref().copied().unwrap_or(false),
        error: trial.holds.as_ref().err().cloned(),
        taken: decision.rule.as_deref() == Some(trial.rule.name()),
        target: trial.decision.as_ref().ok().map(first),
    }
}

/// A sentence on how the rule's targets were ordered.
fn order(decision: &Decision) -> String {
    let last = match decision.candidates.iter().all(|candidate| candidate.eligible) {
        true => "",
        false => " Those that were left out stand last.",
    };
    format!("{}{last}", order_of_plan(decision))
}

fn order_of_plan(decision: &Decision) -> String {
    let is = |strategy: Strategy| decision.strategy == strategy.as_str();
    let share = format!("{:.0}%", decision.propensity * 100.0);
    if is(Strategy::Weighted) {
        return format!("By a draw with weights: {} comes first in {share}.", first(decision));
    }
    let words = [
        (Strategy::LeastLatency, "Of two targets that are drawn, the faster one comes first."),
        (Strategy::LeastBusy, "The target with the fewest requests in flight comes first."),
        (Strategy::Cheapest, "The target with the lowest estimated cost comes first."),
        (Strategy::Sticky, "By the key of the request: the same key gets the same target."),
    ];
    let found = words.into_iter().find(|(strategy, _)| is(*strategy)).map(|(_, words)| words);
    found.unwrap_or("In the order of the document.").to_owned()
}

impl DecidedCase<'_> {
    /// All targets: those of the plan in order, then those that were left out, then others that
    /// were asked.
    fn targets(&self) -> Vec<ExplainedTarget> {
        let plan = self.decision.plan.iter().enumerate().map(|(at, entry)| {
            let name = target_name(&entry.provider, &entry.model);
            let (outcome, detail) = self.outcome(&name);
            self.entry(&name, Some(at + 1), outcome, &detail)
        });
        let left_out = self.decision.candidates.iter().filter(|candidate| !candidate.eligible).map(
            |candidate| {
                let name = target_name(&candidate.provider, &candidate.model);
                self.entry(&name, None, "left_out", &self.left_out(&name, candidate))
            },
        );
        let mut targets: Vec<_> = plan.chain(left_out).collect();
        // A shadow has the live request's decision, but is sent to another target.
        let known = |name: &String| {
            self.decision
                .candidates
                .iter()
                .any(|known| target_name(&known.provider, &known.model) == *name)
        };
        let mut outside: Vec<String> = self
            .head
            .attempts
            .iter()
            .map(|attempt| target_name(&attempt.provider, &attempt.model))
            .filter(|name| !known(name))
            .collect();
        outside.dedup();
        for name in outside {
            let (outcome, detail) = self.outcome(&name);
            targets.push(self.entry(&name, None, outcome, &detail));
        }
        targets
    }

    fn entry(
        &self,
        name: &str,
        place: Option<usize>,
        outcome: &str,
        detail: &str,
    ) -> ExplainedTarget {
        let (target, outcome, detail) = (name.to_owned(), outcome.to_owned(), detail.to_owned());
        ExplainedTarget { target, place, outcome, detail, measure: self.measure(name) }
    }

    /// The outcome of a target in the plan, as a word and a sentence.
    fn outcome(&self, name: &str) -> (&'static str, String) {
        let tries: Vec<String> = self.attempts(name).map(said).collect();
        let answered = self.served().as_deref() == Some(name);
        if tries.is_empty() {
            let why = match (self.head.state, self.served()) {
                _ if answered => return ("answered", "Answered.".to_owned()),
                (_, Some(_)) => "a target before it answered",
                (CaptureState::Aborted, None) => "the client left",
                _ => "the tries ended before it, by the retry policy of the recipe",
            };
            return ("not_asked", format!("Not asked: {why}."));
        }
        (if answered { "answered" } else { "failed" }, tries.join(" "))
    }

    /// The reason why a target of the rule is not in the plan.
    fn left_out(&self, name: &str, candidate: &Candidate) -> String {
        let (request, target) = (&self.inputs.request, self.target(name));
        let state = target.as_ref().and_then(|target| node_targets::state(target, self.inputs));
        match candidate.reason.as_deref().unwrap_or_default() {
            "endpoint" => format!("Left out: it does not serve {}.", request.endpoint),
            "translation" => {
                let refused = target.as_ref().and_then(|target| refused(target, self.inputs));
                let detail = refused.map_or_else(String::new, |one| format!(" {}", one.detail));
                format!("Left out: the request cannot be translated for it.{detail}")
            }
            "capability" => {
                let has = target.as_ref().and_then(|target| target.capabilities.as_ref());
                let has = has.map_or_else(String::new, |has| {
                    let has = if has.is_empty() { "nothing".to_owned() } else { has.join(", ") };
                    format!(", it is able of {has}")
                });
                format!("Left out: the request needs {}{has}.", request.needs.join(", "))
            }
            "context" => {
                let context = target.and_then(|target| target.context);
                let has = context.map_or_else(String::new, |has| format!(", it takes {has}"));
                format!("Left out: the request needs {} tokens{has}.", request.demand().tokens)
            }
            "no_node" => "Left out: no node that was ready serves it.".to_owned(),
            "breaker_open" => "Left out: its breaker was open after too many failures.".to_owned(),
            "cooldown" => {
                let until = state.and_then(|state| state.cooldown_until);
                let until = until.map_or_else(String::new, |at| {
                    format!(", until {}", at.strftime("%Y-%m-%d %H:%M:%S UTC"))
                });
                format!("Left out: its provider had asked for a pause{until}.")
            }
            "concurrency" => {
                let most = state.and_then(|state| state.max);
                let most = most.map_or_else(String::new, |most| format!(" of {most}"));
                format!("Left out: it had as many requests in flight as its limit{most} allows.")
            }
            other => format!("Left out: {other}."),
        }
    }

    /// The measure by which the strategy ordered the target.
    fn measure(&self, name: &str) -> Option<String> {
        let target = self.target(name)?;
        let state = node_targets::state(&target, self.inputs).unwrap_or_default();
        let is = |strategy: Strategy| self.decision.strategy == strategy.as_str();
        if is(Strategy::Cheapest) {
            let millionths = estimated_cost(&target, self.inputs);
            return Some(millionths.map_or_else(
                || "no price".to_owned(),
                |millionths| format!("about ${:.6}", millionths / 1_000_000.0),
            ));
        }
        if is(Strategy::LeastLatency) {
            let latency = state.ewma_us.map_or_else(
                || "not measured".to_owned(),
                |ewma_us| format!("{} ms", ewma_us / 1_000),
            );
            return Some(format!("{latency}, {} in flight", state.inflight));
        }
        if is(Strategy::LeastBusy) {
            return Some(format!("{} in flight", state.inflight));
        }
        if is(Strategy::Weighted) {
            let recipe = self.document?.recipe(&self.decision.recipe)?;
            let rule = recipe.rule(self.decision.rule.as_deref()?)?;
            let choice = rule.choices.iter().find(|choice| *choice.target.name == *name)?;
            return Some(format!("weight {}", choice.weight));
        }
        None
    }
}

fn said(attempt: &Attempt) -> String {
    let words = match attempt.error.as_deref() {
        None => "Answered",
        Some("connect") => "Asked, but could not be reached",
        Some("timeout") => "Asked, but took too long",
        Some("rate_limited") => "Asked, but refused for its rate limit",
        Some("server_error") => "Asked, but had an error",
        Some("unauthorized") => "Asked, but refused the gateway's credential",
        Some("in_band_error") => "Asked, but sent an error in place of an answer",
        Some("cut") => "Asked, but broke off",
        Some("too_large") => "Asked, but its answer was too large",
        Some("client_gone") => "Asked, but the client left",
        Some("internal") => "Asked, but the gateway failed",
        Some("breaker_open") => "Not asked: its breaker had opened meanwhile",
        Some("cooldown") => "Not asked: its provider had asked for a pause meanwhile",
        Some("concurrency") => "Not asked: it was at its limit of requests meanwhile",
        Some("no_node") => "Not asked: no further node serves it",
        Some(_) => "Asked, but failed",
    };
    let status = attempt.status.map(|status| format!("status {status}"));
    let node = attempt.node.as_ref().map(|node| format!("node {node}"));
    let took = Some(format!("{} ms", attempt.duration_ms));
    let facts: Vec<String> = [status, node, took].into_iter().flatten().collect();
    format!("{words} ({}).", facts.join(", "))
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
