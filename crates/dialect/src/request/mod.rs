//! Reads requests in one bounded pass over the body, without changing it. Each dialect has a
//! `request_facts.rs` with its own members, which uses the readers here.

pub(crate) mod content_parts;
mod foreign_thinking;
pub(crate) mod generation_limits;
pub(crate) mod media;
pub(crate) mod member_names;
pub(crate) mod model_request;
mod system_text;
pub mod text;
pub(crate) mod tools;

use std::ops::Range;

use bytes::Bytes;

use super::endpoint::Endpoint;
use crate::wire::json::{self, Cursor, Edit, JsonError, JsonKind, splice, without_members};
use member_names::MemberNames;
use model_request::{RequestBuilder, RequestRules};
use rerouter_base::error::Error;

pub use foreign_thinking::without_foreign_thinking;
pub use model_request::{Ceiling, ModelRequest};
pub use system_text::system_text;

/// Members that hold the prompt, or a part of it, at some endpoint.
const FOREIGN: [&str; 5] = ["messages", "input", "system", "instructions", "contents"];

/// Reads the body of a request.
///
/// # Errors
/// 400 for a body that is not one JSON object or is nested over 128 levels, a missing or wrong
/// `model`, a wrong type of `stream` or `messages`, a count that is no whole number, and a member
/// that the gateway reads, if it occurs twice or in another spelling. The provider judges
/// everything else.
pub fn read_request(body: &[u8], endpoint: Endpoint) -> Result<ModelRequest, Error> {
    let mut builder = RequestBuilder::default();
    let rules = &endpoint.row().request;
    let (mut limits, mut names) =
        (MemberNames::new("", generation_limits::NAMES), MemberNames::new("", rules.acted_on));
    json::read_object(body, |cursor, name| {
        let count = limits.find(&name)?;
        if !count.is_empty() {
            return builder.limits.read(cursor, count, &rules.limits);
        }
        match names.find(&name)? {
            "" => {
                // Another endpoint has its prompt in this member. A server with both endpoints may
                // read it.
                let has_parts = matches!(cursor.kind()?, JsonKind::Array | JsonKind::Object);
                builder.prompt.is_open |= has_parts && MemberNames::is_like(&name, &FOREIGN);
                cursor.pass()
            }
            "extra_body" => read_extra(cursor, rules),
            "model" => read_model(cursor, &mut builder),
            "stream" => read_stream(cursor, &mut builder),
            name => (rules.member)(cursor, name, &mut builder),
        }
    })?;
    builder.finish(body, rules)
}

fn read_model(cursor: &mut Cursor<'_>, builder: &mut RequestBuilder) -> Result<(), JsonError> {
    let is_text = cursor.kind()? == JsonKind::String;
    let span = cursor.skip()?;
    if !is_text {
        return Err(Error::invalid("model", "`model` has to be a string.").into());
    }
    builder.model = Some(span);
    Ok(())
}

fn read_stream(cursor: &mut Cursor<'_>, builder: &mut RequestBuilder) -> Result<(), JsonError> {
    let kind = cursor.kind()?;
    builder.stream_end = cursor.skip()?.end;
    builder.request.stream = match kind {
        JsonKind::True => true,
        JsonKind::False | JsonKind::Null => false,
        _ => return Err(Error::invalid("stream", "`stream` has to be true or false.").into()),
    };
    Ok(())
}

/// Reads `extra_body`. Some gateways let its members replace those of the request, so members that
/// this gateway reads are refused.
fn read_extra(cursor: &mut Cursor<'_>, rules: &RequestRules) -> Result<(), JsonError> {
    let (mut limits, mut names) = (
        MemberNames::new("extra_body.", generation_limits::NAMES),
        MemberNames::new("extra_body.", rules.acted_on),
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

/// Replaces the model at `span`, and applies the edits `more`. All other bytes stay.
pub fn rename_model<'a>(
    body: &Bytes,
    span: &Range<usize>,
    model: &str,
    more: impl IntoIterator<Item = &'a Edit>,
) -> Bytes {
    // Writing a string cannot fail.
    let quoted = serde_json::to_vec(model).unwrap_or_default();
    let mut edits: Vec<Edit> = more.into_iter().cloned().collect();
    if body.get(span.clone()) != Some(&quoted[..]) {
        edits.push(Edit::new(span.clone(), quoted));
    }
    splice(body, edits)
}

/// Removes `stream` and `stream_options`, for reroutes. All other bytes stay.
pub fn without_stream(body: &Bytes) -> Result<Bytes, Error> {
    without_members(body, &["stream", "stream_options"])
}

#[cfg(test)]
mod tests;
