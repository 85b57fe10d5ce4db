//! OpenAI's chat completions, as many providers speak them.

pub(crate) mod answer_reader;
pub(crate) mod answer_writer;
mod chunk;
pub(crate) mod failure;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
