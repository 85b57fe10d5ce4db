//! The status of a process and of its providers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::node::NodeState;
use crate::page::object;
use rerouter_base::id::NodeId;
use rerouter_routing::BreakerState;

object!(StatusObject "status");
object!(ProviderObject "provider");

/// State of a process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GatewayStatus {
    pub object: StatusObject,
    pub version: String,
    pub started_at: Time,
    pub requests_under_way: usize,
    pub document: DocumentStatus,
    pub captures: CaptureStatus,
    pub disk: DiskStatus,
    /// Of listeners with TLS.
    pub certificates: Vec<CertificateStatus>,
}

/// The live routing document.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct DocumentStatus {
    pub revision: String,
    /// When this process began to run it.
    pub since: Time,
    /// The last document that this gateway refused: a change of its file, or of another gateway.
    pub refused: Option<RefusedDocument>,
}

/// A refused change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct RefusedDocument {
    pub at: Time,
    pub problems: Vec<String>,
}

/// Counts since the start of this process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct CaptureStatus {
    pub enabled: bool,
    pub queue_bytes: usize,
    pub queue_limit_bytes: usize,
    pub stored: u64,
    pub dropped: u64,
}

/// Where the data directory is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct DiskStatus {
    pub free_bytes: Option<u64>,
    /// A burst of captures may fill it.
    pub low: bool,
}

/// The certificate of a listener.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct CertificateStatus {
    pub listener: String,
    /// End of the certificate in its file; null if that cannot be read.
    pub expires_at: Option<Time>,
}

/// State of a provider in this process.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Provider", deny_unknown_fields)]
pub struct ProviderStatus {
    pub object: ProviderObject,
    pub id: String,
    #[schemars(extend("enum" = ["openai", "anthropic", "gemini", "mock"]))]
    pub protocol: String,
    pub targets: Vec<ProviderTarget>,
}

/// State of a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProviderTarget {
    pub model: String,
    #[serde(flatten)]
    pub activity: Activity,
    /// Only for targets on nodes: the nodes that serve the model, each with its numbers for all of
    /// its models together. The target shows the sums of its nodes, and the state of the best node
    /// that is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<ServingNode>>,
}

/// A node that serves a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServingNode {
    pub id: NodeId,
    pub name: String,
    pub state: NodeState,
    #[serde(flatten)]
    pub activity: Activity,
}

/// What a target or node does.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    pub breaker: BreakerState,
    /// When the target is tried again; set while its breaker is open or it cools down.
    pub retry_at: Option<Time>,
    /// Time to first content, as a peak EWMA.
    pub ewma_ms: Option<f64>,
    pub inflight: u32,
    /// Limit of the provider, for all of its models together.
    pub max_concurrency: Option<u32>,
    /// Attempts of live traffic that ended in the last minute.
    pub requests_1m: u64,
    /// Attempts of the last minute that failed because of the target.
    pub errors_1m: u64,
}
