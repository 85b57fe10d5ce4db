//! Messages, Anthropic's dialect.

pub(crate) mod anthropic;
pub(crate) mod request_facts;
pub(crate) mod stream_events;
