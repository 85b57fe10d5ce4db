//! What an agent adds to a request for a chat completion: a system message, fields and functions.
//! Fields and functions have this dialect's form already.

use std::borrow::Cow;

use serde_json::json;

use super::super::agent::AgentRules;

pub const RULES: AgentRules = AgentRules {
    speech: "messages",
    // The provider refuses a request without messages.
    adds_speech: false,
    element: Some(|instructions| json!({ "role": "system", "content": instructions })),
    sampling: |name, value| Some((name, Cow::Borrowed(value))),
    tool: |tool| Cow::Borrowed(tool),
};
