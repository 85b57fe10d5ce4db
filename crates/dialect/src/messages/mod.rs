//! Messages, Anthropic's dialect, with the endpoint that counts tokens.

pub mod agent;
pub(crate) mod answer_writer;
mod client_tools;
pub mod errors;
pub mod failure;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
mod schema;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
mod tool_reader;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::Dialect;
use super::endpoint::Endpoint;
use super::protocol::{KeyHeader, ProtocolRow};
use super::request::generation_limits::LimitRules;
use super::request::model_request::RequestRules;
use super::rows::{ClientRules, DialectRow, EndpointRow};
use super::stream::event::OversizedRule;
use super::usage_answer::USAGE;
use request_writer::DEFAULT_MAX_TOKENS;
use stream_reader::MessagesStreamReader;
use stream_writer::MessagesStreamWriter;

/// The version of the API for clients that name none.
pub const VERSION: &str = "2023-06-01";
pub const VERSION_HEADER: HeaderName = HeaderName::from_static("anthropic-version");
pub(super) const BETA_HEADER: HeaderName = HeaderName::from_static("anthropic-beta");
pub const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("request-id");

/// The body of an answer to a token count.
pub fn count(tokens: u64, estimated: bool) -> Bytes {
    let mark = if estimated { ",\"estimated\":true" } else { "" };
    format!("{{\"input_tokens\":{tokens}{mark}}}").into()
}

/// Reads a provider's answer to a token count.
pub fn counted(answer: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(answer).ok()?.get("input_tokens")?.as_u64()
}

pub(super) static DIALECT: DialectRow = DialectRow {
    name: "messages",
    title: "Anthropic messages",
    reader: || Box::<MessagesStreamReader>::default(),
    read_whole: stream_reader::read_whole,
    oversized: OversizedRule::Ignored,
    write_request: request_writer::write,
    client: Some(ClientRules {
        read_request: request_reader::read,
        prefills: true,
        write_answer: answer_writer::write,
        writer: |_| Box::<MessagesStreamWriter>::default(),
        last_event: |_| None,
        write_failure: failure::write,
        joins: false,
    }),
    usage: USAGE,
    default_limit: Some(DEFAULT_MAX_TOKENS),
    count: None,
};

pub(super) static ENDPOINT: EndpointRow = EndpointRow {
    name: "messages",
    path: "/messages",
    dialect: Dialect::Messages,
    costs: true,
    request: RequestRules {
        acted_on: &[
            "model",
            "messages",
            "system",
            "stream",
            "tools",
            "output_format",
            "output_config",
            "extra_body",
        ],
        member: request_facts::member,
        has_messages: true,
        asks_usage: false,
        tools_of: Some("claude"),
        limits: LimitRules { name: "max_tokens", includes_thinking: true, generates: true },
    },
    agent: Some(agent::RULES),
    error_event: errors::event,
    completes: true,
    request_id: Some(REQUEST_ID_HEADER),
};

pub(super) static COUNT_TOKENS: EndpointRow = EndpointRow {
    name: "messages.count_tokens",
    path: "/messages/count_tokens",
    dialect: Dialect::Messages,
    costs: false,
    request: RequestRules {
        acted_on: &[
            "model",
            "messages",
            "system",
            "tools",
            "output_format",
            "output_config",
            "extra_body",
        ],
        member: request_facts::member,
        has_messages: true,
        asks_usage: false,
        tools_of: Some("claude"),
        limits: LimitRules { name: "max_tokens", includes_thinking: true, generates: false },
    },
    agent: Some(agent::COUNT_RULES),
    error_event: errors::event,
    completes: false,
    request_id: Some(REQUEST_ID_HEADER),
};

pub(super) static ANTHROPIC: ProtocolRow = ProtocolRow {
    word: "anthropic",
    endpoints: &[Endpoint::Messages, Endpoint::CountTokens],
    own_dialect: None,
    key: KeyHeader::Named("x-api-key"),
    version: Some((VERSION_HEADER, HeaderValue::from_static(VERSION))),
    is_versioned: true,
    example: "https://api.anthropic.com",
    takes_stream_options: false,
    model_path: None,
};
