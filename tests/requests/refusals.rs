//! Each refusal: status, exact envelope, the connection closed where framing is in doubt and kept
//! where it is not.

use serde_json::{Value, json};

use crate::support::client::{self, Answer, Connection};
use crate::support::documents::{chat_body, in_order};
use crate::support::envelope;
use crate::support::frames::{self, Frames};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};

const AGENT_KEY: &str = "agent-cloud-canary-0123456789abcdef";

async fn gateway() -> (Gateway, Provider) {
    let a = Provider::always(scripted::completion("hello")).await;
    (Gateway::start(&in_order(&[("a", &a.url())], "")).await, a)
}

/// A raw request: `HOST` and `KEY` stand for the gateway's own.
fn raw(text: &str, gateway: &Gateway, key: &str) -> Vec<u8> {
    text.replace("HOST", &gateway.host()).replace("KEY", key).into_bytes()
}

async fn check_closed(connection: &mut Connection, what: &str) {
    assert!(connection.is_closed().await, "the connection stays open after {what}");
}

#[tokio::test]
async fn doubtful_framing_is_400_in_the_envelope_of_the_path_and_closes() {
    let (gateway, a) = gateway().await;
    let key = gateway.create_key().await;
    let bodies = [
        "content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: identity\r\n\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "content-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        "content-length: 5, 6\r\n\r\nabcdef",
        "content-length: 5, 5\r\n\r\nabcde",
        "content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        "content_length: 2\r\n\r\n{}",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
        "content-length: +5\r\n\r\nabcde",
        "content-length: -5\r\n\r\nabcde",
        "content-length: 0x5\r\n\r\nabcde",
        "x-folded: one\r\n two\r\ncontent-length: 2\r\n\r\n{}",
        "x-space : one\r\ncontent-length: 2\r\n\r\n{}",
        "x-nul: a\0b\r\ncontent-length: 2\r\n\r\n{}",
        "host: other.example\r\ncontent-length: 2\r\n\r\n{}",
        "connection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ];
    for rest in bodies {
        for path in ["/v1/chat/completions", "/v1/router/keys", "/v1/agents", "/v1/messages"] {
            let text = format!(
                "POST {path} HTTP/1.1\r\nhost: HOST\r\nauthorization: Bearer KEY\r\n{rest}"
            );
            let mut connection = gateway.connect().await;
            let answer = connection.exchange(&raw(&text, &gateway, &key.secret)).await;
            check_400(path, &answer);
            check_closed(&mut connection, rest).await;
        }
    }
    let heads = [
        "POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer KEY\r\ncontent-length: 2\r\n\
         \r\n{}",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a/path\r\ncontent-length: 2\r\n\r\n{}",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: user@HOST\r\ncontent-length: 2\r\n\r\n{}",
        "POST /v1/chat/completions HTTP/1.1\r\nhost: \r\ncontent-length: 2\r\n\r\n{}",
        "POST /v1/chat/completions HTTP/1.0\r\nhost: HOST\r\ntransfer-encoding: chunked\r\n\r\n\
         0\r\n\r\n",
        "POST http://other.example/v1/chat/completions HTTP/1.1\r\nhost: HOST\r\n\
         content-length: 2\r\n\r\n{}",
    ];
    for text in heads {
        let mut connection = gateway.connect().await;
        check_400(
            "/v1/chat/completions",
            &connection.exchange(&raw(text, &gateway, &key.secret)).await,
        );
        check_closed(&mut connection, text).await;
    }
    assert_eq!(a.count(), 0);
}

fn check_400(path: &str, answer: &Answer) {
    match path {
        "/v1/chat/completions" => envelope::openai(answer, 400, "invalid_request_error", None),
        "/v1/agents" => envelope::agent(answer, 400, "Bad Request"),
        "/v1/messages" => envelope::anthropic(answer, 400, "invalid_request_error"),
        _ => envelope::management(answer, 400, "invalid_request"),
    }
}

#[tokio::test]
async fn a_bad_chunk_is_400_and_closes() {
    let (gateway, a) = gateway().await;
    let key = gateway.create_key().await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: HOST\r\nauthorization: Bearer KEY\r\n\
        transfer-encoding: chunked\r\n\r\n";
    for chunks in [
        "zz\r\nab\r\n0\r\n\r\n",
        "0x2\r\n{}\r\n0\r\n\r\n",
        "2\r\n{}xx\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "fffffffffffffffff\r\n{}",
    ] {
        let mut connection = gateway.connect().await;
        let answer =
            connection.exchange(&raw(&format!("{head}{chunks}"), &gateway, &key.secret)).await;
        envelope::openai(&answer, 400, "invalid_request_error", None);
        check_closed(&mut connection, chunks).await;
    }
    assert_eq!(a.count(), 0);
}

#[tokio::test]
async fn a_line_feed_without_its_carriage_return_is_400_and_closes() {
    let (gateway, a) = gateway().await;
    let key = gateway.create_key().await;
    let line = "POST /v1/chat/completions HTTP/1.1\r\n";
    let headers = "host: HOST\r\nauthorization: Bearer KEY\r\n";
    let body = chat_body("auto", false);
    let length = format!("content-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("{line}{headers}transfer-encoding: chunked\r\n\r\n");
    let (size, rest) = (format!("{:x}", body.len()), "0\r\n\r\n");
    let cases = [
        format!("{}{headers}{length}", line.replace("\r\n", "\n")),
        format!("{line}{}{length}", headers.replace("\r\n", "\n")),
        format!("{line}{}{length}", headers.replacen("\r\n", "\n", 1)),
        format!("{line}{headers}{}", length.replacen("\r\n", "\n", 1)),
        format!("{line}{headers}{}", length.replacen("\r\n\r\n", "\r\n\n", 1)),
        format!("{line}{headers}{}", length.replacen("\r\n\r\n", "\n\n", 1)),
        format!("{line}{headers}{length}").replacen("\r\n", "\n", 5),
        format!("{line}{headers}x: a\nb: c\r\n{length}"),
        format!("{line}{headers}x: a\rb: c\r\n{length}"),
        format!("{chunked}{size};\nfoo\r\n{body}\r\n{rest}"),
        format!("{chunked}{size};a=\rb\r\n{body}\r\n{rest}"),
        format!("{chunked}{size}\n{body}\r\n{rest}"),
        format!("{chunked}{size}\r\n{body}\n{rest}"),
        format!("{chunked}{size}\r\n{body}\r\n0;\nfoo\r\n\r\n"),
        format!("{chunked}{size}\r\n{body}\r\n0\r\nx: y\n\r\n"),
    ];
    for case in cases {
        let bytes = raw(&case, &gateway, &key.secret);
        // In one piece, and byte by byte.
        for size in [bytes.len(), 1] {
            let mut connection = gateway.connect().await;
            for piece in bytes.chunks(size).take(bytes.len().div_ceil(size) - 1) {
                if !connection.try_send(piece).await {
                    break;
                }
            }
            let last = bytes.chunks(size).next_back().unwrap();
            let answer = connection
                .try_exchange(last)
                .await
                .unwrap_or_else(|| panic!("no answer to {case:?}"));
            envelope::openai(&answer, 400, "invalid_request_error", None);
            check_closed(&mut connection, &case).await;
        }
    }
    // What is refused there is not refused in its proper form.
    for case in [
        format!("\r\n{line}{headers}{length}"),
        format!("{chunked}{size};foo\r\n{body}\r\n{rest}"),
        format!("{chunked}{size};a=b;c=\"d\"\r\n{body}\r\n0;e\r\nx: y\r\n\r\n"),
    ] {
        let mut connection = gateway.connect().await;
        for _ in 0..2 {
            assert_eq!(
                connection.exchange(&raw(&case, &gateway, &key.secret)).await.status,
                200,
                "{case:?}"
            );
        }
    }
    assert_eq!(a.count(), 6);
}

#[tokio::test]
async fn an_expectation_that_is_not_known_is_400() {
    let (gateway, a) = gateway().await;
    let key = gateway.create_key().await;
    for expectations in [
        "expect: foo\r\n",
        "expect: 200-maybe\r\n",
        "expect: 100-continue\r\nexpect: foo\r\n",
        "expect: foo\r\nexpect: 100-continue\r\n",
    ] {
        let text = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: HOST\r\nauthorization: Bearer KEY\r\n\
             {expectations}content-length: 2\r\n\r\n{{}}"
        );
        let mut connection = gateway.connect().await;
        let answer = connection.exchange(&raw(&text, &gateway, &key.secret)).await;
        envelope::openai(&answer, 400, "invalid_request_error", None);
        check_closed(&mut connection, expectations).await;
    }
    assert_eq!(a.count(), 0);
}

/// What a client library would not send: each of these heads is answered on its stream, and the
/// connection goes on.
#[tokio::test]
async fn over_http2_a_bad_head_has_its_envelope_too() {
    let a = Provider::always(scripted::completion("hello")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], "")).tls().start().await;
    let (address, tls) = gateway.tls();
    let ours = format!("localhost:{}", address.port());
    let mut connection =
        Frames::open(tls.dial(address, b"h2").await.expect("a handshake"), &[]).await;
    let long = "x".repeat(70 << 10);
    let get = [(":method", "GET"), (":scheme", "https")];
    let (path, authority) = ((":path", "/v1/models"), (":authority", ours.as_str()));
    let user = format!("user@{ours}");
    let cases: &[(&[(&str, &str)], u16)] = &[
        (&[path], 400),
        (&[path, (":authority", &user)], 400),
        (&[path, ("host", &user)], 400),
        (&[path, authority, ("host", "other.example")], 400),
        (&[path, authority, ("host", &ours), ("host", &ours)], 400),
        (&[path, ("host", &ours), ("host", "other.example")], 400),
        (&[path, authority, ("x-long", &long)], 431),
        (&[path, authority, ("content-length", "0"), ("content-length", "0")], 400),
    ];
    let mut stream = 1;
    for (fields, status) in cases {
        let fields: Vec<(&str, &str)> = get.iter().chain(*fields).copied().collect();
        let shown = format!("{:?}", &fields[2..]);
        assert!(connection.send(&frames::request(stream, &fields)).await);
        let ended =
            connection.ended(stream).await.unwrap_or_else(|| panic!("closed after {:.200}", shown));
        assert_eq!(ended.status, Some(*status), "{shown:.200}");
        let body: Value = serde_json::from_slice(&ended.body)
            .unwrap_or_else(|error| panic!("{error} for {shown:.200}"));
        assert_eq!(body["error"]["type"], "invalid_request_error", "{shown:.200}: {body}");
        stream += 2;
    }
    let good: Vec<(&str, &str)> =
        get.iter().chain(&[(":path", "/health"), authority, ("host", &ours)]).copied().collect();
    assert!(connection.send(&frames::request(stream, &good)).await);
    assert_eq!(connection.ended(stream).await.and_then(|ended| ended.status), Some(200));
}

#[tokio::test]
async fn what_is_not_http_is_400_or_closed() {
    let (gateway, _a) = gateway().await;
    for text in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET /health HTTP/9.9\r\nhost: HOST\r\n\r\n",
        "G ET /health HTTP/1.1\r\nhost: HOST\r\n\r\n",
    ] {
        let mut connection = gateway.connect().await;
        if let Some(answer) = connection.try_exchange(&raw(text, &gateway, "")).await {
            assert_eq!(answer.status, 400, "{text:?}");
        }
        check_closed(&mut connection, text).await;
    }
    let mut connection = gateway.connect().await;
    let answer = connection
        .exchange(b"CONNECT other.example:443 HTTP/1.1\r\nhost: other.example:443\r\n\r\n")
        .await;
    assert!(matches!(answer.status, 400 | 405), "{}", answer.status);
    check_closed(&mut connection, "CONNECT").await;
}

#[tokio::test]
async fn a_head_over_the_limits_is_431_and_closes() {
    let (gateway, _a) = gateway().await;
    let long = "x".repeat(70 << 10);
    let many: String = (0..200).map(|n| format!("x-{n}: 1\r\n")).collect();
    for (text, statuses) in [
        (format!("GET /v1/models HTTP/1.1\r\nhost: HOST\r\nx-long: {long}\r\n\r\n"), &[431][..]),
        (format!("GET /v1/models HTTP/1.1\r\nhost: HOST\r\n{many}\r\n"), &[431]),
        (
            format!("GET /v1/models?{} HTTP/1.1\r\nhost: HOST\r\n\r\n", &long[..10 << 10]),
            &[400, 414, 431],
        ),
    ] {
        let mut connection = gateway.connect().await;
        let answer = connection.exchange(&raw(&text, &gateway, "")).await;
        assert!(statuses.contains(&answer.status), "{} for {}", answer.status, &text[..60]);
        if answer.status == 431 {
            envelope::openai(&answer, 431, "invalid_request_error", Some("headers_too_large"));
        }
        check_closed(&mut connection, &text[..60]).await;
    }
}

#[tokio::test]
async fn a_slow_head_is_cut_off() {
    let a = Provider::always(scripted::completion("hello")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], ""))
        .server("limits: { header_timeout: 300ms }")
        .start()
        .await;
    for start in ["GET /health HTTP/1.1\r\nhost: HO", "GET /hea"] {
        let mut connection = gateway.connect().await;
        let warm = connection
            .exchange(&client::request("GET", "/health", &gateway.host(), &[], None))
            .await;
        assert_eq!(warm.status, 200);
        // On a kept connection, then on a fresh one.
        for mut connection in [connection, gateway.connect().await] {
            connection.send(start.as_bytes()).await;
            if let Some(answer) = connection.answer().await {
                assert_eq!(answer.status, 408, "{}", answer.text());
            }
            check_closed(&mut connection, start).await;
        }
    }
}

#[tokio::test]
async fn what_is_open_answers_without_a_credential() {
    let (gateway, _a) = gateway().await;
    let health = gateway.send("GET", "/health", &[("authorization", "Bearer wrong")], None).await;
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("ok")));
    let version = gateway.send("GET", "/version", &[], None).await.json();
    assert_eq!(
        (&version["name"], &version["api"]),
        (&json!("rerouter"), &json!(["v1"])),
        "{version}"
    );
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let agents = gateway.send("GET", "/v1/agents", &[], None).await;
    assert_eq!(
        (agents.status, agents.json()),
        (200, json!({"object": "list", "data": [], "has_more": false, "next": null}))
    );
    assert_eq!(
        gateway
            .send("GET", "/v1/agents", &[("authorization", "Bearer anything")], None)
            .await
            .status,
        200,
        "no credential is looked at"
    );
    envelope::agent(&gateway.send("GET", "/v1/agents/nothing", &[], None).await, 404, "Not Found");
    envelope::management(&gateway.send("GET", "/nothing", &[], None).await, 404, "not_found");
    assert_eq!(gateway.metric("rerouter_agent_open", &[]).await, 1.0);
}

#[tokio::test]
async fn agents_when_enforced_take_both_schemes() {
    let a = Provider::always(scripted::completion("hello")).await;
    let gateway = Setup::new(&in_order(&[("a", &a.url())], ""))
        .env("AGENT_CLOUD_API_KEY", AGENT_KEY)
        .start()
        .await;
    for (value, status) in [
        (format!("Bearer {AGENT_KEY}"), 200),
        (format!("ApiKey {AGENT_KEY}"), 200),
        (format!("apikey {AGENT_KEY}"), 200),
        (format!("Basic {AGENT_KEY}"), 401),
        (AGENT_KEY.to_owned(), 401),
        (format!("Bearer {AGENT_KEY}x"), 401),
        (format!("Bearer {}", &AGENT_KEY[1..]), 401),
    ] {
        let answer = gateway.send("GET", "/v1/agents", &[("authorization", &value)], None).await;
        assert_eq!(answer.status, status, "{value}: {}", answer.text());
    }
    assert_eq!(gateway.metric("rerouter_agent_open", &[]).await, 0.0);
}

#[tokio::test]
async fn unknown_routes_and_methods_are_told_after_authentication() {
    let (gateway, _a) = gateway().await;
    let (admin, key) = (gateway.admin_key.clone(), gateway.create_key().await);
    for path in [
        "/v1/auth/nothing",
        "/v1/router/nothing",
        "/v1/router/keys/a/b",
        "/v1/router/replay/x/nothing",
    ] {
        envelope::management(&gateway.manage("GET", path, &admin, None).await, 404, "not_found");
    }
    for (method, path, allowed) in [
        ("PUT", "/v1/router/keys", &["GET", "POST"][..]),
        ("POST", "/v1/auth/me", &["GET"]),
        ("POST", "/health", &["GET"]),
    ] {
        let answer = gateway.manage(method, path, &admin, None).await;
        envelope::management(&answer, 405, "method_not_allowed");
        let allow: Vec<&str> =
            answer.header("allow").expect("Allow").split(',').map(str::trim).collect();
        assert!(
            allowed.iter().all(|method| allow.contains(method)) && !allow.contains(&method),
            "{path}: {allow:?}"
        );
    }
    let agent = gateway
        .send("PATCH", "/v1/agents", &[("content-type", "application/json")], Some(b"{}"))
        .await;
    envelope::agent(&agent, 405, "Method Not Allowed");
    let chat = gateway.manage("GET", "/v1/chat/completions", &key.secret, None).await;
    envelope::openai(&chat, 405, "invalid_request_error", Some("method_not_allowed"));
    assert_eq!(chat.header("allow"), Some("POST"));
    let unserved = gateway.manage("POST", "/v1/audio/speech", &key.secret, Some(&json!({}))).await;
    envelope::openai(&unserved, 404, "invalid_request_error", None);
    assert!(
        unserved.text().contains("/v1/chat/completions"),
        "names what is served: {}",
        unserved.text()
    );
}

#[tokio::test]
async fn management_bodies_are_json_of_known_fields_and_bounded() {
    let (gateway, _a) = gateway().await;
    let bearer = format!("Bearer {}", gateway.admin_key);
    let post = async |content_type: &str, body: &[u8]| {
        gateway
            .send(
                "POST",
                "/v1/router/keys",
                &[("authorization", &bearer), ("content-type", content_type)],
                Some(body),
            )
            .await
    };
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/yaml"] {
        envelope::management(&post(content_type, b"{}").await, 415, "unsupported_media_type");
    }
    for body in [
        &b"{"[..],
        b"[]",
        b"{\"nmae\":\"x\"}",
        b"{\"name\":7}",
        b"{\"limits\":{\"rpm\":0}}",
        b"{\"limits\":{\"rps\":1}}",
        b"{\"expires_at\":\"soon\"}",
        b"{\"name\":\"\xff\"}",
    ] {
        envelope::management(&post("application/json", body).await, 400, "invalid_request");
    }
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(300 << 10));
    envelope::management(
        &post("application/json", long.as_bytes()).await,
        413,
        "payload_too_large",
    );
    assert_eq!(post("application/json; charset=utf-8", b"{}").await.status, 201);
}

/// The rules for browsers: an unsafe method by cookie must come from our own pages. Of every
/// route it is shown in `access/browsers.rs`.
#[tokio::test]
async fn requests_of_other_sites_by_cookie_are_refused() {
    let (gateway, _a) = gateway().await;
    let account = json!({"email": "csrf@example.com", "password": "a long enough password"});
    let body = account.to_string();
    let post = async |path: &str, headers: &[(&str, &str)], body: &str| {
        let headers: Vec<(&str, &str)> =
            headers.iter().copied().chain([("content-type", "application/json")]).collect();
        gateway.send("POST", path, &headers, Some(body.as_bytes())).await
    };
    assert_eq!(post("/v1/auth/register", &[], &body).await.status, 201);
    let login = post("/v1/auth/login", &[("sec-fetch-site", "same-origin")], &body).await;
    assert_eq!(login.status, 200, "{}", login.text());
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let own = format!("http://{}", gateway.host());
    let cases: [(&[(&str, &str)], u16); 9] = [
        (&[], 201),
        (&[("sec-fetch-site", "same-origin")], 201),
        (&[("sec-fetch-site", "none")], 201),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (&[("origin", &own)], 201),
        (&[("origin", "http://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("sec-fetch-site", "cross-site"), ("origin", &own)], 403),
    ];
    for (headers, status) in cases {
        let with_cookie: Vec<(&str, &str)> =
            headers.iter().copied().chain([("cookie", cookie.as_str())]).collect();
        let answer = post("/v1/router/keys", &with_cookie, "{}").await;
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.text());
        if status == 403 {
            envelope::management(&answer, 403, "csrf_rejected");
        }
    }
    let read = gateway
        .send(
            "GET",
            "/v1/router/keys",
            &[("cookie", &cookie), ("sec-fetch-site", "cross-site")],
            None,
        )
        .await;
    assert_eq!(read.status, 200, "safe methods are free");
    let bearer = format!("Bearer {}", gateway.admin_key);
    assert_eq!(
        post(
            "/v1/router/keys",
            &[("authorization", &bearer), ("sec-fetch-site", "cross-site")],
            "{}"
        )
        .await
        .status,
        201
    );
}

/// Clients and their frameworks look for these words of OpenAI and Anthropic.
#[tokio::test]
async fn refusals_carry_the_words_that_clients_of_both_apis_look_for() {
    let a = Provider::always(scripted::completion("hello")).await;
    let document = in_order(&[("a", &a.url())], "models:\n  a/model: { context: 100 }\n");
    let claude = document.replace(
        "providers:\n",
        "providers:\n  \
            claude: { protocol: anthropic, base_url: \"http://127.0.0.1:9\", api_key: x }\n",
    );
    let claude =
        claude.replace("{ target: a/model }", "{ target: a/model }, { target: claude/opus }");
    let claude = claude.replace("models:\n", "models:\n  claude/opus: { context: 200 }\n");
    let gateway = Gateway::start(&claude).await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let post = async |path: &str, bearer: &str, body: &str| {
        let headers = [("authorization", bearer), ("content-type", "application/json")];
        let answer = gateway.send("POST", path, &headers, Some(body.as_bytes())).await;
        assert_eq!(answer.request_id().len(), 30, "{}", answer.text());
        answer.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    let long = "word ".repeat(300);
    let said = |text: &str, most: u64| {
        json!({"model": "auto", "max_tokens": most,
                "messages": [{"role": "user", "content": text}]})
        .to_string()
    };
    let wrong = "Bearer rtr_AbCdEfGhIjKlMnOpQrStUvWxYz01232piBxe";
    for (path, words) in [
        ("/v1/chat/completions", "Incorrect API key provided: "),
        ("/v1/messages", "invalid x-api-key: "),
    ] {
        let message = post(path, wrong, &said("hi", 1)).await;
        assert!(message.starts_with(words) && !message.contains("AbCd"), "{message}");
        assert!(message.contains("not valid here"), "{message}");
        let message = post(path, &format!("Bearer {}", gateway.admin_key), &said("hi", 1)).await;
        let is_told = message.contains("this is ADMIN_API_KEY, which makes keys");
        assert!(message.starts_with(words) && is_told, "{message}");
        assert!(!message.contains(&gateway.admin_key), "{message}");
        let nobody = gateway.send("POST", path, &[], Some(said("hi", 1).as_bytes())).await;
        assert!(nobody.text().contains("there is none"), "{}", nobody.text());
        let without = path.trim_start_matches("/v1");
        let without = gateway.send("POST", without, &[], None).await;
        envelope::management(&without, 404, "not_found");
        assert!(without.text().contains(&format!("Did you mean {path}?")), "{}", without.text());
    }
    // The larger of the two targets' contexts: either endpoint may go to both.
    for (path, most) in [("/v1/chat/completions", 200), ("/v1/messages", 200)] {
        let message = post(path, &bearer, &said(&long, 1)).await;
        for words in [
            &format!("This model's maximum context length is {most} tokens"),
            "prompt is too long: ",
            &format!(" tokens > {most} maximum"),
        ] {
            assert!(message.contains(words), "{words}: {message}");
        }
        let message = post(path, &bearer, &said("hi", 1000)).await;
        let words =
            format!("input length and `max_tokens` exceed context limit: 9 + 1000 > {most}");
        assert!(
            message.contains(&words) && message.contains("context_length_exceeded"),
            "{message}"
        );
        assert!(
            message.contains(&format!("This model's maximum context length is {most} tokens")),
            "{message}"
        );
        let message = post(path, &bearer, &said("hi", 1).replace("auto", "nothing")).await;
        assert!(
            message.contains("The model `nothing` does not exist or you do not have access to it"),
            "{message}"
        );
    }
    let answer = gateway.chat(&key, said(&long, 1).as_bytes()).await;
    envelope::openai(&answer, 400, "invalid_request_error", Some("context_length_exceeded"));
    assert_eq!(a.count(), 0);
}
