//! Responses, OpenAI's newer dialect.

pub mod agent;
pub(crate) mod answer_reader;
pub(crate) mod answer_writer;
pub mod errors;
pub mod failure;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
mod searches;
pub(crate) mod stream_events;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
mod tool_reader;

use super::Dialect;
use super::request::generation_limits::LimitRules;
use super::request::model_request::RequestRules;
use super::rows::{DialectRow, EndpointRow};
use super::stream::event::{OversizedRule, StreamRules};

pub(super) static DIALECT: DialectRow = DialectRow {
    name: "responses",
    title: "OpenAI responses",
    stream: StreamRules {
        look: stream_events::look,
        oversized: OversizedRule::End(stream_events::is_end),
        assemble: stream_events::assemble,
    },
    usage: searches::RESPONSE_USAGE,
    default_limit: None,
    count: None,
};

pub(super) static ENDPOINT: EndpointRow = EndpointRow {
    name: "responses",
    path: "/responses",
    dialect: Dialect::Responses,
    costs: true,
    request: RequestRules {
        acted_on: &["model", "input", "instructions", "stream", "tools", "text", "extra_body"],
        member: request_facts::member,
        has_messages: true,
        asks_usage: false,
        tools_of: None,
        limits: LimitRules { name: "max_output_tokens", includes_thinking: false, generates: true },
    },
    agent: Some(agent::RULES),
    error_event: errors::event,
    as_chat_completion: None,
    request_id: None,
};
