//! Use by a label of keys, as Prometheus sees it.

use serde_json::json;

use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// An answer of 7 and 3 tokens costs a cent.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n";

/// Calls, tokens and cents of a value of the label.
async fn counted(gateway: &Gateway, value: &str) -> [f64; 3] {
    let label = format!("label=\"{value}\"");
    let of =
        async |name: &str| gateway.metric(&format!("rerouter_label_{name}_total"), &[&label]).await;
    [of("requests").await, of("tokens").await, (of("cost_usd").await * 100.0).round()]
}

async fn chat(gateway: &Gateway, labels: serde_json::Value) {
    let body = json!({"name": "a key", "labels": labels});
    let key = gateway.make_key("/v1/router/keys", &gateway.admin_key, &body).await;
    let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn metrics_count_by_the_label_that_the_document_names() {
    let provider = Provider::always(scripted::completion("well")).await;
    let routing = in_order(&[("a", &provider.url())], PRICED);
    let gateway = Setup::new(&routing).label("team").start().await;
    for labels in [
        json!({"team": "search", "tier": "gold"}),
        json!({"team": "search"}),
        json!({"team": "say \"hi\""}),
        json!({"tier": "gold"}),
        json!({}),
    ] {
        chat(&gateway, labels).await;
    }
    // An answer may be faster than what it adds.
    until("all of them", async || {
        (gateway.metric("rerouter_label_requests_total", &[]).await == 5.0).then_some(())
    })
    .await;
    assert_eq!(counted(&gateway, "search").await, [2.0, 20.0, 2.0]);
    assert_eq!(counted(&gateway, r#"say \"hi\""#).await, [1.0, 10.0, 1.0]);
    assert_eq!(counted(&gateway, "").await, [2.0, 20.0, 2.0]);
    let total = gateway.metric("rerouter_cost_usd_total", &[]).await;
    assert_eq!(gateway.metric("rerouter_label_cost_usd_total", &[]).await, total);
}

#[tokio::test]
async fn without_a_name_no_label_is_counted() {
    let provider = Provider::always(scripted::completion("well")).await;
    let gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    chat(&gateway, json!({"team": "search"})).await;
    until("the call", async || {
        (gateway.metric("rerouter_cost_usd_total", &[]).await > 0.0).then_some(())
    })
    .await;
    assert!(!gateway.metrics().await.contains("rerouter_label_"));
}
