//! What answers used, and how they ended, as captures, sums and clients see it: counts of every
//! dialect, counts that nobody can believe, streams that break off, are left or stay silent,
//! answers that are compressed although nobody asked.

use std::sync::Arc;

use base64::Engine;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::client;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Step};

async fn over(provider: &Provider) -> (Gateway, Key) {
    let prices = "models:\n  \
        a/model: { input_per_mtok: 2.0, output_per_mtok: 10.0, cached_input_per_mtok: 0.5 }\n";
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], prices)).await;
    let key = gateway.create_key().await;
    (gateway, key)
}

fn chunk(text: impl Into<String>) -> Step {
    Step::Chunk(text.into().into_bytes())
}

/// A completion whose `usage` is this text.
fn counting(usage: &str) -> Vec<Step> {
    let body = format!(
        "{{\"id\":\"c\",\"choices\":[{{\"message\":{{\"role\":\"assistant\",\
         \"content\":\"Hi\"}}}}],\"usage\":{usage}}}"
    );
    scripted::answer(200, &[("content-type", "application/json")], body.as_bytes())
}

/// A stream whose last chunk has this `usage`.
fn counting_stream(usage: &str) -> Vec<Step> {
    let last = format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n");
    let events = [
        scripted::content_event("twelve bytes"),
        scripted::last_events().replace("data: [DONE]\n\n", &last),
        "data: [DONE]\n\n".into(),
    ];
    std::iter::once(scripted::stream_head()).chain(events.map(chunk)).chain([chunk("")]).collect()
}

#[tokio::test]
async fn what_an_answer_says_that_it_used_is_captured_and_priced() {
    let usages = [
        (
            concat!(
                r#"{"prompt_tokens":100,"completion_tokens":10,"#,
                r#""prompt_tokens_details":{"cached_tokens":40}}"#,
            ),
            (100, 40, 10, 110),
            240.0,
        ),
        (
            r#"{"prompt_tokens":100,"completion_tokens":10,"prompt_cache_hit_tokens":40}"#,
            (100, 40, 10, 110),
            240.0,
        ),
        // The total has thoughts that the completion has not: they cost too.
        (
            r#"{"prompt_tokens":100,"completion_tokens":10,"total_tokens":150,"cached_tokens":0}"#,
            (100, 0, 10, 150),
            700.0,
        ),
    ];
    let answers = usages.map(|(usage, ..)| usage);
    let provider = Provider::start(move |_, n| {
        if n % 2 == 0 { counting(answers[n / 2]) } else { counting_stream(answers[n / 2]) }
    })
    .await;
    let (gateway, key) = over(&provider).await;
    for (usage, (prompt, cached, completion, total), micro_usd) in usages {
        for stream in [false, true] {
            let answer = gateway.chat(&key, chat_body("auto", stream).as_bytes()).await;
            let capture = gateway.capture(&answer.request_id()).await;
            let expected = json!({
                "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total,
                "cached_tokens": cached, "estimated": false
            });
            assert_eq!(capture["usage"], expected, "{usage} {stream}");
            let cost = capture["cost_usd"].as_f64().unwrap();
            assert!((cost * 1e6 - micro_usd).abs() < 1e-6, "{usage}: {cost}");
        }
    }
    // The sums count what is billed.
    let sums = gateway.manage("GET", "/v1/router/usage", &gateway.admin_key, None).await.json();
    let row = &sums["data"][0];
    assert_eq!(
        (&row["prompt_tokens"], &row["completion_tokens"], &row["total_tokens"]),
        (&json!(600), &json!(2 * (10 + 10 + 50)), &json!(740)),
        "{sums}"
    );
}

#[tokio::test]
async fn absurd_counts_poison_nothing() {
    const ABSURD: [&str; 5] = [
        r#"{"prompt_tokens":-5,"completion_tokens":10,"total_tokens":5}"#,
        concat!(
            r#"{"prompt_tokens":18446744073709551615,"completion_tokens":18446744073709551615,"#,
            r#""total_tokens":18446744073709551615}"#,
        ),
        r#"{"prompt_tokens":1e300,"completion_tokens":1e300}"#,
        r#"{"prompt_tokens":"7","completion_tokens":"8"}"#,
        r#"{"prompt_tokens":{},"completion_tokens":[]}"#,
    ];
    let provider = Provider::start(|_, n| {
        if n % 2 == 0 { counting(ABSURD[n / 2]) } else { counting_stream(ABSURD[n / 2]) }
    })
    .await;
    let (gateway, key) = over(&provider).await;
    for usage in ABSURD {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert!(
            answer.text().contains(usage),
            "the client's bytes are the provider's: {}",
            answer.text()
        );
        let capture = gateway.capture(&answer.request_id()).await;
        assert_eq!(
            (&capture["state"], &capture["usage"], &capture["cost_usd"]),
            (&json!("completed"), &Value::Null, &Value::Null),
            "{usage}"
        );
        let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
        let usage = gateway.capture(&answer.request_id()).await["usage"].clone();
        assert_eq!((&usage["completion_tokens"], &usage["estimated"]), (&json!(3), &json!(true)));
    }
    let sums = gateway.manage("GET", "/v1/router/usage", &key.secret, None).await.json();
    let tokens = sums["data"][0]["completion_tokens"].as_u64().unwrap_or_else(|| panic!("{sums}"));
    assert_eq!(tokens, 15, "{sums}");
}

#[tokio::test]
async fn what_was_seen_of_a_stream_that_broke_off_or_was_left_is_accounted() {
    let never = Arc::new(Notify::new());
    let provider = Provider::start(move |_, n| {
        let end = if n == 0 { Step::Cut } else { Step::Wait(Arc::clone(&never)) };
        vec![scripted::stream_head(), chunk(scripted::content_event("twelve bytes")), end]
    })
    .await;
    let (gateway, key) = over(&provider).await;
    let cut = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
    assert!(
        cut.whole && cut.text().contains("\"error\"") && !cut.text().contains("[DONE]"),
        "{}",
        cut.text()
    );
    let mut connection = gateway.connect().await;
    connection.send(&gateway.chat_request(&key, chat_body("auto", true).as_bytes())).await;
    let head = connection.head().await.unwrap();
    connection.piece().await.expect("the first event");
    connection.abandon();
    provider.abandoned(1).await;
    for (id, state) in [(cut.request_id(), "failed"), (head.request_id(), "aborted")] {
        let capture = gateway.capture(&id).await;
        let usage = &capture["usage"];
        assert_eq!(
            (&capture["state"], &usage["completion_tokens"], &usage["estimated"]),
            (&json!(state), &json!(3), &json!(true))
        );
        assert!(
            usage["prompt_tokens"].as_u64().unwrap() > 0
                && capture["cost_usd"].as_f64().unwrap() > 0.0
        );
        assert_eq!(
            capture["response"]["assembled"]["choices"][0]["message"]["content"],
            "twelve bytes"
        );
    }
}

/// Behind the end of every choice there may be more to come, such as the usage.
#[tokio::test]
async fn a_chat_is_whole_by_done_or_by_its_ended_choices_and_a_proper_end() {
    let never = Arc::new(Notify::new());
    let ended = scripted::last_events().replace("data: [DONE]\n\n", "");
    let done = "data: [DONE]\n\n";
    let provider = Provider::start(move |_, n| {
        let said = [
            scripted::stream_head(),
            chunk(scripted::content_event("twelve bytes")),
            chunk(ended.clone()),
        ];
        let wait = Step::Wait(Arc::clone(&never));
        let end = match n {
            0 => vec![chunk("")],
            1 => vec![Step::Cut],
            2 => vec![chunk(done), Step::Cut],
            3 => vec![wait],
            _ => vec![chunk(done), wait],
        };
        said.into_iter().chain(end).collect()
    })
    .await;
    let (gateway, key) = over(&provider).await;
    let mut ids = Vec::new();
    for (broken, has_done) in [(false, false), (true, false), (false, true)] {
        let answer = gateway.chat(&key, chat_body("auto", true).as_bytes()).await;
        assert!(answer.whole && answer.text().contains("\"stop\""), "{}", answer.text());
        assert_eq!(
            (answer.text().contains("\"error\""), answer.text().contains("[DONE]")),
            (broken, has_done),
            "{}",
            answer.text()
        );
        ids.push(answer.request_id());
    }
    let bearer = format!("Bearer {}", key.secret);
    let (headers, body) = ([("authorization", bearer.as_str())], chat_body("auto", true));
    for last in ["\"stop\"", "[DONE]"] {
        let mut connection = gateway.connect().await;
        connection
            .send(&client::request(
                "POST",
                "/v1/chat/completions",
                &gateway.host(),
                &headers,
                Some(body.as_bytes()),
            ))
            .await;
        ids.push(connection.head().await.unwrap().request_id());
        let mut text = String::new();
        while !text.contains(last) {
            text.push_str(&String::from_utf8(connection.piece().await.expect("an event")).unwrap());
        }
        connection.abandon();
    }
    for (id, (state, error)) in ids.iter().zip([
        ("completed", Value::Null),
        ("failed", json!("cut")),
        ("completed", Value::Null),
        ("aborted", json!("client_gone")),
        ("completed", Value::Null),
    ]) {
        let capture = gateway.capture(id).await;
        assert_eq!((&capture["state"], &capture["error"]), (&json!(state), &error), "{capture}");
    }
}

#[tokio::test]
async fn a_document_of_success_that_holds_an_error_is_a_failed_call() {
    let body = json!({"error": {"message": "The model gave up.", "code": 502}, "user_id": "u"});
    let provider = Provider::always(scripted::json_answer(200, &body)).await;
    let (gateway, key) = over(&provider).await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!((answer.status, answer.text()), (200, body.to_string()), "it passes as it is");
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(
        (&capture["state"], &capture["error"], &capture["status"]),
        (&json!("failed"), &json!("in_band_error"), &json!(200))
    );
}

#[tokio::test]
async fn a_document_that_is_an_error_or_breaks_off_goes_to_the_next() {
    let body = json!({"error": {"message": "The model gave up.", "code": 502}});
    let half = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n\
        {\"choices\":";
    let a = Provider::start(move |_, n| match n {
        0 => scripted::json_answer(200, &body),
        _ => vec![Step::Write(half.into()), Step::Cut],
    })
    .await;
    let b = Provider::always(scripted::completion("from b")).await;
    let gateway = Gateway::start(&in_order(&[("a", &a.url()), ("b", &b.url())], "")).await;
    let key = gateway.create_key().await;
    for word in ["in_band_error", "cut"] {
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!((answer.status, answer.json()), (200, scripted::completion_body("from b")));
        let capture = gateway.capture(&answer.request_id()).await;
        assert_eq!(
            (&capture["state"], &capture["decision"]["attempts"][0]["error"]),
            (&json!("completed"), &json!(word))
        );
    }
}

/// A provider's comments keep a silent stream alive; the gateway has none of its own: what passes
/// is what was said.
#[tokio::test]
async fn comments_pass_and_none_are_added() {
    let gate = Arc::new(Notify::new());
    let comment = ": OPENROUTER PROCESSING\n\n";
    let line = ": ping\n";
    let wait = || Step::Wait(Arc::clone(&gate));
    let provider = Provider::always(vec![
        scripted::stream_head(),
        chunk(comment),
        chunk([scripted::role_event().as_str(), comment].concat()),
        chunk(scripted::content_event("On")),
        wait(),
        chunk(comment),
        wait(),
        chunk(line),
        wait(),
        chunk(scripted::last_events()),
        chunk(""),
    ])
    .await;
    let (gateway, key) = over(&provider).await;
    let mut connection = gateway.connect().await;
    connection.send(&gateway.chat_request(&key, chat_body("auto", true).as_bytes())).await;
    let head = connection.head().await.unwrap();
    assert_eq!(
        (head.header("cache-control"), head.header("x-accel-buffering")),
        (Some("no-cache"), Some("no"))
    );
    let held = [comment, &scripted::role_event(), comment, &scripted::content_event("On")].concat();
    let mut text = String::new();
    while text.len() < held.len() {
        text.push_str(
            &String::from_utf8(connection.piece().await.expect("what was held")).unwrap(),
        );
    }
    assert_eq!(text, held);
    gate.notify_one();
    assert_eq!(connection.piece().await.expect("the comment leaves alone"), comment.as_bytes());
    gate.notify_one();
    assert_eq!(connection.piece().await.expect("so does a line"), line.as_bytes());
    gate.notify_one();
    let (rest, whole) = connection.pieces().await;
    let rest: Vec<u8> = rest.into_iter().flat_map(|(_, piece)| piece).collect();
    assert!(whole && rest == scripted::last_events().as_bytes());
    assert_eq!(provider.last().header("accept-encoding").as_deref(), Some("identity"));
}

/// The bytes reach the client as they came; what they used is known, and the capture shows what
/// they are.
#[tokio::test]
async fn an_answer_that_is_compressed_all_the_same_passes_as_it_is() {
    // A gzip member with one stored block.
    let packed = |text: &str| {
        let length = u16::try_from(text.len()).unwrap();
        let head = [
            &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1][..],
            &length.to_le_bytes(),
            &(!length).to_le_bytes(),
        ]
        .concat();
        [
            head.as_slice(),
            text.as_bytes(),
            &crc32fast::hash(text.as_bytes()).to_le_bytes(),
            &u32::from(length).to_le_bytes(),
        ]
        .concat()
    };
    let bodies = [
        packed(&scripted::completion_body("Hi").to_string()),
        packed(&scripted::stream_body("Hi")),
    ];
    let answers = bodies.clone();
    let provider = Provider::start(move |_, n| {
        let kind = ["application/json", "text/event-stream"][n];
        scripted::answer(200, &[("content-type", kind), ("content-encoding", "gzip")], &answers[n])
    })
    .await;
    let (gateway, key) = over(&provider).await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str())];
    for (stream, body) in [false, true].into_iter().zip(bodies) {
        let request = chat_body("auto", stream);
        let request = client::request(
            "POST",
            "/v1/chat/completions",
            &gateway.host(),
            &headers,
            Some(request.as_bytes()),
        );
        let answer = gateway.connect().await.exchange(&request).await;
        assert_eq!(
            (answer.status, answer.header("content-encoding"), &answer.body),
            (200, Some("gzip"), &body)
        );
        let capture = gateway.capture(&answer.request_id()).await;
        let response = &capture["response"];
        assert_eq!(
            (&capture["state"], &response["assembled"]),
            (&json!("completed"), &Value::Null)
        );
        // The document tells; the stream does not.
        assert_eq!(capture["usage"]["estimated"], stream, "{}", capture["usage"]);
        assert_eq!(
            (&response["headers"]["content-encoding"], &response["body"]),
            (&json!("gzip"), &Value::Null)
        );
        assert_eq!(
            response["body_base64"],
            base64::engine::general_purpose::STANDARD.encode(&body)
        );
    }
}
