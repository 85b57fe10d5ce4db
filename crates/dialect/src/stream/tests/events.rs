//! The kinds of single events in each dialect.

use super::*;
use crate::wire::sse::SSE_EVENT_BYTES;

fn error(message: &str, status: Option<u16>) -> EventKind {
    let status = status.unwrap_or(502);
    EventKind::Error(StreamError { message: message.into(), status })
}

#[test]
fn events_are_what_they_are() {
    for (event, seen) in [
        (": keep-alive\n\n", EventKind::Comment),
        ("\n", EventKind::Comment),
        ("data: [DONE]\n\n", EventKind::Done),
        (
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\",\
             \"tool_calls\":[ ]}}]}\n\n",
            EventKind::Preamble,
        ),
        ("data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n", EventKind::Preamble),
        ("data: {\"choices\":[{\"delta\":{\"content\":\" \"}}]}\n\n", EventKind::Content),
        (
            "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"Hm\"}}]}\n\n",
            EventKind::Content,
        ),
        (
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0}]}}]}\n\n",
            EventKind::Content,
        ),
        (
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\
             \"usage\":{\"prompt_tokens\":1}}\n\n",
            EventKind::Content,
        ),
        (
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n",
            EventKind::Usage,
        ),
        (
            "data: {\"error\":{\"message\":\"slow down\",\"type\":\"rate_limit_error\",\
             \"code\":null}}\n\n",
            error("slow down", Some(429)),
        ),
        ("data: {\"error\":\"boom\"}\n\n", error("boom", None)),
        (
            "event: error\ndata: {\"message\":\"boom\",\"code\":\"503\"}\n\n",
            error("boom", Some(503)),
        ),
        ("event: error\ndata: boom\n\n", error("boom", None)),
        ("data: {\"choices\":7}\n\n", EventKind::Preamble),
        ("data: nonsense\n\n", EventKind::Other),
    ] {
        assert_eq!(classify(CHAT, event.as_bytes()), seen, "{event}");
    }
}

fn responses(events: &[(&str, EventKind)]) {
    for (data, seen) in events {
        let kind = data.split('"').nth(3).unwrap();
        for event in [format!("event: {kind}\ndata: {data}\n\n"), format!("data: {data}\n\n")] {
            assert_eq!(classify(Endpoint::Responses, event.as_bytes()), *seen, "{event}");
        }
    }
}

#[test]
fn events_of_a_response_are_what_they_are() {
    responses(&[
        (
            concat!(
                r#"{"type":"response.created","response":{"status":"queued","usage":null,"#,
                r#""error":null}}"#,
            ),
            EventKind::Preamble,
        ),
        (r#"{"type":"response.queued","response":{}}"#, EventKind::Preamble),
        (r#"{"type":"response.in_progress","response":{}}"#, EventKind::Preamble),
        (
            r#"{"type":"response.output_item.added","item":{"type":"message","content":[]}}"#,
            EventKind::Preamble,
        ),
        (
            r#"{"type":"response.output_item.added","item":{"type":"reasoning","summary":[]}}"#,
            EventKind::Preamble,
        ),
        (
            r#"{"type":"response.output_item.added","item":{"type":"mcp_list_tools","tools":[]}}"#,
            EventKind::Preamble,
        ),
        (r#"{"type":"response.mcp_list_tools.completed"}"#, EventKind::Preamble),
        (
            r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#,
            EventKind::Preamble,
        ),
        (r#"{"type":"response.output_text.delta","delta":""}"#, EventKind::Preamble),
        (r#"{"type":"response.output_text.delta","delta":" "}"#, EventKind::Content),
        (r#"{"type":"response.refusal.delta","delta":"No"}"#, EventKind::Content),
        (r#"{"type":"response.reasoning_summary_text.delta","delta":"Hm"}"#, EventKind::Content),
        (r#"{"type":"response.function_call_arguments.delta","delta":"{"}"#, EventKind::Content),
        (r#"{"type":"response.audio.delta","delta":"AAAA"}"#, EventKind::Content),
        (
            r#"{"type":"response.image_generation_call.partial_image","partial_image_b64":"AAAA"}"#,
            EventKind::Content,
        ),
        (
            concat!(
                r#"{"type":"response.output_item.added","item":{"type":"function_call","#,
                r#""name":"f","arguments":""}}"#,
            ),
            EventKind::Content,
        ),
        (
            concat!(
                r#"{"type":"response.output_item.done","item":{"type":"message","#,
                r#""content":[{"text":"a"}]}}"#,
            ),
            EventKind::Content,
        ),
        (r#"{"type":"response.web_search_call.searching"}"#, EventKind::Content),
        (
            concat!(
                r#"{"type":"response.completed","response":{"usage":{"input_tokens":1,"#,
                r#""output_tokens":2}}}"#,
            ),
            EventKind::Done,
        ),
        (
            concat!(
                r#"{"type":"response.incomplete","#,
                r#""response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#,
            ),
            EventKind::Done,
        ),
        (
            concat!(
                r#"{"type":"response.failed","response":{"error":{"code":"server_error","#,
                r#""message":"Oh"}}}"#,
            ),
            error("Oh", Some(500)),
        ),
        (
            concat!(
                r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","#,
                r#""message":"Slow"}}}"#,
            ),
            error("Slow", Some(429)),
        ),
        (r#"{"type":"response.failed"}"#, error("The provider did not finish its answer.", None)),
        (
            concat!(
                r#"{"type":"error","code":"invalid_prompt","message":"Oh","param":null,"#,
                r#""sequence_number":3}"#,
            ),
            error("Oh", Some(400)),
        ),
        (
            r#"{"type":"error","error":{"type":"server_error","message":"Oh"}}"#,
            error("Oh", Some(500)),
        ),
        (r#"{"type":"response.something.new","delta":"x"}"#, EventKind::Other),
        (r#"{"type":"keepalive"}"#, EventKind::Preamble),
    ]);
    assert_eq!(classify(Endpoint::Responses, b"data: [DONE]\n\n"), EventKind::Done);
    assert_eq!(classify(Endpoint::Responses, b": wait\n\n"), EventKind::Comment);
    assert_eq!(
        classify(Endpoint::Responses, b"data: {\"error\":{\"message\":\"Oh\",\"code\":502}}\n\n"),
        error("Oh", Some(502))
    );
    assert_eq!(classify(Endpoint::Responses, b"event: error\ndata: boom\n\n"), error("boom", None));
    assert_eq!(classify(Endpoint::Responses, b"data: {\"type\":7}\n\n"), EventKind::Other);
}

#[test]
fn events_of_a_message_are_what_they_are() {
    for (data, seen) in [
        (
            r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#,
            EventKind::Preamble,
        ),
        (r#"{"type": "ping"}"#, EventKind::Preamble),
        (
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            EventKind::Preamble,
        ),
        (
            concat!(
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","#,
                r#""thinking":"","signature":""}}"#,
            ),
            EventKind::Preamble,
        ),
        (
            concat!(
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","#,
                r#""text":"A"}}"#,
            ),
            EventKind::Content,
        ),
        (
            concat!(
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","#,
                r#""name":"f","input":{}}}"#,
            ),
            EventKind::Content,
        ),
        (
            concat!(
                r#"{"type":"content_block_start","index":0,"#,
                r#""content_block":{"type":"redacted_thinking","data":"x"}}"#,
            ),
            EventKind::Content,
        ),
        (
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":""}}"#,
            EventKind::Preamble,
        ),
        (
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" "}}"#,
            EventKind::Content,
        ),
        (
            concat!(
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","#,
                r#""thinking":"Hm"}}"#,
            ),
            EventKind::Content,
        ),
        (
            concat!(
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","#,
                r#""partial_json":"{"}}"#,
            ),
            EventKind::Content,
        ),
        (
            concat!(
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","#,
                r#""signature":"x"}}"#,
            ),
            EventKind::Content,
        ),
        (
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"of_tomorrow","thing":1}}"#,
            EventKind::Content,
        ),
        (r#"{"type":"content_block_stop","index":0}"#, EventKind::Preamble),
        (
            concat!(
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"#,
                r#""usage":{"output_tokens":9}}"#,
            ),
            EventKind::Content,
        ),
        (r#"{"type":"message_stop"}"#, EventKind::Done),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            error("Overloaded", Some(529)),
        ),
        (
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"Slow"}}"#,
            error("Slow", Some(429)),
        ),
        (
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Oh"}}"#,
            error("Oh", Some(400)),
        ),
        (r#"{"type":"error"}"#, error(r#"{"type":"error"}"#, None)),
        (r#"{"type":"of_tomorrow"}"#, EventKind::Other),
        ("[DONE]", EventKind::Other),
    ] {
        assert_eq!(
            classify(Endpoint::Messages, format!("data: {data}\n\n").as_bytes()),
            seen,
            "{data}"
        );
    }
    assert_eq!(classify(Endpoint::Messages, b"event: message_stop\ndata: {}\n\n"), EventKind::Done);
}

#[test]
fn an_event_too_large_to_be_read_may_still_be_the_end() {
    let picture = "A".repeat(SSE_EVENT_BYTES);
    let event = format!(
        "event: response.completed\n\
         data: {{\"type\":\"response.completed\",\
         \"response\":{{\"output\":[{{\"result\":\"{picture}\"}}]}}}}\n\n"
    );
    let unnamed = event.replace("event: response.completed\n", "");
    for (stream, finished) in [
        (event.as_str(), true),
        (unnamed.as_str(), true),
        (&event[..event.len() - 1], false),
        (
            &event.replace("response.completed", "response.image_generation_call.partial_image"),
            false,
        ),
    ] {
        for size in [1 << 10, 1 << 16, 1 << 22] {
            let mut tally = StreamTally::new(Endpoint::Responses);
            stream.as_bytes().chunks(size).for_each(|chunk| tally.feed(chunk));
            tally.finish();
            assert_eq!(
                (tally.verdict(), tally.finished()),
                (StreamVerdict::Answer, finished),
                "{size}: {}",
                &stream[..60]
            );
            assert_eq!(tally.content_bytes(), 0, "a picture is no text");
        }
    }
}

#[test]
fn the_last_of_two_large_events_ends_the_stream_and_counts() {
    let picture = "A".repeat(SSE_EVENT_BYTES);
    let item = format!(
        "event: response.output_item.done\ndata: {{\"type\":\"response.output_item.done\",\
         \"item\":{{\"type\":\"image_generation_call\",\"result\":\"{picture}\"}}}}\n\n"
    );
    let last = format!(
        "event: response.completed\ndata: {{\"type\":\"response.completed\",\
         \"response\":{{\"output\":[{{\"result\":\"{picture}\"}}],\"usage\":{{\
         \"input_tokens\":7,\"output_tokens\":500,\"total_tokens\":507}},\"user\":null}},\
         \"sequence_number\":9}}\n\n"
    );
    for size in [1 << 10, 1 << 16, 1 << 22] {
        let mut tally = StreamTally::new(Endpoint::Responses);
        [&*item, &*last].concat().as_bytes().chunks(size).for_each(|chunk| tally.feed(chunk));
        tally.finish();
        assert!(tally.finished(), "{size}");
        let usage = tally.usage().unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (7, 500), "{size}");
    }
}

#[test]
fn a_choice_that_has_ended_stays_ended() {
    let filtered = "data: {\"choices\":[{\"index\":0,\"delta\":{},\
        \"content_filter_results\":{}}]}\n\n";
    let mut tally = StreamTally::new(Endpoint::ChatCompletions);
    tally.feed(
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\
          \"finish_reason\":\"stop\"}]}\n\n",
    );
    tally.feed(filtered.as_bytes());
    tally.finish();
    assert!(tally.finished() && !tally.done_seen());
}
