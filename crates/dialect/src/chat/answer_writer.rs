//! Writes answers as chat completions.

use crate::neutral::answer::{Answer, StopReason, TokenCounts};
use crate::neutral::ids;
use crate::neutral::json_text::{Quoted, put};
use crate::neutral::part::{Part, ToolCall};

pub(crate) fn write(answer: &Answer, out: &mut Vec<u8>) {
    let id = id(&answer.id);
    put!(out, "{\"id\":", Quoted(&id), ",\"object\":\"chat.completion\",\"created\":");
    put!(out, answer.created, ",\"model\":", Quoted(&answer.model));
    put!(out, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
    let text = joined(answer, |part| if let Part::Text(text) = part { Some(text) } else { None });
    let refusal =
        joined(answer, |part| if let Part::Refusal(text) = part { Some(text) } else { None });
    let thoughts = joined(answer, |part| match part {
        Part::Thinking(thinking) => Some(&thinking.text),
        _ => None,
    });
    put!(out, text.as_deref(), ",\"refusal\":", refusal.as_deref());
    if let Some(thoughts) = thoughts.filter(|thoughts| !thoughts.is_empty()) {
        put!(out, ",\"reasoning_content\":", Quoted(&thoughts));
    }
    write_calls(answer, out);
    put!(out, "},\"logprobs\":null,\"finish_reason\":");
    put!(out, finish_reason(&answer.stop, refusal.is_some()), "}]");
    if let Some(usage) = &answer.usage {
        put!(out, ",\"usage\":");
        write_usage(usage, out);
    }
    put!(out, "}");
}

pub(super) fn id(id: &str) -> String {
    format!("chatcmpl-{}", ids::stem(id))
}

/// The texts of the selected parts, joined; `None` if there are none.
fn joined<'a>(answer: &'a Answer, text: impl Fn(&'a Part) -> Option<&'a String>) -> Option<String> {
    let mut texts = answer.content.iter().filter_map(text);
    let mut all = texts.next()?.clone();
    texts.for_each(|text| all.push_str(text));
    Some(all)
}

fn write_calls(answer: &Answer, out: &mut Vec<u8>) {
    let mut before = ",\"tool_calls\":[";
    for part in &answer.content {
        let (ToolCall { id, name, arguments }, kind, said) = match part {
            Part::ToolCall(call) => (call, "function", "arguments"),
            Part::TextCall(call) => (call, "custom", "input"),
            _ => continue,
        };
        let empty = if kind == "function" { "{}" } else { "" };
        let arguments = if arguments.is_empty() { empty } else { arguments };
        put!(
            out,
            before,
            "{\"id\":",
            Quoted(id),
            ",\"type\":\"",
            kind,
            "\",\"",
            kind,
            "\":{\"name\":"
        );
        put!(out, Quoted(name), ",\"", said, "\":", Quoted(arguments), "}}");
        before = ",";
    }
    if before == "," {
        put!(out, "]");
    }
}

/// A refusal that the model wrote is an answer; a filter's refusal is not.
pub(super) fn finish_reason(stop: &StopReason, refused: bool) -> Option<&'static str> {
    Some(match stop {
        StopReason::End | StopReason::Sequence(_) | StopReason::Pause => "stop",
        StopReason::MaxTokens => "length",
        StopReason::ToolCalls => "tool_calls",
        StopReason::Refusal if refused => "stop",
        StopReason::Refusal => "content_filter",
        StopReason::Unfinished => return None,
    })
}

pub(super) fn write_usage(usage: &TokenCounts, out: &mut Vec<u8>) {
    put!(out, "{\"prompt_tokens\":", usage.input, ",\"completion_tokens\":", usage.output);
    put!(out, ",\"total_tokens\":", usage.total(), ",\"prompt_tokens_details\":");
    put!(out, "{\"cached_tokens\":", usage.cache_read);
    if usage.cache_written > 0 {
        put!(out, ",\"cache_write_tokens\":", usage.cache_written);
    }
    put!(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":", usage.reasoning, "}}");
}
