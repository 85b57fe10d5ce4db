//! Facts of a request for a response. `input` is a text or a list of items: messages, tool calls,
//! tool results and thinking. The estimate leaves out an earlier response (`previous_response_id`,
//! `conversation`).

use std::borrow::Cow;
use std::ops::Range;

use super::super::request::content_parts;
use super::super::request::media::{ImageRule, PromptSize};
use super::super::request::member_names::MemberNames;
use super::super::request::model_request::{RequestBuilder, TOKENS_PER_CALL, TOKENS_PER_MESSAGE};
use super::super::request::text::{inside, read_word, tokens_of};
use super::super::request::tools::{read_format_within, read_tools};
use crate::neutral::seal;
use crate::wire::json::{Cursor, JsonError, JsonKind};
use crate::wire::tokens;
use rerouter_base::error::Error;

pub(crate) fn member(
    cursor: &mut Cursor<'_>,
    name: &str,
    builder: &mut RequestBuilder,
) -> Result<(), JsonError> {
    match name {
        "input" => match cursor.kind()? {
            JsonKind::String => {
                let text = cursor.skip()?;
                builder.prompt.messages = 1;
                builder.prompt.tokens = tokens_of(cursor, &text);
                builder.prompt.user_text = vec![text];
            }
            JsonKind::Array => cursor.elements(|cursor| item(cursor, &mut builder.prompt))?,
            JsonKind::Null => cursor.pass()?,
            _ => {
                cursor.skip()?;
                return Err(
                    Error::invalid("input", "`input` has to be a string or an array.").into()
                );
            }
        },
        "instructions" => {
            let text = cursor.skip()?;
            builder.system_tokens = TOKENS_PER_MESSAGE + tokens_of(cursor, &text);
        }
        "tools" => read_tools(cursor, builder)?,
        "text" => read_format_within(cursor, "text.", "text.format.", builder)?,
        _ => cursor.pass()?,
    }
    Ok(())
}

/// The members of an item that the gateway uses.
const NAMES: &[&str] = &[
    "type",
    "role",
    "content",
    "output",
    "name",
    "arguments",
    "input",
    "code",
    "action",
    "outputs",
    "results",
    "result",
    "encrypted_content",
];

/// Tool calls that include their content. Others refer to content that the provider stores.
const WHOLE_CALLS: [&str; 7] = [
    "function_call",
    "custom_tool_call",
    "computer_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "mcp_call",
];

#[derive(Default)]
struct InputItem<'a> {
    kind: Option<Cow<'a, str>>,
    role: Option<Cow<'a, str>>,
    text: Vec<Range<usize>>,
    has_content: bool,
    /// Whether it has encrypted thinking.
    is_encrypted: bool,
    /// Tokens of a tool call: its name, arguments and result.
    call_tokens: u64,
    /// The span of an image that a tool made.
    image: Option<Range<usize>>,
}

fn item(cursor: &mut Cursor<'_>, prompt: &mut PromptSize) -> Result<(), JsonError> {
    let mut item = InputItem::default();
    let mut names = MemberNames::new("input.", NAMES);
    cursor.members(|cursor, name| {
        match names.find(&name)? {
            "type" => item.kind = read_word(cursor)?,
            "role" => item.role = read_word(cursor)?,
            "content" | "output" => {
                item.has_content = true;
                match cursor.kind()? {
                    JsonKind::String => item.text.push(cursor.skip()?),
                    JsonKind::Array => cursor
                        .elements(|cursor| content_parts::read(cursor, prompt, &mut item.text))?,
                    JsonKind::Object => content_parts::read(cursor, prompt, &mut item.text)?,
                    _ => cursor.pass()?,
                }
            }
            "result" => item.image = Some(cursor.skip()?),
            "encrypted_content" => {
                let encrypted = read_word(cursor)?;
                item.is_encrypted = encrypted.is_some();
                prompt.has_foreign_thinking |=
                    encrypted.is_some_and(|encrypted| seal::is_foreign(&encrypted));
            }
            "" => cursor.pass()?,
            _ => {
                let span = cursor.skip()?;
                item.call_tokens += if cursor.raw(&span).starts_with(b"\"") {
                    tokens_of(cursor, &span)
                } else {
                    tokens::estimate(cursor.raw(&span))
                };
            }
        }
        Ok(())
    })?;
    item.add(cursor, prompt);
    Ok(())
}

impl InputItem<'_> {
    fn add(self, cursor: &Cursor<'_>, prompt: &mut PromptSize) {
        let text: u64 = self.text.iter().map(|span| tokens_of(cursor, span)).sum();
        match self.kind.as_deref() {
            // The estimate leaves out thinking. An id without content refers to thinking that the
            // provider stores.
            Some("reasoning") => prompt.is_open |= !self.has_content && !self.is_encrypted,
            Some("image_generation_call") => {
                prompt.image(
                    self.image.map(|span| inside(cursor, &span)).unwrap_or_default(),
                    ImageRule::OpenAi { small: false },
                );
            }
            Some(kind) if kind.ends_with("_call") => {
                prompt.tokens += TOKENS_PER_CALL + self.call_tokens;
                prompt.is_open |= !WHOLE_CALLS.contains(&kind);
            }
            None | Some("message") => {
                prompt.messages += 1;
                prompt.tokens += text;
                // An id without content refers to a stored message.
                prompt.is_open |= !self.has_content;
                if self.role.as_deref() == Some("user") {
                    prompt.user_text = self.text;
                }
            }
            Some(kind) => {
                prompt.messages += u64::from(kind.ends_with("_output"));
                prompt.tokens += text;
                let is_known =
                    ["_output", "_summary", "_request", "_response", "_tools", "compaction"]
                        .iter()
                        .any(|end| kind.ends_with(end));
                prompt.is_open |= !is_known;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::endpoint::Endpoint;
    use crate::request::media::{
        TOKENS_PER_AUDIO, TOKENS_PER_FILE, TOKENS_PER_IMAGE, TOKENS_PER_SMALL_IMAGE,
    };
    use crate::request::{last_user_text, read_request};
    use crate::wire::tokens;

    #[test]
    fn the_facts_of_a_request() {
        let body = json!({
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "First."},
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "What is in"},
                    {"text": "these?", "type": "input_text"},
                    {
                        "type": "input_image", "image_url": "data:image/png;base64,AAAA",
                        "detail": "low",
                    },
                    {"type": "input_image", "file_id": "file_1"},
                    {"type": "input_file", "file_data": "data:application/pdf;base64,AAAA"},
                    {"type": "input_audio", "input_audio": {}}]},
                {
                    "type": "reasoning", "id": "rs_1",
                    "summary": [{"type": "summary_text", "text": "Hm."}],
                    "content": [{"type": "reasoning_text", "text": "A long thought."}],
                },
                {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "a cat"},
                {"type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": "A cat."}]}],
            "model": "auto", "max_output_tokens": 40, "stream": true,
            "tools": [{"type": "function", "name": "look"}],
            "text": {
                "verbosity": "low",
                "format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}},
            },
        });
        let text = body.to_string();
        let request = read_request(text.as_bytes(), Endpoint::Responses).unwrap();
        assert_eq!(
            (&*request.model, request.max_tokens, request.stream, request.json_output),
            ("auto", Some(40), true, true)
        );
        assert_eq!((request.messages, request.tools, request.images, request.audio), (4, 1, 2, 1));
        let texts =
            ["Be brief.", "First.", "What is in", "these?", "a cat", "A cat.", "look", "{}"];
        let texts: u64 = texts.iter().map(|text| tokens::estimate(text.as_bytes())).sum();
        let parts = TOKENS_PER_SMALL_IMAGE
            + TOKENS_PER_IMAGE
            + TOKENS_PER_FILE
            + TOKENS_PER_AUDIO
            + TOKENS_PER_CALL;
        let more = tokens::estimate(body["tools"][0].to_string().as_bytes())
            + tokens::estimate(br#"{"type":"object"}"#) / 2;
        assert_eq!(request.prompt_tokens, 6 * TOKENS_PER_MESSAGE + texts + parts + more);
        assert_eq!(last_user_text(text.as_bytes(), &request), "What is in\nthese?");
    }

    #[test]
    fn a_text_alone_and_what_is_refused() {
        for body in [
            r#"{"input":"Hello","instructions":"Be brief.","model":"m"}"#,
            r#"{"instructions":"Be brief.","model":"m","input":"Hello"}"#,
        ] {
            let request = read_request(body.as_bytes(), Endpoint::Responses).unwrap();
            let texts = tokens::estimate(b"Hello") + tokens::estimate(b"Be brief.");
            assert_eq!(
                (request.messages, request.prompt_tokens),
                (1, 3 * TOKENS_PER_MESSAGE + texts)
            );
            assert_eq!(last_user_text(body.as_bytes(), &request), "Hello");
        }
        for (body, field) in [
            (r#"{"input":"x"}"#, "model"),
            (r#"{"model":"m","input":{}}"#, "input"),
            (r#"{"model":"m","stream":[]}"#, "stream"),
        ] {
            assert_eq!(
                read_request(body.as_bytes(), Endpoint::Responses).unwrap_err().field(),
                Some(field),
                "{body}"
            );
        }
    }
}
