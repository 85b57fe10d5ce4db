//! Token counts: who counts, and how an estimate is marked.

use serde_json::{Value, json};

use crate::requests::endpoints::post;
use crate::support::client::Answer;
use crate::support::envelope;
use crate::support::gateway::{Gateway, Key};
use crate::support::provider::{self as scripted, Provider};
use crate::translation::dialects::{document, gateway};

const PATH: &str = "/v1/messages/count_tokens";

fn question(model: &str) -> Value {
    json!({
        "model": model, "system": "Be brief.",
        "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    })
}

async fn count(gateway: &Gateway, key: &Key, body: &Value) -> Answer {
    post(gateway, key, PATH, &[("anthropic-version", "2023-06-01")], &body.to_string()).await
}

fn check_estimate(answer: &Answer, attempts: &str) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-rerouter-estimated"), Some("input_tokens"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-rerouter-attempts"), Some(attempts));
    assert_eq!(
        (answer.header("x-rerouter-provider"), answer.header("x-should-retry")),
        (None, None)
    );
    let told = answer.json();
    assert_eq!(told["estimated"], true, "{told}");
    assert!((15..500).contains(&told["input_tokens"].as_u64().unwrap()), "{told}");
}

#[tokio::test]
async fn a_provider_without_counts_is_not_asked() {
    let open = Provider::always(scripted::completion("word")).await;
    let url = open.url();
    let (gateway, key) = gateway(&document(&[("a", "openai", &url)])).await;
    let answer = count(&gateway, &key, &question("auto")).await;
    check_estimate(&answer, "0");
    assert_eq!(open.count(), 0);
    let capture = gateway.capture(&answer.request_id()).await;
    assert_eq!(capture["state"], "completed", "{capture}");
    assert_eq!(capture["endpoint"], "messages.count_tokens");
    assert_eq!(capture["response"]["body"], answer.text());
    assert_eq!(capture["decision"]["provider"], "a");
    assert_eq!(capture["decision"]["attempts"], json!([]));
    for nothing in ["usage", "cost_usd", "served", "error"] {
        assert!(capture[nothing].is_null(), "{nothing}: {capture}");
    }
    // A longer prompt has a higher count.
    let mut long = question("auto");
    long["messages"][0]["content"] = "Why? ".repeat(300).into();
    let tokens = |answer: &Answer| answer.json()["input_tokens"].as_u64().unwrap();
    let longer = tokens(&count(&gateway, &key, &long).await);
    assert!(longer > tokens(&answer) + 300, "{longer}");
    let target = format!("/v1/router/replay/{}/reroute", answer.request_id());
    let rerouted = gateway.manage("POST", &target, &key.secret, None).await;
    assert_eq!(rerouted.status, 200, "{}", rerouted.text());
    let rerouted = rerouted.json();
    assert_eq!(rerouted["response"], answer.json(), "{rerouted}");
    assert_eq!(rerouted["response_kind"], "messages.count_tokens");
    // A prompt that does not fit is counted, too.
    let small = document(&[("a", "openai", &url)])
        .replace("input_per_mtok: 1.0", "context: 100, input_per_mtok: 1.0");
    gateway.write_routing(&small).await;
    assert_eq!(tokens(&count(&gateway, &key, &long).await), longer);
    // A count uses no budget, even if no price is known.
    let text = document(&[("a", "openai", &url)])
        .replace("input_per_mtok: 1.0, output_per_mtok: 10.0", "");
    gateway.write_routing(&text).await;
    let poor = gateway.limited_key(json!({"budget": {"usd": 0.000001, "per": "day"}})).await;
    check_estimate(&count(&gateway, &poor, &question("auto")).await, "0");
    // Errors have Anthropic's envelope.
    let wrong = count(&gateway, &key, &json!({"model": "auto", "messages": {}})).await;
    envelope::anthropic(&wrong, 400, "invalid_request_error");
}

#[tokio::test]
async fn gemini_counts_what_it_can_be_asked() {
    let google = Provider::start(|received, number| match number {
        0 | 1 => scripted::json_answer(200, &json!({"totalTokens": 31})),
        2 => scripted::json_answer(200, &json!({"tokens": "many"})),
        _ => {
            assert!(received.target.ends_with(":countTokens"));
            let error =
                json!({"error": {"code": 429, "message": "Slow.", "status": "RESOURCE_EXHAUSTED"}});
            scripted::json_answer(429, &error)
        }
    })
    .await;
    let open = Provider::always(scripted::completion("word")).await;
    let (url, open_url) = (google.url(), open.url());
    let text = document(&[("g", "gemini", &url)]);
    let (gateway, key) = gateway(&text).await;
    let answer = count(&gateway, &key, &question("auto")).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 31})));
    assert_eq!(answer.header("x-rerouter-estimated"), None);
    assert_eq!(answer.header("x-rerouter-provider"), Some("g"));
    let received = google.last();
    assert_eq!(received.target, "/v1/models/model:countTokens");
    let asked = &received.json()["generateContentRequest"];
    assert_eq!(asked["model"], "models/model");
    assert_eq!(asked["systemInstruction"]["parts"][0]["text"], "Be brief.");
    assert_eq!(asked["tools"][0]["functionDeclarations"][0]["name"], "look");
    let capture = gateway.capture(&answer.request_id()).await;
    assert!(capture["usage"].is_null() && capture["cost_usd"].is_null(), "{capture}");
    assert_eq!(capture["served"]["provider"], "g");
    // Members that do not matter are dropped and named. If a member that matters cannot be
    // translated, the provider is not asked.
    let mut body = question("auto");
    body["service_tier"] = "auto".into();
    let answer = count(&gateway, &key, &body).await;
    assert_eq!(answer.header("x-rerouter-dropped"), Some("service_tier"));
    body["tools"] = json!([{"type": "computer_20250124", "name": "computer"}]);
    check_estimate(&count(&gateway, &key, &body).await, "0");
    assert_eq!(google.count(), 2);
    // An answer without a count is a failure. A provider's error goes to the client.
    assert_eq!(count(&gateway, &key, &question("auto")).await.status, 502);
    let limited = count(&gateway, &key, &question("auto")).await;
    envelope::anthropic(&limited, 429, "rate_limit_error");
    // The next target takes over. It cannot count, so the gateway estimates without asking it.
    gateway.write_routing(&document(&[("g", "gemini", &url), ("a", "openai", &open_url)])).await;
    check_estimate(&count(&gateway, &key, &question("auto")).await, "1");
    assert_eq!(open.count(), 0);
}

#[tokio::test]
async fn anthropic_counts_in_its_own_words_where_the_provider_has_it() {
    let claude = Provider::always(scripted::json_answer(200, &json!({"input_tokens": 9}))).await;
    let url = claude.url();
    let text = document(&[("a", "anthropic", &url)]);
    let (gateway, key) = gateway(&text).await;
    let answer = count(&gateway, &key, &question("auto")).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"input_tokens": 9})));
    assert_eq!(claude.last().target, "/v1/messages/count_tokens");
    assert_eq!(answer.header("x-rerouter-estimated"), None);
    let without = text.replacen(
        "protocol: anthropic\n",
        "protocol: anthropic\n    endpoints: [messages]\n",
        1,
    );
    gateway.write_routing(&without).await;
    check_estimate(&count(&gateway, &key, &question("auto")).await, "0");
    assert_eq!(claude.count(), 1);
    // An estimate is not something a shadow can compare.
    let shadow = "    shadow: { target: o/model, percent: 100 }\n    retry:";
    let both = document(&[("a", "anthropic", &url), ("o", "openai", &url)]);
    gateway.write_routing(&both.replace("    retry:", shadow)).await;
    assert_eq!(count(&gateway, &key, &question("auto")).await.json(), json!({"input_tokens": 9}));
    let ineligible = ["outcome=\"ineligible\""];
    assert_eq!(gateway.metric("rerouter_shadows_total", &ineligible).await, 1.0);
}
