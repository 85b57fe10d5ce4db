//! Translates answers, streams and errors of a provider to the client's dialect.

use bytes::Bytes;

use super::Dialect;
use super::messages;
use super::neutral::answer::{Answer, AnswerContext, Failure};
use super::neutral::answer_builder::COLLECT_BYTES;
use super::neutral::event::{StreamEvent, WriteEvents};
use super::neutral::failure;
use super::neutral::normalizer::{AnswerFit, Normalizer};
use super::recorded_answer::{RecordedAnswer, collect};
use super::rows::ClientRules;
use super::stream::StreamTally;

/// The rules of a client's dialect. Clients of other dialects get no translations.
fn client(to: Dialect) -> &'static ClientRules {
    to.row().client.as_ref().unwrap_or(&super::chat::CLIENT)
}

fn fit(to: Dialect) -> AnswerFit {
    AnswerFit { seals: true, joins: client(to).joins }
}

#[derive(Clone, Debug)]
pub struct TranslatedAnswer {
    pub body: Bytes,
    /// Names of parts that the client's dialect cannot represent.
    pub dropped: Vec<String>,
}

/// Translates a whole successful answer. Fails if it is unreadable or contains an error.
pub fn translate_answer(
    from: Dialect,
    to: Dialect,
    body: &[u8],
    context: &AnswerContext,
) -> Result<TranslatedAnswer, Failure> {
    let (answer, dropped) = read_for(from, fit(to), body, context)?;
    let mut out = Vec::with_capacity(body.len() + 1_024);
    (client(to).write_answer)(&answer, &mut out);
    Ok(TranslatedAnswer { body: out.into(), dropped })
}

/// The gateway's own estimate, as an answer to a count in the messages dialect.
pub fn estimated_count(tokens: u64) -> Bytes {
    messages::count(tokens, true)
}

/// Translates a provider's token count to the messages dialect.
pub fn translate_count(from: Dialect, body: &[u8]) -> Result<Bytes, Failure> {
    let tokens = from.row().count.as_ref().and_then(|rules| (rules.read)(body));
    Ok(messages::count(tokens.ok_or_else(failure::unreadable)?, false))
}

/// Reads a whole answer, without those seals that no client gets unless `seals`.
pub fn read_answer(
    from: Dialect,
    seals: bool,
    body: &[u8],
    context: &AnswerContext,
) -> Result<(Answer, Vec<String>), Failure> {
    read_for(from, AnswerFit { seals, joins: false }, body, context)
}

fn read_for(
    from: Dialect,
    fit: AnswerFit,
    body: &[u8],
    context: &AnswerContext,
) -> Result<(Answer, Vec<String>), Failure> {
    let RecordedAnswer { answer, failure, dropped } = collect(from, body, false, fit, context);
    failure.map_or(Ok((answer, dropped)), Err)
}

/// Translates the body of an error answer. The status is unchanged.
pub fn translate_error(to: Dialect, status: u16, body: &[u8]) -> Bytes {
    error_body(to, &failure::read(status, body))
}

pub fn error_body(to: Dialect, failure: &Failure) -> Bytes {
    let mut out = Vec::new();
    (client(to).write_failure)(failure, &mut out);
    out.into()
}

/// Translates a stream of server-sent events as it arrives.
#[derive(Debug)]
pub struct StreamTranslator {
    tally: StreamTally,
    normalizer: Normalizer,
    writer: Box<dyn WriteEvents>,
}

impl StreamTranslator {
    pub fn new(from: Dialect, to: Dialect, context: AnswerContext) -> Self {
        let writer = (client(to).writer)(&context);
        StreamTranslator {
            // The last event of a stream of responses contains the whole answer.
            tally: StreamTally::reading(from, COLLECT_BYTES),
            normalizer: Normalizer::new(context, fit(to)),
            writer,
        }
    }

    /// Takes bytes of the provider in chunks of any size, and appends their translation to `out`.
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let StreamTranslator { tally, normalizer, writer } = self;
        tally.read(chunk, &mut |event| translate(event, normalizer, &mut **writer, out));
    }

    /// Ends the stream. If it is incomplete, the client gets an error event.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let StreamTranslator { tally, normalizer, writer } = self;
        tally.finish_read(&mut |event| translate(event, normalizer, &mut **writer, out));
        self.break_off(out);
    }

    /// Ends a stream that broke off. The client gets an error event.
    pub fn break_off(&mut self, out: &mut Vec<u8>) {
        self.fail(failure::ended_early(), out);
    }

    /// Ends the stream because the limit on bodies in memory is reached.
    pub fn give_up(&mut self, out: &mut Vec<u8>) {
        self.fail(failure::no_memory(), out);
    }

    fn fail(&mut self, failure: Failure, out: &mut Vec<u8>) {
        let StreamTranslator { normalizer, writer, .. } = self;
        translate(StreamEvent::Failed(failure), normalizer, &mut **writer, out);
    }

    /// The counts of the provider's stream.
    pub fn tally(&self) -> &StreamTally {
        &self.tally
    }

    /// Whether the stream has ended, well or badly. Nothing follows.
    pub fn is_over(&self) -> bool {
        self.normalizer.is_over()
    }

    pub fn has_failed(&self) -> bool {
        self.normalizer.has_failed()
    }

    /// Bytes held in memory: incomplete events, and content that the writer needs later.
    pub fn held(&self) -> usize {
        self.tally.held() + self.writer.held()
    }

    /// Names of the parts so far that the client's dialect cannot represent.
    pub fn dropped(&self) -> &[String] {
        self.normalizer.dropped()
    }
}

/// Writes an event. What the answer lost is told before its end, in a comment: clients ignore it.
fn translate(
    event: StreamEvent<'_>,
    normalizer: &mut Normalizer,
    writer: &mut dyn WriteEvents,
    out: &mut Vec<u8>,
) {
    if normalizer.is_over() {
        return;
    }
    if let StreamEvent::End = event
        && !normalizer.dropped().is_empty()
    {
        let names = normalizer.dropped().join(", ");
        out.extend_from_slice(format!(": x-rerouter-dropped: {names}\n\n").as_bytes());
    }
    normalizer.pass(event, &mut |event| writer.write(event, out));
}

#[cfg(test)]
#[path = "translate_cases_tests.rs"]
mod cases;
#[cfg(test)]
#[path = "translate_answer_tests.rs"]
mod tests;
