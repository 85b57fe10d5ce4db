//! Gemini, the dialect of Google's own API. Only providers speak it. The model is part of the path,
//! and a stream has no final event. Sources: ai.google.dev/api/generate-content,
//! ai.google.dev/api/tokens (counts) and ai.google.dev/gemini-api/docs/troubleshooting (errors).

pub(super) mod request_writer;
pub(crate) mod stream_reader;
pub(crate) mod usage;

use std::fmt::Write;

use super::Dialect;
use super::protocol::{KeyHeader, ProtocolRow, Wanted};
use super::rows::{CountRules, DialectRow};
use super::stream::event::OversizedRule;
use stream_reader::GeminiStreamReader;

pub(super) static DIALECT: DialectRow = DialectRow {
    name: "gemini",
    title: "Gemini",
    reader: || Box::<GeminiStreamReader>::default(),
    read_whole: stream_reader::read_whole,
    oversized: OversizedRule::Ignored,
    write_request: |request, _| request_writer::write(request),
    client: None,
    usage: usage::USAGE,
    default_limit: None,
    count: Some(CountRules { write: request_writer::write_count, read: usage::read_count_answer }),
};

pub(super) static PROTOCOL: ProtocolRow = ProtocolRow {
    word: "gemini",
    endpoints: &[],
    own_dialect: Some(Dialect::Gemini),
    key: KeyHeader::Named("x-goog-api-key"),
    version: None,
    is_versioned: false,
    example: "https://generativelanguage.googleapis.com/v1beta",
    takes_stream_options: false,
    model_path: Some(model_path),
};

fn model_path(model: &str, wanted: Wanted) -> String {
    let (folder, model) = request_writer::in_folder(model);
    let mut path = ["/", folder].concat();
    for byte in model.bytes() {
        // A model's name is one path segment, so all other bytes are escaped.
        if byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // Writing into a `String` cannot fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path.push_str(match wanted {
        Wanted::Answer => ":generateContent",
        // Without `alt=sse` the stream is one JSON list.
        Wanted::Stream => ":streamGenerateContent?alt=sse",
        Wanted::Count => ":countTokens",
    });
    path
}

#[cfg(test)]
mod tests;
