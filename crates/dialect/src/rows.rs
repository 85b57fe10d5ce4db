//! The rows that describe a dialect and an endpoint.

use http::HeaderName;
use serde_json::Value;

use super::Dialect;
use super::agent::AgentRules;
use super::members::MalformedRequest;
use super::neutral::answer::{Answer, AnswerContext, Failure};
use super::neutral::event::{Each, ReadEvents, Unreadable, WriteEvents};
use super::neutral::request::Request;
use super::request::model_request::RequestRules;
use super::stream::event::OversizedRule;
use super::usage_answer::UsageRules;
use rerouter_base::error::Error;

pub(super) struct DialectRow {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) reader: fn() -> Box<dyn ReadEvents>,
    pub(super) read_whole: fn(&str, Each<'_>) -> Result<(), Unreadable>,
    pub(super) oversized: OversizedRule,
    /// Writes a request. Members that the request's rules forbid are left out and noted.
    pub(super) write_request: fn(&Request, &mut Vec<String>) -> Vec<u8>,
    /// How clients are answered; `None` if only providers speak the dialect.
    pub(super) client: Option<ClientRules>,
    pub(super) usage: UsageRules,
    /// The token limit of a translated request whose client gives none, for a model whose longest
    /// answer is not known; `None` if the dialect requires none.
    pub(super) default_limit: Option<u64>,
    /// How the dialect's providers count the tokens of a prompt, for clients of other dialects.
    pub(super) count: Option<CountRules>,
}

pub(super) struct ClientRules {
    pub(super) read_request: fn(&[u8]) -> Result<Request, MalformedRequest>,
    /// Whether an answer goes on with the text of a last turn of the assistant.
    pub(super) prefills: bool,
    pub(super) write_answer: fn(&Answer, &mut Vec<u8>),
    pub(super) writer: fn(&AnswerContext) -> Box<dyn WriteEvents>,
    /// The whole answer in the last event of a stream, if the dialect repeats it there.
    pub(super) last_event: fn(&[u8]) -> Option<Value>,
    pub(super) write_failure: fn(&Failure, &mut Vec<u8>),
    /// Whether all texts of an answer become one.
    pub(super) joins: bool,
}

pub(super) struct CountRules {
    pub(super) write: fn(&Request) -> Vec<u8>,
    /// Reads the tokens in the answer.
    pub(super) read: fn(&[u8]) -> Option<u64>,
}

pub(super) struct EndpointRow {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    pub(super) dialect: Dialect,
    pub(super) costs: bool,
    pub(super) request: RequestRules,
    /// How the endpoint takes an agent's additions; `None` if it has no conversations.
    pub(super) agent: Option<AgentRules>,
    /// Writes an error of the gateway as the last event of a stream. Its arguments are the error,
    /// the id of the request and the event's sequence number.
    pub(super) error_event: fn(&Error, &str, u64) -> String,
    pub(super) completes: bool,
    pub(super) request_id: Option<HeaderName>,
}
