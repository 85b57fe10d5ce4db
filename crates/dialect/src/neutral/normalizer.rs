//! Makes the events of every dialect alike, whatever a provider leaves out or does otherwise.

use super::answer::{AnswerContext, Failure, StopReason};
use super::event::{Each, Lost, PartKind, StreamEvent};
use super::text_tool::TextArgument;
use super::{failure, ids};
use crate::members::printable;
use crate::usage_object::PartialUsage;

/// Limit on the parts of a translated answer: texts, thoughts and tool calls. Real answers have
/// some tens.
pub(crate) const ANSWER_PARTS: usize = 1_024;

/// Limit on the bytes of a name that no reader knows. Real ones are shorter.
const UNKNOWN_NAME: usize = 48;

/// Limit on the names of what an answer loses. The last one is `more`.
const DROPPED_NAMES: usize = 32;

/// What an answer is read for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerFit {
    /// Seals of thinking are kept.
    pub(crate) seals: bool,
    /// All texts become one, so messages need a break between them.
    pub(crate) joins: bool,
}

/// Passes events from a reader to a writer. It ensures one start, ids of all tool calls, a correct
/// stop reason and one end.
#[derive(Debug, Default)]
pub(crate) struct Normalizer {
    context: AnswerContext,
    fit: AnswerFit,
    /// The id of the answer, once it has started. Missing ids of tool calls are made from it.
    id: Option<String>,
    parts: usize,
    calls: usize,
    refused: bool,
    stopped: bool,
    over: bool,
    failed: bool,
    dropped: Vec<String>,
    has_text: bool,
    /// The next text begins a message of its own, and another one came before.
    breaks: bool,
    /// The last part that begins with such a break.
    broken: Option<usize>,
    /// Open calls of tools that take free text, by part index.
    texts: Vec<(usize, TextArgument)>,
}

impl Normalizer {
    pub(crate) fn new(context: AnswerContext, fit: AnswerFit) -> Self {
        Normalizer { context, fit, ..Normalizer::default() }
    }

    /// Whether the stream has ended. Later events do not belong to the answer.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(crate) fn dropped(&self) -> &[String] {
        &self.dropped
    }

    pub(crate) fn pass(&mut self, event: StreamEvent<'_>, each: Each<'_>) {
        if self.over {
            return;
        }
        let event = match event {
            StreamEvent::Start { id, model, created, usage } => {
                let unknown = usage.into_iter().flat_map(PartialUsage::unknown);
                unknown.for_each(|name| self.drop_unknown("usage.", name));
                return self.start(id, model, created, usage, each);
            }
            StreamEvent::TooLong => return self.fail(failure::too_long(), each),
            StreamEvent::Failed(failure) => return self.fail(failure, each),
            StreamEvent::Dropped(lost) => return self.drop(lost.word()),
            StreamEvent::Choices(choices) => {
                return if choices.begun & !1 != 0 {
                    self.drop(Lost::Choices.word())
                };
            }
            StreamEvent::Unknown { path, names } => {
                return names.iter().for_each(|name| self.drop_unknown(path, name));
            }
            StreamEvent::Usage { told, .. } => {
                told.unknown().for_each(|name| self.drop_unknown("usage.", name));
                event
            }
            StreamEvent::Sequence(_) | StreamEvent::Working => return,
            StreamEvent::NextMessage => {
                self.breaks = self.has_text;
                return;
            }
            event => event,
        };
        self.start("", "", 0, None, each);
        match event {
            StreamEvent::PartStart { index, part } => self.part(index, part, each),
            StreamEvent::Cited { index, mut citation } if self.broken == Some(index) => {
                let behind = |at: u64| at.saturating_add(2);
                citation.span = citation.span.map(|(start, end)| (behind(start), behind(end)));
                each(StreamEvent::Cited { index, citation });
            }
            StreamEvent::Sealed { .. } if !self.fit.seals => {
                self.drop(Lost::ReasoningSignatures.word());
            }
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
            StreamEvent::End if !self.stopped => self.fail(failure::ended_early(), each),
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
        usage: Option<&PartialUsage>,
        each: Each<'_>,
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

    fn part(&mut self, index: usize, part: PartKind<'_>, each: Each<'_>) {
        self.parts += 1;
        if self.parts > ANSWER_PARTS {
            return self.fail(failure::too_long(), each);
        }
        self.refused |= part == PartKind::Refusal;
        let (PartKind::ToolCall { id, name } | PartKind::TextCall { id, name }) = part else {
            each(StreamEvent::PartStart { index, part });
            if part == PartKind::Text {
                self.has_text = true;
                if std::mem::take(&mut self.breaks) && self.fit.joins {
                    self.broken = Some(index);
                    say(index, "\n\n", each);
                }
            }
            return;
        };
        let answer = self.id.as_deref().unwrap_or_default();
        let made = id.is_empty().then(|| ids::call_id(answer, self.calls));
        let id = made.as_deref().unwrap_or(id);
        self.calls += 1;
        let mut long = self.context.namespaced.iter().filter(|(_, [space, _])| space.is_empty());
        let name = long.find(|(short, _)| short == name).map_or(name, |(_, [_, long])| long);
        let is_asked_as_text = self.context.text_tools.iter().any(|tool| tool == name);
        let part = match part {
            PartKind::ToolCall { .. } if is_asked_as_text => {
                self.texts.push((index, TextArgument::default()));
                PartKind::TextCall { id, name }
            }
            PartKind::ToolCall { .. } => PartKind::ToolCall { id, name },
            _ => PartKind::TextCall { id, name },
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

    fn fail(&mut self, failure: Failure, each: Each<'_>) {
        (self.over, self.failed) = (true, true);
        each(StreamEvent::Failed(failure));
    }

    fn drop(&mut self, name: &str) {
        let is_new = !self.dropped.iter().any(|known| known == name);
        match self.dropped.len() {
            DROPPED_NAMES.. => {}
            _ if !is_new => {}
            number => {
                let name = if number + 1 == DROPPED_NAMES { "more" } else { name };
                self.dropped.push(name.to_owned());
            }
        }
    }

    fn drop_unknown(&mut self, path: &str, name: &str) {
        // A long name may be text of the model.
        let name = if name.len() > UNKNOWN_NAME { "long_name" } else { name };
        self.drop(&printable(&format!("{path}{name}")));
    }
}

fn say(index: usize, text: &str, each: Each<'_>) {
    if !text.is_empty() {
        each(StreamEvent::Delta { index, text });
    }
}
