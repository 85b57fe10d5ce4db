//! A chat-completion stream as it passes: what each event means for failover, usage and end, in bounded memory,
//! and, from a recorded stream, the one answer that it amounts to.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::sse::{self, Event, Splitter};
use super::usage::Usage;

/// What one event is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// No data: a comment, a keep-alive.
    Comment,
    /// A chunk that carries nothing yet: a role, an empty delta, no choice.
    Preamble,
    /// Something of the answer, or a choice's end: from here on there is no other provider.
    Content,
    /// An error inside a 200.
    Error(StreamError),
    /// `[DONE]`.
    Done,
    /// A chunk whose only news is the usage.
    Usage,
    /// Data that is no chunk of this protocol.
    Other,
}

/// An error inside a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// The provider's words.
    pub message: String,
    /// The status that it would have had as an answer, where it says so.
    pub status: Option<u16>,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    function_call: Option<&'a RawValue>,
    #[serde(borrow)]
    audio: Option<&'a RawValue>,
}

/// What an event says, and its effect on the counts.
struct Look {
    seen: Seen,
    usage: Option<Usage>,
    bytes: u64,
    finished: bool,
}

impl From<Seen> for Look {
    fn from(seen: Seen) -> Self {
        Look { seen, usage: None, bytes: 0, finished: false }
    }
}

/// What one event of a chat stream is.
pub fn classify(event: &[u8]) -> Seen {
    look(event).seen
}

fn look(event: &[u8]) -> Look {
    let fields = sse::fields(event);
    let Some(data) = fields.data else { return Seen::Comment.into() };
    if data.trim_ascii() == b"[DONE]" {
        return Look { finished: true, ..Seen::Done.into() };
    }
    let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(&data) else {
        let named_error = fields.name == Some(b"error");
        return if named_error { Seen::Error(read_error(&String::from_utf8_lossy(&data))).into() } else { Seen::Other.into() };
    };
    let usage = chunk.usage.and_then(|usage| Usage::read(usage.get()));
    let choices = chunk.choices.unwrap_or_default();
    let finished = choices.iter().any(|choice| choice.finish_reason.is_some());
    let deltas = || choices.iter().filter_map(|choice| choice.delta.as_ref());
    let bytes = deltas().map(Delta::bytes).sum();
    let seen = if let Some(error) = chunk.error {
        Seen::Error(read_error(error.get()))
    } else if fields.name == Some(b"error") {
        Seen::Error(read_error(&String::from_utf8_lossy(&data)))
    } else if finished || deltas().any(Delta::says_something) {
        Seen::Content
    } else if usage.is_some() && choices.is_empty() {
        Seen::Usage
    } else {
        Seen::Preamble
    };
    Look { seen, usage, bytes, finished }
}

impl Delta<'_> {
    fn parts(&self) -> [Option<&RawValue>; 7] {
        [self.content, self.refusal, self.reasoning, self.reasoning_content, self.tool_calls, self.function_call, self.audio]
    }

    fn says_something(&self) -> bool {
        self.parts().into_iter().flatten().any(|part| !is_empty(part.get()))
    }

    /// About as many bytes as a model wrote: strings without their quotes, of calls the arguments.
    fn bytes(&self) -> u64 {
        let texts = [self.content, self.refusal, self.reasoning.or(self.reasoning_content)];
        let text: usize = texts.into_iter().flatten().map(|part| part.get().len().saturating_sub(2)).sum();
        let calls: Vec<Call<'_>> = self.tool_calls.and_then(|calls| serde_json::from_str(calls.get()).ok()).unwrap_or_default();
        let arguments: usize = calls.iter().filter_map(|call| call.function.as_ref()).map(Called::bytes).sum();
        let old: Option<Called<'_>> = self.function_call.and_then(|call| serde_json::from_str(call.get()).ok());
        (text + arguments + old.as_ref().map_or(0, Called::bytes)) as u64
    }
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Option<Called<'a>>,
}

#[derive(Deserialize)]
struct Called<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<Cow<'a, str>>,
}

impl Called<'_> {
    fn bytes(&self) -> usize {
        [&self.name, &self.arguments].into_iter().flatten().map(|text| text.len()).sum()
    }
}

fn is_empty(raw: &str) -> bool {
    let inner = |open, close| raw.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    raw == "\"\"" || inner('[', ']').or_else(|| inner('{', '}')).is_some_and(|inner| inner.trim_ascii().is_empty())
}

/// Reads `{"message", "code", "type", "status"}`, in any of the ways that providers write it.
fn read_error(raw: &str) -> StreamError {
    let error: Value = serde_json::from_str(raw).unwrap_or(Value::Null);
    let message = error.get("message").unwrap_or(&error);
    let message = message.as_str().map_or_else(|| raw.to_owned(), str::to_owned);
    let said = ["status", "status_code", "code", "type"].into_iter().filter_map(|name| error.get(name));
    let status = said.filter_map(status_of).next();
    StreamError { message, status }
}

fn status_of(said: &Value) -> Option<u16> {
    let number = said.as_u64().or_else(|| said.as_str()?.parse().ok());
    if let Some(status) = number.and_then(|number| u16::try_from(number).ok()) {
        return (400..600).contains(&status).then_some(status);
    }
    match said.as_str()? {
        "rate_limit_exceeded" | "rate_limit_error" | "insufficient_quota" | "tokens" | "requests" => Some(429),
        "server_error" | "api_error" | "internal_error" | "internal_server_error" => Some(500),
        "overloaded" | "overloaded_error" | "service_unavailable" => Some(503),
        "invalid_request_error" | "context_length_exceeded" => Some(400),
        "invalid_api_key" | "authentication_error" => Some(401),
        _ => None,
    }
}

/// What a stream's first telling event made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: another provider could still answer.
    #[default]
    Open,
    /// It is an answer.
    Answer,
    /// It began with an error.
    Error,
}

/// Counts a stream while it passes, in bounded memory.
#[derive(Debug, Default)]
pub struct Tally {
    splitter: Splitter,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    verdict: Verdict,
    usage: Option<Usage>,
    bytes: u64,
    events: u64,
    finish_seen: bool,
    done_seen: bool,
    error: Option<StreamError>,
}

impl Counts {
    fn take(&mut self, event: Event<'_>) {
        let event = match event {
            Event::Whole(bytes) | Event::Rest(bytes) => bytes,
            Event::Piece(bytes) => {
                // Too large to be read, and surely no preamble.
                self.bytes += bytes.len() as u64;
                self.decide(Verdict::Answer);
                return;
            }
        };
        let look = look(event);
        self.events += 1;
        self.bytes += look.bytes;
        self.usage = look.usage.or(self.usage);
        match look.seen {
            Seen::Content => {
                self.finish_seen |= look.finished;
                self.decide(Verdict::Answer);
            }
            Seen::Done => {
                self.done_seen = true;
                self.decide(Verdict::Answer);
            }
            Seen::Error(error) => {
                self.error.get_or_insert(error);
                self.decide(Verdict::Error);
            }
            Seen::Comment | Seen::Preamble | Seen::Usage | Seen::Other => {}
        }
    }

    fn decide(&mut self, verdict: Verdict) {
        if self.verdict == Verdict::Open {
            self.verdict = verdict;
        }
    }
}

impl Tally {
    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.splitter.feed(chunk, |event| self.counts.take(event));
    }

    /// The stream is over: what stands without a blank line counts too, as clients read it.
    pub fn finish(&mut self) {
        self.splitter.finish(|event| self.counts.take(event));
    }

    /// What the first telling event made of the stream.
    pub fn verdict(&self) -> Verdict {
        self.counts.verdict
    }

    /// The provider's count, once it came.
    pub fn usage(&self) -> Option<Usage> {
        self.counts.usage
    }

    /// The provider's count, else ours over what passed.
    pub fn usage_or_estimate(&self, prompt_tokens: u64) -> Usage {
        self.counts.usage.unwrap_or_else(|| Usage::estimate(prompt_tokens, self.counts.bytes))
    }

    /// Bytes of text that passed.
    pub fn content_bytes(&self) -> u64 {
        self.counts.bytes
    }

    /// Events that passed.
    pub fn events(&self) -> u64 {
        self.counts.events
    }

    /// Whether the stream came to its end: `[DONE]`, or a choice's end for providers that leave it out.
    pub fn finished(&self) -> bool {
        self.counts.done_seen || self.counts.finish_seen
    }

    /// Whether `[DONE]` passed.
    pub fn done_seen(&self) -> bool {
        self.counts.done_seen
    }

    /// The first error inside the stream.
    pub fn error(&self) -> Option<&StreamError> {
        self.counts.error.as_ref()
    }
}

/// The chat-completion object that a recorded stream amounts to; what was cut off stays out, log probabilities too.
pub fn assemble(stream: &[u8]) -> Value {
    let mut splitter = Splitter::with_limit(stream.len());
    let mut parts = Parts::default();
    let mut take = |event: Event<'_>| {
        if let Some(data) = sse::fields(event.bytes()).data
            && let Ok(Value::Object(chunk)) = serde_json::from_slice(&data)
        {
            parts.take(chunk);
        }
    };
    splitter.feed(stream, &mut take);
    splitter.finish(&mut take);
    parts.whole()
}

#[derive(Default)]
struct Parts {
    top: Map<String, Value>,
    choices: BTreeMap<u64, Made>,
}

#[derive(Default)]
struct Made {
    message: Map<String, Value>,
    calls: BTreeMap<u64, Map<String, Value>>,
    finish_reason: Value,
}

impl Parts {
    fn take(&mut self, chunk: Map<String, Value>) {
        for (name, value) in chunk {
            match name.as_str() {
                "id" | "model" | "created" | "system_fingerprint" | "service_tier" if !value.is_null() => {
                    self.top.entry(name).or_insert(value);
                }
                "usage" | "error" if !value.is_null() => {
                    self.top.insert(name, value);
                }
                "choices" => {
                    let Value::Array(choices) = value else { continue };
                    for mut choice in choices {
                        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
                        let made = self.choices.entry(index).or_default();
                        if let Some(reason) = choice.get_mut("finish_reason").map(Value::take).filter(|reason| !reason.is_null()) {
                            made.finish_reason = reason;
                        }
                        if let Some(Value::Object(delta)) = choice.get_mut("delta").map(Value::take) {
                            made.add(delta);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn whole(mut self) -> Value {
        let mut take = |name: &str, other: Value| self.top.remove(name).unwrap_or(other);
        let mut whole = Map::new();
        whole.insert("id".into(), take("id", Value::Null));
        whole.insert("object".into(), "chat.completion".into());
        whole.insert("created".into(), take("created", Value::Null));
        whole.insert("model".into(), take("model", Value::Null));
        let choices: Vec<Value> = self.choices.into_iter().map(|(index, made)| made.whole(index)).collect();
        whole.insert("choices".into(), choices.into());
        whole.append(&mut self.top);
        whole.into()
    }
}

impl Made {
    fn add(&mut self, delta: Map<String, Value>) {
        for (name, value) in delta {
            match (name.as_str(), value) {
                (_, Value::Null) => {
                    self.message.entry(name).or_insert(Value::Null);
                }
                ("tool_calls", Value::Array(calls)) => {
                    for call in calls {
                        self.add_call(call);
                    }
                }
                ("content" | "refusal" | "reasoning" | "reasoning_content", value @ (Value::String(_) | Value::Array(_))) => {
                    extend(self.message.entry(name).or_insert(Value::Null), value);
                }
                ("function_call" | "audio", Value::Object(fields)) => {
                    let before = self.message.entry(name).or_insert_with(|| json!({}));
                    if let Value::Object(before) = before {
                        merge(before, fields, &["arguments", "data", "transcript"]);
                    }
                }
                (_, Value::Array(more)) => extend(self.message.entry(name).or_insert(Value::Null), more.into()),
                (_, value) => {
                    self.message.insert(name, value);
                }
            }
        }
    }

    fn add_call(&mut self, call: Value) {
        let Value::Object(mut call) = call else { return };
        // Without an index, a new id begins a new call.
        let known = call.get("index").and_then(Value::as_u64);
        let last = self.calls.last_key_value().map(|(index, _)| *index);
        let index = match (known, last) {
            (Some(index), _) => index,
            (None, None) => 0,
            (None, Some(last)) => last + u64::from(call.get("id").is_some_and(Value::is_string)),
        };
        call.remove("index");
        let function = call.remove("function");
        let made = self.calls.entry(index).or_default();
        merge(made, call, &[]);
        if let Some(Value::Object(function)) = function
            && let Value::Object(before) = made.entry("function").or_insert_with(|| json!({}))
        {
            merge(before, function, &["arguments"]);
        }
    }

    fn whole(mut self, index: u64) -> Value {
        let mut message = Map::new();
        message.insert("role".into(), self.message.remove("role").unwrap_or_else(|| "assistant".into()));
        message.insert("content".into(), self.message.remove("content").unwrap_or(Value::Null));
        message.append(&mut self.message);
        if !self.calls.is_empty() {
            let calls: Vec<Value> = self.calls.into_values().map(Value::from).collect();
            message.insert("tool_calls".into(), calls.into());
        }
        json!({ "index": index, "message": message, "finish_reason": self.finish_reason })
    }
}

/// Puts fields onto those before; the named ones come in fragments, of the others the last that is not empty counts.
fn merge(before: &mut Map<String, Value>, fields: Map<String, Value>, fragments: &[&str]) {
    for (name, value) in fields {
        if fragments.contains(&name.as_str()) {
            extend(before.entry(name).or_insert(Value::Null), value);
        } else if !value.is_null() && value.as_str() != Some("") {
            before.insert(name, value);
        }
    }
}

fn extend(before: &mut Value, more: Value) {
    match (before, more) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(parts), Value::Array(more)) => parts.extend(more),
        (_, Value::Null) => {}
        (before, more) => *before = more,
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
