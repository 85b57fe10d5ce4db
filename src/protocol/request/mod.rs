//! Requests: one bounded pass over the bytes of a body, which stay as they are. Each endpoint has a
//! file that reads it: chat completions, embeddings, responses, and Anthropic's messages.

mod chat;
mod content_parts;
mod embeddings;
mod generation_limits;
mod media;
mod member_names;
mod messages;
mod model_request;
mod responses;
mod stream_options;
mod system_text;
mod text;
mod tools;

use std::ops::Range;

use bytes::Bytes;

use super::endpoint::Endpoint;
use super::json::{self, Cursor, Edit, JsonError, JsonKind, splice, without_members};
use crate::error::Error;
use member_names::MemberNames;
use model_request::RequestBuilder;

pub(crate) use model_request::Ceiling;
pub use model_request::ModelRequest;
pub(crate) use system_text::system_text;

/// The members of a request that are acted on beside those of [`generation_limits`].
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

/// Members in which some endpoint has its prompt, or a part of it.
const FOREIGN: [&str; 5] = ["messages", "input", "system", "instructions", "contents"];

/// Reads the body of a request.
///
/// # Errors
/// 400 for what is not one JSON object nested at most 128 levels; a missing or wrong `model`; a
/// wrong kind of `stream` or `messages`; a count that is no whole number; and a member that the
/// gateway acts on, if it comes twice or in another spelling. All else is the provider's to judge.
pub fn read_request(body: &[u8], endpoint: Endpoint) -> Result<ModelRequest, Error> {
    let mut builder = RequestBuilder::default();
    let (mut limits, mut names) =
        (MemberNames::of("", generation_limits::NAMES), MemberNames::of("", acted_on(endpoint)));
    json::read_object(body, |cursor, name| {
        let count = limits.find(&name)?;
        if !count.is_empty() {
            return builder.limits.read(cursor, count, endpoint);
        }
        match (names.find(&name)?, endpoint) {
            ("", _) => {
                // Another endpoint has its prompt here. A server that knows both may read it.
                let has_parts = matches!(cursor.kind()?, JsonKind::Array | JsonKind::Object);
                builder.prompt.is_open |= has_parts && MemberNames::is_like(&name, &FOREIGN);
                cursor.pass()
            }
            ("extra_body", _) => read_extra(cursor, endpoint),
            // All endpoints read these alike.
            (name @ ("model" | "stream"), _) | (name, Endpoint::ChatCompletions) => {
                chat::member(cursor, name, &mut builder)
            }
            (_, Endpoint::Embeddings) => embeddings::member(cursor, &mut builder),
            (name, Endpoint::Responses) => responses::member(cursor, name, &mut builder),
            (name, Endpoint::Messages | Endpoint::CountTokens) => {
                messages::member(cursor, name, &mut builder)
            }
        }
    })?;
    builder.finish(body, endpoint)
}

/// Reads `extra_body`, whose members some gateways put into the request, over those that are there.
/// Refuses those that this gateway acts on.
fn read_extra(cursor: &mut Cursor<'_>, endpoint: Endpoint) -> Result<(), JsonError> {
    let (mut limits, mut names) = (
        MemberNames::of("extra_body.", generation_limits::NAMES),
        MemberNames::of("extra_body.", acted_on(endpoint)),
    );
    cursor.members(|cursor, name| {
        let found = [limits.find(&name)?, names.find(&name)?].concat();
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

/// The text of the last user message; its parts are joined by line breaks.
pub fn last_user_text(body: &[u8], request: &ModelRequest) -> String {
    let parts: Vec<_> =
        request.user_text.iter().filter_map(|span| json::text(body.get(span.clone())?)).collect();
    parts.join("\n")
}

/// The body with another model at `span`, and `more` edits. Every other byte stays.
pub fn rename_model(body: &Bytes, span: &Range<usize>, model: &str, more: Option<&Edit>) -> Bytes {
    let quoted = serde_json::Value::from(model).to_string();
    let mut edits: Vec<Edit> = more.into_iter().cloned().collect();
    if body.get(span.clone()) != Some(quoted.as_bytes()) {
        edits.push(Edit::new(span.clone(), quoted.into_bytes()));
    }
    splice(body, edits)
}

/// The body without `stream` and `stream_options`, as reroutes send it. Every other byte stays.
pub fn without_stream(body: &Bytes) -> Result<Bytes, Error> {
    without_members(body, &["stream", "stream_options"])
}

#[cfg(test)]
mod tests;
