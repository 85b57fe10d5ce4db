//! Providers by one word: what reaches them, whose settings win, and what is refused.

use serde_json::{Value, json};

use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Setup};
use crate::support::provider::{self as scripted, Provider};

fn document(providers: &str, target: &str) -> String {
    format!(
        "providers:\n{providers}\n\
         recipes: {{ r: {{ rules: [ \
         {{ name: x, targets: [ {{ target: \"{target}\" }} ] }} ] }} }}\n\
         aliases: {{ auto: r }}\n"
    )
}

#[tokio::test]
async fn each_reaches_its_provider_in_the_provider_s_own_way() {
    let provider = Provider::always(scripted::completion("well")).await;
    let root = format!("http://{}", provider.address());
    for (settings, model, target, header, value) in [
        (
            "preset: groq, base_url: ROOT",
            "m",
            "/openai/v1/chat/completions",
            "authorization",
            "Bearer sk-preset-1",
        ),
        (
            "preset: openrouter, base_url: ROOT/",
            "a/m",
            "/api/v1/chat/completions",
            "authorization",
            "Bearer sk-preset-1",
        ),
        (
            "preset: bedrock, base_url: ROOT",
            "m",
            "/openai/v1/chat/completions",
            "authorization",
            "Bearer sk-preset-1",
        ),
        (
            "preset: mistral, base_url: ROOT",
            "m",
            "/v1/chat/completions",
            "authorization",
            "Bearer sk-preset-1",
        ),
        (
            "preset: azure, base_url: ROOT",
            "gpt-5_x.1",
            "/openai/deployments/gpt-5_x.1/chat/completions?api-version=2024-10-21",
            "api-key",
            "sk-preset-1",
        ),
        // What the document says wins.
        (
            "preset: azure, base_url: \"ROOT?api-version=2025-01-01-preview\"",
            "m",
            "/openai/deployments/m/chat/completions?api-version=2025-01-01-preview",
            "api-key",
            "sk-preset-1",
        ),
        (
            "preset: azure, base_url: ROOT/openai/v1",
            "m",
            "/openai/v1/chat/completions",
            "api-key",
            "sk-preset-1",
        ),
        (
            "preset: groq, base_url: ROOT/own",
            "m",
            "/own/chat/completions",
            "authorization",
            "Bearer sk-preset-1",
        ),
    ] {
        let settings = settings.replace("ROOT", &root);
        let line = format!("  p: {{ {settings}, api_key: \"${{PRESET_API_KEY}}\" }}");
        let gateway = Setup::new(&document(&line, &format!("p/{model}")))
            .env("PRESET_API_KEY", "sk-preset-1")
            .start()
            .await;
        let key = gateway.create_key().await;
        let answer = gateway.chat(&key, chat_body("auto", false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{settings}: {}", answer.text());
        let received = provider.last();
        assert_eq!(received.target, target, "{settings}");
        assert_eq!(received.header(header).as_deref(), Some(value), "{settings}");
        let other = if header == "api-key" { "authorization" } else { "api-key" };
        assert_eq!(received.header(other), None, "{settings}");
        assert_eq!(received.json()["model"], json!(model), "{settings}");
    }
}

#[tokio::test]
async fn an_azure_deployment_is_the_model_that_a_pattern_takes_and_a_client_s_query_follows() {
    let provider = Provider::always(scripted::completion("well")).await;
    let line = format!(
        "  azure: {{ preset: azure, base_url: \"http://{}\", api_key: sk-azure-12345 }}",
        provider.address()
    );
    let gateway =
        Gateway::start(&document(&line, "azure/${match}").replace("auto", "\"gpt-*\"")).await;
    let key = gateway.create_key().await;
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = r#"{"model":"gpt-mine","input":"hello"}"#;
    let target = "/v1/embeddings?trace=1&api-version=9";
    let answer = gateway.send("POST", target, &headers, Some(body.as_bytes())).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        provider.last().target,
        "/openai/deployments/mine/embeddings?api-version=2024-10-21&trace=1"
    );
    // No name leads to another path.
    for asked in ["gpt-..", "gpt-a/../b", "gpt-a%2Fb", "gpt-"] {
        let refused = gateway.chat(&key, chat_body(asked, false).as_bytes()).await;
        assert_eq!(refused.status, 404, "{asked}: {}", refused.text());
    }
    assert_eq!(provider.count(), 1);
    // No answer shows the key.
    let capture = gateway.capture(&answer.request_id()).await;
    assert!(!capture.to_string().contains("sk-azure"), "{capture}");
}

#[tokio::test]
async fn documents_with_presets_are_checked_like_others() {
    let gateway = Gateway::start(&document("  demo: { protocol: mock }", "demo/echo")).await;
    let problems = async |line: &str| -> Vec<String> {
        let document = document(&format!("  p: {{ {line} }}"), "p/m");
        let target = "/v1/router/config/validate";
        let bearer = format!("Bearer {}", gateway.admin_key);
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/yaml")];
        let answer = gateway.send("POST", target, &headers, Some(document.as_bytes())).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer: Value = answer.json();
        let list = answer["problems"].as_array().unwrap();
        list.iter().map(|problem| format!("{} ({})", problem["message"], problem["hint"])).collect()
    };
    for good in [
        "preset: groq",
        "preset: openai",
        "preset: anthropic",
        "preset: gemini",
        "preset: gemini, protocol: gemini",
        "preset: vllm",
        "preset: ollama",
        "preset: deepseek, api_key: \"${D_API_KEY}\"",
        "preset: groq, protocol: openai",
    ] {
        assert_eq!(problems(good).await, Vec::<String>::new(), "{good}");
    }
    for (bad, says) in [
        ("preset: grok", "groq"),
        ("preset: azure", "base_url: https://RESOURCE.openai.azure.com"),
        ("preset: bedrock", "base_url: https://bedrock-runtime.REGION.amazonaws.com"),
        ("preset: groq, protocol: anthropic", "`groq` speaks `openai`"),
        ("preset: gemini, protocol: openai", "`gemini` speaks `gemini`"),
        (
            "preset: azure, base_url: https://x, api_key: \"${A_API_KEY}\", \
             headers: { api-key: \"${B_API_KEY}\" }",
            "`api_key` sets this header already",
        ),
        ("api_key: \"${A_API_KEY}\"", "`protocol` is missing"),
    ] {
        let found = problems(bad).await;
        assert!(found.iter().any(|problem| problem.contains(says)), "{bad}: {found:?}");
    }
}
