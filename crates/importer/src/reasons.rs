//! Why settings and parameters of LiteLLM are not imported.

use serde_json::{Map, Value};

use super::notes::Notes;

/// Reasons, each with the keys that it is for. A `*` at one end matches the rest of a key.
const REASONS: &[(&str, &[&str])] = &[
    ("a key names its models: `rerouter keys create --model NAME`", &["access_groups"]),
    ("a key with the scope `keys` bounds those that it makes", &["upperbound_key_generate*"]),
    ("a provider has `health: { path, interval }`", &["background_health_checks", "health_check*"]),
    ("a provider has `timeouts.first_byte` and `timeouts.idle`", &["stream_timeout"]),
    ("a provider with `protocol: mock` answers without a server", &["mock_response"]),
    ("a recipe has `retry.on` and `retry.attempts`", &["*retry_policy", "*_retries"]),
    ("access tokens of Vertex AI run out after an hour", &["vertex_*"]),
    ("accounts, keys and captures are in the data directory", &["database*"]),
    ("answers are not cached", &["cache", "cache_params", "cache_responses", "enable_caching*"]),
    ("budgets belong to keys and users", &["budget*", "*_budget", "*_budget_config"]),
    ("captures without bodies: `capture: { bodies: false }`", &["turn_off_message_logging"]),
    ("choose the region by the provider's URL", &["region_name"]),
    ("defaults of requests belong to agents: `rerouter agents create`", DEFAULTS),
    ("each request is captured, logged and counted instead", &["*callback", "callback*"]),
    ("each request names its model", &["completion_model"]),
    ("include the files by hand, then import the whole", &["include"]),
    ("is not served", &["assistant_*", "files_*", "finetune_*", "search_tools", "vector_store_*"]),
    ("keys and users have `limits.concurrency`, providers `max_concurrency`", &["max_parallel*"]),
    ("keys, users and sessions are rerouter's own", &["custom_auth*"]),
    ("labels of keys and conditions of rules do that: `key.labels`", &["*tag_filtering", "tag*"]),
    ("limits belong to each key: `rerouter keys create`", &["default_key_generate*"]),
    ("limits belong to keys and users", &["default_internal_user_params"]),
    ("listeners choose interfaces; keys have scopes", &["allowed_routes"]),
    ("logs are JSON as they are: `access_log`", &["json_logs"]),
    ("only the endpoints of inference are served", &["pass_through_endpoints"]),
    ("prices are by the token", &["input_cost_per_*", "output_cost_per_*"]),
    ("prices, context and abilities belong to `models`", &["base_model"]),
    ("refusals are answers here, and not tried elsewhere", &["content_policy_fallbacks"]),
    ("rerouter keeps breakers, limits and latencies in memory", &["redis*", "default_redis*"]),
    ("routing documents can be kept in the store: `routing: { store: true }`", &["store_model*"]),
    ("secrets come from the environment", &["key_management*", "use_google_kms", "use_azure*"]),
    ("see `capture.redact` in the server document", &["redact*"]),
    ("see `limits` in the server document", &["global_max_parallel_requests"]),
    ("see the metrics; alerts are rules of Prometheus", &["alert*", "service_callback*"]),
    ("set these in the environment of rerouter", &["environment_variables"]),
    ("signed with AWS credentials", &["aws_*"]),
    ("start rerouter with ADMIN_API_KEY; clients get keys of their own", &["master_key"]),
    ("the console has accounts of its own: `rerouter users`", &["ui_*"]),
    ("the scope `keys` says which keys may make others", &["key_generation*"]),
    ("there are no guardrails", &["guardrails*"]),
    ("there are users and keys, no teams; keys may have labels", &["default_team*", "team*"]),
    ("there is no MCP gateway", &["mcp*"]),
    ("there is no prompt management; an agent has instructions", &["prompts"]),
    ("there is no single sign-on", &["enable_jwt_auth", "litellm_jwtauth"]),
    ("tokens of Entra ID run out: use an API key", &["azure_ad_token*", "client_*", "tenant_id"]),
    ("write a routing document for each environment", &["supported_environments"]),
];

/// Parameters of requests.
const DEFAULTS: &[&str] = &[
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "stop",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "response_format",
    "reasoning_effort",
    "thinking",
];

impl Notes {
    /// Notes each of `settings` that is neither off nor `carried`, with its reason. `place` comes
    /// before its key.
    pub(super) fn add_left_out(
        &mut self,
        place: &str,
        settings: Option<&Map<String, Value>>,
        carried: &[&str],
    ) {
        for (key, value) in settings.into_iter().flatten() {
            let is_off = matches!(value, Value::Null | Value::Bool(false));
            if !is_off && !carried.iter().any(|pattern| matches(pattern, key)) {
                let reason = |(_, keys): &&(&str, &[&str])| keys.iter().any(|of| matches(of, key));
                let why = REASONS.iter().find(reason).map_or("has no counterpart", |(why, _)| *why);
                self.add(&format!("{place}{key}"), why);
            }
        }
    }
}

fn matches(pattern: &str, key: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => key.ends_with(end),
        (None, Some(start)) => key.starts_with(start),
        (None, None) => key == pattern,
    }
}
