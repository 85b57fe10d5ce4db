//! Messages, Anthropic's dialect.

pub(crate) mod answer_reader;
pub(crate) mod answer_writer;
pub(crate) mod anthropic;
mod client_tools;
pub(crate) mod failure;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
pub(crate) mod stream_events;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
