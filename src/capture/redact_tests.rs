//! What expressions match, wherever it stands, whole or cut.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::capture::prepare;
use crate::capture::record::tests::capture;
use crate::capture::record::{Capture, Served};
use crate::id::{Random, UserId};
use crate::routing::{Abilities, AgentRef, Decision, NodeFacts, PlanEntry, TargetHealth, Trace};

const MATCH: &str = "canary-0123456789";

fn plain() -> Capture {
    capture(0, &UserId::known("usr_1"), &Random::seeded(1))
}

/// Everything that is written of a capture: its row in the index, its head and its bodies.
fn written(capture: &Capture) -> (String, Head) {
    written_without("canary-[0-9]{10}", capture)
}

fn written_without(expression: &str, capture: &Capture) -> (String, Head) {
    let redactor = Redactor::new(vec![Expression::new(expression).unwrap()]);
    let ready = prepare::ready(capture, &redactor).unwrap();
    let said = [&ready.head[..], &ready.bodies.request, &ready.bodies.response]
        .map(|part| String::from_utf8_lossy(part).into_owned());
    (format!("{:?}{}", ready.row, said.concat()), serde_json::from_slice(&ready.head).unwrap())
}

#[test]
fn no_name_in_a_head_says_what_is_kept_out() {
    let said = || MATCH.to_owned();
    type Put = Box<dyn Fn(&mut Head)>;
    fn inputs(put: impl Fn(&mut crate::routing::Inputs) + 'static) -> Put {
        Box::new(move |head| put(head.inputs.as_mut().unwrap()))
    }
    fn decision(put: impl Fn(&mut Decision) + 'static) -> Put {
        Box::new(move |head| put(Arc::make_mut(head.decision.as_mut().unwrap())))
    }
    let node = |node: NodeFacts| {
        inputs(move |inputs| {
            _ = inputs.health.insert(
                "n".into(),
                TargetHealth { node: Some(node.clone()), ..TargetHealth::default() },
            )
        })
    };
    let places: Vec<Put> = vec![
        inputs(move |inputs| inputs.request.model = said()),
        inputs(move |inputs| inputs.request.name = said()),
        inputs(move |inputs| {
            inputs.request.agent =
                Some(AgentRef { id: "agent_1".into(), name: said(), etag: "e".into() })
        }),
        inputs(move |inputs| _ = inputs.request.headers.insert("x-a".into(), said())),
        inputs(move |inputs| _ = inputs.principal.labels.insert("team".into(), said())),
        inputs(move |inputs| _ = inputs.principal.labels.insert(said(), "core".into())),
        inputs(move |inputs| _ = inputs.principal.user_labels.insert("team".into(), said())),
        inputs(move |inputs| inputs.principal.models = Some(vec![said()])),
        inputs(move |inputs| _ = inputs.health.insert(said(), TargetHealth::default())),
        node(NodeFacts { models: vec![said().into()], ..NodeFacts::default() }),
        node(NodeFacts {
            abilities: BTreeMap::from([(said().into(), Arc::new(Abilities::default()))]),
            ..NodeFacts::default()
        }),
        decision(move |decision| (decision.model, decision.plan[0].model) = (said(), said())),
        decision(move |decision| {
            decision.plan.push(PlanEntry { provider: "p".into(), model: said() })
        }),
        decision(move |decision| decision.candidates[0].model = said()),
        decision(move |decision| decision.alias = Some(said())),
        decision(move |decision| decision.recipe = said()),
        decision(move |decision| decision.rule = Some(said())),
        decision(move |decision| decision.trace.push(Trace { rule: "r".into(), error: said() })),
        Box::new(move |head| {
            head.served = Some(Served { provider: "p".into(), model: said().into(), node: None })
        }),
        Box::new(move |head| head.attempts[0].model = said().into()),
        Box::new(move |head| head.attempts[0].error = Some(said())),
        Box::new(move |head| head.error = Some(said())),
        Box::new(move |head| head.client_request_id = Some(said())),
        Box::new(move |head| head.query = Some(said())),
        Box::new(move |head| head.request_headers.push(("x-a".into(), said()))),
        Box::new(move |head| head.response_headers.push((said(), "a".into()))),
    ];
    for (number, put) in places.into_iter().enumerate() {
        let mut capture = plain();
        put(&mut capture.head);
        let before = capture.head.decision.clone();
        let (text, head) = written(&capture);
        assert!(!text.contains("canary-0") && head.redacted, "{number}: {text}");
        assert_eq!(capture.head.decision, before, "what serves the request stays");
    }
    let (_, head) = written(&plain());
    assert_eq!(head, plain().head, "and nothing else changes");
    // Cut off where such names are: the rest of what would match is not known, and neither is that it would.
    let mut capture = plain();
    capture.head.client_request_id =
        Some(format!("{}canary-01234567", "x".repeat(bounds::CLIENT_REQUEST_ID_CHARS - 15)));
    let (text, head) = written(&capture);
    assert!(
        !text.contains("canary-0") && !head.redacted && head.client_request_id.is_none(),
        "{text}"
    );
}

#[test]
fn a_member_that_comes_twice_is_read_each_time() {
    for body in [
        r#"{"metadata":{"a":"canary-0123456789","a":"x"},"model":"m"}"#,
        r#"{"model":"canary-0123456789","model":"m"}"#,
        r#"{"canary-0123456789":{"a":1},"b":[{"a":["canary-0123456789"],"a":2}]}"#,
    ] {
        let mut capture = plain();
        capture.bodies.request = Bytes::from(body);
        capture.bodies.response = Bytes::from(body);
        let (text, head) = written(&capture);
        assert!(!text.contains("canary") && head.redacted, "{text}");
    }
    // Of what matches nothing every byte stays, also where it says a thing twice.
    let mut capture = plain();
    capture.bodies.request = Bytes::from_static(br#"{"a": 1, "a":"\u0061", "model":"m"}"#);
    let ready = prepare::ready(
        &capture,
        &Redactor::new(vec![Expression::new("canary-[0-9]{10}").unwrap()]),
    )
    .unwrap();
    assert_eq!(ready.bodies, capture.bodies);
}

#[test]
fn a_match_that_may_be_cut_is_not_kept() {
    let event = format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": "it is canary-01234"}}]})
    );
    for (response, stream) in
        [(event.as_str(), true), ("it is canary-01234", false), ("{\"text\":\"canary-01234", false)]
    {
        let mut capture = plain();
        (capture.head.response_stream, capture.head.response_truncated) = (stream, true);
        capture.bodies.response = Bytes::copy_from_slice(response.as_bytes());
        let (text, head) = written(&capture);
        assert!(!text.contains("canary-") && head.redacted, "{text}");
    }
    // Nor where a text quotes a string that spells it otherwise.
    for response in
        [r#"Error: {"input":"c\u0061nary-0123456789"}"#, r"Error: c\u0061nary-0123456789"]
    {
        let mut capture = plain();
        capture.bodies.response = Bytes::from_static(response.as_bytes());
        assert!(!written(&capture).0.contains("nary-"));
    }
    let mut capture = plain();
    capture.bodies.response = Bytes::from_static(br"C:\dir is canary-0123456789");
    assert!(
        written(&capture).0.contains(r"C:\dir is [redacted]"),
        "what it is in otherwise is kept"
    );
}

/// The client leaves, or the provider breaks off, within what would have been a match.
#[test]
fn a_match_that_the_end_of_an_answer_cut_is_not_kept() {
    let event = format!(
        "data: {}\n\n",
        json!({"choices": [{"index": 0, "delta": {"content": "it is canary-01234"}}]})
    );
    let early: [(State, Option<&str>); 4] = [
        (State::Aborted, Some("client_gone")),
        (State::Failed, Some("cut")),
        (State::Failed, Some("timeout")),
        (State::Failed, Some("connect")),
    ];
    for (response, stream) in
        [(event.as_str(), true), ("it is canary-01234", false), ("41111111", false)]
    {
        for (state, error) in early {
            let mut capture = plain();
            (capture.head.state, capture.head.error, capture.head.response_stream) =
                (state, error.map(Into::into), stream);
            capture.bodies.response = Bytes::copy_from_slice(response.as_bytes());
            let (text, head) = written(&capture);
            assert!(
                !text.contains("canary-") && !text.contains("41111111") && head.redacted,
                "{state:?} {error:?}: {text}"
            );
            assert!(head.check_replayable().is_ok(), "it is the answer that is not kept");
        }
    }
    // What failed by its status was read to its end, and so was JSON.
    for (state, error, said) in [
        (State::Failed, None, "no more of it"),
        (State::Failed, Some("server_error"), "no more of it"),
        (State::Failed, Some("cut"), r#"{"error":"no more of it"}"#),
        (State::Refused, Some("no_target: none"), r#"{"error":"no more of it"}"#),
    ] {
        let mut capture = plain();
        (capture.head.state, capture.head.error, capture.head.status) =
            (state, error.map(Into::into), 503);
        capture.bodies.response = Bytes::copy_from_slice(said.as_bytes());
        let (text, head) = written(&capture);
        assert!(text.contains("no more of it") && !head.redacted, "{state:?} {error:?}: {text}");
    }
}

#[test]
fn a_number_that_matches_is_not_kept() {
    for (number, there) in [
        ("4111111111111111", true),
        ("-4111111111111111", true),
        ("4111111111111111.0", true),
        ("4.111111111111111e15", true),
        ("41111111111111111111111", true),
        ("4.1111111111111111e22", true),
        ("411111111111111", false),
        ("4e14", false),
    ] {
        let body = format!(r#"{{"a": [{number}, 5], "card":{number}, "model":"m"}}"#);
        let mut capture = plain();
        (capture.bodies.request, capture.bodies.response) =
            (body.clone().into(), body.clone().into());
        let redactor = Redactor::new(vec![Expression::new("[0-9]{16}").unwrap()]);
        let ready = prepare::ready(&capture, &redactor).unwrap();
        let kept = if there {
            r#"{"a": ["[redacted]", 5], "card":"[redacted]", "model":"m"}"#.to_owned()
        } else {
            body
        };
        assert_eq!(
            (&ready.bodies.request[..], &ready.bodies.response[..]),
            (kept.as_bytes(), kept.as_bytes())
        );
        let head: Head = serde_json::from_slice(&ready.head).unwrap();
        assert_eq!((head.redacted, head.check_replayable().is_ok()), (there, !there), "{number}");
    }
    let mut capture = plain();
    capture.head.response_stream = true;
    let chunk = json!({"id": "c", "created": 4111111111111111u64, "choices": [{"index": 0, "delta": {"content": "a", "card": 4111111111111111u64}}]});
    capture.bodies.response = format!("data: {chunk}\n\n").into();
    let (text, head) = written_without("[0-9]{16}", &capture);
    assert!(text.contains(r#""card":"[redacted]""#) && head.redacted, "{text}");
}

/// Any expression of ten digits matches the time in every answer.
#[test]
fn times_and_counts_of_an_answer_stay_and_nothing_else_that_matches() {
    let usage = json!({"prompt_tokens": 1777777777, "details": {"cached": 1777777777}});
    let answer = json!({"id": "x", "created": 1777777777, "created_at": 1777777777, "completed_at": 1777777778.5, "usage": usage});
    let mut capture = plain();
    capture.bodies.response = answer.to_string().into();
    let (text, head) = written_without("[0-9]{10}", &capture);
    assert!(text.contains(&answer.to_string()) && !head.redacted, "{text}");
    for (at, said) in [
        ("/usage/note", json!("1777777777")),
        ("/output", json!([{"created": 1777777777}])),
        ("/phone", json!(1777777777)),
        ("/created", json!("1777777777")),
    ] {
        let mut other = json!({"id": "x", "usage": {"note": null}, "output": null, "phone": null, "created": 1});
        *other.pointer_mut(at).unwrap() = said;
        capture.bodies.response = other.to_string().into();
        let (text, head) = written_without("[0-9]{10}", &capture);
        assert!(
            !text.contains("1777777777") && head.redacted && head.request_whole,
            "{at}: {text}"
        );
    }
    // Fractions of vectors and of log probabilities, by the thousand; what is whole there is none.
    let measured = json!({"data": [{"embedding": [0.1777777777771, -1.777777777777e-5]}], "choices": [{"logprobs": {"content": [{"logprob": -0.17777777771}]}}]});
    capture.bodies.response = measured.to_string().into();
    let (text, head) = written_without("[0-9]{10}", &capture);
    assert!(text.contains(&measured.to_string()) && !head.redacted, "{text}");
    capture.bodies.response =
        Bytes::from_static(br#"{"data":[{"embedding":[1777777777]}],"score":0.1777777777}"#);
    let (text, _) = written_without("[0-9]{10}", &capture);
    assert!(
        text.contains(r#"{"data":[{"embedding":["[redacted]"]}],"score":"[redacted]"}"#),
        "{text}"
    );
    // A request has none of its own.
    let mut capture = plain();
    capture.bodies.request =
        Bytes::from_static(br#"{"model":"auto","created":1777777777,"embedding":0.17777777777}"#);
    let (text, head) = written_without("[0-9]{10}", &capture);
    assert!(
        text.contains(r#""created":"[redacted]","embedding":"[redacted]""#)
            && head.check_replayable().is_err(),
        "{text}"
    );
}

proptest! {
    #[test]
    fn no_number_that_matches_survives_however_it_is_written(
        number in "-?[0-9]{1,20}(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", within in prop::sample::select(&["{\"a\":@}", "[1,[@]]", "@", "{\"usage\":{\"@\":0}}"][..]),
    ) {
        let expression = "[0-9]{16}";
        let mut capture = plain();
        capture.bodies.request = within.replace('@', &number).into();
        capture.bodies.response = capture.bodies.request.clone();
        let ready = prepare::ready(&capture, &Redactor::new(vec![Expression::new(expression).unwrap()])).unwrap();
        let is_match = |said: &[u8]| Regex::new(expression).unwrap().is_match(std::str::from_utf8(said).unwrap());
        prop_assert!(!is_match(&ready.bodies.request) && !is_match(&ready.bodies.response));
        let head: Head = serde_json::from_slice(&ready.head).unwrap();
        prop_assert!(!is_match(&capture.bodies.request) || head.check_replayable().is_err());
    }

    #[test]
    fn no_match_survives_wherever_the_body_is_cut(
        before in "[a-b\"\\\\ ]{0,8}", pretty: bool, escaped: bool, at: prop::sample::Index, place in 0..4_usize,
    ) {
        let said = format!("{before}{MATCH} and more");
        let body = match place {
            0 => json!({"model": "m", "messages": [{"role": "user", "content": said}]}),
            1 => json!({"metadata": {"a": said}, "model": "m"}),
            2 => json!({"metadata": {said: "a"}, "model": "m"}),
            _ => json!({"model": said, "input": ["a"]}),
        };
        let text = if pretty { serde_json::to_string_pretty(&body).unwrap() } else { body.to_string() };
        let text = if escaped { text.replace("canary", "c\\u0061nary") } else { text };
        let cut = at.index(text.len() + 1);
        let mut capture = plain();
        capture.bodies.request = Bytes::copy_from_slice(&text.as_bytes()[..cut]);
        capture.bodies.response = capture.bodies.request.clone();
        (capture.head.request_truncated, capture.head.response_truncated) = (cut < text.len(), cut < text.len());
        let (text, head) = written(&capture);
        prop_assert!(!text.contains("nary-0") && (head.redacted || cut == 0), "{}", text);
    }
}
