//! The access log: one JSON line per request on standard output, however the request ends. It has
//! path patterns and ids, but no query and no header values. On a terminal, it is text for people.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::client::{Connection, request};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::{free_port, until};

/// Waits for the access line of a request.
async fn line(gateway: &Gateway, request_id: &str) -> Value {
    until("the access line", async || {
        let log = gateway.log();
        let mut lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|line| line["request_id"] == request_id);
        let found = lines.next();
        assert!(lines.next().is_none(), "two lines for {request_id}");
        found
    })
    .await
}

#[tokio::test]
async fn a_request_has_one_line_that_says_how_it_went() {
    let bad = Provider::always(scripted::failure(500, "broken")).await;
    let good = Provider::always(scripted::completion("well")).await;
    let prices = "models:\n  good/model: { input_per_mtok: 2.0, output_per_mtok: 10.0 }\n";
    let gateway =
        Setup::new(&in_order(&[("bad", &bad.url()), ("good", &good.url())], prices)).start().await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let body = chat_body("auto", false);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("x-request-id", "the client's own"),
    ];
    let answer = gateway
        .send("POST", "/v1/chat/completions?note=query-canary", &headers, Some(body.as_bytes()))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = line(&gateway, &answer.request_id()).await;
    let expected = json!({
        "client_request_id": "the client's own", "client": "127.0.0.1", "method": "POST",
        "route": "/v1/chat/completions",
        "path": "/v1/chat/completions", "status": 200, "bytes_in": body.len(),
        "bytes_out": answer.body.len(), "interface": "router",
        "key": key.id, "model": "auto", "recipe": "main", "rule": "default", "provider": "good",
        "served_model": "model", "attempts": 2,
        "prompt_tokens": 7, "completion_tokens": 3, "cost_usd": 0.000_044, "state": "completed",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&told[name], value, "{name}: {told}");
    }
    assert!(
        told["duration_us"].as_u64().is_some_and(|us| us > 0)
            && told["at"].is_string()
            && told.get("error").is_none(),
        "{told}"
    );

    let refused = gateway
        .send(
            "GET",
            "/v1/router/keys/key_1?after=query-canary",
            &[("authorization", "Bearer nobody")],
            None,
        )
        .await;
    assert_eq!(refused.status, 401);
    let told = line(&gateway, &refused.request_id()).await;
    assert_eq!(
        (&told["status"], &told["route"], &told["error"]),
        (&json!(401), &json!("/v1/router/keys/{id}"), &json!("unauthorized")),
        "{told}"
    );
    assert!(told.get("key").is_none() && told.get("state").is_none(), "{told}");
    assert!(!gateway.log().contains("query-canary"));
}

#[tokio::test]
async fn the_line_of_a_client_that_left_counts_what_it_got() {
    let provider = Provider::start(|_, _| {
        let said = Step::Chunk(scripted::content_event("twelve bytes").into());
        vec![scripted::stream_head(), said, Step::Hang]
    })
    .await;
    let gateway = Setup::new(&in_order(&[("p", &provider.url())], "")).start().await;
    let bearer = format!("Bearer {}", gateway.create_key().await.secret);
    let (headers, body) = ([("authorization", bearer.as_str())], chat_body("auto", true));
    let mut connection = gateway.connect().await;
    let sent =
        request("POST", "/v1/chat/completions", &gateway.host(), &headers, Some(body.as_bytes()));
    connection.send(&sent).await;
    let id = connection.head().await.unwrap().request_id();
    let got = connection.piece().await.expect("an event").len();
    connection.abandon();
    let told = line(&gateway, &id).await;
    assert_eq!((&told["status"], &told["bytes_out"]), (&json!(499), &json!(got)), "{told}");
}

#[tokio::test]
async fn a_client_that_leaves_amid_its_body_got_no_status() {
    let gateway = Setup::new(&in_order(&[("p", "http://127.0.0.1:9")], "")).start().await;
    let bearer = format!("Bearer {}", gateway.create_key().await.secret);
    let (headers, body) = ([("authorization", bearer.as_str())], chat_body("auto", false));
    let mut connection = gateway.connect().await;
    let sent =
        request("POST", "/v1/chat/completions", &gateway.host(), &headers, Some(body.as_bytes()));
    connection.send(&sent[..sent.len() - 10]).await;
    connection.abandon();
    until("its line", async || {
        let log = gateway.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = lines.find(|line| line["status"] == 499)?;
        (told["error"] == "invalid_request" && told["bytes_out"] == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_not_known_is_not_in_the_line() {
    let a = Provider::always(scripted::json_answer(200, &json!({"choices": []}))).await;
    let gateway =
        Setup::new(&in_order(&[("a", &a.url())], "models:\n  a/model: {}\n")).start().await;
    let key = gateway.create_key().await;
    let direct = gateway.chat(&key, chat_body("a/model", false).as_bytes()).await;
    let told = line(&gateway, &direct.request_id()).await;
    for name in ["rule", "prompt_tokens", "completion_tokens", "cost_usd"] {
        assert_eq!(told.get(name), None, "{told}");
    }
    assert_eq!(told["recipe"], "direct");
}

/// The client and the log get the same word for an error.
#[tokio::test]
async fn an_error_has_one_word_in_the_log_and_in_the_body() {
    let gateway = Setup::new(&in_order(&[("a", "http://127.0.0.1:9/v1")], "")).start().await;
    let key = gateway.create_key().await;
    for (model, status, word) in
        [("auto", 502, "provider_error"), ("nothing", 404, "model_not_found")]
    {
        let answer = gateway.chat(&key, chat_body(model, false).as_bytes()).await;
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (status, &json!(word)));
        assert_eq!(line(&gateway, &answer.request_id()).await["error"], word);
    }
    assert!(gateway.log().contains("provider_error: No provider answered"), "{}", gateway.log());
    assert!(!gateway.log().contains("provider_failed"), "{}", gateway.log());
}

#[tokio::test]
async fn a_secret_in_the_wrong_place_is_not_written_down() {
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&in_order(&[("good", &good.url())], "")).start().await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("x-request-id", key.secret.as_str()),
    ];
    let answer = gateway
        .send(
            "POST",
            "/v1/chat/completions",
            &headers,
            Some(chat_body(&key.secret, false).as_bytes()),
        )
        .await;
    assert_eq!(answer.status, 404, "{}", answer.text());
    let told = line(&gateway, &answer.request_id()).await;
    let redacted = json!(format!("{}…{}", &key.secret[..8], &key.secret[36..]));
    assert_eq!((&told["model"], &told["client_request_id"]), (&redacted, &redacted), "{told}");
    assert!(!gateway.log().contains(&key.secret));
}

/// Keys in environment variables have no known format, so the gateway recognizes them by value.
#[tokio::test]
async fn keys_of_the_environment_in_names_and_paths_are_hidden() {
    let agent_key = "agent/canary+b9719d911017c592abcdef01==";
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&in_order(&[("good", &good.url())], ""))
        .env("AGENT_CLOUD_API_KEY", agent_key)
        .start()
        .await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let mut ids = Vec::new();
    for secret in [gateway.admin_key.as_str(), agent_key, key.secret.as_str()] {
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("x-request-id", secret),
        ];
        for model in [secret.to_owned(), format!("good/{secret}"), format!("agent/{secret}")] {
            let answer = gateway
                .send(
                    "POST",
                    "/v1/chat/completions",
                    &headers,
                    Some(chat_body(&model, false).as_bytes()),
                )
                .await;
            assert_eq!(answer.status, 404, "{}", answer.text());
            ids.push(answer.request_id());
        }
        let coded = secret.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
        for path in [
            format!("/v1/router/keys/{secret}"),
            format!("/v1/router/replay/{coded}"),
            format!("/{coded}"),
        ] {
            let answer = gateway.manage("GET", &path, &gateway.admin_key, None).await;
            assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.text());
            let told = line(&gateway, &answer.request_id()).await;
            assert!(
                told["path"]
                    .as_str()
                    .is_some_and(|path| path.contains("***") || path.contains('…')),
                "{told}"
            );
        }
    }
    for id in &ids {
        let mut capture = gateway.capture(id).await;
        // Bodies belong to the client, and stay as they are.
        for part in ["request", "response"] {
            assert!(capture[part]["body"].take().is_string());
        }
        let shown = capture.to_string();
        assert!(!shown.contains("canary") && !shown.contains(&key.secret), "{shown}");
        line(&gateway, id).await;
    }
    let list = gateway.manage("GET", "/v1/router/replay?limit=100", &gateway.admin_key, None).await;
    assert_eq!(list.json()["data"].as_array().unwrap().len(), ids.len());
    for text in [list.text(), gateway.log(), gateway.metrics().await] {
        assert!(!text.contains("canary") && !text.contains(&key.secret), "{text}");
    }
}

#[tokio::test]
async fn an_access_log_that_is_off_says_nothing() {
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&in_order(&[("good", &good.url())], ""))
        .server("access_log: { format: off }")
        .start()
        .await;
    let key = gateway.create_key().await;
    let id = gateway.chat(&key, chat_body("auto", false).as_bytes()).await.request_id();
    // The capture and the access line are written at the same time, so the line would exist by now.
    gateway.capture(&id).await;
    assert!(!gateway.log().contains("\"request_id\""), "{}", gateway.log());
}

#[tokio::test]
async fn what_came_instead_of_a_request_has_a_line_too() {
    let gateway = Gateway::start(&in_order(&[("good", "http://127.0.0.1:9/v1")], "")).await;
    let refused = gateway.connect().await.exchange(b"GET /v1/models HTTP/9.9\r\n\r\n").await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    let told = line(&gateway, &refused.request_id()).await;
    assert_eq!(
        (&told["status"], &told["route"], &told["interface"]),
        (&json!(400), &json!("unknown"), &json!("router")),
        "{told}"
    );
}

#[tokio::test]
async fn logs_are_text_where_the_document_says_so() {
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Setup::new(&in_order(&[("good", &good.url())], ""))
        .server("log: { format: text }\naccess_log: { format: text }")
        .start()
        .await;
    let key = gateway.create_key().await;
    let body = chat_body("\\u001b[31mmodel\\nof\\u202emine", false);
    let refused = gateway.chat(&key, body.as_bytes()).await;
    assert_eq!(refused.status, 404, "{}", refused.text());
    let served = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    let line = until("the text lines", async || {
        let log = gateway.log();
        let id = served.request_id();
        log.lines().find(|line| line.ends_with(&id)).map(str::to_owned)
    })
    .await;
    assert!(line.contains(" 200 POST /v1/chat/completions "), "{line}");
    assert!(line.contains(" auto → good/model ") && line.contains(" 7+3 tokens "), "{line}");
    let log = gateway.log();
    assert!(log.contains("\\u{1b}[31mmodel\\nof\\u{202e}mine"), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{202e}']) && !log.contains(&key.secret), "{log}");
    assert!(log.contains(" INFO  ") && !log.contains("\"message\""), "{log}");
}

/// `script` makes a terminal for both logs. `NO_COLOR` switches colours off.
#[tokio::test]
async fn people_at_a_terminal_read_text() {
    for (no_color, is_colored) in [("", true), ("1", false)] {
        let dir = tempfile::tempdir().unwrap();
        let (port, metrics) = (free_port(), free_port());
        let document = format!(
            "listeners: [ {{ address: \"127.0.0.1:{port}\" }} ]\n\
             metrics: {{ address: \"127.0.0.1:{metrics}\" }}\nthreads: 1\ndata_dir: ./data\n"
        );
        std::fs::write(dir.path().join("rerouter.yaml"), document).unwrap();
        let seen = std::fs::File::create(dir.path().join("seen")).unwrap();
        let told = format!("{} serve --config rerouter.yaml", env!("CARGO_BIN_EXE_rerouter"));
        let mut terminal = Command::new("script")
            .args(["-qefc", &told, "/dev/null"])
            .current_dir(dir.path())
            .env("NO_COLOR", no_color)
            .env("TERM", "xterm")
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(seen)
            .spawn()
            .expect("the command `script` (of bsdutils)");
        let shown = || std::fs::read_to_string(dir.path().join("seen")).unwrap();
        let request = request("GET", "/v1/models", &format!("127.0.0.1:{port}"), &[], None);
        until("the line of a refused request", async || {
            let mut connection = Connection::try_open(([127, 0, 0, 1], port).into()).await?;
            connection.try_exchange(&request).await?;
            shown().contains("invalid_api_key").then_some(())
        })
        .await;
        // Ctrl-C ends the gateway, and with it `script`.
        terminal.stdin.take().unwrap().write_all(b"\x03").unwrap();
        tokio::task::spawn_blocking(move || terminal.wait()).await.unwrap().unwrap();
        let shown = shown();
        assert!(shown.contains(" GET /v1/models ") && shown.contains("INFO "), "{shown}");
        assert!(!shown.contains("{\"at\""), "{shown}");
        assert_eq!(shown.contains("\u{1b}[33m401\u{1b}[0m"), is_colored, "{shown}");
        assert_eq!(shown.contains('\u{1b}'), is_colored, "{shown}");
    }
}
