//! Single changes that would have led to another decision, or to another answering target: each is
//! tried by deciding again.

use super::decided_case::{DecidedCase, first};
use super::judge::target_name;
use rerouter_records::explanation::Alternative;
use rerouter_routing::{Candidate, Inputs, RuleTrial, Target, decide};

/// Most entries in the list, because a recipe may have many rules.
const MOST: usize = 20;

pub(super) fn otherwise(case: &DecidedCase<'_>, tried: &[RuleTrial<'_>]) -> Vec<Alternative> {
    let mut found = attempts(case);
    found.extend(case.decision.candidates.iter().filter_map(|left_out| admitted(case, left_out)));
    found.extend(rules(case, tried));
    if case.decision.propensity < 1.0 {
        let detail = format!(
            "Another draw may have put another target first: {} comes first in {:.0}% of draws.",
            first(case.decision),
            case.decision.propensity * 100.0
        );
        found.push(alternative("draw", detail, None));
    }
    found.truncate(MOST);
    found
}

/// The targets that were asked before the one that answered.
fn attempts(case: &DecidedCase<'_>) -> Vec<Alternative> {
    let Some(served) = case.served() else { return Vec::new() };
    let plan = case.decision.plan.iter().map(|entry| target_name(&entry.provider, &entry.model));
    let before = plan.take_while(|name| *name != served);
    let failed = before.filter(|name| case.attempts(name).next().is_some());
    let alternative = |name: String| {
        let detail = format!("If {name} had answered, {served} would not have been asked.");
        alternative("attempt", detail, Some(name))
    };
    failed.map(alternative).collect()
}

fn alternative(kind: &str, detail: String, target: Option<String>) -> Alternative {
    Alternative { kind: kind.to_owned(), detail, target }
}

/// A target that was left out, if it would have come first otherwise.
fn admitted(case: &DecidedCase<'_>, left_out: &Candidate) -> Option<Alternative> {
    let name = target_name(&left_out.provider, &left_out.model);
    let target = case.target(&name)?;
    let mut inputs = case.inputs.clone();
    let (kind, condition) = admit(&mut inputs, &target, left_out.reason.as_deref()?)?;
    let again = first(&decide(case.document?, &inputs).ok()?);
    if again == first(case.decision) {
        return None;
    }
    let detail = format!("{condition}, {again} would have come first.");
    Some(alternative(kind, detail, Some(again)))
}

/// Changes the inputs so that the reason against a target disappears. Returns the kind and a
/// description of the change.
fn admit(inputs: &mut Inputs, target: &Target, reason: &str) -> Option<(&'static str, String)> {
    let name = &target.name;
    let condition = match reason {
        "capability" => {
            let able = target.capabilities.as_ref()?;
            let lacks: Vec<String> =
                inputs.request.needs.iter().filter(|need| !able.contains(need)).cloned().collect();
            inputs.request.needs.retain(|need| able.contains(need));
            return Some(("capability", format!("Without the need for {}", lacks.join(", "))));
        }
        "context" => {
            let most = target.context?;
            let prompt = most.checked_sub(inputs.request.max_tokens.unwrap_or(0))?;
            inputs.request.prompt_tokens = prompt;
            return Some(("context", format!("With a prompt of {prompt} tokens")));
        }
        "breaker_open" => ("breaker_open", format!("If the breaker of {name} had been closed")),
        "cooldown" => ("cooldown", format!("If {name} had not been told to pause")),
        "concurrency" => ("concurrency", format!("With fewer requests in flight at {name}")),
        _ => return None,
    };
    // The nodes behind the target have their own states.
    if target.is_on_nodes() {
        return None;
    }
    inputs.health.remove(&*target.entry().name);
    Some(condition)
}

/// The rules before the matching one, if they had matched, and the next rule, if that one had not.
fn rules(case: &DecidedCase<'_>, tried: &[RuleTrial<'_>]) -> Vec<Alternative> {
    let taken = case.decision.rule.as_deref();
    let Some(place) = tried.iter().position(|trial| Some(trial.rule.name()) == taken) else {
        return Vec::new();
    };
    let (before, after) = tried.split_at(place);
    let target = |trial: &RuleTrial<'_>| {
        let to = first(trial.decision.as_ref().ok()?);
        (to != first(case.decision)).then_some(to)
    };
    let mut found: Vec<Alternative> = before
        .iter()
        .filter_map(|trial| {
            let to = target(trial)?;
            let name = trial.rule.name();
            let detail = format!("If rule {name} had matched, {to} would have come first.");
            Some(alternative("rule", detail, Some(to)))
        })
        .collect();
    let next = after.iter().skip(1).find(|trial| trial.holds == Ok(true));
    if let Some((trial, to)) = next.and_then(|trial| Some((trial, target(trial)?))) {
        let (taken, name) = (taken.unwrap_or_default(), trial.rule.name());
        let detail = format!(
            "If rule {taken} had not matched, rule {name} would have, and {to} would have come \
             first."
        );
        found.push(alternative("rule", detail, Some(to)));
    }
    found
}
