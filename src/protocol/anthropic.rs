//! Anthropic's messages: what a request is, read as those of OpenAI are; its errors; and what an answer says in the
//! words of a chat completion.

use std::ops::Range;

use serde_json::{Map, Value, json};

use super::json::{Cursor, Fault, Shape};
use super::known::Known;
use super::media::{Prompt, Rule, TOKENS_PER_FILE};
use super::openai::{
    Facts, TOKENS_PER_CALL, TOKENS_PER_MESSAGE, inside, read_format, read_tools, read_word,
    tokens_of,
};
use super::tokens;
use crate::error::Error;

/// The version of the API that is spoken where the client names none.
pub const VERSION: &str = "2023-06-01";

/// The type of an error of this status, as the API documents them.
pub fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// An error, as an answer's body and as the data of a stream's `error` event have it.
pub fn error_body(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

/// Reads a member of a request that is acted on.
pub(super) fn member(cursor: &mut Cursor<'_>, name: &str, facts: &mut Facts) -> Result<(), Fault> {
    match name {
        "messages" => {
            if cursor.shape()? != Shape::Array {
                cursor.skip()?;
                return Err(Error::invalid("messages", "`messages` has to be an array.").into());
            }
            cursor.elements(|cursor| message(cursor, &mut facts.prompt))?;
        }
        "system" => {
            let mut system = Content::default();
            system.read(cursor, &mut facts.prompt)?;
            facts.system_tokens = TOKENS_PER_MESSAGE + system.tokens(cursor);
        }
        "tools" => read_tools(cursor, facts)?,
        "output_format" => {
            read_format(cursor, Known::of("output_format.", FORMAT), "schema", facts)?
        }
        "output_config" => {
            let mut known = Known::of("output_config.", &["format"]);
            cursor.members(|cursor, name| match known.find(&name)? {
                "" => cursor.pass(),
                _ => {
                    read_format(cursor, Known::of("output_config.format.", FORMAT), "schema", facts)
                }
            })?;
        }
        _ => cursor.pass()?,
    }
    Ok(())
}

/// The members of a format that are acted on.
const FORMAT: &[&str] = &["type", "schema"];

fn message(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    prompt.messages += 1;
    let (mut role, mut content) = (None, Content::default());
    let mut known = Known::of("messages.", &["role", "content"]);
    cursor.members(|cursor, name| {
        match known.find(&name)? {
            "role" => role = read_word(cursor)?,
            "content" => content.read(cursor, prompt)?,
            _ => cursor.pass()?,
        }
        Ok(())
    })?;
    prompt.tokens += content.tokens(cursor);
    // The results of tools come in the user's role; what the user said last stands before them.
    if role.as_deref() == Some("user") && !(content.text.is_empty() && content.results) {
        prompt.user_text = content.text;
    }
    Ok(())
}

/// What is said in blocks.
#[derive(Default)]
struct Content {
    /// The strings of the blocks of text.
    text: Vec<Range<usize>>,
    /// Texts that nobody says: of documents and results.
    told: Vec<Range<usize>>,
    /// Whether results of tools are among them.
    results: bool,
    /// Calls of tools, as they are written.
    calls: u64,
}

/// What a block holds.
#[derive(Default)]
struct Block {
    kind: Option<String>,
    text: Option<Range<usize>>,
    below: Content,
    call: u64,
    source: Source,
}

/// Where a document or image comes from.
#[derive(Default)]
struct Source {
    kind: Option<String>,
    data: Option<Range<usize>>,
    /// Whether only its address or id is there.
    is_elsewhere: bool,
    /// Whether it is there, as an object.
    is_there: bool,
}

/// Characters of what a provider's own tool found, which it gives out encrypted, that are a token.
const ENCRYPTED_CHARACTERS: u64 = 8;

impl Content {
    fn read(&mut self, cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
        match cursor.shape()? {
            Shape::String => self.text.push(cursor.skip()?),
            Shape::Array => cursor.elements(|cursor| self.block(cursor, prompt))?,
            Shape::Object => self.block(cursor, prompt)?,
            _ => cursor.pass()?,
        }
        Ok(())
    }

    fn tokens(&self, cursor: &Cursor<'_>) -> u64 {
        let strings = self.text.iter().chain(&self.told);
        self.calls + strings.map(|span| tokens_of(cursor, span)).sum::<u64>()
    }

    fn block(&mut self, cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
        let mut block = Block::default();
        let mut known = Known::of(
            "content.",
            &["type", "text", "content", "source", "name", "input", "encrypted_content"],
        );
        cursor.members(|cursor, name| {
            match known.find(&name)? {
                "type" => block.kind = read_word(cursor)?,
                "text" if cursor.shape()? == Shape::String => block.text = Some(cursor.skip()?),
                "content" => block.below.read(cursor, prompt)?,
                "source" => block.source.read(cursor, prompt, &mut block.below)?,
                "name" | "input" => {
                    let span = cursor.skip()?;
                    block.call += tokens::estimate(cursor.raw(&span));
                }
                "encrypted_content" => {
                    block.below.calls += cursor.skip()?.len() as u64 / ENCRYPTED_CHARACTERS
                }
                _ => cursor.pass()?,
            }
            Ok(())
        })?;
        self.add(block, cursor, prompt);
        Ok(())
    }

    fn add(&mut self, block: Block, cursor: &Cursor<'_>, prompt: &mut Prompt) {
        let Block { kind, text, below, call, source } = block;
        let data = |source: &Source| {
            source.data.as_ref().map(|span| inside(cursor, span)).unwrap_or_default()
        };
        let is_source = matches!(kind.as_deref(), Some("image" | "document"));
        prompt.is_open |= source.is_there && !is_source;
        match kind.as_deref() {
            Some("text") => self.text.extend(text),
            Some("image") => prompt.image(data(&source), Rule::Anthropic),
            Some("document") => {
                prompt.is_open |= source.is_elsewhere
                    || !matches!(source.kind.as_deref(), Some("base64" | "text" | "content"));
                if source.kind.as_deref() == Some("base64") {
                    prompt.file(data(&source));
                } else if source.is_elsewhere {
                    prompt.tokens += TOKENS_PER_FILE;
                }
            }
            Some(kind) if kind.ends_with("tool_use") => self.calls += TOKENS_PER_CALL + call,
            Some(kind) if kind.ends_with("tool_result") => self.results = true,
            // What a model thought is not told to it again, but for the turn that it is in.
            Some("thinking" | "redacted_thinking") => return,
            // Parts of what tools gave: inline, whatever files they name.
            Some(kind)
                if ["_result", "_error", "_output", "_reference", "compaction"]
                    .iter()
                    .any(|end| kind.ends_with(end)) => {}
            _ => prompt.is_open = true,
        }
        self.calls += below.calls;
        self.told.extend(below.text.into_iter().chain(below.told));
    }
}

impl Source {
    fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        prompt: &mut Prompt,
        below: &mut Content,
    ) -> Result<(), Fault> {
        self.is_there = cursor.shape()? == Shape::Object;
        let mut known =
            Known::of("content.source.", &["type", "data", "url", "file_id", "content"]);
        cursor.members(|cursor, name| {
            match known.find(&name)? {
                "type" => self.kind = read_word(cursor)?,
                "data" if cursor.shape()? == Shape::String => self.data = Some(cursor.skip()?),
                "url" | "file_id" => {
                    self.is_elsewhere |= cursor.shape()? != Shape::Null;
                    cursor.pass()?;
                }
                "content" => below.read(cursor, prompt)?,
                _ => cursor.pass()?,
            }
            Ok(())
        })?;
        if self.kind.as_deref() == Some("text") {
            below.told.extend(self.data.clone());
        }
        Ok(())
    }
}

/// A message as the chat completion that says the same: text, thoughts, calls of tools, why it ended, and what it took.
/// What such an object has no place for (citations, results of a server's tools) is left out. What
/// the message leaves out is missing.
pub fn as_chat_completion(message: &Value) -> Value {
    let blocks =
        message.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = |kind: &str, field: &str| -> Option<String> {
        let of_kind =
            blocks.iter().filter(|block| block.get("type").and_then(Value::as_str) == Some(kind));
        let texts: Vec<&str> = of_kind.filter_map(|block| block.get(field)?.as_str()).collect();
        (!texts.is_empty()).then(|| texts.concat())
    };
    let mut said = Map::new();
    said.insert("role".into(), "assistant".into());
    // Some servers write a text alone.
    let text = message.get("content").and_then(Value::as_str).map(str::to_owned);
    said.insert("content".into(), text.or_else(|| texts("text", "text")).into());
    if let Some(thoughts) = texts("thinking", "thinking") {
        said.insert("reasoning_content".into(), thoughts.into());
    }
    let calls: Vec<Value> = blocks.iter().filter_map(call).collect();
    if !calls.is_empty() {
        said.insert("tool_calls".into(), calls.into());
    }
    let choice = json!({ "index": 0, "message": said, "finish_reason": finish_reason(message.get("stop_reason")) });
    json!({
        "id": message.get("id"), "object": "chat.completion", "model": message.get("model"), "choices": [choice],
        "usage": message.get("usage").map(usage),
    })
}

fn call(block: &Value) -> Option<Value> {
    if block.get("type")?.as_str()? != "tool_use" {
        return None;
    }
    let arguments = block.get("input").map_or_else(|| "{}".to_owned(), Value::to_string);
    let function = json!({ "name": block.get("name"), "arguments": arguments });
    Some(json!({ "id": block.get("id"), "type": "function", "function": function }))
}

fn finish_reason(stop: Option<&Value>) -> Value {
    match stop.and_then(Value::as_str) {
        None => Value::Null,
        Some("max_tokens" | "model_context_window_exceeded") => "length".into(),
        Some("tool_use") => "tool_calls".into(),
        Some("refusal") => "content_filter".into(),
        Some(_) => "stop".into(),
    }
}

/// The whole prompt is what was read anew, from the cache, and into it.
fn usage(written: &Value) -> Value {
    let count = |name: &str| written.get(name).and_then(Value::as_u64);
    let cached = count("cache_read_input_tokens");
    let beside = [cached, count("cache_creation_input_tokens")].into_iter().flatten();
    let prompt = count("input_tokens").map(|fresh| beside.fold(fresh, u64::saturating_add));
    let completion = count("output_tokens");
    let total =
        prompt.zip(completion).map(|(prompt, completion)| prompt.saturating_add(completion));
    let mut usage = Map::new();
    for (name, count) in
        [("prompt_tokens", prompt), ("completion_tokens", completion), ("total_tokens", total)]
    {
        usage.extend(count.map(|count| (name.to_owned(), count.into())));
    }
    if let Some(cached) = cached {
        usage.insert("prompt_tokens_details".into(), json!({ "cached_tokens": cached }));
    }
    usage.into()
}

#[cfg(test)]
#[path = "anthropic_tests.rs"]
mod tests;
