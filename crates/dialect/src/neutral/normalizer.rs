//! Makes the events of every dialect alike, whatever a provider leaves out or does otherwise.

use super::answer::{AnswerContext, Failure, StopReason};
use super::event::{PartKind, StreamEvent, dropped};
use super::text_tool::TextArgument;
use super::{failure, ids};

/// Limit on the parts of a translated answer: texts, thoughts and tool calls. Real answers have
/// some tens.
pub(crate) const ANSWER_PARTS: usize = 1_024;

/// Passes events from a reader to a writer. It ensures one start, ids of all tool calls, a correct
/// stop reason and one end.
#[derive(Debug)]
pub(crate) struct Normalizer {
    context: AnswerContext,
    /// Whether the client's dialect can carry seals.
    seals: bool,
    /// The id of the answer, once it has started. Missing ids of tool calls are made from it.
    id: Option<String>,
    parts: usize,
    calls: usize,
    refused: bool,
    stopped: bool,
    over: bool,
    failed: bool,
    dropped: Vec<&'static str>,
    /// Open calls of tools that take free text, by part index.
    texts: Vec<(usize, TextArgument)>,
}

impl Normalizer {
    pub(crate) fn new(context: AnswerContext, seals: bool) -> Self {
        Normalizer {
            context,
            seals,
            id: None,
            parts: 0,
            calls: 0,
            refused: false,
            stopped: false,
            over: false,
            failed: false,
            dropped: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Whether the stream has ended. Later events do not belong to the answer.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the stream ended with an error.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(crate) fn dropped(&self) -> &[&'static str] {
        &self.dropped
    }

    pub(crate) fn pass(&mut self, event: StreamEvent<'_>, each: &mut impl FnMut(StreamEvent<'_>)) {
        if self.over {
            return;
        }
        if let StreamEvent::Start { .. } | StreamEvent::Failed(_) | StreamEvent::Dropped(_) = event
        {
        } else {
            self.start("", "", 0, None, each);
        }
        match event {
            StreamEvent::Start { id, model, created, usage } => {
                self.start(id, model, created, usage, each);
            }
            StreamEvent::PartStart { index, part } => self.part(index, part, each),
            StreamEvent::Sealed { .. } if !self.seals => self.drop(dropped::REASONING_SIGNATURES),
            StreamEvent::Stop(stop) => {
                self.stopped = true;
                each(StreamEvent::Stop(self.fitting(stop)));
            }
            StreamEvent::Delta { index, text } if !self.texts.is_empty() => {
                match self.texts.iter_mut().find(|(open, _)| *open == index) {
                    Some((_, argument)) => say(index, &argument.take(text), each),
                    None => each(event),
                }
            }
            StreamEvent::PartEnd { index } if !self.texts.is_empty() => {
                if let Some(at) = self.texts.iter().position(|(open, _)| *open == index) {
                    say(index, &self.texts.remove(at).1.finish(), each);
                }
                each(event);
            }
            StreamEvent::Dropped(name) => self.drop(name),
            StreamEvent::End if !self.stopped => self.fail(failure::ended_early(), each),
            StreamEvent::Failed(failure) => self.fail(failure, each),
            StreamEvent::End => {
                self.over = true;
                each(event);
            }
            event => each(event),
        }
    }

    fn start(
        &mut self,
        id: &str,
        model: &str,
        created: u64,
        usage: Option<super::answer::TokenCounts>,
        each: &mut impl FnMut(StreamEvent<'_>),
    ) {
        if self.id.is_some() {
            return;
        }
        let id = if id.is_empty() { &self.context.id } else { id };
        self.id = Some(id.to_owned());
        each(StreamEvent::Start {
            id,
            model: if model.is_empty() { &self.context.model } else { model },
            created: if created == 0 { self.context.created } else { created },
            usage,
        });
    }

    fn part(&mut self, index: usize, part: PartKind<'_>, each: &mut impl FnMut(StreamEvent<'_>)) {
        self.parts += 1;
        if self.parts > ANSWER_PARTS {
            return self.fail(failure::too_long(), each);
        }
        self.refused |= part == PartKind::Refusal;
        let PartKind::ToolCall { id, name } = part else {
            return each(StreamEvent::PartStart { index, part });
        };
        let number = self.calls;
        self.calls += 1;
        let made;
        let id = if id.is_empty() {
            made = ids::call_id(self.id.as_deref().unwrap_or_default(), number);
            made.as_str()
        } else {
            id
        };
        let part = if self.context.text_tools.iter().any(|tool| tool == name) {
            self.texts.push((index, TextArgument::default()));
            PartKind::TextCall { id, name }
        } else {
            PartKind::ToolCall { id, name }
        };
        each(StreamEvent::PartStart { index, part });
    }

    /// Corrects the stop reason: some providers report a plain end after tool calls or a refusal.
    fn fitting(&self, stop: StopReason) -> StopReason {
        match stop {
            StopReason::End if self.calls > 0 => StopReason::ToolCalls,
            StopReason::End if self.refused => StopReason::Refusal,
            stop => stop,
        }
    }

    fn fail(&mut self, failure: Failure, each: &mut impl FnMut(StreamEvent<'_>)) {
        (self.over, self.failed) = (true, true);
        each(StreamEvent::Failed(failure));
    }

    fn drop(&mut self, name: &'static str) {
        if !self.dropped.contains(&name) {
            self.dropped.push(name);
        }
    }
}

fn say(index: usize, text: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
    if !text.is_empty() {
        each(StreamEvent::Delta { index, text });
    }
}
