//! Anthropic's messages.

mod client_tools;
pub(super) mod request_reader;
pub(super) mod request_writer;
