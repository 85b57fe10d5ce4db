use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use rerouter_base::id::{Random, UserId};
use rerouter_captures::capture::fixtures::capture;

fn pair() -> (Capture, Capture) {
    let (owner, random) = (UserId::known("usr_1"), Random::seeded(1));
    (capture(0, &owner, &random), capture(1, &owner, &random))
}

fn row<'a>(compared: &'a Value, field: &str) -> &'a Value {
    compared["fields"].as_array().unwrap().iter().find(|row| row["field"] == field).unwrap()
}

#[test]
fn every_field_is_there_with_both_sides() {
    let (a, mut b) = pair();
    let decision = std::sync::Arc::make_mut(b.head.decision.as_mut().unwrap());
    (decision.model, decision.revision) = ("gpt-5-mini".into(), "000000000000".into());
    b.head.served = None;
    (b.head.usage, b.head.cost_usd, b.head.status) = (None, Some(0.5), 502);
    let compared = json!(compare(&a, &b));
    assert_eq!((&compared["a"], &compared["b"]), (&json!(a.head.id), &json!(b.head.id)));
    let expected = [
        json!(["decision.provider", "openai", "openai", true]),
        json!(["decision.model", "gpt-5", "gpt-5-mini", false]),
        json!(["decision.recipe", "balanced", "balanced", true]),
        json!(["decision.rule", "default", "default", true]),
        json!(["decision.revision", "9f2c41d07a1b", "000000000000", false]),
        json!(["served.provider", "demo", null, false]),
        json!(["served.model", "echo", null, false]),
        json!(["status", 200, 502, false]),
        json!(["state", "completed", "completed", true]),
        json!(["finish_reason", null, null, true]),
        json!(["text", null, null, true]),
        json!(["tool_calls", null, null, true]),
        json!(["usage.prompt_tokens", 3, null, false]),
        json!(["usage.completion_tokens", 4, null, false]),
        json!(["usage.total_tokens", 7, null, false]),
        json!(["cost_usd", null, 0.5, false]),
        json!(["latency.ttft_ms", null, null, true]),
        json!(["latency.total_ms", 934, 934, true]),
    ];
    let rows: Vec<Value> = compared["fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!([row["field"], row["a"], row["b"], row["equal"]]))
        .collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_stream_equals_its_answer_in_one_piece() {
    let (mut a, mut b) = pair();
    a.head.response_stream = true;
    a.bodies.response = Bytes::from_static(
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"On \"}}]}\n\n\
             data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"it.\",\
             \"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\
             \"function\":{\"name\":\"look\",\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n\n\
             data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\
             \"function\":{\"arguments\":\"1}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n\
             data: [DONE]\n\n",
    );
    let call = json!({
        "id": "call_2", "type": "function",
        "function": {"name": "look", "arguments": "{ \"a\": 1 }"}
    });
    let message = json!({
        "role": "assistant",
        "content": [{"type": "text", "text": "On "}, {"type": "text", "text": "it."}],
        "tool_calls": [
            call
        ]
    });
    b.bodies.response = Bytes::from(
        json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).to_string(),
    );
    let compared = json!(compare(&a, &b));
    for (field, value) in [
        ("text", json!("On it.")),
        ("finish_reason", json!("tool_calls")),
        ("tool_calls", json!([{"name": "look", "arguments": {"a": 1}}])),
    ] {
        assert_eq!(
            row(&compared, field),
            &json!({"field": field, "a": value, "b": value, "equal": true})
        );
    }
    b.bodies.response = Bytes::from_static(
        b"{\"choices\":[{\"message\":{\"content\":\"a\"}},{\"message\":{\"content\":\"b\"}}]}",
    );
    let compared = json!(compare(&a, &b));
    assert_eq!(
        (&row(&compared, "text")["b"], &row(&compared, "text")["equal"]),
        (&json!(["a", "b"]), &json!(false))
    );
}

#[test]
fn streams_of_responses_and_messages_equal_their_documents() {
    let response = json!({"id": "resp_1", "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"}, "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {
            "type": "message", "content": [
                {"type": "output_text", "text": "On "}, {"type": "output_text", "text": "it."}
            ]
        },
        {"type": "web_search_call", "status": "completed"},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{ \"a\": 1 }"},
    ]});
    let stream = format!(
        "event: response.incomplete\ndata: {}\n\n",
        json!({"type": "response.incomplete", "response": response})
    );
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant",
            "stop_reason": "tool_use", "content": [
        {"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "On "},
        {"type": "text", "text": "it."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}},
    ]});
    let events = [
        json!({
            "type": "message_start",
            "message": {"id": "msg_2", "type": "message", "role": "assistant", "content": []}
        }),
        json!({
            "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}
        }),
        json!({
            "type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "On it."}
        }),
        json!({
            "type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}}
        }),
        json!({
            "type": "content_block_delta", "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}
        }),
        json!({
            "type": "content_block_delta", "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": "1}"}
        }),
        json!({
            "type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 1}
        }),
    ];
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    for (endpoint, document, stream, reason) in [
        ("responses", &response, stream, "max_output_tokens"),
        ("messages", &message, events, "tool_use"),
    ] {
        let (mut a, mut b) = pair();
        (a.head.endpoint, b.head.endpoint) = (endpoint.into(), endpoint.into());
        (a.bodies.response, b.bodies.response, b.head.response_stream) =
            (document.to_string().into(), stream.into(), true);
        let compared = json!(compare(&a, &b));
        for (field, value) in [
            ("text", json!("On it.")),
            ("finish_reason", json!(reason)),
            ("tool_calls", json!([{"name": "look", "arguments": {"a": 1}}])),
        ] {
            assert_eq!(
                row(&compared, field),
                &json!({"field": field, "a": value, "b": value, "equal": true}),
                "{endpoint}"
            );
        }
    }
}

#[test]
fn of_a_body_that_was_not_kept_nothing_is_claimed() {
    let (mut a, mut b) = pair();
    a.head.request_captured = false;
    b.head.response_truncated = true;
    let compared = json!(compare(&a, &b));
    for field in ["finish_reason", "text", "tool_calls"] {
        assert_eq!(
            row(&compared, field),
            &json!({"field": field, "a": null, "b": null, "equal": null})
        );
    }
    assert_eq!(row(&compared, "status")["equal"], true);
}

#[test]
fn what_was_taken_out_may_have_been_the_same_or_not() {
    let (mut a, mut b) = pair();
    let answer = |text: &str| {
        Bytes::from(
            json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
                .to_string(),
        )
    };
    let equal =
        |a: &Capture, b: &Capture, field: &str| row(&json!(compare(a, b)), field)["equal"].clone();
    (a.bodies.response, b.bodies.response) =
        (answer("it is [redacted]"), answer("it is [redacted]"));
    assert_eq!(equal(&a, &b, "text"), true, "a provider may say so itself");
    for redacted in [[true, false], [false, true], [true, true]] {
        [a.head.redacted, b.head.redacted] = redacted;
        assert_eq!(
            (equal(&a, &b, "text"), equal(&a, &b, "finish_reason"), equal(&a, &b, "status")),
            (Value::Null, true.into(), true.into())
        );
    }
    b.head.redacted = false;
    (a.bodies.response, b.bodies.response) = (Bytes::new(), Bytes::new());
    for stream in [false, true] {
        a.head.response_stream = stream;
        assert_eq!(
            (equal(&a, &b, "text"), equal(&a, &b, "state")),
            (Value::Null, true.into()),
            "nothing was kept of one"
        );
    }
}

proptest! {
    #[test]
    fn any_answer_equals_itself(body: Vec<u8>, stream: bool) {
        let (mut a, _) = pair();
        a.head.response_stream = stream;
        a.bodies.response = body.into();
        let compared = json!(compare(&a, &a));
        prop_assert!(compared["fields"].as_array().unwrap().iter().all(|row| row["equal"] == true));
    }
}
