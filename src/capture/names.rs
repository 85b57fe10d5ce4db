//! The texts of a head that its client, an agent's author or the routing document wrote: whatever could say what a capture should
//! not hold. Ids, times and words of ours are none of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::echo::REDACTED;
use super::record::Head;
use crate::routing::{Decision, Inputs, NodeFacts, TargetHealth};

/// What stands for a text that has to change; `None` for all others.
type Change<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Changes each of them that its answer has; notes whether any was.
pub(super) fn of_answer(head: &mut Head, change: Change<'_>, changed: &mut bool) {
    for (name, value) in &mut head.response_headers {
        text(name, change, changed);
        text(value, change, changed);
    }
}

/// Changes each of the others; notes whether any was.
pub(super) fn each(head: &mut Head, change: Change<'_>, changed: &mut bool) {
    for (name, value) in &mut head.request_headers {
        text(name, change, changed);
        text(value, change, changed);
    }
    for said in head.client_request_id.iter_mut().chain(&mut head.query).chain(&mut head.error) {
        text(said, change, changed);
    }
    if let Some(of) = &mut head.inputs {
        inputs(of, change, changed);
    }
    if let Some(shared) = &mut head.decision {
        // It is shared with whoever serves the request, and as a rule nothing changes.
        let mut own = Decision::clone(shared);
        let mut here = false;
        decision(&mut own, change, &mut here);
        if here {
            (*shared, *changed) = (Arc::new(own), true);
        }
    }
    for attempt in &mut head.attempts {
        [&mut attempt.provider, &mut attempt.model]
            .into_iter()
            .for_each(|name| shared(name, change, changed));
        attempt.node.iter_mut().for_each(|name| shared(name, change, changed));
        attempt.error.iter_mut().for_each(|said| text(said, change, changed));
    }
    if let Some(served) = &mut head.served {
        [&mut served.provider, &mut served.model]
            .into_iter()
            .for_each(|name| shared(name, change, changed));
    }
}

/// Whether what this was decided on, or came to, is known no more: a name that decides was changed.
pub fn are_gone(head: &Head) -> bool {
    let gone = |text: &str| text.contains(REDACTED);
    let asked = head.inputs.as_ref().is_some_and(|inputs| {
        let request = &inputs.request;
        gone(&request.model)
            || gone(&request.name)
            || request.agent.as_ref().is_some_and(|agent| gone(&agent.name))
    });
    let planned = |decision: &Decision| {
        let plan = decision.plan.iter().any(|choice| gone(&choice.provider) || gone(&choice.model));
        plan || gone(&decision.recipe) || decision.rule.as_deref().is_some_and(gone)
    };
    head.redacted && (asked || head.decision.as_deref().is_some_and(planned))
}

/// Whether something was taken out of any text of a value, as far as the value says: one that says so itself is no other.
pub fn lack(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(items) => items.iter().any(lack),
        Value::Object(fields) => {
            fields.iter().any(|(name, value)| name.contains(REDACTED) || lack(value))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether something that expressions look at was changed.
pub fn are_in_part(head: &Head) -> bool {
    let Some(Inputs { request, principal, health, .. }) = &head.inputs else { return false };
    // The value of a header that was a credential: nothing else of the capture says so.
    if request.headers.values().any(|value| value == REDACTED) {
        return true;
    }
    if !head.redacted {
        return false;
    }
    let mut texts = request
        .headers
        .values()
        .chain(principal.labels.values())
        .chain(principal.user_labels.values())
        .chain(health.keys());
    texts.any(|text| text.contains(REDACTED))
}

fn text(said: &mut String, change: Change<'_>, changed: &mut bool) {
    if let Some(other) = change(said) {
        (*said, *changed) = (other, true);
    }
}

fn shared(said: &mut Arc<str>, change: Change<'_>, changed: &mut bool) {
    if let Some(other) = change(said) {
        (*said, *changed) = (other.into(), true);
    }
}

fn inputs(inputs: &mut Inputs, change: Change<'_>, changed: &mut bool) {
    let Inputs { request, principal, health, keywords, .. } = inputs;
    for said in [&mut request.model, &mut request.name]
        .into_iter()
        .chain(request.agent.iter_mut().map(|agent| &mut agent.name))
    {
        text(said, change, changed);
    }
    let listed = request.needs.iter_mut().chain(principal.models.iter_mut().flatten());
    listed.for_each(|said| text(said, change, changed));
    for pairs in [&mut request.headers, &mut principal.labels, &mut principal.user_labels] {
        keys(pairs, change, changed);
        pairs.values_mut().for_each(|value| text(value, change, changed));
    }
    keys(keywords, change, changed);
    keys(health, change, changed);
    for TargetHealth { node, .. } in health.values_mut() {
        if let Some(NodeFacts { models, abilities, .. }) = node {
            models.iter_mut().for_each(|model| shared(model, change, changed));
            if abilities.keys().any(|model| change(model).is_some()) {
                let named = std::mem::take(abilities).into_iter();
                *abilities = named
                    .map(|(model, able)| (change(&model).map_or(model, Arc::from), able))
                    .collect();
                *changed = true;
            }
        }
    }
}

fn keys<T>(map: &mut BTreeMap<String, T>, change: Change<'_>, changed: &mut bool) {
    if map.keys().any(|name| change(name).is_some()) {
        *map = std::mem::take(map)
            .into_iter()
            .map(|(name, value)| (change(&name).unwrap_or(name), value))
            .collect();
        *changed = true;
    }
}

fn decision(decision: &mut Decision, change: Change<'_>, changed: &mut bool) {
    let Decision { provider, model, recipe, rule, alias, plan, candidates, trace, .. } = decision;
    let own = [provider, model, recipe].into_iter().chain(rule).chain(alias);
    let plan = plan.iter_mut().flat_map(|choice| [&mut choice.provider, &mut choice.model]);
    let candidates =
        candidates.iter_mut().flat_map(|candidate| [&mut candidate.provider, &mut candidate.model]);
    let trace = trace.iter_mut().flat_map(|trace| [&mut trace.rule, &mut trace.error]);
    own.chain(plan).chain(candidates).chain(trace).for_each(|said| text(said, change, changed));
}
