//! What an agent adds to a request: instructions before the client's, sampling fields that the
//! client leaves out, tools before the client's. Everything is an edit of the client's bytes, in
//! the terms of the request's endpoint. A field that the endpoint does not have is left out.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use crate::error::{Error, Kind};
use crate::wire::json::{self, Cursor, Edit, JsonError, JsonKind, MemberName, splice};

/// What an agent brings along.
#[derive(Clone, Copy, Debug)]
pub struct AgentPreset<'a> {
    /// The alias that stands for it.
    pub model: &'a str,
    /// What every conversation begins with.
    pub instructions: Option<&'a str>,
    /// Sampling fields, in the words of chat completions.
    pub defaults: &'a Map<String, Value>,
    /// Functions as chat completions have them, each name once.
    pub tools: &'a [Value],
}

/// Turns the body of a request for the agent into one for its alias. `model` is the span of the
/// model in it.
///
/// # Errors
/// 400 for embeddings, for a client's tool with the name of one of the agent's, and for a member
/// whose kind leaves no room for the agent's part.
pub fn apply(
    preset: &AgentPreset<'_>,
    endpoint: Endpoint,
    body: &Bytes,
    model: &Range<usize>,
) -> Result<Bytes, Error> {
    if endpoint == Endpoint::Embeddings {
        let message = "An agent holds conversations; embeddings are asked of a model.";
        return Err(Error::new(Kind::UnsupportedFeature, message).at("model"));
    }
    let mut fields = sampling(preset, endpoint);
    let (mut speech, mut tools) = (None, None);
    json::read_object(body, |cursor, name| {
        fields.retain(|(field, _)| !says(&name, field));
        if name.is(speech_member(endpoint)) {
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
        instruct(&mut edits, endpoint, instructions, speech)?;
    }
    if !preset.tools.is_empty() {
        let brought: Vec<String> =
            preset.tools.iter().map(|tool| translated(tool, endpoint).to_string()).collect();
        bring(&mut edits, &brought.join(","), tools)?;
    }
    edits.members.extend(fields.iter().map(|(name, value)| member(name, value)));
    let renamed = [quoted(preset.model), edits.members.concat()].concat();
    edits.made.push(Edit::new(model.clone(), renamed.into_bytes()));
    Ok(splice(body, edits.made))
}

/// The changes of one body.
struct Edits {
    made: Vec<Edit>,
    /// Members that it does not have, each after a comma: they follow `model`.
    members: Vec<String>,
}

/// Where a member's value stands.
struct MemberValue {
    kind: JsonKind,
    span: Range<usize>,
    /// Whether it is a string, list or object without anything in it.
    empty: bool,
}

/// The member that holds what is said before a conversation, or the conversation.
fn speech_member(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::ChatCompletions | Endpoint::Embeddings => "messages",
        Endpoint::Responses => "instructions",
        Endpoint::Messages | Endpoint::CountTokens => "system",
    }
}

/// Passes over a value.
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

/// Passes over the client's tools, each of which needs a name that the agent's do not have.
fn read_tools(cursor: &mut Cursor<'_>, preset: &AgentPreset<'_>) -> Result<MemberValue, JsonError> {
    let (kind, start) = (cursor.kind()?, cursor.position());
    let mut empty = true;
    cursor.elements(|cursor| {
        empty = false;
        cursor.members(|cursor, name| match &*name.text() {
            // As chat completions have it, and as the others do.
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
    endpoint: Endpoint,
    instructions: &str,
    speech: Option<MemberValue>,
) -> Result<(), Error> {
    let name = speech_member(endpoint);
    let anthropic = endpoint.is_anthropic();
    match speech {
        // A chat without messages is the provider's to refuse.
        None if endpoint == Endpoint::ChatCompletions => {}
        None => edits.members.push(format!(",{}:{}", quoted(name), quoted(instructions))),
        Some(MemberValue { kind: JsonKind::Array, span, empty })
            if endpoint == Endpoint::ChatCompletions =>
        {
            edits.made.push(first(
                &span,
                empty,
                json!({ "role": "system", "content": instructions }).to_string(),
            ));
        }
        Some(MemberValue { kind: JsonKind::Array, span, empty }) if anthropic => {
            edits.made.push(first(
                &span,
                empty,
                json!({ "type": "text", "text": instructions }).to_string(),
            ));
        }
        Some(MemberValue { kind: JsonKind::String, span, empty }) => {
            let text =
                if empty { quoted(instructions) } else { quoted(&[instructions, "\n\n"].concat()) };
            let inside =
                text.get(1..text.len().saturating_sub(1)).unwrap_or_default().as_bytes().to_vec();
            edits.made.push(Edit::new(span.start + 1..span.start + 1, inside));
        }
        Some(MemberValue { kind: JsonKind::Null, span, .. }) => {
            edits.made.push(Edit::new(span, quoted(instructions).into_bytes()))
        }
        Some(_) if anthropic => {
            return Err(Error::invalid(name, format!("`{name}` has to be a string or an array.")));
        }
        Some(_) => return Err(Error::invalid(name, format!("`{name}` has to be a string."))),
    }
    Ok(())
}

/// Puts the agent's tools, a list without its brackets, before the client's.
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

/// The first elements of the list at `span`.
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

/// The two words of chat completions for one thing, of which providers take one.
const MOST_TOKENS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// Whether the client sets the field, by either of its names and in any case, as some readers
/// ignore case.
fn says(member: &MemberName<'_>, field: &str) -> bool {
    member.resembles(field)
        || (MOST_TOKENS.contains(&field) && MOST_TOKENS.iter().any(|other| member.resembles(other)))
}

/// The sampling fields in the endpoint's words; a count of tokens has none.
fn sampling<'a>(preset: &AgentPreset<'a>, endpoint: Endpoint) -> Vec<(&'a str, Cow<'a, Value>)> {
    let twice = preset.defaults.contains_key(MOST_TOKENS[0]);
    let fields = preset.defaults.iter().filter(|(name, _)| !twice || *name != MOST_TOKENS[1]);
    let in_words = |name: &'a str, value: &'a Value| {
        let most = MOST_TOKENS.contains(&name);
        Some(match (endpoint, name) {
            (Endpoint::ChatCompletions, name) => (name, Cow::Borrowed(value)),
            (Endpoint::Responses, _) if most => ("max_output_tokens", Cow::Borrowed(value)),
            (Endpoint::Responses, "temperature" | "top_p") => (name, Cow::Borrowed(value)),
            (Endpoint::Messages, _) if most => ("max_tokens", Cow::Borrowed(value)),
            (Endpoint::Messages, "temperature" | "top_p" | "top_k") => (name, Cow::Borrowed(value)),
            (Endpoint::Messages, "stop") if value.is_array() => {
                ("stop_sequences", Cow::Borrowed(value))
            }
            (Endpoint::Messages, "stop") => ("stop_sequences", Cow::Owned(json!([value]))),
            _ => return None,
        })
    };
    fields.filter_map(|(name, value)| in_words(name, value)).collect()
}

/// A function of chat completions as the endpoint has it.
fn translated(tool: &Value, endpoint: Endpoint) -> Cow<'_, Value> {
    if matches!(endpoint, Endpoint::ChatCompletions | Endpoint::Embeddings) {
        return Cow::Borrowed(tool);
    }
    let function =
        |name: &str| tool.pointer("/function")?.get(name).filter(|value| !value.is_null()).cloned();
    let strict = function("strict");
    // Without parameters it is called with none.
    let parameters =
        function("parameters").unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
    let mut made = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        drop(value.and_then(|value| made.insert(name.to_owned(), value)))
    };
    if endpoint == Endpoint::Responses {
        put("type", Some("function".into()));
        put("name", function("name"));
        put("description", function("description"));
        put("parameters", Some(parameters));
        // Here it is strict where nothing is said, there it is not.
        put("strict", Some(strict.unwrap_or(Value::Bool(false))));
    } else {
        put("name", function("name"));
        put("description", function("description"));
        put("input_schema", Some(parameters));
        put("strict", strict.filter(|strict| *strict == Value::Bool(true)));
    }
    Cow::Owned(Value::Object(made))
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
