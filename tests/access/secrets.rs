//! No secret appears in logs, metrics, captures or the data directory. Canaries pass through
//! success, error, timeout and reroute here, and through panics in `panics`.

use std::path::Path;
use std::time::Duration;

use rerouter::internals::auth::Auth;
use rerouter::internals::secret::{Keyring, Purpose, Secret, SecretBytes};
use serde_json::json;

use crate::support::client::{find, pairs};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::node::Node;
use crate::support::provider::{self as scripted, Provider, Step};

const PROVIDER_KEY: &str = "sk-provider-canary-5d41402abc4b2a76";
/// A credential in a provider's `headers`.
const HEADER_KEY: &str = "goog-canary-0cc175b9c0f1b6a8";
const PASSWORD: &str = "password-canary-7d793037a0760186";
const AGENT_KEY: &str = "agent-canary-b9719d911017c592abcdef01";
/// A wrong password, as if somebody typed that of another account.
const WRONG_PASSWORD: &str = "wrong-canary-900150983cd24fb0";
/// The new password of the account.
const NEW_PASSWORD: &str = "new-password-canary-8f14e45fceea167a";
/// The key that a node expects from the gateway.
const NODE_KEY: &str = "node-key-canary-c9f0f895fb98ab91";
/// A credential of a tool, inside a request's body.
const TOOL_KEY: &str = "mcp-canary-f96b697d7cb7938d";
/// The base64 of 32 bytes: `master-canary-0123456789abcdef01`.
const MASTER_KEY: &str = "bWFzdGVyLWNhbmFyeS0wMTIzNDU2Nzg5YWJjZGVmMDE=";
const MASTER_BYTES: &str = "master-canary-0123456789abcdef01";
const JSON: (&str, &str) = ("content-type", "application/json");

pub fn files(dir: &Path, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        // Skips the socket of an upgrade.
        } else if path.is_file() {
            into.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

/// Pingora quotes what it cannot parse in its errors. The log must not have that text.
async fn what_cannot_be_parsed(gateway: &Gateway, bearer: &str) -> Vec<(&'static str, String)> {
    let host = gateway.host();
    let mut shown = Vec::new();
    for broken in [
        format!(
            "GET /health HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\nx-bad: a\0b\r\n\r\n"
        ),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\n\
             transfer-encoding: chunked\r\n\r\n{bearer}\r\n"
        ),
    ] {
        let answer = gateway.connect().await.exchange(broken.as_bytes()).await;
        assert_eq!(answer.status, 400);
        shown.push(("a refusal", format!("{answer:?}")));
    }
    shown
}

/// A provider that repeats the credential of its `headers` in its answer.
async fn echoing() -> Provider {
    Provider::start(|request, _| {
        let said = scripted::completion_body("from b").to_string();
        let echo = request.header("x-goog-api-key").unwrap_or_default();
        scripted::answer(
            200,
            &[("content-type", "application/json"), ("x-echo", &echo)],
            said.as_bytes(),
        )
    })
    .await
}

/// Makes keys of the other interfaces, and uses, shows and misuses them. Returns their secrets.
async fn other_keys(
    gateway: &Gateway,
    token: &str,
    shown: &mut Vec<(&'static str, String)>,
) -> Vec<String> {
    let mut secrets = Vec::new();
    for (path, maker, probe) in
        [("/v1/apikeys", token, "/v1/auth/me"), ("/v1/api-keys", AGENT_KEY, "/v1/agents")]
    {
        let made = gateway.manage("POST", path, maker, None).await.json();
        let (id, secret) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap().to_owned());
        shown.push((
            "the use of a key",
            format!("{:?}", gateway.manage("GET", probe, &secret, None).await),
        ));
        // On an interface where the key is unknown.
        let elsewhere = gateway
            .manage("POST", "/v1/chat/completions", &secret, Some(&json!({"model": "auto"})))
            .await;
        assert_eq!(elsewhere.status, 401);
        shown.push(("a refusal", format!("{elsewhere:?}")));
        shown.push(("a list", gateway.manage("GET", path, maker, None).await.text()));
        shown.push((
            "a record",
            gateway.manage("GET", &format!("{path}/{id}"), maker, None).await.text(),
        ));
        let again =
            gateway.manage("POST", &format!("{path}/{id}/rotate"), maker, None).await.json();
        shown.push((
            "a bad request",
            gateway
                .manage("POST", &format!("{path}/{id}/rotate"), maker, Some(&json!({"key": "x"})))
                .await
                .text(),
        ));
        secrets.extend([secret, again["key"].as_str().unwrap().to_owned()]);
    }
    secrets
}

/// Sends a wrong password, and a tool's credential inside a body that is answered, captured and
/// replayed.
async fn inside_bodies(gateway: &Gateway, key: &Key, shown: &mut Vec<(&'static str, String)>) {
    let wrong = json!({"email": "canary@example.com", "password": WRONG_PASSWORD}).to_string();
    let refused = gateway.send("POST", "/v1/auth/login", &[JSON], Some(wrong.as_bytes())).await;
    assert_eq!(refused.status, 401);
    shown.push(("a refused login", format!("{refused:?}")));
    let body = json!({
        "model": "auto", "messages": [{"role": "user", "content": "Say a word."}],
        "tools": [{
            "type": "mcp", "server_label": "x", "server_url": "https://mcp.example",
            "authorization": TOOL_KEY
        }],
    });
    let answer = gateway.chat(key, body.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let id = answer.request_id();
    shown.push(("an answer", format!("{answer:?}")));
    shown.push(("a capture", gateway.capture(&id).await.to_string()));
    let rerouted = gateway.reroute(&id, &gateway.admin_key).await;
    shown.push(("a reroute", rerouted.text()));
    shown.push((
        "the audit",
        gateway.manage("GET", "/v1/audit?limit=100", &gateway.admin_key, None).await.text(),
    ));
}

/// Uses a session's other secret, a new password, and answers that repeat a key. Returns the
/// secrets of these calls.
async fn accounts(
    gateway: &Gateway,
    token: &str,
    shown: &mut Vec<(&'static str, String)>,
) -> Vec<String> {
    for (current, status) in [(WRONG_PASSWORD, 401), (PASSWORD, 204)] {
        let body = json!({"current_password": current, "new_password": NEW_PASSWORD});
        let changed = gateway.manage("POST", "/v1/auth/password", token, Some(&body)).await;
        assert_eq!(changed.status, status, "{}", changed.text());
        shown.push(("a change of a password", format!("{changed:?}")));
    }
    let again = json!({"email": "canary@example.com", "password": NEW_PASSWORD}).to_string();
    assert_eq!(
        gateway.send("POST", "/v1/auth/login", &[JSON], Some(again.as_bytes())).await.status,
        200
    );
    let bearer = format!("Bearer {token}");
    let named = |body: &'static [u8]| {
        let headers = [("authorization", bearer.as_str()), JSON, ("idempotency-key", "canary")]
            .map(|(name, value)| (name, value.to_owned()));
        async move {
            let headers = pairs(&headers);
            gateway.send("POST", "/v1/router/keys", &headers, Some(body)).await
        }
    };
    let (first, second) = (named(b"{}").await, named(b"{}").await);
    assert_eq!((first.status, first.text()), (201, second.text()), "told once more");
    shown.push(("a name that is taken", format!("{:?}", named(br#"{"name": "other"}"#).await)));
    vec![first.json()["key"].as_str().unwrap().to_owned()]
}

/// A key with two valid secrets, both of which are used.
async fn within_its_grace(gateway: &Gateway, shown: &mut Vec<(&'static str, String)>) -> [Key; 2] {
    let old = gateway.create_key().await;
    let path = format!("/v1/router/keys/{}", old.id);
    let grace = json!({"grace_period_seconds": 600});
    let rotated = gateway
        .manage("POST", &format!("{path}/rotate"), &gateway.admin_key, Some(&grace))
        .await
        .json();
    let new = Key { id: old.id.clone(), secret: rotated["key"].as_str().unwrap().to_owned() };
    for key in [&old, &new] {
        let answer = gateway.chat(key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "both are good: {}", answer.text());
        shown.push((
            "an answer",
            format!("{answer:?}{}", gateway.capture(&answer.request_id()).await),
        ));
    }
    shown.push(("a record", gateway.manage("GET", &path, &gateway.admin_key, None).await.text()));
    [old, new]
}

/// A node that answers, refuses while it repeats the credential of the request, or breaks off.
/// Returns the secrets with which it signs.
async fn nodes(
    gateway: &Gateway,
    key: &Key,
    document: &str,
    shown: &mut Vec<(&'static str, String)>,
) -> Vec<String> {
    let serving = Provider::start(|request, n| match n % 3 {
        0 => scripted::completion("from a node"),
        1 => scripted::failure(401, &format!("bad key: {:?}", request.header("authorization"))),
        _ => vec![scripted::stream_head(), Step::Cut],
    })
    .await;
    gateway.write_routing(document).await;
    let node = Node::enrol(gateway, "rack", json!({})).await;
    node.serve(gateway, &serving.url(), &["qwen"], json!({ "api_key": NODE_KEY })).await;
    let forged = Node { secret: format!("{}x", node.secret), ..node.clone() };
    shown
        .push(("a refusal", format!("{:?}", forged.call(gateway, "deregister", &json!({})).await)));
    for status in [200, 502, 502] {
        let answer = gateway.chat(key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        shown.push((
            "an answer of a node",
            format!("{answer:?}{}", gateway.capture(&answer.request_id()).await),
        ));
        if status == 200 {
            assert_eq!(
                serving.last().header("authorization"),
                Some(format!("Bearer {NODE_KEY}")),
                "the canary was in play"
            );
        }
    }
    let id = gateway.chat(key, chat_body("auto", false).as_bytes()).await.request_id();
    gateway.capture(&id).await;
    let rerouted = gateway.reroute(&id, &gateway.admin_key).await;
    shown.push(("a reroute", rerouted.text()));
    let path = format!("/v1/nodes/{}", node.id);
    let rotated = Node::of(
        &gateway.manage("POST", &format!("{path}/rotate"), &gateway.admin_key, None).await.json(),
    );
    rotated.beat(gateway, 2, "ready", 0).await;
    for path in [path.as_str(), "/v1/nodes"] {
        shown.push((
            "a record of a node",
            gateway.manage("GET", path, &gateway.admin_key, None).await.text(),
        ));
    }
    vec![node.secret, rotated.secret]
}

/// A provider that does not answer before the timeout.
async fn too_late(gateway: &Gateway, key: &Key, shown: &mut Vec<(&'static str, String)>) {
    let silent = Provider::always(vec![Step::Hang]).await;
    // A target with a new name, as the first target has failed too often.
    gateway
        .write_routing(
            &in_order(&[("late", &silent.url())], "")
                .replace("first_byte: 20s", "first_byte: 200ms"),
        )
        .await;
    let late = gateway.chat(key, chat_body("auto", false).as_bytes()).await;
    assert!(late.status >= 500, "{}", late.text());
    assert_eq!(
        silent.last().header("authorization"),
        Some(format!("Bearer {PROVIDER_KEY}")),
        "the canary was in play"
    );
    shown.push(("a timeout", format!("{late:?}{}", gateway.capture(&late.request_id()).await)));
}

/// Asserts that each canary appears only where it may.
fn check_absent(stored: &[(String, Vec<u8>)], canaries: &[&str]) {
    for (place, bytes) in stored {
        for canary in canaries {
            // Clients may see their bodies, but on disk bodies are encrypted.
            let is_body = matches!(*canary, "from b" | "Say a word.");
            let at_rest =
                place.starts_with('/') && !place.starts_with("/v1/") && place != "/metrics"
                    || place == "the log";
            if !is_body || at_rest {
                assert!(find(bytes, canary.as_bytes()).is_none(), "{canary} in {place}");
            }
        }
    }
}

/// Asserts that no key derived from the root key is in the data directory in any form. The digest
/// of a client's key, which is there, shows that the root key is the right one.
fn check_derived(stored: &[(String, Vec<u8>)], wrapped: &[u8], key: &Key) {
    let master = SecretBytes::new(MASTER_BYTES.as_bytes().try_into().unwrap());
    let keys = Keyring::from_wrapped(&master, wrapped).unwrap();
    let digest = Auth::new(&keys, None, None, Duration::from_secs(1))
        .digest(&Secret::new(key.secret.as_str()));
    assert!(
        stored.iter().any(|(_, bytes)| find(bytes, &digest).is_some()),
        "the pepper was in play"
    );
    let derived = [Purpose::Digests, Purpose::Nodes, Purpose::Captures, Purpose::Documents]
        .map(|purpose| *keys.derive(purpose, b"").expose());
    for secret in derived.into_iter().chain([*master.expose()]) {
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        for form in [secret.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()] {
            let place = stored.iter().find(|(_, bytes)| find(bytes, &form).is_some());
            assert!(place.is_none(), "a key is in {:?}", place.map(|(place, _)| place));
        }
    }
}

/// Sends a key and a cookie in every place for a credential, valid and invalid ones.
async fn in_every_place(
    gateway: &Gateway,
    b: &Provider,
    key: &Key,
    cookie: &str,
    shown: &mut Vec<(&'static str, String)>,
) {
    let (body, bearer, wrong) =
        (chat_body("auto", false), format!("Bearer {}", key.secret), format!("{}x", key.secret));
    for headers in [
        vec![("authorization", bearer.as_str())],
        vec![("x-api-key", key.secret.as_str())],
        vec![("cookie", cookie)],
        vec![
            ("cookie", cookie),
            ("x-api-key", key.secret.as_str()),
            ("proxy-authorization", bearer.as_str()),
        ],
        vec![("authorization", wrong.as_str())],
        vec![("x-api-key", wrong.as_str()), ("cookie", cookie)],
    ] {
        let headers: Vec<(&str, &str)> = headers.into_iter().chain([JSON]).collect();
        let answer =
            gateway.send("POST", "/v1/chat/completions", &headers, Some(body.as_bytes())).await;
        if answer.status == 200 {
            assert_eq!(
                b.last().header("x-goog-api-key").as_deref(),
                Some(HEADER_KEY),
                "the canary was in play"
            );
            shown.push(("an answer", format!("{answer:?}")));
            let id = answer.request_id();
            shown.push(("a capture", gateway.capture(&id).await.to_string()));
            let rerouted = gateway.reroute(&id, &gateway.admin_key).await;
            assert_eq!(rerouted.status, 200, "{}", rerouted.text());
            shown.push(("a reroute", rerouted.text()));
            shown.push((
                "its capture",
                gateway.capture(rerouted.json()["new_id"].as_str().unwrap()).await.to_string(),
            ));
        } else {
            shown.push(("a refusal", format!("{answer:?}")));
        }
    }
}

#[tokio::test]
async fn no_canary_comes_out_anywhere() {
    // The first provider repeats the request's headers, as careless providers do.
    let a = Provider::start(|request, _| {
        scripted::failure(401, &format!("bad key: {:?}", request.header("authorization")))
    })
    .await;
    let b = echoing().await;
    let header =
        format!("{}\n    headers: {{ x-goog-api-key: \"${{HEADER_API_KEY}}\" }}\n", b.url());
    let document = in_order(&[("a", &a.url()), ("b", &header)], "");
    let setup = Setup::new(&document)
        .env("UPSTREAM_API_KEY", PROVIDER_KEY)
        .env("AGENT_CLOUD_API_KEY", AGENT_KEY);
    let setup = setup.env("REROUTER_MASTER_KEY", MASTER_KEY);
    let mut gateway =
        setup.env("HEADER_API_KEY", HEADER_KEY).env("RUST_LOG", "trace").start().await;
    let key = gateway.create_key().await;
    let account = json!({"email": "canary@example.com", "password": PASSWORD}).to_string();
    let json_type = [JSON];
    assert_eq!(
        gateway
            .send("POST", "/v1/auth/register", &json_type, Some(account.as_bytes()))
            .await
            .status,
        201
    );
    let login = gateway.send("POST", "/v1/auth/login", &json_type, Some(account.as_bytes())).await;
    let token = login.json()["token"].as_str().unwrap().to_owned();
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let session = cookie.split_once('=').unwrap().1.to_owned();
    let mut shown = Vec::new();
    let body = chat_body("auto", false);
    let bearer = format!("Bearer {}", key.secret);
    in_every_place(&gateway, &b, &key, &cookie, &mut shown).await;
    let mut others = other_keys(&gateway, &token, &mut shown).await;
    others.extend(accounts(&gateway, &token, &mut shown).await);
    inside_bodies(&gateway, &key, &mut shown).await;
    let graced = within_its_grace(&gateway, &mut shown).await;
    for key in &graced {
        too_late(&gateway, key, &mut shown).await;
    }
    let on_nodes =
        in_order(&[("b", &header)], "").replace("{ target: b/model }", "{ target: nodes/qwen }");
    others.extend(nodes(&gateway, &graced[0], &on_nodes, &mut shown).await);
    others.extend(graced.map(|key| key.secret));
    // Only the first provider is left. The last answer comes from the gateway, without the
    // provider's text.
    gateway.write_routing(&in_order(&[("a", &a.url())], "")).await;
    let failed = gateway.chat(&key, body.as_bytes()).await;
    assert_eq!(failed.status, 502);
    shown.push(("a failure", format!("{failed:?}{}", gateway.capture(&failed.request_id()).await)));
    shown.extend(what_cannot_be_parsed(&gateway, &bearer).await);
    for path in ["/v1/router/keys", "/v1/router/replay", "/v1/auth/me"] {
        shown.push((path, gateway.manage("GET", path, &gateway.admin_key, None).await.text()));
        shown.push((path, gateway.manage("GET", path, &token, None).await.text()));
    }
    assert_eq!(
        a.last().header("authorization"),
        Some(format!("Bearer {PROVIDER_KEY}")),
        "the canary was in play"
    );
    shown.push(("/metrics", gateway.metrics().await));
    let url = format!("http://{}", gateway.host());
    let environment =
        [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", gateway.admin_key.as_str())];
    let exported =
        crate::captures::replay_cli::run(gateway.dir(), &["export"], &environment).await.well();
    assert!(
        exported.lines().count() > 10 && exported.contains("Say a word."),
        "captures were exported"
    );
    shown.push(("an export", exported));
    gateway.restart().await;
    shown.push(("the log", gateway.log()));
    assert!(gateway.log().len() > 200, "something was logged");
    let mut stored = Vec::new();
    files(&gateway.dir().join("data"), &mut stored);
    assert!(
        stored.iter().any(|(name, bytes)| name.ends_with(".db") && !bytes.is_empty()),
        "something was stored"
    );
    stored.extend(shown.into_iter().map(|(what, text)| (what.to_owned(), text.into_bytes())));

    let of_accounts = [PASSWORD, WRONG_PASSWORD, NEW_PASSWORD];
    let of_shape =
        [PROVIDER_KEY, HEADER_KEY, AGENT_KEY, TOOL_KEY, NODE_KEY, MASTER_KEY, MASTER_BYTES]
            .into_iter()
            .chain(of_accounts);
    let made = [&gateway.admin_key, &key.secret, &token, &session, "from b", "Say a word."];
    let canaries =
        of_shape.chain(made).chain(others.iter().map(String::as_str)).collect::<Vec<_>>();
    check_absent(&stored, &canaries);
    let accounts = gateway.dir().join("data/accounts.db");
    let wrapped = rusqlite::Connection::open(accounts)
        .and_then(|file| file.query_row("SELECT wrapped FROM root_key", [], |row| row.get(0)));
    let wrapped: Vec<u8> = wrapped.unwrap();
    check_derived(&stored, &wrapped, &key);
}

/// The files of the data directory that contain one of these canaries.
fn found_in(gateway: &Gateway, canaries: &[&str]) -> Vec<String> {
    let mut stored = Vec::new();
    files(&gateway.dir().join("data"), &mut stored);
    assert!(
        stored.iter().any(|(name, bytes)| name.ends_with("accounts.db-wal") && !bytes.is_empty())
            || stored.len() > 3
    );
    let holds =
        |bytes: &[u8]| canaries.iter().any(|canary| find(bytes, canary.as_bytes()).is_some());
    stored.into_iter().filter(|(_, bytes)| holds(bytes)).map(|(name, _)| name).collect()
}

#[tokio::test]
async fn a_literal_credential_of_a_document_is_sealed_in_the_store() {
    const LITERAL: [&str; 3] = [
        "sk-literal-canary-1679091c5a880faf",
        "sk-listed-canary-8f14e45fceea167a",
        "Bearer header-canary-c9f0f895fb98ab91",
    ];
    let provider = Provider::always(scripted::completion("well")).await;
    let text =
        in_order(&[("a", &provider.url()), ("b", &provider.url()), ("c", &provider.url())], "");
    let mut kinds = [
        format!("api_key: {}", LITERAL[0]),
        format!("api_keys: [ {} ]", LITERAL[1]),
        format!("headers: {{ authorization: {} }}", LITERAL[2]),
    ]
    .into_iter();
    let literal: String = text
        .split_inclusive('\n')
        .map(|line| {
            if line.contains("api_key:") {
                format!("    {}\n", kinds.next().unwrap())
            } else {
                line.to_owned()
            }
        })
        .collect();
    let mut gateway = Setup::new(&literal).start().await;
    let key = gateway.create_key().await;
    assert_eq!(found_in(&gateway, &LITERAL), Vec::<String>::new());
    let first = gateway.revision().await;
    gateway.write_routing(&literal.replace("auto: main", "auto: main, other: main")).await;
    assert_eq!(found_in(&gateway, &LITERAL), Vec::<String>::new());
    gateway.kill_9();
    assert_eq!(found_in(&gateway, &LITERAL), Vec::<String>::new());
    gateway.start_again().await;
    // The store has the document itself, not its redacted form.
    let back = json!({ "revision": first });
    let rolled =
        gateway.manage("POST", "/v1/router/config/rollback", &gateway.admin_key, Some(&back)).await;
    assert_eq!(
        (rolled.status, &rolled.json()["revision"]),
        (200, &json!(first)),
        "{}",
        rolled.text()
    );
    for (name, credential) in [
        ("a", format!("Bearer {}", LITERAL[0])),
        ("b", format!("Bearer {}", LITERAL[1])),
        ("c", LITERAL[2].to_owned()),
    ] {
        let answer =
            gateway.chat(&key, chat_body(&format!("{name}/model"), false).as_bytes()).await;
        assert_eq!(
            (answer.status, provider.last().header("authorization")),
            (200, Some(credential)),
            "{}",
            answer.text()
        );
    }
    gateway.restart().await;
    assert_eq!(found_in(&gateway, &LITERAL), Vec::<String>::new());
    assert!(!gateway.log().contains("canary"));
}
