//! Parameters of an entry: prices, abilities, and parameters that are not imported.

use serde_json::{Map, Value, json};

use super::notes::{Notes, number};

/// Parameters that are imported, or that have no effect here.
const CARRIED: [&str; 21] = [
    "model",
    "api_key",
    "api_base",
    "base_url",
    "api_version",
    "organization",
    "extra_headers",
    "headers",
    "timeout",
    "weight",
    "max_parallel_requests",
    "input_cost_per_token",
    "output_cost_per_token",
    "custom_llm_provider",
    "litellm_credential_name",
    "drop_params",
    "rpm",
    "tpm",
    "cache_read_input_token_cost",
    "id",
    "order",
];

/// Reasons why parameters are not imported, by the beginning of their names.
const REASONS: &[(&str, &str)] = &[
    ("aws_", "signed with AWS credentials"),
    ("vertex_", "access tokens of Vertex AI run out after an hour"),
    ("azure_ad_token", "tokens of Entra ID run out: use an API key"),
    ("tenant_id", "tokens of Entra ID run out: use an API key"),
    ("client_", "tokens of Entra ID run out: use an API key"),
    ("stream_timeout", "a provider has `timeouts.first_byte` and `timeouts.idle`"),
    ("max_retries", "a recipe has `retry.attempts`"),
    ("num_retries", "a recipe has `retry.attempts`"),
    ("tag", "labels of keys and conditions of rules do that: `key.labels`"),
    ("mock_response", "a provider with `protocol: mock` answers without a server"),
    ("budget", "budgets belong to keys and users"),
    ("max_budget", "budgets belong to keys and users"),
    ("region_name", "choose the region by the provider's URL"),
    ("input_cost_per_", "prices are by the token"),
    ("output_cost_per_", "prices are by the token"),
    ("access_groups", "a key names its models: `rerouter keys create --model NAME`"),
    ("supported_environments", "write a routing document for each environment"),
    ("base_model", "prices, context and abilities belong to `models`"),
    ("health_check", "a provider has `health: { path, interval }`"),
];

const DEFAULTS: [&str; 12] = [
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

/// Notes each parameter that is not imported.
pub(super) fn note_params(place: &str, params: &Map<String, Value>, notes: &mut Notes) {
    for (key, value) in params {
        let is_off = matches!(value, Value::Null | Value::Bool(false));
        if is_off || CARRIED.contains(&key.as_str()) {
            continue;
        }
        let place = format!("{place}.litellm_params.{key}");
        if DEFAULTS.contains(&key.as_str()) {
            notes.add(&place, "defaults of requests belong to agents: `rerouter agents create`");
            continue;
        }
        notes.add(&place, reason(key));
    }
}

/// Members of `model_info` that are imported, or are only descriptions.
const DESCRIBED: [&str; 16] = [
    "id",
    "mode",
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "max_input_tokens",
    "max_output_tokens",
    "max_tokens",
    "litellm_provider",
    "description",
    "metadata",
    "version",
    "created_at",
    "updated_at",
    "created_by",
    "updated_by",
];

/// Notes each member of `model_info` that is not imported.
pub(super) fn note_info(place: &str, info: Option<&Map<String, Value>>, notes: &mut Notes) {
    for (key, value) in info.into_iter().flatten() {
        let is_off = matches!(value, Value::Null | Value::Bool(false));
        if !(is_off || DESCRIBED.contains(&key.as_str()) || key.starts_with("supports_")) {
            notes.add(&format!("{place}.model_info.{key}"), reason(key));
        }
    }
}

fn reason(key: &str) -> &'static str {
    let reason = REASONS.iter().find(|(beginning, _)| key.starts_with(beginning));
    reason.map_or("has no counterpart", |(_, why)| *why)
}

/// Prices and abilities that the entry sets.
pub(super) fn model_settings(
    params: &Map<String, Value>,
    info: Option<&Map<String, Value>>,
) -> Map<String, Value> {
    let get = |key: &str| params.get(key).or_else(|| info?.get(key));
    let mut settings = Map::new();
    for (key, price) in [
        ("input_cost_per_token", "input_per_mtok"),
        ("output_cost_per_token", "output_per_mtok"),
        ("cache_read_input_token_cost", "cached_input_per_mtok"),
    ] {
        if let Some(per_token) = number(get(key)).filter(|price| *price >= 0.0) {
            // Rounded to the precision of price lists, as 0.0000006 has no exact binary form.
            settings.insert(price.to_owned(), json!((per_token * 1e12).round() / 1e6));
        }
    }
    if let Some(context) = get("max_input_tokens").and_then(Value::as_u64).filter(|n| *n > 0) {
        settings.insert("context".to_owned(), context.into());
    }
    // LiteLLM adds abilities set to true to those that it knows, so only those set to false are
    // certain.
    let abilities = [("supports_function_calling", "tools"), ("supports_vision", "vision")];
    let lacks = |key: &str| get(key) == Some(&Value::Bool(false));
    if abilities.iter().any(|(key, _)| lacks(key)) {
        let kept = abilities.iter().filter(|(key, _)| !lacks(key)).map(|(_, word)| *word);
        let kept: Vec<&str> = kept.chain(["json", "audio"]).collect();
        settings.insert("capabilities".to_owned(), json!(kept));
    }
    settings
}
