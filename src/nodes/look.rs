//! What decisions are told of nodes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::Timestamp;

use super::{Nodes, Ready};
use crate::routing::inputs::{Abilities, NodeFacts, TargetHealth};
use crate::routing::on_nodes;
use crate::routing::recipe::Routing;
use crate::store::NodeRow;

/// What the node says of those of its models of which it says something.
pub(super) fn said(row: &NodeRow) -> BTreeMap<String, Arc<Abilities>> {
    let models = row.registration.iter().flat_map(|registration| &registration.models);
    let bounded = models.filter(|model| model.context.is_some() || model.capabilities.is_some());
    let said = bounded.map(|model| {
        (
            model.id.clone(),
            Abilities { context: model.context, capabilities: model.capabilities.clone() },
        )
    });
    said.map(|(id, said)| (id, said.into())).collect()
}

impl Nodes {
    /// Puts the state of the document's targets on nodes beside that of the other targets, and of nodes that serve those to which
    /// requests for this name may lead, with those of their models only; without a name, of all. Nothing where the document has no
    /// target on nodes.
    pub fn look(
        &self,
        routing: &Routing,
        name: Option<&str>,
        now: Timestamp,
        health: &mut BTreeMap<String, TargetHealth>,
    ) {
        let named = on_nodes::models(routing, None);
        if named.is_empty() {
            return;
        }
        let wanted = on_nodes::models(routing, name);
        let ready: Vec<Ready> = self.all().iter().filter_map(|node| node.ready(now)).collect();
        let mut told: BTreeMap<String, TargetHealth> = ready
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
                    .filter_map(|model| Some((model.clone(), ready.said.get(&**model)?.clone())))
                    .collect();
                let (inflight, max) = (ready.inflight, ready.provider.max_concurrency);
                let serves = !models.is_empty();
                let node = Some(NodeFacts { abilities, models, load: ready.load });
                serves
                    .then(|| (ready.id.to_string(), TargetHealth { node, inflight, max, ..known }))
            })
            .collect();
        on_nodes::fill(routing, &mut told, now, true);
        for (name, mut told) in told {
            match &mut told.node {
                Some(node) => {
                    node.models.retain(|model| wanted.contains(model));
                    node.abilities.retain(|model, _| wanted.contains(model));
                    if node.models.is_empty() {
                        continue;
                    }
                }
                None => told.in_part = true,
            }
            match health.entry(name) {
                Entry::Vacant(free) => _ = free.insert(told),
                Entry::Occupied(mut there) => join(there.get_mut(), told),
            }
        }
    }
}

/// What was told of a node under another document stays beside what is told now.
fn join(there: &mut TargetHealth, told: TargetHealth) {
    let (Some(before), Some(mut node)) = (there.node.take(), told.node) else { return };
    let others: Vec<Arc<str>> =
        before.models.into_iter().filter(|model| !node.models.contains(model)).collect();
    node.models.extend(others);
    node.abilities.extend(before.abilities);
    *there = TargetHealth { node: Some(node), ..told };
}
