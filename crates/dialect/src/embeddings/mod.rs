//! OpenAI's embeddings.

pub mod recorded;
pub(crate) mod request_facts;

use super::Dialect;
use super::chat::stream_reader::{self, ChatStreamReader};
use super::chat::{errors, request_writer};
use super::request::generation_limits::LimitRules;
use super::request::model_request::RequestRules;
use super::rows::{DialectRow, EndpointRow};
use super::stream::event::OversizedRule;
use super::usage_answer::USAGE;

/// Embeddings have no streams. If a provider streams anyway, the events are read as chat
/// completions.
pub(super) static DIALECT: DialectRow = DialectRow {
    name: "embeddings",
    title: "embeddings",
    reader: || Box::<ChatStreamReader>::default(),
    read_whole: stream_reader::read_whole,
    oversized: OversizedRule::Ignored,
    write_request: |request, _| request_writer::write(request),
    client: None,
    usage: USAGE,
    default_limit: None,
    count: None,
};

pub(super) static ENDPOINT: EndpointRow = EndpointRow {
    name: "embeddings",
    path: "/embeddings",
    dialect: Dialect::Embeddings,
    costs: true,
    request: RequestRules {
        acted_on: &["model", "input", "extra_body"],
        member: request_facts::member,
        has_messages: false,
        asks_usage: false,
        tools_of: None,
        limits: LimitRules { name: "max_tokens", includes_thinking: false, generates: false },
    },
    agent: None,
    error_event: errors::event,
    completes: false,
    request_id: None,
};
