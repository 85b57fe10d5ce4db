//! Nothing secret in logs, metrics, captures or the data directory: canaries go through success, error and reroute.

use std::path::Path;

use serde_json::json;

use crate::support::client::find;
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};

const PROVIDER_KEY: &str = "sk-provider-canary-5d41402abc4b2a76";
/// In a provider's `headers`.
const HEADER_KEY: &str = "goog-canary-0cc175b9c0f1b6a8";
const PASSWORD: &str = "password-canary-7d793037a0760186";
const AGENT_KEY: &str = "agent-canary-b9719d911017c592abcdef01";

fn files(dir: &Path, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else {
            into.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

/// What the engine cannot parse it quotes in its errors; the log must not.
async fn what_cannot_be_parsed(gateway: &Gateway, bearer: &str) -> Vec<(&'static str, String)> {
    let host = gateway.host();
    let mut shown = Vec::new();
    for broken in [
        format!("GET /health HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\nx-bad: a\0b\r\n\r\n"),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\ntransfer-encoding: chunked\r\n\r\n{bearer}\r\n"
        ),
    ] {
        let answer = gateway.connect().await.exchange(broken.as_bytes()).await;
        assert_eq!(answer.status, 400);
        shown.push(("a refusal", format!("{answer:?}")));
    }
    shown
}

/// A provider that answers, and says back the credential of its `headers`.
async fn echoing() -> Provider {
    Provider::start(|request, _| {
        let said = scripted::completion_body("from b").to_string();
        let echo = request.header("x-goog-api-key").unwrap_or_default();
        scripted::answer(200, &[("content-type", "application/json"), ("x-echo", &echo)], said.as_bytes())
    })
    .await
}

#[tokio::test]
async fn no_canary_comes_out_anywhere() {
    // The first provider says back what it was sent, as careless ones do.
    let a = Provider::start(|request, _| scripted::failure(401, &format!("bad key: {:?}", request.header("authorization")))).await;
    let b = echoing().await;
    let header = format!("{}\n    headers: {{ x-goog-api-key: \"${{HEADER_API_KEY}}\" }}\n", b.url());
    let document = in_order(&[("a", &a.url()), ("b", &header)], "");
    let setup = Setup::new(&document).env("UPSTREAM_API_KEY", PROVIDER_KEY).env("AGENT_CLOUD_API_KEY", AGENT_KEY);
    let mut gateway = setup.env("HEADER_API_KEY", HEADER_KEY).env("RUST_LOG", "trace").start().await;
    let key = gateway.create_key().await;
    let account = json!({"email": "canary@example.com", "password": PASSWORD}).to_string();
    let json_type = [("content-type", "application/json")];
    assert_eq!(gateway.send("POST", "/v1/auth/register", &json_type, Some(account.as_bytes())).await.status, 201);
    let login = gateway.send("POST", "/v1/auth/login", &json_type, Some(account.as_bytes())).await;
    let token = login.json()["token"].as_str().unwrap().to_owned();
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let session = cookie.split_once('=').unwrap().1.to_owned();
    let mut shown = Vec::new();
    let body = chat_body("auto", false);
    let bearer = format!("Bearer {}", key.secret);
    let wrong = format!("{}x", key.secret);
    for headers in [
        vec![("authorization", bearer.as_str())],
        vec![("x-api-key", key.secret.as_str())],
        vec![("cookie", cookie.as_str())],
        vec![("cookie", cookie.as_str()), ("x-api-key", key.secret.as_str()), ("proxy-authorization", bearer.as_str())],
        vec![("authorization", wrong.as_str())],
        vec![("x-api-key", wrong.as_str()), ("cookie", cookie.as_str())],
    ] {
        let headers: Vec<(&str, &str)> = headers.into_iter().chain(json_type).collect();
        let answer = gateway.send("POST", "/v1/chat/completions", &headers, Some(body.as_bytes())).await;
        if answer.status == 200 {
            assert_eq!(b.last().header("x-goog-api-key").as_deref(), Some(HEADER_KEY), "the canary was in play");
            shown.push(("an answer", format!("{answer:?}")));
            let id = answer.request_id();
            shown.push(("a capture", gateway.capture(&id).await.to_string()));
            let rerouted = gateway.manage("POST", &format!("/v1/router/replay/{id}/reroute"), &gateway.admin_key, None).await;
            assert_eq!(rerouted.status, 200, "{}", rerouted.text());
            shown.push(("a reroute", rerouted.text()));
            shown.push(("its capture", gateway.capture(rerouted.json()["new_id"].as_str().unwrap()).await.to_string()));
        } else {
            shown.push(("a refusal", format!("{answer:?}")));
        }
    }
    // Only the first provider left: the last answer is ours, without its words.
    gateway.write_routing(&in_order(&[("a", &a.url())], "")).await;
    let failed = gateway.chat(&key, body.as_bytes()).await;
    assert_eq!(failed.status, 502);
    shown.push(("a failure", format!("{failed:?}{}", gateway.capture(&failed.request_id()).await)));
    shown.extend(what_cannot_be_parsed(&gateway, &bearer).await);
    for path in ["/v1/router/keys", "/v1/router/replay", "/v1/auth/me"] {
        shown.push((path, gateway.manage("GET", path, &gateway.admin_key, None).await.text()));
        shown.push((path, gateway.manage("GET", path, &token, None).await.text()));
    }
    assert_eq!(a.last().header("authorization"), Some(format!("Bearer {PROVIDER_KEY}")), "the canary was in play");
    shown.push(("/metrics", gateway.metrics().await));
    gateway.restart().await;
    shown.push(("the log", gateway.log()));
    assert!(gateway.log().len() > 200, "something was logged");
    let mut stored = Vec::new();
    files(&gateway.dir().join("data"), &mut stored);
    assert!(stored.iter().any(|(name, bytes)| name.ends_with(".db") && !bytes.is_empty()), "something was stored");
    stored.extend(shown.into_iter().map(|(what, text)| (what.to_owned(), text.into_bytes())));

    let canaries =
        [PROVIDER_KEY, HEADER_KEY, PASSWORD, AGENT_KEY, &gateway.admin_key, &key.secret, &token, &session, "from b", "Say a word."];
    for (place, bytes) in &stored {
        for canary in canaries {
            // Bodies are the client's to see; at rest they are sealed.
            let is_body = matches!(canary, "from b" | "Say a word.");
            let at_rest = place.starts_with('/') && !place.starts_with("/v1/") && place != "/metrics" || place == "the log";
            if !is_body || at_rest {
                assert!(find(bytes, canary.as_bytes()).is_none(), "{canary} in {place}");
            }
        }
    }
}
