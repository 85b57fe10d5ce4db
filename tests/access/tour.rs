//! The tour of the access specification: a key, a chat, the captures, another document, a reroute,
//! a revocation. Its results survive reloads, restarts and a killed process.

use serde_json::{Value, json};

use crate::access::identity::cookie;
use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order, provider};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::{envelope, until};

/// A document with both providers. Its recipe `name` has only the target `target`.
fn document(a: &Provider, b: &Provider, name: &str, target: &str) -> String {
    format!(
        "providers:\n{}{}recipes:\n  {name}:\n    \
         rules: [ {{ name: only, targets: [ {{ target: {target}/model }} ] }} ]\n\
         aliases: {{ auto: {name} }}\n",
        provider("a", &a.url(), "sk-a"),
        provider("b", &b.url(), "sk-b"),
    )
}

async fn providers() -> (Provider, Provider) {
    let answer_as = |name: &'static str| {
        Provider::start(move |request, _| match request.json()["stream"] == true {
            true => scripted::stream(name),
            false => scripted::completion(name),
        })
    };
    (answer_as("from a").await, answer_as("from b").await)
}

fn check_rerouted(answer: &Answer, of: &str, revision: &str) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    let decision = &body["decision"];
    assert_eq!(
        (&decision["provider"], &decision["model"], &decision["recipe"]),
        (&json!("b"), &json!("model"), &json!("after")),
        "{body}"
    );
    assert_eq!(decision["revision"], revision);
    assert_eq!(body["replay_of"], of);
    let response = &body["response"];
    assert_eq!(response["object"], "chat.completion", "{body}");
    assert!(response["id"].is_string());
    assert_eq!(response["choices"][0]["index"], 0);
    assert_eq!(
        response["choices"][0]["message"],
        json!({"role": "assistant", "content": "from b"})
    );
    assert_eq!(response["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        response["usage"],
        json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
    );
    let original = &body["original"];
    assert_eq!(
        (&original["decision"]["provider"], &original["status"]),
        (&json!("a"), &json!(200)),
        "{body}"
    );
    let id = body["new_id"].as_str().expect("new_id").to_owned();
    assert!(id.starts_with("req_") && id != of, "{id}");
    id
}

#[tokio::test]
async fn captured_under_one_document_rerouted_under_the_next() {
    let (a, b) = providers().await;
    let gateway = Gateway::start(&document(&a, &b, "before", "a")).await;
    let key = gateway.create_key().await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(answer.text(), scripted::completion_body("from a").to_string());
    let id = answer.request_id();
    let capture = gateway.capture(&id).await;
    check_capture(&capture, &id, &key);

    let revision = gateway.write_routing(&document(&a, &b, "after", "b")).await;
    let path = format!("/v1/router/replay/{id}/reroute");
    let rerouted = gateway.manage("POST", &path, &key.secret, None).await;
    let new_id = check_rerouted(&rerouted, &id, &revision);
    let replayed = gateway.capture(&new_id).await;
    assert_eq!(
        (&replayed["replay_of"], &replayed["decision"]["provider"]),
        (&json!(id), &json!("b")),
        "{replayed}"
    );
    assert_eq!(replayed["key"], key.id.as_str(), "the capture belongs to the owner of the first");
    let mut expected: Value = serde_json::from_str(&chat_body("model", false)).unwrap();
    expected.as_object_mut().unwrap().remove("stream");
    assert_eq!(b.last().json(), expected, "stream is dropped, the rest is the client's");

    let listed = gateway.manage("GET", "/v1/router/replay?limit=1", &key.secret, None).await.json();
    assert_eq!(
        (&listed["object"], &listed["has_more"]),
        (&json!("list"), &json!(true)),
        "{listed}"
    );
    assert_eq!(listed["data"][0]["id"], new_id.as_str(), "newest first");
    let next = listed["next"].as_str().expect("a cursor");
    let rest = gateway
        .manage("GET", &format!("/v1/router/replay?after={next}"), &key.secret, None)
        .await
        .json();
    assert_eq!(
        (&rest["data"][0]["id"], &rest["has_more"], &rest["next"]),
        (&json!(id), &json!(false), &Value::Null),
        "{rest}"
    );
    let of = gateway
        .manage("GET", &format!("/v1/router/replay?replay_of={id}"), &key.secret, None)
        .await
        .json();
    assert_eq!(of["data"].as_array().map(Vec::len), Some(1), "{of}");
    for (method, path) in [
        ("GET", "/v1/router/replay/req_00000000000000000000000000"),
        ("POST", "/v1/router/replay/nonsense/reroute"),
    ] {
        envelope::management(
            &gateway.manage(method, path, &key.secret, None).await,
            404,
            "not_found",
        );
    }
    envelope::management(
        &gateway.manage("GET", "/v1/router/replay?colour=red", &key.secret, None).await,
        400,
        "invalid_request",
    );
}

fn check_capture(capture: &Value, id: &str, key: &Key) {
    assert_eq!(
        (&capture["object"], &capture["id"], &capture["state"]),
        (&json!("replay"), &json!(id), &json!("completed")),
        "{capture}"
    );
    assert_eq!(
        (&capture["endpoint"], &capture["model"], &capture["key"]),
        (&json!("chat.completions"), &json!("auto"), &json!(key.id))
    );
    assert_eq!(
        (&capture["status"], &capture["stream"], &capture["replayable"]),
        (&json!(200), &json!(false), &json!(true))
    );
    let served = json!({"provider": "a", "model": "model"});
    assert!(
        served.as_object().unwrap().iter().all(|(name, value)| capture["served"][name] == *value),
        "{capture}"
    );
    assert_eq!(capture["usage"]["total_tokens"], 10);
    assert!(capture["cost_usd"].is_null(), "an unknown price is null, never 0");
    for latency in ["routing_us", "total_ms"] {
        assert!(capture["latency"][latency].is_u64(), "{latency}: {capture}");
    }
    assert_eq!(capture["request"]["body"], chat_body("auto", false));
    assert_eq!(capture["response"]["body"], scripted::completion_body("from a").to_string());
    assert_eq!(capture["response"]["status"], 200);
    assert!(
        capture["replay_of"].is_null()
            && capture["inputs"]["seed"].is_string()
            && capture["decision"]["plan"].is_array(),
        "{capture}"
    );
}

#[tokio::test]
async fn by_session_cookie_and_by_session_token() {
    let (a, b) = providers().await;
    let gateway = Gateway::start(&document(&a, &b, "before", "a")).await;
    let token = gateway.session("tour@example.com").await;
    let cookie = cookie(&gateway, "tour@example.com").await;
    let user = gateway.manage("GET", "/v1/auth/me", &token, None).await.json()["id"].clone();
    let headers = [("cookie", cookie.as_str()), ("content-type", "application/json")];
    let body = chat_body("auto", false);
    let path = "/v1/chat/completions";
    let chat = gateway.send("POST", path, &headers, Some(body.as_bytes())).await;
    assert_eq!(chat.status, 200, "{}", chat.text());
    let id = chat.request_id();
    let capture = gateway.capture(&id).await;
    assert_eq!((&capture["user"], &capture["key"]), (&user, &Value::Null));
    let revision = gateway.write_routing(&document(&a, &b, "after", "b")).await;
    let path = format!("/v1/router/replay/{id}/reroute");
    let by_cookie = gateway.send("POST", &path, &[("cookie", &cookie)], None).await;
    check_rerouted(&by_cookie, &id, &revision);
    check_rerouted(&gateway.manage("POST", &path, &token, None).await, &id, &revision);
}

#[tokio::test]
async fn a_streamed_capture_is_decided_as_live_traffic_would_be() {
    let (a, b) = providers().await;
    let gateway = Gateway::start(&document(&a, &b, "before", "a")).await;
    let key = gateway.create_key().await;
    let streamed = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert_eq!(streamed.text(), scripted::stream_body("from a"));
    let id = streamed.request_id();
    let capture = gateway.capture(&id).await;
    assert_eq!(
        (&capture["stream"], &capture["response"]["body"]),
        (&json!(true), &json!(scripted::stream_body("from a")))
    );

    let rules = "rules: [ { name: plain, when: \"!stream\", targets: [ { target: a/model } ] }, \
        { name: streams, targets: [ { target: b/model } ] } ]";
    let split = document(&a, &b, "after", "b")
        .replace("rules: [ { name: only, targets: [ { target: b/model } ] } ]", rules);
    assert!(split.contains("streams"));
    gateway.write_routing(&split).await;
    let live = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert_eq!(live.header("x-rerouter-provider"), Some("b"));
    let rerouted = gateway
        .manage("POST", &format!("/v1/router/replay/{id}/reroute"), &key.secret, None)
        .await
        .json();
    assert_eq!(
        (&rerouted["decision"]["provider"], &rerouted["decision"]["rule"]),
        (&json!("b"), &json!("streams")),
        "{rerouted}"
    );
    assert_eq!(rerouted["response"]["object"], "chat.completion");
    assert_eq!(rerouted["response"]["choices"][0]["message"]["content"], "from b");
    assert_eq!(b.last().json().get("stream"), None, "the provider is asked for no stream");
}

#[tokio::test]
async fn a_reroute_whose_provider_fails_is_502_and_captured() {
    let (a, _) = providers().await;
    let b = Provider::always(scripted::failure(500, "broken")).await;
    let gateway = Gateway::start(&document(&a, &b, "before", "a")).await;
    let key = gateway.create_key().await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    gateway.write_routing(&document(&a, &b, "after", "b")).await;
    let failed =
        gateway.manage("POST", &format!("/v1/router/replay/{id}/reroute"), &key.secret, None).await;
    assert_eq!(failed.status, 502, "{}", failed.text());
    let body = failed.json();
    assert_eq!(
        (&body["error"], &body["upstream_status"], &body["decision"]["provider"]),
        (&json!("provider_failed"), &json!(500), &json!("b"))
    );
    assert_eq!(body["response"]["error"]["message"], "broken");
    assert_eq!(gateway.capture(body["new_id"].as_str().unwrap()).await["replay_of"], id.as_str());
}

#[tokio::test]
async fn the_document_is_reloaded_by_file_change_and_by_sighup_and_a_bad_one_changes_nothing() {
    let (a, b) = providers().await;
    let mut gateway = Gateway::start(&document(&a, &b, "before", "a")).await;
    let key = gateway.create_key().await;
    let who = async |gateway: &Gateway| {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        (
            answer.header("x-rerouter-provider").unwrap().to_owned(),
            answer.header("x-rerouter-revision").unwrap().to_owned(),
        )
    };
    let first = gateway.revision().await;
    assert_eq!(who(&gateway).await, ("a".to_owned(), first.clone()));
    let second = gateway.write_routing(&document(&a, &b, "after", "b")).await;
    assert_eq!(who(&gateway).await, ("b".to_owned(), second.clone()));
    let health = gateway.send("GET", "/health", &[], None).await.json();
    assert_eq!(
        (&health["status"], &health["revision"]),
        (&json!("ok"), &json!(second)),
        "{health}"
    );

    // The same document with comments is the same revision.
    let all = async |gateway: &Gateway| reloads(&gateway.metrics().await, &[]);
    let before = all(&gateway).await;
    gateway.replace_routing(&format!("# a comment\n{}", document(&a, &b, "after", "b")));
    gateway.hup().await;
    until("the reload by SIGHUP", async || (all(&gateway).await > before).then_some(())).await;
    assert_eq!(gateway.revision().await, second);

    // A refused document counts under a series that no accepted document has used.
    let metrics = gateway.metrics().await;
    let good: Vec<&str> = metrics
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(_, value)| *value != "0")
        .map(|(series, _)| series)
        .collect();
    let refused = async |gateway: &Gateway| reloads(&gateway.metrics().await, &good);
    for bad in [
        "recipes: [",
        "providers: {}\nrecipes: {}\naliases: { auto: missing }\n",
        &document(&a, &b, "after", "unknown"),
    ] {
        let counted = refused(&gateway).await;
        gateway.replace_routing(bad);
        gateway.hup().await;
        until("the reload to be refused", async || {
            (refused(&gateway).await > counted).then_some(())
        })
        .await;
        assert_eq!(gateway.revision().await, second, "{bad:?}");
        assert_eq!(who(&gateway).await, ("b".to_owned(), second.clone()));
    }
    assert_eq!(
        gateway.write_routing(&document(&a, &b, "before", "a")).await,
        first,
        "one document, one revision"
    );
    gateway.restart().await;
    assert_eq!(who(&gateway).await, ("a".to_owned(), first));
}

/// The sum of `rerouter_reloads_total` over the series that are not among `except`.
fn reloads(metrics: &str, except: &[&str]) -> f64 {
    let series = metrics
        .lines()
        .filter(|line| line.starts_with("rerouter_reloads_total{"))
        .filter_map(|line| line.rsplit_once(' '));
    series
        .filter(|(series, _)| !except.contains(series))
        .map(|(_, value)| value.parse::<f64>().unwrap())
        .sum()
}

#[tokio::test]
async fn a_body_held_back_does_not_outlive_its_credential() {
    let a = Provider::always(scripted::completion("hello")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], "")).start().await;
    for path in ["/v1/chat/completions", "/v1/router/keys"] {
        let key = gateway.create_key().await;
        let body =
            if path == "/v1/router/keys" { "{}".to_owned() } else { chat_body("auto", false) };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            gateway.host(),
            key.secret,
            body.len()
        );
        let mut connection = gateway.connect().await;
        connection.send(format!("{head}{}", &body[..1]).as_bytes()).await;
        // Time for the gateway to accept the head. If it is slower, the request is refused all the
        // same.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let ended = gateway
            .manage("DELETE", &format!("/v1/router/keys/{}", key.id), &gateway.admin_key, None)
            .await;
        assert_eq!(ended.status, 204);
        connection.send(&body.as_bytes()[1..]).await;
        let answer = connection.answer().await.expect("an answer");
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
    }
    assert_eq!(a.count(), 0);
}
