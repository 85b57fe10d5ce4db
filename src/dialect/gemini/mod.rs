//! Gemini's own API, Google's dialect, of providers only: the model stands in the path, and a
//! stream ends without an event that says so. Sources: ai.google.dev/api/generate-content and
//! ai.google.dev/gemini-api/docs/troubleshooting (errors).

pub(crate) mod answer_reader;
pub(super) mod request_writer;
pub(crate) mod stream_events;
pub(crate) mod stream_reader;
pub(crate) mod usage;

use std::fmt::Write;

use super::protocol::{KeyHeader, ProtocolRow};
use super::stream::event::{OversizedRule, StreamRules};
use super::{Dialect, DialectRow};

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
};

pub(super) static PROTOCOL: ProtocolRow = ProtocolRow {
    word: "gemini",
    dialects: &[Dialect::Gemini],
    translated: Some(Dialect::Gemini),
    key: KeyHeader::Named("x-goog-api-key"),
    version: None,
    is_versioned: false,
    example: "https://generativelanguage.googleapis.com/v1beta",
    takes_stream_options: false,
    model_path: Some(model_path),
};

/// The path of a request. Models have their folder, unless they name it.
fn model_path(model: &str, streams: bool) -> String {
    let folders = ["models/", "tunedModels/"];
    let named = folders.into_iter().find(|folder| model.starts_with(folder));
    let folder = named.unwrap_or("models/");
    let mut path = ["/", folder].concat();
    for byte in model.strip_prefix(folder).unwrap_or(model).bytes() {
        // A model is one segment, whatever its name holds.
        if byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            // A string takes all that is written.
            let _ = write!(path, "%{byte:02X}");
        }
    }
    // Without `alt` a stream is one list of JSON.
    path.push_str(if streams { ":streamGenerateContent?alt=sse" } else { ":generateContent" });
    path
}

#[cfg(test)]
mod tests;
