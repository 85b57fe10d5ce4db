//! Tests of `stream.rs`, on streams of real providers (see `recorded/README.md`).

use proptest::prelude::*;
use serde_json::json;

use super::*;

const TEXT: &[u8] = include_bytes!("recorded/openai_text.sse");
const CALL: &[u8] = include_bytes!("recorded/openai_tool_call.sse");
const ERROR: &[u8] = include_bytes!("recorded/openrouter_error.sse");

fn tally(stream: &[u8], size: usize) -> Tally {
    let mut tally = Tally::default();
    stream.chunks(size).for_each(|chunk| tally.feed(chunk));
    tally.finish();
    tally
}

#[test]
fn a_recorded_answer_is_assembled() {
    let whole = assemble(TEXT);
    assert_eq!(whole["id"], "chatcmpl-Dx0Xq5Xx9rHB2ehcHZCRDsnuymUXc");
    assert_eq!(whole["object"], "chat.completion");
    let expected = json!([{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "The capital of the UK is London.", "refusal": null}}]);
    assert_eq!(whole["choices"], expected);
    assert_eq!(whole["usage"]["total_tokens"], 87);
    let counted = tally(TEXT, 100);
    assert_eq!(
        counted.usage(),
        Some(Usage { prompt_tokens: 78, completion_tokens: 9, total_tokens: 87, cached_tokens: Some(0), estimated: false })
    );
    assert!(counted.finished() && counted.done_seen() && counted.error().is_none());
    assert_eq!(counted.content_bytes(), "The capital of the UK is London.".len() as u64);
}

#[test]
fn a_recorded_tool_call_is_assembled() {
    let whole = assemble(CALL);
    let call = json!([{"id": "call_ZR5UUuTt3pf61kjwAJIYdVMj", "type": "function",
        "function": {"name": "get_capital", "arguments": "{\"country\":\"UK\"}"}}]);
    assert_eq!(whole["choices"][0]["message"]["tool_calls"], call);
    assert_eq!(whole["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(tally(CALL, 9).content_bytes(), "get_capital{\"country\":\"UK\"}".len() as u64);
}

#[test]
fn a_recorded_error_within_a_stream_is_seen() {
    let counted = tally(ERROR, 1000);
    assert_eq!(counted.error(), Some(&StreamError { message: "Token limit reached".into(), status: Some(400) }));
    assert_eq!(counted.verdict(), Verdict::Answer, "the reasoning came first");
    assert_eq!(counted.usage().map(|usage| usage.total_tokens), Some(53));
    let whole = assemble(ERROR);
    assert_eq!(whole["choices"][0]["message"]["reasoning"], "We need to respond to a greeting. The user");
    assert_eq!(whole["error"]["code"], 400);
}

#[test]
fn events_are_what_they_are() {
    let error = |message: &str, status| Seen::Error(StreamError { message: message.into(), status });
    for (event, seen) in [
        (": keep-alive\n\n", Seen::Comment),
        ("\n", Seen::Comment),
        ("data: [DONE]\n\n", Seen::Done),
        ("data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[ ]}}]}\n\n", Seen::Preamble),
        ("data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n", Seen::Preamble),
        ("data: {\"choices\":[{\"delta\":{\"content\":\" \"}}]}\n\n", Seen::Content),
        ("data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"}}]}\n\n", Seen::Content),
        ("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n", Seen::Content),
        ("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1}}\n\n", Seen::Content),
        ("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n", Seen::Usage),
        ("data: {\"error\":{\"message\":\"slow down\",\"type\":\"rate_limit_error\",\"code\":null}}\n\n", error("slow down", Some(429))),
        ("data: {\"error\":\"boom\"}\n\n", error("boom", None)),
        ("event: error\ndata: {\"message\":\"boom\",\"code\":\"503\"}\n\n", error("boom", Some(503))),
        ("event: error\ndata: boom\n\n", error("boom", None)),
        ("data: {\"choices\":7}\n\n", Seen::Other),
        ("data: nonsense\n\n", Seen::Other),
    ] {
        assert_eq!(classify(event.as_bytes()), seen, "{event}");
    }
}

#[test]
fn the_first_telling_event_decides() {
    let mut counted = Tally::default();
    counted.feed(b": wait\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n");
    assert_eq!(counted.verdict(), Verdict::Open);
    counted.feed(b"data: {\"error\":{\"message\":\"overloaded\"}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n");
    assert_eq!(counted.verdict(), Verdict::Error);
    assert!(!counted.finished());
    let mut huge = Tally::default();
    huge.feed(&vec![b'x'; crate::bounds::SSE_EVENT_BYTES + 1]);
    assert_eq!(huge.verdict(), Verdict::Answer);
}

#[test]
fn without_a_count_there_is_an_estimate() {
    let counted = tally(b"data: {\"choices\":[{\"delta\":{\"content\":\"twelve bytes\"}}]}\n\n", 5);
    assert_eq!(
        counted.usage_or_estimate(10),
        Usage { prompt_tokens: 10, completion_tokens: 3, total_tokens: 13, cached_tokens: None, estimated: true }
    );
}

#[test]
fn choices_and_calls_keep_apart() {
    let stream = br#"data: {"choices":[{"index":1,"delta":{"content":"b"}},{"index":0,"delta":{"content":"a"}}]}

data: {"choices":[{"index":1,"delta":{"content":"B"}},{"index":0,"delta":{"tool_calls":[{"index":1,"id":"y","function":{"name":"g","arguments":"2"}},{"index":0,"id":"x","function":{"name":"f","arguments":"1"}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"3"}}]}}]}
"#;
    let whole = assemble(stream);
    assert_eq!(whole["choices"][1]["message"]["content"], "bB");
    assert_eq!(whole["choices"][0]["message"]["content"], "a");
    let calls = &whole["choices"][0]["message"]["tool_calls"];
    assert_eq!((&calls[0]["id"], &calls[0]["function"]["arguments"]), (&json!("x"), &json!("1")));
    assert_eq!((&calls[1]["id"], &calls[1]["function"]["arguments"]), (&json!("y"), &json!("23")));
}

proptest! {
    #[test]
    fn chunking_changes_no_count(size in 1usize..700, which in 0usize..3, windows in any::<bool>()) {
        let stream = [TEXT, CALL, ERROR][which];
        let stream = if windows { String::from_utf8_lossy(stream).replace('\n', "\r\n").into_bytes() } else { stream.to_vec() };
        let (one, many) = (tally(&stream, stream.len()), tally(&stream, size));
        prop_assert_eq!(one.usage(), many.usage());
        prop_assert_eq!(one.events(), many.events());
        prop_assert_eq!(one.content_bytes(), many.content_bytes());
        prop_assert_eq!((one.verdict(), one.finished(), one.error()), (many.verdict(), many.finished(), many.error()));
        prop_assert_eq!(assemble(&stream), assemble([TEXT, CALL, ERROR][which]));
    }

    #[test]
    fn no_bytes_panic(stream in "(data: |event: |\\{\"choices\":\\[|\\{\"delta\":|\"content\":|\"tool_calls\":\\[|\\{\"index\":|7|\\}|\\]|,|\"x\"|\n){0,30}") {
        tally(stream.as_bytes(), 7);
        assemble(stream.as_bytes());
    }
}
