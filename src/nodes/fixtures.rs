//! Nodes in each state, for the unit tests of all rooms.

use std::collections::BTreeMap;

use super::{Heartbeat, NodeLoad, NodeStatus, Nodes};
use crate::clock::fixtures::at;
use crate::id::Random;
use crate::secret::{Secret, SecretBytes};
use crate::store::fixtures;
use crate::store::{NodeModel, NodeRow, Registration};

pub(crate) fn nodes() -> Nodes {
    Nodes::new(&SecretBytes::new([1; 32]))
}

pub(crate) fn enrolled(nodes: &Nodes, name: &str) -> NodeRow {
    let random = Random::seeded(u64::from(name.as_bytes()[0]));
    let row = fixtures::node(&random);
    let secret = nodes.seal_secret(&row.id, 1, &Secret::new("one"), &random).unwrap();
    NodeRow { name: name.into(), secret, ..row }
}

pub(crate) fn registered(row: &NodeRow, epoch: u64, models: &[&str]) -> NodeRow {
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

pub(crate) fn report(seq: u64, status: NodeStatus, running: u32) -> Heartbeat {
    Heartbeat { epoch: None, signed_s: 0, seq, status, load: NodeLoad { running, queued: 0 } }
}

/// A node that serves `m` since second 0.
pub(crate) fn serving(nodes: &Nodes, name: &str) -> NodeRow {
    let row = registered(&enrolled(nodes, name), 1, &["m"]);
    nodes.load(vec![row.clone()]);
    nodes.begin(&row.id, 1, at(0));
    row
}

impl Nodes {
    /// Takes in rows of the store.
    pub(crate) fn load(&self, rows: Vec<NodeRow>) {
        rows.into_iter().for_each(|row| self.put(row.into()));
    }
}
