//! The cases in which what a provider bills goes beyond a budget, each at its bound
//! (docs/limits.md).

use std::sync::Arc;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::documents::in_order;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider, Step};
use crate::support::until;

/// A tenth of a cent a token, and a small context.
const PRICED: &str =
    "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000, context: 1000 }\n";
const TOKEN: f64 = 0.001;

fn answer(prompt: u64, completion: u64) -> Vec<Step> {
    let mut body = scripted::completion_body("a word");
    body["usage"] = json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
    });
    scripted::json_answer(200, &body)
}

fn body(more: Value) -> Vec<u8> {
    let mut body = json!({
        "model": "auto", "messages": [{"role": "user", "content": "Say a word."}],
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

async fn budget(gateway: &Gateway, key: &Key) -> Value {
    let path = format!("/v1/router/keys/{}", key.id);
    let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await;
    shown.json()["usage"]["budget"].clone()
}

/// What is spent, once nothing is reserved, in tokens. The next request is refused if the budget is
/// spent.
async fn spent(gateway: &Gateway, key: &Key, usd: f64) -> f64 {
    let settled = until("the requests to be settled", async || {
        let budget = budget(gateway, key).await;
        (budget["reserved_usd"] == 0.0).then_some(budget)
    })
    .await;
    let spent = settled["spent_usd"].as_f64().unwrap();
    if spent >= usd {
        let refused = gateway.chat(key, &body(json!({"max_tokens": 1}))).await;
        assert_eq!(refused.status, 429, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "insufficient_quota");
    }
    (spent / TOKEN).round()
}

#[tokio::test]
async fn an_answer_without_a_limit_costs_what_it_says_once_for_each_that_runs() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let provider = Provider::start(move |_, _| {
        std::iter::once(Step::Wait(Arc::clone(&held))).chain(answer(7, 5_000)).collect()
    })
    .await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    // Room for two reserves of 1,024 tokens, and for no third.
    let usd = 2.5;
    let key = gateway.limited_key(json!({"budget": {"usd": usd, "per": "day"}})).await;
    let asked = join_all((0..4).map(async |_| gateway.chat(&key, &body(json!({}))).await.status));
    let (statuses, ()) = tokio::join!(asked, async {
        until("two to be asked", async || (provider.count() == 2).then_some(())).await;
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        gate.notify_waiters();
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    assert_eq!(spent(&gateway, &key, usd).await, 2.0 * 5_007.0, "beyond: 2 × (5,000 − 1,024)");
}

#[tokio::test]
async fn rounds_of_a_tool_that_the_provider_runs_cost_what_they_say() {
    // Three rounds, and each reads a context that is full.
    let provider = Provider::always(answer(3_000, 10)).await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    let usd = 1.2;
    let key = gateway.limited_key(json!({"budget": {"usd": usd, "per": "day"}})).await;
    let search = body(json!({"max_tokens": 10, "web_search_options": {}}));
    assert_eq!(gateway.chat(&key, &search).await.status, 200);
    assert_eq!(spent(&gateway, &key, usd).await, 3_010.0, "beyond: two contexts more");
    assert_eq!(provider.count(), 1);
}

#[tokio::test]
async fn a_failed_attempt_that_is_billed_is_in_no_budget() {
    let failing = Provider::always(scripted::failure(500, "It broke after the answer.")).await;
    let provider = Provider::always(answer(7, 3)).await;
    let second = PRICED.replace("models:\n  a/", "  b/");
    let providers = [("a", failing.url()), ("b", provider.url())];
    let providers = providers.each_ref().map(|(name, url)| (*name, url.as_str()));
    let gateway = Gateway::start(&in_order(&providers, &(PRICED.to_owned() + &second))).await;
    let key = gateway.limited_key(json!({"budget": {"usd": 1, "per": "day"}})).await;
    assert_eq!(gateway.chat(&key, &body(json!({"max_tokens": 3}))).await.status, 200);
    // Each failed attempt may have been billed, at most at the reserve.
    assert_eq!((failing.count(), provider.count()), (1, 1));
    assert_eq!(spent(&gateway, &key, 1.0).await, 10.0);
}

#[tokio::test]
async fn a_left_stream_costs_its_reserve_at_most_however_fast_the_provider_is() {
    // It has made the whole answer before it sends the first event.
    let event = Step::Chunk(scripted::content_event("a").into_bytes());
    let provider = Provider::always(vec![scripted::stream_head(), event, Step::Hang]).await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    let key = gateway.limited_key(json!({"budget": {"usd": 1, "per": "day"}})).await;
    let mut leaving = gateway.connect().await;
    let stream = body(json!({"max_tokens": 500, "stream": true}));
    leaving.send(&gateway.chat_request(&key, &stream)).await;
    leaving.head().await.expect("an answer");
    leaving.piece().await.expect("the first event");
    let reserved = budget(&gateway, &key).await["reserved_usd"].as_f64().unwrap() / TOKEN;
    leaving.abandon();
    provider.abandoned(0).await;
    // A provider that bills all 500 tokens bills no more than the reserve.
    let spent = spent(&gateway, &key, 1.0).await;
    assert!(spent <= reserved && reserved >= 507.0, "{spent} of {reserved}");
    assert!(spent >= reserved - 500.0, "its prompt is paid for: {spent} of {reserved}");
}
