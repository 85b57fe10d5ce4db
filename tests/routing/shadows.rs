//! Shadows: copies of live requests for another target. They are captured apart, and nothing else
//! shows them.

use std::sync::Arc;

use rerouter::internals::bounds;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{envelope, until};

/// `a` serves; so much of it is copied to `s`, whose breaker would open at the first error.
fn document(a: &str, s: &str, percent: f64) -> String {
    let text = in_order(
        &[("a", a), ("s", s)],
        "models:\n  s/copy: { input_per_mtok: 1, output_per_mtok: 1, context: 50 }\n",
    );
    let text = text.replace(
        "targets: [ { target: a/model }, { target: s/model } ]",
        "targets: [ { target: a/model } ]",
    );
    text.replace(
        "    retry:",
        &format!("    shadow: {{ target: s/copy, percent: {percent} }}\n    retry:"),
    )
    .replace(
        &format!("base_url: {s}\n"),
        &format!("base_url: {s}\n    breaker: {{ consecutive: 1, open: 60s }}\n"),
    )
}

async fn start(a: &Provider, s: &str, percent: f64) -> (Gateway, Key) {
    let gateway = Gateway::start(&document(&a.url(), s, percent)).await;
    let key = gateway.create_key().await;
    (gateway, key)
}

/// Answers as it is asked: with a stream or without.
async fn answering() -> Provider {
    Provider::start(|request, _| match request.json()["stream"] == true {
        true => scripted::stream("live"),
        false => scripted::completion("live"),
    })
    .await
}

async fn listed(gateway: &Gateway, credential: &str, query: &str) -> Vec<Value> {
    let list = gateway
        .answers(200, "GET", &format!("/v1/router/replay?limit=100{query}"), credential, None)
        .await;
    list.json()["data"].as_array().unwrap().clone()
}

/// The shadow of a request, once it is captured.
async fn shadow_of(gateway: &Gateway, id: &str) -> Value {
    let found = until("the shadow's capture", async || {
        listed(gateway, &gateway.admin_key, &format!("&shadow_of={id}")).await.pop()
    })
    .await;
    gateway.capture(found["id"].as_str().unwrap()).await
}

async fn shadows(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("rerouter_shadows_total", &[&format!("outcome=\"{outcome}\"")]).await
}

#[tokio::test]
async fn each_request_is_copied_once_and_captured_apart() {
    let (a, s) = (answering().await, Provider::always(scripted::completion("shadow")).await);
    let (gateway, key) = start(&a, &s.url(), 100.0).await;
    for (number, stream) in [false, true].into_iter().enumerate() {
        let answer = gateway.chat(&key, chat_body("auto", stream).as_bytes()).await;
        assert!(
            answer.status == 200
                && answer.text().contains("live")
                && !answer.text().contains("shadow"),
            "{}",
            answer.text()
        );
        let id = answer.request_id();
        let (live, shadow) = (gateway.capture(&id).await, shadow_of(&gateway, &id).await);
        let sent = r#"{"model":"copy","messages":[{"role":"user","content":"Say a word."}]}"#;
        let received = s.request(number).json();
        assert_eq!(
            (s.count(), received["model"].as_str(), received.get("stream").filter(|_| stream)),
            (number + 1, Some("copy"), None)
        );
        if stream {
            assert_eq!(received, serde_json::from_str::<Value>(sent).unwrap());
        }
        assert_eq!(
            (&shadow["shadow_of"], &shadow["state"], &shadow["status"], &shadow["stream"]),
            (&json!(id), &json!("completed"), &json!(200), &json!(stream))
        );
        assert_eq!((&shadow["replay_of"], &live["shadow_of"]), (&Value::Null, &Value::Null));
        assert_eq!(
            (&shadow["user"], &shadow["key"], &shadow["inputs"]),
            (&live["user"], &json!(key.id), &live["inputs"])
        );
        assert_eq!(shadow["served"], json!({"provider": "s", "model": "copy"}));
        assert_eq!(
            shadow["decision"]["plan"],
            json!([{"provider": "a", "model": "model"}]),
            "{shadow}"
        );
        assert_eq!(shadow["decision"]["attempts"].as_array().unwrap().len(), 1);
        assert!(shadow["response"]["body"].as_str().unwrap().contains("\"shadow\""), "{shadow}");
        assert!(
            shadow["cost_usd"].is_number() && shadow["usage"]["total_tokens"] == 10,
            "what it would have cost is known: {shadow}"
        );
        gateway
            .answers(
                200,
                "GET",
                &format!("/v1/router/replay/{id}/compare/{}", shadow["id"].as_str().unwrap()),
                &key.secret,
                None,
            )
            .await;
        until("the shadow to be counted", async || {
            (shadows(&gateway, "completed").await == (number + 1) as f64).then_some(())
        })
        .await;
    }
    // Nothing of it is in what is used, tried and decided.
    let of_s = ["provider=\"s\""];
    for metric in [
        "upstream_attempts_total",
        "tokens_total",
        "cost_usd_total",
        "decisions_total",
        "time_to_first_token_seconds_count",
    ] {
        assert_eq!(gateway.metric(&format!("rerouter_{metric}"), &of_s).await, 0.0, "{metric}");
    }
    assert_eq!(gateway.metric("rerouter_upstream_attempts_total", &[]).await, 2.0);
    assert_eq!(
        gateway.metric("rerouter_requests_total", &["route=\"/v1/chat/completions\""]).await,
        2.0
    );
    let (live, apart) = (
        listed(&gateway, &key.secret, "").await,
        listed(&gateway, &key.secret, "&shadow=true").await,
    );
    assert!(live.len() == 2 && live.iter().all(|entry| entry["shadow_of"].is_null()), "{live:?}");
    let evaluated = gateway
        .manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, Some(&json!({})))
        .await
        .json();
    assert_eq!(
        (&evaluated["evaluated"], &evaluated["skipped"]["shadows"]),
        (&json!(2), &json!(2)),
        "{evaluated}"
    );
    for (shadow, expected) in [(true, (0, 2)), (false, (2, 0))] {
        let asked = json!({ "filter": { "shadow": shadow } });
        let evaluated = gateway
            .manage("POST", "/v1/router/replay/evaluate", &gateway.admin_key, Some(&asked))
            .await
            .json();
        assert_eq!(
            (&evaluated["evaluated"], &evaluated["skipped"]["shadows"]),
            (&json!(expected.0), &json!(expected.1)),
            "{evaluated}"
        );
    }
    assert!(
        apart.len() == 2 && apart.iter().all(|entry| entry["shadow_of"].is_string()),
        "{apart:?}"
    );
}

#[tokio::test]
async fn a_shadow_runs_again_as_any_capture_and_goes_with_what_it_copies() {
    let (a, s) = (answering().await, Provider::always(scripted::completion("shadow")).await);
    let (gateway, key) = start(&a, &s.url(), 100.0).await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    let shadow = shadow_of(&gateway, &id).await["id"].as_str().unwrap().to_owned();
    let rerouted = gateway.reroute(&shadow, &key.secret).await.json();
    assert_eq!(rerouted["response"]["choices"][0]["message"]["content"], "live", "{rerouted}");
    let replay = gateway.capture(rerouted["new_id"].as_str().unwrap()).await;
    assert_eq!(
        (&replay["replay_of"], &replay["shadow_of"], s.count()),
        (&json!(shadow), &Value::Null, 1),
        "a replay has no shadow"
    );
    // Whoever keeps bodies out of captures keeps them out of this one too.
    let bearer = format!("Bearer {}", key.secret);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("x-rerouter-capture", "off"),
    ];
    let quiet = gateway
        .send("POST", "/v1/chat/completions", &headers, Some(chat_body("auto", false).as_bytes()))
        .await;
    let kept = shadow_of(&gateway, &quiet.request_id()).await;
    assert_eq!(
        (&kept["not_replayable"], &kept["request"]["body"], &kept["response"]["body"]),
        (&json!("not_captured"), &Value::Null, &Value::Null)
    );
    let path = format!("/v1/router/replay/{id}");
    gateway.answers(204, "DELETE", &format!("{path}?replays=true"), &key.secret, None).await;
    for gone in [&id, &shadow, replay["id"].as_str().unwrap()] {
        envelope::management(
            &gateway.manage("GET", &format!("/v1/router/replay/{gone}"), &key.secret, None).await,
            404,
            "not_found",
        );
    }
}

#[tokio::test]
async fn so_many_are_copied_as_the_document_says() {
    let (a, s) = (answering().await, Provider::always(scripted::completion("shadow")).await);
    let (gateway, key) = start(&a, &s.url(), 0.0).await;
    let send = async |count: usize| {
        for _ in 0..count {
            assert_eq!(gateway.chat(&key, chat_body("auto", false).as_bytes()).await.status, 200);
        }
    };
    send(40).await;
    assert_eq!((s.count(), gateway.metric("rerouter_shadows_total", &[]).await), (0, 0.0));
    gateway.write_routing(&document(&a.url(), &s.url(), 50.0)).await;
    send(200).await;
    // Five deviations of a fair coin's 200 throws to either side.
    until("the last of them", async || {
        (shadows(&gateway, "completed").await >= 65.0).then_some(())
    })
    .await;
    assert!(s.count() <= 135 && shadows(&gateway, "dropped").await == 0.0, "{}", s.count());
    // A direct name has no recipe, and what the target cannot serve is not sent.
    gateway.write_routing(&document(&a.url(), &s.url(), 100.0)).await;
    let long = format!("Say {}", "word ".repeat(90));
    for (model, words) in
        [("a/model", "Say it directly."), ("auto", &long), ("auto", "Say the last.")]
    {
        assert_eq!(
            gateway
                .chat(&key, chat_body(model, false).replace("Say a word.", words).as_bytes())
                .await
                .status,
            200
        );
    }
    let received = || {
        (0..s.count())
            .map(|number| String::from_utf8(s.request(number).body.clone()).unwrap())
            .collect::<Vec<_>>()
    };
    until("the last one", async || {
        received().iter().any(|body| body.contains("the last")).then_some(())
    })
    .await;
    assert!(!received().iter().any(|body| body.contains("directly") || body.contains("word word")));
    assert_eq!(shadows(&gateway, "ineligible").await, 1.0);
}

#[tokio::test]
async fn a_shadow_that_is_dead_or_fails_is_nobodys_concern() {
    let a = answering().await;
    let s = Provider::always(scripted::failure(500, "broken")).await;
    let dead = format!("http://127.0.0.1:{}/v1", crate::support::free_port());
    let (gateway, key) = start(&a, &s.url(), 100.0).await;
    for (url, status, error) in [(s.url(), 500, "server_error"), (dead, 502, "connect")] {
        if error == "connect" {
            gateway.write_routing(&document(&a.url(), &url, 100.0)).await;
        }
        for _ in 0..3 {
            let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
            assert_eq!((answer.status, answer.header("x-rerouter-attempts")), (200, Some("1")));
            let shadow = shadow_of(&gateway, &answer.request_id()).await;
            assert_eq!(
                (&shadow["state"], &shadow["status"]),
                (&json!("failed"), &json!(status)),
                "{shadow}"
            );
            assert_eq!(shadow["decision"]["attempts"][0]["error"], error, "{shadow}");
        }
    }
    until("six to be counted", async || (shadows(&gateway, "failed").await == 6.0).then_some(()))
        .await;
    assert_eq!(s.count(), 3, "none is tried again");
    let providers =
        gateway.manage("GET", "/v1/router/providers", &gateway.admin_key, None).await.json();
    let known =
        providers["data"].as_array().unwrap().iter().find(|known| known["id"] == "s").unwrap();
    for (field, value) in [
        ("breaker", json!("closed")),
        ("ewma_ms", Value::Null),
        ("requests_1m", json!(0)),
        ("errors_1m", json!(0)),
    ] {
        assert_eq!(known["targets"][0][field], value, "{known}");
    }
}

#[tokio::test]
async fn a_shadow_that_is_limited_keeps_no_live_request_out() {
    let limited = scripted::answer(429, &[("retry-after", "60")], b"{}");
    let s = Provider::start(
        move |_, n| if n == 0 { limited.clone() } else { scripted::completion("live") },
    )
    .await;
    let a = answering().await;
    let (gateway, key) = start(&a, &s.url(), 100.0).await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(shadow_of(&gateway, &answer.request_id()).await["status"], 429);
    let direct = gateway.chat(&key, chat_body("s/copy", false).as_bytes()).await;
    assert_eq!((direct.status, s.count()), (200, 2), "{}", direct.text());
}

#[tokio::test]
async fn a_slow_shadow_delays_nobody_and_outlives_its_client() {
    let (a, gate) = (answering().await, Arc::new(Notify::new()));
    let waits: Vec<Step> =
        std::iter::once(Step::Wait(gate.clone())).chain(scripted::completion("late")).collect();
    let s = Provider::always(waits).await;
    let (gateway, key) = start(&a, &s.url(), 100.0).await;
    let mut connection = gateway.connect().await;
    let request = gateway.chat_request(&key, chat_body("auto", false).as_bytes());
    let answer = connection.exchange(&request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.request_id();
    drop(connection);
    assert_eq!(
        gateway.capture(&id).await["state"],
        "completed",
        "captured while its shadow is under way"
    );
    until("the shadow to be under way", async || (s.count() == 1).then_some(())).await;
    assert!(listed(&gateway, &gateway.admin_key, "&shadow=true").await.is_empty());
    gate.notify_one();
    let shadow = shadow_of(&gateway, &id).await;
    assert!(shadow["response"]["body"].as_str().unwrap().contains("late"), "{shadow}");
}

#[tokio::test]
async fn more_than_so_many_at_once_are_dropped_and_a_drain_ends_those_that_hang() {
    let (a, s) = (answering().await, Provider::always(vec![Step::Hang]).await);
    let (mut gateway, key) = start(&a, &s.url(), 100.0).await;
    for _ in 0..bounds::SHADOWS + 3 {
        assert_eq!(gateway.chat(&key, chat_body("auto", false).as_bytes()).await.status, 200);
    }
    assert_eq!(shadows(&gateway, "dropped").await, 3.0);
    until("all others to be under way", async || (s.count() == bounds::SHADOWS).then_some(()))
        .await;
    gateway.restart().await;
    s.abandoned(0).await;
    let ended = listed(&gateway, &gateway.admin_key, "&shadow=true").await;
    assert_eq!(ended.len(), bounds::SHADOWS);
    assert!(
        ended.iter().all(|shadow| shadow["state"] == "aborted" && shadow["status"] == 499),
        "{ended:?}"
    );
    assert_eq!(listed(&gateway, &gateway.admin_key, "").await.len(), bounds::SHADOWS + 3);
}

#[tokio::test]
async fn a_request_that_is_not_captured_is_not_copied() {
    let (a, s) = (answering().await, answering().await);
    let (gateway, key) = start(&a, &s.url(), 100.0).await;
    let wanted = json!({ "name": "private", "labels": { "capture": "off" } });
    let private = gateway.make_key("/v1/router/keys", &gateway.admin_key, &wanted).await;
    for key in [&private, &private, &key] {
        assert_eq!(gateway.chat(key, chat_body("auto", false).as_bytes()).await.status, 200);
    }
    until("the last one's copy", async || {
        (shadows(&gateway, "completed").await >= 1.0).then_some(())
    })
    .await;
    assert_eq!((a.count(), s.count()), (3, 1), "no copy of the private ones");
}
