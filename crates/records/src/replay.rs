//! Captures, and the queries for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Time;
use crate::conversation::Conversation;
use crate::explanation::Explanation;
use crate::inference::ChatCompletion;
use crate::page::{ListObject, PAGE_MAX, object, page_default};
use rerouter_base::error::RefusalReason;
use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_dialect::usage::Usage;
use rerouter_routing::{Decision, Inputs, PlanEntry};

object!(ReplayObject "replay");

rerouter_base::words! {
    /// How a request ended.
    pub enum CaptureState {
        /// The answer was complete.
        Completed = "completed",
        /// No provider answered, or its answer broke off.
        Failed = "failed",
        /// The client left.
        Aborted = "aborted",
        /// The gateway refused the request before it called a provider.
        Refused = "refused",
    }
}

/// One attempt at a target of the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Attempt {
    pub provider: Arc<str>,
    /// The model's name at the provider.
    pub model: Arc<str>,
    /// The node that was called, where nodes serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// The status of its answer; null without one.
    pub status: Option<u16>,
    /// Why it failed, as one fixed word.
    pub error: Option<String>,
    pub duration_ms: u64,
}

/// The target that answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Served {
    pub provider: Arc<str>,
    /// The model's name at the provider.
    pub model: Arc<str>,
    /// Id of the node that answered, where nodes serve.
    pub node: Option<String>,
}

/// A decision with its outcome.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Decision")]
pub struct DecisionRecord {
    #[serde(flatten)]
    pub decision: Arc<Decision>,
    #[serde(default)]
    pub routing_us: u64,
    pub served: Option<Served>,
    /// All attempts, also those that failed to connect.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
}

impl DecisionRecord {
    /// A decision on which nothing was sent.
    pub fn undone(decision: Decision, routing_us: u64) -> Self {
        let decision = Arc::new(decision);
        DecisionRecord { decision, routing_us, served: None, attempts: Vec::new() }
    }
}

/// The decision of a capture in short.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DecisionSummary {
    pub provider: Arc<str>,
    pub model: Arc<str>,
    pub recipe: Arc<str>,
    pub rule: Option<Arc<str>>,
    /// Revision of the routing document.
    pub revision: Arc<str>,
    /// Targets of the rule that were not in the plan because of their state then.
    pub left_out: Vec<LeftOut>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct LeftOut {
    pub provider: Arc<str>,
    pub model: Arc<str>,
    #[schemars(extend("enum" = ["no_node", "breaker_open", "cooldown", "concurrency"]))]
    pub reason: String,
}

/// How long a call took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Latency")]
pub struct CallLatency {
    pub routing_us: u64,
    /// Time to the first content of the answer.
    pub ttft_ms: Option<u64>,
    pub total_ms: u64,
}

/// Outcome of the original call.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Original {
    pub decision: Option<DecisionSummary>,
    /// The target that answered.
    pub served: Option<PlanEntry>,
    pub status: u16,
    pub usage: Option<Usage>,
    pub cost_usd: Option<f64>,
    pub latency: CallLatency,
}

/// What lists and whole captures have alike.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReplayBase {
    pub object: ReplayObject,
    pub id: RequestId,
    pub created_at: Time,
    pub state: CaptureState,
    pub endpoint: String,
    pub model: Option<Arc<str>>,
    pub key: Option<KeyId>,
    pub user: UserId,
    pub agent: Option<String>,
    /// Why the gateway refused the request; null for others, and for those of earlier versions.
    #[serde(default)]
    pub refused: Option<RefusalReason>,
    /// The target that answered.
    pub served: Option<PlanEntry>,
    pub status: u16,
    pub stream: bool,
    pub usage: Option<Usage>,
    pub cost_usd: Option<f64>,
    pub latency: CallLatency,
    /// Number of attempts at targets.
    pub attempts: usize,
    pub replayable: bool,
    #[schemars(extend("enum" = ["not_captured", "truncated", "redacted", null]))]
    pub not_replayable: Option<String>,
    pub replay_of: Option<RequestId>,
    pub replayed_by: Option<String>,
    /// The live request of which this is a shadow; `decision` is that of the live request.
    pub shadow_of: Option<RequestId>,
    /// Whether it was imported: another gateway made it.
    pub imported: bool,
}

/// A capture in a list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Replay {
    #[serde(flatten)]
    pub base: ReplayBase,
    pub decision: Option<DecisionSummary>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ReplayList {
    pub object: ListObject,
    /// At most `limit` entries; a page may be short or empty although more follow.
    pub data: Vec<Replay>,
    /// Whether more may follow.
    pub has_more: bool,
    /// Value of `after` for the next page; not always the id of the last entry.
    pub next: Option<RequestId>,
    /// Number of damaged captures of this page; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub unreadable: Option<usize>,
}

/// A whole capture.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Capture")]
pub struct CaptureRecord {
    #[serde(flatten)]
    pub base: ReplayBase,
    /// Null if the request was refused before a decision.
    pub decision: Option<DecisionRecord>,
    pub inputs: Option<Inputs>,
    pub request: CapturedRequest,
    pub response: CapturedResponse,
    pub redacted: bool,
    /// The beginning of the client's `x-request-id`.
    pub client_request_id: Option<String>,
    /// The id of its trace, where traces are exported.
    pub trace_id: Option<String>,
    /// Why the call failed, in one word; for a refusal with the text that the client got. Null on
    /// success.
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
    /// With `with=explanation`; null without a decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Option<Explanation>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CapturedRequest {
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: Map<String, Value>,
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    pub truncated: bool,
    /// The part of the client's query that the provider got; absent if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CapturedResponse {
    pub status: u16,
    #[schemars(with = "BTreeMap<String, String>")]
    pub headers: Map<String, Value>,
    /// Null if it was not kept, or is in `assembled` or `body_base64`.
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    pub stream: bool,
    pub truncated: bool,
    /// The answer assembled from the events of a stream.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub assembled: Value,
}

/// Two captures, field by field.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    pub a: RequestId,
    pub b: RequestId,
    pub fields: Vec<ComparedField>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ComparedField {
    pub field: String,
    pub a: Option<Value>,
    pub b: Option<Value>,
    /// Null if unknown: a body was not kept whole, or was redacted.
    pub equal: Option<bool>,
}

/// A replay of a capture.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Reroute")]
pub struct Rerouted {
    /// Null for a dry run.
    pub new_id: Option<String>,
    pub decision: Option<DecisionRecord>,
    /// A chat completion with all of its members, also where the provider left some out; with
    /// `response_kind` the provider's own object.
    #[schemars(with = "Option<ChatCompletion>")]
    pub response: Value,
    pub replay_of: RequestId,
    pub original: Original,
    /// Present if the answer is not a chat completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["embeddings", "responses", "messages.count_tokens"]))]
    pub response_kind: Option<String>,
}

/// What was deleted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Erased {
    /// Captures that were written. Those under way are not counted.
    pub deleted: usize,
}

object!(ImportObject "import");

/// What was imported.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Import {
    pub object: ImportObject,
    pub imported: u64,
    /// Captures with a known id; unchanged.
    pub existing: u64,
    /// Captures older than the retention.
    pub expired: u64,
    /// Captures that are too large, of a key labelled `capture: off`, or, with PostgreSQL, replays
    /// of a capture that was deleted with its replays.
    pub refused: u64,
}

/// Query of the list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayQuery {
    /// Maximum number of entries of the page.
    #[serde(default = "page_default")]
    #[schemars(range(min = 1, max = PAGE_MAX))]
    pub limit: usize,
    /// `next` of the previous page.
    pub after: Option<String>,
    /// From this RFC 3339 time on.
    pub since: Option<Time>,
    /// Before this RFC 3339 time.
    pub until: Option<Time>,
    /// The alias requested.
    pub alias: Option<String>,
    /// The recipe of the decision.
    pub recipe: Option<String>,
    /// The provider that answered.
    pub provider: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The provider that the decision put first.
    pub decided_provider: Option<String>,
    /// The model that the decision put first.
    pub decided_model: Option<String>,
    /// Status of the answer: `200`, a class like `4xx`, or a comma-separated list.
    pub status: Option<String>,
    /// How the request ended.
    pub state: Option<CaptureState>,
    /// Only requests that the gateway refused for this reason.
    pub refused: Option<RefusalReason>,
    /// Id of the calling key.
    pub key: Option<String>,
    /// Id of a capture: lists its replays.
    pub replay_of: Option<String>,
    /// Only shadows; by default the list leaves them out, unless `shadow_of` is given.
    pub shadow: Option<bool>,
    /// Id of a capture: lists its shadow.
    pub shadow_of: Option<String>,
    /// Id of a user; admins may name any, others themselves.
    pub owner: Option<String>,
    /// Only requests that asked for a stream, or only others.
    pub stream: Option<bool>,
    /// Only replays, or only others.
    pub replay: Option<bool>,
}

/// Query of one capture.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureQuery {
    /// Comma-separated list of what is added: `conversation`, `explanation`.
    pub with: Option<String>,
}

/// Query of the deletion of a capture.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeletionQuery {
    /// Also delete its replays and its shadow.
    #[serde(default)]
    pub replays: bool,
}

/// What captures are deleted by: one of these is needed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErasureQuery {
    /// Id of the owner; admins only.
    pub user: Option<String>,
    /// Id of the calling key, within the caller's reach.
    pub key: Option<String>,
    /// Before this RFC 3339 time.
    pub until: Option<Time>,
}

/// Query of a reroute.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RerouteQuery {
    /// Decide only: no provider is called, nothing is captured.
    #[serde(default)]
    pub dry_run: bool,
}

/// Query of an import.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportQuery {
    /// Id of the new owner of the captures. Default: each keeps its owner.
    pub owner: Option<String>,
}
