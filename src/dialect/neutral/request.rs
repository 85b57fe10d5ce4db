//! A request in the neutral form.

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::part::Part;

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub model: String,
    pub stream: bool,
    /// What stands before the first turn, by the operator or developer.
    pub system: Vec<Part>,
    pub turns: Vec<Turn>,
    pub tools: Vec<Tool>,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    pub max_tokens: Option<u64>,
    pub stop: Vec<String>,
    pub sampling: Sampling,
    pub output: Option<OutputFormat>,
    pub reasoning: Option<Reasoning>,
    /// Who the end user is, in the client's words.
    pub user: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    User,
    Assistant,
}

/// What one side says before the other answers. Tool results stand in a user's turn.
#[derive(Clone, Debug)]
pub struct Turn {
    pub speaker: Speaker,
    pub content: Vec<Part>,
}

#[derive(Clone, Debug)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    /// JSON Schema of the arguments, as it came.
    pub parameters: Option<Box<RawValue>>,
    pub strict: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    /// Some tool must be called.
    Any,
    Named(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<Number>,
    pub top_p: Option<Number>,
    pub top_k: Option<Number>,
    pub presence_penalty: Option<Number>,
    pub frequency_penalty: Option<Number>,
    pub seed: Option<Number>,
}

#[derive(Clone, Debug)]
pub enum OutputFormat {
    /// Any JSON object.
    Json,
    Schema {
        name: Option<String>,
        schema: Box<RawValue>,
        strict: Option<bool>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reasoning {
    Off,
    /// OpenAI's `reasoning_effort`: `minimal`, `low`, `medium`, `high`.
    Effort(String),
    /// At most so many tokens of thinking.
    Budget(u64),
    /// As much as the model likes.
    Adaptive,
}

/// A member of a request with the feature that it belongs to, for what cannot be carried.
#[derive(Clone, Debug, PartialEq)]
pub struct Uncarried {
    /// The member's path in the client's dialect.
    pub member: String,
    pub value: Value,
}
