//! Bodies in memory: one bound for the process, whoever sends them and however slowly they are
//! read.

use std::sync::Arc;

use rerouter::internals::bounds;
use serde_json::json;
use tokio::sync::Notify;

use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::until;

const MIB: usize = 1 << 20;
const LIMIT: usize = 4 * MIB;
const GAUGE: &str = "rerouter_body_memory_bytes";

async fn start(provider: &Provider) -> (Gateway, Key) {
    let setup = Setup::new(&in_order(&[("a", &provider.url())], ""));
    let limits = "limits: { request_body: 1MiB, body_memory: 4MiB }";
    let gateway = setup.server(limits).start().await;
    let key = gateway.create_key().await;
    (gateway, key)
}

async fn all_is_given_back(gateway: &Gateway) {
    let held = async || (gateway.metric(GAUGE, &[]).await == 0.0).then_some(());
    until("all memory of bodies to be given back", held).await;
}

#[tokio::test]
async fn a_body_that_finds_no_room_is_503_and_the_others_go_on() {
    let gate = Arc::new(Notify::new());
    let waits = gate.clone();
    let provider = Provider::start(move |_, _| {
        [vec![Step::Wait(waits.clone())], scripted::completion("well")].concat()
    })
    .await;
    let (gateway, key) = start(&provider).await;
    let text = "a ".repeat(450 << 10);
    let body = json!({ "model": "auto", "messages": [{ "role": "user", "content": text }] });
    let body = body.to_string().into_bytes();
    // Each is held with its copy for the provider, and a sixteenth is the management's.
    let fit = (LIMIT - LIMIT / 16) / (2 * body.len());
    let held = futures::future::join_all((0..fit).map(|_| gateway.chat(&key, &body)));
    let meanwhile = async {
        let asked = async || (provider.count() == fit).then_some(());
        until("as many bodies as fit to be on their way", asked).await;
        assert!(gateway.metric(GAUGE, &[]).await <= LIMIT as f64);
        let refused = gateway.chat(&key, &body).await;
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
        assert_eq!(refused.json()["error"]["code"], "overloaded", "{}", refused.text());
        gateway.answers(200, "GET", "/health", "", None).await;
        gate.notify_waiters();
    };
    let (answers, ()) = tokio::join!(held, meanwhile);
    assert!(answers.iter().all(|answer| answer.status == 200));
    all_is_given_back(&gateway).await;
}

/// The copies that captures are made of are what grows while answers run.
#[tokio::test]
async fn answers_pass_whole_when_there_is_no_room_for_their_copies() {
    const ANSWERS: usize = 8;
    let gate = Arc::new(Notify::new());
    let waits = gate.clone();
    let piece = "x".repeat(32 << 10);
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": piece } }] });
    let event = Step::Chunk(format!("data: {chunk}\n\n").into_bytes());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let provider = Provider::start(move |_, _| {
        let mut steps = vec![Step::Write(head.into())];
        steps.extend(vec![event.clone(); 32]);
        steps.push(Step::Wait(waits.clone()));
        steps.push(Step::Chunk(b"data: [DONE]\n\n".to_vec()));
        steps.push(Step::Write(b"0\r\n\r\n".to_vec()));
        steps
    })
    .await;
    let (gateway, key) = start(&provider).await;
    let ask = json!({ "model": "auto", "stream": true, "messages": [] }).to_string().into_bytes();
    let streams = futures::future::join_all((0..ANSWERS).map(|_| gateway.chat(&key, &ask)));
    let meanwhile = async {
        let full = async || (gateway.metric(GAUGE, &[]).await > LIMIT as f64 / 4.0).then_some(());
        until("copies to take room", full).await;
        let all = async || (provider.count() == ANSWERS).then_some(());
        until("all answers to be on their way", all).await;
        for _ in 0..ANSWERS {
            // Each has written what it has, or waits for its client, which reads.
            gate.notify_one();
            tokio::task::yield_now().await;
        }
        until("the streams to end", async || {
            gate.notify_waiters();
            assert!(gateway.metric(GAUGE, &[]).await <= LIMIT as f64);
            (gateway.metric(GAUGE, &[]).await == 0.0).then_some(())
        })
        .await;
    };
    let (answers, ()) = tokio::join!(streams, meanwhile);
    let whole = 32 * format!("data: {chunk}\n\n").len() + "data: [DONE]\n\n".len();
    let mut cut = 0;
    for answer in &answers {
        assert_eq!((answer.status, answer.body.len()), (200, whole));
        let capture = gateway.capture(&answer.request_id()).await;
        cut += usize::from(capture["response"]["truncated"] == true);
    }
    // Of those that ran at the same time all may be.
    assert!(cut > 0, "none of {ANSWERS} copies was cut");
}

/// A small body that becomes a large one is read off the data path, in its caller's turn.
#[tokio::test]
async fn what_a_compressed_body_becomes_is_held_too() {
    let provider = Provider::always(scripted::completion("well")).await;
    let (gateway, key) = start(&provider).await;
    let body = |bytes: usize| {
        let text = "a".repeat(bytes);
        json!({ "model": "auto", "messages": [{ "role": "user", "content": text }] }).to_string()
    };
    let send = async |bytes: usize| {
        let coded = crate::support::coded::encode("gzip", body(bytes).as_bytes());
        let bearer = format!("Bearer {}", key.secret);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
        ];
        gateway.send("POST", "/v1/chat/completions", &headers, Some(&coded)).await.status
    };
    let large = 2 * bounds::READ_INLINE;
    let many = futures::future::join_all((0..6).map(|_| send(large))).await;
    assert_eq!(many, [200; 6], "they take turns");
    assert_eq!(send(MIB).await, 413);
    all_is_given_back(&gateway).await;
}

/// Who has no request left gets its answer before a large body is even sent.
#[tokio::test]
async fn a_limit_that_is_reached_is_told_before_a_large_body_comes() {
    let provider = Provider::always(scripted::completion("well")).await;
    let (gateway, _) = start(&provider).await;
    let limited = json!({ "limits": { "rpm": 1 } });
    let path = "/v1/router/keys";
    let made = gateway.manage("POST", path, &gateway.admin_key, Some(&limited)).await.json();
    let bearer = format!("Bearer {}", made["key"].as_str().unwrap());
    let body = json!({ "model": "auto", "messages": [] }).to_string().into_bytes();
    let coded = crate::support::coded::encode("gzip", &body);
    let send = async |headers: &[(&str, &str)], body: &[u8]| {
        let headers = [&[("authorization", bearer.as_str())], headers].concat();
        gateway.send("POST", "/v1/chat/completions", &headers, Some(body)).await
    };
    let gzip = [("content-encoding", "gzip")];
    assert_eq!(send(&gzip, &coded).await.status, 200);
    // Nothing but the head is sent.
    let mut connection = gateway.connect().await;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: {bearer}\r\n\
         content-length: {MIB}\r\n\r\n",
        gateway.host()
    );
    connection.send(head.as_bytes()).await;
    let refused = connection.head().await.expect("an answer");
    assert_eq!(
        (refused.status, refused.header("x-ratelimit-remaining-requests")),
        (429, Some("0"))
    );
    assert_eq!(send(&gzip, b"not gzip").await.status, 429, "it is not decoded");
    // A small one is read, so that its refusal is captured.
    let small = send(&[], &body).await;
    assert_eq!(small.status, 429);
    assert_eq!(gateway.capture(&small.request_id()).await["status"], 429);
}
