//! Facts of a request for a chat completion. The content of a message is a text or a list of parts.

use super::super::request::content_parts;
use super::super::request::media::PromptSize;
use super::super::request::member_names::MemberNames;
use super::super::request::model_request::{RequestBuilder, TOKENS_PER_CALL};
use super::super::request::text::{inside, read_word, tokens_of};
use super::super::request::tools::{read_definition, read_format, read_tools};
use super::stream_options::read_stream_options;
use crate::wire::json::{Cursor, JsonError, JsonKind};
use crate::wire::tokens;
use rerouter_base::error::Error;

pub(crate) fn member(
    cursor: &mut Cursor<'_>,
    name: &str,
    builder: &mut RequestBuilder,
) -> Result<(), JsonError> {
    match name {
        "messages" => {
            if cursor.kind()? != JsonKind::Array {
                cursor.skip()?;
                return Err(Error::invalid("messages", "`messages` has to be an array.").into());
            }
            cursor.elements(|cursor| read_message(cursor, &mut builder.prompt))?;
        }
        "stream_options" => builder.options = Some(read_stream_options(cursor)?),
        "tools" => read_tools(cursor, builder)?,
        "functions" => cursor.elements(|cursor| {
            builder.tool_tokens += read_definition(cursor, builder)?.tokens;
            Ok(())
        })?,
        "response_format" => read_format(
            cursor,
            MemberNames::new("response_format.", &["type", "json_schema"]),
            "json_schema",
            builder,
        )?,
        _ => cursor.pass()?,
    }
    Ok(())
}

/// The members of a message that the gateway uses.
const NAMES: &[&str] = &[
    "role",
    "content",
    "tool_calls",
    "function_call",
    "refusal",
    "name",
    "audio",
    "images",
    "videos",
    "files",
    "attachments",
];

fn read_message(cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
    prompt.messages += 1;
    let mut text = Vec::new();
    let mut role = None;
    let mut names = MemberNames::new("messages.", NAMES);
    cursor.members(|cursor, name| {
        match names.find(&name)? {
            "role" => role = read_word(cursor)?,
            "content" => match cursor.kind()? {
                JsonKind::String => text.push(cursor.skip()?),
                JsonKind::Array => {
                    cursor.elements(|cursor| content_parts::read(cursor, prompt, &mut text))?
                }
                _ => content_parts::read(cursor, prompt, &mut text)?,
            },
            "tool_calls" => cursor.elements(|cursor| read_tool_call(cursor, prompt))?,
            "function_call" => {
                prompt.tokens += TOKENS_PER_CALL;
                read_call(cursor, prompt)?;
            }
            // Thinking of earlier answers does not count, as providers ignore it.
            "refusal" | "name" => {
                let span = cursor.skip()?;
                prompt.tokens += tokens_of(cursor, &span);
            }
            // The id of an earlier audio answer, or attachments that some servers accept beside the
            // content.
            "audio" | "images" | "videos" | "files" | "attachments" => {
                prompt.is_open |= !matches!(cursor.kind()?, JsonKind::Null | JsonKind::String);
                cursor.pass()?;
            }
            _ => cursor.pass()?,
        }
        Ok(())
    })?;
    let of_the_model = role.as_deref() == Some("assistant");
    for span in &text {
        let inside = inside(cursor, span);
        prompt.tokens +=
            tokens::estimate(if of_the_model { after_thoughts(inside) } else { inside });
    }
    if role.as_deref() == Some("user") {
        prompt.user_text = text;
    }
    Ok(())
}

/// The answer without leading `<think>` text, which chat templates leave out.
fn after_thoughts(answer: &[u8]) -> &[u8] {
    const END: &[u8] = b"</think>";
    if !answer.starts_with(b"<think>") {
        return answer;
    }
    let end = memchr::memmem::rfind(answer, END);
    end.and_then(|at| answer.get(at + END.len()..)).unwrap_or(answer)
}

/// The model sees the name and arguments of a call, but not its id.
fn read_tool_call(cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
    prompt.tokens += TOKENS_PER_CALL;
    let mut names = MemberNames::new("messages.tool_calls.", &["function", "custom"]);
    cursor.members(|cursor, name| match names.find(&name)? {
        "" => cursor.pass(),
        _ => read_call(cursor, prompt),
    })
}

fn read_call(cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
    cursor.members(|cursor, _| {
        let span = cursor.skip()?;
        prompt.tokens += tokens::estimate(cursor.raw(&span));
        Ok(())
    })
}
