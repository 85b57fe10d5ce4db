//! Gemini's native API.

pub(crate) mod answer_reader;
pub(super) mod request_writer;
pub(crate) mod stream_reader;
