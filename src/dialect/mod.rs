//! The dialects that clients and providers speak, and the translation between them.
//!
//! Each dialect reads its requests, answers and streams into the neutral form, and writes them from
//! it. So N dialects need N readers and N writers. A request to a provider of the same dialect
//! passes as bytes, and nothing here is asked.

pub(crate) mod agent;
pub(crate) mod chat;
pub(crate) mod embeddings;
pub(crate) mod endpoint;
pub(crate) mod feature;
mod gemini;
mod json_writer;
mod members;
pub(crate) mod messages;
pub(crate) mod neutral;
pub(crate) mod request;
pub(crate) mod request_translation;
pub(crate) mod responses;
pub(crate) mod stream;
pub(crate) mod translate_answer;
pub(crate) mod usage;

#[cfg(test)]
#[path = "recorded_tests.rs"]
pub(crate) mod recorded;
