//! The dialects that clients and providers speak, and the translation between them.
//!
//! A dialect is a folder with all that is known of it, and its rows in the tables of this file. The
//! rest of the crate asks an [`Endpoint`], a [`Protocol`] or a [`Dialect`] by its methods, and
//! never which one it is. What dialects have in common is in `request/` (the facts of a request),
//! `stream/` (the counts of a stream), `usage.rs` and `agent.rs`.
//!
//! For translation, each dialect reads its requests, answers and streams into the neutral form, and
//! writes them from it. So N dialects need N readers and N writers. A request to a provider of the
//! same dialect passes as bytes, and nothing of that is asked.

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

pub mod wire;

pub mod agent;
pub mod chat;
pub mod embeddings;
pub mod endpoint;
pub mod feature;
pub mod gemini;
mod json_writer;
mod members;
pub mod messages;
pub mod mock_answer;
pub mod neutral;
pub mod protocol;
pub mod recorded_answer;
pub mod request;
pub mod request_translation;
pub mod responses;
pub mod stream;
pub mod translate_answer;
pub mod usage;

use http::HeaderName;
use serde_json::Value;

use agent::AgentRules;
use endpoint::Endpoint;
use mock_answer::MockRules;
use protocol::{Protocol, ProtocolRow};
use request::model_request::RequestRules;
use rerouter_base::error::Error;
use stream::event::StreamRules;
use usage::{Usage, UsageRules};

/// A dialect: the form of answers and streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    #[default]
    Chat,
    Embeddings,
    Responses,
    Messages,
    /// Spoken by providers only: clients have no endpoint for it.
    Gemini,
}

impl Dialect {
    /// Those that requests and answers are translated among.
    pub const TRANSLATED: [Dialect; 4] =
        [Dialect::Chat, Dialect::Messages, Dialect::Responses, Dialect::Gemini];

    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The translated dialect of this name.
    pub fn named(name: &str) -> Option<Self> {
        Dialect::TRANSLATED.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Its API, for the texts that people read.
    pub fn title(self) -> &'static str {
        self.row().title
    }

    /// The endpoint where models answer in this dialect; `None` where the model's path stands in
    /// its place.
    pub fn endpoint(self) -> Option<Endpoint> {
        let answers = |endpoint: &Endpoint| endpoint.dialect() == self && endpoint.generates();
        Endpoint::ALL.into_iter().find(answers)
    }

    fn row(self) -> &'static DialectRow {
        match self {
            Dialect::Chat => &chat::DIALECT,
            Dialect::Embeddings => &embeddings::DIALECT,
            Dialect::Responses => &responses::DIALECT,
            Dialect::Messages => &messages::DIALECT,
            Dialect::Gemini => &gemini::DIALECT,
        }
    }

    /// The tokens that a translated request asks for at most, where the client gives no limit.
    pub fn default_limit(self) -> Option<u64> {
        self.row().default_limit
    }

    /// Whether its API counts the tokens of a prompt in an answer that can be translated.
    pub fn counts(self) -> bool {
        self.row().count.is_some()
    }

    /// The usage in an answer that is no stream. One that is cut off is read up to there.
    pub fn read_usage(self, answer: &[u8]) -> Option<Usage> {
        (self.row().usage.read)(answer)
    }

    /// The usage in the last bytes of an answer.
    pub fn read_usage_at_end(self, ending: &[u8]) -> Option<Usage> {
        (self.row().usage.read_ending)(ending)
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

/// How a dialect answers.
struct DialectRow {
    name: &'static str,
    /// Its API, for the texts that people read.
    title: &'static str,
    stream: StreamRules,
    usage: UsageRules,
    /// The limit of an answer that is asked for where the client gives none; `None` where the
    /// dialect needs none.
    default_limit: Option<u64>,
    /// How its providers count the tokens of a prompt, where clients of another dialect get that.
    count: Option<CountRules>,
}

/// How tokens are counted in a dialect.
struct CountRules {
    /// The body of the question.
    write: fn(&neutral::request::Request) -> Vec<u8>,
    /// The tokens in the answer.
    read: fn(&[u8]) -> Option<u64>,
}

/// What clients ask of an endpoint, and how.
struct EndpointRow {
    /// Its name in records and signals.
    name: &'static str,
    /// Its path below the base URL of a provider, which ends in `/v1` or the like.
    path: &'static str,
    dialect: Dialect,
    /// Whether its requests may cost money.
    costs: bool,
    request: RequestRules,
    /// How it takes what an agent adds; `None` where there are no conversations.
    agent: Option<AgentRules>,
    /// An error of ours as the last event of a stream, by the id of the request and the sequence
    /// number that the event has.
    error_event: fn(&Error, &str, u64) -> String,
    /// A whole answer as a chat completion, where it can be one.
    as_chat_completion: Option<fn(Value) -> Value>,
    /// The header in which its clients look for the id of a request, beside `x-request-id`.
    request_id: Option<HeaderName>,
    /// How the mock provider answers.
    mock: MockRules,
}

/// Headers of clients that providers see, whatever their dialect.
pub static CLIENT_HEADERS: [HeaderName; 3] =
    [chat::BETA_HEADER, messages::VERSION_HEADER, messages::BETA_HEADER];

#[cfg(test)]
mod fixtures;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]
#[path = "recorded_fixtures.rs"]
pub mod recorded;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod request_round_trip_tests;
#[cfg(test)]
mod request_translation_tests;
