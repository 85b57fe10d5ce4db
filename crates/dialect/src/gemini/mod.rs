//! Gemini's own API, Google's dialect, of providers only: the model stands in the path, and a
//! stream ends without an event that says so. Sources: ai.google.dev/api/generate-content,
//! ai.google.dev/api/tokens (counts) and ai.google.dev/gemini-api/docs/troubleshooting (errors).

pub(crate) mod answer_reader;
pub(super) mod request_writer;
pub(crate) mod stream_events;
pub(crate) mod stream_reader;
pub(crate) mod usage;

use std::fmt::Write;

use super::Dialect;
use super::protocol::{KeyHeader, ProtocolRow, Wanted};
use super::rows::{CountRules, DialectRow};
use super::stream::event::{OversizedRule, StreamRules};

pub(super) static DIALECT: DialectRow = DialectRow {
    name: "gemini",
    title: "Gemini",
    stream: StreamRules {
        look: stream_events::look,
        // Images and audio.
        oversized: OversizedRule::Ignored,
        assemble: stream_events::assemble,
    },
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

/// The path of a request.
fn model_path(model: &str, wanted: Wanted) -> String {
    let (folder, model) = request_writer::in_folder(model);
    let mut path = ["/", folder].concat();
    for byte in model.bytes() {
        // A model is one segment, whatever its name holds.
        if byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // A string takes all that is written.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path.push_str(match wanted {
        Wanted::Answer => ":generateContent",
        // Without `alt` a stream is one list of JSON.
        Wanted::Stream => ":streamGenerateContent?alt=sse",
        Wanted::Count => ":countTokens",
    });
    path
}

#[cfg(test)]
mod tests;
