//! Rules by the text of the last user message and of the system prompt: in each dialect, through
//! agents, captured as matches only, and decided again exactly, or said to be inexact.

use serde_json::{Value, json};

use crate::support::gateway::{Gateway, Key, Setup};

const DOCUMENT: &str = "\
providers: { demo: { protocol: mock } }
recipes:
  main:
    rules:
      - { name: money, when: \"user_message.matches('(?i)invoice [0-9]+')\", \
        targets: [{ target: demo/money }] }
      - { name: legal, when: \"system_prompt.matches('^You are a lawyer') && !stream\", \
        targets: [{ target: demo/legal }] }
      - { name: default, targets: [{ target: demo/other }] }
aliases: { auto: main }
";

async fn start() -> (Gateway, Key) {
    let gateway = Setup::new(DOCUMENT).start().await;
    let key = gateway.create_key().await;
    (gateway, key)
}

/// Sends a body and gives the rule that decided, with the id of the capture.
async fn rule(gateway: &Gateway, key: &Key, path: &str, body: &Value) -> (String, String) {
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let answer = gateway.send("POST", path, &headers, Some(body.to_string().as_bytes())).await;
    assert_eq!(answer.status, 200, "{body}: {}", answer.text());
    (answer.header("x-rerouter-rule").unwrap().to_owned(), answer.request_id())
}

async fn evaluate(gateway: &Gateway, body: &Value) -> Value {
    let target = "/v1/router/replay/evaluate";
    let answer = gateway.answers(200, "POST", target, &gateway.admin_key, Some(body)).await;
    answer.json()
}

fn chat(system: &str, user: &str) -> Value {
    json!({ "model": "auto", "messages": [
        { "role": "system", "content": system },
        { "role": "user", "content": "invoice 1" },
        { "role": "assistant", "content": "invoice 2" },
        { "role": "user", "content": [{ "type": "text", "text": user }] },
    ]})
}

#[tokio::test]
async fn rules_look_at_the_texts_of_each_dialect() {
    let (gateway, key) = start().await;
    let (lawyer, invoice) = ("You are a lawyer.", "Pay INVOICE 12, please");
    for (path, body, expected) in [
        ("/v1/chat/completions", chat("Be brief.", invoice), "money"),
        ("/v1/chat/completions", chat(lawyer, "Hello"), "legal"),
        ("/v1/chat/completions", chat("Be brief.", lawyer), "default"),
        (
            "/v1/chat/completions",
            json!({ "model": "auto", "messages": [
                { "role": "developer", "content": [{ "type": "text", "text": lawyer }] },
                { "role": "user", "content": "Hello" },
            ]}),
            "legal",
        ),
        (
            "/v1/messages",
            json!({
                "model": "auto", "max_tokens": 9, "system": [{ "type": "text", "text": lawyer }],
                "messages": [{ "role": "user", "content": "Hello" }],
            }),
            "legal",
        ),
        (
            "/v1/messages",
            json!({
                "model": "auto", "max_tokens": 9,
                "messages": [{ "role": "user", "content": invoice }],
            }),
            "money",
        ),
        (
            "/v1/responses",
            json!({ "model": "auto", "instructions": lawyer, "input": "Hello" }),
            "legal",
        ),
        ("/v1/responses", json!({ "model": "auto", "input": invoice }), "money"),
        (
            "/v1/responses",
            json!({ "model": "auto", "input": [
                { "role": "system", "content": lawyer }, { "role": "user", "content": "Hello" },
            ]}),
            "legal",
        ),
        ("/v1/embeddings", json!({ "model": "auto", "input": lawyer }), "default"),
    ] {
        assert_eq!(rule(&gateway, &key, path, &body).await.0, expected, "{path} {body}");
    }
}

#[tokio::test]
async fn captures_hold_matches_and_no_text_and_are_decided_again_exactly() {
    let (gateway, key) = start().await;
    let path = "/v1/chat/completions";
    let (money, money_id) = rule(&gateway, &key, path, &chat("Be brief.", "invoice 7")).await;
    let (legal, legal_id) = rule(&gateway, &key, path, &chat("You are a lawyer", "Hello")).await;
    assert_eq!((money.as_str(), legal.as_str()), ("money", "legal"));
    let inputs = gateway.capture(&money_id).await["inputs"].clone();
    let texts = inputs["texts"].as_object().unwrap();
    assert_eq!(texts.keys().collect::<Vec<_>>(), ["system_prompt", "user_message"]);
    for (signal, found) in [("user_message", true), ("system_prompt", false)] {
        let matches = texts[signal]["matches"].as_object().unwrap();
        assert_eq!(matches.values().collect::<Vec<_>>(), [&json!(found)]);
        assert_eq!(texts[signal]["digest"].as_str().unwrap().len(), 16);
    }
    assert!(!inputs.to_string().contains("invoice"), "{inputs}");
    let decision = gateway.capture(&legal_id).await["decision"].clone();

    // Live and again: the same.
    let target = format!("/v1/router/replay/{legal_id}/reroute?dry_run=true");
    let again = gateway.manage("POST", &target, &key.secret, None).await.json();
    assert_eq!(again["decision"]["rule"], decision["rule"], "{again}");
    let same = evaluate(&gateway, &json!({ "document": DOCUMENT })).await;
    assert_eq!(
        (&same["evaluated"], &same["changed"], &same["inexact"]),
        (&json!(2), &json!(0), &json!(0)),
        "{same}"
    );
    // Another pattern is searched for in the captured body.
    let other = DOCUMENT.replace("(?i)invoice [0-9]+", "^Hello$");
    let other = evaluate(&gateway, &json!({ "document": other })).await;
    assert_eq!(
        (&other["changed"], &other["inexact"], &other["rule_changed"]),
        (&json!(2), &json!(0), &json!(2)),
        "{other}"
    );
}

#[tokio::test]
async fn what_was_not_kept_is_said_to_be_inexact() {
    let (gateway, key) = start().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("x-rerouter-capture", "off"),
    ];
    let body = chat("Be brief.", "invoice 7").to_string();
    let path = "/v1/chat/completions";
    let answer = gateway.send("POST", path, &headers, Some(body.as_bytes())).await;
    assert_eq!(answer.header("x-rerouter-rule"), Some("money"));
    gateway.capture(&answer.request_id()).await;
    // Known patterns need no body.
    let same = evaluate(&gateway, &json!({ "document": DOCUMENT })).await;
    assert_eq!((&same["changed"], &same["inexact"]), (&json!(0), &json!(0)), "{same}");
    let other = DOCUMENT.replace("(?i)invoice [0-9]+", "invoice");
    let other = evaluate(&gateway, &json!({ "document": other })).await;
    assert_eq!((&other["changed"], &other["inexact"]), (&json!(1), &json!(1)), "{other}");
}

#[tokio::test]
async fn an_agent_s_instructions_are_a_part_of_the_system_prompt() {
    let (gateway, key) = start().await;
    let agent = json!({ "name": "lawyer", "model": "auto", "instructions": "You are a lawyer." });
    let made = gateway
        .send(
            "POST",
            "/v1/agents",
            &[("content-type", "application/json")],
            Some(agent.to_string().as_bytes()),
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let body =
        json!({ "model": "agent/lawyer", "messages": [{ "role": "user", "content": "Hello" }] });
    let (found, id) = rule(&gateway, &key, "/v1/chat/completions", &body).await;
    assert_eq!(found, "legal");
    gateway.capture(&id).await;
    let same = evaluate(&gateway, &json!({ "document": DOCUMENT })).await;
    assert_eq!((&same["changed"], &same["inexact"]), (&json!(0), &json!(0)), "{same}");
    // The agent's part of the prompt is in no capture.
    let other = DOCUMENT.replace("^You are a lawyer", "lawyer");
    let other = evaluate(&gateway, &json!({ "document": other })).await;
    assert_eq!(other["inexact"], json!(1), "{other}");
}

#[tokio::test]
async fn texts_stand_before_matches_only_and_patterns_are_bounded() {
    let (gateway, _) = start().await;
    let problems = async |when: &str| -> String {
        let document = DOCUMENT.replace("user_message.matches('(?i)invoice [0-9]+')", when);
        let bearer = format!("Bearer {}", gateway.admin_key);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        let path = "/v1/router/config/validate";
        let answer = gateway.send("POST", path, &headers, Some(document.as_bytes())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["problems"].to_string()
    };
    for good in [
        "matches(user_message, 'a')",
        "!system_prompt.matches('a') || user_message.matches('b')",
        "keywords.exists(set, user_message.matches('a'))",
    ] {
        assert_eq!(problems(good).await, "[]", "{good}");
    }
    for (bad, says) in [
        ("user_message == 'a'", "is for `matches` with a literal pattern only"),
        ("user_message.contains('a')", "is for `matches` with a literal pattern only"),
        ("size(system_prompt) > 3", "is for `matches` with a literal pattern only"),
        ("model.matches(user_message)", "must be a literal"),
        ("user_message.matches(model)", "must be a literal"),
        ("user_message.matches('(')", "the pattern of `matches` is wrong"),
        ("user_message.matches('(a{1000}){1000}')", "it is too large"),
    ] {
        let found = problems(bad).await;
        assert!(found.contains(says), "{bad}: {found}");
    }
    let many: Vec<String> =
        (0..33).map(|number| format!("user_message.matches('{number}')")).collect();
    assert!(problems(&many.join(" || ")).await.contains("more than 32 patterns"));
}
