//! What an agent adds to a request for a message.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::super::agent::{AgentRules, MOST_TOKENS, function, parameters, put};

pub const RULES: AgentRules = AgentRules {
    speech: "system",
    adds_speech: true,
    element: Some(|instructions| json!({ "type": "text", "text": instructions })),
    sampling,
    tool: |tool| Cow::Owned(translated(tool)),
};

/// The endpoint that counts tokens has no sampling fields.
pub(crate) const COUNT_RULES: AgentRules = AgentRules { sampling: |_, _| None, ..RULES };

fn sampling<'a>(name: &'a str, value: &'a Value) -> Option<(&'a str, Cow<'a, Value>)> {
    Some(match name {
        _ if MOST_TOKENS.contains(&name) => ("max_tokens", Cow::Borrowed(value)),
        "temperature" | "top_p" | "top_k" => (name, Cow::Borrowed(value)),
        "stop" if value.is_array() => ("stop_sequences", Cow::Borrowed(value)),
        "stop" => ("stop_sequences", Cow::Owned(json!([value]))),
        _ => return None,
    })
}

fn translated(tool: &Value) -> Value {
    let mut made = Map::new();
    put(&mut made, "name", function(tool, "name"));
    put(&mut made, "description", function(tool, "description"));
    put(&mut made, "input_schema", Some(parameters(tool)));
    let strict = function(tool, "strict").filter(|strict| *strict == Value::Bool(true));
    put(&mut made, "strict", strict);
    made.into()
}
