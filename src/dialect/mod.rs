//! The dialects that clients and providers speak, and the translation between them.
//!
//! Each dialect reads its requests, answers and streams into the neutral form, and writes them from
//! it. So N dialects need N readers and N writers. A request to a provider of the same dialect
//! passes as bytes, and nothing here is asked.

pub(crate) mod chat;
pub(crate) mod gemini;
pub(crate) mod messages;
pub(crate) mod neutral;
pub(crate) mod responses;
pub(crate) mod translate_answer;
