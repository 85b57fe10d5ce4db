//! Writes neutral events as streams of responses. Each part is an output item. The last event
//! contains the whole response, so the answer is collected until then.

use super::answer_writer::{
    arguments_of, item_id, status, write_annotation, write_as, write_content, write_item,
    write_name,
};
use super::failure;
use crate::chat::failure::words;
use crate::neutral::answer::{Answer, AnswerContext, Citation, Failure};
use crate::neutral::answer_builder::AnswerBuilder;
use crate::neutral::event::{PartKind, StreamEvent, WriteEvents};
use crate::neutral::ids;
use crate::neutral::json_text::{Quoted, put};
use crate::neutral::part::Part;

#[derive(Debug, Default)]
pub(crate) struct ResponsesStreamWriter {
    collected: AnswerBuilder,
    stem: String,
    /// The ids of the output items, by index.
    ids: Vec<String>,
    /// `sequence_number` of the next event.
    number: u64,
    broken: bool,
}

impl WriteEvents for ResponsesStreamWriter {
    fn write(&mut self, event: StreamEvent<'_>, out: &mut Vec<u8>) {
        if self.broken {
            return;
        }
        if let Err(failure) = self.collected.take(&event) {
            return self.fail(&failure, out);
        }
        match event {
            StreamEvent::Start { id, .. } => {
                self.stem = ids::stem(id);
                self.response("response.created", "in_progress", out);
                self.response("response.in_progress", "in_progress", out);
            }
            StreamEvent::PartStart { index, part } => self.start(index, part, out),
            StreamEvent::Delta { index, text } => self.delta(index, text, out),
            StreamEvent::PartEnd { index } => {
                let collected = std::mem::take(&mut self.collected);
                self.end_part(collected.answer(), index, out);
                self.collected = collected;
            }
            StreamEvent::End => {
                let status = status(self.collected.answer());
                let whole = status == "completed";
                let kind = if whole { "response.completed" } else { "response.incomplete" };
                self.response(kind, status, out);
            }
            StreamEvent::Failed(failure) => self.fail(&failure, out),
            StreamEvent::Cited { index, citation } => self.cite(index, &citation, out),
            _ => {}
        }
    }

    /// Memory use of the collected answer.
    fn held(&self) -> usize {
        self.collected.bytes()
    }
}

impl ResponsesStreamWriter {
    pub(crate) fn new(context: &AnswerContext) -> Self {
        let collected = AnswerBuilder::new(context);
        ResponsesStreamWriter { collected, ..ResponsesStreamWriter::default() }
    }

    fn cite(&mut self, index: usize, citation: &Citation, out: &mut Vec<u8>) {
        let kind = "response.output_text.annotation.added";
        let answer = self.collected.answer();
        let number = answer.citations.iter().filter(|(of, _)| *of == index).count();
        self.begin_content(kind, "content_index", index, out);
        put!(out, ",\"annotation_index\":", number.saturating_sub(1) as u64, ",\"annotation\":");
        let answer = self.collected.answer();
        write_annotation(citation, answer.content.get(index), out);
        put!(out, "}\n\n");
    }

    fn fail(&mut self, failure: &Failure, out: &mut Vec<u8>) {
        self.broken = true;
        failure::write_event(failure, self.number, out);
        self.number += 1;
        // Codex ignores `error`.
        let error = Some((words(failure).1, failure.message.as_str()));
        self.begin("response.failed", out);
        put!(out, ",\"response\":");
        // The items are not whole. The client has what came of them.
        let mut answer = self.collected.answer().clone();
        (answer.content, answer.citations) = Default::default();
        write_as(&answer, "failed", error, out);
        put!(out, "}\n\n");
    }

    /// Begins an event. The caller writes the other members.
    fn begin(&mut self, kind: &str, out: &mut Vec<u8>) {
        put!(out, "event: ", kind, "\ndata: {\"type\":\"", kind, "\",\"sequence_number\":");
        put!(out, self.number);
        self.number += 1;
    }

    fn response(&mut self, kind: &str, status: &str, out: &mut Vec<u8>) {
        self.begin(kind, out);
        put!(out, ",\"response\":");
        write_as(self.collected.answer(), status, None, out);
        put!(out, "}\n\n");
    }

    fn begin_item(&mut self, kind: &str, index: usize, out: &mut Vec<u8>) {
        self.begin(kind, out);
        put!(out, ",\"output_index\":", index as u64, ",\"item_id\":");
        put!(out, Quoted(self.ids.get(index).map_or("", String::as_str)));
    }

    /// Begins an event about content number 0 of a message, or summary number 0 of an item.
    fn begin_content(&mut self, kind: &str, place: &str, index: usize, out: &mut Vec<u8>) {
        self.begin_item(kind, index, out);
        put!(out, ",\"", place, "\":0");
    }

    fn start(&mut self, index: usize, part: PartKind<'_>, out: &mut Vec<u8>) {
        let Some(begun) = self.collected.answer().content.get(index) else { return };
        let id = item_id(begun, &self.stem, index as u64);
        self.begin("response.output_item.added", out);
        put!(out, ",\"output_index\":", index as u64, ",\"item\":{\"id\":", Quoted(&id));
        self.ids.push(id);
        match part {
            PartKind::Thinking => {
                put!(out, ",\"type\":\"reasoning\",\"summary\":[],");
                put!(out, "\"encrypted_content\":null}}\n\n");
            }
            PartKind::ToolCall { id, name } => {
                put!(out, ",\"type\":\"function_call\",\"status\":\"in_progress\",\"call_id\":");
                put!(out, Quoted(id));
                write_name(self.collected.answer(), name, out);
                put!(out, ",\"arguments\":\"\"}}\n\n");
            }
            PartKind::TextCall { id, name } => {
                put!(out, ",\"type\":\"custom_tool_call\",\"call_id\":", Quoted(id));
                write_name(self.collected.answer(), name, out);
                put!(out, ",\"input\":\"\"}}\n\n");
            }
            PartKind::Text | PartKind::Refusal => {
                put!(out, ",\"type\":\"message\",\"status\":\"in_progress\",");
                put!(out, "\"role\":\"assistant\",\"content\":[]}}\n\n");
                let empty = if part == PartKind::Text { Part::Text } else { Part::Refusal };
                self.begin_content("response.content_part.added", "content_index", index, out);
                put!(out, ",\"part\":");
                write_content(&empty(String::new()), &[], out);
                put!(out, "}\n\n");
            }
        }
    }

    fn delta(&mut self, index: usize, text: &str, out: &mut Vec<u8>) {
        match self.collected.answer().content.get(index) {
            Some(Part::Text(_)) => {
                self.begin_content("response.output_text.delta", "content_index", index, out);
                put!(out, ",\"logprobs\":[]");
            }
            Some(Part::Refusal(_)) => {
                self.begin_content("response.refusal.delta", "content_index", index, out);
            }
            Some(Part::ToolCall(_)) => {
                self.begin_item("response.function_call_arguments.delta", index, out);
            }
            Some(Part::TextCall(_)) => {
                self.begin_item("response.custom_tool_call_input.delta", index, out);
            }
            Some(Part::Thinking(thinking)) => {
                if thinking.text.len() == text.len() {
                    self.summary("response.reasoning_summary_part.added", index, "", out);
                }
                let kind = "response.reasoning_summary_text.delta";
                self.begin_content(kind, "summary_index", index, out);
            }
            _ => return,
        }
        put!(out, ",\"delta\":", Quoted(text), "}\n\n");
    }

    fn summary(&mut self, kind: &str, index: usize, text: &str, out: &mut Vec<u8>) {
        self.begin_content(kind, "summary_index", index, out);
        put!(out, ",\"part\":{\"type\":\"summary_text\",\"text\":", Quoted(text), "}}\n\n");
    }

    fn end_part(&mut self, answer: &Answer, index: usize, out: &mut Vec<u8>) {
        let Some(part) = answer.content.get(index) else { return };
        match part {
            Part::Text(text) => {
                self.begin_content("response.output_text.done", "content_index", index, out);
                put!(out, ",\"text\":", Quoted(text), ",\"logprobs\":[]}\n\n");
            }
            Part::Refusal(text) => {
                self.begin_content("response.refusal.done", "content_index", index, out);
                put!(out, ",\"refusal\":", Quoted(text), "}\n\n");
            }
            Part::ToolCall(call) => {
                self.begin_item("response.function_call_arguments.done", index, out);
                write_name(answer, &call.name, out);
                put!(out, ",\"arguments\":", Quoted(arguments_of(&call.arguments)), "}\n\n");
            }
            Part::TextCall(call) => {
                self.begin_item("response.custom_tool_call_input.done", index, out);
                put!(out, ",\"input\":", Quoted(&call.arguments), "}\n\n");
            }
            Part::Thinking(thinking) if !thinking.text.is_empty() => {
                let text = &thinking.text;
                let kind = "response.reasoning_summary_text.done";
                self.begin_content(kind, "summary_index", index, out);
                put!(out, ",\"text\":", Quoted(text), "}\n\n");
                self.summary("response.reasoning_summary_part.done", index, text, out);
            }
            _ => {}
        }
        if let Part::Text(_) | Part::Refusal(_) = part {
            self.begin_content("response.content_part.done", "content_index", index, out);
            put!(out, ",\"part\":");
            write_content(part, &answer.cited(index), out);
            put!(out, "}\n\n");
        }
        self.begin("response.output_item.done", out);
        put!(out, ",\"output_index\":", index as u64, ",\"item\":");
        let id = self.ids.get(index).map_or("", String::as_str);
        write_item(answer, index, id, out);
        put!(out, "}\n\n");
    }
}
