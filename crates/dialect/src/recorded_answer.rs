//! Reads captured answers for display. Content before a failure is kept.

use super::Dialect;
use super::neutral::answer::{Answer, AnswerContext, Failure};
use super::neutral::answer_builder::AnswerBuilder;
use super::neutral::event::StreamEvent;
use super::neutral::normalizer::Normalizer;
use super::neutral::{failure, size};
use super::translate_answer::{StreamReader, read_whole};
use crate::neutral::answer_builder::COLLECT_BYTES;
use crate::wire::sse::Splitter;

/// An answer as far as it can be read.
#[derive(Debug, Default)]
pub struct RecordedAnswer {
    pub answer: Answer,
    /// The reason why the answer is incomplete.
    pub failure: Option<Failure>,
    /// Names of parts that the neutral form cannot represent.
    pub dropped: Vec<&'static str>,
}

/// Collects events until the limits of an answer are exceeded.
struct EventCollector {
    normalizer: Normalizer,
    builder: AnswerBuilder,
    full: Option<Failure>,
}

impl EventCollector {
    fn take(&mut self, event: StreamEvent<'_>) {
        let EventCollector { normalizer, builder, full } = self;
        normalizer.pass(event, &mut |event| {
            if full.is_none() {
                *full = builder.take(&event).err();
            }
        });
    }
}

/// Reads a model's answer in this dialect. An error in place of an answer becomes `failure`.
pub fn read_recorded(from: Dialect, body: &[u8], is_stream: bool) -> RecordedAnswer {
    let mut collector = EventCollector {
        normalizer: Normalizer::new(AnswerContext::default(), false),
        builder: AnswerBuilder::default(),
        full: None,
    };
    if is_stream {
        let (mut splitter, mut reader) =
            (Splitter::with_limit(COLLECT_BYTES), StreamReader::new(from));
        splitter.feed(body, |event| reader.read(event, &mut |event| collector.take(event)));
        splitter.finish(|event| reader.read(event, &mut |event| collector.take(event)));
        reader.end(&mut |event| collector.take(event));
        // Ignored if the stream has ended properly.
        collector.take(StreamEvent::Failed(failure::ended_early()));
    } else {
        match std::str::from_utf8(body) {
            _ if size::is_too_large(body) => {
                collector.take(StreamEvent::Failed(failure::too_long()));
            }
            Ok(text) => read_whole(from, text, &mut |event| collector.take(event)),
            Err(_) => collector.take(StreamEvent::Failed(failure::unreadable())),
        }
    }
    let dropped = collector.normalizer.dropped().to_vec();
    let (answer, failed) = collector.builder.so_far();
    RecordedAnswer { answer, failure: collector.full.or(failed), dropped }
}
