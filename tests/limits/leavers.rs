//! Clients that leave while a budget pays: whole answers and reroutes are read to their end,
//! streams are cancelled and charged by their time.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::until;

/// A tenth of a cent a token.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n";
/// An answer of 7 and 3 tokens costs a cent.
const CENT: f64 = 0.01;

fn body(stream: bool, max_tokens: u64) -> Vec<u8> {
    let message = json!({"role": "user", "content": "Say a word."});
    let body = json!({
        "model": "auto", "stream": stream, "max_tokens": max_tokens, "messages": [message],
    });
    body.to_string().into_bytes()
}

async fn budget(gateway: &Gateway, key: &Key) -> Value {
    let path = format!("/v1/router/keys/{}", key.id);
    let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await;
    shown.json()["usage"]["budget"].clone()
}

/// Waits until nothing is reserved; what is spent then, and the part that was estimated.
async fn spent(gateway: &Gateway, key: &Key) -> (f64, f64) {
    let settled = until("the request to be settled", async || {
        let budget = budget(gateway, key).await;
        let is_settled = budget["reserved_usd"] == 0.0 && budget["spent_usd"] != 0.0;
        is_settled.then_some(budget)
    })
    .await;
    let cents = |name: &str| (settled[name].as_f64().unwrap() / CENT * 1e6).round() / 1e6;
    (cents("spent_usd"), cents("estimated_usd"))
}

/// Sends a request and leaves once the provider has it. Returns the id of its capture.
async fn ask_and_leave(gateway: &Gateway, provider: &Provider, request: Vec<u8>) {
    let before = provider.count();
    let mut leaving = gateway.connect().await;
    leaving.send(&request).await;
    until("the provider to be asked", async || (provider.count() > before).then_some(())).await;
    leaving.abandon();
}

async fn only_capture(gateway: &Gateway) -> Value {
    let listed = until("the capture", async || {
        let path = "/v1/router/replay";
        let listed = gateway.manage("GET", path, &gateway.admin_key, None).await.json();
        listed["data"].as_array().unwrap().first().cloned()
    })
    .await;
    gateway.capture(listed["id"].as_str().unwrap()).await
}

#[tokio::test]
async fn a_whole_answer_is_read_to_its_end_and_costs_what_it_says() {
    let finish = Arc::new(Notify::new());
    let gate = Arc::clone(&finish);
    let provider = Provider::start(move |_, _| {
        std::iter::once(Step::Wait(Arc::clone(&gate)))
            .chain(scripted::completion("a word"))
            .collect()
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    let key = gateway.limited_key(json!({"budget": {"usd": 5, "per": "day"}})).await;
    ask_and_leave(&gateway, &provider, gateway.chat_request(&key, &body(false, 2_000))).await;
    tokio::time::timeout(Duration::from_millis(300), provider.abandoned(0))
        .await
        .expect_err("the answer is read on");
    finish.notify_one();
    assert_eq!(spent(&gateway, &key).await, (1.0, 0.0), "as the provider bills");
    let capture = only_capture(&gateway).await;
    assert_eq!((&capture["state"], &capture["status"]), (&json!("aborted"), &json!(499)));
    assert_eq!(capture["usage"]["completion_tokens"], 3);
    // Without a budget nobody pays, and the provider is left at once.
    let free = gateway.create_key().await;
    ask_and_leave(&gateway, &provider, gateway.chat_request(&free, &body(false, 2_000))).await;
    provider.abandoned(1).await;
}

#[tokio::test]
async fn a_reroute_is_run_to_its_end_too() {
    let finish = Arc::new(Notify::new());
    let gate = Arc::clone(&finish);
    let provider = Provider::start(move |_, n| {
        let wait = (n > 0).then(|| Step::Wait(Arc::clone(&gate)));
        wait.into_iter().chain(scripted::completion("a word")).collect()
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    let key = json!({
        "scopes": ["inference", "replay"], "limits": {"budget": {"usd": 5, "per": "day"}},
    });
    let key = gateway.make_key("/v1/router/keys", &gateway.admin_key, &key).await;
    let answer = gateway.chat(&key, &body(false, 2_000)).await;
    let id = answer.request_id();
    gateway.capture(&id).await;
    let request = format!(
        "POST /v1/router/replay/{id}/reroute HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-length: 0\r\n\r\n",
        gateway.host(),
        key.secret
    );
    ask_and_leave(&gateway, &provider, request.into_bytes()).await;
    finish.notify_one();
    until("the reroute to be charged", async || {
        (spent(&gateway, &key).await == (2.0, 0.0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stream_is_cancelled_and_charged_by_its_time_up_to_its_reserve() {
    let provider = Provider::start(|_, _| {
        vec![
            scripted::stream_head(),
            Step::Chunk(scripted::content_event("twelve bytes").into_bytes()),
            Step::Hang,
        ]
    })
    .await;
    let fast = PRICED
        .replace("output_per_mtok: 1000", "output_per_mtok: 1000, tokens_per_second: 1000000");
    // A millisecond makes a thousand tokens at the fast one, and ten are reserved.
    for (document, max_tokens, ceiling) in [(PRICED, 1_000, false), (&fast, 10, true)] {
        let gateway = Gateway::start(&in_order(&[("a", &provider.url())], document)).await;
        let key = gateway.limited_key(json!({"budget": {"usd": 5, "per": "day"}})).await;
        let n = provider.count();
        let mut leaving = gateway.connect().await;
        leaving.send(&gateway.chat_request(&key, &body(true, max_tokens))).await;
        leaving.head().await.expect("an answer");
        leaving.piece().await.expect("the first event");
        let reserved = budget(&gateway, &key).await["reserved_usd"].as_f64().unwrap() / CENT;
        leaving.abandon();
        provider.abandoned(n).await;
        let (spent, estimated) = spent(&gateway, &key).await;
        assert_eq!(spent, estimated);
        // Three tokens were seen, and at most what 200 tokens a second come to.
        assert!(spent > 0.3 && spent <= reserved + 1e-6, "{spent} of {reserved}");
        // The provider has not told the tokens of the prompt: they cost what was reserved for them.
        let answer = max_tokens as f64 / 10.0;
        assert!(spent >= reserved - answer + 0.3 - 1e-6, "{spent} of {reserved}");
        assert_eq!((spent - reserved).abs() < 1e-6, ceiling, "{spent} of {reserved}");
        let capture = only_capture(&gateway).await;
        assert_eq!(
            (&capture["state"], &capture["usage"]["estimated"]),
            (&json!("aborted"), &json!(true))
        );
    }
}
