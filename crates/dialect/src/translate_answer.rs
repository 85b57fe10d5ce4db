//! Translates answers, streams and errors of a provider to the client's dialect.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::chat::stream_reader::ChatStreamReader;
use super::chat::stream_writer::ChatStreamWriter;
use super::gemini::stream_reader::GeminiStreamReader;
use super::messages::stream_reader::MessagesStreamReader;
use super::messages::stream_writer::MessagesStreamWriter;
use super::neutral::answer::{Answer, AnswerContext, Failure};
use super::neutral::answer_builder::AnswerBuilder;
use super::neutral::event::StreamEvent;
use super::neutral::failure;
use super::neutral::normalizer::Normalizer;
use super::neutral::size;
use super::responses::stream_reader::ResponsesStreamReader;
use super::responses::stream_writer::ResponsesStreamWriter;
use super::{Dialect, chat, gemini, messages, responses};
use crate::neutral::answer_builder::COLLECT_BYTES;
use crate::wire::sse::{self, Splitter, SseEvent};

/// Whether the client's dialect has a field that can carry another dialect's seal.
fn has_seals(client: Dialect) -> bool {
    matches!(client, Dialect::Messages | Dialect::Responses)
}

/// A whole answer in the client's dialect.
#[derive(Clone, Debug)]
pub struct TranslatedAnswer {
    pub body: Bytes,
    /// Names of parts that the client's dialect cannot represent.
    pub dropped: Vec<&'static str>,
}

/// Translates a whole successful answer. Fails if it is unreadable or contains an error.
pub fn translate_answer(
    from: Dialect,
    to: Dialect,
    body: &[u8],
    context: &AnswerContext,
) -> Result<TranslatedAnswer, Failure> {
    let (answer, dropped) = read_answer(from, has_seals(to), body, context)?;
    let mut out = Vec::with_capacity(body.len() + 1_024);
    match to {
        Dialect::Messages => messages::answer_writer::write(&answer, &mut out),
        Dialect::Responses => responses::answer_writer::write(&answer, &mut out),
        // No other dialect has clients whose answers are translated.
        _ => chat::answer_writer::write(&answer, &mut out),
    }
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

/// Reads a whole answer. `seals` tells whether seals are kept.
pub fn read_answer(
    from: Dialect,
    seals: bool,
    body: &[u8],
    context: &AnswerContext,
) -> Result<(Answer, Vec<&'static str>), Failure> {
    if size::is_too_large(body) {
        return Err(failure::too_long());
    }
    let text = std::str::from_utf8(body).map_err(|_| failure::unreadable())?;
    let (mut builder, mut full) = (AnswerBuilder::default(), Ok(()));
    let mut normalizer = Normalizer::new(context.clone(), seals);
    read_whole(from, text, &mut |event| {
        normalizer.pass(event, &mut |event| {
            if full.is_ok() {
                full = builder.take(&event);
            }
        });
    });
    full?;
    Ok((builder.finish()?, normalizer.dropped().to_vec()))
}

/// Reads a whole answer as neutral events.
pub(super) fn read_whole(from: Dialect, text: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
    match from {
        Dialect::Messages => messages::answer_reader::read(text, each),
        Dialect::Responses => responses::answer_reader::read(text, each),
        Dialect::Gemini => gemini::answer_reader::read(text, each),
        // Embeddings are never translated.
        Dialect::Chat | Dialect::Embeddings => chat::answer_reader::read(text, each),
    }
}

/// Translates the body of an error answer. The status is unchanged.
pub fn translate_error(to: Dialect, status: u16, body: &[u8]) -> Bytes {
    error_body(to, &failure::read(status, body))
}

/// The body of an error in the client's dialect.
pub fn error_body(to: Dialect, failure: &Failure) -> Bytes {
    let mut out = Vec::new();
    match to {
        Dialect::Messages => messages::failure::write(failure, &mut out),
        _ => chat::failure::write(failure, &mut out),
    }
    out.into()
}

#[derive(Debug)]
pub(super) enum StreamReader {
    Chat(ChatStreamReader),
    Messages(MessagesStreamReader),
    Responses(ResponsesStreamReader),
    Gemini(GeminiStreamReader),
}

impl StreamReader {
    pub(super) fn new(from: Dialect) -> Self {
        match from {
            Dialect::Messages => StreamReader::Messages(MessagesStreamReader::default()),
            Dialect::Responses => StreamReader::Responses(ResponsesStreamReader::default()),
            Dialect::Gemini => StreamReader::Gemini(GeminiStreamReader::default()),
            Dialect::Chat | Dialect::Embeddings => StreamReader::Chat(ChatStreamReader::default()),
        }
    }

    fn event(&mut self, data: &str, each: &mut impl FnMut(StreamEvent<'_>)) {
        match self {
            StreamReader::Chat(reader) => reader.event(data, each),
            StreamReader::Messages(reader) => reader.event(data, each),
            StreamReader::Responses(reader) => reader.event(data, each),
            StreamReader::Gemini(reader) => reader.event(data, each),
        }
    }

    /// Reads an event into neutral events.
    pub(super) fn read(&mut self, event: SseEvent<'_>, each: &mut impl FnMut(StreamEvent<'_>)) {
        let data = match event {
            SseEvent::Whole(bytes) => sse::fields(bytes).data,
            // A last event without its blank line may be truncated.
            SseEvent::Rest(bytes) => sse::fields(bytes).data.filter(|data| is_whole(data)),
            SseEvent::Piece(_) => return each(StreamEvent::Failed(failure::too_long())),
        };
        let Some(data) = data else { return };
        match std::str::from_utf8(&data) {
            _ if size::is_too_large(&data) => each(StreamEvent::Failed(failure::too_long())),
            Ok(data) => self.event(data, each),
            Err(_) => each(StreamEvent::Failed(failure::unreadable())),
        }
    }

    pub(super) fn end(&mut self, each: &mut impl FnMut(StreamEvent<'_>)) {
        match self {
            StreamReader::Chat(reader) => reader.end(each),
            StreamReader::Gemini(reader) => reader.end(each),
            // Streams of these dialects have a last event.
            StreamReader::Messages(_) | StreamReader::Responses(_) => {}
        }
    }

    fn held(&self) -> usize {
        match self {
            StreamReader::Chat(reader) => reader.held(),
            StreamReader::Messages(reader) => reader.held(),
            StreamReader::Responses(_) | StreamReader::Gemini(_) => 0,
        }
    }
}

#[derive(Debug)]
enum StreamWriter {
    Chat(ChatStreamWriter),
    Messages(MessagesStreamWriter),
    Responses(Box<ResponsesStreamWriter>),
}

impl StreamWriter {
    fn new(to: Dialect, include_usage: bool) -> Self {
        match to {
            Dialect::Messages => StreamWriter::Messages(MessagesStreamWriter::default()),
            Dialect::Responses => StreamWriter::Responses(Box::default()),
            _ => StreamWriter::Chat(ChatStreamWriter::new(include_usage)),
        }
    }

    fn write(&mut self, event: StreamEvent<'_>, out: &mut Vec<u8>) {
        match self {
            StreamWriter::Chat(writer) => writer.write(event, out),
            StreamWriter::Messages(writer) => writer.write(event, out),
            StreamWriter::Responses(writer) => writer.write(event, out),
        }
    }

    fn held(&self) -> usize {
        match self {
            StreamWriter::Chat(_) => 0,
            StreamWriter::Messages(writer) => writer.held(),
            StreamWriter::Responses(writer) => writer.held(),
        }
    }
}

/// Translates a stream of server-sent events as it arrives.
#[derive(Debug)]
pub struct StreamTranslator {
    splitter: Splitter,
    reader: StreamReader,
    normalizer: Normalizer,
    writer: StreamWriter,
}

impl StreamTranslator {
    pub fn new(from: Dialect, to: Dialect, context: AnswerContext) -> Self {
        let include_usage = context.include_usage;
        StreamTranslator {
            // The last event of a stream of responses contains the whole answer.
            splitter: Splitter::with_limit(COLLECT_BYTES),
            reader: StreamReader::new(from),
            normalizer: Normalizer::new(context, has_seals(to)),
            writer: StreamWriter::new(to, include_usage),
        }
    }

    /// Takes bytes of the provider in chunks of any size, and appends their translation to `out`.
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        let StreamTranslator { splitter, reader, normalizer, writer } = self;
        splitter.feed(chunk, |event| translate_event(event, reader, normalizer, writer, out));
    }

    /// Ends the stream. If it is incomplete, the client gets an error event.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let StreamTranslator { splitter, reader, normalizer, writer } = self;
        splitter.finish(|event| translate_event(event, reader, normalizer, writer, out));
        reader.end(&mut |event| normalizer.pass(event, &mut |event| writer.write(event, out)));
        self.break_off(out);
    }

    /// Ends a stream that broke off. The client gets an error event.
    pub fn break_off(&mut self, out: &mut Vec<u8>) {
        let StreamTranslator { normalizer, writer, .. } = self;
        let early = StreamEvent::Failed(failure::ended_early());
        normalizer.pass(early, &mut |event| writer.write(event, out));
    }

    /// Whether the stream has ended, well or badly. Nothing follows.
    pub fn is_over(&self) -> bool {
        self.normalizer.is_over()
    }

    /// Whether the stream ended with an error.
    pub fn has_failed(&self) -> bool {
        self.normalizer.has_failed()
    }

    /// Ends the stream because the limit on bodies in memory is reached.
    pub fn give_up(&mut self, out: &mut Vec<u8>) {
        let StreamTranslator { normalizer, writer, .. } = self;
        let full = StreamEvent::Failed(failure::no_memory());
        normalizer.pass(full, &mut |event| writer.write(event, out));
    }

    /// Bytes held in memory: incomplete events, and content that the writer needs later.
    pub fn held(&self) -> usize {
        self.splitter.held() + self.reader.held() + self.writer.held()
    }

    /// Names of the parts so far that the client's dialect cannot represent.
    pub fn dropped(&self) -> &[&'static str] {
        self.normalizer.dropped()
    }
}

fn translate_event(
    event: SseEvent<'_>,
    reader: &mut StreamReader,
    normalizer: &mut Normalizer,
    writer: &mut StreamWriter,
    out: &mut Vec<u8>,
) {
    if !normalizer.is_over() {
        reader.read(event, &mut |event| {
            normalizer.pass(event, &mut |event| writer.write(event, out));
        });
    }
}

fn is_whole(data: &[u8]) -> bool {
    data == b"[DONE]" || serde_json::from_slice::<&RawValue>(data).is_ok()
}

#[cfg(test)]
#[path = "translate_cases_tests.rs"]
mod cases;
#[cfg(test)]
#[path = "translate_answer_tests.rs"]
mod tests;
