//! What a request is, read in one bounded pass over its bytes without changing one of them. The client's text is never
//! parsed into values and written back. Chat completions, embeddings and responses are below, Anthropic's messages beside.

mod chat;
mod counts;
mod embeddings;
mod parts;
mod responses;

use std::ops::Range;

use bytes::Bytes;

use super::endpoint::Endpoint;
use super::json::{self, Cursor, Edit, Fault, Shape};
use super::known::Known;
use super::media::Prompt;
use super::{anthropic, tokens};
use crate::bounds;
use crate::error::Error;
use chat::StreamOptions;
use counts::Counts;

/// What each message costs beside its text (role and separators), and what a request costs at all.
pub(super) const TOKENS_PER_MESSAGE: u64 = 4;
/// What a call of a tool costs beside its name and arguments.
pub(super) const TOKENS_PER_CALL: u64 = 6;
/// What providers write beside the definition of a tool that is theirs and runs at the client, at most.
const TOKENS_PER_CLIENT_TOOL: u64 = 1_000;
/// What the types of such tools begin with.
const CLIENT_TOOLS: [&str; 6] =
    ["bash", "text_editor", "computer", "memory", "local_shell", "apply_patch"];

/// The members of a request that are acted on beside those of [`counts`].
fn acted_on(endpoint: Endpoint) -> &'static [&'static str] {
    match endpoint {
        Endpoint::ChatCompletions => &[
            "model",
            "messages",
            "stream",
            "stream_options",
            "tools",
            "functions",
            "response_format",
            "extra_body",
        ],
        Endpoint::Embeddings => &["model", "input", "extra_body"],
        Endpoint::Responses => {
            &["model", "input", "instructions", "stream", "tools", "text", "extra_body"]
        }
        Endpoint::Messages => &[
            "model",
            "messages",
            "system",
            "stream",
            "tools",
            "output_format",
            "output_config",
            "extra_body",
        ],
        Endpoint::CountTokens => &[
            "model",
            "messages",
            "system",
            "tools",
            "output_format",
            "output_config",
            "extra_body",
        ],
    }
}

/// Where some endpoint has its prompt, or a part of it.
const FOREIGN: [&str; 5] = ["messages", "input", "system", "instructions", "contents"];

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
    /// How many answers the client asked for (`n`, `best_of`), where it said so.
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
    /// The most tokens that may be generated, when the client says so; providers differ in which name they follow, so it is
    /// the largest that is said.
    pub max_tokens: Option<u64>,
    /// An estimate of the prompt: texts and definitions of tools by [`tokens`], four a message, images by their size, files and
    /// audio by their length.
    pub prompt_tokens: u64,
    /// What it can come to at most.
    pub ceiling: Ceiling,
    /// The bytes of the JSON strings that make the text of the last user message, quotes included.
    pub user_text: Vec<Range<usize>>,
}

/// The most that a request can come to, as far as its bytes tell: what a budget reserves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceiling {
    /// Tokens of the prompt but for images: one for each byte, which is more than tokenizers make of any
    /// text (but for a few characters that some of them write out).
    pub prompt: u64,
    /// Images.
    pub images: u64,
    /// Whether the prompt may be as long as the model's context: a part of it is not in the request (an earlier
    /// response, a file by its id or address, results of a tool that the provider runs), or is a file
    /// whose pages are not counted here.
    pub is_open: bool,
    /// Tokens of all answers together, and what costs as such: thoughts beyond an answer's limit, predictions.
    pub answers: u64,
    /// Whether the client limits the length of an answer. Otherwise
    /// [`bounds::ANSWER_TOKENS`] stand for it, which is no ceiling.
    pub is_limited: bool,
}

impl Ceiling {
    /// Tokens of the prompt, for a model of this context that takes so many for an image.
    pub fn prompt_tokens(&self, context: u64, image: u64) -> u64 {
        let seen = self.prompt.saturating_add(self.images.saturating_mul(image));
        if self.is_open { context } else { seen.min(context) }
    }
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
    /// Whether there are tools or functions.
    has_tools: bool,
    counts: Counts,
    /// Where the value of `stream` ends.
    stream_end: usize,
    /// What `stream_options` is, if it came.
    options: Option<StreamOptions>,
}

/// Reads a request's body. Refuses with 400 what is not one JSON object of text nested at most 128 levels, a missing
/// or wrong `model`, a wrong kind of `stream` or `messages`, a count that is no whole number, and what is acted on where it comes
/// twice or in another spelling; all else is the provider's to judge.
pub fn read_request(body: &[u8], endpoint: Endpoint) -> Result<ModelRequest, Error> {
    let mut facts = Facts::default();
    let (mut counted, mut known) =
        (Known::of("", counts::NAMES), Known::of("", acted_on(endpoint)));
    json::read_object(body, |cursor, name| {
        let count = counted.find(&name)?;
        if !count.is_empty() {
            return facts.counts.read(cursor, count, endpoint);
        }
        match (known.find(&name)?, endpoint) {
            ("", _) => {
                // Where another endpoint has its prompt: a server that knows both may read it.
                let has_parts = matches!(cursor.shape()?, Shape::Array | Shape::Object);
                facts.prompt.is_open |= has_parts && Known::is_like(&name, &FOREIGN);
                cursor.pass()
            }
            ("extra_body", _) => read_extra(cursor, endpoint),
            // What all of them have in common, and read alike.
            (name @ ("model" | "stream"), _) | (name, Endpoint::ChatCompletions) => {
                chat::member(cursor, name, &mut facts)
            }
            (_, Endpoint::Embeddings) => embeddings::member(cursor, &mut facts),
            (name, Endpoint::Responses) => responses::member(cursor, name, &mut facts),
            (name, Endpoint::Messages | Endpoint::CountTokens) => {
                anthropic::member(cursor, name, &mut facts)
            }
        }
    })?;
    facts.finish(body, endpoint)
}

/// Some gateways put the members of `extra_body` into the request, over those that are there. What is acted on is not among them.
fn read_extra(cursor: &mut Cursor<'_>, endpoint: Endpoint) -> Result<(), Fault> {
    let (mut counted, mut known) =
        (Known::of("extra_body.", counts::NAMES), Known::of("extra_body.", acted_on(endpoint)));
    cursor.members(|cursor, name| {
        let found = [counted.find(&name)?, known.find(&name)?].concat();
        if found.is_empty() {
            return cursor.pass();
        }
        Err(Error::invalid(
            format!("extra_body.{found}"),
            format!("`{found}` has to stand in the request itself."),
        )
        .into())
    })
}

impl Facts {
    /// What it all amounts to.
    fn finish(self, body: &[u8], endpoint: Endpoint) -> Result<ModelRequest, Error> {
        let Facts { model, mut request, prompt, counts, .. } = self;
        let Some(span) = model else {
            return Err(Error::invalid("model", "`model` is missing."));
        };
        request.model = match json::text(body.get(span.clone()).unwrap_or_default()) {
            Some(model) if model.is_empty() => {
                return Err(Error::invalid("model", "`model` is empty."));
            }
            Some(model) if model.len() > bounds::MODEL_BYTES => {
                return Err(Error::invalid("model", "`model` is too long."));
            }
            Some(model) => model.into_owned(),
            None => {
                return Err(Error::invalid(
                    "model",
                    "`model` is not Unicode text: it holds a lone surrogate.",
                ));
            }
        };
        request.model_span = span;
        request.include_usage = self.options.as_ref().is_some_and(|options| options.include_usage);
        request.ask_usage = match self.options {
            _ if !request.stream || endpoint != Endpoint::ChatCompletions => None,
            Some(options) => options.ask,
            None => Some(Edit::new(
                self.stream_end..self.stream_end,
                &br#","stream_options":{"include_usage":true}"#[..],
            )),
        };
        if endpoint != Endpoint::Embeddings {
            request.max_tokens = counts.limit;
        }
        request.choices = counts.choices();
        let instructions = match endpoint {
            _ if !self.has_tools => 0,
            // Whatever the alias is called, the models are Anthropic's.
            Endpoint::Messages | Endpoint::CountTokens => tokens::tool_instructions("claude"),
            _ => tokens::tool_instructions(&request.model),
        };
        let framing = if endpoint == Endpoint::Embeddings {
            0
        } else {
            TOKENS_PER_MESSAGE * (prompt.messages + 1)
        };
        request.prompt_tokens = framing
            + prompt.tokens
            + self.system_tokens
            + self.tool_tokens
            + self.format_tokens
            + instructions;
        // The target may be another family than the name that the client asked for.
        let instructions = if self.has_tools { tokens::MOST_TOOL_INSTRUCTIONS } else { 0 };
        let written =
            (body.len() as u64).saturating_sub(prompt.apart) + prompt.beside + instructions;
        request.ceiling = Ceiling {
            prompt: written,
            images: prompt.images,
            is_open: prompt.is_open || counts.is_open,
            answers: counts.answers(endpoint),
            is_limited: counts.is_limited(),
        };
        request.messages = prompt.messages;
        request.images = prompt.images;
        request.audio = prompt.audio;
        request.user_text = prompt.user_text;
        Ok(request)
    }
}

/// Counts the tools, and what their definitions take.
pub(super) fn read_tools(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Fault> {
    if !matches!(cursor.shape()?, Shape::Array | Shape::Null) {
        facts.prompt.is_open = true;
    }
    cursor.elements(|cursor| {
        let definition = read_definition(cursor, facts)?;
        facts.tool_tokens += definition.tokens;
        facts.request.tools += 1;
        match definition.kind.as_deref() {
            None if definition.has_name => {}
            Some("function" | "custom") => {}
            Some(kind) if CLIENT_TOOLS.iter().any(|begins| kind.starts_with(begins)) => {
                facts.prompt.beside += TOKENS_PER_CLIENT_TOOL
            }
            // The provider runs it and adds the results to the prompt.
            _ => facts.prompt.is_open = true,
        }
        Ok(())
    })
}

/// The definition of a tool or function.
struct Definition {
    kind: Option<String>,
    has_name: bool,
    /// Estimated.
    tokens: u64,
}

fn read_definition(cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<Definition, Fault> {
    let is_name = cursor.shape()? == Shape::String;
    let start = cursor.place();
    let (mut kind, mut has_name) = (None, false);
    let mut known = Known::of("tools.", &["type", "name", "function"]);
    if is_name {
        kind = read_word(cursor)?;
    } else {
        cursor.members(|cursor, name| match known.find(&name)? {
            "type" => read_word(cursor).map(|word| kind = word),
            "" => cursor.pass(),
            _ => {
                has_name = true;
                cursor.pass()
            }
        })?;
    }
    let span = start..cursor.place();
    facts.has_tools = true;
    // Templates write it anew, with blanks of their own.
    facts.prompt.beside += span.len() as u64;
    Ok(Definition { kind, has_name, tokens: tokens::estimate(cursor.raw(&span)) })
}

/// The form that the answer has to have: `known` are its type and its schema, which is the member of that
/// name.
pub(super) fn read_format(
    cursor: &mut Cursor<'_>,
    mut known: Known,
    schema: &str,
    facts: &mut Facts,
) -> Result<(), Fault> {
    let mut kind = None;
    cursor.members(|cursor, name| {
        match known.find(&name)? {
            "type" => kind = read_word(cursor)?,
            found if found == schema => {
                let schema = cursor.skip()?;
                // It is told more briefly than it is written; or, by some templates, anew with blanks of their own.
                facts.format_tokens = tokens::estimate(cursor.raw(&schema)) / 2;
                facts.prompt.beside += schema.len() as u64;
            }
            _ => cursor.pass()?,
        }
        Ok(())
    })?;
    facts.request.json_output = matches!(kind.as_deref(), Some("json_object" | "json_schema"));
    Ok(())
}

/// A string without its quotes, as written.
pub(super) fn inside<'a>(cursor: &Cursor<'a>, span: &Range<usize>) -> &'a [u8] {
    let quoted = cursor.raw(span);
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default()
}

/// What a string's text takes; nothing for what is none.
pub(super) fn tokens_of(cursor: &Cursor<'_>, span: &Range<usize>) -> u64 {
    if cursor.raw(span).first() == Some(&b'"') { tokens::estimate(inside(cursor, span)) } else { 0 }
}

/// A string's text; nothing for what is none.
pub(super) fn read_word(cursor: &mut Cursor<'_>) -> Result<Option<String>, Fault> {
    let span = cursor.skip()?;
    Ok(json::text(cursor.raw(&span))
        .filter(|_| cursor.raw(&span).first() == Some(&b'"'))
        .map(std::borrow::Cow::into_owned))
}

/// The string ahead without its quotes, as written; empty for what is none.
pub(super) fn read_inside<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], Fault> {
    let is_text = cursor.shape()? == Shape::String;
    let span = cursor.skip()?;
    Ok(if is_text { inside(cursor, &span) } else { Default::default() })
}

/// The text of the last user message, parts joined by line breaks.
pub fn last_user_text(body: &[u8], request: &ModelRequest) -> String {
    let parts: Vec<_> =
        request.user_text.iter().filter_map(|span| json::text(body.get(span.clone())?)).collect();
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
