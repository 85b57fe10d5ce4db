//! What clients and SDKs of both APIs lean on and gateways commonly get wrong, on every endpoint:
//! how streams end, what of a provider is shown, in which words each exit speaks, what a client
//! that leaves costs.

use serde_json::{Value, json};

use crate::requests::endpoints::{ANTHROPIC, OPENAI, body, document, post, reply};
use crate::support::client::{self, Connection, H2};
use crate::support::coded::encode;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};

const STREAMING: [&str; 3] = ["/v1/chat/completions", "/v1/responses", "/v1/messages"];

/// One provider of each protocol that both do the same.
async fn start(
    script: impl Fn(&Received, usize) -> Vec<Step> + Clone + Send + Sync + 'static,
) -> (Gateway, Key, Provider, Provider) {
    let (open, claude) = (Provider::start(script.clone()).await, Provider::start(script).await);
    let gateway = Setup::new(&document(&open, &claude, "")).tls().start().await;
    let key = gateway.create_key().await;
    (gateway, key, open, claude)
}

fn streaming(path: &str, model: &str) -> String {
    body(path, model).replacen('{', r#"{"stream":true,"#, 1)
}

fn named(kind: &str, mut data: Value) -> String {
    data["type"] = kind.into();
    format!("event: {kind}\ndata: {data}\n\n")
}

/// A whole stream of each endpoint, one event an entry.
fn events(path: &str) -> Vec<String> {
    match path {
        "/v1/messages" => vec![
            named(
                "message_start",
                json!({
                    "message": {
                        "id": "msg_1", "content": [],
                        "usage": {"input_tokens": 9, "output_tokens": 1}
                    }
                }),
            ),
            named(
                "content_block_start",
                json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
            ),
            named(
                "content_block_delta",
                json!({"index": 0, "delta": {"type": "text_delta", "text": "word"}}),
            ),
            named("content_block_stop", json!({"index": 0})),
            named(
                "message_delta",
                json!({"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
            ),
            named("message_stop", json!({})),
        ],
        "/v1/responses" => vec![
            named(
                "response.created",
                json!({"sequence_number": 0, "response": {"id": "resp_1", "output": []}}),
            ),
            named(
                "response.output_text.delta",
                json!({
                    "sequence_number": 1, "output_index": 0, "content_index": 0, "delta": "word"
                }),
            ),
            named(
                "response.completed",
                json!({
                    "sequence_number": 2,
                    "response": {
                        "id": "resp_1", "output": [],
                        "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
                    }
                }),
            ),
        ],
        _ => {
            let usage = "data: {\"choices\":[]\
                ,\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}\n\
                \n";
            vec![
                scripted::role_event(),
                scripted::content_event("word"),
                scripted::last_events().replace("data: [DONE]", &format!("{usage}data: [DONE]")),
            ]
        }
    }
}

/// As many of them as hold the word and no end.
fn half(path: &str) -> usize {
    if path == "/v1/messages" { 3 } else { 2 }
}

/// The head of a stream and its first events, as steps.
fn begun(path: &str, count: usize) -> Vec<Step> {
    let chunks = events(path).into_iter().take(count).map(|event| Step::Chunk(event.into_bytes()));
    std::iter::once(scripted::stream_head()).chain(chunks).collect()
}

fn then(mut steps: Vec<Step>, last: Step) -> Vec<Step> {
    steps.push(last);
    steps
}

/// A request with the key, as bytes.
fn written(gateway: &Gateway, key: &Key, path: &str, body: &str) -> Vec<u8> {
    let bearer = format!("Bearer {}", key.secret);
    client::request(
        "POST",
        path,
        &gateway.host(),
        &[("authorization", &bearer)],
        Some(body.as_bytes()),
    )
}

/// Reads until what has come holds `word`.
async fn read_until(connection: &mut Connection, word: &str) {
    let mut text = String::new();
    while !text.contains(word) {
        text.push_str(&String::from_utf8_lossy(
            &connection.piece().await.unwrap_or_else(|| panic!("no {word} in {text}")),
        ));
    }
}

/// After the terminal event nothing is missing: an error behind it would make a whole answer a
/// failure to its client.
#[tokio::test]
async fn what_breaks_off_after_its_terminal_event_is_whole() {
    let (gateway, key, _open, _claude) =
        start(|received, _| then(begun(&received.target, 9), Step::Cut)).await;
    for path in STREAMING {
        let answer = post(&gateway, &key, path, &[], &streaming(path, "auto")).await;
        assert_eq!(
            (answer.status, answer.whole, answer.text()),
            (200, true, events(path).concat()),
            "{path}"
        );
        let capture = gateway.capture(&answer.request_id()).await;
        completed(&capture, path);
        assert_eq!(capture["decision"]["attempts"][0]["error"], Value::Null, "{path}");
        assert_eq!(capture["response"]["body"].as_str().unwrap(), events(path).concat(), "{path}");
    }
}

/// The capture of a whole answer, with the usage that the provider reported.
fn completed(capture: &Value, path: &str) {
    assert_eq!(
        (&capture["state"], &capture["status"]),
        (&json!("completed"), &json!(200)),
        "{path}: {capture}"
    );
    assert_eq!(
        (&capture["usage"]["total_tokens"], &capture["usage"]["estimated"]),
        (&json!(11), &json!(false)),
        "{path}"
    );
}

/// Clients leave when they have read the last event, whatever the framing still holds.
#[tokio::test]
async fn a_client_that_leaves_after_the_terminal_event_has_its_whole_answer() {
    let (gateway, key, open, claude) =
        start(|received, _| then(begun(&received.target, 9), Step::Hang)).await;
    for (path, asked, number) in [
        ("/v1/chat/completions", &open, 0),
        ("/v1/responses", &open, 1),
        ("/v1/messages", &claude, 0),
    ] {
        let mut connection = gateway.connect().await;
        connection.send(&written(&gateway, &key, path, &streaming(path, "auto"))).await;
        let id = connection.head().await.unwrap().request_id();
        let last = events(path).pop().unwrap();
        read_until(&mut connection, last.trim_end().rsplit('\n').next().unwrap()).await;
        connection.abandon();
        asked.abandoned(number).await;
        let capture = gateway.capture(&id).await;
        completed(&capture, path);
    }
}

/// A choice's end ends a stream without `[DONE]`, but not that of another choice.
#[tokio::test]
async fn an_answer_of_which_one_choice_broke_off_broke_off() {
    let second = |text: &str| text.replace("\"index\":0", "\"index\":1");
    let shown = [
        scripted::content_event("a"),
        second(&scripted::content_event("b")),
        scripted::last_events().replace("data: [DONE]\n\n", ""),
    ];
    let mut whole = shown.to_vec();
    whole.push(second(&shown[2]));
    let streams = [shown.to_vec(), whole];
    let provider = {
        let streams = streams.clone();
        Provider::start(move |_, n| {
            let chunks = streams[n].iter().map(|event| Step::Chunk(event.clone().into_bytes()));
            std::iter::once(scripted::stream_head())
                .chain(chunks)
                .chain([Step::Chunk(Vec::new())])
                .collect()
        })
        .await
    };
    let gateway = Gateway::start(&document(&provider, &provider, "")).await;
    let key = gateway.create_key().await;
    let ask = streaming("/v1/chat/completions", "gpt").replacen('{', r#"{"n":2,"#, 1);
    let broken = post(&gateway, &key, "/v1/chat/completions", &[], &ask).await;
    let text = broken.text();
    let rest = text.strip_prefix(&streams[0].concat()).unwrap_or_else(|| panic!("{text}"));
    assert!(broken.whole && rest.contains("\"provider_error\""), "{text}");
    assert_eq!(gateway.capture(&broken.request_id()).await["state"], "failed");
    let good = post(&gateway, &key, "/v1/chat/completions", &[], &ask).await;
    assert_eq!((good.whole, good.text()), (true, streams[1].concat()));
    assert_eq!(gateway.capture(&good.request_id()).await["state"], "completed");
}

#[tokio::test]
async fn a_client_that_leaves_cancels_upstream_on_every_endpoint() {
    let (gateway, key, open, claude) =
        start(|received, _| match received.json()["stream"].as_bool() {
            Some(true) => then(begun(&received.target, half(&received.target)), Step::Hang),
            _ => vec![Step::Hang],
        })
        .await;
    for path in STREAMING.into_iter().chain(OPENAI).chain(ANTHROPIC) {
        for stream in [true, false] {
            if stream && !STREAMING.contains(&path) {
                continue;
            }
            let asked = if ANTHROPIC.contains(&path) { &claude } else { &open };
            let number = asked.count();
            let mut connection = gateway.connect().await;
            let text = if stream { streaming(path, "auto") } else { body(path, "auto") };
            connection.send(&written(&gateway, &key, path, &text)).await;
            let id =
                if stream { Some(connection.head().await.unwrap().request_id()) } else { None };
            if stream {
                read_until(&mut connection, "word").await;
            }
            crate::support::until("the provider to be asked", async || {
                (asked.count() > number).then_some(())
            })
            .await;
            connection.abandon();
            asked.abandoned(number).await;
            if let Some(id) = id {
                let capture = gateway.capture(&id).await;
                assert_eq!(
                    (&capture["state"], &capture["status"]),
                    (&json!("aborted"), &json!(499)),
                    "{path}: {capture}"
                );
                assert!(capture["usage"]["prompt_tokens"].as_u64().unwrap() > 0, "{path}");
            }
        }
    }
    let none = async || (gateway.metric("rerouter_inflight", &[]).await == 0.0).then_some(());
    crate::support::until("nothing under way", none).await;
}

/// What we are known by to a provider is nobody else's, also where a refusal quotes it.
#[tokio::test]
async fn a_refusal_that_says_our_credential_back_says_it_to_nobody() {
    let script = |received: &Received, _: usize| {
        let shown =
            received.header("authorization").or(received.header("x-api-key")).unwrap_or_default();
        let status: u16 = received.json()["model"].as_str().unwrap().parse().unwrap();
        let words = format!("Incorrect API key provided: {shown}. Twice: {shown}.");
        let text =
            json!({"type": "error", "error": {"message": words, "type": "invalid_request_error"}})
                .to_string();
        let (start, end) = text.split_at(text.find("-upstream").unwrap());
        let head = format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             \r\n",
            text.len()
        );
        // Cut within the credential.
        vec![
            Step::Write(head.into_bytes()),
            Step::Write(start.into()),
            Step::Later(std::time::Duration::from_millis(30), end.into()),
        ]
    };
    let (open, claude) = (Provider::start(script).await, Provider::start(script).await);
    let models: String = [400, 404, 409, 422, 429, 500]
        .map(|status| format!("  open/{status}: {{}}\n  claude/{status}: {{}}\n"))
        .concat();
    let gateway = Gateway::start(
        &document(&open, &claude, "")
            .replace("recipes:\n", &format!("models:\n{models}recipes:\n")),
    )
    .await;
    let key = gateway.create_key().await;
    for (path, name) in [("/v1/chat/completions", "open"), ("/v1/messages", "claude")] {
        for status in [400, 404, 409, 422, 429, 500] {
            let answer =
                post(&gateway, &key, path, &[], &body(path, &format!("{name}/{status}"))).await;
            assert_eq!(
                (answer.status, answer.whole),
                (status, true),
                "{path} {status}: {}",
                answer.text()
            );
            let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(
                message.starts_with("Incorrect API key provided: ")
                    && message.contains(". Twice: "),
                "{message}"
            );
            assert!(!answer.text().contains("-upstream"), "{path} {status}: {}", answer.text());
            let capture = gateway.capture(&answer.request_id()).await;
            assert!(!capture.to_string().contains("-upstream"), "{path} {status}: {capture}");
        }
    }
}

/// Whose account it is, and what browsers are to do about the provider's host, is not the clients'.
#[tokio::test]
async fn what_a_provider_says_of_the_operator_s_account_stays_here() {
    let kept = [
        ("openai-organization", "org-of-the-operator"),
        ("openai-project", "proj_of_the_operator"),
        ("anthropic-organization-id", "0a1b-of-the-operator"),
        ("set-cookie", "a=b"),
        ("clear-site-data", "\"*\""),
        ("nel", "{}"),
        ("report-to", "{}"),
    ];
    let shown = [
        ("openai-processing-ms", "12"),
        ("openai-version", "2020-10-01"),
        ("retry-after-ms", "70"),
        ("x-should-retry", "true"),
    ];
    let (gateway, key, _open, _claude) = start(move |received, _| {
        let headers: Vec<(&str, &str)> =
            [("content-type", "application/json")].into_iter().chain(kept).chain(shown).collect();
        scripted::answer(if received.json()["bad"] == true { 409 } else { 200 }, &headers, b"{}")
    })
    .await;
    for path in OPENAI.into_iter().chain(ANTHROPIC) {
        for text in [body(path, "auto"), body(path, "auto").replacen('{', r#"{"bad":true,"#, 1)] {
            let answer = post(&gateway, &key, path, &[], &text).await;
            for (name, _) in kept {
                assert_eq!(answer.header(name), None, "{path}");
            }
            for (name, value) in shown {
                assert_eq!(answer.header(name), Some(value), "{path} {}", answer.status);
            }
            let capture = gateway.capture(&answer.request_id()).await.to_string();
            assert!(
                !capture.contains("of-the-operator") && !capture.contains("of_the_operator"),
                "{path}: {capture}"
            );
        }
    }
}

/// RFC 9110 sections 12.5.3 and 15.5.16.
#[tokio::test]
async fn a_refused_coding_names_the_accepted_ones_in_its_head() {
    let (gateway, key, _open, _claude) = start(reply).await;
    for path in OPENAI.into_iter().chain(ANTHROPIC) {
        let answer =
            post(&gateway, &key, path, &[("content-encoding", "compress")], &body(path, "auto"))
                .await;
        assert_eq!(
            (answer.status, answer.header("accept-encoding")),
            (415, Some("gzip, deflate, zstd, br")),
            "{path}"
        );
    }
    let answer =
        post(&gateway, &key, "/v1/router/decide", &[("content-encoding", "gzip")], "x").await;
    assert_eq!((answer.status, answer.header("accept-encoding")), (415, Some("identity")));
    let answer =
        gateway.manage("POST", "/v1/router/decide?endpoint=x", &key.secret, Some(&json!({}))).await;
    assert_eq!((answer.status, answer.header("accept-encoding")), (400, None));
}

/// What is kept is the decoded body: its head has to speak of that.
#[tokio::test]
async fn the_captured_head_fits_the_captured_body() {
    let (gateway, key, open, _claude) = start(reply).await;
    let text = body("/v1/chat/completions", "auto");
    for coding in ["gzip", "identity"] {
        let bearer = format!("Bearer {}", key.secret);
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-encoding", coding),
            ("content-type", "application/json"),
        ];
        let sent = if coding == "gzip" {
            encode("gzip", text.as_bytes())
        } else {
            text.clone().into_bytes()
        };
        let answer = gateway.send("POST", "/v1/chat/completions", &headers, Some(&sent)).await;
        assert_eq!((answer.status, open.last().header("content-encoding")), (200, None));
        let request = gateway.capture(&answer.request_id()).await["request"].clone();
        assert_eq!(
            (&request["body"], &request["headers"]["content-encoding"]),
            (&json!(text), &Value::Null),
            "{coding}"
        );
        assert_eq!(request["headers"]["content-length"], text.len().to_string(), "{coding}");
        assert_eq!(request["headers"]["content-type"], "application/json");
    }
}

/// A provider that compresses against our word is paid for all the same.
#[tokio::test]
async fn what_a_compressed_answer_used_is_counted() {
    let (gateway, key, _open, _claude) = start(|received, _| {
        let stream = received.json()["stream"] == true;
        let plain = if stream {
            events(&received.target).concat()
        } else {
            USED[usize::from(received.target.contains("messages"))].to_owned()
        };
        let coding = received.header("openai-beta").unwrap();
        let kind = if stream { "text/event-stream" } else { "application/json" };
        scripted::answer(
            200,
            &[("content-type", kind), ("content-encoding", &coding)],
            &encode(&coding, plain.as_bytes()),
        )
    })
    .await;
    let bearer = format!("Bearer {}", key.secret);
    for path in STREAMING {
        for coding in ["gzip", "deflate", "zstd", "br"] {
            for text in [body(path, "auto"), streaming(path, "auto")] {
                let headers = [("authorization", bearer.as_str()), ("openai-beta", coding)];
                let request =
                    client::request("POST", path, &gateway.host(), &headers, Some(text.as_bytes()));
                let answer = gateway.connect().await.exchange(&request).await;
                assert_eq!((answer.status, answer.header("content-encoding")), (200, Some(coding)));
                let capture = gateway.capture(&answer.request_id()).await;
                let usage = &capture["usage"];
                assert_eq!(
                    (&usage["prompt_tokens"], &usage["total_tokens"], &usage["estimated"]),
                    (&json!(9), &json!(11), &json!(false)),
                    "{path} {coding}: {usage}"
                );
                assert_eq!(capture["state"], "completed");
            }
        }
    }
}

const USED: [&str; 2] = [
    r#"{"object":"x","usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#,
    r#"{"type":"message","usage":{"input_tokens":9,"output_tokens":2}}"#,
];

/// Servers whose reader of JSON takes names of any case for the same (Go's does) would read another
/// request than was let in.
#[tokio::test]
async fn a_name_in_other_letters_is_refused() {
    let (gateway, key, open, claude) = start(reply).await;
    for (path, more) in [
        ("/v1/chat/completions", r#""Model":"other""#),
        ("/v1/chat/completions", r#""MAX_TOKENS":9999"#),
        ("/v1/chat/completions", r#""M\u004fdel":"other""#),
        ("/v1/embeddings", r#""mOdel":"other""#),
        ("/v1/responses", r#""Input":"other""#),
        ("/v1/messages", r#""Messages":[]"#),
        ("/v1/messages/count_tokens", r#""Model":"other""#),
    ] {
        for text in [
            body(path, "auto").replacen('{', &format!("{{{more},"), 1),
            format!("{},{more}}}", body(path, "auto").trim_end_matches('}')),
        ] {
            let answer = post(&gateway, &key, path, &[], &text).await;
            assert_eq!(answer.status, 400, "{text}: {}", answer.text());
            assert!(
                answer.text().contains("must be spelled exactly like this"),
                "{}",
                answer.text()
            );
        }
    }
    assert_eq!((open.count(), claude.count()), (0, 0));
    // What is not acted on is the provider's to judge.
    let text = body("/v1/chat/completions", "auto").replacen(
        '{',
        r#"{"Temperature":1,"temperature":1,"#,
        1,
    );
    assert_eq!(post(&gateway, &key, "/v1/chat/completions", &[], &text).await.status, 200);
}

/// Of what is acted on below the top, too, one place counts.
#[tokio::test]
async fn what_is_acted_on_inside_comes_once() {
    let (gateway, key, open, claude) = start(reply).await;
    for (path, more) in [
        (
            "/v1/chat/completions",
            r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#,
        ),
        (
            "/v1/chat/completions",
            r#""stream":true,"stream_options":{"include_usage":true,"Include_Usage":false}"#,
        ),
        ("/v1/chat/completions", r#""response_format":{"type":"json_object","type":"text"}"#),
        ("/v1/responses", r#""text":{"format":{"type":"text"},"format":{"type":"json_object"}}"#),
        ("/v1/messages", r#""output_config":{"format":{"type":"json_schema"},"format":null}"#),
    ] {
        let answer = post(
            &gateway,
            &key,
            path,
            &[],
            &body(path, "auto").replacen('{', &format!("{{{more},"), 1),
        )
        .await;
        assert_eq!(answer.status, 400, "{more}: {}", answer.text());
        let why = ["is set twice", "must be spelled exactly like this"];
        assert!(why.iter().any(|why| answer.text().contains(why)), "{}", answer.text());
    }
    assert_eq!((open.count(), claude.count()), (0, 0));
}

#[tokio::test]
async fn members_of_other_endpoints_and_names_with_slashes_pass_as_they_are() {
    let (open, claude) = (Provider::start(reply).await, Provider::start(reply).await);
    let models = "models: { \"open/org/deep:1\": {} }\n";
    let gateway = Gateway::start(
        &document(&open, &claude, "").replace("recipes:\n", &format!("{models}recipes:\n")),
    )
    .await;
    let key = gateway.create_key().await;
    let asked = body("/v1/embeddings", "auto").replacen('{', r#"{"stream":true,"stream":7,"#, 1);
    let answer = post(&gateway, &key, "/v1/embeddings", &[], &asked).await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/json")),
        "{}",
        answer.text()
    );
    assert_eq!(open.last().body, asked.replace("\"auto\"", "\"gpt\"").as_bytes());
    assert_eq!(gateway.capture(&answer.request_id()).await["stream"], false);
    for model in ["open/org/deep:1", r"open\/org\u002fdeep:1"] {
        let answer =
            post(&gateway, &key, "/v1/chat/completions", &[], &body("/v1/chat/completions", model))
                .await;
        assert_eq!((answer.status, answer.header("x-rerouter-model")), (200, Some("org/deep:1")));
        assert_eq!(open.last().body, body("/v1/chat/completions", "org/deep:1").as_bytes());
    }
}

/// A client of HTTP/1.0 knows no chunks: the body ends with the connection.
#[tokio::test]
async fn a_client_of_http_1_0_reads_every_answer() {
    let (gateway, key, _open, _claude) =
        start(|received, n| match received.json()["stream"].as_bool() {
            Some(true) => then(begun(&received.target, 9), Step::Chunk(Vec::new())),
            _ => reply(received, n),
        })
        .await;
    for path in STREAMING {
        for text in [body(path, "auto"), streaming(path, "auto")] {
            let request = String::from_utf8(written(&gateway, &key, path, &text))
                .unwrap()
                .replacen("HTTP/1.1", "HTTP/1.0", 1);
            let mut connection = gateway.connect().await;
            let answer = connection.exchange(request.as_bytes()).await;
            assert_eq!(
                (answer.status, answer.whole, answer.header("transfer-encoding")),
                (200, true, None),
                "{path}: {}",
                answer.text()
            );
            match text.contains("stream") {
                true => assert_eq!(answer.text(), events(path).concat(), "{path}"),
                false => drop(answer.json()),
            }
            assert!(connection.is_closed().await);
        }
    }
}

#[tokio::test]
async fn over_http_2_too_each_end_is_told_in_the_words_of_its_endpoint() {
    let (gateway, key, _open, _claude) =
        start(|received, number| match received.json()["stream"].as_bool() {
            Some(true) => {
                let (path, count) = (received.target.as_str(), half(&received.target));
                let next = events(path).remove(count).into_bytes();
                let begins = Step::Chunk(next.split_at(next.len() / 2).0.to_vec());
                // A cut, or an end of the body.
                let end = if number % 2 == 0 { Step::Cut } else { Step::Chunk(Vec::new()) };
                then(then(begun(path, count), begins), end)
            }
            _ => vec![
                Step::Write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                content-length: 99\r\n\r\n{\"half\":"
                        .to_vec(),
                ),
                Step::Cut,
            ],
        })
        .await;
    let mut http2 = H2::open(gateway.tls()).await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    for path in STREAMING {
        let answer =
            http2.send("POST", path, &headers, streaming(path, "auto").as_bytes(), false).await;
        let last = answer.text().trim_end().rsplit("\n\n").next().unwrap().to_owned();
        assert!(
            answer.whole && answer.status == 200 && last.contains("broke off"),
            "{path}: {}",
            answer.text()
        );
        assert_eq!(answer.text().contains("event: error\n"), path != "/v1/chat/completions");
        // No SDK gets half an event.
        for event in answer.text().split_terminator("\n\n") {
            let data = event.split("data: ").nth(1).unwrap_or_else(|| panic!("{path}: {event:?}"));
            serde_json::from_str::<Value>(data).unwrap_or_else(|why| panic!("{why}: {event:?}"));
        }
    }
    for path in OPENAI.into_iter().chain(ANTHROPIC) {
        let answer = http2.send("POST", path, &headers, body(path, "auto").as_bytes(), false).await;
        assert!(
            answer.status == 502 || !answer.whole,
            "half a document is no answer: {path} {answer:?}"
        );
    }
    for path in ANTHROPIC {
        envelope::anthropic(
            &http2.send("POST", path, &headers, b"{", false).await,
            400,
            "invalid_request_error",
        );
        envelope::anthropic(
            &http2.send("GET", path, &headers, b"", false).await,
            405,
            "invalid_request_error",
        );
        envelope::anthropic(
            &http2.send("POST", path, &[], b"{}", true).await,
            401,
            "authentication_error",
        );
    }
    envelope::anthropic(
        &http2.send("POST", "/v1/messages/x", &headers, b"{}", false).await,
        404,
        "not_found_error",
    );
    let head = http2.send("HEAD", "/v1/messages", &headers, b"", false).await;
    assert_eq!((head.status, head.body.len()), (405, 0));
}

/// Each refusal that is told before or while a body comes.
#[tokio::test]
async fn early_refusals_of_messages_are_in_anthropic_s_words() {
    let (open, claude) = (Provider::start(reply).await, Provider::start(reply).await);
    let limits = "limits: { header_timeout: 1s, body_min_rate: 1KiB/s, request_body: 4KiB }";
    let gateway = Setup::new(&document(&open, &claude, "")).server(limits).start().await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    for path in ANTHROPIC {
        let host = gateway.host();
        let large = "x".repeat(70 << 10);
        let head = client::request(
            "POST",
            path,
            &host,
            &[("authorization", &bearer), ("x-large", &large)],
            Some(b"{}"),
        );
        let answer = gateway.connect().await.exchange(&head).await;
        envelope::anthropic(&answer, 431, "invalid_request_error");
        let strange = client::request(
            "POST",
            path,
            "elsewhere.example",
            &[("authorization", &bearer)],
            Some(b"{}"),
        );
        envelope::anthropic(
            &gateway.connect().await.exchange(&strange).await,
            421,
            "invalid_request_error",
        );
        let announced = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\n\
             content-length: 99999\r\n\r\n{{"
        );
        envelope::anthropic(
            &gateway.connect().await.exchange(announced.as_bytes()).await,
            413,
            "request_too_large",
        );
        let slow = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\n");
        envelope::anthropic(
            &gateway.connect().await.exchange(slow.as_bytes()).await,
            408,
            "invalid_request_error",
        );
        let chunk = format!("{slow}transfer-encoding: chunked\r\n\r\nzz\r\n");
        envelope::anthropic(
            &gateway.connect().await.exchange(chunk.as_bytes()).await,
            400,
            "invalid_request_error",
        );
    }
    assert_eq!((open.count(), claude.count()), (0, 0));
}

/// Legacy and new names of the same thing, roles and options that only the provider understands.
#[tokio::test]
async fn whatever_a_request_says_beside_what_is_read_reaches_the_provider() {
    let (gateway, key, open, _claude) = start(reply).await;
    let text = concat!(
        r#"{"model":"auto","messages":[{"role":"developer","content":"Be "#,
        r#"brief."},{"role":"function","name":"f","content":"x"},"#,
        r#"{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA==","#,
        r#""format":"wav"}}]}],"n":2,"logprobs":true,"#,
        r#""top_logprobs":5,"max_tokens":7,"max_completion_tokens":9,"functions":[],"#,
        r#""function_call":"none","seed":18446744073709551616,"#,
        r#""temperature":1.00000000000000000001,"response_format":{"type":"json_schema","#,
        r#""json_schema":{"name":"x","strict":true,"schema":{}}},"#,
        r#""logit_bias":{"50256":-100},"prediction":{"type":"content","content":"\u0041"},"#,
        r#""api_base":"http://evil.example","parallel_tool_calls":false}"#,
    );
    let answer = post(&gateway, &key, "/v1/chat/completions", &[], text).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(String::from_utf8_lossy(&open.last().body), text.replacen("\"auto\"", "\"gpt\"", 1));
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(capture["inputs"]["request"]["max_tokens"], 9);
}

/// Forms with files belong to endpoints that are not served: the answer names those that are, and
/// no provider is asked.
#[tokio::test]
async fn a_form_with_a_file_is_told_what_is_served() {
    let (gateway, key, open, claude) = start(reply).await;
    let bearer = format!("Bearer {}", key.secret);
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "multipart/form-data; boundary=x")];
    let form = b"--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nauto\r\n--x--\r\n";
    for path in ["/v1/audio/transcriptions", "/v1/files", "/v1/images/edits"] {
        let answer = gateway.send("POST", path, &headers, Some(form)).await;
        envelope::openai(&answer, 404, "invalid_request_error", None);
        for served in OPENAI {
            assert!(answer.text().contains(served), "{}", answer.text());
        }
    }
    envelope::openai(
        &gateway.send("POST", OPENAI[0], &headers, Some(form)).await,
        400,
        "invalid_request_error",
        None,
    );
    assert_eq!((open.count(), claude.count()), (0, 0));
}
