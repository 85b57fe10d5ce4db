//! Nodes in each state, for the unit tests of all crates.

use std::collections::BTreeMap;

use super::{Heartbeat, NodeLoad, Nodes};
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::Random;
use rerouter_base::secret::{Secret, SecretBytes};
use rerouter_store::fixtures;
use rerouter_store::{NodeModel, NodeRow, NodeStatus, Registration};

pub fn nodes() -> Nodes {
    Nodes::new(&SecretBytes::new([1; 32]))
}

pub fn enrolled(nodes: &Nodes, name: &str) -> NodeRow {
    let random = Random::seeded(u64::from(name.as_bytes()[0]));
    let row = fixtures::node(&random);
    let secret = nodes.seal_secret(&row.id, 1, &Secret::new("one"), &random).unwrap();
    NodeRow { name: name.into(), secret, ..row }
}

pub fn registered(row: &NodeRow, epoch: u64, models: &[&str]) -> NodeRow {
    let models = models
        .iter()
        .map(|id| NodeModel { id: (*id).to_owned(), context: None, capabilities: None })
        .collect();
    let registration = Registration {
        epoch,
        at_us: 0,
        signed_s: 0,
        ended: false,
        version: "1".into(),
        endpoint: "http://192.0.2.1:8000".into(),
        api_key: None,
        models,
        max_concurrency: Some(1),
        labels: BTreeMap::new(),
    };
    NodeRow { registration: Some(registration), ..row.clone() }
}

pub fn report(seq: u64, status: NodeStatus, running: u32) -> Heartbeat {
    Heartbeat { epoch: None, signed_s: 0, seq, status, load: NodeLoad { running, queued: 0 } }
}

/// A node that serves `m` since second 0.
pub fn serving(nodes: &Nodes, name: &str) -> NodeRow {
    let row = registered(&enrolled(nodes, name), 1, &["m"]);
    nodes.load(vec![row.clone()]);
    nodes.begin(&row.id, 1, at(0));
    row
}

impl Nodes {
    /// Loads rows as the store would.
    pub fn load(&self, rows: Vec<NodeRow>) {
        rows.into_iter().for_each(|row| self.put(row.into()));
    }
}
