//! Messages, Anthropic's dialect.

pub(crate) mod anthropic;
mod client_tools;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
pub(crate) mod stream_events;
