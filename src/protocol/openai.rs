//! What a request is, read in one bounded pass over its bytes without changing one of them. The client's text is never
//! parsed into values and written back. Chat completions are here, OpenAI's other endpoints below, Anthropic's beside.

mod embeddings;
mod responses;

use std::ops::Range;

use bytes::Bytes;

use super::endpoint::Endpoint;
use super::json::{self, Cursor, Edit, Fault, Name, Shape};
use super::{anthropic, tokens};
use crate::bounds;
use crate::error::Error;

/// What each message costs beside its text (role and separators), and what a request costs at all.
pub(super) const TOKENS_PER_MESSAGE: u64 = 4;
/// An image, whatever its size: its bytes are no text. OpenAI's figure for a square image in high detail.
pub(super) const TOKENS_PER_IMAGE: u64 = 765;
/// An image in low detail.
pub(super) const TOKENS_PER_SMALL_IMAGE: u64 = 85;
/// A file, whatever its length: a page.
pub(super) const TOKENS_PER_FILE: u64 = 250;
/// What a call of a tool costs beside its name and arguments.
pub(super) const TOKENS_PER_CALL: u64 = 6;
/// A piece of audio, whatever its length: ten seconds or so.
pub(super) const TOKENS_PER_AUDIO: u64 = 100;

/// The members of a request that are read and acted on. Readers of JSON differ in which of two members of one name counts (RFC 8259
/// section 4), so each of these comes once: what is decided, limited and billed is what the provider reads.
fn acted_on(endpoint: Endpoint) -> &'static [&'static str] {
    match endpoint {
        Endpoint::ChatCompletions => {
            &["model", "messages", "stream", "stream_options", "tools", "response_format", "max_tokens", "max_completion_tokens", "n"]
        }
        Endpoint::Embeddings => &["model", "input"],
        Endpoint::Responses => &["model", "input", "instructions", "stream", "tools", "text", "max_output_tokens"],
        Endpoint::Messages | Endpoint::CountTokens => {
            &["model", "messages", "system", "stream", "tools", "output_format", "output_config", "max_tokens"]
        }
    }
}

/// The facts of a request that routing and relaying ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelRequest {
    /// The model asked for.
    pub model: String,
    /// The bytes of that JSON string, quotes included.
    pub model_span: Range<usize>,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// Whether the client asked for a stream's usage itself (`stream_options.include_usage`).
    pub include_usage: bool,
    /// The change by which a provider tells a stream's usage, where the client did not ask for it.
    pub ask_usage: Option<Edit>,
    /// How many answers the client asked for (`n`), where it said so.
    pub choices: Option<u64>,
    /// How many messages: of embeddings none, of responses those of `input`, a tool's results among them.
    pub messages: u64,
    /// How many tools.
    pub tools: u64,
    /// How many content parts are images.
    pub images: u64,
    /// How many content parts are audio.
    pub audio: u64,
    /// Whether the answer has to be JSON (`response_format`, `text.format`, `output_config.format`).
    pub json_output: bool,
    /// The most tokens that may be generated, when the client says so.
    pub max_tokens: Option<u64>,
    /// An estimate of the prompt: texts and definitions of tools by [`tokens`], four a message, a fixed price an image, a
    /// file and a piece of audio.
    pub prompt_tokens: u64,
    /// The bytes of the JSON strings that make the text of the last user message, quotes included.
    pub user_text: Vec<Range<usize>>,
}

/// What is collected on the way.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) model: Option<Range<usize>>,
    pub(super) request: ModelRequest,
    pub(super) prompt: Prompt,
    /// What is said beside the messages: `system`, `instructions`.
    pub(super) system_tokens: u64,
    pub(super) tool_tokens: u64,
    pub(super) format_tokens: u64,
    max_completion_tokens: Option<u64>,
    /// A bit for each of [`acted_on`] that came.
    seen: u16,
    /// Where the value of `stream` ends.
    stream_end: usize,
    /// What `stream_options` is, if it came.
    options: Option<StreamOptions>,
}

/// A request's `stream_options`.
#[derive(Default)]
struct StreamOptions {
    include_usage: bool,
    /// What makes it ask for the usage, where it neither does nor says what no provider understands.
    ask: Option<Edit>,
}

/// What the messages amount to.
#[derive(Default)]
pub(super) struct Prompt {
    pub(super) messages: u64,
    pub(super) images: u64,
    pub(super) audio: u64,
    pub(super) tokens: u64,
    pub(super) user_text: Vec<Range<usize>>,
}

/// Reads a request's body. Refuses with 400 what is not one JSON object of text nested at most 128 levels, a missing
/// or wrong `model`, a wrong kind of `stream` or `messages`, and a repetition of what is acted on; all else is the provider's to judge.
pub fn read_request(body: &[u8], endpoint: Endpoint) -> Result<ModelRequest, Error> {
    let mut facts = Facts::default();
    json::read_object(body, |cursor, name| {
        once(endpoint, &name, &mut facts)?;
        match endpoint {
            // What all of them have in common, and read alike.
            _ if name.is("model") || (name.is("stream") && endpoint.streams()) => chat_member(cursor, name, &mut facts),
            Endpoint::ChatCompletions => chat_member(cursor, name, &mut facts),
            Endpoint::Embeddings => embeddings::member(cursor, name, &mut facts),
            Endpoint::Responses => responses::member(cursor, name, &mut facts),
            Endpoint::Messages | Endpoint::CountTokens => anthropic::member(cursor, name, &mut facts),
        }
    })?;
    let Facts { model, mut request, prompt, system_tokens, tool_tokens, format_tokens, max_completion_tokens, stream_end, options, .. } =
        facts;
    let Some(span) = model else {
        return Err(Error::invalid("model", "`model` is missing."));
    };
    request.model = match json::text(body.get(span.clone()).unwrap_or_default()) {
        Some(model) if model.is_empty() => return Err(Error::invalid("model", "`model` is empty.")),
        Some(model) if model.len() > bounds::MODEL_BYTES => return Err(Error::invalid("model", "`model` is too long.")),
        Some(model) => model.into_owned(),
        None => return Err(Error::invalid("model", "`model` is not Unicode text: it holds a lone surrogate.")),
    };
    request.model_span = span;
    // Providers differ in which of the two they follow: what may be reserved is the larger.
    request.max_tokens = max_completion_tokens.max(request.max_tokens);
    request.include_usage = options.as_ref().is_some_and(|options| options.include_usage);
    request.ask_usage = match options {
        _ if !request.stream || endpoint != Endpoint::ChatCompletions => None,
        Some(options) => options.ask,
        None => Some(Edit::new(stream_end..stream_end, &br#","stream_options":{"include_usage":true}"#[..])),
    };
    let instructions = match endpoint {
        _ if request.tools == 0 => 0,
        // Whatever the alias is called, the models are Anthropic's.
        Endpoint::Messages | Endpoint::CountTokens => tokens::tool_instructions("claude"),
        _ => tokens::tool_instructions(&request.model),
    };
    let framing = if endpoint == Endpoint::Embeddings { 0 } else { TOKENS_PER_MESSAGE * (prompt.messages + 1) };
    request.prompt_tokens = framing + prompt.tokens + system_tokens + tool_tokens + format_tokens + instructions;
    request.messages = prompt.messages;
    request.images = prompt.images;
    request.audio = prompt.audio;
    request.user_text = prompt.user_text;
    Ok(request)
}

/// Refuses the repetition of what is acted on, also where only the case of letters differs.
fn once(endpoint: Endpoint, name: &Name<'_>, facts: &mut Facts) -> Result<(), Fault> {
    let Some(at) = acted_on(endpoint).iter().position(|known| name.resembles(known)) else { return Ok(()) };
    if facts.seen & (1 << at) != 0 {
        return Err(twice(&name.text()));
    }
    facts.seen |= 1 << at;
    Ok(())
}

/// The refusal of a repetition.
fn twice(field: &str) -> Fault {
    Error::invalid(field, format!("`{field}` comes twice.")).into()
}

fn chat_member(cursor: &mut Cursor<'_>, name: Name<'_>, facts: &mut Facts) -> Result<(), Fault> {
    match &*name.text() {
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
                _ => return Err(Error::invalid("stream", "`stream` has to be true or false.").into()),
            };
        }
        "stream_options" => facts.options = Some(read_stream_options(cursor)?),
        "tools" => read_tools(cursor, facts)?,
        "response_format" => read_format(cursor, "response_format", "json_schema", facts)?,
        "max_tokens" => facts.request.max_tokens = read_count(cursor)?,
        "n" => facts.request.choices = read_count(cursor)?,
        "max_completion_tokens" => facts.max_completion_tokens = read_count(cursor)?,
        _ => {
            cursor.skip()?;
        }
    }
    Ok(())
}

/// Counts the tools, and what their definitions take.
pub(super) fn read_tools(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Fault> {
    facts.request.tools = 0;
    facts.tool_tokens = 0;
    cursor.elements(|cursor| {
        let tool = cursor.skip()?;
        facts.tool_tokens += tokens::estimate(cursor.raw(&tool));
        facts.request.tools += 1;
        Ok(())
    })
}

/// The form that the answer has to have: what `field` says of it, with its schema in the member of that name.
pub(super) fn read_format(cursor: &mut Cursor<'_>, field: &str, schema: &str, facts: &mut Facts) -> Result<(), Fault> {
    let (mut kind, mut seen) = (None, false);
    facts.format_tokens = 0;
    cursor.members(|cursor, name| {
        if name.resembles("type") && std::mem::replace(&mut seen, true) {
            return Err(twice(&format!("{field}.type")));
        }
        if name.is(schema) {
            let schema = cursor.skip()?;
            // It is told more briefly than it is written.
            facts.format_tokens = tokens::estimate(cursor.raw(&schema)) / 2;
            return Ok(());
        }
        read_type(cursor, name, &mut kind)
    })?;
    facts.request.json_output = matches!(kind.as_deref(), Some("json_object" | "json_schema"));
    Ok(())
}

/// The same where it is the member `format` of what `field` holds.
pub(super) fn read_format_in(cursor: &mut Cursor<'_>, field: &str, facts: &mut Facts) -> Result<(), Fault> {
    let mut seen = false;
    cursor.members(|cursor, name| {
        if name.resembles("format") && std::mem::replace(&mut seen, true) {
            return Err(twice(&format!("{field}.format")));
        }
        if name.is("format") { read_format(cursor, &format!("{field}.format"), "schema", facts) } else { cursor.pass() }
    })
}

fn read_stream_options(cursor: &mut Cursor<'_>) -> Result<StreamOptions, Fault> {
    let ask = |edit| Ok(StreamOptions { include_usage: false, ask: Some(edit) });
    match cursor.shape()? {
        Shape::Null => return ask(Edit::new(cursor.skip()?, &br#"{"include_usage":true}"#[..])),
        Shape::Object => {}
        _ => return cursor.skip().map(|_| StreamOptions::default()),
    }
    let inside = cursor.place() + 1;
    let (mut said, mut seen, mut empty) = (None, false, true);
    cursor.members(|cursor, name| {
        empty = false;
        if name.resembles("include_usage") && std::mem::replace(&mut seen, true) {
            return Err(twice("stream_options.include_usage"));
        }
        let shape = cursor.shape()?;
        let span = cursor.skip()?;
        if name.is("include_usage") {
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

fn read_message(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    prompt.messages += 1;
    let mut text = Vec::new();
    let mut role = None;
    cursor.members(|cursor, name| {
        match &*name.text() {
            "role" => {
                let span = cursor.skip()?;
                role = json::text(cursor.raw(&span)).map(std::borrow::Cow::into_owned);
            }
            "content" => match cursor.shape()? {
                Shape::String => text.push(cursor.skip()?),
                Shape::Array => cursor.elements(|cursor| read_part(cursor, prompt, &mut text))?,
                _ => {
                    cursor.skip()?;
                }
            },
            "tool_calls" => cursor.elements(|cursor| read_call(cursor, prompt))?,
            // Reasoning of earlier answers is not among these: providers leave it out.
            "refusal" => {
                let span = cursor.skip()?;
                prompt.tokens += tokens::estimate(cursor.raw(&span));
            }
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    })?;
    let of_the_model = role.as_deref() == Some("assistant");
    for span in &text {
        let inside = inside(cursor, span);
        prompt.tokens += tokens::estimate(if of_the_model { after_thoughts(inside) } else { inside });
    }
    if role.as_deref() == Some("user") {
        prompt.user_text = text;
    }
    Ok(())
}

/// A string without its quotes, as written.
fn inside<'a>(cursor: &Cursor<'a>, span: &Range<usize>) -> &'a [u8] {
    let quoted = cursor.raw(span);
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default()
}

/// What a string's text takes; nothing for what is none.
pub(super) fn tokens_of(cursor: &Cursor<'_>, span: &Range<usize>) -> u64 {
    if cursor.raw(span).first() == Some(&b'"') { tokens::estimate(inside(cursor, span)) } else { 0 }
}

/// An answer without the thoughts that some models write before it: templates leave those of earlier answers out.
fn after_thoughts(answer: &[u8]) -> &[u8] {
    const END: &[u8] = b"</think>";
    let end = memchr::memmem::rfind(answer, END).filter(|_| answer.starts_with(b"<think>"));
    end.and_then(|at| answer.get(at + END.len()..)).unwrap_or(answer)
}

/// A call of a tool: its name and arguments are told to the model, its id is not.
fn read_call(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    prompt.tokens += TOKENS_PER_CALL;
    cursor.members(|cursor, name| {
        if name.text() != "function" {
            cursor.skip()?;
            return Ok(());
        }
        cursor.members(|cursor, _| {
            let span = cursor.skip()?;
            prompt.tokens += tokens::estimate(cursor.raw(&span));
            Ok(())
        })
    })
}

fn read_part(cursor: &mut Cursor<'_>, prompt: &mut Prompt, text: &mut Vec<Range<usize>>) -> Result<(), Fault> {
    let (mut kind, mut small) = (None, false);
    cursor.members(|cursor, name| {
        match &*name.text() {
            "text" if cursor.shape()? == Shape::String => text.push(cursor.skip()?),
            "image_url" => {
                let mut detail = None;
                cursor.members(|cursor, name| {
                    let is_detail = name.text() == "detail";
                    let value = cursor.skip()?;
                    if is_detail {
                        detail = Some(value);
                    }
                    Ok(())
                })?;
                small = detail.is_some_and(|detail| cursor.raw(&detail) == b"\"low\"");
            }
            "thinking" => {
                let thoughts = cursor.skip()?;
                prompt.tokens += tokens::estimate(cursor.raw(&thoughts));
            }
            _ => read_type(cursor, name, &mut kind)?,
        }
        Ok(())
    })?;
    match kind.as_deref() {
        Some("image_url" | "input_image") => {
            prompt.images += 1;
            prompt.tokens += if small { TOKENS_PER_SMALL_IMAGE } else { TOKENS_PER_IMAGE };
        }
        Some("input_audio") => {
            prompt.audio += 1;
            prompt.tokens += TOKENS_PER_AUDIO;
        }
        Some("file" | "input_file") => prompt.tokens += TOKENS_PER_FILE,
        _ => {}
    }
    Ok(())
}

/// Notes the value of a member `type`; passes over any other.
pub(super) fn read_type(cursor: &mut Cursor<'_>, name: Name<'_>, kind: &mut Option<String>) -> Result<(), Fault> {
    let span = cursor.skip()?;
    if name.text() == "type" {
        *kind = json::text(cursor.raw(&span)).map(std::borrow::Cow::into_owned);
    }
    Ok(())
}

pub(super) fn read_count(cursor: &mut Cursor<'_>) -> Result<Option<u64>, Fault> {
    let span = cursor.skip()?;
    Ok(serde_json::from_slice(cursor.raw(&span)).ok())
}

/// The text of the last user message, parts joined by line breaks.
pub fn last_user_text(body: &[u8], request: &ModelRequest) -> String {
    let parts: Vec<_> = request.user_text.iter().filter_map(|span| json::text(body.get(span.clone())?)).collect();
    parts.join("\n")
}

/// The body with another model in the place of the one asked for, and `more` edits; every other byte as it was.
pub fn rename_model(body: &Bytes, span: &Range<usize>, model: &str, more: Option<&Edit>) -> Bytes {
    let quoted = serde_json::Value::from(model).to_string();
    let mut edits: Vec<Edit> = more.into_iter().cloned().collect();
    if body.get(span.clone()) != Some(quoted.as_bytes()) {
        edits.push(Edit::new(span.clone(), quoted.into_bytes()));
    }
    json::splice(body, edits)
}

/// The body without `stream` and `stream_options`: what a reroute asks a provider. Every other byte as it was.
pub fn without_stream(body: &Bytes) -> Result<Bytes, Error> {
    json::without_members(body, &["stream", "stream_options"])
}

#[cfg(test)]
#[path = "openai_tests.rs"]
mod tests;
