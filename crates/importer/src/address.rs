//! Names of models and addresses of providers.

use serde_json::{Map, Value, json};

use super::notes::{expanded, variable};
use super::providers::{LitellmProvider, ProviderKind};
use rerouter_routing::{BaseUrl, MODEL_NAME_BYTES};

/// Whether an alias may have this name.
pub(super) fn check_name(name: &str) -> Result<(), &'static str> {
    let fits = (1..=MODEL_NAME_BYTES).contains(&name.len());
    if !fits || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a name must be visible ASCII characters, and not too many");
    }
    if ["agent", "nodes", "direct"].contains(&name.split('/').next().unwrap_or_default()) {
        return Err("it begins with a word that is reserved here");
    }
    match name.strip_suffix('*').unwrap_or(name).contains('*') {
        true => Err("a `*` stands at the end of a name only"),
        false => Ok(()),
    }
}

/// The model in a target, for clients that ask for `name`. If `name` ends in `*`, the rest that it
/// matches replaces the `*` of `model`.
pub(super) fn pattern(name: &str, model: &str) -> Result<String, &'static str> {
    check_name(name)?;
    let of_name = name.strip_suffix('*');
    let fits = (1..=MODEL_NAME_BYTES / 2).contains(&model.len());
    if !fits || !model.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a model's name must be visible ASCII characters, and not too many");
    }
    match (of_name, model.strip_suffix('*')) {
        _ if model.contains("${") => Err("`${` in the model's name"),
        (_, Some(before)) if before.contains('*') => Err("a `*` stands at the end of a model only"),
        (Some(_), Some(before)) => Ok(format!("{before}${{match}}")),
        (None, Some(_)) => Err("a model with a `*` needs a name with one"),
        (_, None) if model.contains('*') => Err("a `*` stands at the end of a model only"),
        (_, None) => Ok(model.to_owned()),
    }
}

/// The preset or protocol of a provider, and its base URL.
pub(super) fn address(
    provider: &LitellmProvider,
    given: Option<&str>,
    version: Option<&str>,
) -> Result<Map<String, Value>, &'static str> {
    let mut settings = Map::new();
    let mut set = |name: &str, value: String| {
        settings.insert(name.to_owned(), value.into());
    };
    let base = given.map(|given| expanded(given.trim()));
    let azure = provider.prefix == "azure";
    let base = if azure { base.or_else(|| Some("${AZURE_API_BASE}".to_owned())) } else { base };
    if let Some(given) = given.filter(|given| variable(given).is_none()) {
        BaseUrl::parse(given.trim()).map_err(|_| "its `api_base` is not a URL")?;
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let is_version = |text: &str| variable(text).is_some() || text.bytes().all(is_plain);
    if version.is_some_and(|version| !is_version(version)) {
        return Err("its `api_version` is none");
    }
    match (provider.kind, base) {
        (ProviderKind::Preset("openai"), Some(base))
        | (
            ProviderKind::OpenAi(_) | ProviderKind::Chat(_) | ProviderKind::OpenAiElsewhere,
            Some(base),
        ) => {
            set("protocol", "openai".to_owned());
            set("base_url", base);
        }
        (ProviderKind::Preset(word), base) => {
            set("preset", word.to_owned());
            let base = match version.filter(|_| azure) {
                Some(version) => base.map(|base| {
                    format!("{}?api-version={}", base.trim_end_matches('/'), expanded(version))
                }),
                None => base,
            };
            if let Some(base) = base {
                set("base_url", base);
            }
        }
        (ProviderKind::OpenAi(base) | ProviderKind::Chat(base), None) => {
            set("protocol", "openai".to_owned());
            set("base_url", base.to_owned());
        }
        (ProviderKind::OpenAiElsewhere, None) => return Err("it needs an `api_base`"),
    }
    if matches!(provider.kind, ProviderKind::Chat(_)) {
        settings.insert("endpoints".to_owned(), json!(["chat.completions", "embeddings"]));
    }
    Ok(settings)
}

pub(super) fn duration(seconds: f64) -> String {
    let ms = (seconds * 1000.0).round() as u64;
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}
