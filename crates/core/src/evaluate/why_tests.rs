//! Explanations of decisions under a small document.

use std::sync::Arc;

use super::*;
use crate::config;
use rerouter_base::clock::fixtures::at;
use rerouter_base::id::{Random, RequestId, UserId};
use rerouter_captures::capture::record::Served;
use rerouter_routing::{BreakerState, TargetHealth, chat};
use serde_json::{Value, json};

const DOCUMENT: &str = "providers:\n  p: { protocol: mock }\nmodels:\n  \
    p/small: { context: 100, capabilities: [tools] }\nrecipes:\n  main:\n    rules:\n      \
    - { name: long, when: 'prompt_tokens > 500 && key.labels.team == \"x\"', \
    targets: [ { target: p/long } ] }\n      \
    - { name: chat, when: 'prompt_tokens < 300', targets: [ { target: p/small }, \
    { target: p/a }, { target: p/b } ] }\n      \
    - { name: rest, strategy: weighted, targets: [ { target: p/c, weight: 1 } ] }\n\
    aliases: { auto: main }\n";

fn document() -> Routing {
    let server = config::read_server("test", "", &|_| None).unwrap();
    config::read_routing("test", DOCUMENT, &server, &|_| None, None).unwrap()
}

fn head(inputs: Inputs, routing: &Routing) -> Head {
    let id = RequestId::new(at(0), &Random::seeded(1));
    let mut head = Head::new(id, at(0), UserId::known("usr_1"), "chat.completions");
    head.decision = Some(Arc::new(decide(routing, &inputs).unwrap()));
    head.inputs = Some(inputs);
    head
}

fn attempt(model: &str, status: Option<u16>, error: Option<&str>) -> Attempt {
    let error = error.map(str::to_owned);
    Attempt { provider: "p".into(), model: model.into(), node: None, status, error, duration_ms: 9 }
}

fn served(model: &str) -> Option<Served> {
    Some(Served { provider: "p".into(), model: model.into(), node: None })
}

/// The details in a list, one per line.
fn details(of: &Value) -> Vec<&str> {
    of.as_array().unwrap().iter().map(|entry| entry["detail"].as_str().unwrap()).collect()
}

#[test]
fn it_says_what_became_of_each_target_and_what_would_have_changed_that() {
    let routing = document();
    let mut inputs = chat("auto", 1);
    inputs.request.needs = vec!["vision".into()];
    let open = TargetHealth { breaker: BreakerState::Open, ..TargetHealth::default() };
    inputs.health.insert("p/a".into(), open);
    let mut head = head(inputs, &routing);
    head.attempts = vec![attempt("b", Some(200), None)];
    head.served = served("b");
    let why = json!(why(&head, Some(&routing), true));
    assert_eq!(why["document"], true);
    assert_eq!(
        details(&why["targets"]),
        [
            "Answered (status 200, 9 ms).",
            "Left out: the request needs vision, it is able of tools.",
            "Left out: its breaker was open after too many failures.",
        ]
    );
    assert_eq!(why["targets"][0]["place"], 1);
    assert_eq!(
        details(&why["otherwise"]),
        [
            "Without the need for vision, p/small would have come first.",
            "If the breaker of p/a had been closed, p/a would have come first.",
            "If rule long had matched, p/long would have come first.",
            "If rule chat had not matched, rule rest would have, and p/c would have come first.",
        ]
    );
    assert_eq!(
        why["rules"][0],
        json!({"rule": "long", "when": "prompt_tokens > 500 && key.labels.team == \"x\"",
            "signals": {"prompt_tokens": "12", "key.labels": ""}, "matches": false,
            "error": null, "taken": false, "target": "p/long"})
    );
    assert_eq!(
        (&why["rules"][1]["taken"], &why["rules"][2]["matches"]),
        (&json!(true), &json!(true))
    );
}

#[test]
fn it_says_which_targets_failed_first() {
    let routing = document();
    let mut head = head(chat("auto", 1), &routing);
    head.attempts = vec![
        attempt("small", Some(503), Some("server_error")),
        attempt("a", None, Some("connect")),
        attempt("b", Some(200), None),
    ];
    head.served = served("b");
    let told = json!(why(&head, Some(&routing), false));
    assert_eq!(told["rules"], Value::Null, "not to everybody");
    assert_eq!(
        details(&told["targets"]),
        [
            "Asked, but had an error (status 503, 9 ms).",
            "Asked, but could not be reached (9 ms).",
            "Answered (status 200, 9 ms).",
        ]
    );
    assert_eq!(
        details(&told["otherwise"]),
        [
            "If p/small had answered, p/b would not have been asked.",
            "If p/a had answered, p/b would not have been asked.",
        ]
    );
    // The first target answered.
    head.attempts = vec![attempt("small", Some(200), None)];
    head.served = served("small");
    let told = json!(why(&head, Some(&routing), false));
    assert_eq!(details(&told["targets"])[1], "Not asked: a target before it answered.");
    assert_eq!(told["otherwise"], json!([]));
}

#[test]
fn what_is_not_known_any_more_is_left_out() {
    let routing = document();
    let mut head = head(chat("auto", 1), &routing);
    let told = json!(why(&head, None, true));
    assert_eq!((&told["document"], &told["rules"]), (&json!(false), &Value::Null));
    assert_eq!(told["targets"].as_array().unwrap().len(), 3);
    // With changed inputs the same document would decide otherwise, so it explains nothing.
    head.inputs.as_mut().unwrap().request.prompt_tokens = 400;
    assert_eq!(json!(why(&head, Some(&routing), true))["document"], false);
    head.decision = None;
    assert_eq!(json!(why(&head, Some(&routing), true)), Value::Null);
}

#[test]
fn a_context_that_is_too_short_names_the_length_that_fits() {
    let routing = document();
    let mut inputs = chat("auto", 1);
    (inputs.request.prompt_tokens, inputs.request.max_tokens) = (200, Some(20));
    let told = json!(why(&head(inputs, &routing), Some(&routing), true));
    assert_eq!(
        details(&told["targets"])[2],
        "Left out: the request needs 220 tokens, it takes 100."
    );
    assert_eq!(
        details(&told["otherwise"])[0],
        "With a prompt of 80 tokens, p/small would have come first."
    );
}
