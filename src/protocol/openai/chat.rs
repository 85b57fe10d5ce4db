//! Chat completions: messages, whose content is a text or a list of parts.

use super::super::json::{Cursor, Edit, Fault, Shape};
use super::super::known::Known;
use super::super::media::Prompt;
use super::super::tokens;
use super::{
    Facts, TOKENS_PER_CALL, inside, parts, read_definition, read_format, read_tools, read_word,
};
use crate::error::Error;

/// A request's `stream_options`.
#[derive(Default)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
    /// What makes it ask for the usage, where it neither does nor says what no provider
    /// understands.
    pub(super) ask: Option<Edit>,
}

/// Reads a member of the request that is acted on.
pub(super) fn member(cursor: &mut Cursor<'_>, name: &str, facts: &mut Facts) -> Result<(), Fault> {
    match name {
        "model" => {
            let is_text = cursor.shape()? == Shape::String;
            let span = cursor.skip()?;
            if !is_text {
                return Err(Error::invalid("model", "`model` has to be a string.").into());
            }
            facts.model = Some(span);
        }
        "messages" => {
            if cursor.shape()? != Shape::Array {
                cursor.skip()?;
                return Err(Error::invalid("messages", "`messages` has to be an array.").into());
            }
            cursor.elements(|cursor| read_message(cursor, &mut facts.prompt))?;
        }
        "stream" => {
            let shape = cursor.shape()?;
            facts.stream_end = cursor.skip()?.end;
            facts.request.stream = match shape {
                Shape::True => true,
                Shape::False | Shape::Null => false,
                _ => {
                    return Err(
                        Error::invalid("stream", "`stream` has to be true or false.").into()
                    );
                }
            };
        }
        "stream_options" => facts.options = Some(read_stream_options(cursor)?),
        "tools" => read_tools(cursor, facts)?,
        "functions" => cursor.elements(|cursor| {
            facts.tool_tokens += read_definition(cursor, facts)?.tokens;
            Ok(())
        })?,
        "response_format" => read_format(
            cursor,
            Known::of("response_format.", &["type", "json_schema"]),
            "json_schema",
            facts,
        )?,
        _ => cursor.pass()?,
    }
    Ok(())
}

fn read_stream_options(cursor: &mut Cursor<'_>) -> Result<StreamOptions, Fault> {
    let ask = |edit| Ok(StreamOptions { include_usage: false, ask: Some(edit) });
    match cursor.shape()? {
        Shape::Null => return ask(Edit::new(cursor.skip()?, &br#"{"include_usage":true}"#[..])),
        Shape::Object => {}
        _ => return cursor.skip().map(|_| StreamOptions::default()),
    }
    let inside = cursor.place() + 1;
    let (mut said, mut empty) = (None, true);
    let mut known = Known::of("stream_options.", &["include_usage"]);
    cursor.members(|cursor, name| {
        empty = false;
        let found = known.find(&name)?;
        let shape = cursor.shape()?;
        let span = cursor.skip()?;
        if !found.is_empty() {
            said = Some((span, shape));
        }
        Ok(())
    })?;
    match said {
        Some((_, Shape::True)) => Ok(StreamOptions { include_usage: true, ask: None }),
        Some((span, Shape::False | Shape::Null)) => ask(Edit::new(span, &b"true"[..])),
        Some(_) => Ok(StreamOptions::default()),
        None if empty => ask(Edit::new(inside..inside, &br#""include_usage":true"#[..])),
        None => ask(Edit::new(inside..inside, &br#""include_usage":true,"#[..])),
    }
}

/// The members of a message that are acted on.
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

fn read_message(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    prompt.messages += 1;
    let mut text = Vec::new();
    let mut role = None;
    let mut known = Known::of("messages.", NAMES);
    cursor.members(|cursor, name| {
        match known.find(&name)? {
            "role" => role = read_word(cursor)?,
            "content" => match cursor.shape()? {
                Shape::String => text.push(cursor.skip()?),
                Shape::Array => cursor.elements(|cursor| parts::read(cursor, prompt, &mut text))?,
                _ => parts::read(cursor, prompt, &mut text)?,
            },
            "tool_calls" => cursor.elements(|cursor| read_tool_call(cursor, prompt))?,
            "function_call" => {
                prompt.tokens += TOKENS_PER_CALL;
                read_call(cursor, prompt)?;
            }
            // Reasoning of earlier answers is not among these: providers leave it out.
            "refusal" | "name" => {
                let span = cursor.skip()?;
                prompt.tokens += super::tokens_of(cursor, &span);
            }
            // What was said before, by its id; and what some servers take beside the content.
            "audio" | "images" | "videos" | "files" | "attachments" => {
                prompt.is_open |= !matches!(cursor.shape()?, Shape::Null | Shape::String);
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

/// An answer without the thoughts that some models write before it: templates leave those of
/// earlier answers out.
fn after_thoughts(answer: &[u8]) -> &[u8] {
    const END: &[u8] = b"</think>";
    if !answer.starts_with(b"<think>") {
        return answer;
    }
    let end = memchr::memmem::rfind(answer, END);
    end.and_then(|at| answer.get(at + END.len()..)).unwrap_or(answer)
}

/// A call of a tool: its name and arguments are told to the model, its id is not.
fn read_tool_call(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    prompt.tokens += TOKENS_PER_CALL;
    let mut known = Known::of("messages.tool_calls.", &["function", "custom"]);
    cursor.members(|cursor, name| match known.find(&name)? {
        "" => cursor.pass(),
        _ => read_call(cursor, prompt),
    })
}

/// What is called, and with what.
fn read_call(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    cursor.members(|cursor, _| {
        let span = cursor.skip()?;
        prompt.tokens += tokens::estimate(cursor.raw(&span));
        Ok(())
    })
}
