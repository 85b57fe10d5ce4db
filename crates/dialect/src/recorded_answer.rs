//! Reads captured answers. Content before a failure is kept.

use serde_json::Value;

use super::Dialect;
use super::chat::CLIENT;
use super::neutral::answer::{Answer, AnswerContext, Failure};
use super::neutral::answer_builder::{AnswerBuilder, COLLECT_BYTES};
use super::neutral::event::{StreamEvent, Unreadable};
use super::neutral::normalizer::{AnswerFit, Normalizer};
use super::neutral::{failure, size};
use super::rows::ClientRules;
use super::stream::StreamTally;

/// An answer as far as it can be read.
#[derive(Debug, Default)]
pub struct RecordedAnswer {
    pub answer: Answer,
    /// The reason why the answer is incomplete.
    pub failure: Option<Failure>,
    /// Names of parts that the neutral form cannot represent.
    pub dropped: Vec<String>,
}

/// Reads a model's answer in this dialect. An error in place of an answer becomes `failure`.
pub fn read_recorded(from: Dialect, body: &[u8], is_stream: bool) -> RecordedAnswer {
    collect(from, body, is_stream, AnswerFit::default(), &AnswerContext::default())
}

/// Assembles the answer of a recorded stream: as its last event repeats it, else from what the
/// neutral form has. Then the member `x_rerouter_dropped` names what is left out. `null` if no
/// client speaks the dialect.
pub fn assemble(dialect: impl Into<Dialect>, stream: &[u8]) -> Value {
    let dialect = dialect.into();
    let Some(rules) = &dialect.row().client else { return Value::Null };
    if let Some(whole) = (rules.last_event)(stream) {
        return whole;
    }
    let fit = AnswerFit { seals: true, joins: false };
    written(collect(dialect, stream, true, fit, &AnswerContext::default()), rules)
}

/// Reads an answer in this dialect as a chat completion; `None` if it cannot be read.
pub fn as_completion(from: Dialect, body: &[u8], is_stream: bool) -> Option<Value> {
    let fit = AnswerFit { seals: true, joins: true };
    let read = collect(from, body, is_stream, fit, &AnswerContext::default());
    let has_failed =
        read.failure.as_ref().is_some_and(|failure| *failure != failure::ended_early());
    (!has_failed).then(|| written(read, &CLIENT))
}

/// Writes an answer with its error, without what it does not tell.
fn written(read: RecordedAnswer, rules: &ClientRules) -> Value {
    let value = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        serde_json::from_slice::<Value>(&out).unwrap_or_default()
    };
    let RecordedAnswer { answer, failure, dropped } = read;
    let mut whole = value(&|out| (rules.write_answer)(&answer, out));
    if let Value::Object(members) = &mut whole {
        // The provider's own id, without a prefix of this dialect.
        members.insert("id".to_owned(), answer.id.as_str().into());
        for (is_told, name) in [
            (!answer.id.is_empty(), "id"),
            (!answer.model.is_empty(), "model"),
            (answer.created > 0, "created"),
            (answer.created > 0, "created_at"),
            (answer.usage.is_some(), "usage"),
        ] {
            members.retain(|member, _| is_told || member != name);
        }
        if let Some(failure) = failure.filter(|failure| *failure != failure::ended_early()) {
            let mut error = value(&|out| (rules.write_failure)(&failure, out));
            members.extend(error.get_mut("error").map(|error| ("error".to_owned(), error.take())));
        }
        if !dropped.is_empty() {
            members.insert("x_rerouter_dropped".to_owned(), dropped.into());
        }
    }
    whole
}

/// Collects an answer until its limits are exceeded.
pub(super) fn collect(
    from: Dialect,
    body: &[u8],
    is_stream: bool,
    fit: AnswerFit,
    context: &AnswerContext,
) -> RecordedAnswer {
    let mut normalizer = Normalizer::new(context.clone(), fit);
    let (mut builder, mut full) = (AnswerBuilder::new(context), None);
    let mut take = |event: StreamEvent<'_>| {
        normalizer.pass(event, &mut |event| {
            if full.is_none() {
                full = builder.take(&event).err();
            }
        });
    };
    if is_stream {
        let mut tally = StreamTally::reading(from, COLLECT_BYTES);
        tally.read(body, &mut take);
        tally.finish_read(&mut take);
        // Ignored if the stream has ended properly.
        take(StreamEvent::Failed(failure::ended_early()));
    } else if size::is_too_large(body) {
        take(StreamEvent::TooLong);
    } else {
        let text = std::str::from_utf8(body).map_err(|_| Unreadable);
        if text.and_then(|text| (from.row().read_whole)(text, &mut take)).is_err() {
            take(StreamEvent::Failed(failure::unreadable()));
        }
    }
    let dropped = normalizer.dropped().to_vec();
    let (answer, failed) = builder.so_far();
    RecordedAnswer { answer, failure: full.or(failed), dropped }
}
