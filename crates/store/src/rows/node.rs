//! The row of a node.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stored::{pair, row};
use crate::columns::json_columns;
use rerouter_base::id::NodeId;

row! { "nodes" shows id, generation =>
    /// A machine that serves models: its enrolment and its last registration. Secrets are sealed.
    #[derive(Clone, PartialEq, Eq)]
    pub struct NodeRow {
        pub id: NodeId,
        pub name: String,
        /// Patterns of the models that it may serve.
        pub models: Vec<String>,
        /// The only endpoint that it may register. Without it, the node may register an endpoint at
        /// the address from which it registers.
        pub endpoint: Option<String>,
        /// Counts its secrets, from 1.
        pub generation: u32,
        pub secret: Vec<u8>,
        /// Valid until the current secret is used.
        pub previous: Option<PreviousNodeSecret> = "previous, previous_expires_at",
        pub created_at: Timestamp,
        pub rotated_at: Option<Timestamp>,
        pub registration: Option<Registration>,
    }
}

pair! {
    #[derive(Clone, PartialEq, Eq)]
    pub struct PreviousNodeSecret {
        pub secret: Vec<u8>,
        pub expires_at: Timestamp,
    }
}

json_columns! { Registration, Vec<NodeModel> }

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Counts registrations, from 1. The store sets it.
    pub epoch: u64,
    /// Microseconds since the epoch.
    pub at_us: i64,
    /// When it was signed, in seconds since the epoch by the clock of the node. Messages signed
    /// before belong to an earlier epoch.
    pub signed_s: i64,
    /// Whether the node has deregistered.
    pub ended: bool,
    pub version: String,
    pub endpoint: String,
    /// The credential that the gateway has to send to the node, sealed.
    pub api_key: Option<Vec<u8>>,
    pub models: Vec<NodeModel>,
    /// Requests that it accepts at once.
    pub max_concurrency: Option<u32>,
    /// For conditions of routing rules.
    pub labels: BTreeMap<String, String>,
}

impl Registration {
    /// Whether a message is of an earlier registration, by its epoch, if it has one, and by the
    /// time of its signature.
    pub fn is_after(&self, epoch: Option<u64>, signed_s: i64) -> bool {
        epoch.is_some_and(|epoch| epoch != self.epoch) || signed_s < self.signed_s
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("epoch", &self.epoch)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

rerouter_base::words! {
    /// Status that a node reports.
    #[derive(Default)]
    pub enum NodeStatus {
        #[default]
        Ready = "ready",
        /// It takes no new requests.
        Draining = "draining",
        Error = "error",
    }
}

/// A model that a node serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeModel {
    pub id: String,
    /// Tokens of prompt and answer together; the node gets no longer requests. Null or absent: no
    /// limit.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub context: Option<u64>,
    /// Subset of `tools`, `vision`, `json`, `audio`; the node gets no requests that need others.
    /// Null or absent: all.
    #[serde(default)]
    #[schemars(length(max = 16), inner(length(max = 64)))]
    pub capabilities: Option<Vec<String>>,
}
