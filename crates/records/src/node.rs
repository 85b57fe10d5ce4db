//! Nodes: machines that serve models, and what they report.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::page::object;
use crate::{ShownSecret, Time};
use rerouter_base::id::NodeId;
use rerouter_routing::BreakerState;
use rerouter_store::{NodeModel, NodeStatus, Registration};

/// Limit on the models that a node serves at once.
pub const NODE_MODELS: usize = 64;
/// Limit on the events of a node in one body.
const NODE_EVENTS: usize = 1_000;

object!(NodeObject "node");

rerouter_base::words! {
    /// State of a node.
    pub enum NodeState {
        Pending = "pending",
        Ready = "ready",
        /// It takes no new requests: it drains, or reported an error.
        Draining = "draining",
        /// Its lease has expired.
        Unreachable = "unreachable",
        Gone = "gone",
    }
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Node")]
pub struct NodeRecord {
    pub object: NodeObject,
    pub id: NodeId,
    pub name: String,
    /// Models that the node may serve; a trailing `*` matches any rest.
    pub models: Vec<String>,
    /// Required endpoint; null: the address that the node registers from.
    pub endpoint: Option<String>,
    pub state: NodeState,
    pub running: u32,
    pub queued: u32,
    /// Running requests of this gateway at the node.
    pub inflight: u32,
    pub breaker: Option<BreakerState>,
    pub lease_expires_at: Option<Time>,
    /// Null before the first registration.
    pub registered: Option<NodeRegistration>,
    pub generation: u32,
    pub previous_secret_expires_at: Option<Time>,
    pub created_at: Time,
    pub rotated_at: Option<Time>,
}

/// A node with its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeWithSecret {
    #[serde(flatten)]
    pub record: NodeRecord,
    /// Only this answer shows it.
    #[schemars(extend("pattern" = "^nod_"))]
    pub secret: ShownSecret,
}

/// What a node registered, with models as last reported.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NodeRegistration {
    pub at: Option<Time>,
    /// Number of registrations. A report of an earlier epoch is refused.
    pub epoch: u64,
    pub version: String,
    pub endpoint: String,
    pub models: Vec<NodeModel>,
    #[schemars(range(min = 1))]
    pub max_concurrency: Option<u32>,
    pub labels: BTreeMap<String, String>,
}

impl From<&Registration> for NodeRegistration {
    fn from(registration: &Registration) -> Self {
        NodeRegistration {
            at: Timestamp::from_microsecond(registration.at_us).ok().map(Into::into),
            epoch: registration.epoch,
            version: registration.version.clone(),
            endpoint: registration.endpoint.clone(),
            models: registration.models.clone(),
            max_concurrency: registration.max_concurrency,
            labels: registration.labels.clone(),
        }
    }
}

/// A node to enrol.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNode {
    pub name: String,
    /// Models that the node may serve; a trailing `*` matches any rest. Default: all.
    pub models: Option<Vec<String>>,
    /// Required endpoint. Default: the address that the node registers from.
    #[schemars(extend("format" = "uri"))]
    pub endpoint: Option<String>,
}

/// No field.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoBody {}

/// What a node registers.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRegistration {
    pub version: String,
    /// Base URL of an OpenAI-compatible API, with or without `/v1`.
    #[schemars(extend("format" = "uri"))]
    pub endpoint: String,
    /// Bearer token that the gateway sends to the node.
    pub api_key: Option<ShownSecret>,
    #[schemars(length(max = NODE_MODELS))]
    pub models: Vec<NodeModel>,
    #[schemars(range(min = 1, max = u32::MAX))]
    pub max_concurrency: Option<u32>,
    pub labels: Option<BTreeMap<String, String>>,
}

/// The answer to a registration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeRegistered {
    pub node: NodeRecord,
    pub heartbeat_interval_s: u64,
    pub lease_s: u64,
}

/// The state of a node, by itself.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeHeartbeat {
    /// Epoch of the registration (`node.registered.epoch` of its answer); 409 if the node has
    /// registered again since.
    #[schemars(range(min = 1))]
    pub epoch: Option<u64>,
    /// Must increase with each heartbeat.
    pub seq: u64,
    pub status: NodeStatus,
    #[schemars(range(max = u32::MAX))]
    pub running: u32,
    #[schemars(range(max = u32::MAX))]
    pub queued: u32,
    #[schemars(length(max = NODE_MODELS))]
    pub models: Option<Vec<NodeModel>>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeLease {
    pub lease_s: u64,
    /// Requested actions; always empty at present.
    pub actions: Vec<Map<String, Value>>,
}

/// The end of a registration.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeLeaving {
    /// Epoch of the registration that ends; 409 if the node has registered again since.
    #[schemars(range(min = 1))]
    pub epoch: Option<u64>,
}

/// Events of a node.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeEvents {
    #[schemars(length(max = NODE_EVENTS))]
    pub events: Vec<NodeEvent>,
}

rerouter_base::words! {
    /// Level of an event.
    pub enum EventLevel {
        Debug = "debug",
        Info = "info",
        Warn = "warn",
        Warning = "warning",
        Error = "error",
    }
}

/// An event of a node.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeEvent {
    /// 1 to 64 bytes.
    pub id: String,
    pub at: Time,
    pub level: EventLevel,
    pub message: String,
    /// Any JSON; the log holds its beginning.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub data: Value,
}

/// What was made of events.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NodeEventsTaken {
    pub accepted: usize,
    pub duplicates: usize,
}
