//! Estimates how much memory a queued capture holds, as the queue's bound is one of memory.

use std::collections::BTreeMap;
use std::mem::size_of;

use super::record::Head;
use crate::routing::{
    Abilities, Candidate, Decision, Inputs, KeywordHit, PlanEntry, PrincipalFacts, RequestFacts,
    TargetHealth, Trace,
};

/// The fixed part of a head, with the overhead of its few allocations.
const FIXED: usize = 2048;
/// Overhead of an entry of a map, or of a list of strings.
const ENTRY: usize = 48;

/// Bytes of a head with its inputs and decision.
pub(super) fn head(head: &Head) -> usize {
    let headers = head.request_headers.iter().chain(&head.response_headers);
    let headers: usize = headers.map(|(name, value)| name.len() + value.len() + ENTRY).sum();
    let attempts: usize = head
        .attempts
        .iter()
        .map(|attempt| size_of_val(attempt) + attempt.error.as_ref().map_or(0, String::len))
        .sum();
    let decision = head.decision.as_deref().map_or(0, decision);
    let query = head.query.as_ref().map_or(0, String::len);
    FIXED + query + headers + attempts + decision + head.inputs.as_ref().map_or(0, inputs)
}

fn inputs(inputs: &Inputs) -> usize {
    let health: usize =
        inputs.health.iter().map(|(name, state)| name.len() + ENTRY + target(state)).sum();
    let keywords: usize = inputs
        .keywords
        .iter()
        .map(|(name, KeywordHit { hash, .. })| name.len() + hash.len() + 2 * ENTRY)
        .sum();
    let RequestFacts { needs, headers, model, name, .. } = &inputs.request;
    let PrincipalFacts { labels, user_labels, models, .. } = &inputs.principal;
    let asked = texts(needs) + model.len() + name.len() + pairs(headers);
    health
        + keywords
        + asked
        + pairs(labels)
        + pairs(user_labels)
        + models.as_deref().map_or(0, texts)
}

fn target(state: &TargetHealth) -> usize {
    let abilities = |able: &Abilities| ENTRY + able.capabilities.as_deref().map_or(0, texts);
    let node = state.node.as_ref().map_or(0, |node| {
        texts(&node.models)
            + node
                .abilities
                .iter()
                .map(|(model, able)| model.len() + abilities(able))
                .sum::<usize>()
    });
    size_of::<TargetHealth>() + node
}

fn decision(decision: &Decision) -> usize {
    let plan = decision
        .plan
        .iter()
        .map(|PlanEntry { provider, model }| provider.len() + model.len() + size_of::<PlanEntry>());
    let reason = |candidate: &Candidate| candidate.reason.as_ref().map_or(0, String::len);
    let candidates = decision.candidates.iter();
    let candidates = candidates
        .map(|each| each.provider.len() + each.model.len() + reason(each) + size_of::<Candidate>());
    let trace = decision
        .trace
        .iter()
        .map(|Trace { rule, error }| rule.len() + error.len() + size_of::<Trace>());
    plan.chain(candidates).chain(trace).sum()
}

fn pairs(map: &BTreeMap<String, String>) -> usize {
    map.iter().map(|(name, value)| name.len() + value.len() + 2 * ENTRY).sum()
}

fn texts<T: AsRef<str>>(list: &[T]) -> usize {
    list.iter().map(|text| text.as_ref().len() + ENTRY).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::record::tests::capture;
    use crate::id::{Random, UserId};
    use crate::routing::NodeFacts;
    use std::sync::Arc;

    #[test]
    fn whatever_is_long_is_counted() {
        let plain = capture(0, &UserId::known("usr_1"), &Random::seeded(1)).head;
        let before = head(&plain);
        assert!((FIXED..2 * FIXED).contains(&before), "{before}");
        let long = "n".repeat(1_000);
        let text = || long.clone();
        let inputs = |change: &dyn Fn(&mut Inputs)| {
            let mut head = plain.clone();
            change(head.inputs.as_mut().unwrap());
            head
        };
        let decision = |change: &dyn Fn(&mut Decision)| {
            let mut head = plain.clone();
            change(Arc::make_mut(head.decision.as_mut().unwrap()));
            head
        };
        let node = |node: NodeFacts| {
            inputs(&|inputs| {
                _ = inputs.health.insert(
                    "n".into(),
                    TargetHealth { node: Some(node.clone()), ..TargetHealth::default() },
                )
            })
        };
        let able = Abilities { context: None, capabilities: Some(vec![text()]) };
        for longer in [
            inputs(&|inputs| _ = inputs.health.insert(text(), TargetHealth::default())),
            node(NodeFacts { models: vec![text().into()], ..NodeFacts::default() }),
            node(NodeFacts {
                abilities: BTreeMap::from([(text().into(), Abilities::default().into())]),
                ..NodeFacts::default()
            }),
            node(NodeFacts {
                abilities: BTreeMap::from([("m".into(), able.into())]),
                ..NodeFacts::default()
            }),
            inputs(&|inputs| _ = inputs.request.headers.insert("x-a".into(), text())),
            inputs(&|inputs| inputs.request.needs.push(text())),
            inputs(&|inputs| _ = inputs.principal.labels.insert("a".into(), text())),
            inputs(&|inputs| _ = inputs.principal.user_labels.insert(text(), "a".into())),
            inputs(&|inputs| inputs.principal.models = Some(vec![text()])),
            inputs(&|inputs| {
                _ = inputs.keywords.insert(text(), KeywordHit { hash: "h".into(), hit: true })
            }),
            decision(&|decision| {
                decision.plan.push(PlanEntry { provider: text().into(), model: "m".into() })
            }),
            decision(&|decision| {
                decision.candidates.push(Candidate {
                    provider: "p".into(),
                    model: text().into(),
                    eligible: false,
                    reason: None,
                })
            }),
            decision(&|decision| decision.trace.push(Trace { rule: "r".into(), error: text() })),
            Head { response_headers: vec![("x-a".into(), text())], ..plain.clone() },
            Head { query: Some(text()), ..plain.clone() },
        ] {
            let more = head(&longer) - before;
            assert!((1_000..1_400).contains(&more), "{more}: {longer:?}");
        }
    }
}
