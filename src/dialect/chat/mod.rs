//! Chat completions, OpenAI's older dialect, which most providers speak.

pub(crate) mod answer_reader;
pub(crate) mod answer_writer;
pub(crate) mod completion;
pub(crate) mod failure;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
pub(crate) mod stream_events;
pub(crate) mod stream_options;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
pub(crate) mod usage_strip;
