//! A node that may take a request.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::round_robin::RoundRobin;
use rerouter_base::id::NodeId;
use rerouter_routing::health::TargetState;
use rerouter_routing::{Abilities, Demand, Provider, Target, TargetHealth};
use rerouter_store::{NodeModel, NodeRow};

#[derive(Clone, Debug)]
pub struct ReadyNode {
    pub id: NodeId,
    pub(super) provider: Arc<Provider>,
    pub(super) state: Arc<TargetState>,
    pub(super) row: Arc<NodeRow>,
    pub(super) abilities: Arc<BTreeMap<String, Arc<Abilities>>>,
    /// Requests running or queued, as far as they are known.
    pub load: u32,
    /// Our requests in flight.
    pub(super) inflight: u32,
    pub(super) turn: RoundRobin,
}

impl ReadyNode {
    pub(super) fn models(&self) -> &[NodeModel] {
        self.row.registration.as_ref().map_or(&[], |registration| &registration.models)
    }

    /// Whether the model of the node can take a request with this demand.
    pub fn takes(&self, model: &str, demand: &Demand<'_>) -> bool {
        let model = self.models().iter().find(|served| served.id == model);
        model.is_some_and(|model| {
            demand.against(model.context, model.capabilities.as_deref()).is_none()
        })
    }

    /// Whether its state permits a request now.
    pub fn may_be_asked(&self, now: Timestamp) -> bool {
        let health = self.state.at_node(&self.provider, now);
        let (inflight, max) = (self.inflight, self.provider.max_concurrency);
        TargetHealth { inflight, max, ..health }.against(now).is_none()
    }

    /// The planned target at this node. Counts as a use in the rotation.
    pub fn target(&self, planned: &Target) -> Target {
        self.turn.take();
        planned.at_node(self.provider.clone(), self.state.clone())
    }
}

/// Bounds that the node registered, by model, for models that have any.
pub(super) fn abilities(row: &NodeRow) -> BTreeMap<String, Arc<Abilities>> {
    let models = row.registration.iter().flat_map(|registration| &registration.models);
    let bounded = models.filter(|model| model.context.is_some() || model.capabilities.is_some());
    let abilities = |model: &NodeModel| Abilities {
        context: model.context,
        capabilities: model.capabilities.clone(),
    };
    bounded.map(|model| (model.id.clone(), abilities(model).into())).collect()
}
