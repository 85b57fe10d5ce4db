//! Definitions of tools and functions, and the format of an answer.

use std::borrow::Cow;

use super::member_names::MemberNames;
use super::model_request::RequestBuilder;
use super::text::read_word;
use crate::wire::json::{Cursor, JsonError, JsonKind};
use crate::wire::tokens;

/// The most tokens that a provider adds for a tool that it defines and the client runs.
const TOKENS_PER_CLIENT_TOOL: u64 = 1_000;
/// Prefixes of the types of such tools.
const CLIENT_TOOLS: [&str; 6] =
    ["bash", "text_editor", "computer", "memory", "local_shell", "apply_patch"];

/// Members of an output format that the gateway uses.
pub(crate) const FORMAT: &[&str] = &["type", "schema"];

pub(crate) fn read_tools(
    cursor: &mut Cursor<'_>,
    builder: &mut RequestBuilder,
) -> Result<(), JsonError> {
    // A server may read a single tool as a list of one.
    if !matches!(cursor.kind()?, JsonKind::Array | JsonKind::Null) {
        builder.prompt.is_open = true;
    }
    cursor.elements(|cursor| {
        let definition = read_definition(cursor, builder)?;
        builder.tool_tokens += definition.tokens;
        builder.request.tools += 1;
        match definition.kind.as_deref() {
            None if definition.has_name => {}
            Some("function" | "custom") => {}
            Some(kind) if CLIENT_TOOLS.iter().any(|begins| kind.starts_with(begins)) => {
                builder.prompt.beside += TOKENS_PER_CLIENT_TOOL
            }
            // The provider runs it and adds the results to the prompt.
            _ => builder.prompt.is_open = true,
        }
        Ok(())
    })
}

pub(crate) struct ToolDefinition<'a> {
    kind: Option<Cow<'a, str>>,
    has_name: bool,
    pub tokens: u64,
}

pub(crate) fn read_definition<'a>(
    cursor: &mut Cursor<'a>,
    builder: &mut RequestBuilder,
) -> Result<ToolDefinition<'a>, JsonError> {
    let is_name = cursor.kind()? == JsonKind::String;
    let start = cursor.position();
    let (mut kind, mut has_name) = (None, false);
    let mut names = MemberNames::new("tools.", &["type", "name", "function"]);
    if is_name {
        kind = read_word(cursor)?;
    } else {
        cursor.members(|cursor, name| match names.find(&name)? {
            "type" => read_word(cursor).map(|word| kind = word),
            "" => cursor.pass(),
            _ => {
                has_name = true;
                cursor.pass()
            }
        })?;
    }
    let span = start..cursor.position();
    builder.has_tools = true;
    // Chat templates write the definition again, with other white space.
    builder.prompt.beside += span.len() as u64;
    Ok(ToolDefinition { kind, has_name, tokens: tokens::estimate(cursor.raw(&span)) })
}

/// Reads the output format in the member `format` of an object. `within` is the path of the object,
/// and `path` that of the format.
pub(crate) fn read_format_within(
    cursor: &mut Cursor<'_>,
    within: &'static str,
    path: &'static str,
    builder: &mut RequestBuilder,
) -> Result<(), JsonError> {
    let mut names = MemberNames::new(within, &["format"]);
    cursor.members(|cursor, name| match names.find(&name)? {
        "" => cursor.pass(),
        _ => read_format(cursor, MemberNames::new(path, FORMAT), "schema", builder),
    })
}

/// Reads the output format. `names` are the members that hold its type and schema; `schema` names
/// the second.
pub(crate) fn read_format(
    cursor: &mut Cursor<'_>,
    mut names: MemberNames,
    schema: &str,
    builder: &mut RequestBuilder,
) -> Result<(), JsonError> {
    let mut kind = None;
    cursor.members(|cursor, name| {
        match names.find(&name)? {
            "type" => kind = read_word(cursor)?,
            found if found == schema => {
                let schema = cursor.skip()?;
                // Most providers pass the schema to the model in a shorter form, some templates in
                // a longer one.
                builder.format_tokens = tokens::estimate(cursor.raw(&schema)) / 2;
                builder.prompt.beside += schema.len() as u64;
            }
            _ => cursor.pass()?,
        }
        Ok(())
    })?;
    builder.request.json_output = matches!(kind.as_deref(), Some("json_object" | "json_schema"));
    Ok(())
}
