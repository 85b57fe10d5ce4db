//! Explains why a decision changed: the first difference, and the part of the documents that causes
//! it.

use rerouter_routing::{
    Candidate, Condition, Decision, Routing, RoutingRefusal, Rule, Strategy, WeightedTarget,
};

use super::judge::{Judged, target_name};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reason {
    /// `name`, `recipe`, `rule`, `targets`, `eligibility`, `strategy`, `weight`, `price`, `key`,
    /// `order` or `state`.
    pub(super) kind: &'static str,
    /// Description, with the names and numbers that differ.
    pub(super) detail: String,
    /// The deciding condition, as written. Only for callers who may read the document.
    pub(super) when: Option<String>,
}

fn reason(kind: &'static str, detail: String) -> Reason {
    Reason { kind, detail, when: None }
}

/// `before` is the document of the earlier decision, if that is still known.
pub(super) fn explain(
    judged: &Judged<'_>,
    before: Option<&Routing>,
    after: &Routing,
) -> Vec<Reason> {
    match (&judged.before, &judged.after) {
        (Ok(was), Ok(is)) => decided((was, is), &judged.keywords, before, after),
        (Ok(was), Err(refusal)) => refused(was, refusal, before, after),
        (Err(_), Ok(is)) => {
            let told = format!("nothing could serve it before; now rule {} can", rule_name(is));
            vec![reason("targets", told)]
        }
        (Err(_), Err(_)) => Vec::new(),
    }
}

fn refused(
    was: &Decision,
    refusal: &RoutingRefusal,
    before: Option<&Routing>,
    after: &Routing,
) -> Vec<Reason> {
    match refusal {
        RoutingRefusal::ModelNotFound { model } => {
            vec![reason("name", format!("`{model}` no longer exists in the document"))]
        }
        RoutingRefusal::NoTarget { candidates, .. } => {
            let fell: Vec<Reason> = eligibility(&was.candidates, candidates);
            if fell.is_empty() { targets(was, candidates, before, after) } else { fell }
        }
    }
}

fn decided(
    (was, is): (&Decision, &Decision),
    keywords: &[Vec<String>; 2],
    before: Option<&Routing>,
    after: &Routing,
) -> Vec<Reason> {
    if was.alias.is_some() != is.alias.is_some() || was.recipe != is.recipe {
        return vec![reason("recipe", format!("recipe {} instead of {}", is.recipe, was.recipe))];
    }
    if was.rule != is.rule {
        return vec![rules((was, is), keywords, before, after)];
    }
    let differ = eligibility(&was.candidates, &is.candidates);
    if !differ.is_empty() {
        return differ;
    }
    let differ = targets(was, &is.candidates, before, after);
    if !differ.is_empty() {
        return differ;
    }
    if was.strategy != is.strategy {
        let rule = rule_name(is);
        let told = format!("rule {rule}: {} instead of {}", is.strategy, was.strategy);
        return vec![reason("strategy", told)];
    }
    ranking(is, rule_of(before, was), rule_of(Some(after), is))
}

/// The condition because of which another rule matched, with the keyword sets that it may have read
/// otherwise.
fn rules(
    (was, is): (&Decision, &Decision),
    keywords: &[Vec<String>; 2],
    before: Option<&Routing>,
    after: &Routing,
) -> Reason {
    let (old, new) = (rule_name(was), rule_name(is));
    let rules = after.recipe(&is.recipe).map(|recipe| &*recipe.rules).unwrap_or_default();
    let place = |name: Option<&str>| rules.iter().position(|rule| Some(rule.name()) == name);
    let condition = |rule: Option<&Rule>| {
        rule.and_then(|rule| rule.when.as_ref())
            .map_or_else(|| "always".to_owned(), |when| when.text().to_owned())
    };
    let (why, deciding) = match (place(was.rule.as_deref()), place(is.rule.as_deref())) {
        (None, _) => (format!("{old} is gone"), None),
        // The old rule comes first but no longer matches: its condition or a signal differs.
        (Some(earlier), Some(later)) if earlier < later => {
            (format!("{old} does not match"), Some(rules.get(earlier)))
        }
        (_, now) => {
            let added = rule_of(
                before.filter(|_| was.rule.is_some()),
                &Decision { rule: is.rule.clone(), ..was.clone() },
            )
            .is_none();
            let word = if added && before.is_some() { "is new and matches" } else { "matches" };
            (format!("{new} {word}"), Some(now.and_then(|at| rules.get(at))))
        }
    };
    let mut detail = format!("rule {new} instead of {old}: {why}");
    let when = deciding.flatten().and_then(|rule| rule.when.as_ref());
    if when.is_some_and(Condition::reads_keywords) {
        let told = ["now hits", "no longer hits"].iter().zip(keywords);
        for (word, sets) in told.filter(|(_, sets)| !sets.is_empty()) {
            let noun = if sets.len() == 1 { "keyword set" } else { "keyword sets" };
            detail.push_str(&format!("; the request {word} {noun} {}", sets.join(", ")));
        }
    }
    Reason { kind: "rule", detail, when: deciding.map(condition) }
}

fn eligibility(was: &[Candidate], is: &[Candidate]) -> Vec<Reason> {
    let word =
        |candidate: &Candidate| candidate.reason.clone().unwrap_or_else(|| "eligible".to_owned());
    let mut reasons = Vec::new();
    for now in is {
        let then =
            was.iter().find(|then| (&then.provider, &then.model) == (&now.provider, &now.model));
        if let Some(then) = then.filter(|then| then.reason != now.reason) {
            let detail = format!(
                "{}: {} instead of {}",
                target_name(&now.provider, &now.model),
                word(now),
                word(then)
            );
            reasons.push(reason("eligibility", detail));
        }
    }
    reasons
}

/// Targets that the rule gained or lost.
fn targets(
    was: &Decision,
    is: &[Candidate],
    before: Option<&Routing>,
    after: &Routing,
) -> Vec<Reason> {
    let names = |candidates: &[Candidate]| -> Vec<String> {
        candidates
            .iter()
            .map(|candidate| target_name(&candidate.provider, &candidate.model))
            .collect()
    };
    let (then, now) = (names(&was.candidates), names(is));
    let rule = rule_name(was);
    let gained = now
        .iter()
        .filter(|target| !then.contains(target))
        .map(|target| format!("rule {rule} now has {target}"));
    let lost = then
        .iter()
        .filter(|target| !now.contains(target))
        .map(|target| format!("rule {rule} no longer has {target}"));
    let mut reasons: Vec<Reason> =
        gained.chain(lost).map(|detail| reason("targets", detail)).collect();
    if reasons.is_empty() && then != now {
        reasons.push(reason("order", format!("rule {rule} lists its targets in another order")));
    }
    // In a weighted rule the effect of a new target also depends on the weights.
    if let (Some(old), Some(new)) = (rule_of(before, was), rule_of(Some(after), was)) {
        reasons.extend(weights(old, new, &rule));
    }
    reasons
}

/// The number that changed the order.
fn ranking(is: &Decision, before: Option<&Rule>, after: Option<&Rule>) -> Vec<Reason> {
    let rule = rule_name(is);
    let (Some(old), Some(new)) = (before, after) else {
        let told = format!("rule {rule}: {} orders its targets differently", is.strategy);
        return vec![reason("order", told)];
    };
    let mut reasons = weights(old, new, &rule);
    if new.strategy == Strategy::Cheapest {
        reasons.extend(prices(old, new));
    }
    if old.key.as_ref().map(|key| key.text()) != new.key.as_ref().map(|key| key.text()) {
        reasons.push(reason("key", format!("rule {rule} uses another key")));
    }
    if reasons.is_empty() {
        let told = format!("rule {rule}: the targets' latency or load orders them differently");
        reasons.push(reason("state", told));
    }
    reasons
}

fn pairs<'r>(
    old: &'r Rule,
    new: &'r Rule,
) -> impl Iterator<Item = (&'r WeightedTarget, &'r WeightedTarget)> {
    new.choices.iter().filter_map(|now| {
        let then = old.choices.iter().find(|then| then.target.name == now.target.name)?;
        Some((then, now))
    })
}

fn weights(old: &Rule, new: &Rule, rule: &str) -> Vec<Reason> {
    if new.strategy != Strategy::Weighted || old.strategy != Strategy::Weighted {
        return Vec::new();
    }
    let differ =
        pairs(old, new).filter(|(then, now)| then.weight.to_bits() != now.weight.to_bits());
    let details = differ.map(|(then, now)| {
        format!(
            "rule {rule}: weight of {} {} instead of {}",
            now.target.name, now.weight, then.weight
        )
    });
    details.map(|detail| reason("weight", detail)).collect()
}

fn prices(old: &Rule, new: &Rule) -> Vec<Reason> {
    let differ = pairs(old, new).filter(|(then, now)| then.target.prices != now.target.prices);
    let details = differ.map(|(_, now)| format!("{} has a different price", now.target.name));
    details.map(|detail| reason("price", detail)).collect()
}

fn rule_of<'r>(document: Option<&'r Routing>, decision: &Decision) -> Option<&'r Rule> {
    document?
        .recipe(&decision.recipe)?
        .rules
        .iter()
        .find(|rule| Some(rule.name()) == decision.rule.as_deref())
}

fn rule_name(decision: &Decision) -> String {
    format!("{}.{}", decision.recipe, decision.rule.as_deref().unwrap_or("-"))
}
