//! The sections beside `model_list`: defaults of all models, and settings without a counterpart.

use serde_json::{Map, Value};

use super::notes::{Notes, number, pairs, scalar, texts};

/// Settings that apply to all models.
#[derive(Debug, Default)]
pub(super) struct LitellmDefaults {
    /// Timeout of a call, in seconds.
    pub(super) timeout: Option<f64>,
    /// Number of attempts after the first.
    pub(super) retries: Option<f64>,
    /// Number of failures after which a deployment cools down.
    pub(super) allowed_fails: Option<f64>,
    /// Length of the cooldown in seconds.
    pub(super) cooldown: Option<f64>,
    /// The strategy among deployments of one name.
    pub(super) strategy: Option<String>,
    /// Each name with the names that it falls back to when it fails.
    pub(super) fallbacks: Vec<(String, Vec<String>)>,
    /// Each name with the names that it falls back to if the prompt is too long.
    pub(super) context_fallbacks: Vec<(String, Vec<String>)>,
    /// The names that every name falls back to.
    pub(super) default_fallbacks: Vec<String>,
    /// Whether tags decide which deployment a request uses.
    pub(super) by_tags: bool,
}

/// Settings of `litellm_settings` and `router_settings` that are imported.
const CARRIED: [&str; 14] = [
    "request_timeout",
    "timeout",
    "num_retries",
    "allowed_fails",
    "cooldown_time",
    "routing_strategy",
    "fallbacks",
    "context_window_fallbacks",
    "default_fallbacks",
    "model_group_alias",
    // The gateway does this always: parameters that a provider lacks are left out, if this does not
    // change the meaning.
    "drop_params",
    "set_verbose",
    "telemetry",
    "enable_pre_call_checks",
];

/// Reasons why settings are not imported, by the beginning of their names.
const REASONS: &[(&str, &str)] = &[
    (
        "master_key",
        "start rerouter with ADMIN_API_KEY; clients get keys of their own: `rerouter \
        keys create`",
    ),
    (
        "database",
        "accounts, keys and captures are in the data directory; virtual keys are made \
        anew: `rerouter keys create`",
    ),
    ("store_model_in_db", "routing documents can be kept in the store: `routing: { store: true }`"),
    ("redis", "rerouter keeps breakers, limits and latencies in memory"),
    ("cache", "answers are not cached"),
    ("enable_caching", "answers are not cached"),
    ("success_callback", "each request is captured, logged and counted instead"),
    ("failure_callback", "each request is captured, logged and counted instead"),
    ("callbacks", "each request is captured, logged and counted instead; there are no hooks"),
    ("service_callback", "see the metrics"),
    (
        "content_policy_fallbacks",
        "refusals of a provider are answers here, and are not tried \
        elsewhere",
    ),
    ("retry_policy", "a recipe has `retry.on` and `retry.attempts`"),
    ("model_group_retry_policy", "a recipe has `retry.on` and `retry.attempts`"),
    ("max_budget", "budgets belong to keys and users: `rerouter keys create --budget 100/month`"),
    ("budget_duration", "budgets belong to keys and users"),
    ("max_internal_user_budget", "budgets belong to keys and users"),
    ("default_internal_user_params", "limits belong to keys and users"),
    ("default_team", "there are users and keys, no teams; keys may have labels"),
    ("team", "there are users and keys, no teams; keys may have labels"),
    ("alerting", "see the metrics; alerts are rules of Prometheus"),
    ("alert", "see the metrics; alerts are rules of Prometheus"),
    ("pass_through_endpoints", "only the endpoints of inference are served"),
    ("guardrails", "there are no guardrails"),
    ("custom_auth", "keys, users and sessions are rerouter's own"),
    ("enable_jwt_auth", "there is no single sign-on"),
    ("litellm_jwtauth", "there is no single sign-on"),
    ("ui_", "the console has accounts of its own: `rerouter users`"),
    ("provider_budget", "budgets belong to keys and users"),
    ("tag_budget", "budgets belong to keys and users"),
    ("default_key_generate", "limits belong to each key: `rerouter keys create`"),
    ("upperbound_key_generate", "a key with the scope `keys` bounds those that it makes"),
    ("key_generation", "the scope `keys` says which keys may make others"),
    ("completion_model", "each request names its model"),
    ("enable_tag_filtering", "labels of keys and conditions of rules do that: `key.labels`"),
    ("tag_filtering", "labels of keys and conditions of rules do that: `key.labels`"),
    ("allowed_routes", "listeners choose interfaces; keys have scopes"),
    ("json_logs", "logs are JSON as they are: `access_log`"),
    (
        "turn_off_message_logging",
        "captures without bodies: `capture: { bodies: false }` in the \
        server document",
    ),
    ("redact", "see `capture.redact` in the server document"),
    ("background_health_checks", "a provider has `health: { path, interval }`"),
    ("health_check", "a provider has `health: { path, interval }`"),
    (
        "max_parallel_requests",
        "keys and users have `limits.concurrency`, providers \
        `max_concurrency`",
    ),
    ("global_max_parallel_requests", "see `limits` in the server document"),
    ("default_redis", "rerouter keeps breakers, limits and latencies in memory"),
    ("mcp", "there is no MCP gateway"),
    ("key_management", "secrets come from the environment"),
    ("use_google_kms", "secrets come from the environment"),
    ("use_azure_key_vault", "secrets come from the environment"),
];

/// Reasons why whole sections are not imported.
const SECTIONS: &[(&str, &str)] = &[
    ("environment_variables", "set these in the environment of rerouter"),
    ("guardrails", "there are no guardrails"),
    ("mcp_servers", "there is no MCP gateway"),
    ("files_settings", "files are not served"),
    ("finetune_settings", "fine-tuning is not served"),
    ("assistant_settings", "assistants are not served"),
    ("vector_store_registry", "vector stores are not served"),
    ("search_tools", "search tools are not served"),
    ("prompts", "there is no prompt management; an agent has instructions"),
    ("callback_settings", "each request is captured, logged and counted instead"),
    ("include", "include the files by hand, then import the whole"),
];

const NO_COUNTERPART: &str = "has no counterpart";

/// Reads the settings that are imported, and notes the others.
pub(super) fn read(configuration: &Value, notes: &mut Notes) -> LitellmDefaults {
    let section = |name: &str| configuration.get(name).and_then(Value::as_object);
    let (library, router) = (section("litellm_settings"), section("router_settings"));
    // The router's settings win, as in LiteLLM.
    let get = |name: &str| {
        router.and_then(|section| section.get(name)).or_else(|| library.and_then(|s| s.get(name)))
    };
    for name in ["litellm_settings", "router_settings", "general_settings"] {
        for (key, value) in section(name).into_iter().flatten() {
            let is_off = matches!(value, Value::Null | Value::Bool(false));
            if !(is_off || CARRIED.contains(&key.as_str())) {
                notes.add(&format!("{name}.{key}"), reason(key, REASONS));
            }
        }
    }
    let known = [
        "model_list",
        "litellm_settings",
        "router_settings",
        "general_settings",
        "credential_list",
    ];
    for (name, value) in configuration.as_object().into_iter().flatten() {
        if !known.contains(&name.as_str()) && !value.is_null() {
            notes.add(name, reason(name, SECTIONS));
        }
    }
    let context = "context_window_fallbacks";
    let context_fallbacks = pairs(context, get(context), notes);
    if !context_fallbacks.is_empty() {
        notes.add(
            context,
            "carried as last targets: a target whose context is too small is left out, and they \
             are tried after other failures, too",
        );
    }
    LitellmDefaults {
        timeout: number(get("timeout")).or_else(|| number(get("request_timeout"))),
        retries: number(get("num_retries")),
        allowed_fails: number(get("allowed_fails")),
        cooldown: number(get("cooldown_time")),
        strategy: scalar(get("routing_strategy")),
        fallbacks: pairs("fallbacks", get("fallbacks"), notes),
        context_fallbacks,
        default_fallbacks: texts(get("default_fallbacks")),
        by_tags: get("enable_tag_filtering") == Some(&Value::Bool(true)),
    }
}

fn reason(name: &str, reasons: &[(&str, &'static str)]) -> &'static str {
    reasons
        .iter()
        .find(|(beginning, _)| name.starts_with(beginning))
        .map_or(NO_COUNTERPART, |(_, why)| *why)
}

/// Aliases of names: `{ gpt-4: gpt-4o }`, or `{ gpt-4: { model: gpt-4o, hidden: true } }`. An alias
/// of another form leads to an empty name.
pub(super) fn group_aliases(configuration: &Value) -> Vec<(String, String)> {
    let settings = ["router_settings", "litellm_settings"];
    let maps = settings
        .iter()
        .filter_map(|name| configuration.get(name)?.get("model_group_alias")?.as_object());
    let pair = |(name, to): (&String, &Value)| {
        let to = to.as_str().or_else(|| to.get("model")?.as_str());
        (name.clone(), to.unwrap_or_default().to_owned())
    };
    maps.flat_map(Map::iter).map(pair).collect()
}
