//! What the shipped price list has to say of each model: every kind of usage that its provider
//! bills. `.ci/prices --check` compares the figures themselves with their sources.

use rerouter_base::usage_kind::UsageKind;
use serde_json::{Map, Value};

type Model = Map<String, Value>;

/// What the models of a part that match have to have.
type Applies = fn(&str, &Model) -> bool;

const BILLED: [(&str, Applies, &[&str]); 8] = [
    (
        "anthropic",
        has_cached_price,
        &["cache_write_per_mtok", "cache_write_1h_per_mtok", "web_searches_per_k"],
    ),
    ("anthropic", any, &["output_per_mtok", "cached_input_per_mtok"]),
    ("gemini", answers, &["cached_input_per_mtok", "web_searches_per_k"]),
    ("gemini", hears_at_another_price, &["input_audio_per_mtok", "cached_audio_per_mtok"]),
    ("openai", hears, &["input_audio_per_mtok", "output_audio_per_mtok"]),
    ("openai", writes_caches, &["cache_write_per_mtok"]),
    ("openrouter", is_claude, &["cache_write_per_mtok", "cache_write_1h_per_mtok"]),
    ("openrouter", hears_at_another_price, &["input_audio_per_mtok"]),
];

/// Gemini's models whose audio costs what text costs.
const AUDIO_AS_TEXT: [&str; 8] = [
    "gemini-2.5-pro",
    "gemini-3.1-pro-preview",
    "gemini-3.5-flash",
    "gemini-3.5-flash-lite",
    "gemini-3.6-flash",
    "gemini-3.7-flash",
    "gemini-3.8-flash",
    "gemini-4-argon",
];

/// Request members that may multiply the prices of tokens.
const MULTIPLIERS: [&str; 3] = ["inference_geo", "service_tier", "speed"];

fn any(_: &str, _: &Model) -> bool {
    true
}

fn answers(_: &str, model: &Model) -> bool {
    model.contains_key("output_per_mtok")
}

fn has_cached_price(_: &str, model: &Model) -> bool {
    model.contains_key("cached_input_per_mtok")
}

fn hears(_: &str, model: &Model) -> bool {
    let words = model.get("capabilities").and_then(Value::as_array);
    words.is_some_and(|words| words.iter().any(|word| word == "audio"))
}

fn hears_at_another_price(name: &str, model: &Model) -> bool {
    hears(name, model) && !AUDIO_AS_TEXT.contains(&name.trim_start_matches("google/"))
}

/// From gpt-5.6 on, OpenAI bills writes to its cache.
fn writes_caches(name: &str, _: &Model) -> bool {
    ["gpt-5.6", "gpt-6"].iter().any(|start| name.starts_with(start))
}

fn is_claude(name: &str, _: &Model) -> bool {
    name.starts_with("anthropic/")
}

fn for_each_model(mut look: impl FnMut(&str, &str, &Model)) {
    let list: Value = serde_json::from_str(include_str!("prices.json")).unwrap();
    for (part, models) in list["models"].as_object().unwrap() {
        for (name, model) in models.as_object().unwrap() {
            look(part, name, model.as_object().unwrap());
        }
    }
}

#[test]
fn each_kind_that_a_provider_bills_has_a_price() {
    let mut met = [0; BILLED.len()];
    for_each_model(|part, name, model| {
        for (count, (billed_by, matches, keys)) in met.iter_mut().zip(BILLED) {
            if part == billed_by && matches(name, model) {
                *count += 1;
                for key in keys {
                    assert!(model.contains_key(*key), "{part}/{name} lacks {key}");
                }
            }
        }
    });
    assert!(met.iter().all(|count| *count > 0), "{met:?}");
}

#[test]
fn prices_are_of_known_kinds_and_in_their_order() {
    let price_of = |model: &Model, key: &str| model.get(key).and_then(Value::as_f64);
    let kinds = UsageKind::ALL.map(UsageKind::price);
    for_each_model(|part, name, model| {
        let others = ["tiers", "multipliers", "context", "capabilities"];
        let terms = ["longest_answer", "reasoning", "sampling"];
        for key in model.keys().map(String::as_str) {
            let is_known = kinds.contains(&key) || others.contains(&key) || terms.contains(&key);
            assert!(is_known, "{part}/{name} {key}");
        }
        for key in kinds.iter().filter(|key| model.contains_key(**key)) {
            assert!(price_of(model, key).is_some_and(|usd| usd > 0.0), "{part}/{name} {key}");
        }
        for (lower, higher) in [
            ("cached_input_per_mtok", "input_per_mtok"),
            ("input_per_mtok", "cache_write_per_mtok"),
            ("cache_write_per_mtok", "cache_write_1h_per_mtok"),
            ("input_per_mtok", "input_audio_per_mtok"),
            ("cached_audio_per_mtok", "input_audio_per_mtok"),
            ("output_per_mtok", "output_audio_per_mtok"),
        ] {
            if let (Some(low), Some(high)) = (price_of(model, lower), price_of(model, higher)) {
                assert!(low < high, "{part}/{name}: {lower} {low}, {higher} {high}");
            }
        }
    });
}

#[test]
fn tiers_ascend_and_have_what_the_base_has() {
    let mut met = 0;
    for_each_model(|part, name, model| {
        let Some(tiers) = model.get("tiers").and_then(Value::as_array) else { return };
        met += 1;
        let above: Vec<u64> = tiers.iter().map(|tier| tier["above"].as_u64().unwrap()).collect();
        assert!(above.is_sorted_by(|a, b| a < b) && !above.is_empty(), "{part}/{name}");
        for tier in tiers {
            let tier = tier.as_object().unwrap();
            for (key, price) in tier.iter().filter(|(key, _)| *key != "above") {
                let base = model.get(key).and_then(Value::as_f64);
                let is_dearer = base.is_some_and(|base| price.as_f64().unwrap() > base);
                assert!(is_dearer, "{part}/{name} {key}");
            }
            for key in model.keys().filter(|key| {
                key.ends_with("_per_mtok") && !key.contains("audio") && !key.contains("image")
            }) {
                assert!(tier.contains_key(key), "{part}/{name}: a tier lacks {key}");
            }
        }
    });
    assert!(met > 0);
}

#[test]
fn factors_are_of_known_members() {
    let mut met = std::collections::BTreeSet::new();
    for_each_model(|part, name, model| {
        let Some(members) = model.get("multipliers").and_then(Value::as_object) else { return };
        assert_ne!(part, "openrouter", "{name}: factors of the maker don't hold there");
        for (member, values) in members {
            assert!(MULTIPLIERS.contains(&member.as_str()), "{part}/{name} {member}");
            met.insert(member.clone());
            for (value, factor) in values.as_object().unwrap() {
                let factor = factor.as_f64().unwrap();
                assert!((0.1..=10.0).contains(&factor), "{part}/{name} {member} {value}");
                // These cost what is listed.
                let neutral = ["auto", "default", "standard", "standard_only"];
                assert!(!neutral.contains(&value.as_str()), "{part}/{name} {member} {value}");
            }
        }
    });
    assert!(met.iter().map(String::as_str).eq(MULTIPLIERS));
}
