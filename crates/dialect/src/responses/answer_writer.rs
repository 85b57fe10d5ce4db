//! Writes answers as responses.

use crate::neutral::answer::{Answer, Citation, StopReason, TokenCounts};
use crate::neutral::ids;
use crate::neutral::json_text::{Quoted, put};
use crate::neutral::part::{Part, Thinking, ToolCall};
use crate::neutral::seal;
use crate::neutral::seal::Seal;

pub(crate) fn write(answer: &Answer, out: &mut Vec<u8>) {
    write_as(answer, status(answer), None, out);
}

/// A refusal that the model wrote is an answer; a filter's refusal is not.
pub(super) fn status(answer: &Answer) -> &'static str {
    let is_refusal = |part: &Part| matches!(part, Part::Refusal(_));
    match answer.stop {
        StopReason::MaxTokens | StopReason::Pause | StopReason::Unfinished => "incomplete",
        StopReason::Refusal if !answer.content.iter().any(is_refusal) => "incomplete",
        _ => "completed",
    }
}

/// `error`: the code and the message of a response that failed.
pub(super) fn write_as(
    answer: &Answer,
    status: &str,
    error: Option<(Option<&str>, &str)>,
    out: &mut Vec<u8>,
) {
    let reason = match answer.stop {
        // A paused turn is not over. No other word makes a client ask for the rest.
        StopReason::MaxTokens | StopReason::Pause => Some("max_output_tokens"),
        StopReason::Refusal => Some("content_filter"),
        _ => None,
    };
    put!(out, "{\"id\":", Quoted(&id("resp", &answer.id)), ",\"object\":\"response\",");
    put!(out, "\"created_at\":", answer.created, ",\"status\":", Quoted(status));
    put!(out, ",\"background\":false,\"error\":");
    match error {
        Some((code, message)) => {
            put!(out, "{\"code\":", code, ",\"message\":", Quoted(message), "}");
        }
        None => put!(out, "null"),
    }
    put!(out, ",\"incomplete_details\":");
    match reason.filter(|_| status == "incomplete") {
        Some(reason) => put!(out, "{\"reason\":", Quoted(reason), "}"),
        None => put!(out, "null"),
    }
    put!(out, ",\"instructions\":null,\"max_output_tokens\":null,\"metadata\":{},\"model\":");
    put!(out, Quoted(&answer.model), ",\"output\":[");
    let stem = ids::stem(&answer.id);
    let mut before = "";
    for (index, part) in answer.content.iter().enumerate() {
        put!(out, before);
        write_item(answer, index, &item_id(part, &stem, index as u64), out);
        before = ",";
    }
    put!(out, "],\"parallel_tool_calls\":true,\"previous_response_id\":null,");
    put!(out, "\"reasoning\":{\"effort\":null,\"summary\":null},\"store\":false,");
    put!(out, "\"temperature\":null,\"text\":{\"format\":{\"type\":\"text\"}},");
    put!(out, "\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":null,\"truncation\":\"disabled\",");
    put!(out, "\"usage\":");
    match &answer.usage {
        Some(usage) => write_usage(usage, out),
        None => put!(out, "null"),
    }
    put!(out, ",\"user\":null}");
}

fn id(prefix: &str, id: &str) -> String {
    format!("{prefix}_{}", ids::stem(id))
}

/// The id of an output item, made of the answer's id and the item's index.
pub(super) fn item_id(part: &Part, stem: &str, index: u64) -> String {
    let prefix = match part {
        Part::ToolCall(_) => "fc",
        Part::TextCall(_) => "ctc",
        Part::Thinking(_) => "rs",
        _ => "msg",
    };
    format!("{prefix}_{stem}_{index}")
}

/// Writes the part of this index as a finished output item.
pub(super) fn write_item(answer: &Answer, index: usize, id: &str, out: &mut Vec<u8>) {
    let Some(part) = answer.content.get(index) else { return };
    put!(out, "{\"id\":", Quoted(id));
    match part {
        Part::Thinking(Thinking { text, seal }) => {
            put!(out, ",\"type\":\"reasoning\",\"summary\":[");
            if !text.is_empty() {
                put!(out, "{\"type\":\"summary_text\",\"text\":", Quoted(text), "}");
            }
            let own = seal.as_ref().filter(|seal| seal.dialect == seal::RESPONSES);
            let encrypted = own.and_then(|seal| seal.text("encrypted_content")).map(str::to_owned);
            let encrypted = encrypted.or_else(|| seal.as_ref().map(Seal::to_text));
            let encrypted = encrypted.as_deref().unwrap_or(seal::NONE);
            put!(out, "],\"encrypted_content\":", Quoted(encrypted), "}");
        }
        Part::ToolCall(ToolCall { id, name, arguments }) => {
            put!(out, ",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":");
            put!(out, Quoted(id));
            write_name(answer, name, out);
            put!(out, ",\"arguments\":", Quoted(arguments_of(arguments)), "}");
        }
        Part::TextCall(ToolCall { id, name, arguments }) => {
            put!(out, ",\"type\":\"custom_tool_call\",\"call_id\":", Quoted(id));
            write_name(answer, name, out);
            put!(out, ",\"input\":", Quoted(arguments), "}");
        }
        part => {
            put!(out, ",\"type\":\"message\",\"status\":\"completed\",\"role\":\"assistant\",");
            put!(out, "\"content\":[");
            write_content(part, &answer.cited(index), out);
            put!(out, "]}");
        }
    }
}

pub(super) fn write_name(answer: &Answer, name: &str, out: &mut Vec<u8>) {
    let (namespace, name) = answer.tool_name(name);
    put!(out, ",\"name\":", Quoted(name));
    if let Some(namespace) = namespace {
        put!(out, ",\"namespace\":", Quoted(namespace));
    }
}

/// Writes the content part of a text or a refusal.
pub(super) fn write_content(part: &Part, cited: &[&Citation], out: &mut Vec<u8>) {
    match part {
        Part::Text(text) => {
            put!(out, "{\"type\":\"output_text\",\"text\":", Quoted(text));
            put!(out, ",\"annotations\":[");
            let mut before = "";
            for citation in cited {
                put!(out, before);
                write_annotation(citation, Some(part), out);
                before = ",";
            }
            put!(out, "],\"logprobs\":[]}");
        }
        Part::Refusal(text) => {
            put!(out, "{\"type\":\"refusal\",\"refusal\":", Quoted(text), "}");
        }
        _ => {}
    }
}

pub(super) fn write_annotation(citation: &Citation, of: Option<&Part>, out: &mut Vec<u8>) {
    let length = || of.and_then(Part::text).map_or(0, |text| text.chars().count() as u64);
    let (start, end) = citation.span.unwrap_or_else(|| (0, length()));
    put!(out, "{\"type\":\"url_citation\",\"url\":", Quoted(&citation.url), ",\"title\":");
    put!(out, Quoted(&citation.title), ",\"start_index\":", start, ",\"end_index\":", end, "}");
}

pub(super) fn arguments_of(text: &str) -> &str {
    if text.is_empty() { "{}" } else { text }
}

fn write_usage(usage: &TokenCounts, out: &mut Vec<u8>) {
    put!(out, "{\"input_tokens\":", usage.input, ",\"input_tokens_details\":{\"cached_tokens\":");
    put!(out, usage.cache_read, ",\"cache_write_tokens\":", usage.cache_written);
    put!(out, "},\"output_tokens\":", usage.output, ",\"output_tokens_details\":");
    put!(out, "{\"reasoning_tokens\":", usage.reasoning, "},\"total_tokens\":");
    put!(out, usage.total(), "}");
}
