//! Bodies of any size and framing reach the provider whole, also after a failover; over the limit
//! 413.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::support::client::{self, Answer, H2};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{PATIENCE, envelope, until};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A chat request of exactly `size` bytes; its text is no repetition, so that a shifted or doubled
/// piece shows.
fn body_of(size: usize, model: &str) -> Vec<u8> {
    let start = r#"{"messages":[{"role":"user","content":""#;
    let end = format!(r#""}}],"model":"{model}","n":1}}"#);
    let mut out = start.as_bytes().to_vec();
    let mut number = 0u64;
    while out.len() + end.len() + 20 < size {
        number =
            number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.extend_from_slice(format!("{number:019} ").as_bytes());
    }
    out.resize(size - end.len(), b'.');
    out.extend_from_slice(end.as_bytes());
    assert_eq!(out.len(), size);
    out
}

fn same(received: &[u8], expected: &[u8]) -> bool {
    // Not assert_eq: it would print megabytes.
    received.len() == expected.len() && received == expected
}

#[tokio::test]
async fn bodies_of_any_size_and_framing_reach_both_providers_whole() {
    let a = Provider::always(scripted::failure(500, "try the next")).await;
    let b = Provider::always(scripted::completion("from b")).await;
    // The first provider fails each time, and is to be asked each time.
    let document = in_order(&[("a", &a.url()), ("b", &b.url())], "");
    let document = document.replacen(
        "protocol: openai\n",
        "protocol: openai\n    breaker: { consecutive: 1000, min_requests: 1000 }\n",
        1,
    );
    let gateway = Setup::new(&document).tls().start().await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let mut http1 = gateway.connect().await;
    let mut http2 = H2::open(gateway.tls()).await;
    let mut sent = 0;
    for size in [64 * KIB - 1, 64 * KIB + 1, MIB, 20 * MIB] {
        let (body, expected) = (body_of(size, "auto"), body_of(size + 1, "model"));
        for (protocol, unknown_length) in [(1, false), (1, true), (2, false), (2, true)] {
            let answer = match (protocol, unknown_length) {
                (1, false) => http1.exchange(&gateway.chat_request(&key, &body)).await,
                (1, true) => {
                    let request = client::chunked_request(
                        "POST",
                        "/v1/chat/completions",
                        &gateway.host(),
                        &headers,
                        &body,
                        50_000,
                    );
                    http1.exchange(&request).await
                }
                _ => {
                    http2
                        .send("POST", "/v1/chat/completions", &headers, &body, unknown_length)
                        .await
                }
            };
            let what =
                format!("{size} bytes over HTTP/{protocol}, unknown length {unknown_length}");
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            assert!(
                answer.whole
                    && answer.body == scripted::completion_body("from b").to_string().as_bytes(),
                "{what}"
            );
            assert_eq!(answer.header("x-rerouter-attempts"), Some("2"), "{what}");
            sent += 1;
            for provider in [&a, &b] {
                assert_eq!(provider.count(), sent, "{what}");
                let received = provider.last();
                let length = expected.len().to_string();
                assert_eq!(
                    received.header("content-length").as_deref(),
                    Some(length.as_str()),
                    "{what}"
                );
                assert!(
                    same(&received.body, &expected),
                    "{what}: {} bytes arrived",
                    received.body.len()
                );
            }
        }
    }
}

/// What is longer than `capture.max_body` is kept cut, says so, and is not rerouted.
#[tokio::test]
async fn a_body_beyond_the_capture_limit_is_marked_and_not_rerouted() {
    let a = Provider::always(scripted::completion("hello")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], ""))
        .server("capture: { max_body: 4KiB }")
        .start()
        .await;
    let key = gateway.create_key().await;
    let answer = gateway.chat(&key, &body_of(5 * KIB, "auto")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.request_id();
    let capture = gateway.capture(&id).await;
    assert_eq!(
        (&capture["request"]["truncated"], &capture["replayable"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(capture["not_replayable"], "truncated");
    let reroute = gateway.reroute(&id, &key.secret).await;
    envelope::management(&reroute, 409, "truncated");
    assert_eq!(a.count(), 1);
}

/// The same of answers, whether they passed or were read whole, as a reroute's and the last refusal
/// are.
#[tokio::test]
async fn an_answer_beyond_the_capture_limit_is_kept_cut_and_says_so() {
    let long = "long ".repeat(KIB);
    for (steps, status) in
        [(scripted::completion(&long), 200), (scripted::failure(500, &long), 500)]
    {
        let a = Provider::always(steps).await;
        let gateway = Setup::new(&in_order(&[("a", &a.url())], ""))
            .server("capture: { max_body: 4KiB }")
            .start()
            .await;
        let key = gateway.create_key().await;
        let answer = gateway.chat(&key, &body_of(KIB, "auto")).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(answer.text().contains(&long), "the client has all of it");
        let passed = answer.request_id();
        let reroute = gateway.reroute(&passed, &key.secret).await;
        assert!(reroute.text().contains(&long), "{}", reroute.text());
        let again = reroute.json()["new_id"].as_str().unwrap().to_owned();
        for id in [passed, again] {
            let response = gateway.capture(&id).await["response"].take();
            assert_eq!(
                (&response["truncated"], response["body"].as_str().map(str::len)),
                (&json!(true), Some(4 * KIB)),
                "{status}"
            );
        }
    }
}

async fn small_limit() -> (Gateway, Key, Provider) {
    let a = Provider::always(scripted::completion("hello")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], ""))
        .server("limits: { request_body: 64KiB }")
        .tls()
        .start()
        .await;
    let key = gateway.create_key().await;
    (gateway, key, a)
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_and_the_connection_closes() {
    let (gateway, key, a) = small_limit().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let check = |answer: &Answer| {
        envelope::openai(answer, 413, "invalid_request_error", Some("payload_too_large"))
    };
    let body = body_of(200 * KIB, "auto");
    for request in [
        client::request("POST", "/v1/chat/completions", &gateway.host(), &headers, Some(&body)),
        client::chunked_request(
            "POST",
            "/v1/chat/completions",
            &gateway.host(),
            &headers,
            &body,
            10_000,
        ),
    ] {
        let mut connection = gateway.connect().await;
        check(&connection.exchange(&request).await);
        assert!(connection.is_closed().await);
    }
    let mut http2 = H2::open(gateway.tls()).await;
    for unknown_length in [false, true] {
        check(&http2.send("POST", "/v1/chat/completions", &headers, &body, unknown_length).await);
    }
    assert_eq!(a.count(), 0);
    let fits = body_of(64 * KIB, "auto");
    assert_eq!(gateway.chat(&key, &fits).await.status, 200, "exactly the limit fits");
    assert_eq!(
        http2.send("POST", "/v1/chat/completions", &headers, &fits, true).await.status,
        200,
        "the connection goes on"
    );
}

#[tokio::test]
async fn expect_100_continue_is_answered_and_not_passed_on() {
    let (gateway, key, a) = small_limit().await;
    let bearer = format!("Bearer {}", key.secret);
    let body = body_of(KIB, "auto");
    let length = body.len().to_string();
    let headers = [
        ("authorization", bearer.as_str()),
        ("expect", "100-continue"),
        ("content-length", length.as_str()),
    ];
    let mut connection = gateway.connect().await;
    connection
        .send(&client::request("POST", "/v1/chat/completions", &gateway.host(), &headers, None))
        .await;
    assert_eq!(connection.head().await.expect("an interim answer").status, 100);
    let answer = connection.exchange(&body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(a.last().header("expect"), None);
    // Without a good credential the body is never asked for.
    let headers = [
        ("authorization", "Bearer rtr_wrong"),
        ("expect", "100-continue"),
        ("content-length", length.as_str()),
    ];
    connection = gateway.connect().await;
    connection
        .send(&client::request("POST", "/v1/chat/completions", &gateway.host(), &headers, None))
        .await;
    assert_eq!(connection.head().await.expect("a final answer").status, 401);
}

#[tokio::test]
async fn over_http2_expect_100_continue_is_answered_too() {
    let a = Provider::always(scripted::completion("hello")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], "")).tls().start().await;
    let key = gateway.create_key().await;
    let (address, tls) = gateway.tls();
    let stream = tls.dial(address, b"h2").await.expect("a handshake");
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request =
        http::Request::post(format!("https://localhost:{}/v1/chat/completions", address.port()))
            .header("authorization", format!("Bearer {}", key.secret))
            .header("expect", "100-continue");
    let (mut answer, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
    let interim = std::future::poll_fn(|context| answer.poll_informational(context));
    let interim = timeout(PATIENCE, interim).await.expect("an interim answer within the bound");
    assert_eq!(interim.expect("an interim answer").unwrap().status(), 100);
    body.send_data(Bytes::from(chat_body("auto", false)), true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
}

/// The next request, or the line end of an old client.
#[tokio::test]
async fn bytes_behind_a_body_do_not_end_its_call() {
    let gate = Arc::new(Notify::new());
    let waits = gate.clone();
    let a = Provider::start(move |_, _| {
        let mut answer = vec![Step::Wait(waits.clone())];
        answer.extend(scripted::completion("hello"));
        answer
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &a.url())], "")).await;
    let key = gateway.create_key().await;
    let request = gateway.chat_request(&key, chat_body("auto", false).as_bytes());
    for (number, behind) in [&b"\r\n"[..], &request, &[b'x'; 10_000]].into_iter().enumerate() {
        let mut connection = gateway.connect().await;
        connection.send(&request).await;
        until("the request", async || (a.count() > number).then_some(())).await;
        connection.send(behind).await;
        gate.notify_one();
        let answer = connection.answer().await.expect("an answer");
        assert_eq!((answer.status, answer.whole), (200, true), "{number}: {}", answer.text());
        assert!(connection.is_closed().await, "{number}");
    }
    assert_eq!(a.count(), 3);
    // A client that leaves is noticed all the same.
    let mut connection = gateway.connect().await;
    connection.send(&request).await;
    until("the request", async || (a.count() == 4).then_some(())).await;
    connection.send(b"\r\n").await;
    connection.abandon();
    a.abandoned(3).await;
}

#[tokio::test]
async fn a_body_that_is_no_chat_request_is_400_and_the_connection_stays() {
    let (gateway, key, a) = small_limit().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let deep =
        format!(r#"{{"model":"auto","messages":[],"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let bad: [(&[u8], Option<&str>); 12] = [
        (b"", None),
        (b"nonsense", None),
        (b"{\"model\":\"auto\"", None),
        (b"{\"model\":\"auto\",\"messages\":[]} more", None),
        (b"[]", None),
        (b"{\"model\":\"auto\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}", None),
        (deep.as_bytes(), None),
        (b"{\"messages\":[]}", Some("model")),
        (b"{\"model\":7,\"messages\":[]}", Some("model")),
        (b"{\"model\":\"auto\",\"model\":\"auto\",\"messages\":[]}", Some("model")),
        (b"{\"model\":\"auto\",\"mod\\u0065l\":\"auto\",\"messages\":[]}", Some("model")),
        (b"{\"model\":\"auto\",\"messages\":\"hi\"}", Some("messages")),
    ];
    let mut connection = gateway.connect().await;
    for (body, param) in bad {
        let request =
            client::request("POST", "/v1/chat/completions", &gateway.host(), &headers, Some(body));
        let answer = connection.exchange(&request).await;
        envelope::openai(&answer, 400, "invalid_request_error", None);
        if param.is_some() {
            assert_eq!(answer.json()["error"]["param"].as_str(), param, "{}", answer.text());
        }
    }
    assert_eq!(a.count(), 0);
    let good = client::request(
        "POST",
        "/v1/chat/completions",
        &gateway.host(),
        &headers,
        Some(&body_of(KIB, "auto")),
    );
    assert_eq!(connection.exchange(&good).await.status, 200);
}
