//! What an agent adds to a request for a response.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::agent::{AgentRules, MOST_TOKENS, function, parameters, put};

pub const RULES: AgentRules = AgentRules {
    speech: "instructions",
    adds_speech: true,
    element: None,
    sampling: |name, value| {
        let name = match name {
            _ if MOST_TOKENS.contains(&name) => "max_output_tokens",
            "temperature" | "top_p" => name,
            _ => return None,
        };
        Some((name, Cow::Borrowed(value)))
    },
    tool: |tool| Cow::Owned(translated(tool)),
};

fn translated(tool: &Value) -> Value {
    let mut made = Map::new();
    put(&mut made, "type", Some("function".into()));
    put(&mut made, "name", function(tool, "name"));
    put(&mut made, "description", function(tool, "description"));
    put(&mut made, "parameters", Some(parameters(tool)));
    // `strict` defaults to true here, but to false in chat completions.
    put(&mut made, "strict", Some(function(tool, "strict").unwrap_or(Value::Bool(false))));
    made.into()
}
