//! Writes answers as chat completions.

use crate::neutral::answer::{Answer, Citation, StopReason, TokenCounts};
use crate::neutral::ids;
use crate::neutral::json_text::{Quoted, put};
use crate::neutral::part::{Part, ToolCall};
use crate::neutral::seal::Seal;

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
    let seals = answer.content.iter().filter_map(|part| match part {
        Part::Thinking(thinking) => thinking.seal.as_ref(),
        _ => None,
    });
    let seals: Vec<&Seal> = seals.collect();
    if !seals.is_empty() {
        put!(out, ",");
        write_details(&seals, 0, out);
    }
    if !answer.citations.is_empty() {
        put!(out, ",");
        write_annotations(&cited(answer), None, out);
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

/// The citations, each with the text that it is for: in characters of the whole content.
fn cited(answer: &Answer) -> Vec<(&Citation, (u64, u64))> {
    let (mut spans, mut end) = (Vec::new(), 0);
    for part in &answer.content {
        let start = end;
        end += part.text().map_or(0, |text| text.chars().count() as u64);
        spans.push((start, end));
    }
    let span = |index: usize| spans.get(index).copied().unwrap_or_default();
    answer.citations.iter().map(|(index, citation)| (citation, span(*index))).collect()
}

/// Writes the member `annotations`, with the span of each citation's part. SDKs put the elements of
/// a stream together by their `index`, which is `index` there.
pub(super) fn write_annotations(
    cited: &[(&Citation, (u64, u64))],
    index: Option<u64>,
    out: &mut Vec<u8>,
) {
    put!(out, "\"annotations\":");
    let mut before = "[";
    for (citation, part) in cited {
        let (start, end) = citation.span.map_or(*part, |(start, end)| {
            let within = |at: u64| part.0.saturating_add(at).min(part.1);
            (within(start), within(end))
        });
        put!(out, before, "{");
        if let Some(index) = index {
            put!(out, "\"index\":", index, ",");
        }
        put!(out, "\"type\":\"url_citation\",\"url_citation\":{\"url\":");
        put!(out, Quoted(&citation.url), ",\"title\":", Quoted(&citation.title));
        put!(out, ",\"start_index\":", start, ",\"end_index\":", end);
        if !citation.quote.is_empty() {
            put!(out, ",\"content\":", Quoted(&citation.quote));
        }
        put!(out, "}}");
        before = ",";
    }
    put!(out, "]");
}

/// Writes the member `reasoning_details`, the first of whose elements has this number. Clients send
/// it back as they got it.
pub(super) fn write_details(seals: &[&Seal], first: u64, out: &mut Vec<u8>) {
    put!(out, "\"reasoning_details\":");
    let mut before = "[";
    for (number, seal) in (first..).zip(seals) {
        put!(out, before, "{\"type\":\"reasoning.encrypted\",\"data\":");
        put!(out, Quoted(&seal.to_text()), ",\"format\":\"rerouter\",\"index\":", number, "}");
        before = ",";
    }
    put!(out, "]");
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
        put!(out, before, "{\"id\":", Quoted(id), ",\"type\":\"", kind, "\",\"", kind);
        put!(out, "\":{\"name\":", Quoted(name), ",\"", said, "\":", Quoted(arguments), "}}");
        before = ",";
    }
    if before == "," {
        put!(out, "]");
    }
}

/// A refusal that the model wrote is an answer; a filter's refusal is not.
pub(super) fn finish_reason(stop: &StopReason, refused: bool) -> Option<&'static str> {
    Some(match stop {
        StopReason::End | StopReason::Sequence(_) => "stop",
        // A paused turn is not over. No other word makes a client ask for the rest.
        StopReason::MaxTokens | StopReason::Pause => "length",
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
