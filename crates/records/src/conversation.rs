//! A capture as people read it, in one form for all dialects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// With `with=conversation`: request and answer in one form for every dialect, for people who read
/// them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Conversation {
    /// Null if the body was not kept.
    pub request: Option<ConversationRequest>,
    /// Null if the body was not kept. The parts of a stream are put together.
    pub answer: Option<ConversationAnswer>,
}

/// What was asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ConversationRequest {
    pub system: Vec<String>,
    pub messages: Vec<ConversationMessage>,
    pub tools: Vec<ConversationTool>,
    /// The short members of the body, as `temperature`.
    pub settings: Map<String, Value>,
    /// Members of the body that this form has no place for.
    pub unshown: Vec<String>,
    /// Why the body cannot be read.
    pub problem: Option<String>,
}

/// What was answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ConversationAnswer {
    pub content: Vec<ConversationPart>,
    /// Why the model stopped.
    #[schemars(extend("enum" = [
        "end", "max_tokens", "stop_sequence", "tool_calls", "refusal", "pause", "unfinished", null
    ]))]
    pub stop: Option<String>,
    /// What the answer has and this form has no place for.
    pub unshown: Vec<String>,
    /// The error, or why there is no more of the answer.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ConversationMessage {
    #[schemars(extend("enum" = ["system", "user", "assistant"]))]
    pub role: String,
    pub content: Vec<ConversationPart>,
}

/// A function that the model may call.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ConversationTool {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[schemars(with = "Value")]
    pub parameters: Option<Box<RawValue>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ConversationPart {
    Text {
        text: String,
    },
    Refusal {
        text: String,
    },
    Thinking {
        text: String,
    },
    Image(ConversationSource),
    File(ConversationSource),
    Audio {
        media_type: String,
        /// Size of the data, which is left out.
        bytes: usize,
    },
    ToolCall {
        id: String,
        name: String,
        /// As the model wrote them.
        arguments: String,
    },
    ToolResult {
        /// Id of the tool call.
        id: String,
        is_error: bool,
        content: Vec<ConversationPart>,
    },
    Tokens {
        count: u64,
    },
    Vectors {
        count: usize,
        /// Numbers of a vector.
        numbers: usize,
    },
}

/// An image or a file: its address, its text, or what its data are.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ConversationSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Size of the data, which is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}
