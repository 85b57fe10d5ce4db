//! Which failures go to the next target, and what the client sees of them.

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{envelope, free_port};

const UPSTREAM_KEY: &str = "sk-upstream-of-the-operator";

/// A gateway over these providers in order, and a key.
async fn over(providers: &[(&str, &str)]) -> (Gateway, Key) {
    with_document(&in_order(providers, "")).await
}

async fn with_document(document: &str) -> (Gateway, Key) {
    let gateway = Setup::new(document).env("UPSTREAM_API_KEY", UPSTREAM_KEY).start().await;
    let key = gateway.create_key().await;
    (gateway, key)
}

fn chunk(text: impl Into<String>) -> Step {
    Step::Chunk(text.into().into_bytes())
}

/// The second of two providers answered; the client sees nothing of the first.
fn check_second(answer: &Answer, body: &str) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.text(), body);
    assert_eq!(answer.header("x-rerouter-provider"), Some("b"));
    assert_eq!(answer.header("x-rerouter-model"), Some("model"));
    assert_eq!(answer.header("x-rerouter-attempts"), Some("2"));
}

#[tokio::test]
async fn a_refused_connection_goes_to_the_next() {
    let b = Provider::always(scripted::completion("from b")).await;
    let (gateway, key) =
        over(&[("a", &format!("http://127.0.0.1:{}/v1", free_port())), ("b", &b.url())]).await;
    check_second(
        &gateway.chat(&key, chat_body("auto", false).as_bytes()).await,
        &scripted::completion_body("from b").to_string(),
    );
}

#[tokio::test]
async fn an_error_event_after_content_is_the_attempts_error() {
    let error = "data: {\"error\":{\"message\":\"overloaded\",\"code\":503}}\n\n";
    let events = [scripted::content_event("half"), error.to_owned()];
    let a = Provider::always(vec![
        scripted::stream_head(),
        chunk(events[0].clone()),
        chunk(events[1].clone()),
        chunk(""),
    ])
    .await;
    let (gateway, key) = over(&[("a", &a.url())]).await;
    let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert_eq!((answer.whole, answer.text()), (true, events.concat()));
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(
        (&capture["state"], &capture["decision"]["attempts"][0]["error"]),
        (&json!("failed"), &json!("in_band_error"))
    );
    assert_eq!(gateway.metric("rerouter_upstream_attempts_total", &["outcome=\"ok\""]).await, 0.0);
}

/// The clients' own mistakes leave the breaker closed, wherever the provider writes the status.
#[tokio::test]
async fn an_error_in_a_document_counts_as_its_status() {
    let error = json!({"error": {"message": "The prompt is too long.", "code": 400}});
    let a = Provider::always(scripted::json_answer(200, &error)).await;
    let (gateway, key) = over(&[("a", &a.url())]).await;
    for _ in 0..7 {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!((answer.status, answer.json()), (200, error.clone()));
    }
    // Where nobody answers better, the client learns why.
    let nobody = format!("http://127.0.0.1:{}/v1", free_port());
    let (gateway, key) = over(&[("a", &a.url()), ("b", &nobody)]).await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!((answer.status, answer.json()), (400, error));
}

#[tokio::test]
async fn an_answer_that_falls_silent_ends_when_it_has_been_silent_for_long() {
    let said = vec![scripted::stream_head(), chunk(scripted::content_event("half")), Step::Hang];
    let a = Provider::always(said).await;
    let document = in_order(&[("a", &a.url())], "").replace("idle: 20s", "idle: 500ms");
    let (gateway, key) =
        with_document(&document.replace("first_byte: 20s", "first_byte: 1h")).await;
    let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert!(answer.text().contains("half") && answer.text().contains("error"), "{answer:?}");
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(capture["decision"]["attempts"][0]["error"], "timeout", "{capture}");
}

#[tokio::test]
async fn another_protocol_from_the_last_target_is_a_502() {
    let switch = Step::Write(
        b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nraw".to_vec(),
    );
    let a = Provider::always(vec![switch, Step::Hang]).await;
    let (gateway, key) = over(&[("a", &a.url())]).await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    envelope::openai(&answer, 502, "server_error", Some("provider_error"));
    assert_eq!(
        gateway.capture(&answer.request_id()).await["decision"]["attempts"][0]["error"],
        "cut"
    );
}

#[tokio::test]
async fn a_500_whose_body_never_ends_is_still_a_500_to_the_recipe() {
    for after in [Step::Cut, Step::Hang] {
        let a = Provider::always(vec![
            Step::Write(b"HTTP/1.1 500 X\r\ncontent-length: 100\r\n\r\nabc".to_vec()),
            after,
        ])
        .await;
        let b = Provider::always(scripted::completion("from b")).await;
        let document = in_order(&[("a", &a.url()), ("b", &b.url())], "");
        let document = document
            .replace("[connect, timeout, 429, 5xx]", "[5xx]")
            .replace("first_byte: 20s", "first_byte: 1s");
        let (gateway, key) = with_document(&document).await;
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        check_second(&answer, &scripted::completion_body("from b").to_string());
        assert_eq!(
            gateway.capture(&answer.request_id()).await["decision"]["attempts"][0]["error"],
            "server_error"
        );
    }
}

#[tokio::test]
async fn a_stream_compressed_against_our_word_passes_as_it_is() {
    let zipped = b"\x1f\x8b\x08not-really-gzip";
    let headers = [("content-type", "text/event-stream"), ("content-encoding", "gzip")];
    let a = Provider::always(scripted::answer(200, &headers, zipped)).await;
    let (gateway, key) = over(&[("a", &a.url())]).await;
    let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert_eq!((answer.status, answer.whole, answer.body.as_slice()), (200, true, &zipped[..]));
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
}

#[tokio::test]
async fn an_answer_kept_from_an_earlier_target_is_recorded_as_what_it_was() {
    let a = Provider::always(scripted::failure(500, "the only words")).await;
    let b =
        Provider::always(vec![scripted::stream_head(), chunk(scripted::role_event()), Step::Cut])
            .await;
    let (gateway, key) = over(&[("a", &a.url()), ("b", &b.url())]).await;
    let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert_eq!(
        (answer.status, answer.header("x-rerouter-attempts")),
        (500, Some("2")),
        "{}",
        answer.text()
    );
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(
        (&capture["response"]["stream"], &capture["served"]["provider"]),
        (&json!(false), &json!("a")),
        "{capture}"
    );
}

#[tokio::test]
async fn a_reroute_waits_for_a_slow_answer_once_it_has_begun() {
    let body = scripted::completion_body("slowly").to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len() + 4
    );
    let a = Provider::start(move |_, n| match n {
        0 => scripted::completion("first"),
        _ => {
            let later =
                [0; 4].map(|_| Step::Later(std::time::Duration::from_millis(400), b" ".to_vec()));
            [Step::Write(head.clone().into_bytes())]
                .into_iter()
                .chain(later)
                .chain([Step::Write(body.clone().into_bytes())])
                .collect()
        }
    })
    .await;
    let document = in_order(&[("a", &a.url())], "").replace("first_byte: 20s", "first_byte: 1s");
    let (gateway, key) = with_document(&document).await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    let answer = gateway
        .answers(200, "POST", &format!("/v1/router/replay/{id}/reroute"), &gateway.admin_key, None)
        .await;
    assert_eq!(answer.json()["response"]["choices"][0]["message"]["content"], "slowly");
}

#[tokio::test]
async fn when_every_provider_refuses_our_credential_the_client_gets_ours() {
    let a = Provider::always(scripted::failure(401, "provider-words-a")).await;
    let b = Provider::always(scripted::failure(403, "provider-words-b")).await;
    let (gateway, key) = over(&[("a", &a.url()), ("b", &b.url())]).await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    envelope::openai(&answer, 502, "server_error", Some("provider_error"));
    assert!(!answer.text().contains("provider-words"));
    assert_eq!(answer.header("x-should-retry"), Some("false"));
}

#[tokio::test]
async fn when_the_plan_is_used_up_the_last_answer_passes_through() {
    let a = Provider::always(scripted::failure(500, "first")).await;
    for (status, headers) in [
        (503, vec![("content-type", "application/json")]),
        (429, vec![("retry-after", "9"), ("retry-after-ms", "8500")]),
    ] {
        let b = Provider::always(scripted::answer(
            status,
            &headers,
            b"{\"error\": {\"message\":\"the last\"}}",
        ))
        .await;
        let (gateway, key) = over(&[("a", &a.url()), ("b", &b.url())]).await;
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (status, "{\"error\": {\"message\":\"the last\"}}")
        );
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        assert_eq!(answer.header("x-rerouter-attempts"), Some("2"));
        for (name, value) in headers {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
        assert_eq!(gateway.capture(&answer.request_id()).await["state"], "failed");
    }
}

#[tokio::test]
async fn when_nobody_answers_the_client_gets_ours_and_the_connection_stays() {
    let dead = format!("http://127.0.0.1:{}/v1", free_port());
    let (gateway, key) = over(&[("a", &dead)]).await;
    let request = gateway.chat_request(&key, chat_body("auto", false).as_bytes());
    let mut connection = gateway.connect().await;
    for _ in 0..2 {
        envelope::openai(
            &connection.exchange(&request).await,
            502,
            "server_error",
            Some("provider_error"),
        );
    }
}

#[tokio::test]
async fn clients_that_leave_at_any_moment_leave_nothing_behind() {
    let moments = [
        vec![],
        vec![scripted::stream_head(), chunk(scripted::role_event())],
        vec![scripted::stream_head(), chunk(scripted::content_event("a"))],
    ];
    let a =
        Provider::start(move |_, n| moments[n % 3].iter().cloned().chain([Step::Hang]).collect())
            .await;
    let (mut gateway, key) = over(&[("a", &a.url()), ("b", &a.url())]).await;
    let request = gateway.chat_request(&key, chat_body("auto", true).as_bytes());
    let plain = gateway.chat_request(&key, chat_body("auto", false).as_bytes());
    for part in [1, 40, request.len() - 5] {
        let mut connection = gateway.connect().await;
        connection.send(&request[..part]).await;
        connection.abandon();
    }
    for number in 0..6 {
        let mut connection = gateway.connect().await;
        connection.send(if number == 0 { &plain } else { &request }).await;
        crate::support::until("the request upstream", async || (a.count() > number).then_some(()))
            .await;
        // Half of those whose content has begun have seen it.
        if number == 2 {
            connection.head().await.unwrap();
            connection.piece().await.expect("the first event");
        }
        connection.abandon();
        a.abandoned(number).await;
    }
    let captures = crate::support::until("six captures", async || {
        let captures = gateway
            .manage("GET", "/v1/router/replay", &gateway.admin_key, None)
            .await
            .json()["data"]
            .clone();
        (captures.as_array()?.len() >= 6).then_some(captures)
    })
    .await;
    let states: Vec<&Value> =
        captures.as_array().unwrap().iter().map(|capture| &capture["state"]).collect();
    assert_eq!(states, ["aborted"; 6]);
    assert_eq!((a.count(), gateway.metric("rerouter_inflight", &[]).await), (6, 0.0));
    // A drain ends only when no request is counted as under way.
    gateway.restart().await;
}

#[tokio::test]
async fn the_answer_says_who_served_and_the_provider_gets_only_our_credential() {
    let a = Provider::always(scripted::completion("hello")).await;
    let (gateway, key) = over(&[("a", &a.url())]).await;
    let revision = gateway.revision().await;
    let body = chat_body("auto", false);
    let secret = key.secret.as_str();
    let bearer = format!("Bearer {secret}");
    for credential in
        [("authorization", bearer.as_str()), ("x-api-key", secret), ("api-key", secret)]
    {
        let headers = [
            credential,
            ("content-type", "application/json"),
            ("x-request-id", "mine-1"),
            ("cookie", "rerouter_session=ses_x; other=1"),
            ("x-rerouter-capture", "off"),
            ("x-forwarded-for", "203.0.113.9"),
            ("openai-beta", "assistants=v2"),
        ];
        let answer =
            gateway.send("POST", "/v1/chat/completions", &headers, Some(body.as_bytes())).await;
        assert_eq!(answer.status, 200, "{}: {}", credential.0, answer.text());
        let id = answer.request_id();
        assert!(id.starts_with("req_") && id.len() == 30, "{id}");
        let named = ["provider", "model", "recipe", "rule", "revision", "attempts"]
            .map(|n| answer.header(&format!("x-rerouter-{n}")).map(str::to_owned));
        assert_eq!(
            named,
            ["a", "model", "main", "default", revision.as_str(), "1"]
                .map(|value| Some(value.to_owned()))
        );
        let received = a.last();
        assert_eq!(
            (received.method.as_str(), received.target.as_str()),
            ("POST", "/v1/chat/completions")
        );
        assert_eq!(received.header("authorization"), Some(format!("Bearer {UPSTREAM_KEY}")));
        assert_eq!(
            received.header("host").as_deref(),
            a.url().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/v1"))
        );
        assert_eq!(received.header("openai-beta").as_deref(), Some("assistants=v2"));
        for gone in ["x-api-key", "api-key", "cookie", "x-forwarded-for", "x-rerouter-capture"] {
            assert_eq!(received.header(gone), None, "{gone}");
        }
        assert!(!format!("{:?}", received.headers).contains(secret));
        assert_eq!(received.json()["model"], "model");
        let direct = gateway.chat(&key, chat_body("a/model", false).as_bytes()).await;
        assert_eq!(
            (direct.header("x-rerouter-recipe"), direct.header("x-rerouter-rule")),
            (Some("direct"), None)
        );
    }
}

#[tokio::test]
async fn what_speaks_of_the_providers_connection_stays_there() {
    let body = scripted::completion_body("hello").to_string();
    let hops = "te: trailers\r\nkeep-alive: timeout=1\r\nx-hop: 1\r\nconnection: x-hop\r\n\
        proxy-connection: close\r\nupgrade: h2c";
    let old = format!("HTTP/1.0 200 OK\r\ncontent-length: {}\r\n{hops}\r\n\r\n{body}", body.len());
    let a = Provider::always(vec![Step::Write(old.into_bytes()), Step::Cut]).await;
    let (gateway, key) = over(&[("a", &a.url())]).await;
    // The client of the tests takes no other version than 1.1 for an answer of ours.
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!((answer.status, answer.text()), (200, body));
    for gone in ["te", "keep-alive", "x-hop", "proxy-connection", "upgrade"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
}

#[tokio::test]
async fn an_unknown_model_is_a_404_that_calls_nobody() {
    let a = Provider::always(scripted::completion("hello")).await;
    let (gateway, key) = over(&[("a", &a.url())]).await;
    for model in ["nothing", "a/other", "other/model", "a/", "/model", ""] {
        let answer = gateway.chat(&key, chat_body(model, false).as_bytes()).await;
        if model.is_empty() {
            assert!(matches!(answer.status, 400 | 404), "{}", answer.status);
        } else {
            envelope::openai(&answer, 404, "invalid_request_error", Some("model_not_found"));
        }
    }
    assert_eq!(a.count(), 0);
}
