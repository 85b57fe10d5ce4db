//! Anthropic's messages.

pub(crate) mod answer_reader;
pub(crate) mod answer_writer;
pub(crate) mod failure;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
