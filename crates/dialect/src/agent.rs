//! What an agent adds to a request: instructions before the client's, sampling fields that the
//! client leaves out, tools before the client's. Everything is an edit of the client's bytes, in
//! the terms of the request's endpoint. A field that the endpoint does not have is left out.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use crate::wire::json::{self, Cursor, Edit, JsonError, JsonKind, MemberName, splice};
use rerouter_base::error::{Error, Kind};

/// How an endpoint takes what an agent adds.
pub struct AgentRules {
    /// The name of the member that holds the instructions or, in chat completions, the messages.
    pub speech: &'static str,
    /// Whether that member is added where it is missing.
    pub adds_speech: bool,
    /// Makes a list element of the instructions, if that member may be a list.
    pub element: Option<fn(&str) -> Value>,
    /// Translates a sampling field of chat completions to this endpoint, if it has such a field.
    pub sampling: SamplingWords,
    /// Translates a function of chat completions to this endpoint.
    pub tool: fn(&Value) -> Cow<'_, Value>,
}

/// Maps the name and value of a chat completions field to the endpoint's name and value.
type SamplingWords = for<'a> fn(&'a str, &'a Value) -> Option<(&'a str, Cow<'a, Value>)>;

#[derive(Clone, Copy, Debug)]
pub struct AgentPreset<'a> {
    /// The alias that replaces `agent/<name>` in `model`.
    pub model: &'a str,
    /// Instructions that every conversation begins with.
    pub instructions: Option<&'a str>,
    /// Sampling fields, in the words of chat completions.
    pub defaults: &'a Map<String, Value>,
    /// Functions as chat completions have them, each name once.
    pub tools: &'a [Value],
}

/// Turns the body of a request for the agent into a request for its alias. `model` is the span of
/// the `model` value in the body.
///
/// # Errors
/// 400 for embeddings, for a client's tool that has the name of an agent's tool, and for a member
/// whose JSON type leaves no room for the agent's part.
pub fn apply(
    preset: &AgentPreset<'_>,
    endpoint: Endpoint,
    body: &Bytes,
    model: &Range<usize>,
) -> Result<Bytes, Error> {
    let Some(rules) = &endpoint.row().agent else {
        let message = "An agent holds conversations; embeddings are asked of a model.";
        return Err(Error::new(Kind::UnsupportedFeature, message).at("model"));
    };
    let mut fields = sampling(preset, rules);
    let (mut speech, mut tools) = (None, None);
    json::read_object(body, |cursor, name| {
        fields.retain(|(field, _)| !says(&name, field));
        if name.is(rules.speech) {
            speech = Some(place(cursor)?);
            return Ok(());
        }
        if name.is("tools") {
            tools = Some(read_tools(cursor, preset)?);
            return Ok(());
        }
        cursor.pass()
    })?;
    let mut edits = Edits { made: Vec::new(), members: Vec::new() };
    if let Some(instructions) = preset.instructions.filter(|text| !text.is_empty()) {
        instruct(&mut edits, rules, instructions, speech)?;
    }
    if !preset.tools.is_empty() {
        let brought: Vec<String> =
            preset.tools.iter().map(|tool| (rules.tool)(tool).to_string()).collect();
        bring(&mut edits, &brought.join(","), tools)?;
    }
    edits.members.extend(fields.iter().map(|(name, value)| member(name, value)));
    let renamed = [quoted(preset.model), edits.members.concat()].concat();
    edits.made.push(Edit::new(model.clone(), renamed.into_bytes()));
    Ok(splice(body, edits.made))
}

struct Edits {
    made: Vec<Edit>,
    /// Members that the body does not have, each after a comma. They are inserted behind `model`.
    members: Vec<String>,
}

struct MemberValue {
    kind: JsonKind,
    span: Range<usize>,
    /// Whether the value is an empty string, list or object.
    empty: bool,
}

fn place(cursor: &mut Cursor<'_>) -> Result<MemberValue, JsonError> {
    let kind = cursor.kind()?;
    let span = cursor.skip()?;
    let inside = cursor.raw(&span).get(1..span.len().saturating_sub(1)).unwrap_or_default();
    let empty = match kind {
        JsonKind::String => inside.is_empty(),
        _ => inside.trim_ascii().is_empty(),
    };
    Ok(MemberValue { kind, span, empty })
}

/// Skips the client's tools. Fails if one of them has the name of an agent's tool.
fn read_tools(cursor: &mut Cursor<'_>, preset: &AgentPreset<'_>) -> Result<MemberValue, JsonError> {
    let (kind, start) = (cursor.kind()?, cursor.position());
    let mut empty = true;
    cursor.elements(|cursor| {
        empty = false;
        cursor.members(|cursor, name| match &*name.text() {
            // Chat completions nest the name in these members; the other dialects do not.
            "function" | "custom" => {
                cursor.members(|cursor, name| check_name(cursor, &name, preset))
            }
            _ => check_name(cursor, &name, preset),
        })
    })?;
    Ok(MemberValue { kind, span: start..cursor.position(), empty })
}

fn check_name(
    cursor: &mut Cursor<'_>,
    member: &MemberName<'_>,
    preset: &AgentPreset<'_>,
) -> Result<(), JsonError> {
    let span = cursor.skip()?;
    if !member.is("name") {
        return Ok(());
    }
    match json::text(cursor.raw(&span))
        .filter(|name| preset.tools.iter().any(|tool| tool_name(tool) == Some(&**name)))
    {
        Some(name) => {
            Err(Error::invalid("tools", format!("The agent has a tool `{name}` already.")).into())
        }
        None => Ok(()),
    }
}

fn tool_name(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name")?.as_str()
}

/// Puts the instructions before what the client says.
fn instruct(
    edits: &mut Edits,
    rules: &AgentRules,
    instructions: &str,
    speech: Option<MemberValue>,
) -> Result<(), Error> {
    let name = rules.speech;
    let (kind, span, empty) = match speech {
        Some(MemberValue { kind, span, empty }) => (kind, span, empty),
        None if rules.adds_speech => {
            edits.members.push(format!(",{}:{}", quoted(name), quoted(instructions)));
            return Ok(());
        }
        None => return Ok(()),
    };
    match (kind, rules.element) {
        (JsonKind::Array, Some(element)) => {
            edits.made.push(first(&span, empty, element(instructions).to_string()));
        }
        (JsonKind::String, _) => {
            let text =
                if empty { quoted(instructions) } else { quoted(&[instructions, "\n\n"].concat()) };
            let inside =
                text.get(1..text.len().saturating_sub(1)).unwrap_or_default().as_bytes().to_vec();
            edits.made.push(Edit::new(span.start + 1..span.start + 1, inside));
        }
        (JsonKind::Null, _) => edits.made.push(Edit::new(span, quoted(instructions).into_bytes())),
        (_, element) => {
            let kinds = if element.is_some() { "a string or an array" } else { "a string" };
            return Err(Error::invalid(name, format!("`{name}` has to be {kinds}.")));
        }
    }
    Ok(())
}

/// Puts the agent's tools before the client's. `brought` is a JSON list without its brackets.
fn bring(edits: &mut Edits, brought: &str, tools: Option<MemberValue>) -> Result<(), Error> {
    match tools {
        None => edits.members.push(format!(",\"tools\":[{brought}]")),
        Some(MemberValue { kind: JsonKind::Null, span, .. }) => {
            edits.made.push(Edit::new(span, format!("[{brought}]").into_bytes()))
        }
        Some(MemberValue { kind: JsonKind::Array, span, empty }) => {
            edits.made.push(first(&span, empty, brought.to_owned()))
        }
        Some(_) => return Err(Error::invalid("tools", "`tools` has to be an array.")),
    }
    Ok(())
}

/// Inserts elements at the beginning of the list at `span`.
fn first(span: &Range<usize>, empty: bool, mut elements: String) -> Edit {
    if !empty {
        elements.push(',');
    }
    Edit::new(span.start + 1..span.start + 1, elements.into_bytes())
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn member(name: &str, value: &Value) -> String {
    format!(",{}:{value}", quoted(name))
}

/// Two names that chat completions has for the same limit. Providers accept one of them.
pub(crate) const MOST_TOKENS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// Whether the client's member is this field, by either name of a limit. Case does not count, as
/// some providers ignore it.
fn says(member: &MemberName<'_>, field: &str) -> bool {
    member.resembles(field)
        || (MOST_TOKENS.contains(&field) && MOST_TOKENS.iter().any(|other| member.resembles(other)))
}

fn sampling<'a>(preset: &AgentPreset<'a>, rules: &AgentRules) -> Vec<(&'a str, Cow<'a, Value>)> {
    let twice = preset.defaults.contains_key(MOST_TOKENS[0]);
    let fields = preset.defaults.iter().filter(|(name, _)| !twice || *name != MOST_TOKENS[1]);
    fields.filter_map(|(name, value)| (rules.sampling)(name, value)).collect()
}

/// A member of a function of chat completions, unless it is null.
pub fn function(tool: &Value, name: &str) -> Option<Value> {
    tool.pointer("/function")?.get(name).filter(|value| !value.is_null()).cloned()
}

/// The parameters of a function of chat completions; an empty object schema if it has none.
pub fn parameters(tool: &Value) -> Value {
    function(tool, "parameters").unwrap_or_else(|| json!({ "type": "object", "properties": {} }))
}

pub fn put(made: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        made.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
