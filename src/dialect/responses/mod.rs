//! OpenAI's responses.

pub(super) mod request_reader;
pub(super) mod request_writer;
