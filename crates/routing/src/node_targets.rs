//! Targets `nodes/<model>`: a model that any ready node may serve. A decision's inputs hold the
//! state of each node by its id. The state of the target is that of the node which would be tried
//! next. The plan names the target only; each attempt picks its node.
//!
//! A node may register the context length and the capabilities of its models. A node that cannot
//! take a request does not count for it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::compiled::Routing;
use super::inputs::{Demand, Inputs, NodeFacts, TargetHealth};
use super::target::Target;

/// Models on nodes that requests for `name` may lead to by any rule or draw; without a name, the
/// models of all `nodes/…` targets.
pub fn models(routing: &Routing, name: Option<&str>) -> BTreeSet<Arc<str>> {
    let on_nodes = |target: &&Arc<Target>| target.is_on_nodes();
    let model = |target: &Arc<Target>| target.model.clone();
    let Some(name) = name else { return routing.targets().filter(on_nodes).map(model).collect() };
    match routing.alias(name) {
        Some(recipe) => {
            let chosen =
                recipe.rules.iter().flat_map(|rule| &rule.choices).map(|choice| &choice.target);
            chosen
                .chain(recipe.shadow.as_ref().map(|shadow| &shadow.target))
                .filter(on_nodes)
                .map(model)
                .collect()
        }
        None => routing.target(name).filter(on_nodes).map(model).into_iter().collect(),
    }
}

/// Adds the state of the document's `nodes/…` targets, derived from the states of all nodes in
/// `health`. A known state is kept.
pub fn fill(routing: &Routing, health: &mut BTreeMap<String, TargetHealth>, at: Timestamp) {
    for target in routing.targets().filter(|target| target.is_on_nodes()) {
        if !health.contains_key(&*target.name) {
            let state = next(&target.model, health, at, None);
            health.insert(target.name.to_string(), state);
        }
    }
}

/// The state of a target for this request. For a `nodes/…` target it is the state of the node that
/// would be tried next among the nodes that can take the request. `None`: healthy and idle, or
/// unknown.
pub fn state<'i>(target: &Target, inputs: &'i Inputs) -> Option<Cow<'i, TargetHealth>> {
    let known = inputs.health.get(&*target.entry().name)?;
    let demand = inputs.request.demand();
    if !target.is_on_nodes()
        || serving(&target.model, &inputs.health)
            .all(|(_, node)| node.against(&target.model, &demand).is_none())
    {
        return Some(Cow::Borrowed(known));
    }
    Some(Cow::Owned(next(&target.model, &inputs.health, inputs.at, Some(&demand))))
}

/// Why no node that serves the target can take the request: `context` if a shorter request would
/// fit a node, else `capability`. `None` if a node can take the request, if no node serves the
/// target, and for targets that are not on nodes.
pub(super) fn against(target: &Target, inputs: &Inputs) -> Option<&'static str> {
    if !target.is_on_nodes() {
        return None;
    }
    let demand = inputs.request.demand();
    let mut reason = None;
    for (_, node) in serving(&target.model, &inputs.health) {
        match node.against(&target.model, &demand)? {
            "context" => reason = Some("context"),
            other => reason = reason.or(Some(other)),
        }
    }
    reason
}

/// Context length of a target. For a `nodes/…` target it is the longest context that a node
/// registered, but at most the document's.
pub(super) fn context(target: &Target, inputs: &Inputs) -> Option<u64> {
    let of_node = |(_, node): (_, &NodeFacts)| node.abilities.get(&*target.model)?.context;
    let of_nodes = if target.is_on_nodes() {
        serving(&target.model, &inputs.health).filter_map(of_node).max()
    } else {
        None
    };
    target.context.into_iter().chain(of_nodes).min()
}

fn serving<'h>(
    model: &'h str,
    health: &'h BTreeMap<String, TargetHealth>,
) -> impl Iterator<Item = (&'h TargetHealth, &'h NodeFacts)> {
    let nodes = health.values().filter_map(|state| Some((state, state.node.as_ref()?)));
    nodes.filter(move |(_, node)| node.models.iter().any(|served| &**served == model))
}

/// The state of the node that would be tried next among the nodes that meet the demand. `nodes` is
/// the number of these nodes.
fn next(
    model: &str,
    health: &BTreeMap<String, TargetHealth>,
    at: Timestamp,
    demand: Option<&Demand<'_>>,
) -> TargetHealth {
    let able = |node: &NodeFacts| demand.is_none_or(|demand| node.against(model, demand).is_none());
    let serving: Vec<&TargetHealth> =
        serving(model, health).filter(|(_, node)| able(node)).map(|(state, _)| state).collect();
    let load = |state: &TargetHealth| state.node.as_ref().map_or(0, |node| node.load);
    // If no node can take a request now, the node that is likely to be free first is chosen. A
    // request ends sooner than a cooldown, and a cooldown sooner than a breaker closes.
    let wait = |state: &TargetHealth| match state.against(at) {
        None => (0, None),
        Some("concurrency") => (1, None),
        Some("cooldown") => (2, state.cooldown_until),
        Some(_) => (3, None),
    };
    // Ties keep the order of node ids.
    let next = serving.iter().min_by_key(|state| (wait(state), load(state), state.inflight));
    let nodes = Some(u32::try_from(serving.len()).unwrap_or(u32::MAX));
    TargetHealth { node: None, nodes, ..next.map(|state| (*state).clone()).unwrap_or_default() }
}
