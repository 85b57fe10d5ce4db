//! The dialects that clients and providers speak, and the translation between them.
//!
//! Each dialect has a folder with all that is known of it, and rows in the tables of this file.
//! `rows.rs` and `protocol.rs` declare the rows. The rest of the crate calls methods of
//! [`Endpoint`], [`Protocol`] and [`Dialect`], and seldom matches on their variants. Code that
//! dialects share is in `request/` (facts of a request), `stream/` (counts of a stream), `usage.rs`
//! and `agent.rs`.
//!
//! For translation, each dialect reads its requests, answers and streams into the neutral form, and
//! writes them from it. So N dialects need N readers and N writers. A request to a provider of the
//! same dialect passes as bytes, without the neutral form.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod wire;

pub mod agent;
pub mod chat;
mod dialect;
pub mod embeddings;
pub mod endpoint;
pub mod feature;
pub(crate) mod gemini;
mod json_writer;
mod members;
pub mod messages;
pub mod neutral;
pub mod protocol;
pub mod recorded_answer;
pub mod request;
pub mod request_translation;
pub mod responses;
mod rows;
pub mod stream;
pub mod translate_answer;
pub mod usage;
mod usage_answer;
mod usage_object;

use http::HeaderName;

pub use dialect::Dialect;
use endpoint::Endpoint;
use protocol::{Protocol, ProtocolRow};
use rows::{DialectRow, EndpointRow};

impl Dialect {
    fn row(self) -> &'static DialectRow {
        match self {
            Dialect::Chat => &chat::DIALECT,
            Dialect::Embeddings => &embeddings::DIALECT,
            Dialect::Responses => &responses::DIALECT,
            Dialect::Messages => &messages::DIALECT,
            Dialect::Gemini => &gemini::DIALECT,
        }
    }
}

impl Endpoint {
    fn row(self) -> &'static EndpointRow {
        match self {
            Endpoint::ChatCompletions => &chat::ENDPOINT,
            Endpoint::Embeddings => &embeddings::ENDPOINT,
            Endpoint::Responses => &responses::ENDPOINT,
            Endpoint::Messages => &messages::ENDPOINT,
            Endpoint::CountTokens => &messages::COUNT_TOKENS,
        }
    }
}

impl Protocol {
    fn row(self) -> &'static ProtocolRow {
        match self {
            Protocol::OpenAi => &chat::OPENAI,
            Protocol::Anthropic => &messages::ANTHROPIC,
            Protocol::Gemini => &gemini::PROTOCOL,
            Protocol::Mock => &protocol::MOCK,
        }
    }
}

/// Client headers that are passed to providers of every dialect.
pub static CLIENT_HEADERS: [HeaderName; 3] =
    [chat::BETA_HEADER, messages::VERSION_HEADER, messages::BETA_HEADER];

#[cfg(test)]
mod answer_foreign_tests;
#[cfg(test)]
mod answer_loss_tests;
#[cfg(test)]
mod fixtures;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#[path = "recorded_fixtures.rs"]
pub mod recorded;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod request_foreign_tests;
#[cfg(test)]
mod request_round_trip_tests;
#[cfg(test)]
mod request_translation_tests;
#[cfg(test)]
mod setting_fixtures;
#[cfg(test)]
mod target_terms_tests;
