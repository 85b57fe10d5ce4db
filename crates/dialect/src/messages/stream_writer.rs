//! Writes neutral events as streams of messages. Only one block may be open: a part that starts
//! while another block is open waits for its end.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::Value;

use super::answer_writer::{id, stop_words, write_citation, write_usage};
use super::failure;
use super::request_writer::tool_id;
use crate::neutral::answer::{Citation, StopReason, TokenCounts};
use crate::neutral::answer_builder::COLLECT_BYTES;
use crate::neutral::event::{PartKind, StreamEvent, WriteEvents};
use crate::neutral::failure::too_long;
use crate::neutral::json_text::{Quoted, put};
use crate::neutral::seal::{self, Seal};
use crate::usage_object::PartialUsage;

#[derive(Debug)]
enum BlockKind {
    Text,
    Thinking {
        sealed: bool,
    },
    /// `wraps`: whether the arguments become the member `arguments` of an object; `None` before
    /// their first byte that is not blank.
    ToolUse {
        id: String,
        name: String,
        wraps: Option<bool>,
    },
}

/// The open block, or a part that waits for it.
#[derive(Debug)]
struct PendingBlock {
    /// The index of its part.
    part: usize,
    kind: BlockKind,
    text: String,
    seal: Option<Seal>,
    cited: Vec<Citation>,
    ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct MessagesStreamWriter {
    /// The first block is open, the others wait.
    blocks: VecDeque<PendingBlock>,
    /// The index of the open block.
    index: u64,
    waiting_bytes: usize,
    stop: StopReason,
    usage: TokenCounts,
    broken: bool,
}

impl WriteEvents for MessagesStreamWriter {
    fn write(&mut self, event: StreamEvent<'_>, out: &mut Vec<u8>) {
        if self.broken {
            return;
        }
        match event {
            StreamEvent::Start { id: provider, model, usage, .. } => {
                self.usage = usage.map(PartialUsage::token_counts).unwrap_or_default();
                put!(out, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":");
                put!(out, "{\"id\":", Quoted(&id(provider)), ",\"type\":\"message\",\"role\":");
                put!(out, "\"assistant\",\"model\":", Quoted(model), ",\"content\":[],");
                put!(out, "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":");
                write_usage(&self.usage, out);
                put!(out, "}}\n\n");
            }
            StreamEvent::PartStart { index, part } => self.start(index, part, out),
            StreamEvent::Delta { index, text } => self.text(index, text, out),
            StreamEvent::Sealed { index, seal } => {
                if let Some(open) = self.blocks.front_mut().filter(|open| open.part == index) {
                    write_signature(self.index, &mut open.kind, &seal.to_text(), out);
                } else if let Some(block) = self.waiting(index) {
                    block.seal = Some(seal);
                }
            }
            StreamEvent::Cited { index, citation } => {
                if self.blocks.front().is_some_and(|open| open.part == index) {
                    self.write_citation(&citation, out);
                } else if let Some(block) = self.waiting(index) {
                    block.cited.push(citation);
                }
            }
            StreamEvent::PartEnd { index } => self.end_part(index, out),
            StreamEvent::Stop(stop) => self.stop = stop,
            StreamEvent::Usage { told, .. } => self.usage = told.token_counts(),
            StreamEvent::End => self.end(out),
            StreamEvent::Failed(failed) => {
                self.broken = true;
                put!(out, "event: error\ndata: ");
                failure::write(&failed, out);
                put!(out, "\n\n");
            }
            _ => {}
        }
    }

    /// Bytes of text in the waiting parts.
    fn held(&self) -> usize {
        self.waiting_bytes
    }
}

impl MessagesStreamWriter {
    fn waiting(&mut self, part: usize) -> Option<&mut PendingBlock> {
        self.blocks.iter_mut().rev().find(|block| block.part == part)
    }

    fn start(&mut self, part: usize, kind: PartKind<'_>, out: &mut Vec<u8>) {
        let kind = match kind {
            PartKind::Text | PartKind::Refusal => BlockKind::Text,
            PartKind::Thinking => BlockKind::Thinking { sealed: false },
            PartKind::ToolCall { id, name } | PartKind::TextCall { id, name } => {
                BlockKind::ToolUse { id: tool_id(id), name: name.to_owned(), wraps: None }
            }
        };
        let (text, seal, cited, ended) = (String::new(), None, Vec::new(), false);
        let block = PendingBlock { part, kind, text, seal, cited, ended };
        if self.blocks.is_empty() {
            write_start(self.index, &block.kind, out);
        }
        self.blocks.push_back(block);
    }

    fn text(&mut self, part: usize, text: &str, out: &mut Vec<u8>) {
        if let Some(open) = self.blocks.front_mut().filter(|open| open.part == part) {
            return write_text(self.index, &mut open.kind, text, out);
        }
        self.waiting_bytes += text.len();
        if self.waiting_bytes > COLLECT_BYTES {
            return self.write(StreamEvent::Failed(too_long()), out);
        }
        if let Some(block) = self.waiting(part) {
            block.text.push_str(text);
        }
    }

    /// Ends a part, and writes the parts that waited for it.
    fn end_part(&mut self, part: usize, out: &mut Vec<u8>) {
        if let Some(block) = self.waiting(part) {
            block.ended = true;
        }
        while let Some(mut ended) = self.blocks.pop_front_if(|open| open.ended) {
            match ended.kind {
                BlockKind::ToolUse { wraps: Some(true), .. } => {
                    begin_delta(self.index, PARTIAL_JSON, out);
                    put!(out, Quoted("\"}"), "}}\n\n");
                }
                BlockKind::Thinking { sealed: false } => {
                    write_signature(self.index, &mut ended.kind, seal::NONE, out);
                }
                _ => {}
            }
            put!(out, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",");
            put!(out, "\"index\":", self.index, "}\n\n");
            self.index += 1;
            let Some(next) = self.blocks.front_mut() else { return };
            let text = std::mem::take(&mut next.text);
            let (seal, cited) = (next.seal.take(), std::mem::take(&mut next.cited));
            self.waiting_bytes = self.waiting_bytes.saturating_sub(text.len());
            write_start(self.index, &next.kind, out);
            if !text.is_empty() {
                write_text(self.index, &mut next.kind, &text, out);
            }
            if let Some(seal) = seal {
                write_signature(self.index, &mut next.kind, &seal.to_text(), out);
            }
            cited.iter().for_each(|citation| self.write_citation(citation, out));
        }
    }

    fn write_citation(&self, citation: &Citation, out: &mut Vec<u8>) {
        begin_delta(self.index, "\"citations_delta\",\"citation\":", out);
        write_citation(citation, out);
        put!(out, "}}\n\n");
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let (reason, sequence) = stop_words(&self.stop);
        put!(out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":");
        put!(out, "{\"stop_reason\":", reason, ",\"stop_sequence\":", sequence, "},\"usage\":");
        write_usage(&self.usage, out);
        put!(out, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }
}

/// The type of a delta of a tool's arguments, and the name of its other member.
const PARTIAL_JSON: &str = "\"input_json_delta\",\"partial_json\":";

fn write_start(index: u64, kind: &BlockKind, out: &mut Vec<u8>) {
    put!(out, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
    put!(out, index, ",\"content_block\":");
    match kind {
        BlockKind::Text => put!(out, "{\"type\":\"text\",\"text\":\"\"}"),
        BlockKind::Thinking { .. } => {
            put!(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
        }
        BlockKind::ToolUse { id, name, .. } => {
            put!(out, "{\"type\":\"tool_use\",\"id\":", Quoted(id), ",\"name\":");
            put!(out, Quoted(name), ",\"input\":{}}");
        }
    }
    put!(out, "}\n\n");
}

fn write_text(index: u64, kind: &mut BlockKind, text: &str, out: &mut Vec<u8>) {
    let (member, text) = match kind {
        BlockKind::Text => ("\"text_delta\",\"text\":", Cow::Borrowed(text)),
        BlockKind::Thinking { .. } => ("\"thinking_delta\",\"thinking\":", Cow::Borrowed(text)),
        BlockKind::ToolUse { wraps, .. } => (PARTIAL_JSON, within_object(wraps, text)),
    };
    begin_delta(index, member, out);
    put!(out, Quoted(&text), "}}\n\n");
}

fn write_signature(index: u64, kind: &mut BlockKind, signature: &str, out: &mut Vec<u8>) {
    if let BlockKind::Thinking { sealed } = kind {
        *sealed = true;
    }
    begin_delta(index, "\"signature_delta\",\"signature\":", out);
    put!(out, Quoted(signature), "}}\n\n");
}

/// The next piece of a tool's arguments. Those that do not begin as a JSON object become a member
/// of one.
fn within_object<'a>(wraps: &mut Option<bool>, text: &'a str) -> Cow<'a, str> {
    let begins = wraps.is_none();
    if begins {
        *wraps = text.trim_ascii_start().chars().next().map(|first| first != '{');
    }
    if *wraps != Some(true) {
        return Cow::Borrowed(text);
    }
    let quoted = Value::from(text).to_string();
    let inside = quoted.get(1..quoted.len() - 1).unwrap_or_default();
    Cow::Owned(if begins { format!("{{\"arguments\":\"{inside}") } else { inside.to_owned() })
}

/// Begins a delta with its type and the name of its other member.
fn begin_delta(index: u64, member: &str, out: &mut Vec<u8>) {
    put!(out, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
    put!(out, index, ",\"delta\":{\"type\":", member);
}
