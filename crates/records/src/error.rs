//! Errors in the form of each interface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::evaluation::EvaluationRecord;
use crate::page::object;
use crate::replay::Rerouted;
use crate::routing::ProblemRecord;

object!(UnauthorizedWord "unauthorized");
object!(AgentUnauthorizedWord "Unauthorized");
object!(AnthropicErrorType "error");

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ManagementError {
    pub error: String,
    pub detail: String,
    /// With 400: the invalid field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// With 400: the problems of a routing document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<Vec<ProblemRecord>>,
    /// With 409 `gate_refused`: the report of the evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<EvaluationRecord>>,
}

/// A reroute that failed: with the call, where one was made.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RerouteError {
    pub error: String,
    pub detail: String,
    /// Status of the last provider's answer, also if it refused the gateway's credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_status: Option<Option<u16>>,
    #[serde(flatten)]
    pub rerouted: Option<Rerouted>,
}

/// No credential, or a wrong one.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Unauthorized {
    pub error: UnauthorizedWord,
    pub detail: String,
}

/// A refusal in AGENT.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AgentError {
    /// The status's reason phrase.
    pub error: String,
    pub detail: String,
}

/// No credential in AGENT, or a wrong one.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AgentUnauthorized {
    pub error: AgentUnauthorizedWord,
}

/// A refusal in OpenAI's shape.
#[derive(JsonSchema)]
pub struct OpenAIError {
    pub error: OpenAIErrorBody,
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub struct OpenAIErrorBody {
    pub message: String,
    #[schemars(rename = "type")]
    pub kind: String,
    pub param: Option<String>,
    pub code: Option<String>,
}

/// A refusal in Anthropic's shape.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct AnthropicError {
    #[schemars(rename = "type")]
    pub kind: AnthropicErrorType,
    pub error: AnthropicErrorBody,
    pub request_id: String,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, inline)]
pub struct AnthropicErrorBody {
    #[schemars(rename = "type")]
    pub kind: String,
    pub message: String,
}

/// A refusal of the gateway in the shape of its API, or of a provider.
#[derive(JsonSchema)]
#[schemars(untagged, rename = "{T}OrProvider")]
pub enum OrProvider<T> {
    Ours(T),
    /// The provider's body, unchanged.
    Theirs(Value),
}

/// A change that some gateways may not know of. The other members are those of the usual answer.
#[derive(JsonSchema)]
pub struct Unconfirmed {
    /// Names of gateways that answer without a lease (`store.on_lease_lost: serve_stale`) and have
    /// not confirmed the change.
    pub unconfirmed: Vec<String>,
}
