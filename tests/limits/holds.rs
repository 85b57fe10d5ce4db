//! Budgets while gateways die: what they held is listed and settled, and who asked nothing pays
//! nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::browser::{EMAIL, account, drive};
use crate::support::command::{Ran, run};
use crate::support::documents::in_order;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// An answer of 7 and 3 tokens costs a cent.
const PRICED: &str = "models:\n  a/model: { input_per_mtok: 1000, output_per_mtok: 1000 }\n";
/// Reserves a cent for each byte of its prompt, and three for its answer.
const BODY: &[u8] =
    br#"{"model":"auto","messages":[{"role":"user","content":"Say a word."}],"max_tokens":3}"#;
const CENT: f64 = 0.01;

async fn budget(gateway: &Gateway, key: &Key) -> Value {
    let path = format!("/v1/router/keys/{}", key.id);
    let shown = gateway.manage("GET", &path, &gateway.admin_key, None).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    shown.json()["usage"]["budget"].clone()
}

async fn lost(gateway: &Gateway) -> Vec<Value> {
    let path = "/v1/router/usage/lost";
    let listed = gateway.manage("GET", path, &gateway.admin_key, None).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    listed.json()["data"].as_array().unwrap().clone()
}

fn cents(usd: &Value) -> f64 {
    (usd.as_f64().unwrap_or_else(|| panic!("{usd}")) / CENT * 1e6).round() / 1e6
}

#[tokio::test]
async fn what_a_killed_gateway_held_is_listed_until_it_is_settled() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    let limits = |usd: f64| json!({"budget": {"usd": usd, "per": "month"}});
    let (unused, key) =
        (gateway.limited_key(limits(1.0)).await, gateway.limited_key(limits(0.2)).await);
    for _ in 0..20 {
        gateway.kill_9();
        gateway.start_again().await;
    }
    for key in [&unused, &key] {
        let budget = budget(&gateway, key).await;
        assert_eq!((cents(&budget["spent_usd"]), cents(&budget["lost_usd"])), (0.0, 0.0));
    }
    assert_eq!(lost(&gateway).await, [] as [Value; 0]);
    // With one chat each kill costs what that reserved, at most.
    let reserve = {
        assert_eq!(gateway.chat(&key, BODY).await.status, 200);
        until("it to be written", async || {
            let budget = budget(&gateway, &key).await;
            (cents(&budget["spent_usd"]) == 1.0).then_some(())
        })
        .await;
        gateway.kill_9();
        gateway.start_again().await;
        let budget = budget(&gateway, &key).await;
        let lost = cents(&budget["lost_usd"]);
        assert!((1.0..=18.0).contains(&lost), "{budget}");
        // What was drawn within the last half second is in what was held.
        assert!([0.0, 1.0].contains(&cents(&budget["spent_usd"])), "{budget}");
        lost
    };
    let listed = lost(&gateway).await;
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0]["subject"], &listed[0]["gateway"]), (&json!(key.id), &Value::Null));
    assert_eq!(cents(&listed[0]["held_usd"]), reserve);
    // An admin says what of it was spent.
    let settle = async |by: &str, usd: f64| {
        let body = json!({"subject": key.id, "period": listed[0]["period"], "spent_usd": usd});
        gateway.manage("PATCH", "/v1/router/usage", by, Some(&body)).await
    };
    envelope::management(&settle(&key.secret, 0.0).await, 403, "insufficient_scope");
    envelope::management(&settle(&gateway.admin_key, 5.0).await, 409, "conflict");
    assert_eq!(settle(&gateway.admin_key, 0.0).await.status, 204);
    envelope::management(&settle(&gateway.admin_key, 0.0).await, 409, "conflict");
    assert_eq!(lost(&gateway).await, [] as [Value; 0]);
    let budget = budget(&gateway, &key).await;
    assert_eq!(cents(&budget["lost_usd"]), 0.0, "{budget}");
    assert!(cents(&budget["spent_usd"]) <= 1.0, "{budget}");
    let audit =
        gateway.manage("GET", "/v1/audit?action=usage.settle", &gateway.admin_key, None).await;
    let rows = audit.json()["data"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["target"], json!({"type": "key", "id": key.id}));
}

#[tokio::test]
async fn a_gateway_that_is_stopped_while_it_starts_ends_in_order_and_holds_nothing() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    let key = gateway.limited_key(json!({"budget": {"usd": 1.0, "per": "month"}})).await;
    assert_eq!(gateway.chat(&key, BODY).await.status, 200);
    gateway.stop().await;
    for wait in [0, 1, 3, 10, 30, 60, 100] {
        gateway.begin_again().await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        gateway.signal("TERM");
        let status = gateway.ended().await;
        assert!(status.success(), "after {wait} ms: {status}\n{}", gateway.log());
    }
    gateway.start_again().await;
    assert_eq!(lost(&gateway).await, [] as [Value; 0]);
    assert_eq!(cents(&budget(&gateway, &key).await["spent_usd"]), 1.0);
}

/// Kills the gateway while it holds a part of the key's budget. Gives what is lost.
async fn lose(gateway: &mut Gateway, key: &Key) -> f64 {
    assert_eq!(gateway.chat(key, BODY).await.status, 200);
    assert!(gateway.metric("rerouter_budget_held_usd", &[]).await >= CENT);
    gateway.kill_9();
    gateway.start_again().await;
    let lost = lost(gateway).await[0]["held_usd"].as_f64().unwrap();
    // Without an account of the key, and with one.
    for _ in 0..2 {
        assert_eq!(gateway.metric("rerouter_budget_lost_usd", &[]).await, lost);
        budget(gateway, key).await;
    }
    lost
}

async fn command(gateway: &Gateway, arguments: &[&str]) -> Ran {
    let (url, key) = (format!("http://{}", gateway.host()), gateway.admin_key.as_str());
    let environment = [("REROUTER_URL", url.as_str()), ("REROUTER_API_KEY", key)];
    run(gateway.dir(), arguments, &environment).await
}

#[tokio::test]
async fn it_is_seen_and_settled_by_a_command_and_in_a_browser() {
    let provider = Provider::always(scripted::completion("a word")).await;
    let mut gateway = Gateway::start(&in_order(&[("a", &provider.url())], PRICED)).await;
    assert_eq!(gateway.metric("rerouter_budget_held_usd", &[]).await, 0.0);
    let key = gateway.limited_key(json!({"budget": {"usd": 1.0, "per": "month"}})).await;
    let held = lose(&mut gateway, &key).await;
    let table = command(&gateway, &["usage", "lost"]).await.well();
    let (titles, row) = table.split_once('\n').unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(titles.starts_with("SUBJECT ") && titles.ends_with("GATEWAY"), "{table}");
    let [subject, period, usd, _, "-"] = words[..] else { panic!("{table}") };
    assert_eq!((subject, usd), (key.id.as_str(), held.to_string().as_str()));
    let json = command(&gateway, &["usage", "lost", "--json"]).await.well();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["data"], json!(lost(&gateway).await));
    let settle =
        async |usd: &str| command(&gateway, &["usage", "settle", subject, period, usd]).await;
    settle("5").await.failed(3, "Dead processes held less than spent_usd");
    settle("a lot").await.failed(2, "invalid value");
    let since = ["usage", "--since", "7d", "lost"];
    command(&gateway, &since).await.failed(2, "cannot be used with");
    let told = settle("0.01").await.well();
    let expected = format!("0.01 USD of what was lost of {subject} in {period} count as spent\n");
    assert_eq!(told, expected);
    assert_eq!(command(&gateway, &["usage", "lost"]).await.well(), "no lost holds\n");
    command(&gateway, &["usage", "--by", "key"]).await.well();
    assert_eq!(gateway.metric("rerouter_budget_lost_usd", &[]).await, 0.0);

    lose(&mut gateway, &key).await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    let someone = account(&gateway, "someone@example.com", "user").await;
    (given["scene"], given["someone"]) = (json!("lost"), someone["email"].clone());
    (given["key"], given["period"]) = (json!(key.id), json!(period));
    drive("access", given).await;
    assert_eq!(lost(&gateway).await, [] as [Value; 0]);
    let budget = budget(&gateway, &key).await;
    // What was drawn within the last half second before a kill was in what was lost.
    assert!((2.0..=4.0).contains(&cents(&budget["spent_usd"])), "{budget}");
    let path = format!("/v1/audit?action=usage.settle&target={}", key.id);
    let audit = gateway.manage("GET", &path, &gateway.admin_key, None).await.json();
    assert_eq!(audit["data"].as_array().unwrap().len(), 2, "{audit}");
}
