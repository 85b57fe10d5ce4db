//! The sections beside `model_list`: defaults of all models, and settings without a counterpart.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::notes::{Notes, pairs, scalar, texts};
use rerouter_routing::ATTEMPTS_MAX;

/// Timeouts of calls that providers take, in seconds.
pub(super) const TIMEOUT: RangeInclusive<f64> = 1.0..=86_400.0;

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

/// Sections that are imported.
const SECTIONS: [&str; 5] =
    ["model_list", "litellm_settings", "router_settings", "general_settings", "credential_list"];

/// Reads the settings that are imported, and notes the others.
pub(super) fn read(configuration: &Value, notes: &mut Notes) -> LitellmDefaults {
    let section = |name: &str| configuration.get(name).and_then(Value::as_object);
    let (library, router) = (section("litellm_settings"), section("router_settings"));
    // The router's settings win, as in LiteLLM.
    let get = |name: &str| {
        router.and_then(|section| section.get(name)).or_else(|| library.and_then(|s| s.get(name)))
    };
    for name in ["litellm_settings", "router_settings", "general_settings"] {
        notes.add_left_out(&format!("{name}."), section(name), &CARRIED);
    }
    notes.add_left_out("", configuration.as_object(), &SECTIONS);
    let context = "context_window_fallbacks";
    let context_fallbacks = pairs(context, get(context), notes);
    if !context_fallbacks.is_empty() {
        notes.add(
            context,
            "carried as last targets: a target whose context is too small is left out, and they \
             are tried after other failures, too",
        );
    }
    let mut within = |name: &str, range| notes.within(name, get(name), range);
    LitellmDefaults {
        timeout: within("timeout", TIMEOUT).or_else(|| within("request_timeout", TIMEOUT)),
        retries: within("num_retries", 0.0..=(ATTEMPTS_MAX - 1) as f64),
        allowed_fails: within("allowed_fails", 0.0..=999_999.0),
        cooldown: within("cooldown_time", 1.0..=600.0),
        strategy: scalar(get("routing_strategy")),
        fallbacks: pairs("fallbacks", get("fallbacks"), notes),
        context_fallbacks,
        default_fallbacks: texts(get("default_fallbacks")),
        by_tags: get("enable_tag_filtering") == Some(&Value::Bool(true)),
    }
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
