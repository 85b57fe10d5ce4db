//! Recorded streams of real providers (see `recorded/README.md`).

mod events;

use proptest::prelude::*;
use rerouter_base::usage_kind::UsageCounts;
use serde_json::{Value, json};

use super::*;
use crate::endpoint::Endpoint;
use crate::recorded_answer::assemble;
use crate::usage::{Usage, UsageExtra};
use crate::wire::sse::SSE_EVENT_BYTES;

const CHAT: Endpoint = Endpoint::ChatCompletions;
const TEXT: &[u8] = include_bytes!("../recorded/openai_text.sse");
const CALL: &[u8] = include_bytes!("../recorded/openai_tool_call.sse");
const ERROR: &[u8] = include_bytes!("../recorded/openrouter_error.sse");

fn tally(stream: &[u8], size: usize) -> StreamTally {
    let mut tally = StreamTally::default();
    stream.chunks(size).for_each(|chunk| tally.feed(chunk));
    tally.finish();
    tally
}

#[test]
fn a_recorded_answer_is_assembled() {
    let whole = assemble(CHAT, TEXT);
    assert_eq!(whole["id"], "chatcmpl-Dx0Xq5Xx9rHB2ehcHZCRDsnuymUXc");
    assert_eq!(whole["object"], "chat.completion");
    let expected = json!([{
        "index": 0, "finish_reason": "stop", "logprobs": null,
        "message": {
            "role": "assistant", "content": "The capital of the UK is London.", "refusal": null,
        },
    }]);
    assert_eq!(whole["choices"], expected);
    assert_eq!(whole["usage"]["total_tokens"], 87);
    let counted = tally(TEXT, 100);
    assert_eq!(
        counted.usage(),
        Some(Usage {
            prompt_tokens: 78,
            completion_tokens: 9,
            total_tokens: 87,
            counts: UsageCounts { cached_tokens: Some(0), ..UsageCounts::default() },
            extra: UsageExtra {
                modes: [("service_tier".to_owned(), "default".to_owned())].into(),
                ..UsageExtra::default()
            },
            ..Usage::default()
        })
    );
    assert!(counted.finished() && counted.done_seen() && counted.error().is_none());
    assert_eq!(counted.content_bytes(), "The capital of the UK is London.".len() as u64);
}

#[test]
fn a_recorded_tool_call_is_assembled() {
    let whole = assemble(CHAT, CALL);
    let call = json!([{"id": "call_ZR5UUuTt3pf61kjwAJIYdVMj", "type": "function",
        "function": {"name": "get_capital", "arguments": "{\"country\":\"UK\"}"}}]);
    assert_eq!(whole["choices"][0]["message"]["tool_calls"], call);
    assert_eq!(whole["choices"][0]["message"]["content"], Value::Null);
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let bytes = "get_capital{\"country\":\"UK\"}".len() as u64;
    assert!((bytes..bytes + 4).contains(&tally(CALL, 9).content_bytes()), "some with escapes");
}

#[test]
fn content_in_a_list_counts_in_every_choice() {
    let pieces = json!([{"type": "thinking", "thinking": [{"text": "Hm."}]}, {"text": "Four."}]);
    for index in [0, 1] {
        let choice = json!({"index": index, "delta": {"content": pieces}});
        let event = format!("data: {}\n\n", json!({ "choices": [choice] }));
        assert_eq!(tally(event.as_bytes(), 9).content_bytes(), "Hm.Four.".len() as u64);
    }
}

#[test]
fn a_recorded_error_within_a_stream_is_seen() {
    let counted = tally(ERROR, 1000);
    assert_eq!(
        counted.error(),
        Some(&StreamError { message: "Token limit reached".into(), status: 400 })
    );
    assert_eq!(counted.verdict(), StreamVerdict::Answer, "the reasoning came first");
    assert_eq!(counted.usage().map(|usage| usage.total_tokens), Some(53));
    let whole = assemble(CHAT, ERROR);
    assert_eq!(
        whole["choices"][0]["message"]["reasoning_content"],
        "We need to respond to a greeting. The user"
    );
    assert_eq!(whole["error"]["message"], "Token limit reached");
}

#[test]
fn the_first_telling_event_decides() {
    let mut counted = StreamTally::default();
    counted.feed(b": wait\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n");
    assert_eq!(counted.verdict(), StreamVerdict::Open);
    counted.feed(
        b"data: {\"error\":{\"message\":\"overloaded\"}}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
    );
    assert_eq!(counted.verdict(), StreamVerdict::Error);
    assert!(!counted.finished());
    let mut huge = StreamTally::default();
    huge.feed(&vec![b'x'; SSE_EVENT_BYTES + 1]);
    assert_eq!(huge.verdict(), StreamVerdict::Answer);
}

#[test]
fn without_a_count_there_is_an_estimate() {
    let counted = tally(b"data: {\"choices\":[{\"delta\":{\"content\":\"twelve bytes\"}}]}\n\n", 5);
    assert_eq!(
        counted.usage_or_estimate(10),
        Usage {
            prompt_tokens: 10,
            completion_tokens: 3,
            total_tokens: 13,
            counts: UsageCounts { cached_tokens: None, ..UsageCounts::default() },
            estimated: true,
            ..Usage::default()
        }
    );
}

#[test]
fn choices_and_calls_keep_apart() {
    let stream = concat!(
        r#"data: {"choices":[{"index":1,"delta":{"content":"b"}},"#,
        r#"{"index":0,"delta":{"content":"a"}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":1,"delta":{"content":"B"}},"#,
        r#"{"index":0,"delta":{"tool_calls":["#,
        r#"{"index":1,"id":"y","function":{"name":"g","arguments":"2"}},"#,
        r#"{"index":0,"id":"x","function":{"name":"f","arguments":"1"}}]}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":["#,
        r#"{"index":1,"function":{"arguments":"3"}}]}}]}"#,
        "\n",
    )
    .as_bytes();
    let whole = assemble(CHAT, stream);
    assert_eq!(whole["x_rerouter_dropped"], json!(["choices"]));
    assert_eq!(whole["choices"][0]["message"]["content"], "a");
    let calls = &whole["choices"][0]["message"]["tool_calls"];
    assert_eq!((&calls[0]["id"], &calls[0]["function"]["arguments"]), (&json!("y"), &json!("23")));
    assert_eq!((&calls[1]["id"], &calls[1]["function"]["arguments"]), (&json!("x"), &json!("1")));
}

proptest! {
    #[test]
    fn chunking_changes_no_count(
        size in 1usize..700,
        which in 0usize..3,
        windows in any::<bool>(),
    ) {
        let stream = [TEXT, CALL, ERROR][which];
        let stream = if windows {
            String::from_utf8_lossy(stream).replace('\n', "\r\n").into_bytes()
        } else {
            stream.to_vec()
        };
        let (one, many) = (tally(&stream, stream.len()), tally(&stream, size));
        prop_assert_eq!(one.usage(), many.usage());
        prop_assert_eq!(one.events(), many.events());
        prop_assert_eq!(one.content_bytes(), many.content_bytes());
        prop_assert_eq!(
            (one.verdict(), one.finished(), one.error()),
            (many.verdict(), many.finished(), many.error())
        );
        prop_assert_eq!(assemble(CHAT, &stream), assemble(CHAT, [TEXT, CALL, ERROR][which]));
    }

    #[test]
    fn no_bytes_panic(
        stream in "(data: |event: |\\{\"choices\":\\[|\\{\"delta\":|\"content\":|\
            \"tool_calls\":\\[|\\{\"index\":|7|\\}|\\]|,|\"x\"|\n){0,30}",
    ) {
        tally(stream.as_bytes(), 7);
        assemble(CHAT, stream.as_bytes());
    }
}

#[test]
fn a_count_of_a_part_is_no_count_of_the_whole() {
    let chunk = |content: &str, finish: &str, completion: u64| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{content}\"}},\
             \"finish_reason\":{finish}}}],\"usage\":{{\"prompt_tokens\":9,\
             \"completion_tokens\":{completion}}}}}\n\n"
        )
    };
    let along = [chunk("Hello", "null", 1), chunk(" and so on and on", "null", 3)].concat();
    let cut = tally(along.as_bytes(), 7);
    assert_eq!(cut.usage(), None);
    assert_eq!(
        cut.usage_or_estimate(4),
        Usage {
            prompt_tokens: 9,
            completion_tokens: 6,
            total_tokens: 15,
            counts: UsageCounts { cached_tokens: None, ..UsageCounts::default() },
            estimated: true,
            ..Usage::default()
        }
    );
    let whole = tally((along + &chunk("", "\"stop\"", 5)).as_bytes(), 7).usage().unwrap();
    assert_eq!(
        (whole.prompt_tokens, whole.completion_tokens, whole.total_tokens, whole.estimated),
        (9, 5, 14, false)
    );
    let groq = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\
        \"x_groq\":{\"id\":\"r\",\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3}}}\n\n";
    assert_eq!(tally(groq.as_bytes(), 7).usage().map(|usage| usage.total_tokens), Some(5));
}

#[test]
fn what_is_cut_off_is_assembled_as_far_as_it_came() {
    let message = concat!(
        "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\
         \"usage\":{\"input_tokens\":4,\"output_tokens\":1}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\
         \"content_block\":{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{}}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\": 1\"}}\n\n",
        "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"Oh\"}}\n\n",
    );
    let expected = json!({
        "id": "m", "type": "message", "role": "assistant",
        "content": [{
            "type": "tool_use", "id": "call_m_0", "name": "f", "input": {"arguments": "{\"a\": 1"},
        }],
        "stop_reason": null, "stop_sequence": null,
        "usage": {
            "input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens": 1,
        },
        "error": {"type": "api_error", "message": "Oh"},
    });
    assert_eq!(assemble(Endpoint::Messages, message.as_bytes()), expected);
    let response = concat!(
        "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\
         \"status\":\"in_progress\",\"output\":[]}}\n\n",
        "data: {\"type\":\"response.output_item.added\",\"output_index\":0,\
         \"item\":{\"type\":\"reasoning\",\"summary\":[]}}\n\n",
        "data: {\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,\
         \"summary_index\":0,\"delta\":\"Hm\"}\n\n",
        "data: {\"type\":\"response.output_item.added\",\"output_index\":1,\
         \"item\":{\"type\":\"message\",\"content\":[]}}\n\n",
        "data: {\"type\":\"response.content_part.added\",\"output_index\":1,\"content_index\":0,\
         \"part\":{\"type\":\"output_text\",\"text\":\"\"}}\n\n",
        "data: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"content_index\":0,\
         \"delta\":\"On\"}\n\n",
        "data: {\"type\":\"response.output_text.delta\",\"output_index\":1,\"content_index\":7,\
         \"delta\":\"nowhere\"}\n\n",
        "data: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"Oh\",\"param\":null,\
         \"sequence_number\":6}\n\n",
    );
    let whole = assemble(Endpoint::Responses, response.as_bytes());
    assert_eq!((&whole["id"], &whole["status"]), (&json!("r"), &json!("incomplete")));
    assert_eq!(whole["output"][0]["summary"][0]["text"], "Hm");
    assert_eq!(whole["output"][1]["content"][0]["text"], "On");
    assert_eq!(whole["error"]["message"], "Oh");
}

#[test]
fn an_error_in_a_document_is_seen() {
    let found = |body: &str| error_in(body.as_bytes()).map(|error| (error.message, error.status));
    assert_eq!(
        found(r#"{"id":"r","status":"failed","error":{"code":"server_error","message":"Oh"}}"#),
        Some(("Oh".into(), 500))
    );
    assert_eq!(found(r#"{"error":"Oh"}"#), Some(("Oh".into(), 502)));
    assert_eq!(found(r#"{"id":"r","error":null,"output":[{"error":1}]}"#), None);
    assert_eq!(found(r#"{"choices":[{"message":{"content":"\"error\""}}]}"#), None);
}

proptest! {
    #[test]
    fn no_events_panic(
        parts in prop::collection::vec(
            prop::sample::select(&[
                "data: ", "{\"type\":\"", "message_start\"", "content_block_start\"",
                "content_block_delta\"", "message_delta\"", "error\"", "response.created\"",
                "response.output_item.added\"", "response.output_text.delta\"",
                "response.completed\"", ",\"index\":0", ",\"output_index\":0",
                ",\"content_index\":1", ",\"delta\":{\"text\":\"a\"}", ",\"delta\":\"a\"",
                ",\"item\":{}", ",\"item\":{\"content\":7}", ",\"content_block\":{}",
                ",\"message\":{\"content\":[]}", ",\"response\":{\"output\":[]}", "}\n\n",
                "}\n\n",
            ][..]),
            0..40,
        ),
    ) {
        let stream = parts.concat();
        for endpoint in Endpoint::ALL {
            let mut tally = StreamTally::new(endpoint);
            stream.as_bytes().chunks(5).for_each(|chunk| tally.feed(chunk));
            tally.finish();
            let _ = (tally.usage_or_estimate(1), assemble(endpoint, stream.as_bytes()));
        }
    }
}

#[test]
fn a_call_behind_the_last_index_there_is_breaks_nothing() {
    let calls = json!([
        {"index": u64::MAX, "id": "a", "function": {"name": "f"}},
        {"id": "b", "function": {"arguments": "{}"}},
    ]);
    let event =
        format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}));
    let whole = assemble(CHAT, event.as_bytes());
    assert_eq!(
        whole["choices"][0]["message"]["tool_calls"][0]["function"],
        json!({"name": "f", "arguments": "{}"})
    );
}

/// Members of another type than usual, and halves of characters, lose nothing else.
#[test]
fn an_odd_member_costs_no_usage_and_no_end() {
    let chunk = |more: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"Hi\",{more}}},\
             \"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":9,\
             \"completion_tokens\":2}}}}\n\n"
        )
    };
    for more in [
        "\"annotations\":{}",
        "\"tool_calls\":{}",
        "\"reasoning_details\":\"x\"",
        "\"function_call\":\"\"",
        "\"refusal\":\"\\ud83d\"",
        "\"audio\":[1]",
    ] {
        let counted = tally(chunk(more).as_bytes(), 50);
        assert_eq!(counted.usage().map(|usage| usage.total_tokens), Some(11), "{more}");
        assert!(counted.finished() && counted.verdict() == StreamVerdict::Answer, "{more}");
    }
    for response in [
        r#"{"incomplete_details":"x","output":[{"type":"message","content":"x"}]}"#,
        r#"{"status":"completed","error":{}}"#,
        "null",
    ] {
        let event =
            format!("data: {{\"type\":\"response.completed\",\"response\":{response}}}\n\n");
        let mut counted = StreamTally::new(Endpoint::Responses);
        counted.feed(event.as_bytes());
        assert!(counted.done_seen() && counted.error().is_none(), "{response}");
    }
}
