//! Properties that hold for any bytes: for libFuzzer (`tests/fuzz/run`), and in `cargo test` over
//! seeds and mutations of them.

use std::io::Read;

use bytes::Bytes;
use rerouter::internals::dialect::Dialect;
use rerouter::internals::dialect::agent::{self, AgentPreset};
use rerouter::internals::dialect::chat::usage_strip::UsageStrip;
use rerouter::internals::dialect::endpoint::Endpoint;
use rerouter::internals::dialect::neutral::{Answer, AnswerContext, Part, Request};
use rerouter::internals::dialect::recorded_answer::assemble;
use rerouter::internals::dialect::request::{self, ModelRequest};
use rerouter::internals::dialect::request_translation::{
    read_request as read_neutral, write_request,
};
use rerouter::internals::dialect::stream::StreamTally;
use rerouter::internals::dialect::translate_answer::{
    StreamTranslator, read_answer, translate_answer, translate_error,
};
use rerouter::internals::wire::coding::{Coding, Decoder};
use rerouter::internals::wire::sse::{Splitter, SseEvent};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub mod lenient;

/// Bytes are the body of a request. Reading it fails only with 400, and each edit changes only what
/// it should.
pub fn edits(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    Endpoint::ALL.into_iter().for_each(|endpoint| edits_of(endpoint, &body));
}

fn edits_of(endpoint: Endpoint, body: &Bytes) {
    let request = match request::read_request(body, endpoint) {
        Ok(request) => request,
        Err(error) => return assert_eq!(error.status().as_u16(), 400),
    };
    request::last_user_text(body, &request);
    lenient::never_bills_more(endpoint, body, &request);
    // A lone surrogate is valid JSON, but no `String` can hold it.
    let Ok(before) = serde_json::from_slice::<Value>(body) else { return };
    assert_eq!(before["model"].as_str(), Some(&*request.model));

    let renamed = request::rename_model(body, &request.model_span, "an\"other", None);
    let mut expected = before.clone();
    expected["model"] = "an\"other".into();
    assert_eq!(serde_json::from_slice::<Value>(&renamed).unwrap(), expected);
    assert!(
        renamed.starts_with(&body[..request.model_span.start])
            && renamed.ends_with(&body[request.model_span.end..])
    );
    let same = request::rename_model(body, &request.model_span, &request.model, None);
    assert_eq!(same.len(), body.len() - request.model_span.len() + quoted(&request));

    let without = request::without_stream(body).expect("what was read is read again");
    let mut expected = before.clone();
    let members = expected.as_object_mut().unwrap();
    members.shift_remove("stream");
    members.shift_remove("stream_options");
    assert_eq!(serde_json::from_slice::<Value>(&without).unwrap(), expected);

    through_an_agent(endpoint, body, &request, &before);
    let Some(ask) = &request.ask_usage else { return };
    assert!(request.stream && !request.include_usage);
    let asking = request::rename_model(body, &request.model_span, &request.model, Some(ask));
    let mut expected = before;
    if !expected["stream_options"].is_object() {
        expected["stream_options"] = serde_json::json!({});
    }
    expected["stream_options"]["include_usage"] = true.into();
    assert_eq!(serde_json::from_slice::<Value>(&asking).unwrap(), expected);
    let again = request::read_request(&asking, Endpoint::ChatCompletions)
        .expect("what was read is read again");
    assert!(again.include_usage && again.ask_usage.is_none());
    assert_eq!(
        (again.model, again.prompt_tokens, again.messages),
        (request.model, request.prompt_tokens, request.messages)
    );
}

/// What an agent adds leaves the rest unchanged, or the request is refused with 400.
fn through_an_agent(endpoint: Endpoint, body: &Bytes, request: &ModelRequest, before: &Value) {
    let defaults = json!({"temperature": 0.5, "stop": "END", "max_tokens": 9});
    let tools = [json!({"type": "function", "function": {"name": "look"}})];
    let preset = AgentPreset {
        model: "auto",
        instructions: Some("Be \"brief\"."),
        defaults: defaults.as_object().unwrap(),
        tools: &tools,
    };
    let made = match agent::apply(&preset, endpoint, body, &request.model_span) {
        Ok(made) => made,
        Err(error) => return assert_eq!(error.status().as_u16(), 400),
    };
    let after = serde_json::from_slice::<Value>(&made).unwrap();
    assert_eq!(after["model"], "auto");
    let touched = ["model", "messages", "system", "instructions", "tools"];
    for (name, value) in
        before.as_object().unwrap().iter().filter(|(name, _)| !touched.contains(&name.as_str()))
    {
        assert_eq!(&after[name], value, "{name}");
    }
}

fn quoted(request: &ModelRequest) -> usize {
    Value::from(&*request.model).to_string().len()
}

/// Splits off the first byte, which is the size of pieces less one.
fn pieces(data: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = data.split_first()?;
    Some((usize::from(*first) + 1, rest))
}

/// Bytes are a stream of events. However the stream is cut, the same events are found and counted,
/// and nothing is lost.
pub fn events(data: &[u8]) {
    let Some((size, stream)) = pieces(data) else { return };
    for limit in [64, 1 << 20] {
        assert_eq!(split(stream, stream.len().max(1), limit), split(stream, size, limit));
    }
    for endpoint in [Endpoint::Responses, Endpoint::Messages] {
        counted(endpoint, stream, size);
    }
    let whole = counted(Endpoint::ChatCompletions, stream, size);
    let (mut strip, mut strip_cut) = (UsageStrip::default(), UsageStrip::default());
    let mut left = strip.feed(stream).to_vec();
    let mut left_cut = Vec::new();
    for piece in stream.chunks(size) {
        left_cut.extend_from_slice(&strip_cut.feed(piece));
    }
    left.extend_from_slice(&strip.finish());
    left_cut.extend_from_slice(&strip_cut.finish());
    assert_eq!(left, left_cut);
    if left.len() == stream.len() {
        assert_eq!(left, stream);
    } else {
        // Only a usage event is removed, after it was counted, and an event that was cut.
        let (mut splitter, mut is_cut) = (Splitter::default(), false);
        splitter.feed(stream, |_| {});
        splitter.finish(|event| is_cut = event.is_cut());
        assert!(left.len() < stream.len() && (is_cut || whole.usage().is_some()));
    }
}

/// The counts of a stream, which are the same however it is cut.
fn counted(endpoint: Endpoint, stream: &[u8], size: usize) -> StreamTally {
    let (mut whole, mut cut) = (StreamTally::new(endpoint), StreamTally::new(endpoint));
    whole.feed(stream);
    stream.chunks(size).for_each(|piece| cut.feed(piece));
    whole.finish();
    cut.finish();
    assert_eq!(
        (whole.verdict(), whole.usage(), whole.finished()),
        (cut.verdict(), cut.usage(), cut.finished())
    );
    assert_eq!(
        (whole.error(), whole.usage_or_estimate(9)),
        (cut.error(), cut.usage_or_estimate(9))
    );
    assemble(endpoint, stream);
    whole
}

fn split(stream: &[u8], size: usize, limit: usize) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::with_limit(limit);
    let (mut events, mut all) = (Vec::new(), Vec::new());
    let mut take = |event: SseEvent<'_>| {
        all.extend_from_slice(event.bytes());
        if let SseEvent::Whole(bytes) = event {
            assert!(bytes.len() <= limit);
            events.push(bytes.to_vec());
        }
    };
    for piece in stream.chunks(size) {
        splitter.feed(piece, &mut take);
    }
    splitter.finish(&mut take);
    assert_eq!(all, stream, "nothing is lost or added");
    events
}

/// Most bytes that a decoder may return in [`coding`].
const LIMIT: usize = 256 << 10;

/// Bytes are a coded body. However the body is cut, the same comes out, at most the limit, and
/// equal to the output of another decoder.
pub fn coding(data: &[u8]) {
    let Some((size, rest)) = pieces(data) else { return };
    let Some((which, coded)) = rest.split_first() else { return };
    let coding =
        [Coding::Gzip, Coding::Deflate, Coding::Zstd, Coding::Brotli][usize::from(which % 4)];
    let whole = decode(coding, coded, coded.len().max(1));
    assert_eq!(whole, decode(coding, coded, size));
    let Some(whole) = whole else { return };
    let mut other = Vec::new();
    let mut read = |reader: &mut dyn Read| {
        reader.read_to_end(&mut other).expect("another reader reads it too")
    };
    match coding {
        Coding::Gzip => read(&mut flate2::read::MultiGzDecoder::new(coded)),
        Coding::Deflate => return,
        Coding::Zstd => read(&mut zstd::stream::read::Decoder::new(coded).unwrap()),
        Coding::Brotli => read(&mut brotli_decompressor::Decompressor::new(coded, 4096)),
    };
    assert!(other == whole[..], "another reader finds something else");
}

fn decode(coding: Coding, coded: &[u8], size: usize) -> Option<Bytes> {
    let mut decoder = Decoder::new(coding, LIMIT);
    for piece in coded.chunks(size) {
        decoder.push(piece);
        loop {
            match decoder.step() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    assert!(matches!(error.status().as_u16(), 400 | 413));
                    return None;
                }
            }
        }
    }
    let decoded = decoder.finish().ok()?;
    assert!(decoded.len() <= LIMIT);
    Some(decoded)
}

/// The first byte is the dialect, and the rest is a request. Each other dialect refuses it because
/// of a feature, or gets a request with the same tools and calls. Translating it again changes
/// nothing.
pub fn requests(data: &[u8]) {
    let Some((which, body)) = data.split_first() else { return };
    let clients = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
    let from = clients[usize::from(which % 3)];
    let Ok(request) = read_neutral(from, body) else { return };
    for to in Dialect::TRANSLATED {
        let Ok(there) = write_request(&request, to) else { continue };
        let text = std::str::from_utf8(&there.body).expect("what is written is text");
        // Schemas and arguments keep their text, which may be JSON that no `String` can hold.
        serde_json::from_str::<&RawValue>(text).expect("what is written is JSON");
        let printable = |c: char| c.is_ascii_alphanumeric() || "_.:-?".contains(c);
        assert!(there.dropped.iter().all(|member| member.chars().all(printable)));
        if !clients.contains(&to) {
            continue;
        }
        let again = read_neutral(to, &there.body)
            .unwrap_or_else(|malformed| panic!("{malformed:?} of {text}"));
        assert_eq!(tools(&request), tools(&again), "{text}");
        // Defaults of the dialect are written out the second time.
        let Ok(second) = write_request(&again, to) else { continue };
        let last = read_neutral(to, &second.body).expect("what was written is read");
        let last = write_request(&last, to).expect("what was written is written again");
        assert_eq!(second.body, last.body);
    }
}

/// The names of the tools, and of the tools that were called.
fn tools(request: &Request) -> (Vec<&str>, Vec<&str>) {
    let parts = request.turns.iter().flat_map(|turn| &turn.content);
    let calls = parts.filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.name.as_str()),
        _ => None,
    });
    (request.tools.iter().map(|tool| tool.name.as_str()).collect(), calls.collect())
}

/// The bytes are an answer or a stream of a provider. The second byte says from which dialect it is
/// translated to which. The client gets a complete answer or an error, with the provider's content.
pub fn answers(data: &[u8]) {
    let Some((size, rest)) = pieces(data) else { return };
    let Some((which, body)) = rest.split_first() else { return };
    use Dialect::{Chat, Gemini, Messages, Responses};
    let from = [Chat, Messages, Responses, Gemini][usize::from(which % 4)];
    let (to, back) =
        [(Dialect::Chat, Chat), (Dialect::Messages, Messages), (Dialect::Responses, Responses)]
            [usize::from(which / 4 % 3)];
    let context = AnswerContext { id: "req_1".into(), created: 1, ..AnswerContext::default() };
    if let Ok((first, _)) = read_answer(from, false, body, &context) {
        let translated = translate_answer(from, to, body, &context).expect("what can be read");
        let (again, dropped) = read_answer(back, true, &translated.body, &context)
            .unwrap_or_else(|failure| panic!("{failure:?} of {:?}", translated.body));
        assert_eq!((content(&first), dropped), (content(&again), Vec::new()));
    }
    let error: Value = serde_json::from_slice(&translate_error(to, 500, body)).unwrap();
    assert!(error["error"]["message"].is_string());
    let stream = translated_stream(from, to, &context, body, body.len().max(1));
    assert_eq!(stream, translated_stream(from, to, &context, body, size));
    let ends = stream.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| {
        let event = if *data == "[DONE]" { json!("[DONE]") } else { parsed(data) };
        let kind = event["type"].as_str().unwrap_or_default();
        let last =
            ["error", "message_stop", "response.completed", "response.incomplete"].contains(&kind);
        last || event.is_string() || event.get("error").is_some_and(Value::is_object)
    });
    assert_eq!(ends.count(), 1, "{stream}");
}

fn parsed(data: &str) -> Value {
    serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"))
}

/// Lengths of the texts and thoughts, and the calls with a name. Calls without a name are not
/// translated.
fn content(answer: &Answer) -> (usize, usize, Vec<(String, String)>) {
    let (mut texts, mut thoughts, mut calls) = (0, 0, Vec::new());
    for part in &answer.content {
        match part {
            Part::Text(text) | Part::Refusal(text) => texts += text.len(),
            Part::Thinking(thinking) => thoughts += thinking.text.len(),
            Part::ToolCall(call) if !call.name.is_empty() => {
                calls.push((call.id.clone(), call.name.clone()));
            }
            _ => {}
        }
    }
    (texts, thoughts, calls)
}

fn translated_stream(
    from: Dialect,
    to: Dialect,
    context: &AnswerContext,
    stream: &[u8],
    size: usize,
) -> String {
    let mut translator = StreamTranslator::new(from, to, context.clone());
    let mut out = Vec::new();
    stream.chunks(size).for_each(|piece| translator.feed(piece, &mut out));
    translator.finish(&mut out);
    String::from_utf8(out).expect("what is written is text")
}
