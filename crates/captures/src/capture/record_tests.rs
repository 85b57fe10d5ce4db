//! How a capture is shown, and how its head is stored.

use super::*;
use serde_json::json;

use crate::capture::fixtures::capture;
use rerouter_base::id::Random;

#[test]
fn the_summary_is_the_contract_s() {
    let capture = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
    let expected = json!({
        "object": "replay", "id": capture.head.id, "created_at": "2025-11-24T16:00:00.000000Z",
        "state": "completed", "endpoint": "chat.completions", "model": "auto", "key": null,
        "user": "usr_1", "agent": null,
        "decision": {
            "provider": "openai", "model": "gpt-5", "recipe": "balanced", "rule": "default",
            "revision": "9f2c41d07a1b", "left_out": [],
        },
        "refused": null, "served": {"provider": "demo", "model": "echo"}, "status": 200,
        "stream": false,
        "usage": {
            "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "cached_tokens": null,
            "estimated": false,
        },
        "cost_usd": null, "latency": {"routing_us": 7, "ttft_ms": null, "total_ms": 934},
        "attempts": 1, "replayable": true, "not_replayable": null, "replay_of": null,
        "replayed_by": null, "shadow_of": null, "imported": false,
    });
    assert_eq!(json!(capture.head.summary()), expected);
}

#[test]
fn the_whole_holds_exact_bodies_and_the_full_decision() {
    let mut capture = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
    let whole = json!(capture.whole());
    assert_eq!(
        whole["request"],
        json!({"headers": {"accept": "a, b"}, "body": "{\"model\": \"auto\"}", "truncated": false})
    );
    assert_eq!(whole["response"]["assembled"], Value::Null);
    assert_eq!(whole["decision"]["seed"], "ffffffffffffffff");
    assert_eq!(
        whole["decision"]["served"],
        json!({"provider": "demo", "model": "echo", "node": null})
    );
    assert_eq!(whole["decision"]["attempts"][0]["status"], 429);
    assert_eq!(whole["inputs"]["request"]["model"], "auto");
    assert_eq!(whole["redacted"], false);
    capture.head.response_stream = true;
    capture.bodies.request = Bytes::from_static(b"\xff\x00");
    capture.bodies.response =
        Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n");
    let whole = json!(capture.whole());
    assert_eq!(
        (&whole["request"]["body"], &whole["request"]["body_base64"]),
        (&Value::Null, &json!("/wA="))
    );
    assert_eq!(whole["response"]["assembled"]["choices"][0]["message"]["content"], "hi");
    capture.bodies.response = Bytes::new();
    assert_eq!(json!(capture.whole())["response"]["body"], Value::Null);
    capture.head.response_headers = vec![("content-length".into(), "0".into())];
    assert_eq!(json!(capture.whole())["response"]["body"], "");
}

#[test]
fn a_part_of_a_body_does_not_hold_on_to_all_of_it() {
    let body = Bytes::from(vec![7; 1000]);
    for most in [0, 1, 499, 500, 999, 1000, 2000] {
        let part = Bodies::cut(&body, most);
        assert_eq!(part, body[..most.min(1000)]);
        assert_eq!(!part.is_empty() && part.as_ptr() == body.as_ptr(), most >= 500, "{most}");
    }
}

#[test]
fn what_cannot_run_again_says_why() {
    let mut capture = capture(0, &UserId::known("usr_1"), &Random::seeded(1));
    assert!(capture.head.check_replayable().is_ok());
    capture.head.redacted = true;
    assert_eq!(json!(capture.head.summary())["not_replayable"], "redacted");
    capture.head.request_truncated = true;
    assert_eq!(json!(capture.head.summary())["not_replayable"], "truncated");
    capture.head.request_captured = false;
    assert_eq!(
        (
            &json!(capture.head.summary())["not_replayable"],
            &json!(capture.head.summary())["replayable"]
        ),
        (&json!("not_captured"), &json!(false))
    );
    assert_eq!(capture.head.check_replayable().unwrap_err().status().as_u16(), 409);
    assert_eq!(json!(capture.whole())["request"]["body"], Value::Null);
}

#[test]
fn a_head_reads_back_equal_also_from_before_there_were_shadows() {
    let mut head = capture(1, &UserId::known("usr_1"), &Random::seeded(1)).head;
    let mut old = json!(head);
    assert_eq!(old.as_object_mut().unwrap().remove("shadow_of"), Some(Value::Null));
    assert_eq!(serde_json::from_value::<Head>(old).unwrap(), head);
    head.shadow_of = Some(RequestId::known("req_1"));
    let agent = AgentRef { id: "agent_1".into(), name: "a".into(), etag: "e".into() };
    let head = head.through(None).through(Some(&agent));
    assert_eq!((head.version, &json!(head.summary())["agent"]), (Head::AGENT, &json!("agent_1")));
    let text = serde_json::to_vec(&head).unwrap();
    assert_eq!(serde_json::from_slice::<Head>(&text).unwrap(), head);
}
