//! The dialects that clients and providers speak, and the translation between them.
//!
//! Each dialect reads its requests, answers and streams into the neutral form, and writes them from
//! it. So N dialects need N readers and N writers. A request to a provider of the same dialect
//! passes as bytes, and nothing here is asked.

mod chat;
pub(crate) mod feature;
mod gemini;
mod json_writer;
mod members;
mod messages;
pub(crate) mod neutral;
pub(crate) mod request_translation;
mod responses;

#[cfg(test)]
mod feature_samples;
#[cfg(test)]
mod request_round_trip_tests;
#[cfg(test)]
mod request_translation_tests;
