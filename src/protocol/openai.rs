//! OpenAI's chat completions: what a request is, read in one bounded pass over its bytes without changing one of them,
//! and what an answer says about itself. The client's text is never parsed into values and written back.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json::{self, Cursor, Fault, Name, Shape};
use super::tokens;
use crate::bounds;
use crate::error::Error;

/// Bytes of an answer's text that make a token, on average over English and code.
const BYTES_PER_TOKEN: u64 = 4;
/// What each message costs beside its text (role and separators), and what a request costs at all.
const TOKENS_PER_MESSAGE: u64 = 4;
/// An image, whatever its size: its bytes are no text. OpenAI's figure for a square image in high detail.
const TOKENS_PER_IMAGE: u64 = 765;
/// An image in low detail.
const TOKENS_PER_SMALL_IMAGE: u64 = 85;
/// A file, whatever its length: a page.
const TOKENS_PER_FILE: u64 = 250;
/// What a call of a tool costs beside its name and arguments.
const TOKENS_PER_CALL: u64 = 6;
/// A piece of audio, whatever its length: ten seconds or so.
const TOKENS_PER_AUDIO: u64 = 100;

/// What a data-plane route is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /v1/chat/completions`.
    ChatCompletions,
}

impl Endpoint {
    /// The word in records and signals.
    pub fn as_str(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "chat.completions",
        }
    }

    /// Where it is below a provider's base.
    pub fn path(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "/chat/completions",
        }
    }
}

/// The facts of a chat request that routing and relaying ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatRequest {
    /// The model asked for.
    pub model: String,
    /// The bytes of that JSON string, quotes included.
    pub model_span: Range<usize>,
    /// Whether the answer is to be a stream.
    pub stream: bool,
    /// Whether the client asked for a stream's usage itself (`stream_options.include_usage`).
    pub include_usage: bool,
    /// How many messages.
    pub messages: u64,
    /// How many tools.
    pub tools: u64,
    /// How many content parts are images.
    pub images: u64,
    /// How many content parts are audio.
    pub audio: u64,
    /// Whether the answer has to be JSON (`response_format`).
    pub json_output: bool,
    /// The most tokens that may be generated, when the client says so.
    pub max_tokens: Option<u64>,
    /// An estimate of the prompt: texts and definitions of tools by [`tokens`], four a message, a fixed price an image, a
    /// file and a piece of audio.
    pub prompt_tokens: u64,
    /// The bytes of the JSON strings that make the text of the last user message, quotes included.
    pub user_text: Vec<Range<usize>>,
}

/// What is collected on the way.
#[derive(Default)]
struct Facts {
    model: Option<Range<usize>>,
    request: ChatRequest,
    prompt: Prompt,
    tool_tokens: u64,
    format_tokens: u64,
    max_completion_tokens: Option<u64>,
}

/// What the messages amount to.
#[derive(Default)]
struct Prompt {
    messages: u64,
    images: u64,
    audio: u64,
    tokens: u64,
    user_text: Vec<Range<usize>>,
}

/// Reads a request's body. Refuses with 400 what is not one JSON object of text nested at most 128 levels, a missing, repeated
/// or wrong `model`, and a wrong kind of `stream` or `messages`; all else is the provider's to judge.
pub fn read_request(body: &[u8], endpoint: Endpoint) -> Result<ChatRequest, Error> {
    let mut facts = Facts::default();
    json::read_object(body, |cursor, name| match endpoint {
        Endpoint::ChatCompletions => chat_member(cursor, name, &mut facts),
    })?;
    let Facts { model, mut request, prompt, tool_tokens, format_tokens, max_completion_tokens } = facts;
    let Some(span) = model else {
        return Err(Error::invalid("model", "`model` is missing."));
    };
    request.model = match json::text(body.get(span.clone()).unwrap_or_default()) {
        Some(model) if model.is_empty() => return Err(Error::invalid("model", "`model` is empty.")),
        Some(model) if model.len() > bounds::MODEL_BYTES => return Err(Error::invalid("model", "`model` is too long.")),
        Some(model) => model.into_owned(),
        None => return Err(Error::invalid("model", "`model` is not Unicode text: it holds a lone surrogate.")),
    };
    request.model_span = span;
    request.max_tokens = max_completion_tokens.or(request.max_tokens);
    let instructions = if request.tools > 0 { tokens::tool_instructions(&request.model) } else { 0 };
    request.prompt_tokens = TOKENS_PER_MESSAGE * (prompt.messages + 1) + prompt.tokens + tool_tokens + format_tokens + instructions;
    request.messages = prompt.messages;
    request.images = prompt.images;
    request.audio = prompt.audio;
    request.user_text = prompt.user_text;
    Ok(request)
}

fn chat_member(cursor: &mut Cursor<'_>, name: Name<'_>, facts: &mut Facts) -> Result<(), Fault> {
    // Of members that come twice the last counts, as it does for providers; only `model` may not.
    match &*name.text() {
        "model" => {
            let is_text = cursor.shape()? == Shape::String;
            let span = cursor.skip()?;
            if facts.model.is_some() {
                return Err(Error::invalid("model", "`model` comes twice.").into());
            }
            if !is_text {
                return Err(Error::invalid("model", "`model` has to be a string.").into());
            }
            facts.model = Some(span);
        }
        "messages" => {
            if cursor.shape()? != Shape::Array {
                cursor.skip()?;
                return Err(Error::invalid("messages", "`messages` has to be an array.").into());
            }
            facts.prompt = Prompt::default();
            cursor.elements(|cursor| read_message(cursor, &mut facts.prompt))?;
        }
        "stream" => {
            let shape = cursor.shape()?;
            cursor.skip()?;
            facts.request.stream = match shape {
                Shape::True => true,
                Shape::False | Shape::Null => false,
                _ => return Err(Error::invalid("stream", "`stream` has to be true or false.").into()),
            };
        }
        "stream_options" => {
            facts.request.include_usage = false;
            cursor.members(|cursor, name| {
                let yes = cursor.shape()? == Shape::True;
                cursor.skip()?;
                if name.text() == "include_usage" {
                    facts.request.include_usage = yes;
                }
                Ok(())
            })?;
        }
        "tools" => {
            facts.request.tools = 0;
            facts.tool_tokens = 0;
            cursor.elements(|cursor| {
                let tool = cursor.skip()?;
                facts.tool_tokens += tokens::estimate(cursor.raw(&tool));
                facts.request.tools += 1;
                Ok(())
            })?;
        }
        "response_format" => {
            let mut kind = None;
            facts.format_tokens = 0;
            cursor.members(|cursor, name| {
                if name.text() == "json_schema" {
                    let schema = cursor.skip()?;
                    // It is told more briefly than it is written.
                    facts.format_tokens = tokens::estimate(cursor.raw(&schema)) / 2;
                    return Ok(());
                }
                read_type(cursor, name, &mut kind)
            })?;
            facts.request.json_output = matches!(kind.as_deref(), Some("json_object" | "json_schema"));
        }
        "max_tokens" => facts.request.max_tokens = read_count(cursor)?,
        "max_completion_tokens" => facts.max_completion_tokens = read_count(cursor)?,
        _ => {
            cursor.skip()?;
        }
    }
    Ok(())
}

fn read_message(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    prompt.messages += 1;
    let mut text = Vec::new();
    let mut role = None;
    cursor.members(|cursor, name| {
        match &*name.text() {
            "role" => {
                let span = cursor.skip()?;
                role = json::text(cursor.raw(&span)).map(std::borrow::Cow::into_owned);
            }
            "content" => match cursor.shape()? {
                Shape::String => text.push(cursor.skip()?),
                Shape::Array => cursor.elements(|cursor| read_part(cursor, prompt, &mut text))?,
                _ => {
                    cursor.skip()?;
                }
            },
            "tool_calls" => cursor.elements(|cursor| read_call(cursor, prompt))?,
            // Reasoning of earlier answers is not among these: providers leave it out.
            "refusal" => {
                let span = cursor.skip()?;
                prompt.tokens += tokens::estimate(cursor.raw(&span));
            }
            _ => {
                cursor.skip()?;
            }
        }
        Ok(())
    })?;
    let of_the_model = role.as_deref() == Some("assistant");
    for span in &text {
        let quoted = cursor.raw(span);
        let inside = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        prompt.tokens += tokens::estimate(if of_the_model { after_thoughts(inside) } else { inside });
    }
    if role.as_deref() == Some("user") {
        prompt.user_text = text;
    }
    Ok(())
}

/// An answer without the thoughts that some models write before it: templates leave those of earlier answers out.
fn after_thoughts(answer: &[u8]) -> &[u8] {
    const END: &[u8] = b"</think>";
    let end = memchr::memmem::rfind(answer, END).filter(|_| answer.starts_with(b"<think>"));
    end.and_then(|at| answer.get(at + END.len()..)).unwrap_or(answer)
}

/// A call of a tool: its name and arguments are told to the model, its id is not.
fn read_call(cursor: &mut Cursor<'_>, prompt: &mut Prompt) -> Result<(), Fault> {
    prompt.tokens += TOKENS_PER_CALL;
    cursor.members(|cursor, name| {
        if name.text() != "function" {
            cursor.skip()?;
            return Ok(());
        }
        cursor.members(|cursor, _| {
            let span = cursor.skip()?;
            prompt.tokens += tokens::estimate(cursor.raw(&span));
            Ok(())
        })
    })
}

fn read_part(cursor: &mut Cursor<'_>, prompt: &mut Prompt, text: &mut Vec<Range<usize>>) -> Result<(), Fault> {
    let (mut kind, mut small) = (None, false);
    cursor.members(|cursor, name| {
        match &*name.text() {
            "text" if cursor.shape()? == Shape::String => text.push(cursor.skip()?),
            "image_url" => {
                let mut detail = None;
                cursor.members(|cursor, name| {
                    let is_detail = name.text() == "detail";
                    let value = cursor.skip()?;
                    if is_detail {
                        detail = Some(value);
                    }
                    Ok(())
                })?;
                small = detail.is_some_and(|detail| cursor.raw(&detail) == b"\"low\"");
            }
            "thinking" => {
                let thoughts = cursor.skip()?;
                prompt.tokens += tokens::estimate(cursor.raw(&thoughts));
            }
            _ => read_type(cursor, name, &mut kind)?,
        }
        Ok(())
    })?;
    match kind.as_deref() {
        Some("image_url" | "input_image") => {
            prompt.images += 1;
            prompt.tokens += if small { TOKENS_PER_SMALL_IMAGE } else { TOKENS_PER_IMAGE };
        }
        Some("input_audio") => {
            prompt.audio += 1;
            prompt.tokens += TOKENS_PER_AUDIO;
        }
        Some("file" | "input_file") => prompt.tokens += TOKENS_PER_FILE,
        _ => {}
    }
    Ok(())
}

/// Notes the value of a member `type`; passes over any other.
fn read_type(cursor: &mut Cursor<'_>, name: Name<'_>, kind: &mut Option<String>) -> Result<(), Fault> {
    let span = cursor.skip()?;
    if name.text() == "type" {
        *kind = json::text(cursor.raw(&span)).map(std::borrow::Cow::into_owned);
    }
    Ok(())
}

fn read_count(cursor: &mut Cursor<'_>) -> Result<Option<u64>, Fault> {
    let span = cursor.skip()?;
    Ok(serde_json::from_slice(cursor.raw(&span)).ok())
}

/// The text of the last user message, parts joined by line breaks.
pub fn last_user_text(body: &[u8], request: &ChatRequest) -> String {
    let parts: Vec<_> = request.user_text.iter().filter_map(|span| json::text(body.get(span.clone())?)).collect();
    parts.join("\n")
}

/// The body with another model in the place of the one asked for; every other byte as it was.
pub fn rename_model(body: &Bytes, span: &Range<usize>, model: &str) -> Bytes {
    let quoted = serde_json::Value::from(model).to_string();
    if body.get(span.clone()) == Some(quoted.as_bytes()) {
        return body.clone();
    }
    json::splice(body, &[(span.clone(), quoted.as_bytes())])
}

/// The body without `stream` and `stream_options`: what a reroute asks a provider. Every other byte as it was.
pub fn without_stream(body: &Bytes) -> Result<Bytes, Error> {
    json::without_members(body, &["stream", "stream_options"])
}

/// Tokens of an answer, by the provider's count or by ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Tokens generated, reasoning included.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Those of the prompt that came from the provider's cache.
    pub cached_tokens: Option<u64>,
    /// True when the provider gave no count and this is ours.
    pub estimated: bool,
}

impl Usage {
    /// Our own count for an answer of `bytes` bytes of text.
    pub fn estimate(prompt_tokens: u64, bytes: u64) -> Self {
        let completion_tokens = bytes.div_ceil(BYTES_PER_TOKEN);
        Usage { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens, cached_tokens: None, estimated: true }
    }

    /// Reads a `usage` object as providers of this protocol write it; `None` unless it counts something.
    pub fn read(written: &str) -> Option<Self> {
        let written: WrittenUsage = serde_json::from_str(written).ok()?;
        let (prompt_tokens, completion_tokens) = match (written.prompt_tokens, written.completion_tokens) {
            (None, None) => return None,
            (prompt, completion) => (prompt.unwrap_or(0), completion.unwrap_or(0)),
        };
        Some(Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: written.total_tokens.unwrap_or(prompt_tokens.saturating_add(completion_tokens)),
            cached_tokens: written.prompt_tokens_details.and_then(|details| details.cached_tokens),
            estimated: false,
        })
    }
}

#[derive(Deserialize)]
struct WrittenUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<WrittenDetails>,
}

#[derive(Deserialize)]
struct WrittenDetails {
    cached_tokens: Option<u64>,
}

/// The provider's count in an answer that is no stream. One that breaks off still says what it said until then; what is
/// not as expected counts as absent.
pub fn read_usage(body: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Said<'a> {
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    match serde_json::from_slice::<Said<'_>>(body) {
        Ok(said) => said.usage.and_then(|usage| Usage::read(usage.get())),
        Err(_) => walk_to_usage(body),
    }
}

/// As far as an answer goes that is not whole, or says things twice: the last counts.
fn walk_to_usage(body: &[u8]) -> Option<Usage> {
    let mut usage = None;
    let _broken = json::read_object(body, |cursor, name| {
        let span = cursor.skip()?;
        if name.is("usage") {
            usage = std::str::from_utf8(cursor.raw(&span)).ok().and_then(Usage::read);
        }
        Ok(())
    });
    usage
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(body: &str) -> Result<ChatRequest, Error> {
        read_request(body.as_bytes(), Endpoint::ChatCompletions)
    }

    #[test]
    fn the_facts_of_a_request() {
        let body = r#"{"messages":[{"role":"system","content":"Be brief."},
            {"role":"user","content":[{"type":"text","text":"Say \u00e9"},{"image_url":{"url":"data:..."},"type":"image_url"},{"type":"input_audio","input_audio":{}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}],
            "model" : "au\u0074o", "stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"function"},{}],
            "response_format":{"type":"json_schema","json_schema":{}},"max_tokens":5,"max_completion_tokens":70,"seed":1.50e3}"#;
        let request = read(body).unwrap();
        assert_eq!((request.model.as_str(), &body[request.model_span.clone()]), ("auto", r#""au\u0074o""#));
        assert!(request.stream && request.include_usage && request.json_output);
        assert_eq!((request.messages, request.tools, request.images, request.audio, request.max_tokens), (3, 2, 1, 1, Some(70)));
        let text = ["Be brief.", r"Say \u00e9", r#"{"type":"function"}"#, "{}"].map(|text| tokens::estimate(text.as_bytes()));
        assert_eq!(request.prompt_tokens, 16 + text.iter().sum::<u64>() + TOKENS_PER_CALL + 765 + 100 + tokens::estimate(b"{}") / 2);
        assert_eq!(last_user_text(body.as_bytes(), &request), "Say é");
    }

    #[test]
    fn what_a_prompt_is_estimated_by() {
        let tokens = |message: &str| read(&format!(r#"{{"model":"m","messages":[{message}]}}"#)).unwrap().prompt_tokens;
        let said = tokens(r#"{"role":"assistant","content":"Well then, here it is."}"#);
        assert!((12..20).contains(&said), "{said}");
        // Thoughts of earlier answers are not told again; wherever the role stands, and only an answer's.
        for message in [
            r#"{"content":"<think>\nA long thought about this and that.\n</think>Well then, here it is.","role":"assistant"}"#,
            r#"{"role":"assistant","reasoning_content":"A long thought.","reasoning":"And more.","content":"Well then, here it is."}"#,
        ] {
            assert_eq!(tokens(message), said, "{message}");
        }
        assert!(
            tokens(r#"{"role":"user","content":"<think>\nA long thought about this and that.\n</think>Well then, here it is."}"#)
                > said + 8
        );
        let image = |detail: &str| {
            tokens(&format!(
                r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,AAAA"{detail}}}}}]}}"#
            ))
        };
        assert_eq!((image(""), image(r#","detail":"low""#), image(r#","detail":"high""#)), (8 + 765, 8 + 85, 8 + 765));
        assert_eq!(
            tokens(r#"{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA"}}]}"#),
            8 + 250
        );
        let call = tokens(
            r#"{"role":"assistant","tool_calls":[{"id":"call_0123456789abcdefghijklmn","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
        );
        assert!((14..24).contains(&call), "{call}");
    }

    #[test]
    fn what_is_refused_names_its_field() {
        for (body, field) in [
            (r#"{"messages":[]}"#, Some("model")),
            (r#"{"model":5}"#, Some("model")),
            (r#"{"model":""}"#, Some("model")),
            (r#"{"model":null}"#, Some("model")),
            (r#"{"model":"\ud800"}"#, Some("model")),
            (r#"{"model":"a","model":"b"}"#, Some("model")),
            (r#"{"model":"a","mod\u0065l":"b"}"#, Some("model")),
            (r#"{"model":"a","stream":"yes"}"#, Some("stream")),
            (r#"{"model":"a","messages":{}}"#, Some("messages")),
            (r#"["model"]"#, None),
            (r#"{"model":"a""#, None),
        ] {
            let error = read(body).unwrap_err();
            assert_eq!((error.status().as_u16(), error.field()), (400, field), "{body}");
        }
        assert!(read(r#"{"model":"a","stream":null,"metadata":{"model":"b"}}"#).is_ok());
        assert_eq!(read(&format!(r#"{{"model":"{}"}}"#, "m".repeat(bounds::MODEL_BYTES + 1))).unwrap_err().field(), Some("model"));
    }

    #[test]
    fn an_answer_is_read_as_far_as_it_goes() {
        let body = r#"{"id":"chatcmpl-1","model":"m-2024","choices":[{"finish_reason":"stop","message":{}},{"finish_reason":"length"}],
            "usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}"#;
        let usage = Usage { prompt_tokens: 9, completion_tokens: 3, total_tokens: 12, cached_tokens: Some(4), estimated: false };
        assert_eq!(read_usage(body.as_bytes()), Some(usage));
        assert_eq!(read_usage(body.trim_end_matches('}').as_bytes()), None);
        assert_eq!(read_usage(body.replace("\"usage\"", "\"us\\u0061ge\"").as_bytes()), Some(usage));
        assert_eq!(read_usage(format!("{},", body.strip_suffix('}').unwrap()).as_bytes()), Some(usage), "it broke off after its usage");
        assert_eq!(read_usage(b"<html>"), None);
        assert_eq!(read_usage(br#"{"id":7,"usage":[],"choices":{}}"#), None);
    }

    fn member() -> impl Strategy<Value = (String, Value)> {
        let value = prop_oneof![
            "\\PC{0,8}".prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            Just(json!({"model": "inner", "a": [1, {"b": null}]})),
            Just(json!([])),
        ];
        ("[a-l\"\\\\é]{1,6}", value)
    }

    proptest! {
        #[test]
        fn a_new_name_changes_nothing_else(before in prop::collection::vec(member(), 0..4), after in prop::collection::vec(member(), 0..4), old in "\\PC{1,12}", new in "\\PC{0,12}|[\"\\\\\n\u{1}]{1,4}") {
            let write = |members: &[(String, Value)]| members.iter().map(|(n, v)| format!("{}: {v}", Value::from(n.as_str()))).collect::<Vec<_>>();
            let model = format!("\"model\" :{}", Value::from(old.as_str()));
            let text = format!("{{ {} }}", [write(&before), vec![model], write(&after)].concat().join(" ,"));
            let body = Bytes::from(text.clone());
            let request = read_request(&body, Endpoint::ChatCompletions).unwrap();
            prop_assert_eq!(&request.model, &old);
            let renamed = rename_model(&body, &request.model_span, &new);
            let mut expected: Value = serde_json::from_str(&text).unwrap();
            expected["model"] = Value::from(new);
            prop_assert_eq!(serde_json::from_slice::<Value>(&renamed).unwrap(), expected);
            prop_assert!(renamed.starts_with(&body[..request.model_span.start]));
            prop_assert!(renamed.ends_with(&body[request.model_span.end..]));
        }

        #[test]
        fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = read_request(&body, Endpoint::ChatCompletions);
            read_usage(&body);
            walk_to_usage(&body);
        }
    }
}
