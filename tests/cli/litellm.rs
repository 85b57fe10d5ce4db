//! `rerouter import litellm` with configurations after the examples of LiteLLM's public
//! documentation. Each imports, passes `check` and serves. The import lists what it cannot convert.

use std::path::Path;

use serde_json::Value;

use crate::support::command::run;
use crate::support::documents::chat_body;
use crate::support::gateway::Setup;
use crate::support::provider::{self as scripted, Provider};
use crate::support::schema::assert_valid;

/// Imports a configuration. Returns the routing document and the messages.
pub(crate) async fn import(dir: &Path, configuration: &str) -> (String, String) {
    std::fs::write(dir.join("config.yaml"), configuration).unwrap();
    let imported = run(dir, &["import", "litellm", "config.yaml"], &[]).await;
    let (routing, told) = imported.well_told();
    // The documents are valid, whatever the variables contain.
    std::fs::write(dir.join("routing.yaml"), &routing).unwrap();
    let write = ["import", "litellm", "config.yaml", "--dir", "conf", "--force"];
    run(dir, &write, &[]).await.well();
    let check = ["check", "--no-env", "--config", "conf/rerouter.yaml"];
    run(dir, &check, &[]).await.well();
    for (document, file) in [("server", "rerouter.yaml"), ("routing", "routing.yaml")] {
        let text = std::fs::read_to_string(dir.join("conf").join(file)).unwrap();
        assert_valid(document, file, &text);
    }
    (routing, told)
}

/// Two deployments under one name, a fallback, an alias, a default model and prices.
const BALANCED: &str = r#"
model_list:
  - model_name: fast
    litellm_params:
      model: openai/small-a
      api_base: FIRST
      api_key: os.environ/FIRST_API_KEY
      rpm: 900
      timeout: 30
  - model_name: fast
    litellm_params:
      model: openai/small-b
      api_base: SECOND
      api_key: os.environ/SECOND_API_KEY
      rpm: 100
  - model_name: strong
    litellm_params:
      model: openai/large
      api_base: SECOND
      api_key: os.environ/SECOND_API_KEY
      input_cost_per_token: 0.000003
      output_cost_per_token: 0.000015
    model_info: { id: the-strong-one, max_input_tokens: 200000, supports_vision: False }
router_settings:
  routing_strategy: simple-shuffle
  model_group_alias: { gpt-4: strong }
  num_retries: 2
litellm_settings:
  drop_params: True
  fallbacks: [{ fast: [strong] }]
  cache: True
  success_callback: ["langfuse"]
general_settings:
  master_key: sk-1234
  database_url: os.environ/DATABASE_URL
"#;

#[tokio::test]
async fn names_targets_fallbacks_and_prices_are_carried() {
    let first = Provider::always(scripted::failure(500, "down")).await;
    let second = Provider::always(scripted::completion("from the second")).await;
    let dir = tempfile::tempdir().unwrap();
    let text =
        BALANCED.replace("FIRST_", "@").replace("FIRST", &first.url()).replace('@', "FIRST_");
    let text =
        text.replace("SECOND_", "@").replace("SECOND", &second.url()).replace('@', "SECOND_");
    let (routing, told) = import(dir.path(), &text).await;
    for word in [
        "general_settings.master_key: start rerouter with ADMIN_API_KEY",
        "general_settings.database_url: ",
        "litellm_settings.cache: answers are not cached",
        "litellm_settings.success_callback: ",
        "rpm, tpm: used only as weights among this name's targets",
        "FIRST_API_KEY, SECOND_API_KEY",
        "Imported 3 model name(s)",
    ] {
        assert!(told.contains(word), "no {word} in {told}");
    }
    assert!(!told.contains("sk-1234") && !routing.contains("sk-1234"), "{told}{routing}");
    let setup = Setup::new(&routing).env("FIRST_API_KEY", "one").env("SECOND_API_KEY", "two");
    let gateway = setup.start().await;
    let key = gateway.create_key().await;
    for (name, model) in [("strong", "large"), ("gpt-4", "large")] {
        let answer = gateway.chat(&key, chat_body(name, false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(second.last().json()["model"], model);
        assert_eq!(second.last().header("authorization").as_deref(), Some("Bearer two"));
    }
    let answer = gateway.chat(&key, chat_body("fast", false).as_bytes()).await;
    assert!(answer.text().contains("from the second"), "{}", answer.text());
    let capture = gateway.capture(&answer.request_id()).await;
    let plan: Vec<&str> = capture["decision"]["plan"]
        .as_array()
        .unwrap()
        .iter()
        .map(|target| target["model"].as_str().unwrap())
        .collect();
    assert_eq!((plan.len(), plan[2]), (3, "large"), "the fallback is the last: {plan:?}");
    let answer = gateway.chat(&key, chat_body("strong", false).as_bytes()).await;
    let capture = gateway.capture(&answer.request_id()).await;
    // 7 tokens at 3 dollars a million, and 3 tokens at 15.
    assert_eq!(capture["cost_usd"], Value::from(0.000066));
}

#[tokio::test]
async fn patterns_credentials_and_ids_are_carried() {
    let provider = Provider::always(scripted::completion("yes")).await;
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
model_list:
  - model_name: "local/*"
    litellm_params: {{ model: "openai/*", litellm_credential_name: desk }}
  - model_name: "*"
    litellm_params: {{ model: "openai/*", litellm_credential_name: desk }}
  - model_name: exact
    litellm_params: {{ model: hosted_vllm/org/model, api_base: "{url}", api_key: secret-canary }}
    model_info: {{ id: by-id }}
  - model_name: falls
    litellm_params: {{ model: openai/broken, api_base: "http://127.0.0.1:1/v1", api_key: none }}
credential_list:
  - credential_name: desk
    credential_values: {{ api_base: "{url}", api_key: os.environ/DESK_API_KEY }}
    credential_info: {{}}
litellm_settings:
  fallbacks: [{{ falls: [by-id] }}]
"#,
        url = provider.url()
    );
    let (routing, told) = import(dir.path(), &text).await;
    assert!(!routing.contains("secret-canary") && !told.contains("secret-canary"), "{routing}");
    assert!(told.contains("IMPORTED_HOSTED_VLLM_API_KEY"), "{told}");
    let setup = Setup::new(&routing)
        .env("DESK_API_KEY", "desk")
        .env("IMPORTED_HOSTED_VLLM_API_KEY", "mine");
    let gateway = setup.start().await;
    let key = gateway.create_key().await;
    for (name, model, bearer) in [
        ("local/llama", "llama", "Bearer desk"),
        ("anything", "anything", "Bearer desk"),
        ("exact", "org/model", "Bearer mine"),
        ("falls", "org/model", "Bearer mine"),
    ] {
        let answer = gateway.chat(&key, chat_body(name, false).as_bytes()).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        let asked = provider.last();
        assert_eq!(asked.json()["model"], model, "{name}");
        assert_eq!(asked.header("authorization").as_deref(), Some(bearer), "{name}");
    }
}

/// Settings from the documentation, some of which the import cannot convert.
const MIXED: &str = r#"
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: https://resource-eu.openai.azure.com/
      api_key: "os.environ/AZURE_API_KEY_EU"
      api_version: "2024-10-21"
      rpm: 6
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-ca
      api_base: os.environ/AZURE_API_BASE
      api_key: "os.environ/AZURE_API_KEY_CA"
      rpm: 6
  - model_name: claude
    litellm_params: { model: anthropic/claude-3-haiku-20240307, temperature: 0.2, tags: ["paid"] }
  - model_name: "anthropic/*"
    litellm_params: { model: "anthropic/*", api_key: os.environ/ANTHROPIC_API_KEY }
  - model_name: anthropic/bedrock
    litellm_params: { model: bedrock/anthropic.claude-instant-v1, aws_region_name: us-east-1 }
  - model_name: gemini
    litellm_params: { model: gemini/gemini-2.5-flash }
  - model_name: vertex
    litellm_params: { model: vertex_ai/gemini-pro, vertex_project: p }
  - model_name: llama
    litellm_params: { model: ollama_chat/llama3.1, api_base: "http://localhost:11434" }
  - model_name: pictures
    litellm_params: { model: openai/dall-e-3 }
    model_info: { mode: image_generation }
  - model_name: "fo::*:static::*"
    litellm_params: { model: "openai/fo::*:static::*" }
  - model_name: teams
    litellm_params:
      model: openai/gpt-4o-mini
      organization: org-abc
      extra_headers: { x-team: blue, x-api-key: header-canary }
      max_parallel_requests: 10
environment_variables: { REDIS_PASSWORD: password-canary }
litellm_settings:
  num_retries: 3
  request_timeout: 10
  allowed_fails: 3
  context_window_fallbacks: [{ gpt-4o: [claude] }]
  content_policy_fallbacks: [{ gpt-4o: [claude] }]
router_settings:
  routing_strategy: usage-based-routing
  redis_host: os.environ/REDIS_HOST
  fallbacks: [{ claude: [anthropic/claude-opus-4-1, anthropic/bedrock, nowhere] }]
guardrails: [{ guardrail_name: a }]
"#;

#[tokio::test]
async fn what_cannot_be_carried_is_told_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let (routing, told) = import(dir.path(), MIXED).await;
    for word in [
        "model_list[4] (anthropic/bedrock): left out: signed with AWS",
        "model_list[6] (vertex): left out: ",
        "model_list[8] (pictures): left out: no endpoint of this mode",
        "model_list[9] (fo::*:static::*): left out: a `*` stands at the end",
        "(claude).litellm_params.temperature: defaults of requests belong to agents",
        "(claude).litellm_params.tags: ",
        "extra_headers: a credential in clear text is not copied",
        "router_settings.routing_strategy: has no counterpart",
        "router_settings.redis_host: ",
        "content_policy_fallbacks: ",
        "context_window_fallbacks: carried as last targets",
        "fallbacks of claude: `anthropic/bedrock` was not carried",
        "fallbacks of claude: `nowhere` was not carried",
        "environment_variables: ",
        "guardrails: ",
        "Imported 6 model name(s)",
    ] {
        assert!(told.contains(word), "no {word} in {told}");
    }
    for word in [
        "https://resource-eu.openai.azure.com?api-version=2024-10-21",
        "\"${AZURE_API_BASE}\"",
        "openai-organization: org-abc",
        "x-team: blue",
        "max_concurrency: 10",
        "\"anthropic/${match}\"",
        "anthropic/claude-opus-4-1",
        "consecutive: 4",
        "total: \"10s\"",
    ] {
        assert!(routing.contains(word), "no {word} in {routing}");
    }
    for canary in ["header-canary", "password-canary"] {
        assert!(!told.contains(canary) && !routing.contains(canary), "{told}{routing}");
    }
    // Routing documents may not use the variable AZURE_API_BASE by default.
    assert!(told.contains("env_allow") && told.contains("\"AZURE_API_BASE\""), "{told}");
    let server = std::fs::read_to_string(dir.path().join("conf/rerouter.yaml")).unwrap();
    assert!(server.contains("\"AZURE_API_BASE\""), "{server}");
}

#[tokio::test]
async fn numbers_out_of_range_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let configuration = r#"
model_list:
  - model_name: fast
    litellm_params:
      model: openai/small
      api_key: os.environ/OPENAI_API_KEY
      timeout: os.environ/SECONDS
      max_parallel_requests: 0
      input_cost_per_token: abc
router_settings: { timeout: 0.5, cooldown_time: 3600, allowed_fails: -1, num_retries: 99 }
litellm_settings: { request_timeout: 90 }
"#;
    let (routing, told) = import(dir.path(), configuration).await;
    for place in [
        "litellm_params.timeout",
        "litellm_params.max_parallel_requests",
        "(fast).input_cost_per_token",
        "  timeout",
        "cooldown_time",
        "allowed_fails",
        "num_retries",
    ] {
        assert!(
            told.contains(&format!("{place}: not carried: no number from ")),
            "{place}: {told}"
        );
    }
    assert!(routing.contains("total: \"90s\"") && !routing.contains("breaker"), "{routing}");
}

#[tokio::test]
async fn a_file_that_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let import = ["import", "litellm", "config.yaml"];
    run(dir.path(), &import, &[]).await.failed(2, "config.yaml");
    for (text, code, word) in [
        ("model_list: [\n", 2, "config.yaml:"),
        ("model_list: &a []\nother: *a\n", 2, "anchors"),
        ("model_list: []\n", 1, "no model could be carried"),
        ("just text\n", 1, "no model could be carried"),
        ("model_list: [{ model_name: 7, litellm_params: { model: [1] } }, 3]\n", 1, "left out"),
    ] {
        std::fs::write(dir.path().join("config.yaml"), text).unwrap();
        run(dir.path(), &import, &[]).await.failed(code, word);
    }
}
