//! The console's overview: its numbers, and its findings.

use rerouter::internals::clock::rfc3339;
use serde_json::{Value, json};

use crate::support::browser::{EMAIL, account, drive};
use crate::support::documents::{chat_body, in_order};
use crate::support::gateway::Gateway;
use crate::support::provider::{self as scripted, Provider};
use crate::support::until;

/// A document with three providers: the breaker of the first stays open, and the second has a
/// price.
fn routing(urls: [&str; 3]) -> String {
    let providers = ["a", "b", "c"].into_iter().zip(urls).collect::<Vec<_>>();
    let first = format!("base_url: {}\n", urls[0]);
    let opens = format!("{first}    breaker: {{ consecutive: 2, open: 300s }}\n");
    let prices = "models: { b/model: { input_per_mtok: 1, output_per_mtok: 4000 },
        a/model: { input_per_mtok: 0, output_per_mtok: 0 },
        c/model: { input_per_mtok: 0, output_per_mtok: 0 } }\n";
    in_order(&providers, prices).replacen(&first, &opens, 1)
}

#[tokio::test]
async fn the_overview_counts_what_was_sent_and_says_what_needs_attention() {
    let bad = Provider::always(scripted::failure(500, "so it is")).await;
    let good = Provider::always(scripted::completion("well")).await;
    let gateway = Gateway::start(&routing([&bad.url(), &good.url(), &bad.url()])).await;
    let mut given = account(&gateway, EMAIL, "admin").await;
    let someone = account(&gateway, "someone@example.com", "user").await;
    let admin = gateway.admin_key.clone();
    let budget = json!({"usd": 0.145, "per": "day"});
    let team = json!({"name": "team", "limits": {"budget": budget}});
    let team = gateway.make_key("/v1/router/keys", &admin, &team).await;
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(48);
    let soon = json!({"name": "soon", "expires_at": rfc3339(end)});
    let soon = gateway.make_key("/v1/router/keys", &admin, &soon).await;
    let plain = gateway.make_key("/v1/router/keys", &admin, &json!({"name": "plain"})).await;
    for _ in 0..10 {
        let answer = gateway.chat(&team, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    for _ in 0..3 {
        let answer = gateway.chat(&plain, chat_body("c/model", false).as_bytes()).await;
        assert!(answer.status >= 500, "{}", answer.text());
    }
    let usage = async |query: &str| {
        let path = format!("/v1/router/usage?{query}");
        let answer = gateway.answers(200, "GET", &path, &admin, None).await;
        answer.json()["data"].clone()
    };
    let total = usage("").await[0].clone();
    let sums = ["requests", "errors", "total_tokens"].map(|sum| total[sum].as_u64().unwrap());
    assert_eq!(sums, [13, 3, 100], "{total}");
    for quantiles in
        [&total["latency_ms"], &usage("interval=5m&group_by=time").await[0]["latency_ms"]]
    {
        assert!(quantiles["p50"].as_f64().unwrap() <= quantiles["p95"].as_f64().unwrap());
    }
    let rows = async |column: &str, name: &dyn Fn(&Value) -> String| {
        let order = if column == "key" { "cost_usd" } else { "requests" };
        let found = usage(&format!("interval=1h&order={order}&group_by={column}")).await;
        let row = |row: &Value| json!([name(&row[column]), row["requests"], row["errors"]]);
        found.as_array().unwrap().iter().map(row).collect::<Vec<Value>>()
    };
    let plainly = |value: &Value| value.as_str().unwrap_or("no answer").to_owned();
    let of_key = |value: &Value| {
        let is_team = *value == json!(team.id);
        if is_team { "team".to_owned() } else { "plain".to_owned() }
    };
    given["groups"] = json!({
        "recipe": rows("recipe", &plainly).await, "target": rows("model", &plainly).await,
        "key": rows("key", &of_key).await,
    });
    assert_eq!(given["groups"]["key"], json!([["team", 10, 0], ["plain", 3, 3]]));
    given["total"] = total;
    (given["team"], given["soon"]) = (json!(team.id), json!(soon.id));
    given["someone"] = someone["email"].clone();
    // A document with a mistake does not become live, and the overview says so.
    gateway.replace_routing("providers: { }\nrecipes: 5\n");
    gateway.hup().await;
    let refused = until("the refusal", async || {
        let status = gateway.manage("GET", "/v1/router/status", &admin, None).await.json();
        Some(status["document"]["refused"].clone()).filter(|refused| !refused.is_null())
    })
    .await;
    assert!(!refused["problems"].as_array().unwrap().is_empty(), "{refused}");
    drive("overview", given).await;
    // A valid document ends that finding.
    gateway.write_routing(&routing([&good.url(), &good.url(), &bad.url()])).await;
    let status = gateway.manage("GET", "/v1/router/status", &admin, None).await.json();
    assert_eq!(status["document"]["refused"], Value::Null);
    assert_eq!(status["captures"]["dropped"], json!(0));
}

/// Who spends most, by key and by label. The key with the fewest requests has the highest cost.
#[tokio::test]
async fn who_spends_most_is_one_look() {
    let good = Provider::always(scripted::completion("well")).await;
    let url = good.url();
    let gateway = Gateway::start(&routing([&url, &url, &url])).await;
    let given = account(&gateway, EMAIL, "admin").await;
    let chat = async |key: serde_json::Value, models: &[&str]| {
        let key = gateway.make_key("/v1/router/keys", &gateway.admin_key, &key).await;
        for model in models {
            let answer = gateway.chat(&key, chat_body(model, false).as_bytes()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    };
    // The newest hundred keys suggest labels. Of this one usage cannot be grouped by.
    chat(json!({"name": "odd", "labels": {"a, b": "x"}}), &["c/model"]).await;
    let labels = json!({"team": "search", "tier": "gold"});
    chat(json!({"name": "dear", "labels": labels}), &["b/model"]).await;
    for number in 0..12 {
        let labels = json!({"team": format!("team {}", number / 6)});
        let key = json!({"name": format!("free {number:02}"), "labels": labels});
        chat(key, &["c/model", "c/model"]).await;
    }
    drive("spending", given).await;
}

/// The lists of keys that need attention.
#[tokio::test]
async fn keys_are_listed_by_what_is_left_of_them() {
    let good = Provider::always(scripted::completion("well")).await;
    let urls = good.url();
    let gateway = Gateway::start(&routing([&urls, &urls, &urls])).await;
    let admin = gateway.admin_key.clone();
    let make = async |name: &str, more: Value| {
        let mut wanted = json!({ "name": name });
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        gateway.make_key("/v1/router/keys", &admin, &wanted).await
    };
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    make("ends", json!({ "expires_at": rfc3339(end) })).await;
    make("idle", json!({})).await;
    let spent = make("spent", json!({"limits": {"budget": {"usd": 0.04, "per": "month"}}})).await;
    make("full", json!({"limits": {"budget": {"usd": 5, "per": "month"}}})).await;
    let now = jiff::Timestamp::now();
    let answer = gateway.chat(&spent, chat_body("b/model", false).as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let tomorrow = now + jiff::SignedDuration::from_hours(24);
    let lists: [(String, &[&str]); 7] = [
        (format!("expires_before={tomorrow}"), &["ends"]),
        (format!("expires_before={now}"), &[]),
        (format!("unused_since={now}"), &["full", "idle", "ends"]),
        ("unused_since=2026-01-01T00:00:00Z".to_owned(), &[]),
        ("budget_used=0.3".to_owned(), &["spent"]),
        ("budget_used=0".to_owned(), &["full", "spent"]),
        ("budget_used=0.3&status=revoked".to_owned(), &[]),
    ];
    for (filter, names) in lists {
        let path = format!("/v1/router/keys?{filter}");
        let found = gateway.manage("GET", &path, &admin, None).await;
        let found = found.json()["data"].clone();
        let found: Vec<&str> =
            found.as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{filter}");
    }
    for bad in ["budget_used=2", "budget_used=x", "expires_before=soon", "unused_since="] {
        let path = format!("/v1/router/keys?{bad}");
        assert_eq!(gateway.manage("GET", &path, &admin, None).await.status, 400, "{bad}");
    }
    let path = "/v1/apikeys?budget_used=0.5";
    gateway.answers(400, "GET", path, &admin, None).await;
}
