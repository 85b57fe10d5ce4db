//! Responses, OpenAI's newer dialect.

pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
pub(crate) mod stream_events;
