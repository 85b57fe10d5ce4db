//! Chat completions, OpenAI's older dialect, which most providers have. Also OpenAI's API as a
//! protocol of providers, which has responses and embeddings too.

pub mod agent;
pub(crate) mod answer_writer;
mod chunk;
pub mod completion;
pub mod errors;
pub mod failure;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
pub(crate) mod stream_options;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
mod tool_reader;
pub mod usage_strip;

use http::HeaderName;

use super::Dialect;
use super::endpoint::Endpoint;
use super::protocol::{KeyHeader, ProtocolRow};
use super::request::generation_limits::LimitRules;
use super::request::model_request::RequestRules;
use super::rows::{ClientRules, DialectRow, EndpointRow};
use super::stream::event::OversizedRule;
use super::usage_answer::USAGE;
use stream_reader::ChatStreamReader;
use stream_writer::ChatStreamWriter;

pub(super) const BETA_HEADER: HeaderName = HeaderName::from_static("openai-beta");

pub(super) const CLIENT: ClientRules = ClientRules {
    read_request: request_reader::read,
    prefills: false,
    write_answer: answer_writer::write,
    writer: |context| Box::new(ChatStreamWriter::new(context.include_usage)),
    last_event: |_| None,
    write_failure: failure::write,
    joins: true,
};

pub(super) static DIALECT: DialectRow = DialectRow {
    name: "chat",
    title: "chat completions",
    reader: || Box::<ChatStreamReader>::default(),
    read_whole: stream_reader::read_whole,
    oversized: OversizedRule::Text,
    write_request: |request, _| request_writer::write(request),
    client: Some(CLIENT),
    usage: USAGE,
    default_limit: None,
    count: None,
};

pub(super) static ENDPOINT: EndpointRow = EndpointRow {
    name: "chat.completions",
    path: "/chat/completions",
    dialect: Dialect::Chat,
    costs: true,
    request: RequestRules {
        acted_on: &[
            "model",
            "messages",
            "stream",
            "stream_options",
            "tools",
            "functions",
            "response_format",
            "extra_body",
        ],
        member: request_facts::member,
        has_messages: true,
        asks_usage: true,
        tools_of: None,
        limits: LimitRules { name: "max_tokens", includes_thinking: false, generates: true },
    },
    agent: Some(agent::RULES),
    error_event: errors::event,
    completes: true,
    request_id: None,
};

pub(super) static OPENAI: ProtocolRow = ProtocolRow {
    word: "openai",
    endpoints: &[Endpoint::ChatCompletions, Endpoint::Responses, Endpoint::Embeddings],
    own_dialect: None,
    key: KeyHeader::Bearer,
    version: None,
    is_versioned: false,
    example: "https://api.example.com/v1",
    takes_stream_options: true,
    model_path: None,
};
