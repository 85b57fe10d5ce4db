//! Writes answers as messages.

use super::request_writer::tool_id;
use crate::neutral::answer::{Answer, Citation, StopReason, TokenCounts};
use crate::neutral::ids;
use crate::neutral::json_text::{Quoted, put, put_arguments};
use crate::neutral::part::{Part, Thinking, ToolCall};
use crate::neutral::seal;
use crate::neutral::seal::Seal;

pub(crate) fn write(answer: &Answer, out: &mut Vec<u8>) {
    let id = id(&answer.id);
    put!(out, "{\"id\":", Quoted(&id), ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    put!(out, Quoted(&answer.model), ",\"content\":[");
    let mut before = "";
    for (index, part) in answer.content.iter().enumerate() {
        if write_block(part, &answer.cited(index), before, out) {
            before = ",";
        }
    }
    let (reason, sequence) = stop_words(&answer.stop);
    put!(out, "],\"stop_reason\":", reason, ",\"stop_sequence\":", sequence, ",\"usage\":");
    write_usage(&answer.usage.unwrap_or_default(), out);
    put!(out, "}");
}

pub(super) fn id(id: &str) -> String {
    format!("msg_{}", ids::stem(id))
}

/// Writes the part as a content block, after `before`. Returns whether the part has a block.
fn write_block(part: &Part, cited: &[&Citation], before: &str, out: &mut Vec<u8>) -> bool {
    match part {
        Part::Text(text) | Part::Refusal(text) => {
            put!(out, before, "{\"type\":\"text\",\"text\":", Quoted(text));
            let mut before = ",\"citations\":[";
            for citation in cited {
                put!(out, before);
                write_citation(citation, out);
                before = ",";
            }
            put!(out, if cited.is_empty() { "}" } else { "]}" });
        }
        Part::Thinking(Thinking { text, seal }) => {
            let own = seal.as_ref().filter(|seal| seal.dialect == seal::MESSAGES);
            if let Some(data) = own.and_then(|seal| seal.text("redacted")) {
                put!(out, before, "{\"type\":\"redacted_thinking\",\"data\":");
                put!(out, Quoted(data), "}");
                return true;
            }
            let signature = own.and_then(|seal| seal.text("signature")).map(str::to_owned);
            let signature = signature.or_else(|| seal.as_ref().map(Seal::to_text));
            let signature = signature.unwrap_or_else(|| seal::NONE.to_owned());
            put!(out, before, "{\"type\":\"thinking\",\"thinking\":", Quoted(text));
            put!(out, ",\"signature\":", Quoted(&signature), "}");
        }
        Part::ToolCall(ToolCall { id, name, arguments })
        | Part::TextCall(ToolCall { id, name, arguments }) => {
            put!(out, before, "{\"type\":\"tool_use\",\"id\":", Quoted(&tool_id(id)));
            put!(out, ",\"name\":");
            put!(out, Quoted(name), ",\"input\":");
            put_arguments(arguments, out);
            put!(out, "}");
        }
        _ => return false,
    }
    true
}

/// Writes a source as a result of a web search, the one kind that has a URL.
pub(super) fn write_citation(citation: &Citation, out: &mut Vec<u8>) {
    put!(out, "{\"type\":\"web_search_result_location\",\"url\":", Quoted(&citation.url));
    put!(out, ",\"title\":", Quoted(&citation.title), ",\"cited_text\":");
    put!(out, Quoted(&citation.quote), ",\"encrypted_index\":\"\"}");
}

/// The values of `stop_reason` and `stop_sequence`.
pub(super) fn stop_words(stop: &StopReason) -> (Option<&'static str>, Option<&str>) {
    let reason = match stop {
        StopReason::End => "end_turn",
        StopReason::MaxTokens => "max_tokens",
        StopReason::Sequence(sequence) => return (Some("stop_sequence"), sequence.as_deref()),
        StopReason::ToolCalls => "tool_use",
        StopReason::Refusal => "refusal",
        StopReason::Pause => "pause_turn",
        StopReason::Unfinished => return (None, None),
    };
    (Some(reason), None)
}

pub(super) fn write_usage(usage: &TokenCounts, out: &mut Vec<u8>) {
    let beside = usage.input.saturating_sub(usage.cache_read).saturating_sub(usage.cache_written);
    put!(out, "{\"input_tokens\":", beside, ",\"cache_creation_input_tokens\":");
    put!(out, usage.cache_written, ",\"cache_read_input_tokens\":", usage.cache_read);
    put!(out, ",\"output_tokens\":", usage.output);
    if usage.reasoning > 0 {
        put!(out, ",\"output_tokens_details\":{\"thinking_tokens\":", usage.reasoning, "}");
    }
    put!(out, "}");
}
