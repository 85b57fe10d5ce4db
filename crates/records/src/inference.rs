//! Requests and answers of the data plane. They are open objects with the members that matter to
//! the gateway. Other members pass through unchanged.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use rerouter_dialect::endpoint::Endpoint;

/// A JSON object.
type Object = Map<String, Value>;

/// Declares requests: open objects with a model.
macro_rules! requests {
    ($($(#[$about:meta])* $name:ident { $($(#[$says:meta])* $member:ident: $of:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(JsonSchema)]
        pub struct $name {
            /// An alias or `provider/model`.
            #[schemars(length(min = 1))]
            pub model: String,
            $(
                $(#[$says])*
                #[schemars(default, skip_serializing_if = "has_no_default")]
                pub $member: $of,
            )*
        }
    )*};
}

/// Always true, which keeps the default of a member out of the schema.
fn has_no_default<T>(_: &T) -> bool {
    true
}

requests! {
    /// OpenAI's chat completion request; all fields pass through unchanged.
    ChatRequest { messages: Vec<Object>, stream: Option<bool>, }
    /// OpenAI's embeddings request; all fields pass through unchanged.
    EmbeddingsRequest {
        /// A text, a list of texts, a list of tokens, or a list of lists of tokens.
        #[schemars(extend("type" = ["string", "array"]))]
        input: Value,
        dimensions: Option<u64>,
        encoding_format: Option<String>,
    }
    /// OpenAI's responses request; all fields pass through unchanged.
    ResponseRequest {
        #[schemars(extend("type" = ["string", "array", "null"]))]
        input: Value,
        instructions: Option<String>,
        max_output_tokens: Option<u64>,
        tools: Option<Vec<Object>>,
        stream: Option<bool>,
    }
    /// Anthropic's messages request; all fields pass through unchanged.
    MessageRequest {
        messages: Vec<Object>,
        #[schemars(extend("type" = ["string", "array", "null"]))]
        system: Value,
        max_tokens: Option<u64>,
        tools: Option<Vec<Object>>,
        stream: Option<bool>,
    }
    /// Anthropic's token count request; all fields pass through unchanged.
    CountRequest {
        messages: Vec<Object>,
        #[schemars(extend("type" = ["string", "array", "null"]))]
        system: Value,
        tools: Option<Vec<Object>>,
    }
    /// A request for the endpoint named by `endpoint`.
    InferenceRequest {}
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

/// Declares answers of providers. Every member may be absent, and there may be others.
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
        estimated: bool,
    }
}

/// This document.
#[derive(JsonSchema)]
#[schemars(extend("additionalProperties" = true))]
pub struct OpenApi {
    pub openapi: String,
    pub info: Object,
    pub paths: Object,
}
