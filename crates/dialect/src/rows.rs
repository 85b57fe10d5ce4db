//! What the tables say of a dialect and of an endpoint.

use http::HeaderName;
use serde_json::Value;

use super::Dialect;
use super::agent::AgentRules;
use super::neutral::request::Request;
use super::request::model_request::RequestRules;
use super::stream::event::StreamRules;
use super::usage::UsageRules;
use rerouter_base::error::Error;

/// How a dialect answers.
pub(super) struct DialectRow {
    pub(super) name: &'static str,
    /// Its API, for the texts that people read.
    pub(super) title: &'static str,
    pub(super) stream: StreamRules,
    pub(super) usage: UsageRules,
    /// The limit of an answer that is asked for where the client gives none; `None` where the
    /// dialect needs none.
    pub(super) default_limit: Option<u64>,
    /// How its providers count the tokens of a prompt, where clients of another dialect get that.
    pub(super) count: Option<CountRules>,
}

/// How tokens are counted in a dialect.
pub(super) struct CountRules {
    /// The body of the question.
    pub(super) write: fn(&Request) -> Vec<u8>,
    /// The tokens in the answer.
    pub(super) read: fn(&[u8]) -> Option<u64>,
}

/// What clients ask of an endpoint, and how.
pub(super) struct EndpointRow {
    /// Its name in records and signals.
    pub(super) name: &'static str,
    /// Its path below the base URL of a provider, which ends in `/v1` or the like.
    pub(super) path: &'static str,
    pub(super) dialect: Dialect,
    /// Whether its requests may cost money.
    pub(super) costs: bool,
    pub(super) request: RequestRules,
    /// How it takes what an agent adds; `None` where there are no conversations.
    pub(super) agent: Option<AgentRules>,
    /// An error of ours as the last event of a stream, by the id of the request and the sequence
    /// number that the event has.
    pub(super) error_event: fn(&Error, &str, u64) -> String,
    /// A whole answer as a chat completion, where it can be one.
    pub(super) as_chat_completion: Option<fn(Value) -> Value>,
    /// The header in which its clients look for the id of a request, beside `x-request-id`.
    pub(super) request_id: Option<HeaderName>,
}
