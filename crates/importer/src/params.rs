//! Parameters of an entry: which are imported, and the prices and abilities in them.

use serde_json::{Map, Value, json};

/// Parameters that are imported, or that have no effect here.
pub(super) const CARRIED: [&str; 21] = [
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

/// Members of `model_info` that are imported, or are only descriptions.
pub(super) const DESCRIBED: [&str; 15] = [
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
    "created_*",
    "updated_*",
    "supports_*",
];

/// Prices and abilities that the entry sets. `price_of` reads a price.
pub(super) fn model_settings(
    params: &Map<String, Value>,
    info: Option<&Map<String, Value>>,
    mut price_of: impl FnMut(&str, Option<&Value>) -> Option<f64>,
) -> Map<String, Value> {
    let get = |key: &str| params.get(key).or_else(|| info?.get(key));
    let mut settings = Map::new();
    for (key, price) in [
        ("input_cost_per_token", "input_per_mtok"),
        ("output_cost_per_token", "output_per_mtok"),
        ("cache_read_input_token_cost", "cached_input_per_mtok"),
    ] {
        if let Some(per_token) = price_of(key, get(key)) {
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
