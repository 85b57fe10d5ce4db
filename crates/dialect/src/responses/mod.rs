//! Responses, OpenAI's newer dialect.

pub mod agent;
pub(crate) mod answer_writer;
pub mod errors;
pub mod failure;
pub(crate) mod request_facts;
pub(super) mod request_reader;
pub(super) mod request_writer;
mod searches;
pub(crate) mod stream_reader;
pub(crate) mod stream_writer;
mod tool_reader;

use super::Dialect;
use super::request::generation_limits::LimitRules;
use super::request::model_request::RequestRules;
use super::rows::{ClientRules, DialectRow, EndpointRow};
use super::stream::event::OversizedRule;
use stream_reader::ResponsesStreamReader;
use stream_writer::ResponsesStreamWriter;

pub(super) static DIALECT: DialectRow = DialectRow {
    name: "responses",
    title: "OpenAI responses",
    reader: || Box::<ResponsesStreamReader>::default(),
    read_whole: stream_reader::read_whole,
    oversized: OversizedRule::End(stream_reader::is_end),
    write_request: |request, _| request_writer::write(request),
    client: Some(ClientRules {
        read_request: request_reader::read,
        prefills: false,
        write_answer: answer_writer::write,
        writer: |context| Box::new(ResponsesStreamWriter::new(context)),
        last_event: stream_reader::last_response,
        write_failure: super::chat::failure::write,
        joins: false,
    }),
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
    completes: false,
    request_id: None,
};
