//! What an agent adds to a chat completion: a system message, and fields and functions as they are.

use std::borrow::Cow;

use serde_json::json;

use super::super::agent::AgentRules;

pub const RULES: AgentRules = AgentRules {
    speech: "messages",
    // A chat without messages is the provider's to refuse.
    adds_speech: false,
    element: Some(|instructions| json!({ "role": "system", "content": instructions })),
    sampling: |name, value| Some((name, Cow::Borrowed(value))),
    tool: |tool| Cow::Borrowed(tool),
};
