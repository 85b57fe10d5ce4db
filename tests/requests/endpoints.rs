//! Embeddings, responses, messages and counts of tokens: which provider gets what, in which words
//! each is refused, and that captures, reroutes, decisions, shadows and limits know them.

use serde_json::{Value, json};

use crate::support::client::{self, Answer};
use crate::support::documents::provider;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received};
use crate::support::{envelope, until};

pub(crate) const OPENAI: [&str; 3] = ["/v1/chat/completions", "/v1/embeddings", "/v1/responses"];
pub(crate) const ANTHROPIC: [&str; 2] = ["/v1/messages", "/v1/messages/count_tokens"];

/// A provider of Anthropic's protocol.
fn anthropic(name: &str, url: &str, api_key: &str) -> String {
    provider(name, url, api_key).replace("protocol: openai", "protocol: anthropic")
}

/// `auto` goes to `open`, then to `claude`, and with messages to `claude` alone.
pub(crate) fn document(open: &Provider, claude: &Provider, more: &str) -> String {
    // As it is usually written, without `/v1`.
    let root = claude.url().trim_end_matches("/v1").to_owned();
    format!(
        "providers:\n{}{}{more}recipes:\n  main:\n    \
         rules: [ {{ name: messages, when: \"endpoint.startsWith('messages')\", \
         targets: [ {{ target: claude/opus }} ] }}, \
         {{ name: default, targets: [ {{ target: open/gpt }}, \
         {{ target: claude/opus }} ] }} ]\n  openai:\n    \
         rules: [ {{ name: default, targets: [ {{ target: open/gpt }} ] }} ]\n\
         aliases: {{ auto: main, gpt: openai }}\n",
        provider("open", &open.url(), "sk-open-upstream"),
        anthropic("claude", &root, "sk-ant-upstream"),
    )
}

/// A request as each endpoint takes it; odd spacing, that has to survive.
pub(crate) fn body(path: &str, model: &str) -> String {
    let text = "Say  a word.";
    match path {
        "/v1/embeddings" => {
            format!(r#"{{ "input" : ["{text}"],"model":"{model}", "dimensions":8}}"#)
        }
        "/v1/responses" => format!(
            "{{ \"input\" : \"{text}\",\"model\":\"{model}\", \"max_output_tokens\":16, \
             \"temperature\":1.0e0}}"
        ),
        _ => format!(
            "{{ \"messages\" : [{{\"role\":\"user\",\"content\":\"{text}\"}}],\
             \"model\":\"{model}\", \"max_tokens\":16}}"
        ),
    }
}

/// An answer of each.
pub(crate) fn reply(received: &Received, _: usize) -> Vec<scripted::Step> {
    let body = match received.target.as_str() {
        "/v1/embeddings" => {
            json!({
                "object": "list", "data": [], "model": "gpt",
                "usage": {"prompt_tokens": 5, "total_tokens": 5}
            })
        }
        "/v1/responses" => {
            json!({"id": "resp_1", "object": "response", "status": "completed", "output": []})
        }
        "/v1/messages" => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "opus",
            "content": [{"type": "text", "text": "word"}],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": {"input_tokens": 9, "output_tokens": 2}}),
        "/v1/messages/count_tokens" => json!({"input_tokens": 9}),
        _ => scripted::completion_body("word"),
    };
    let own =
        if received.target.starts_with("/v1/messages") { "request-id" } else { "x-request-id" };
    let headers = [
        ("content-type", "application/json"),
        (own, "req_of_the_provider"),
        ("anthropic-ratelimit-requests-limit", "50"),
    ];
    scripted::answer(200, &headers, body.to_string().as_bytes())
}

pub(crate) async fn post(
    gateway: &Gateway,
    key: &Key,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let bearer = format!("Bearer {}", key.secret);
    let own = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let headers: Vec<(&str, &str)> = own.into_iter().chain(headers.iter().copied()).collect();
    gateway.send("POST", path, &headers, Some(body.as_bytes())).await
}

#[tokio::test]
async fn each_endpoint_goes_to_a_provider_that_has_it() {
    let (open, claude) = (Provider::start(reply).await, Provider::start(reply).await);
    let gateway = Gateway::start(&document(&open, &claude, "")).await;
    let key = gateway.create_key().await;
    for path in OPENAI.into_iter().chain(ANTHROPIC) {
        let ours = OPENAI.contains(&path);
        let (asked, model, name) =
            if ours { (&open, "gpt", "open") } else { (&claude, "opus", "claude") };
        let answer = post(&gateway, &key, path, &[], &body(path, "auto")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let received = asked.last();
        assert_eq!((received.method.as_str(), received.target.as_str()), ("POST", path));
        assert_eq!(
            String::from_utf8_lossy(&received.body),
            body(path, model),
            "only the model is another"
        );
        assert_eq!(
            (answer.header("x-rerouter-provider"), answer.header("x-rerouter-model")),
            (Some(name), Some(model))
        );
        assert_eq!(
            answer.header("x-rerouter-upstream-request-id"),
            Some("req_of_the_provider"),
            "{path}"
        );
        let request_id = answer.request_id();
        assert!(request_id.starts_with("req_") && request_id.len() == 30, "{request_id}");
        assert_eq!(
            answer.header_lines("request-id"),
            if ours { vec![] } else { vec![request_id.as_str()] },
            "{path}"
        );
    }
    assert_eq!((open.count(), claude.count()), (3, 2));

    // A provider's rates are the operator's; beside ours they would be taken for ours.
    let rates = async |key: &Key| {
        let answer = post(&gateway, key, "/v1/messages", &[], &body("/v1/messages", "auto")).await;
        ["x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"]
            .map(|name| answer.header(name).map(str::to_owned))
    };
    assert_eq!(rates(&key).await, [None, Some("50".to_owned())]);
    assert_eq!(
        rates(&gateway.limited_key(json!({"rpm": 7})).await).await,
        [Some("7".to_owned()), None]
    );
}

#[tokio::test]
async fn what_a_provider_sees_of_the_client() {
    let (open, claude) = (Provider::start(reply).await, Provider::start(reply).await);
    let document = document(&open, &claude, "")
        .replace(claude.url().trim_end_matches("/v1"), &format!("{}/", claude.url()));
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    let secret = key.secret.as_str();
    for (path, asked) in [("/v1/chat/completions", &open), ("/v1/messages", &claude)] {
        for own in ["authorization", "x-api-key", "api-key"] {
            let value =
                if own == "authorization" { format!("Bearer {secret}") } else { secret.to_owned() };
            let headers = [
                (own, value.as_str()),
                ("content-type", "application/json"),
                ("anthropic-version", "2024-01-01"),
                ("anthropic-beta", "one-2025-01-01,two-2025-01-01"),
                ("openai-beta", "assistants=v2"),
                ("openai-organization", "org-of-the-client"),
                ("cookie", "theme=dark"),
                ("x-forwarded-for", "203.0.113.9"),
                ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
                ("x-rerouter-capture", "off"),
                ("x-request-id", "the client's own"),
            ];
            let answer =
                gateway.send("POST", path, &headers, Some(body(path, "auto").as_bytes())).await;
            assert_eq!(answer.status, 200, "{path} {own}: {}", answer.text());
            let received = asked.last();
            assert_eq!(received.target, path, "a base that ends in /v1 is not doubled");
            let mut names: Vec<&str> =
                received.headers.iter().map(|(name, _)| name.as_str()).collect();
            names.sort_unstable();
            let credential = if path == "/v1/messages" { "x-api-key" } else { "authorization" };
            let mut expected = [
                "accept",
                "accept-encoding",
                "anthropic-beta",
                "anthropic-version",
                "content-length",
                "content-type",
                "host",
                "openai-beta",
                "user-agent",
                credential,
            ];
            expected.sort_unstable();
            assert_eq!(names, expected, "{path} {own}");
            let upstream =
                if path == "/v1/messages" { "sk-ant-upstream" } else { "Bearer sk-open-upstream" };
            assert_eq!(received.header(credential).as_deref(), Some(upstream));
            assert_eq!(received.header("anthropic-version").as_deref(), Some("2024-01-01"));
            assert_eq!(
                received.header("anthropic-beta").as_deref(),
                Some("one-2025-01-01,two-2025-01-01")
            );
        }
    }
    post(&gateway, &key, "/v1/messages", &[], &body("/v1/messages", "auto")).await;
    assert_eq!(
        claude.last().header("anthropic-version").as_deref(),
        Some("2023-06-01"),
        "where the client names none"
    );
}

#[tokio::test]
async fn an_endpoint_that_no_target_has_is_refused_by_name() {
    let (open, claude) = (Provider::start(reply).await, Provider::start(reply).await);
    let gateway = Gateway::start(&document(&open, &claude, "")).await;
    let key = gateway.create_key().await;
    let path = "/v1/embeddings";
    let refused = post(&gateway, &key, path, &[], &body(path, "claude/opus")).await;
    envelope::openai(&refused, 400, "invalid_request_error", Some("unsupported_feature"));
    assert!(refused.text().contains("claude/opus: endpoint"), "{}", refused.text());
    assert_eq!((open.count(), claude.count()), (0, 0));
}

#[tokio::test]
async fn each_refusal_of_messages_is_in_anthropic_s_words() {
    let open = Provider::start(reply).await;
    let claude = Provider::start(|received, _| match received.json()["model"].as_str().unwrap() {
        "limited" | "limited-too" => scripted::answer(
            429,
            &[("content-type", "application/json"), ("retry-after", "7")],
            br#"{"type":"error","error":{"type":"rate_limit_error","message":"Theirs."}}"#,
        ),
        "refused" => scripted::answer(
            400,
            &[("content-type", "application/json")],
            br#"{"type":"error","error":{"type":"invalid_request_error","message":"Theirs."}}"#,
        ),
        "ours" => scripted::answer(
            401,
            &[("content-type", "application/json")],
            b"{\"type\":\"error\",\"error\":\
             {\"type\":\"authentication_error\",\"message\":\"sk-ant-upstream\"}}",
        ),
        "overloaded" => scripted::answer(
            529,
            &[("content-type", "application/json")],
            br#"{"type":"error","error":{"type":"overloaded_error","message":"Theirs."}}"#,
        ),
        _ => vec![scripted::Step::Cut],
    })
    .await;
    let models = "models: { claude/limited: {}, claude/limited-too: {}, claude/refused: {}, \
        claude/ours: {}, claude/overloaded: {}, claude/small: { context: 10 } }\n";
    let gateway = Setup::new(
        &document(&open, &claude, "").replace("recipes:\n", &format!("{models}recipes:\n")),
    )
    .server("limits: { request_body: 4KiB }")
    .start()
    .await;
    let key = gateway.create_key().await;
    for path in ANTHROPIC {
        let send = async |headers: &[(&str, &str)], text: &str| {
            post(&gateway, &key, path, headers, text).await
        };
        envelope::anthropic(
            &gateway.send("POST", path, &[], Some(b"{}")).await,
            401,
            "authentication_error",
        );
        envelope::anthropic(
            &gateway.manage("GET", path, &key.secret, None).await,
            405,
            "invalid_request_error",
        );
        envelope::anthropic(&send(&[], "{").await, 400, "invalid_request_error");
        envelope::anthropic(&send(&[], &body(path, "nobody")).await, 404, "not_found_error");
        // Every prompt can be counted.
        if path == "/v1/messages" {
            let long = body(path, "claude/small").replace("word", &"word ".repeat(20));
            envelope::anthropic(&send(&[], &long).await, 400, "invalid_request_error");
        }
        envelope::anthropic(&send(&[], &" ".repeat(5000)).await, 413, "request_too_large");
        envelope::anthropic(
            &send(&[("content-encoding", "x-unknown")], &body(path, "auto")).await,
            415,
            "invalid_request_error",
        );
        envelope::anthropic(
            &send(&[("x-api-key", "a"), ("x-api-key", "a")], &body(path, "auto")).await,
            400,
            "invalid_request_error",
        );
        // What a provider says goes through as it is.
        // One for each path: a target rests for both.
        let limited = if path == "/v1/messages" { "limited" } else { "limited-too" };
        for (model, status, kind) in [
            (limited, 429, "rate_limit_error"),
            ("refused", 400, "invalid_request_error"),
            ("overloaded", 529, "overloaded_error"),
        ] {
            let answer = send(&[], &body(path, &format!("claude/{model}"))).await;
            assert_eq!(
                (answer.status, answer.json()["error"].clone()),
                (status, json!({"type": kind, "message": "Theirs."}))
            );
            if model == limited {
                assert_eq!(answer.header("retry-after"), Some("7"));
                // Then it is ours to say so.
                envelope::anthropic(
                    &send(&[], &body(path, &format!("claude/{model}"))).await,
                    429,
                    "rate_limit_error",
                );
            }
        }
        let ours = send(&[], &body(path, "claude/ours")).await;
        envelope::anthropic(&ours, 502, "api_error");
        assert!(!ours.text().contains("sk-ant"), "{}", ours.text());
    }
    envelope::anthropic(
        &gateway.manage("POST", "/v1/messages/batches", &key.secret, Some(&json!({}))).await,
        404,
        "not_found_error",
    );
    // Before any path is read, the request line alone says in which words.
    let mut connection = gateway.connect().await;
    let broken =
        connection.exchange(b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n").await;
    envelope::anthropic(&broken, 400, "invalid_request_error");
    let unkeyed = client::request("POST", "/v1/messages", "other.example", &[], Some(b"{}"));
    assert_eq!(gateway.connect().await.exchange(&unkeyed).await.json()["type"], "error");
}

#[tokio::test]
async fn the_credential_of_an_mcp_server_goes_to_the_provider_and_into_no_capture() {
    let (open, claude) = (Provider::start(reply).await, Provider::start(reply).await);
    let gateway = Gateway::start(&document(&open, &claude, "")).await;
    let key = gateway.create_key().await;
    let servers = concat!(
        r#"{"mcp_servers":[{"type":"url","name":"wiki","#,
        r#""authorization_token":"canary-of-the-client"}],"#,
    );
    let answer = post(
        &gateway,
        &key,
        "/v1/messages",
        &[],
        &body("/v1/messages", "auto").replacen('{', servers, 1),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(String::from_utf8_lossy(&claude.last().body).contains("canary-of-the-client"));
    let capture = gateway.capture(&answer.request_id()).await;
    assert!(capture["redacted"] == true && !capture.to_string().contains("canary"), "{capture}");
    let rerouted = gateway.reroute(&answer.request_id(), &key.secret).await;
    envelope::management(&rerouted, 409, "redacted");
}

#[tokio::test]
async fn a_provider_of_anthropic_s_is_asked_how_it_is_in_its_words() {
    let (open, claude) = (
        Provider::start(reply).await,
        Provider::always(scripted::json_answer(200, &json!({"data": []}))).await,
    );
    let checked = document(&open, &claude, "").replace(
        "protocol: anthropic\n",
        "protocol: anthropic\n    health: { path: /v1/models, interval: 1s }\n",
    );
    let _gateway = Gateway::start(&checked).await;
    let asked =
        until("a health check", async || (claude.count() > 0).then(|| claude.request(0))).await;
    assert_eq!((asked.method.as_str(), asked.target.as_str()), ("GET", "/v1/models"));
    let sent = ["x-api-key", "anthropic-version", "authorization"].map(|name| asked.header(name));
    assert_eq!(sent, [Some("sk-ant-upstream".to_owned()), Some("2023-06-01".to_owned()), None]);
}

const MOCK: &str = "providers:\n  demo: { protocol: mock }\nmodels:\n  \
    demo/priced: { input_per_mtok: 1 }\nrecipes:\n  main:\n    rules:\n      \
    - { name: vectors, when: \"endpoint == 'embeddings'\", \
    targets: [ { target: demo/vectors } ] }\n      \
    - { name: counts, when: \"endpoint == 'messages.count_tokens'\", \
    targets: [ { target: demo/counts } ] }\n      \
    - { name: default, targets: [ { target: demo/echo } ] }\n    SHADOW\n\
    aliases: { auto: main }\n";

#[tokio::test]
async fn captures_reroutes_and_decisions_know_each_endpoint() {
    let gateway = Gateway::start(&MOCK.replace("SHADOW", "")).await;
    let key = gateway.create_key().await;
    let words =
        ["chat.completions", "embeddings", "responses", "messages", "messages.count_tokens"];
    for (path, word) in OPENAI.into_iter().chain(ANTHROPIC).zip(words) {
        let answer = post(&gateway, &key, path, &[], &body(path, "auto")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let capture = gateway.capture(&answer.request_id()).await;
        assert_eq!(
            (&capture["endpoint"], &capture["inputs"]["request"]["endpoint"]),
            (&json!(word), &json!(word))
        );
        assert_eq!(
            (&capture["state"], &capture["request"]["body"]),
            (&json!("completed"), &json!(body(path, "auto")))
        );
        assert_eq!(capture["response"]["body"].as_str().unwrap(), answer.text());

        let decided = gateway
            .manage(
                "POST",
                &format!("/v1/router/decide?endpoint={word}"),
                &key.secret,
                Some(&serde_json::from_str(&body(path, "auto")).unwrap()),
            )
            .await;
        assert_eq!(
            (decided.status, &decided.json()["rule"]),
            (200, &capture["decision"]["rule"]),
            "{path}"
        );

        let target = format!("/v1/router/replay/{}/reroute", answer.request_id());
        let rerouted = gateway.manage("POST", &target, &key.secret, None).await;
        assert_eq!(rerouted.status, 200, "{path}: {}", rerouted.text());
        let rerouted = rerouted.json();
        let (own, response) = (answer.json(), &rerouted["response"]);
        match word {
            "chat.completions" => {
                assert_eq!((response, rerouted.get("response_kind")), (&own, None))
            }
            "messages" => {
                let choice = json!({
                    "index": 0, "finish_reason": "stop", "logprobs": null,
                    "message": {
                        "role": "assistant", "content": "Say  a word.", "refusal": null
                    },
                });
                assert_eq!(
                    (&response["object"], &response["choices"][0], &response["id"]),
                    (&json!("chat.completion"), &choice, &own["id"])
                );
                assert_eq!(
                    (&response["usage"]["prompt_tokens"], rerouted.get("response_kind")),
                    (&own["usage"]["input_tokens"], None)
                );
            }
            _ => assert_eq!((response, &rerouted["response_kind"]), (&own, &json!(word))),
        }
        let new = gateway.capture(rerouted["new_id"].as_str().unwrap()).await;
        assert_eq!(
            (&new["endpoint"], &new["decision"]["rule"]),
            (&json!(word), &capture["decision"]["rule"])
        );
        let dry = gateway
            .manage("POST", &format!("{target}?dry_run=true"), &key.secret, None)
            .await
            .json();
        assert_eq!(
            (&dry["new_id"], &dry["decision"]["rule"]),
            (&Value::Null, &capture["decision"]["rule"])
        );
    }
    // A stream that was captured is asked for again in one piece.
    for path in ["/v1/responses", "/v1/messages"] {
        let streaming = body(path, "auto").replacen('{', r#"{"stream":true,"#, 1);
        let answer = post(&gateway, &key, path, &[], &streaming).await;
        assert_eq!(answer.header("content-type"), Some("text/event-stream"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        gateway.capture(&answer.request_id()).await;
        let rerouted = gateway.reroute(&answer.request_id(), &key.secret).await;
        let response = rerouted.json()["response"].clone();
        let said = if path == "/v1/messages" {
            "/choices/0/message/content"
        } else {
            "/output/0/content/0/text"
        };
        assert_eq!(
            (rerouted.status, response.pointer(said)),
            (200, Some(&json!("Say  a word."))),
            "{path}: {response}"
        );
    }
    let unknown = gateway
        .manage(
            "POST",
            "/v1/router/decide?endpoint=audio",
            &key.secret,
            Some(&json!({"model": "auto"})),
        )
        .await;
    envelope::management(&unknown, 400, "invalid_request");
}

#[tokio::test]
async fn shadows_copy_each_endpoint() {
    let shadowed = |target: &str| {
        MOCK.replace("SHADOW", &format!("shadow: {{ target: {target}, percent: 100 }}"))
    };
    let gateway = Gateway::start(&shadowed("demo/other")).await;
    let key = gateway.create_key().await;
    let has_shadow = async |path: &str| {
        let live = post(&gateway, &key, path, &[], &body(path, "auto")).await.request_id();
        let found = until("the shadow", async || {
            let list = gateway
                .manage("GET", &format!("/v1/router/replay?shadow_of={live}"), &key.secret, None)
                .await
                .json();
            list["data"].as_array().unwrap().first().cloned()
        })
        .await;
        assert_eq!(
            (&found["state"], &found["served"]["model"]),
            (&json!("completed"), &json!("other")),
            "{path}: {found}"
        );
    };
    let [messages, counts] = ANTHROPIC;
    for path in OPENAI.into_iter().chain([messages]) {
        has_shadow(path).await;
    }
    // The gateway estimates for the mock: nobody else counts.
    let claude = Provider::start(reply).await;
    let provider = anthropic("claude", &claude.url(), "sk-ant-upstream");
    let document = shadowed("claude/other").replacen("models:", &format!("{provider}models:"), 1);
    gateway.write_routing(&document).await;
    has_shadow(counts).await;
    assert_eq!(claude.last().target, "/v1/messages/count_tokens");
}

fn remaining(answer: &Answer, of: &str) -> Option<u64> {
    answer.header(&format!("x-ratelimit-remaining-{of}")).map(|text| text.parse().unwrap())
}

#[tokio::test]
async fn embeddings_reserve_their_prompt_and_counts_a_request_only() {
    let gateway = Gateway::start(&MOCK.replace("SHADOW", "")).await;
    let key = gateway.limited_key(json!({"tpm": 1000, "rpm": 100})).await;
    // An answer of unknown length would be reserved at 1,024 tokens.
    let count = post(
        &gateway,
        &key,
        "/v1/messages/count_tokens",
        &[],
        &body("/v1/messages/count_tokens", "auto"),
    )
    .await;
    assert_eq!(
        (count.status, remaining(&count, "tokens"), remaining(&count, "requests")),
        (200, Some(1000), Some(99)),
        "{}",
        count.text()
    );
    let vectors =
        post(&gateway, &key, "/v1/embeddings", &[], &body("/v1/embeddings", "auto")).await;
    let left = remaining(&vectors, "tokens").unwrap();
    assert_eq!(vectors.status, 200, "{}", vectors.text());
    assert!((980..1000).contains(&left), "{left}");
    let chat =
        post(&gateway, &key, "/v1/chat/completions", &[], r#"{"model":"auto","messages":[]}"#)
            .await;
    envelope::openai(&chat, 429, "rate_limit_error", Some("rate_limit_exceeded"));

    // A price of what is never generated is not asked for; nothing is paid for a count.
    let key = gateway.limited_key(json!({"budget": {"usd": 1, "per": "day"}})).await;
    for (path, status) in
        [("/v1/embeddings", 200), ("/v1/messages/count_tokens", 200), ("/v1/chat/completions", 403)]
    {
        let answer = post(&gateway, &key, path, &[], &body(path, "demo/priced")).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        if path == "/v1/embeddings" {
            let capture = gateway.capture(&answer.request_id()).await;
            let tokens = answer.json()["usage"]["total_tokens"].as_u64().unwrap();
            assert_eq!(capture["usage"]["total_tokens"], tokens);
            assert!(
                (capture["cost_usd"].as_f64().unwrap() - tokens as f64 / 1e6).abs() < 1e-12,
                "{}",
                capture["cost_usd"]
            );
        }
    }
    assert_eq!(
        post(
            &gateway,
            &key,
            "/v1/messages/count_tokens",
            &[],
            &body("/v1/messages/count_tokens", "demo/echo")
        )
        .await
        .status,
        200
    );
}

#[tokio::test]
async fn the_cheapest_target_of_embeddings_is_found_by_the_price_of_prompts() {
    let prices = "models:\n  demo/dear: { input_per_mtok: 2 }\n  \
        demo/cheap: { input_per_mtok: 1 }\n  \
        demo/chat: { input_per_mtok: 9, output_per_mtok: 9 }\n";
    let targets = "{ target: demo/dear }, { target: demo/chat }, { target: demo/cheap }";
    let document = format!(
        "providers:\n  demo: {{ protocol: mock }}\n{prices}recipes:\n  main:\n    \
         rules: [ {{ name: only, strategy: cheapest, targets: [ {targets} ] }} ]\n\
         aliases: {{ auto: main }}\n"
    );
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    for (path, word, models) in [
        ("/v1/embeddings", "embeddings", ["cheap", "dear", "chat"]),
        // Without a price of answers nobody knows what these cost.
        ("/v1/responses", "responses", ["chat", "dear", "cheap"]),
    ] {
        let asked: Value = serde_json::from_str(&body(path, "auto")).unwrap();
        let decided = gateway
            .manage(
                "POST",
                &format!("/v1/router/decide?endpoint={word}"),
                &key.secret,
                Some(&asked),
            )
            .await
            .json();
        let plan: Vec<&str> = decided["plan"]
            .as_array()
            .unwrap()
            .iter()
            .map(|choice| choice["model"].as_str().unwrap())
            .collect();
        assert_eq!(plan, models, "{decided}");
    }
}

#[tokio::test]
async fn streams_fail_over_before_the_first_word_and_break_off_in_their_own_words() {
    let prices =
        "models:\n  demo/echo: { input_per_mtok: 1, output_per_mtok: 1 }\n  demo/cut: {}\n";
    let targets = "{ target: demo/in-band-error }, { target: demo/echo }";
    let document = format!(
        "providers:\n  demo: {{ protocol: mock }}\n{prices}recipes:\n  main:\n    \
         rules: [ {{ name: only, targets: [ {targets} ] }} ]\naliases: {{ auto: main }}\n"
    );
    let gateway = Gateway::start(&document).await;
    let key = gateway.create_key().await;
    for (path, end, error) in [
        ("/v1/responses", "response.completed", r#""type":"error""#),
        ("/v1/messages", "message_stop", r#"{"type":"error","error":{"type":"api_error""#),
    ] {
        let streaming = |model: &str| body(path, model).replacen('{', r#"{"stream":true,"#, 1);
        let answer = post(&gateway, &key, path, &[], &streaming("auto")).await;
        assert_eq!(
            (
                answer.status,
                answer.header("x-rerouter-model"),
                answer.header("x-rerouter-attempts")
            ),
            (200, Some("echo"), Some("2"))
        );
        assert!(
            answer.whole && answer.text().contains(end) && !answer.text().contains("told to fail"),
            "{}",
            answer.text()
        );
        let capture = gateway.capture(&answer.request_id()).await;
        assert_eq!(
            (&capture["state"], &capture["usage"]["estimated"]),
            (&json!("completed"), &json!(false)),
            "{path}"
        );
        assert!(
            capture["cost_usd"].as_f64().is_some_and(|cost| cost > 0.0),
            "{path}: {}",
            capture["usage"]
        );
        let assembled = &capture["response"]["assembled"];
        let said =
            if path == "/v1/messages" { "/content/0/text" } else { "/output/0/content/0/text" };
        assert_eq!(assembled.pointer(said), Some(&json!("Say  a word.")), "{assembled}");

        let cut = post(&gateway, &key, path, &[], &streaming("demo/cut")).await;
        let text = cut.text();
        let last = text.rsplit_once("event: error\ndata: ").map_or("", |(_, last)| last);
        assert!(cut.whole && last.contains(error), "{path}: {text}");
        assert_eq!(last.contains("event: response.failed"), path == "/v1/responses", "{text}");
        assert!(!cut.text().contains(end));
        assert_eq!(gateway.capture(&cut.request_id()).await["state"], "failed");
    }
}
