//! The shipped prices: costs and budgets without configuration, prices in the document, which take
//! precedence, and messages about prices.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider};

/// A document with a preset at a scripted provider, an unknown provider of the same protocol, and
/// the given entries of `models` and other keys.
fn document(provider: &Provider, models: &str, more: &str) -> String {
    let root = format!("http://{}", provider.address());
    format!(
        "providers:\n  openai: {{ preset: openai, base_url: {root}, api_key: sk-prices-1 }}\n  \
         other: {{ protocol: openai, base_url: {root}/v1 }}\n\
         models: {{ {models} }}\n\
         recipes: {{ r: {{ rules: [ \
         {{ name: x, targets: [ {{ target: openai/gpt-5-mini }} ] }} ] }} }}\n\
         aliases: {{ auto: r }}\n{more}"
    )
}

/// A provider that reports a million prompt tokens, 400,000 of them cached, and 100,000 answer
/// tokens.
async fn provider() -> Provider {
    let mut body = scripted::completion_body("well");
    body["usage"] = json!({
        "prompt_tokens": 1_000_000, "completion_tokens": 100_000, "total_tokens": 1_100_000,
        "prompt_tokens_details": { "cached_tokens": 400_000 },
    });
    Provider::always(scripted::json_answer(200, &body)).await
}

async fn cost(gateway: &Gateway, key: &Key, model: &str) -> Value {
    let answer = gateway.chat(key, chat_body(model, false).as_bytes()).await;
    assert_eq!(answer.status, 200, "{model}: {}", answer.text());
    gateway.capture(&answer.request_id()).await["cost_usd"].clone()
}

/// Sends a chat with a new key, whose budget is `usd` a day.
async fn within(gateway: &Gateway, usd: f64, model: &str) -> Answer {
    let body = json!({ "limits": { "budget": { "usd": usd, "per": "day" } } });
    let made = gateway.manage("POST", "/v1/router/keys", &gateway.admin_key, Some(&body)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let record = made.json();
    let text = |field: &str| record[field].as_str().unwrap().to_owned();
    let key = Key { id: text("id"), secret: text("key") };
    gateway.chat(&key, chat_body(model, false).as_bytes()).await
}

#[tokio::test]
async fn known_models_have_a_cost_and_budgets_on_the_first_day() {
    let provider = provider().await;
    let gateway =
        Setup::new(&document(&provider, "\"openai/*\": {}, \"other/*\": {}", "")).start().await;
    let key = gateway.create_key().await;
    // gpt-5-mini costs 0.25 in, 0.025 cached, 2 out.
    let mini = 0.6 * 0.25 + 0.4 * 0.025 + 0.1 * 2.0;
    let known = cost(&gateway, &key, "auto").await.as_f64().unwrap();
    assert!((known - mini).abs() < 1e-9, "{known}");
    // A name that matches a pattern has prices too: 0.05 in, 0.005 cached, 0.4 out.
    let nano = cost(&gateway, &key, "openai/gpt-5-nano").await.as_f64().unwrap();
    assert!((nano - mini / 5.0).abs() < 1e-9, "{nano}");
    // Prices of an unknown model or host are not guessed.
    assert_eq!(cost(&gateway, &key, "openai/gpt-5-nano-2099").await, Value::Null);
    assert_eq!(cost(&gateway, &key, "other/gpt-5-mini").await, Value::Null);
    for (usd, model, status) in
        [(5.0, "auto", 200), (0.000_01, "auto", 429), (5.0, "other/gpt-5-mini", 403)]
    {
        let answer = within(&gateway, usd, model).await;
        assert_eq!(answer.status, status, "{usd} {model}: {}", answer.text());
    }
    // Plans use the capabilities in the list of models: gpt-5-nano takes no audio.
    let audio = concat!(
        r#"{"model":"openai/gpt-5-nano","messages":[{"role":"user","#,
        r#""content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]}"#,
    );
    let refused = gateway.chat(&key, audio.as_bytes()).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("openai/gpt-5-nano: capability"), "{}", refused.text());
    // Known names that match the pattern are listed, but not those of an unknown provider.
    let bearer = format!("Bearer {}", key.secret);
    let list = gateway.send("GET", "/v1/models", &[("authorization", &bearer)], None).await.json();
    let ids: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert!(ids.starts_with(&["auto", "openai/gpt-5-mini"]), "{ids:?}");
    assert!(ids.contains(&"openai/gpt-5-nano") && !ids.iter().any(|id| id.starts_with("other/")));
    assert_eq!(ids.iter().filter(|id| **id == "openai/gpt-5-mini").count(), 1);
}

#[tokio::test]
async fn a_document_s_own_prices_win_together_and_all_can_be_left_out() {
    let provider = provider().await;
    let own = "openai/gpt-5-mini: { input_per_mtok: 1, output_per_mtok: 1 }, \
        \"openai/gpt-5-n*\": { context: 100000 }";
    let gateway = Setup::new(&document(&provider, own, "")).start().await;
    let key = gateway.create_key().await;
    // No cached price comes from the shipped list, so cached tokens cost the full price.
    assert_eq!(cost(&gateway, &key, "auto").await, json!(1.1));
    // A `context` in the document leaves the shipped prices in place.
    assert!(cost(&gateway, &key, "openai/gpt-5-nano").await.is_number());

    let gateway = Setup::new(&document(&provider, "", "prices: none\n")).start().await;
    let key = gateway.create_key().await;
    assert_eq!(cost(&gateway, &key, "auto").await, Value::Null);
    assert_eq!(within(&gateway, 5.0, "auto").await.status, 403);
}

#[tokio::test]
async fn the_models_that_claude_code_asks_for_are_within_a_budget() {
    let answer = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
        "content": [{"type": "text", "text": "well"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 1000, "output_tokens": 10},
    });
    let provider = Provider::always(scripted::json_answer(200, &answer)).await;
    let routing = format!(
        "providers:\n  anthropic: {{ preset: anthropic, base_url: http://{}, api_key: sk-1 }}\n\
         models: {{ \"anthropic/*\": {{}} }}\n\
         recipes: {{ claude: {{ rules: [ {{ name: default, targets: [ \
         {{ target: \"anthropic/${{model}}\" }} ] }} ] }} }}\n\
         aliases: {{ \"claude-*\": claude }}\n",
        provider.address()
    );
    let gateway = Setup::new(&routing).start().await;
    let budget = json!({ "budget": { "usd": 5, "per": "day" } });
    let key = gateway.limited_key(budget).await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    // Models in docs/clients.md and docs/from-litellm.md, and a dated version.
    for model in ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-haiku-4-5"] {
        let body = json!({
            "model": model, "max_tokens": 32_000,
            "messages": [{"role": "user", "content": "Hello!"}],
        });
        let body = body.to_string();
        let answer = gateway.send("POST", "/v1/messages", &headers, Some(body.as_bytes())).await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let cost = gateway.capture(&answer.request_id()).await["cost_usd"].as_f64();
        assert!(cost.is_some_and(|cost| cost > 0.0), "{model}: {cost:?}");
    }
}

fn check(document: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("r.yaml", document);
    write("s.yaml", "routing: { file: r.yaml }\n");
    let output = Command::new(Path::new(env!("CARGO_BIN_EXE_rerouter")))
        .args(["check", "--config", "s.yaml"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    text(output.stdout) + &text(output.stderr)
}

#[tokio::test]
async fn check_says_which_shipped_prices_are_used() {
    let provider = provider().await;
    let said = check(&document(&provider, "\"openai/*\": {}", ""));
    let line = said.lines().find(|line| line.contains("shipped prices of 20")).unwrap_or_default();
    assert!(line.ends_with(" for openai/gpt-5-mini, openai/*"), "{said}");
    let own = "openai/gpt-5-mini: { input_per_mtok: 1, output_per_mtok: 1 }";
    for (models, more) in [(own, ""), ("\"openai/*\": {}", "prices: none\n")] {
        let said = check(&document(&provider, models, more));
        assert!(said.contains("good, revision") && !said.contains("shipped prices"), "{said}");
    }
    let wrong = check(&document(&provider, "", "prices: some\n"));
    assert!(wrong.contains("`shipped`, `none`"), "{wrong}");
}

#[test]
fn a_model_that_may_be_misspelt_is_told_with_what_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let models = "\"openai/gpt-5-mni\": {}, \"openai/gpt-9-mini\": {}, \"other/gpt-5-mni\": {}";
    let document = format!(
        "providers:\n  openai: {{ preset: openai, api_key: \"${{OPENAI_API_KEY}}\" }}\n  \
         other: {{ protocol: openai, base_url: \"http://127.0.0.1:1/v1\" }}\n\
         models: {{ {models} }}\nrecipes: {{}}\naliases: {{}}\n"
    );
    std::fs::write(dir.path().join("r.yaml"), document).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_rerouter"));
    let check = check.args(["check", "--no-env", "--routing", "r.yaml"]).current_dir(dir.path());
    let told = String::from_utf8(check.output().unwrap().stderr).unwrap();
    let meant = "(did you mean `gpt-5-mini`? Else write models: { openai/gpt-5-mni: {";
    assert!(told.contains(meant), "{told}");
    // A name with another number is a newer model. For other providers, no names are known.
    assert_eq!(told.matches("no price is known").count(), 3, "{told}");
    assert_eq!(told.matches("did you mean").count(), 1, "{told}");
}
