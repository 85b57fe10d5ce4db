//! Collects the events of a stream into a whole answer.

use super::answer::{Answer, AnswerContext, Citation, Failure};
use super::event::{PartKind, StreamEvent};
use super::failure;
use super::part::{Part, Thinking, ToolCall};
use crate::usage_object::PartialUsage;

/// Limit on the bytes of an answer that is held in memory for a reroute or a translation.
pub const COLLECT_BYTES: usize = 32 << 20;

#[derive(Debug, Default)]
pub(crate) struct AnswerBuilder {
    answer: Answer,
    bytes: usize,
    failed: Option<Failure>,
}

impl AnswerBuilder {
    pub(crate) fn new(context: &AnswerContext) -> Self {
        let namespaced = context.namespaced.clone();
        let answer = Answer { namespaced, ..Answer::default() };
        AnswerBuilder { answer, ..AnswerBuilder::default() }
    }

    /// Fails if the answer exceeds [`COLLECT_BYTES`].
    pub(crate) fn take(&mut self, event: &StreamEvent<'_>) -> Result<(), Failure> {
        let answer = &mut self.answer;
        match event {
            StreamEvent::Start { id, model, created, usage } => {
                answer.id = (*id).to_owned();
                answer.model = (*model).to_owned();
                answer.created = *created;
                answer.usage = usage.map(PartialUsage::token_counts);
            }
            StreamEvent::PartStart { part, .. } => {
                self.bytes += size_of::<Part>();
                answer.content.push(started(*part));
            }
            StreamEvent::Delta { index, text } => {
                self.bytes += text.len();
                match answer.content.get_mut(*index) {
                    Some(Part::Text(whole) | Part::Refusal(whole)) => whole.push_str(text),
                    Some(Part::Thinking(thinking)) => thinking.text.push_str(text),
                    Some(Part::ToolCall(call) | Part::TextCall(call)) => {
                        call.arguments.push_str(text);
                    }
                    _ => {}
                }
            }
            StreamEvent::Sealed { index, seal } => {
                if let Some(Part::Thinking(thinking)) = answer.content.get_mut(*index) {
                    self.bytes += seal.value.to_string().len();
                    thinking.seal = Some(seal.clone());
                }
            }
            StreamEvent::Cited { index, citation } => {
                let Citation { url, title, quote, .. } = citation;
                self.bytes += size_of::<Citation>() + url.len() + title.len() + quote.len();
                answer.citations.push((*index, citation.clone()));
            }
            StreamEvent::Stop(stop) => answer.stop = stop.clone(),
            StreamEvent::Usage { told, .. } => answer.usage = Some(told.token_counts()),
            StreamEvent::Failed(failure) => self.failed = Some(failure.clone()),
            _ => {}
        }
        if self.bytes > COLLECT_BYTES { Err(failure::too_long()) } else { Ok(()) }
    }

    /// Approximate memory use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The answer so far, and the failure that ended it, if any.
    pub(crate) fn so_far(self) -> (Answer, Option<Failure>) {
        (self.answer, self.failed)
    }
}

fn started(part: PartKind<'_>) -> Part {
    match part {
        PartKind::Text => Part::Text(String::new()),
        PartKind::Refusal => Part::Refusal(String::new()),
        PartKind::Thinking => Part::Thinking(Thinking { text: String::new(), seal: None }),
        PartKind::ToolCall { id, name } => Part::ToolCall(called(id, name)),
        PartKind::TextCall { id, name } => Part::TextCall(called(id, name)),
    }
}

fn called(id: &str, name: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: String::new() }
}
