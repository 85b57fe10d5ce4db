//! Gemini's native API.

pub(super) mod request_writer;
