//! What of a provider's answer is for nobody but the gateway: the key that it knows us by, however
//! it says it; framing that readers could understand differently; headers for browsers and proxies.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};

/// With characters that writers of JSON may escape.
const KEY: &str = "sk-canary/0123456789+abcdef";
const HEADER_KEY: &str = "goog-canary-0cc175b9c0f1b6a8";

/// What a careless provider writes, by the name of its way of saying what it was sent.
fn said(way: &str) -> String {
    let key = match way {
        "escaped" => KEY.replace('/', "\\/"),
        "code" => KEY.replace('+', "\\u002B"),
        _ => KEY.to_owned(),
    };
    let words = format!("Incorrect API key: {key}. Twice: {key}, and {HEADER_KEY}");
    let error = format!(
        r#"{{"error":{{"message":"{words}","type":"server_error","param":null,"code":null}}}}"#
    );
    match way {
        "document" | "escaped" | "code" => {
            scripted::completion_body("WORDS").to_string().replace("WORDS", &words)
        }
        "text" => format!("{words}\n"),
        "first event" => format!("data: {error}\n\n"),
        "later event" => {
            let content = scripted::content_event("WORDS").replace("WORDS", &words);
            [
                scripted::role_event(),
                scripted::content_event("hello"),
                content,
                scripted::last_events(),
            ]
            .concat()
        }
        _ => error,
    }
}

/// Writes that, in pieces of so many bytes; the key is also in a header.
fn answer(way: &str, pieces: usize) -> Vec<Step> {
    let (status, kind) = match way {
        "text" => (200, "text/plain"),
        "first event" | "later event" => (200, "text/event-stream"),
        "error in a document" => (200, "application/json"),
        "refusal" => (422, "application/json"),
        "failure" => (500, "application/json"),
        _ => (200, "application/json"),
    };
    let body = said(way);
    let framing = match kind {
        "text/event-stream" => "transfer-encoding: chunked".to_owned(),
        _ => format!("content-length: {}", body.len()),
    };
    let head = format!(
        "HTTP/1.1 {status} Scripted\r\ncontent-type: {kind}\r\nx-echo: {KEY}\r\n{framing}\r\n\r\n"
    );
    let mut steps = vec![Step::Write(head.into_bytes())];
    for piece in body.as_bytes().chunks(pieces) {
        match kind {
            "text/event-stream" => steps.push(Step::Chunk(piece.to_vec())),
            _ => steps.push(Step::Write(piece.to_vec())),
        }
        // So that pieces are read one by one.
        steps.push(Step::Later(Duration::from_millis(1), Vec::new()));
    }
    if kind == "text/event-stream" {
        steps.push(Step::Chunk(Vec::new()));
    }
    steps
}

const WAYS: [&str; 9] = [
    "document",
    "escaped",
    "code",
    "text",
    "first event",
    "later event",
    "error in a document",
    "refusal",
    "failure",
];

fn script(request: &Received, _: usize) -> Vec<Step> {
    assert_eq!(
        request.header("authorization"),
        Some(format!("Bearer {KEY}")),
        "the canary is in play"
    );
    let asked = request.json();
    // Replays ask without a stream.
    let pieces = asked["seed"].as_u64().map_or(4_096, |pieces| usize::try_from(pieces).unwrap());
    answer(asked["user"].as_str().unwrap(), pieces)
}

fn asking(way: &str, pieces: usize) -> String {
    let mut body: Value = serde_json::from_str(&chat_body("auto", way.ends_with("event"))).unwrap();
    (body["user"], body["seed"]) = (way.into(), pieces.into());
    body.to_string()
}

async fn start(provider: &Provider) -> Gateway {
    let header =
        format!("{}\n    headers: {{ x-goog-api-key: \"${{HEADER_API_KEY}}\" }}\n", provider.url());
    let setup = Setup::new(&in_order(&[("a", &header)], ""));
    setup.env("UPSTREAM_API_KEY", KEY).env("HEADER_API_KEY", HEADER_KEY).start().await
}

fn starred(text: &str) -> String {
    let mut text = text.to_owned();
    for secret in [KEY, HEADER_KEY, &KEY.replace('/', "\\/"), &KEY.replace('+', "\\u002B")] {
        text = text.replace(secret, &"*".repeat(secret.len()));
    }
    text
}

#[tokio::test]
async fn a_provider_s_key_is_starred_wherever_the_provider_says_it() {
    let provider = Provider::start(script).await;
    let gateway = start(&provider).await;
    let key = gateway.create_key().await;
    for way in WAYS {
        for pieces in [4_096, 7, 1] {
            let what = format!("{way} in pieces of {pieces}");
            let answer = gateway.chat(&key, asking(way, pieces).as_bytes()).await;
            assert_eq!(answer.text(), starred(&said(way)), "{what}");
            assert!(answer.whole && !answer.text().contains("canary"), "{what}");
            let stars = "*".repeat(KEY.len());
            assert_eq!(answer.header("x-echo"), Some(stars.as_str()), "{what}");
            let capture = gateway.capture(&answer.request_id()).await;
            assert_eq!(capture["response"]["body"], answer.text(), "{what}");
            assert!(!capture.to_string().contains("canary"), "{what}: {capture}");
        }
    }
}

#[tokio::test]
async fn a_replay_s_response_does_not_say_a_provider_s_key() {
    let provider = Provider::start(script).await;
    let gateway = start(&provider).await;
    let key = gateway.create_key().await;
    for way in WAYS {
        let id = gateway.chat(&key, asking(way, 4_096).as_bytes()).await.request_id();
        gateway.capture(&id).await;
        let path = format!("/v1/router/replay/{id}/reroute");
        let rerouted = gateway.manage("POST", &path, &gateway.admin_key, None).await;
        assert!(matches!(rerouted.status, 200 | 502), "{way}: {}", rerouted.text());
        assert!(!rerouted.text().contains("canary"), "{way}: {}", rerouted.text());
        let starred = ["document", "escaped", "code"].contains(&way);
        assert!(
            !starred || rerouted.text().contains(&"*".repeat(KEY.len())),
            "{way}: {}",
            rerouted.text()
        );
        let replay = gateway.capture(rerouted.json()["new_id"].as_str().unwrap()).await;
        assert!(!replay.to_string().contains("canary"), "{way}: {replay}");
    }
}

/// Only events that are not whole wait, and what may be a beginning of the key.
#[tokio::test]
async fn a_stream_is_not_held_up_by_the_look_for_keys() {
    let provider = Provider::start(|_, _| {
        let (role, content) = (scripted::role_event(), scripted::content_event("sk-canary"));
        let begun = b"data: {\"text\":\"sk-canary/0".to_vec();
        vec![
            scripted::stream_head(),
            Step::Chunk(role.into_bytes()),
            Step::Chunk(content.into_bytes()),
            Step::Chunk(begun),
            Step::Hang,
        ]
    })
    .await;
    let gateway = start(&provider).await;
    let key = gateway.create_key().await;
    let request = gateway.chat_request(&key, chat_body("auto", true).as_bytes());
    let mut connection = gateway.connect().await;
    connection.send(&request).await;
    assert_eq!(connection.head().await.unwrap().status, 200);
    // The last event is not whole yet.
    let expected = [scripted::role_event(), scripted::content_event("sk-canary")].concat();
    let mut read = Vec::new();
    while read.len() < expected.len() {
        read.extend(connection.piece().await.expect("the stream goes on"));
    }
    assert_eq!(String::from_utf8(read).unwrap(), expected);
}

/// Compressed against our word it passes as it is, to client and capture alike.
#[tokio::test]
async fn a_compressed_answer_passes_as_it_is() {
    let coded = crate::support::coded::encode("gzip", json!({"said": KEY}).to_string().as_bytes());
    let steps = scripted::answer(
        200,
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        &coded,
    );
    let provider = Provider::always(steps).await;
    let gateway = start(&provider).await;
    let key = gateway.create_key().await;
    let request = gateway.chat_request(&key, chat_body("auto", false).as_bytes());
    let answer = gateway.connect().await.exchange(&request).await;
    assert_eq!((answer.status, &answer.body), (200, &coded));
    assert_eq!(
        provider.last().header("accept-encoding").as_deref(),
        Some("identity"),
        "it was asked for none"
    );
}

/// Framing in which two readers could find different ends, one case an entry: the lines and whether
/// it is an answer all the same.
const FRAMINGS: [(&str, bool); 9] = [
    ("content-length: LENGTH\r\ncontent-length: LENGTH", true),
    ("content-length: LENGTH, LENGTH", true),
    ("content-length: LENGTH\r\ncontent-length: 7", false),
    ("content-length: LENGTH, 7", false),
    ("transfer-encoding: xchunked", false),
    ("transfer-encoding: gzip, chunked", false),
    ("transfer-encoding: gzip\r\ntransfer-encoding: chunked", false),
    ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", false),
    ("transfer-encoding: identity", false),
];

#[tokio::test]
async fn an_answer_has_one_end_whoever_reads_it_or_is_none() {
    let body = scripted::completion_body("hello").to_string();
    let all = body.clone();
    let provider = Provider::start(move |request, _| {
        let case = usize::try_from(request.json()["seed"].as_u64().unwrap()).unwrap();
        let lines = FRAMINGS[case].0.replace("LENGTH", &all.len().to_string());
        let chunked = format!("{:x}\r\n{all}\r\n0\r\n\r\n", all.len());
        let said = if lines.contains("chunked") { &chunked } else { &all };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}\r\n\r\n{said}");
        vec![Step::Write(head.into_bytes()), Step::Cut]
    })
    .await;
    let patient = format!("{}\n    breaker: {{ consecutive: 100 }}", provider.url());
    let gateway = Gateway::start(&in_order(&[("a", &patient)], "")).await;
    let key = gateway.create_key().await;
    for (case, (lines, is_answer)) in FRAMINGS.iter().enumerate() {
        let mut asked: Value = serde_json::from_str(&chat_body("auto", false)).unwrap();
        asked["seed"] = case.into();
        let answer = gateway.chat(&key, asked.to_string().as_bytes()).await;
        if *is_answer {
            assert_eq!((answer.status, answer.text()), (200, body.clone()), "{lines}");
        } else {
            crate::support::envelope::openai(&answer, 502, "server_error", Some("provider_error"));
        }
        assert_eq!(answer.header_lines("content-length").len(), 1, "{lines}: {:?}", answer.headers);
        assert!(answer.header("transfer-encoding").is_none(), "{lines}: {:?}", answer.headers);
    }
}

#[tokio::test]
async fn what_a_provider_says_to_browsers_and_proxies_stays_here() {
    let kept = [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "x-request-id"),
        ("access-control-max-age", "600"),
        ("timing-allow-origin", "*"),
        ("proxy-authenticate", "Basic realm=\"provider\""),
        ("proxy-authentication-info", "nextnonce=\"a\""),
    ];
    let provider = Provider::start(move |request, _| {
        let headers: Vec<(&str, &str)> = [("content-type", "application/json"), ("x-shown", "1")]
            .into_iter()
            .chain(kept)
            .collect();
        let status = u16::try_from(request.json()["seed"].as_u64().unwrap()).unwrap();
        scripted::answer(
            status,
            &headers,
            scripted::completion_body("hello").to_string().as_bytes(),
        )
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], "")).await;
    let key = gateway.create_key().await;
    for status in [200, 407, 422, 503] {
        let mut asked: Value = serde_json::from_str(&chat_body("auto", false)).unwrap();
        asked["seed"] = status.into();
        let answer = gateway.chat(&key, asked.to_string().as_bytes()).await;
        assert_eq!((answer.status, answer.header("x-shown")), (status, Some("1")));
        for (name, _) in kept {
            assert_eq!(answer.header(name), None, "{status}");
        }
    }
}
