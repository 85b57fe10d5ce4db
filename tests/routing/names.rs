//! Names under patterns, over the whole way: served, captured, counted, listed, evaluated and
//! rerouted, with as many metric series and sums as the document has entries.

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::{chat_body, provider};
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};

fn document(well: &Provider) -> String {
    format!(
        "providers:\n{}{}models:\n  well/priced: {{ input_per_mtok: 1, output_per_mtok: 2 }}\n  \
         \"well/*\": {{ input_per_mtok: 3, output_per_mtok: 4 }}\n\
         recipes:\n  rest:\n    rules:\n      \
         - {{ name: only, targets: [ {{ target: \"hub/org/${{match}}\" }} ] }}\n  \
         whole:\n    rules:\n      \
         - {{ name: only, targets: [ {{ target: \"well/${{model}}\" }} ] }}\n    \
         shadow: {{ target: \"hub/copy-${{model}}\", percent: 100 }}\n\
         aliases: {{ \"claude/*\": rest, \"gpt-*\": whole }}\n",
        provider("well", &well.url(), "${UPSTREAM_API_KEY}"),
        provider("hub", &well.url(), "${UPSTREAM_API_KEY}"),
    )
}

async fn start() -> (Gateway, Key, Provider) {
    let well = Provider::start(|request, _| {
        scripted::completion(request.json()["model"].as_str().unwrap())
    })
    .await;
    let gateway = Setup::new(&document(&well)).env("UPSTREAM_API_KEY", "sk-upstream").start().await;
    let key = gateway.create_key().await;
    (gateway, key, well)
}

/// What a good answer says was served.
fn served(answer: &Answer) -> (String, String, String) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
    let text = answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert_eq!(text, header("x-rerouter-model"), "the provider got the model that we name");
    (header("x-rerouter-provider"), header("x-rerouter-model"), header("x-rerouter-recipe"))
}

#[tokio::test]
async fn names_under_patterns_are_served_captured_and_decided_again() {
    let (gateway, key, well) = start().await;
    let mut ids = Vec::new();
    for (asked, provider, model, recipe, alias) in [
        ("claude/sonnet", "hub", "org/sonnet", "rest", json!("claude/*")),
        ("gpt-x", "well", "gpt-x", "whole", json!("gpt-*")),
        ("well/some/model:1", "well", "some/model:1", "direct", Value::Null),
        ("well/priced", "well", "priced", "direct", Value::Null),
    ] {
        let answer = gateway.chat(&key, chat_body(asked, false).as_bytes()).await;
        assert_eq!(served(&answer), (provider.into(), model.into(), recipe.into()), "{asked}");
        let capture = gateway.capture(&answer.request_id()).await;
        assert_eq!(
            (&capture["model"], &capture["decision"]["alias"], &capture["served"]["model"]),
            (&json!(asked), &alias, &json!(model)),
            "{capture}"
        );
        // A price of its own, of its pattern, or none.
        assert_eq!(capture["cost_usd"].is_null(), provider == "hub", "{asked}");
        ids.push((answer.request_id(), model));
    }
    for asked in ["hub/org/sonnet", "claude", "other", "hub/x"] {
        let answer = gateway.chat(&key, chat_body(asked, false).as_bytes()).await;
        envelope::openai(&answer, 404, "invalid_request_error", Some("model_not_found"));
    }
    for (id, model) in &ids {
        let target = format!("/v1/router/replay/{id}/reroute");
        let again = gateway.answers(200, "POST", &target, &key.secret, Some(&json!({}))).await;
        assert_eq!(again.json()["decision"]["model"], json!(model));
    }
    // The shadow follows the name.
    crate::support::until("the shadow's capture", async || {
        let list = "/v1/router/replay?shadow=true";
        let list = gateway.manage("GET", list, &gateway.admin_key, None).await.json();
        let copies = list["data"].as_array().unwrap().iter();
        copies.clone().any(|copy| copy["served"]["model"] == "copy-gpt-x").then_some(())
    })
    .await;
    // The same document decides alike, also the four names that it does not know. One without the
    // patterns finds no target.
    let evaluate = async |document: Value| {
        let body = json!({ "document": document });
        let target = "/v1/router/replay/evaluate";
        let answer = gateway.answers(200, "POST", target, &gateway.admin_key, Some(&body)).await;
        answer.json()
    };
    let live = document(&well);
    let same = evaluate(json!(live)).await;
    assert_eq!(
        (&same["evaluated"], &same["changed"], &same["unroutable"], &same["assumed"]),
        (&json!(8), &json!(0), &json!(0), &json!(0)),
        "{same}"
    );
    let other = live.replace("claude/*", "other/*").replace("\"well/*\"", "well/fixed");
    let other = evaluate(json!(other)).await;
    assert_eq!((&other["changed"], &other["unroutable"]), (&json!(2), &json!(2)), "{other}");
}

#[tokio::test]
async fn clients_cannot_make_series_or_sums_by_the_names_they_choose() {
    let (gateway, key, _well) = start().await;
    for number in 0..12 {
        for asked in [format!("well/any-{number}"), format!("claude/any-{number}")] {
            let answer = gateway.chat(&key, chat_body(&asked, false).as_bytes()).await;
            served(&answer);
        }
    }
    let metrics = gateway.metrics().await;
    assert!(!metrics.contains("any-"), "a series has the name of a client");
    for (name, provider, model) in [
        ("rerouter_decisions_total", "well", "*"),
        ("rerouter_upstream_attempts_total", "hub", "org/*"),
        ("rerouter_cost_usd_total", "well", "*"),
    ] {
        let labels = [format!("provider=\"{provider}\""), format!("model=\"{model}\"")];
        let value = gateway.metric(name, &labels.each_ref().map(String::as_str)).await;
        assert!(value > 0.0, "{name}");
    }
    let labels = ["provider=\"hub\"", "model=\"org/*\""];
    assert_eq!(gateway.metric("rerouter_inflight", &labels).await, 0.0);
    let target = "/v1/router/usage?group_by=model";
    let used = gateway.manage("GET", target, &key.secret, None).await.json();
    let mut models: Vec<&str> =
        used["data"].as_array().unwrap().iter().filter_map(|row| row["model"].as_str()).collect();
    models.sort_unstable();
    assert_eq!(models, ["hub/org/*", "well/*"], "{used}");
}

#[tokio::test]
async fn what_can_be_listed_is_listed_and_what_a_pattern_takes_is_found() {
    let (gateway, key, _well) = start().await;
    let bearer = format!("Bearer {}", key.secret);
    let get =
        async |path: &str| gateway.send("GET", path, &[("authorization", &bearer)], None).await;
    let list = get("/v1/models").await.json();
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["well/priced"]);
    for (id, owner) in [("claude/any", "rerouter"), ("gpt-5", "rerouter"), ("well/a/b", "well")] {
        let model = get(&format!("/v1/models/{id}")).await;
        assert_eq!((model.status, &model.json()["owned_by"]), (200, &json!(owner)), "{id}");
    }
    for id in ["hub/any", "claude"] {
        assert_eq!(get(&format!("/v1/models/{id}")).await.status, 404, "{id}");
    }
    // Limits of keys hold the names that clients ask for.
    let limits = json!({ "limits": { "models": ["gpt-5*"] } });
    let made = gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&limits)).await;
    let record = made.json();
    let text = |field: &str| record[field].as_str().unwrap().to_owned();
    let narrow = Key { id: text("id"), secret: text("key") };
    served(&gateway.chat(&narrow, chat_body("gpt-5-mini", false).as_bytes()).await);
    for asked in ["gpt-4", "well/gpt-5"] {
        let answer = gateway.chat(&narrow, chat_body(asked, false).as_bytes()).await;
        envelope::openai(&answer, 404, "invalid_request_error", Some("model_not_found"));
    }
}

#[tokio::test]
async fn a_document_that_names_more_exactly_goes_live_without_warnings() {
    let (gateway, key, well) = start().await;
    let answer = gateway.chat(&key, chat_body("gpt-x", false).as_bytes()).await;
    served(&answer);
    let text = document(&well)
        .replace("models:\n", "models:\n  well/gpt-x: { input_per_mtok: 9, output_per_mtok: 9 }\n");
    gateway.write_routing(&text).await;
    served(&gateway.chat(&key, chat_body("gpt-x", false).as_bytes()).await);
    let exact = ["provider=\"well\"", "model=\"gpt-x\""];
    assert_eq!(gateway.metric("rerouter_decisions_total", &exact).await, 1.0);
    assert!(!gateway.log().contains("is gone"), "{}", gateway.log());
}
