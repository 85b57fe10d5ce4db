//! The parts of a message's content.

use serde_json::Value;

/// A part of what a user, a tool or a model says.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Image(Image),
    Audio {
        data: Base64,
        format: String,
    },
    File(File),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
    Thinking(Thinking),
    /// What the model said instead of an answer.
    Refusal(String),
}

/// Base64 text, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base64(pub String);

/// Where the bytes of an image or file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Url(String),
    Inline {
        media_type: String,
        data: Base64,
    },
    /// An identifier that only the provider of one dialect knows.
    Provider(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub source: Source,
    /// OpenAI's `detail`: `low`, `high` or `auto`.
    pub detail: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub source: Source,
    pub name: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object as text, as the model wrote it. A model may write broken JSON.
    pub arguments: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    pub call_id: String,
    /// The tool's name. Gemini's dialect asks for it, others find it by `call_id`.
    pub name: Option<String>,
    pub content: Vec<Part>,
    pub is_error: bool,
}

/// Thinking that is sent back to the model with the next request.
#[derive(Clone, Debug, PartialEq)]
pub struct Thinking {
    pub text: String,
    /// What the provider signed or encrypted. Only the dialect that made it can read it.
    pub seal: Option<Seal>,
}

/// A provider's own proof of its thinking, with all that its dialect needs to repeat it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seal {
    pub dialect: &'static str,
    pub value: Value,
}
