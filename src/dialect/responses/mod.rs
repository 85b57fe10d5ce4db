//! Responses, OpenAI's newer dialect.

pub(crate) mod request_facts;
pub(crate) mod stream_events;
