//! `POST /v1/router/decide` beside live requests: the same decisions and the same refusals, and
//! nothing else happens.

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{chat_body, provider};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};

/// `well` answers, `bad` does not. The first rule's condition fails in every request.
fn document(well: &Provider, bad: &Provider) -> String {
    let options = |name: &str, known: &Provider| {
        format!(
            "{}    breaker: {{ consecutive: 1, open: 60s }}\n",
            provider(name, &known.url(), "k")
        )
    };
    format!(
        "providers:\n{}{}models:\n  well/short: {{ context: 50 }}\n  \
         well/plain: {{ capabilities: [json] }}\nrecipes:\n  main:\n    rules:\n      \
         - {{ name: broken, when: \"1 / images > 0\", targets: [ {{ target: well/a }} ] }}\n      \
         - {{ name: streams, when: stream, targets: [ {{ target: well/b }}, \
         {{ target: bad/m }} ] }}\n      \
         - {{ name: default, targets: [ {{ target: well/short }}, {{ target: well/c }} ] }}\n  \
         both:\n    rules: [ {{ name: only, targets: [ {{ target: bad/m }}, \
         {{ target: bad/limited }}, {{ target: well/short }} ] }} ]\n\
         aliases: {{ auto: main, both: both }}\n",
        options("well", well),
        options("bad", bad),
    )
}

async fn start() -> (Gateway, Key, Provider, Provider) {
    let well = Provider::start(|request, _| match request.json()["stream"] == true {
        true => scripted::stream("well"),
        false => scripted::completion("well"),
    })
    .await;
    let limited = scripted::answer(429, &[("retry-after", "60")], b"{}");
    let bad = Provider::start(move |request, _| match request.json()["model"] == "limited" {
        true => limited.clone(),
        false => scripted::failure(500, "broken"),
    })
    .await;
    let gateway =
        Setup::new(&document(&well, &bad).replace("models:\n", "models:\n  bad/limited: {}\n"))
            .server("limits: { request_body: 64KiB }");
    let gateway = gateway.start().await;
    let key = gateway.create_key().await;
    (gateway, key, well, bad)
}

async fn decide(gateway: &Gateway, credential: &str, body: &[u8]) -> Answer {
    let bearer = format!("Bearer {credential}");
    gateway
        .send(
            "POST",
            "/v1/router/decide",
            &[("authorization", &bearer), ("content-type", "application/json")],
            Some(body),
        )
        .await
}

#[tokio::test]
async fn a_decision_is_that_of_a_live_request_and_nothing_else_happens() {
    let (gateway, key, well, bad) = start().await;
    let long = format!(
        r#"{{"model":"auto","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "word ".repeat(90)
    );
    let mut live = 0;
    for (body, rule, plan) in [
        (chat_body("auto", false), json!("default"), json!(["well/short", "well/c"])),
        (chat_body("auto", true), json!("streams"), json!(["well/b", "bad/m"])),
        (long, json!("default"), json!(["well/c"])),
        (chat_body("well/c", true), Value::Null, json!(["well/c"])),
    ] {
        let before = gateway.metric("rerouter_decisions_total", &[]).await;
        let answer = decide(&gateway, &key.secret, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let decided = answer.json();
        assert_eq!(
            (&decided["served"], &decided["attempts"], &decided["rule"]),
            (&Value::Null, &json!([]), &rule),
            "{decided}"
        );
        assert!(
            decided["routing_us"].is_u64() && decided["revision"] == gateway.revision().await,
            "{decided}"
        );
        let names: Vec<String> = decided["plan"]
            .as_array()
            .unwrap()
            .iter()
            .map(|to| format!("{}/{}", to["provider"], to["model"]).replace('"', ""))
            .collect();
        assert_eq!(json!(names), plan);
        assert_eq!(
            decided["trace"].as_array().unwrap().len(),
            usize::from(!rule.is_null()),
            "{decided}"
        );
        assert_eq!(
            (well.count(), bad.count(), gateway.metric("rerouter_decisions_total", &[]).await),
            (live, 0, before)
        );

        let id = gateway.chat(&key, body.as_bytes()).await.request_id();
        live += 1;
        let captured = gateway.capture(&id).await["decision"].clone();
        for (field, value) in decided.as_object().unwrap() {
            // Each has a seed of its own; a live one was also carried out.
            if !["seed", "routing_us", "served", "attempts"].contains(&field.as_str()) {
                assert_eq!(value, &captured[field], "{field}");
            }
        }
        assert_eq!(decided.as_object().unwrap().len(), captured.as_object().unwrap().len());
    }
    let listed = gateway.manage("GET", "/v1/router/replay", &gateway.admin_key, None).await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), live, "only live requests are captured");
    let by_admin = decide(&gateway, &gateway.admin_key, chat_body("auto", false).as_bytes()).await;
    assert_eq!((by_admin.status, &by_admin.json()["model"]), (200, &json!("short")));
}

#[tokio::test]
async fn a_body_at_fault_is_refused_as_live_but_in_the_envelope_of_management() {
    let (gateway, key, well, bad) = start().await;
    let narrow = json!({"limits": {"models": ["well/*"]}});
    let narrow =
        gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&narrow)).await.json();
    let too_long = format!(
        r#"{{"model":"well/short","messages":[{{"role":"user","content":"{}"}}]}}"#,
        "word ".repeat(90)
    );
    let tools = concat!(
        r#"{"model":"well/plain","messages":[],"tools":[{"type":"function","#,
        r#""function":{"name":"f"}}]}"#,
    );
    let huge = format!(r#"{{"model":"auto","messages":"{}"}}"#, "x".repeat(64 << 10));
    for (body, status, word, field) in [
        ("", 400, "invalid_request", None),
        ("{", 400, "invalid_request", None),
        (r#"{"messages":[]}"#, 400, "invalid_request", Some("model")),
        (r#"{"model":"a","model":"b","messages":[]}"#, 400, "invalid_request", Some("model")),
        (&too_long, 400, "context_length_exceeded", Some("messages")),
        (tools, 400, "unsupported_feature", None),
        (&chat_body("nothing", false), 404, "not_found", None),
        (&huge, 413, "payload_too_large", None),
    ] {
        let answer = decide(&gateway, &key.secret, body.as_bytes()).await;
        envelope::management(&answer, status, word);
        assert_eq!(answer.json()["field"].as_str(), field, "{}", answer.text());
    }
    let narrow = narrow["key"].as_str().unwrap();
    let forbidden = decide(&gateway, narrow, chat_body("auto", false).as_bytes()).await;
    envelope::management(&forbidden, 404, "not_found");
    let unknown = decide(&gateway, narrow, chat_body("nothing", false).as_bytes()).await;
    assert_eq!(forbidden.text().replace("auto", "nothing"), unknown.text(), "one answer for both");
    assert_eq!(decide(&gateway, narrow, chat_body("well/c", false).as_bytes()).await.status, 200);

    let bearer = format!("Bearer {}", key.secret);
    let body = chat_body("auto", false);
    let typed = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
    envelope::management(
        &gateway.send("POST", "/v1/router/decide", &typed, Some(body.as_bytes())).await,
        415,
        "unsupported_media_type",
    );
    let json = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let asked =
        gateway.send("POST", "/v1/router/decide?dry_run=true", &json, Some(body.as_bytes())).await;
    envelope::management(&asked, 400, "invalid_request");
    let only_replay = gateway
        .manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&json!({"scopes": ["replay"]})))
        .await
        .json();
    let refused = decide(&gateway, only_replay["key"].as_str().unwrap(), body.as_bytes()).await;
    envelope::management(&refused, 403, "insufficient_scope");
    assert_eq!((well.count(), bad.count()), (0, 0));
}

#[tokio::test]
async fn targets_that_cannot_serve_now_are_listed_as_in_a_live_answer() {
    let (gateway, key, _well, bad) = start().await;
    for (name, status, word, kind, code) in [
        ("bad/m", 503, "no_target", "server_error", "no_target"),
        ("bad/limited", 429, "rate_limited", "rate_limit_error", "rate_limit_exceeded"),
    ] {
        let body = chat_body(name, false);
        assert_eq!(decide(&gateway, &key.secret, body.as_bytes()).await.status, 200);
        // From its answer the gateway learns what then speaks against it.
        gateway.chat(&key, body.as_bytes()).await;
        let asked = bad.count();
        let live = gateway.chat(&key, body.as_bytes()).await;
        envelope::openai(&live, status, kind, Some(code));
        let decided = decide(&gateway, &key.secret, body.as_bytes()).await;
        envelope::management(&decided, status, word);
        assert_eq!(decided.json()["detail"], live.json()["error"]["message"]);
        let why = if status == 503 { "breaker_open" } else { "cooldown" };
        assert!(decided.text().contains(&format!("{name}: {why}")), "{}", decided.text());
        assert_eq!((decided.header("retry-after").is_some(), bad.count()), (status == 429, asked));
    }
    // Several targets, each with its own reason: one of them alone is no reason to wait, or to
    // blame the request.
    let body = chat_body("both", false).replace("Say a word.", &"word ".repeat(90));
    let live = gateway.chat(&key, body.as_bytes()).await;
    envelope::openai(&live, 503, "server_error", Some("no_target"));
    let decided = decide(&gateway, &key.secret, body.as_bytes()).await;
    envelope::management(&decided, 503, "no_target");
    assert_eq!(decided.json()["detail"], live.json()["error"]["message"]);
    for reason in ["bad/m: breaker_open", "bad/limited: cooldown", "well/short: context"] {
        assert!(decided.text().contains(reason), "{}", decided.text());
    }
}
