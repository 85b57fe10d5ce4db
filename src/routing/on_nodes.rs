//! Targets `nodes/<model>`: a model that nodes serve, whichever they are at the moment. The state of each node is among a
//! decision's inputs by its id; the state of the target is that of the node which would be asked next. Which node that is when
//! the request is sent is not decided here: the plan names the target, attempts name the node.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::decide::state_against;
use super::inputs::TargetHealth;
use super::recipe::Routing;

/// Puts in the state of the document's targets on nodes, made of the states of nodes that are there. `known` says that no
/// node was left out; else a target stays unknown, as any other, where no node is told of at all.
pub fn fill(routing: &Routing, health: &mut BTreeMap<String, TargetHealth>, at: Timestamp, known: bool) {
    let targets = routing.targets().filter(|target| target.is_on_nodes());
    let missing: Vec<_> = targets.filter(|target| !health.contains_key(&*target.name)).cloned().collect();
    if missing.is_empty() || !(known || health.values().any(|told| told.node.is_some() || told.nodes.is_some())) {
        return;
    }
    for target in missing {
        let told = of_model(&target.model, health, at);
        health.insert(target.name.to_string(), told);
    }
}

/// The state of the node that would be asked next, and how many there are.
fn of_model(model: &str, health: &BTreeMap<String, TargetHealth>, at: Timestamp) -> TargetHealth {
    let serves = |told: &&TargetHealth| told.node.as_ref().is_some_and(|node| node.models.iter().any(|served| served == model));
    let serving: Vec<&TargetHealth> = health.values().filter(serves).collect();
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
    TargetHealth { node: None, nodes, ..next.map(|told| (*told).clone()).unwrap_or_default() }
}
