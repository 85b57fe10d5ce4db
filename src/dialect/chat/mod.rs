//! Chat completions, OpenAI's older dialect, which most providers speak.

pub(crate) mod completion;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
pub(crate) mod stream_events;
pub(crate) mod stream_options;
pub(crate) mod usage_strip;
