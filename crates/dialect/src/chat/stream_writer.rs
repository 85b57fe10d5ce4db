//! Writes neutral events as streams of chat completions.

use super::answer_writer::{finish_reason, id, write_annotations, write_details, write_usage};
use super::failure;
use crate::neutral::answer::{StopReason, TokenCounts};
use crate::neutral::event::{PartKind, StreamEvent, WriteEvents};
use crate::neutral::json_text::{Quoted, put};
use crate::usage_object::PartialUsage;

#[derive(Clone, Copy, Debug)]
enum WrittenPart {
    Text,
    Thinking,
    Refusal,
    /// The index of a tool call, and whether arguments were written.
    Call(u64, bool),
    /// The index of a call of a tool that takes free text.
    TextCall(u64),
}

#[derive(Debug, Default)]
pub(crate) struct ChatStreamWriter {
    include_usage: bool,
    /// The members at the beginning of each chunk.
    head: String,
    parts: Vec<WrittenPart>,
    calls: u64,
    refused: bool,
    stop: StopReason,
    usage: Option<TokenCounts>,
    /// Characters of content so far, and before each part.
    chars: u64,
    starts: Vec<u64>,
    seals: u64,
    cited: u64,
}

impl ChatStreamWriter {
    pub(crate) fn new(include_usage: bool) -> Self {
        ChatStreamWriter { include_usage, ..ChatStreamWriter::default() }
    }
}

impl WriteEvents for ChatStreamWriter {
    fn write(&mut self, event: StreamEvent<'_>, out: &mut Vec<u8>) {
        match event {
            StreamEvent::Start { id: provider, model, created, usage } => {
                let mut head = Vec::new();
                put!(&mut head, "data: {\"id\":", Quoted(&id(provider)), ",\"object\":");
                put!(&mut head, "\"chat.completion.chunk\",\"created\":", created, ",\"model\":");
                put!(&mut head, Quoted(model), ",\"choices\":[");
                self.head = String::from_utf8_lossy(&head).into_owned();
                self.usage = usage.map(PartialUsage::token_counts);
                self.delta(out, |out| put!(out, "\"role\":\"assistant\",\"content\":null"));
            }
            StreamEvent::PartStart { part, .. } => self.start(part, out),
            StreamEvent::Delta { index, text } => self.text(index, text, out),
            StreamEvent::PartEnd { index } => {
                if let Some(WrittenPart::Call(_, false)) = self.parts.get(index) {
                    self.text(index, "{}", out);
                }
            }
            StreamEvent::Stop(stop) => self.stop = stop,
            StreamEvent::Usage { told, .. } => self.usage = Some(told.token_counts()),
            StreamEvent::End => self.end(out),
            StreamEvent::Failed(failure) => {
                put!(out, "data: ");
                failure::write(&failure, out);
                put!(out, "\n\n");
            }
            StreamEvent::Cited { index, citation } => {
                let start = self.starts.get(index).copied().unwrap_or(0);
                let (span, number) = ((start, self.chars), self.cited);
                self.cited += 1;
                self.delta(out, |out| write_annotations(&[(&citation, span)], Some(number), out));
            }
            StreamEvent::Sealed { seal, .. } => {
                let number = self.seals;
                self.seals += 1;
                self.delta(out, |out| write_details(&[&seal], number, out));
            }
            _ => {}
        }
    }
}

impl ChatStreamWriter {
    fn start(&mut self, part: PartKind<'_>, out: &mut Vec<u8>) {
        let written = match part {
            PartKind::Text => WrittenPart::Text,
            PartKind::Thinking => WrittenPart::Thinking,
            PartKind::Refusal => {
                self.refused = true;
                WrittenPart::Refusal
            }
            PartKind::ToolCall { id, name } => {
                WrittenPart::Call(self.call(id, name, ["function", "arguments"], out), false)
            }
            PartKind::TextCall { id, name } => {
                WrittenPart::TextCall(self.call(id, name, ["custom", "input"], out))
            }
        };
        self.parts.push(written);
        self.starts.push(self.chars);
    }

    /// Starts a tool call of this kind, and returns its index.
    fn call(&mut self, id: &str, name: &str, [kind, said]: [&str; 2], out: &mut Vec<u8>) -> u64 {
        let index = self.calls;
        self.calls += 1;
        self.delta(out, |out| {
            put!(out, "\"tool_calls\":[{\"index\":", index, ",\"id\":", Quoted(id));
            put!(out, ",\"type\":\"", kind, "\",\"", kind, "\":{\"name\":", Quoted(name));
            put!(out, ",\"", said, "\":\"\"}}]");
        });
        index
    }

    fn text(&mut self, index: usize, text: &str, out: &mut Vec<u8>) {
        let Some(part) = self.parts.get_mut(index) else { return };
        if let WrittenPart::Call(_, begun) = part {
            *begun = true;
        }
        let part = *part;
        if let WrittenPart::Text = part {
            self.chars += text.chars().count() as u64;
        }
        self.delta(out, |out| match part {
            WrittenPart::Text => put!(out, "\"content\":", Quoted(text)),
            WrittenPart::Thinking => put!(out, "\"reasoning_content\":", Quoted(text)),
            WrittenPart::Refusal => put!(out, "\"refusal\":", Quoted(text)),
            WrittenPart::Call(index, _) => {
                put!(out, "\"tool_calls\":[{\"index\":", index, ",\"function\":{\"arguments\":");
                put!(out, Quoted(text), "}}]");
            }
            WrittenPart::TextCall(index) => {
                put!(out, "\"tool_calls\":[{\"index\":", index, ",\"custom\":{\"input\":");
                put!(out, Quoted(text), "}}]");
            }
        });
    }

    fn delta(&self, out: &mut Vec<u8>, members: impl FnOnce(&mut Vec<u8>)) {
        put!(out, self.head.as_str(), "{\"index\":0,\"delta\":{");
        members(out);
        put!(out, "},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        put!(out, self.head.as_str(), "{\"index\":0,\"delta\":{},\"logprobs\":null,");
        put!(out, "\"finish_reason\":", finish_reason(&self.stop, self.refused), "}]}\n\n");
        if let Some(usage) = self.usage.filter(|_| self.include_usage) {
            put!(out, self.head.as_str(), "],\"usage\":");
            write_usage(&usage, out);
            put!(out, "}\n\n");
        }
        put!(out, "data: [DONE]\n\n");
    }
}
