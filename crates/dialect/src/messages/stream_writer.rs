//! Writes neutral events as streams of messages. Only one block may be open: a part that starts
//! while another block is open waits for its end.

use std::collections::VecDeque;

use super::answer_writer::{id, stop_words, write_citation, write_usage};
use super::failure;
use crate::neutral::answer::{Citation, StopReason, TokenCounts};
use crate::neutral::answer_builder::COLLECT_BYTES;
use crate::neutral::event::{PartKind, StreamEvent, WriteEvents};
use crate::neutral::failure::too_long;
use crate::neutral::json_text::{Quoted, put};
use crate::neutral::seal::Seal;
use crate::usage_object::PartialUsage;

#[derive(Clone, Debug)]
enum BlockKind {
    Text,
    Thinking,
    ToolUse { id: String, name: String },
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
                if self.blocks.front().is_some_and(|open| open.part == index) {
                    self.write_seal(&seal, out);
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
            PartKind::Thinking => BlockKind::Thinking,
            PartKind::ToolCall { id, name } | PartKind::TextCall { id, name } => {
                BlockKind::ToolUse { id: id.to_owned(), name: name.to_owned() }
            }
        };
        let (text, seal, cited, ended) = (String::new(), None, Vec::new(), false);
        let block = PendingBlock { part, kind, text, seal, cited, ended };
        if self.blocks.is_empty() {
            self.write_start(&block.kind, out);
        }
        self.blocks.push_back(block);
    }

    fn text(&mut self, part: usize, text: &str, out: &mut Vec<u8>) {
        if let Some(open) = self.blocks.front().filter(|open| open.part == part) {
            return self.write_text(&open.kind, text, out);
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
        while self.blocks.front().is_some_and(|open| open.ended) {
            self.blocks.pop_front();
            put!(out, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",");
            put!(out, "\"index\":", self.index, "}\n\n");
            self.index += 1;
            let Some(next) = self.blocks.front_mut() else { return };
            let (kind, text) = (next.kind.clone(), std::mem::take(&mut next.text));
            let (seal, cited) = (next.seal.take(), std::mem::take(&mut next.cited));
            self.waiting_bytes = self.waiting_bytes.saturating_sub(text.len());
            self.write_start(&kind, out);
            if !text.is_empty() {
                self.write_text(&kind, &text, out);
            }
            cited.iter().for_each(|citation| self.write_citation(citation, out));
            if let Some(seal) = seal {
                self.write_seal(&seal, out);
            }
        }
    }

    fn write_start(&self, kind: &BlockKind, out: &mut Vec<u8>) {
        put!(out, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":");
        put!(out, self.index, ",\"content_block\":");
        match kind {
            BlockKind::Text => put!(out, "{\"type\":\"text\",\"text\":\"\"}"),
            BlockKind::Thinking => {
                put!(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
            }
            BlockKind::ToolUse { id, name } => {
                put!(out, "{\"type\":\"tool_use\",\"id\":", Quoted(id), ",\"name\":");
                put!(out, Quoted(name), ",\"input\":{}}");
            }
        }
        put!(out, "}\n\n");
    }

    fn write_citation(&self, citation: &Citation, out: &mut Vec<u8>) {
        self.begin_delta("\"citations_delta\",\"citation\":", out);
        write_citation(citation, out);
        put!(out, "}}\n\n");
    }

    fn write_seal(&self, seal: &Seal, out: &mut Vec<u8>) {
        self.begin_delta("\"signature_delta\",\"signature\":", out);
        put!(out, Quoted(&seal.to_text()), "}}\n\n");
    }

    fn write_text(&self, kind: &BlockKind, text: &str, out: &mut Vec<u8>) {
        let member = match kind {
            BlockKind::Text => "\"text_delta\",\"text\":",
            BlockKind::Thinking => "\"thinking_delta\",\"thinking\":",
            BlockKind::ToolUse { .. } => "\"input_json_delta\",\"partial_json\":",
        };
        self.begin_delta(member, out);
        put!(out, Quoted(text), "}}\n\n");
    }

    /// Begins a delta with its type and the name of its other member.
    fn begin_delta(&self, member: &str, out: &mut Vec<u8>) {
        put!(out, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":");
        put!(out, self.index, ",\"delta\":{\"type\":", member);
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let (reason, sequence) = stop_words(&self.stop);
        put!(out, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":");
        put!(out, "{\"stop_reason\":", reason, ",\"stop_sequence\":", sequence, "},\"usage\":");
        write_usage(&self.usage, out);
        put!(out, "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    }
}
