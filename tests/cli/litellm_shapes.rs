//! `rerouter import litellm` with a configuration of each shape in LiteLLM's public documentation.
//! Each imports, passes `check`, fits the schemas and serves. The import lists what it cannot
//! convert.

use serde_json::json;

use crate::cli::litellm::import;
use crate::support::client::Answer;
use crate::support::documents::chat_body;
use crate::support::gateway::{Gateway, Key, Setup};
use crate::support::provider::{self as scripted, Provider, Received, Step};

/// A configuration, the requests to try with it, and what the import says.
struct Shape {
    what: &'static str,
    /// The text of the configuration. `BASE` is the URL of the provider, without a path.
    configuration: &'static str,
    /// Variables besides the keys. All keys are set.
    env: &'static [(&'static str, &'static str)],
    /// Per request: the model that a client asks for, the end of the path, and the model that the
    /// provider gets.
    asks: &'static [(&'static str, &'static str, &'static str)],
    told: &'static [&'static str],
}

/// Answers in the protocol of the request.
fn speak(request: &Received) -> Vec<Step> {
    let path = request.target.split('?').next().unwrap_or_default();
    let body = match path {
        _ if path.ends_with("/messages") => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "well"}], "stop_reason": "end_turn",
            "stop_sequence": null, "usage": {"input_tokens": 3, "output_tokens": 2},
        }),
        _ if path.ends_with(":generateContent") => json!({
            "responseId": "g1", "modelVersion": "m",
            "candidates": [{"index": 0, "finishReason": "STOP",
                "content": {"role": "model", "parts": [{"text": "well"}]}}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2,
                "totalTokenCount": 5},
        }),
        _ if path.ends_with("/embeddings") => json!({
            "object": "list", "model": "m",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": 3, "total_tokens": 3},
        }),
        _ if path.ends_with("/responses") => json!({
            "id": "resp_1", "object": "response", "status": "completed", "model": "m",
            "output": [{"type": "message", "id": "msg_1", "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "well", "annotations": []}]}],
            "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
        }),
        _ => scripted::completion_body("well"),
    };
    scripted::json_answer(200, &body)
}

async fn ask(gateway: &Gateway, key: &Key, model: &str, path: &str) -> Answer {
    if !path.ends_with("/embeddings") {
        return gateway.chat(key, chat_body(model, false).as_bytes()).await;
    }
    let bearer = format!("Bearer {}", key.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = json!({ "model": model, "input": "hello" }).to_string();
    gateway.send("POST", "/v1/embeddings", &headers, Some(body.as_bytes())).await
}

impl Shape {
    async fn holds(&self) {
        let Shape { what, configuration, env, asks, told } = self;
        let provider = Provider::start(|request, _| speak(request)).await;
        let base = format!("http://{}", provider.address());
        let dir = tempfile::tempdir().unwrap();
        let text = configuration.replace("BASE", &base);
        let (routing, said) = import(dir.path(), &text).await;
        for word in *told {
            assert!(said.contains(word), "{what}: no {word} in {said}");
        }
        assert!(!said.contains("canary") && !routing.contains("canary"), "{what}: {said}{routing}");
        let mut setup = Setup::new(&routing).routing("env_allow: [\"*\"]");
        let set = said.split("Set in the environment of rerouter: ").nth(1).unwrap_or_default();
        let names = set.lines().next().unwrap_or_default().trim_end_matches('.').split(", ");
        for name in names.filter(|name| !name.is_empty()) {
            let value = env.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let value = value.map(|value| value.replace("BASE", &base));
            setup = setup.env(name, &value.unwrap_or_else(|| format!("value-of-{name}")));
        }
        let gateway = setup.start().await;
        let key = gateway.create_key().await;
        for (model, path, wanted) in *asks {
            let answer = ask(&gateway, &key, model, path).await;
            assert_eq!(answer.status, 200, "{what}: {model}: {}", answer.text());
            let asked = provider.last();
            let target = asked.target.as_str();
            assert!(target.ends_with(path), "{what}: {model}: {target}");
            let body = asked.json();
            let is_there = body["model"] == *wanted || target.contains(wanted);
            assert!(is_there, "{what}: {model}: {target} {body}");
        }
        let unknown = gateway.chat(&key, chat_body("no-such-model", false).as_bytes()).await;
        let takes_all = configuration.contains("model_name: \"*\"") && *what != "every provider";
        assert_eq!(unknown.status == 404, !takes_all, "{what}: {}", unknown.text());
    }
}

const CHAT: &str = "/chat/completions";

const SHAPES: &[Shape] = &[
    Shape {
        what: "deployments of Azure by region, with a version of the environment",
        configuration: r#"
model_list:
  - model_name: team-chat
    litellm_params:
      model: azure/chat-west
      api_base: BASE/
      api_key: "os.environ/AZURE_WEST_API_KEY"
      api_version: os.environ/AZURE_API_VERSION
      rpm: 120
      tpm: 40000
  - model_name: team-chat
    litellm_params:
      model: azure/o_series/chat-west
      api_base: BASE/
      api_key: "os.environ/AZURE_WEST_API_KEY"
      api_version: os.environ/AZURE_API_VERSION
      rpm: 60
    model_info: { base_model: azure/gpt-4o, supported_environments: [production, staging] }
router_settings:
  routing_strategy: simple-shuffle
  model_group_alias:
    "Team-Chat": { model: team-chat, hidden: true }
    old-name: team-chat
  redis_host: os.environ/REDIS_HOST
  redis_password: redis-canary
  redis_port: 6379
"#,
        env: &[("AZURE_API_VERSION", "2024-10-21")],
        asks: &[
            ("team-chat", "/chat-west/chat/completions?api-version=2024-10-21", "chat-west"),
            ("Team-Chat", "api-version=2024-10-21", "chat-west"),
            ("old-name", "api-version=2024-10-21", "chat-west"),
        ],
        told: &[
            "model_info.base_model: prices, context",
            "model_info.supported_environments: write a routing document",
            "router_settings.redis_password: ",
        ],
    },
    Shape {
        what: "an order of deployments",
        configuration: r#"
model_list:
  - model_name: ordered
    litellm_params: { model: openai/second, api_base: BASE/v1, api_key: canary-1, order: 2 }
  - model_name: ordered
    litellm_params: { model: openai/first, api_base: BASE/v1, api_key: canary-1, order: 1 }
router_settings: { enable_pre_call_checks: true, disable_cooldowns: True }
"#,
        env: &[],
        asks: &[("ordered", CHAT, "first"), ("ordered", CHAT, "first"), ("ordered", CHAT, "first")],
        told: &["disable_cooldowns: ", "IMPORTED_OPENAI_API_KEY"],
    },
    Shape {
        what: "tags",
        configuration: r#"
model_list:
  - model_name: tiered
    litellm_params: { model: openai/free-of-charge, api_base: BASE/v1, api_key: none, tags: [free] }
  - model_name: tiered
    litellm_params: { model: openai/paid, api_base: BASE/v1, api_key: none, tags: ["paid"] }
  - model_name: tiered
    litellm_params:
      model: openai/usual
      api_base: BASE/v1
      api_key: none
      tags: ["default"]
      tag_regex: ["^User-Agent: some-agent"]
router_settings: { enable_tag_filtering: True, tag_filtering_match_any: true }
"#,
        env: &[],
        asks: &[("tiered", CHAT, "usual"), ("tiered", CHAT, "usual"), ("tiered", CHAT, "usual")],
        told: &[
            "openai/paid: left out, as only requests with its tags",
            "openai/free-of-charge: left out",
            "tag_regex: labels of keys",
            "enable_tag_filtering: labels of keys",
        ],
    },
    Shape {
        what: "wildcards",
        configuration: r#"
model_list:
  - model_name: "house/*"
    litellm_params: { model: "openai/*", api_base: BASE/v1, api_key: os.environ/HOUSE_API_KEY }
  - model_name: "claude-*"
    litellm_params: { model: "anthropic/claude-*", api_base: BASE, api_key: os.environ/A_API_KEY }
  - model_name: "*"
    litellm_params: { model: "openrouter/*", api_base: BASE/api/v1 }
"#,
        env: &[],
        asks: &[
            ("house/large", "/v1/chat/completions", "large"),
            ("claude-small", "/v1/messages", "claude-small"),
            ("maker/model", "/api/v1/chat/completions", "maker/model"),
        ],
        told: &["OPENROUTER_API_KEY"],
    },
    Shape {
        what: "every provider",
        configuration: r#"
model_list:
  - { model_name: "*", litellm_params: { model: "*" } }
  - { model_name: one, litellm_params: { model: os.environ/MODEL, api_base: BASE/v1 } }
  - model_name: chosen
    litellm_params:
      model: auto_router/adaptive_router
      adaptive_router_config: { available_models: [named] }
  - { model_name: named, litellm_params: { model: openai/m, api_base: BASE/v1, api_key: none } }
router_settings:
  model_group_alias: { several: [named, one] }
"#,
        env: &[],
        asks: &[("named", CHAT, "m")],
        told: &[
            "(chosen): left out: write a rule",
            "model_group_alias.several: leads to a name that was not carried",
            "model_list[0] (*): left out: all models of all providers",
            "model_list[1] (one): left out: the name of the model is in a variable",
        ],
    },
    Shape {
        what: "providers with protocols of their own",
        configuration: r#"
model_list:
  - model_name: sonnet
    litellm_params:
      model: anthropic/claude-sonnet-4-5
      api_base: BASE
      api_key: os.environ/ANTHROPIC_API_KEY
      thinking: { type: enabled, budget_tokens: 1024 }
  - model_name: flash
    litellm_params: { model: gemini/gemini-2.5-flash, api_base: BASE/v1beta, max_tokens: 512 }
  - { model_name: nova, litellm_params: { model: bedrock/us.amazon.nova-lite-v1:0 } }
  - model_name: roles
    litellm_params:
      model: bedrock/converse/some.model-v1
      aws_role_name: arn:aws:iam::111122223333:role/canary
      aws_session_name: session
  - model_name: vertex
    litellm_params:
      model: vertex_ai/gemini-2.5-pro
      vertex_project: os.environ/VERTEX_PROJECT
      vertex_location: europe-west4
      vertex_credentials: /canary/service_account.json
  - { model_name: titan, litellm_params: { model: sagemaker/endpoint, aws_region_name: eu-west-1 } }
  - { model_name: watson, litellm_params: { model: watsonx/ibm/granite, project_id: p } }
litellm_settings:
  default_fallbacks: [flash]
"#,
        env: &[],
        asks: &[
            ("sonnet", "/v1/messages", "claude-sonnet-4-5"),
            ("flash", ":generateContent", "gemini-2.5-flash"),
        ],
        told: &[
            "(sonnet).litellm_params.thinking: defaults of requests belong to agents",
            "(nova): left out: signed with AWS",
            "(roles): left out: signed with AWS",
            "(vertex): left out: takes access tokens",
            "(titan): left out: signed with AWS",
            "(watson): left out: no API",
            "Imported 2 model name(s)",
        ],
    },
    Shape {
        what: "credentials by name, and organizations",
        configuration: r#"
model_list:
  - model_name: shared
    litellm_params: { model: openai/one, litellm_credential_name: house }
  - model_name: other
    litellm_params: { model: openai/two, litellm_credential_name: house, organization: org-1 }
  - model_name: many
    litellm_params:
      model: openai/three
      litellm_credential_name: house
      organization: [org-1, org-2]
  - model_name: lost
    litellm_params: { model: openai/four, litellm_credential_name: nowhere }
credential_list:
  - credential_name: house
    credential_values: { api_base: BASE/v1, api_key: os.environ/HOUSE_KEY }
    credential_info: { description: "keys of the house" }
"#,
        env: &[],
        asks: &[("shared", CHAT, "one"), ("other", CHAT, "two"), ("many", CHAT, "three")],
        told: &[
            "(many).litellm_params.organization: write a provider for each",
            "(lost): left out: its `litellm_credential_name` is unknown",
            "HOUSE_KEY",
        ],
    },
    Shape {
        what: "fallbacks of every kind, retries and cooldowns",
        configuration: r#"
model_list:
  - model_name: breaks
    litellm_params: { model: openai/gone, api_base: "http://127.0.0.1:1/v1", api_key: none }
  - model_name: holds
    litellm_params: { model: openai/there, api_base: BASE/v1, api_key: none, num_retries: 4 }
    model_info: { id: number-two }
  - model_name: large
    litellm_params: { model: openai/long, api_base: BASE/v1, api_key: none }
    model_info: { max_input_tokens: 400000 }
litellm_settings:
  num_retries: 3
  request_timeout: 20
  allowed_fails: 2
  fallbacks: [{ "breaks": ["number-two"] }, { "large": [{ model: holds, temperature: 0 }] }]
  context_window_fallbacks: [{ "holds": ["large"] }]
  content_policy_fallbacks: [{ "holds": ["large"] }]
  default_fallbacks: ["large"]
router_settings:
  cooldown_time: 30
  retry_policy: { TimeoutErrorRetries: 3, RateLimitErrorRetries: 2 }
  allowed_fails_policy: { TimeoutErrorAllowedFails: 12 }
  model_group_retry_policy: { holds: { BadRequestErrorRetries: 0 } }
"#,
        env: &[],
        asks: &[("breaks", CHAT, "there"), ("holds", CHAT, "there"), ("large", CHAT, "long")],
        told: &[
            "fallbacks of large: names are carried, and nothing else",
            "content_policy_fallbacks: ",
            "context_window_fallbacks: carried as last targets",
            "retry_policy: a recipe has",
            "model_group_retry_policy: a recipe has",
            "allowed_fails_policy: ",
            "num_retries: a recipe has",
        ],
    },
    Shape {
        what: "budgets, teams and keys",
        configuration: r#"
model_list:
  - model_name: paid
    litellm_params:
      model: openai/m
      api_base: BASE/v1
      api_key: none
      max_budget: 0.01
      budget_duration: 1d
      input_cost_per_second: 0.0004
    model_info: { access_groups: [beta], input_cost_per_token: 0.0000005 }
router_settings:
  provider_budget_config: { openai: { budget_limit: 1, time_period: 1d } }
litellm_settings:
  max_budget: 100
  budget_duration: 30d
  tag_budget_config: { "product:chat": { max_budget: 1 } }
  max_end_user_budget: 0.5
  default_internal_user_params: { user_role: internal_user, max_budget: 10 }
  default_team_settings: [{ team_id: t, success_callback: [langfuse] }]
  default_key_generate_params: { max_budget: 1, models: ["paid"] }
  upperbound_key_generate_params: { duration: 30d }
  key_generation_settings: { team_key_generation: { allowed_team_member_roles: [admin] } }
general_settings:
  master_key: sk-canary
  database_url: postgresql://u:canary@db/litellm
  store_model_in_db: true
  proxy_batch_write_at: 60
"#,
        env: &[],
        asks: &[("paid", CHAT, "m")],
        told: &[
            "litellm_params.max_budget: budgets belong to keys and users",
            "litellm_params.input_cost_per_second: prices are by the token",
            "model_info.access_groups: a key names its models",
            "provider_budget_config: budgets belong",
            "tag_budget_config: budgets belong",
            "max_end_user_budget: ",
            "default_key_generate_params: limits belong to each key",
            "upperbound_key_generate_params: ",
            "key_generation_settings: the scope `keys`",
            "default_team_settings: ",
            "general_settings.master_key: start rerouter with ADMIN_API_KEY",
        ],
    },
    Shape {
        what: "caching, callbacks, alerts, guardrails and what stands beside the models",
        configuration: r#"
model_list:
  - { model_name: m, litellm_params: { model: openai/m, api_base: BASE/v1, api_key: none } }
litellm_settings:
  cache: True
  cache_params: { type: redis, host: cache, password: canary, ttl: 600, mode: default_off }
  callbacks: ["otel", custom_callbacks.proxy_handler_instance]
  success_callback: [langfuse, s3]
  failure_callback: [sentry]
  service_callbacks: [prometheus_system]
  s3_callback_params: { s3_bucket_name: logs }
  turn_off_message_logging: true
  redact_user_api_key_info: true
  json_logs: true
  modify_params: true
  mcp_aliases: { hub: hub_server }
general_settings:
  alerting: [slack]
  alert_types: [llm_exceptions]
  alert_to_webhook_url: { llm_exceptions: "https://hooks.example.com/canary" }
  custom_auth: custom_auth.user_api_key_auth
  enable_jwt_auth: True
  litellm_jwtauth: { admin_jwt_scope: admin }
  ui_access_mode: admin_only
  completion_model: m
  background_health_checks: true
  health_check_interval: 300
  global_max_parallel_requests: 100
  allowed_routes: [/chat/completions]
  key_management_system: google_kms
  pass_through_endpoints:
    - path: /v1/rerank
      target: "https://api.example.com/rerank"
      headers: { Authorization: canary }
guardrails:
  - guardrail_name: pii
    litellm_params: { guardrail: presidio, mode: pre_call, api_key: canary }
mcp_servers: { hub_server: { url: "https://mcp.example.com/canary" } }
callback_settings: { otel: { message_logging: False } }
environment_variables: { LANGFUSE_SECRET_KEY: canary }
vector_store_registry: [{ vector_store_name: v, litellm_params: { vector_store_id: i } }]
search_tools: [{ search_tool_name: s }]
prompts: [{ prompt_id: p }]
files_settings: [{ custom_llm_provider: azure }]
finetune_settings: [{ custom_llm_provider: openai }]
"#,
        env: &[],
        asks: &[("m", CHAT, "m")],
        told: &[
            "litellm_settings.cache: answers are not cached",
            "litellm_settings.cache_params: answers are not cached",
            "litellm_settings.callbacks: ",
            "litellm_settings.turn_off_message_logging: captures without bodies",
            "general_settings.ui_access_mode: the console has accounts",
            "general_settings.pass_through_endpoints: ",
            "general_settings.completion_model: each request names its model",
            "general_settings.enable_jwt_auth: there is no single sign-on",
            "guardrails: there are no guardrails",
            "mcp_servers: there is no MCP gateway",
            "environment_variables: ",
            "vector_store_registry: ",
            "files_settings: ",
        ],
    },
    Shape {
        what: "embeddings, and modes that are not served",
        configuration: r#"
model_list:
  - model_name: vectors
    litellm_params: { model: text-embedding-3-small, api_base: BASE/v1, api_key: none }
    model_info: { mode: embedding, input_cost_per_token: 0.00000002 }
  - model_name: own-vectors
    litellm_params: { model: hosted_vllm/house/embed, api_base: BASE/v1 }
    model_info: { mode: embedding }
  - model_name: draw
    litellm_params: { model: openai/gpt-image-1 }
    model_info: { mode: image_generation }
  - model_name: hear
    litellm_params: { model: whisper-1 }
    model_info: { mode: audio_transcription }
  - model_name: film
    litellm_params: { model: openai/sora-2 }
    model_info: { mode: video_generation }
  - model_name: rank
    litellm_params: { model: cohere/rerank-v3.5 }
"#,
        env: &[],
        asks: &[
            ("vectors", "/v1/embeddings", "text-embedding-3-small"),
            ("own-vectors", "/v1/embeddings", "house/embed"),
        ],
        told: &[
            "(draw): left out: no endpoint of this mode",
            "(hear): left out: no endpoint of this mode",
            "(film): left out: no endpoint of this mode",
            "(rank): left out: no endpoint of this mode",
        ],
    },
    Shape {
        what: "servers of one's own, and providers by name",
        configuration: r#"
model_list:
  - { model_name: desk, litellm_params: { model: ollama/qwen3:8b, api_base: BASE/v1 } }
  - model_name: rack
    litellm_params: { model: hosted_vllm/org/model, api_base: BASE/v1, api_key: none }
  - { model_name: studio, litellm_params: { model: lm_studio/phi, api_base: BASE/v1 } }
  - model_name: chained
    litellm_params:
      model: litellm_proxy/upstream
      api_base: BASE/v1
      api_key: os.environ/CHAIN_API_KEY
  - model_name: said
    litellm_params: { model: plain, custom_llm_provider: openai, api_base: BASE/v1, api_key: none }
  - model_name: bridged
    litellm_params: { model: openai/responses/o1-pro, api_base: BASE/v1, api_key: none }
  - { model_name: command, litellm_params: { model: cohere_chat/command-a, api_base: BASE/v1 } }
  - model_name: headed
    litellm_params:
      model: together_ai/org/m
      api_base: BASE/v1
      extra_headers: { "AI-Resource Group": g, x-team: blue }
  - { model_name: tgi, litellm_params: { model: huggingface/org/m, api_base: BASE } }
  - model_name: pretend
    litellm_params: { model: openai/p, api_base: BASE/v1, api_key: none, mock_response: "hi" }
  - model_name: unset
    litellm_params: { model: azure/d, api_base: "<your-azure-endpoint>", api_key: "<canary>" }
"#,
        env: &[],
        asks: &[
            ("desk", CHAT, "qwen3:8b"),
            ("rack", CHAT, "org/model"),
            ("studio", CHAT, "phi"),
            ("chained", CHAT, "upstream"),
            ("said", CHAT, "plain"),
            ("bridged", "/responses", "o1-pro"),
            ("command", CHAT, "command-a"),
            ("headed", CHAT, "org/m"),
            ("pretend", CHAT, "p"),
        ],
        told: &[
            "extra_headers: not a header",
            "(tgi): left out: write it by hand",
            "mock_response: a provider with `protocol: mock`",
            "(unset): left out: its `api_base` is not a URL",
            "Imported 9 model name(s)",
        ],
    },
];

#[tokio::test]
async fn each_shape_imports_checks_and_serves() {
    for shape in SHAPES {
        shape.holds().await;
    }
}

/// Providers without the Responses API get chat completions, as with LiteLLM.
#[tokio::test]
async fn clients_of_responses_reach_providers_that_have_none() {
    let provider = Provider::start(|request, _| speak(request)).await;
    let base = format!("http://{}/v1", provider.address());
    let names = ["cohere", "moonshot", "dashscope"];
    let entry = |name: &&str| {
        format!(
            "  - model_name: {name}\n    litellm_params: \
             {{ model: {name}/m, api_base: \"{base}\", api_key: none }}\n"
        )
    };
    let entries: String = names.iter().map(entry).collect();
    let azure = "  - model_name: azure\n    litellm_params: { model: azure/responses/d, \
                 api_base: \"https://x.example.com\" }\n";
    let dir = tempfile::tempdir().unwrap();
    let (routing, said) = import(dir.path(), &format!("model_list:\n{entries}{azure}")).await;
    assert!(said.contains("(azure).litellm_params.model: asked in chat completions"), "{said}");
    let gateway = Setup::new(&routing).env("AZURE_API_KEY", "k").start().await;
    let bearer = format!("Bearer {}", gateway.create_key().await.secret);
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    for name in names {
        let body = json!({ "model": name, "input": "hello" }).to_string();
        let answer = gateway.send("POST", "/v1/responses", &headers, Some(body.as_bytes())).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(answer.json()["object"], "response", "{name}");
        assert_eq!(provider.last().target, "/v1/chat/completions", "{name}");
    }
}
