//! What the data plane takes and gives: open objects, with the members that matter to the gateway.
//! The others pass through unchanged.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use rerouter_dialect::endpoint::Endpoint;

/// A JSON object.
type Object = Map<String, Value>;

/// OpenAI's chat completion request; all fields pass through unchanged.
#[derive(JsonSchema)]
pub struct ChatRequest {
    /// An alias or `provider/model`.
    #[schemars(length(min = 1))]
    pub model: String,
    #[schemars(default)]
    pub messages: Vec<Object>,
    pub stream: Option<bool>,
}

/// OpenAI's embeddings request; all fields pass through unchanged.
#[derive(JsonSchema)]
pub struct EmbeddingsRequest {
    /// An alias or `provider/model`.
    #[schemars(length(min = 1))]
    pub model: String,
    /// A text, a list of texts, a list of tokens, or a list of those.
    #[schemars(default, extend("type" = ["string", "array"]))]
    pub input: Value,
    pub dimensions: Option<u64>,
    pub encoding_format: Option<String>,
}

/// OpenAI's responses request; all fields pass through unchanged.
#[derive(JsonSchema)]
pub struct ResponseRequest {
    /// An alias or `provider/model`.
    #[schemars(length(min = 1))]
    pub model: String,
    #[schemars(default, extend("type" = ["string", "array", "null"]))]
    pub input: Value,
    pub instructions: Option<String>,
    pub max_output_tokens: Option<u64>,
    pub tools: Option<Vec<Object>>,
    pub stream: Option<bool>,
}

/// Anthropic's messages request; all fields pass through unchanged.
#[derive(JsonSchema)]
pub struct MessageRequest {
    /// An alias or `provider/model`.
    #[schemars(length(min = 1))]
    pub model: String,
    #[schemars(default)]
    pub messages: Vec<Object>,
    #[schemars(default, extend("type" = ["string", "array", "null"]))]
    pub system: Value,
    pub max_tokens: Option<u64>,
    pub tools: Option<Vec<Object>>,
    pub stream: Option<bool>,
}

/// Anthropic's token count request; all fields pass through unchanged.
#[derive(JsonSchema)]
pub struct CountRequest {
    /// An alias or `provider/model`.
    #[schemars(length(min = 1))]
    pub model: String,
    #[schemars(default)]
    pub messages: Vec<Object>,
    #[schemars(default, extend("type" = ["string", "array", "null"]))]
    pub system: Value,
    pub tools: Option<Vec<Object>>,
}

/// A request for the endpoint named by `endpoint`.
#[derive(JsonSchema)]
pub struct InferenceRequest {
    #[schemars(length(min = 1))]
    pub model: String,
}

/// Query of a decision.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideQuery {
    /// Endpoint of the request in the body.
    #[schemars(extend(
        "enum" = Endpoint::ALL.map(Endpoint::as_str),
        "default" = Endpoint::default().as_str()
    ))]
    pub endpoint: Option<String>,
}

/// Declares what a provider answers: each member may be absent, and there may be others.
macro_rules! answers {
    ($($(#[$about:meta])* $name:ident { $($(#[$says:meta])* $member:ident: $of:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(JsonSchema)]
        #[schemars(extend("additionalProperties" = true))]
        pub struct $name {
            $($(#[$says])* #[schemars(skip_serializing_if = "Option::is_none")] pub $member: $of,)*
        }
    )*};
}

answers! {
    /// The provider's answer, unchanged.
    ChatCompletion { id: Option<String>, choices: Vec<Value>, usage: Option<Object>, }
    /// The provider's answer, unchanged.
    Embeddings { object: String, data: Vec<Value>, model: String, usage: Option<Object>, }
    /// The provider's answer, unchanged.
    Response { id: String, status: String, output: Vec<Value>, usage: Option<Object>, }
    /// The provider's answer, unchanged.
    Message {
        id: String,
        #[schemars(rename = "type")]
        kind: String,
        role: String,
        content: Vec<Value>,
        stop_reason: Option<String>,
        usage: Option<Object>,
    }
    /// The provider's answer, or the gateway's estimate.
    TokenCount {
        input_tokens: u64,
        /// It is the gateway's estimate; absent if a provider counted.
        #[schemars(extend("const" = true))]
        estimated: bool,
    }
    /// This document.
    OpenApi { openapi: String, info: Object, paths: Object, }
}
