//! The state of nodes for decisions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;

use super::Nodes;
use super::ready::ReadyNode;
use rerouter_routing::{NodeFacts, Routing, TargetHealth, node_targets};

impl Nodes {
    /// Adds to `health` the state of the document's `nodes/…` targets, and of the nodes that serve
    /// models to which requests for `name` may lead, with these models only. Without a name, all
    /// nodes are added with all models. Adds nothing if the document has no `nodes/…` target.
    pub fn look(
        &self,
        routing: &Routing,
        name: Option<&str>,
        now: Timestamp,
        health: &mut BTreeMap<String, TargetHealth>,
    ) {
        let named = node_targets::models(routing, None);
        if named.is_empty() {
            return;
        }
        let wanted = node_targets::models(routing, name);
        let ready: Vec<ReadyNode> = self.all().iter().filter_map(|node| node.ready(now)).collect();
        let mut states: BTreeMap<String, TargetHealth> = ready
            .iter()
            .filter_map(|ready| {
                let known = ready.state.at_node(&ready.provider, now);
                let models: Vec<Arc<str>> = ready
                    .models()
                    .iter()
                    .filter_map(|model| named.get(model.id.as_str()).cloned())
                    .collect();
                let abilities = models
                    .iter()
                    .filter_map(|model| {
                        Some((model.clone(), ready.abilities.get(&**model)?.clone()))
                    })
                    .collect();
                let (inflight, max) = (ready.inflight, ready.provider.max_concurrency);
                let serves = !models.is_empty();
                let node = Some(NodeFacts { abilities, models, load: ready.load });
                serves
                    .then(|| (ready.id.to_string(), TargetHealth { node, inflight, max, ..known }))
            })
            .collect();
        node_targets::fill(routing, &mut states, now);
        for (name, mut state) in states {
            if let Some(node) = &mut state.node {
                node.models.retain(|model| wanted.contains(model));
                node.abilities.retain(|model, _| wanted.contains(model));
                if node.models.is_empty() {
                    continue;
                }
            }
            match health.entry(name) {
                Entry::Vacant(free) => _ = free.insert(state),
                Entry::Occupied(mut there) => merge(there.get_mut(), state),
            }
        }
    }
}

/// Updates the state of a node, and keeps its models under another document.
fn merge(there: &mut TargetHealth, state: TargetHealth) {
    let (Some(before), Some(mut node)) = (there.node.take(), state.node) else { return };
    let others: Vec<Arc<str>> =
        before.models.into_iter().filter(|model| !node.models.contains(model)).collect();
    node.models.extend(others);
    node.abilities.extend(before.abilities);
    *there = TargetHealth { node: Some(node), ..state };
}
