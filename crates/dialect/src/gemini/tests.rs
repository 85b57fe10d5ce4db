//! Streams and answers in the shape of Google's documentation.

use proptest::prelude::*;
use rerouter_base::usage_kind::UsageCounts;
use serde_json::{Value, json};

use crate::Dialect;
use crate::protocol::{Protocol, Wanted};
use crate::stream::{EventKind, StreamError, StreamTally, StreamVerdict, classify, error_in};
use crate::usage::Usage;

fn event(data: &Value) -> String {
    format!("data: {data}\r\n\r\n")
}

/// A chunk with the first candidate only.
fn chunk(parts: Value, finish: Option<&str>, usage: Value) -> Value {
    let mut candidate = json!({ "content": { "parts": parts, "role": "model" }, "index": 0 });
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({
        "candidates": [candidate], "usageMetadata": usage,
        "modelVersion": "gemini-2.5-flash", "responseId": "r1",
    })
}

/// Thinking, a text in two events, a call, and the end.
fn whole_stream() -> Vec<Value> {
    let so_far = json!({ "promptTokenCount": 12, "totalTokenCount": 12 });
    vec![
        chunk(json!([{ "text": "", "thought": true }]), None, so_far.clone()),
        chunk(json!([{ "text": "Two and two. ", "thought": true }]), None, so_far.clone()),
        chunk(json!([{ "text": "It is " }]), None, so_far.clone()),
        chunk(json!([{ "text": "4.", "thoughtSignature": "c2ln" }]), None, so_far),
        chunk(
            json!([{ "functionCall": { "name": "note", "args": { "sum": 4 } } }]),
            Some("STOP"),
            json!({
                "promptTokenCount": 12, "candidatesTokenCount": 8, "thoughtsTokenCount": 10,
                "cachedContentTokenCount": 4, "totalTokenCount": 30,
            }),
        ),
    ]
}

fn tally(stream: &str, sizes: &[usize]) -> StreamTally {
    let mut tally = StreamTally::new(Dialect::Gemini);
    let (mut rest, mut sizes) = (stream.as_bytes(), sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(rest.len()).clamp(1, rest.len());
        let (chunk, after) = rest.split_at(size);
        tally.feed(chunk);
        rest = after;
    }
    tally.finish();
    tally
}

#[test]
fn the_model_stands_in_the_path() {
    use Wanted::{Answer, Count, Stream};
    let path = |model, wanted| Protocol::Gemini.model_path(model, wanted).unwrap();
    assert_eq!(path("gemini-2.5-pro", Answer), "/models/gemini-2.5-pro:generateContent");
    assert_eq!(path("models/g", Stream), "/models/g:streamGenerateContent?alt=sse");
    assert_eq!(path("models/g", Count), "/models/g:countTokens");
    assert_eq!(path("tunedModels/mine", Answer), "/tunedModels/mine:generateContent");
    assert_eq!(path("../a?b#%é", Answer), "/models/..%2Fa%3Fb%23%25%C3%A9:generateContent");
    assert!(Protocol::OpenAi.model_path("gpt-5", Answer).is_none());
}

#[test]
fn a_stream_ends_with_its_finish_reason() {
    let events: Vec<String> = whole_stream().iter().map(event).collect();
    let kinds = events.iter().map(|event| classify(Dialect::Gemini, event.as_bytes()));
    let content = EventKind::Content;
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [EventKind::Preamble, content.clone(), content.clone(), content.clone(), content]
    );
    let all = tally(&events.concat(), &[]);
    assert_eq!((all.verdict(), all.finished()), (StreamVerdict::Answer, true));
    let usage = Usage {
        prompt_tokens: 12,
        completion_tokens: 18,
        total_tokens: 30,
        counts: UsageCounts {
            cached_tokens: Some(4),
            reasoning_tokens: Some(10),
            ..UsageCounts::default()
        },
        ..Usage::default()
    };
    assert_eq!(all.usage(), Some(usage));
    let cut = tally(&events[..4].concat(), &[]);
    assert!(!cut.finished() && cut.usage().is_none());
    let estimate = cut.usage_or_estimate(99);
    assert_eq!((estimate.prompt_tokens, estimate.estimated), (12, true));
    assert_eq!(tally(&events[0], &[]).verdict(), StreamVerdict::Open);
}

#[test]
fn every_candidate_has_to_end() {
    let candidate = |index: u32, finish: Value| {
        json!({
            "index": index, "content": { "parts": [{ "text": "x" }] }, "finishReason": finish,
        })
    };
    let two = json!({ "candidates": [candidate(0, Value::Null), candidate(1, "STOP".into())] });
    let last = json!({ "candidates": [candidate(0, "MAX_TOKENS".into())] });
    assert!(!tally(&event(&two), &[]).finished());
    assert!(tally(&[event(&two), event(&last)].concat(), &[]).finished());
}

#[test]
fn a_blocked_prompt_is_an_answer() {
    let blocked = json!({
        "promptFeedback": { "blockReason": "SAFETY" },
        "usageMetadata": { "promptTokenCount": 5, "totalTokenCount": 5 },
    });
    let all = tally(&event(&blocked), &[]);
    assert_eq!((all.verdict(), all.finished()), (StreamVerdict::Answer, true));
    assert_eq!(all.usage().unwrap().total_tokens, 5);
}

#[test]
fn an_error_says_its_status() {
    let error = json!({ "error": {
        "code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE",
    }});
    let read = StreamError { message: "The model is overloaded.".into(), status: 503 };
    assert_eq!(error_in(error.to_string().as_bytes()), Some(read.clone()));
    assert_eq!(classify(Dialect::Gemini, event(&error).as_bytes()), EventKind::Error(read.clone()));
    let first = tally(&event(&error), &[]);
    assert_eq!((first.verdict(), first.error()), (StreamVerdict::Error, Some(&read)));
}

#[test]
fn usage_is_read_from_whole_answers_and_their_ends() {
    let usage = |usage: Value| {
        let answer = json!({ "candidates": [], "usageMetadata": usage }).to_string();
        let whole = Dialect::Gemini.read_usage(answer.as_bytes());
        let ending = &answer.as_bytes()[answer.len().min(9)..];
        assert_eq!(Dialect::Gemini.read_usage_at_end(ending), whole, "{answer}");
        whole.map(|usage| (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens))
    };
    let plain = json!({ "promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5 });
    assert_eq!(usage(plain), Some((3, 2, 5)));
    let searched = json!({
        "promptTokenCount": 3, "toolUsePromptTokenCount": 40, "candidatesTokenCount": 2,
        "thoughtsTokenCount": 7, "totalTokenCount": 52,
    });
    assert_eq!(usage(searched), Some((43, 9, 52)));
    assert_eq!(usage(json!({ "promptTokenCount": 3 })), Some((3, 0, 3)));
    assert_eq!(usage(json!({ "totalTokenCount": "?" })), None);
    assert_eq!(usage(json!(null)), None);
    assert_eq!(Dialect::Gemini.read_usage(b"{\"usage\":{\"prompt_tokens\":1}}"), None);
    let cut = b"{\"usageMetadata\":{\"promptTokenCount\":3},\"candidates\":[{\"con";
    assert_eq!(Dialect::Gemini.read_usage(cut).map(|usage| usage.prompt_tokens), Some(3));
}

proptest! {
    #[test]
    fn chunking_changes_nothing(sizes in prop::collection::vec(1usize..80, 1..6)) {
        let stream: String = whole_stream().iter().map(event).collect();
        let (one, many) = (tally(&stream, &[]), tally(&stream, &sizes));
        prop_assert_eq!(one.usage(), many.usage());
        prop_assert_eq!((one.events(), one.content_bytes()), (many.events(), many.content_bytes()));
        prop_assert_eq!((one.verdict(), one.finished()), (many.verdict(), many.finished()));
    }

    #[test]
    fn no_bytes_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let stream = [b"data: ", &data[..], b"\n\n"].concat();
        classify(Dialect::Gemini, &stream);
        Dialect::Gemini.read_usage(&data);
        Dialect::Gemini.read_usage_at_end(&data);
    }
}
