//! Targets `nodes/<model>`: a model that nodes serve, whichever they are at the moment. The state of each node is among a
//! decision's inputs by its id; the state of the target is that of the node which would be asked next. Which node that is when
//! the request is sent is not decided here: the plan names the target, attempts name the node.
//!
//! Nodes may say how long a context a model of theirs has and what it can do. Those that cannot take a request are no nodes for
//! it: then the state of the target is that of the others.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::decide::state_against;
use super::inputs::{Demand, Inputs, NodeFacts, TargetHealth};
use super::recipe::{Routing, Target};

/// The models on nodes to which requests for a name may lead, whatever its rules and draws say; without a name those of all of the
/// document's targets.
pub fn models(routing: &Routing, name: Option<&str>) -> BTreeSet<Arc<str>> {
    let on_nodes = |target: &&Arc<Target>| target.is_on_nodes();
    let model = |target: &Arc<Target>| target.model.clone();
    let Some(name) = name else { return routing.targets().filter(on_nodes).map(model).collect() };
    match routing.alias(name) {
        Some(recipe) => {
            let chosen =
                recipe.rules().iter().flat_map(|rule| rule.choices()).map(|choice| choice.target());
            chosen
                .chain(recipe.shadow().map(|shadow| &shadow.target))
                .filter(on_nodes)
                .map(model)
                .collect()
        }
        None => routing.target(name).filter(on_nodes).map(model).into_iter().collect(),
    }
}

/// Puts in the state of the document's targets on nodes, made of the states of nodes that are there. `known` says that no
/// node was left out; else a target stays unknown, as any other, where no node is told of at all, or not of all of them.
pub fn fill(
    routing: &Routing,
    health: &mut BTreeMap<String, TargetHealth>,
    at: Timestamp,
    known: bool,
) {
    let targets = routing.targets().filter(|target| target.is_on_nodes());
    let missing: Vec<_> =
        targets.filter(|target| !health.contains_key(&*target.name)).cloned().collect();
    let told = || {
        health.values().any(|told| told.node.is_some() || told.nodes.is_some())
            && !health.values().any(|told| told.in_part)
    };
    if missing.is_empty() || !(known || told()) {
        return;
    }
    for target in missing {
        let told = next(&target.model, health, at, None);
        health.insert(target.name.to_string(), told);
    }
}

/// The state of a target as it concerns this request: of one on nodes that of the node which would be asked next, among those
/// that can take it. None where the target is healthy and idle, as far as is known.
pub fn state<'i>(target: &Target, inputs: &'i Inputs) -> Option<Cow<'i, TargetHealth>> {
    let told = inputs.health.get(&*target.name)?;
    let demand = inputs.request.demand();
    if !target.is_on_nodes()
        || serving(&target.model, &inputs.health)
            .all(|(_, node)| node.against(&target.model, &demand).is_none())
    {
        return Some(Cow::Borrowed(told));
    }
    Some(Cow::Owned(next(&target.model, &inputs.health, inputs.at, Some(&demand))))
}

/// Why none of the nodes that serve a target can take the request: `context` where one of them could if it were shorter, else
/// `capability`. None where one can, where no node serves it, and of other targets.
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

/// The context of a target; of one on nodes the longest that a node says, or the document's where
/// that is shorter.
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
    let nodes = health.values().filter_map(|told| Some((told, told.node.as_ref()?)));
    nodes.filter(move |(_, node)| node.models.iter().any(|served| &**served == model))
}

/// The state of the node that would be asked next, and how many there are, of those that meet the demand.
fn next(
    model: &str,
    health: &BTreeMap<String, TargetHealth>,
    at: Timestamp,
    demand: Option<&Demand<'_>>,
) -> TargetHealth {
    let able = |node: &NodeFacts| demand.is_none_or(|demand| node.against(model, demand).is_none());
    let serving: Vec<&TargetHealth> =
        serving(model, health).filter(|(_, node)| able(node)).map(|(told, _)| told).collect();
    let load = |told: &TargetHealth| told.node.as_ref().map_or(0, |node| node.load);
    // When none can take a request, the one that may soonest speaks for all: a place is sooner free than a breaker closes.
    let wait = |told: &TargetHealth| match state_against(told, at) {
        None => (0, None),
        Some("concurrency") => (1, None),
        Some("cooldown") => (2, told.cooldown_until),
        Some(_) => (3, None),
    };
    // Equal ones in the order of their ids.
    let next = serving.iter().min_by_key(|told| (wait(told), load(told), told.inflight));
    let nodes = Some(u32::try_from(serving.len()).unwrap_or(u32::MAX));
    TargetHealth {
        node: None,
        in_part: false,
        nodes,
        ..next.map(|told| (*told).clone()).unwrap_or_default()
    }
}
