//! The shipped prices and abilities of common models, `prices.json`. The head of that file says how
//! old they are and where they come from. They apply where a document sets none. A provider's part
//! of the list is found by its preset or by the exact host of its base URL.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;

use super::presets::Preset;
use super::prices::{KindPrices, Prices};
use rerouter_dialect::neutral::target_terms::ModelTerms;

/// It is empty if it cannot be parsed; a test makes sure that it can.
static LIST: LazyLock<ShippedPriceList> =
    LazyLock::new(|| serde_json::from_str(include_str!("prices.json")).unwrap_or_default());

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShippedPriceList {
    /// Day on which the youngest source was read.
    date: String,
    #[serde(rename = "about")]
    _about: Vec<String>,
    /// URL of the provider's price page, for each part of `models`.
    #[serde(rename = "price_pages")]
    _price_pages: BTreeMap<String, String>,
    models: BTreeMap<String, BTreeMap<String, ShippedModel>>,
}

#[derive(Debug, Deserialize)]
#[serde(from = "ListedModel")]
pub(super) struct ShippedModel {
    pub(super) prices: Arc<Prices>,
    pub(super) context: Option<u64>,
    pub(super) capabilities: Option<Vec<String>>,
    pub(super) terms: ModelTerms,
}

/// An entry of the list, as in `models` of a document.
#[derive(Debug, Deserialize)]
struct ListedModel {
    context: Option<u64>,
    capabilities: Option<Vec<String>>,
    #[serde(default)]
    tiers: Vec<ListedPrices>,
    #[serde(default)]
    multipliers: BTreeMap<String, BTreeMap<String, f64>>,
    #[serde(flatten)]
    terms: ModelTerms,
    #[serde(flatten)]
    prices: ListedPrices,
}

/// Prices by their keys; `above` is the length of a tier.
type ListedPrices = BTreeMap<String, f64>;

impl From<ListedModel> for ShippedModel {
    fn from(listed: ListedModel) -> Self {
        let each = |of: &ListedPrices| KindPrices::each(|kind| of.get(kind.price()).copied());
        let multipliers = listed.multipliers;
        let mut prices = Prices { base: each(&listed.prices), tiers: Vec::new(), multipliers };
        for tier in &listed.tiers {
            prices.tier(tier.get("above").map_or(0, |above| *above as u64), &each(tier));
        }
        let ListedModel { context, capabilities, terms, .. } = listed;
        ShippedModel { prices: Arc::new(prices), context, capabilities, terms }
    }
}

pub(super) fn date() -> &'static str {
    &LIST.date
}

/// The name of a known provider's part of the list.
pub(super) fn part_of(preset: &Preset) -> Option<&'static str> {
    LIST.models.contains_key(preset.name).then_some(preset.name)
}

/// The name of the part for the provider with this host.
pub(super) fn part_of_host(host: &str) -> Option<&'static str> {
    Preset::of_host(host).filter(|preset| preset.host() == host).and_then(part_of)
}

/// The model with this exact name in a part of the list.
pub(super) fn find(part: Option<&str>, model: &str) -> Option<&'static ShippedModel> {
    LIST.models.get(part?)?.get(model)
}

pub(super) fn models(part: Option<&str>) -> impl Iterator<Item = &'static str> {
    let models = part.and_then(|part| LIST.models.get(part));
    models.into_iter().flat_map(|models| models.keys().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::PRESETS;
    use rerouter_base::usage_kind::UsageKind;

    #[test]
    fn the_list_is_whole() {
        let list: ShippedPriceList = serde_json::from_str(include_str!("prices.json")).unwrap();
        assert_eq!(list.date.parse::<jiff::civil::Date>().unwrap().to_string(), list.date);
        let parts = |known: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            let mut parts: Vec<String> = known.map(str::to_owned).collect();
            parts.sort();
            parts.dedup();
            parts
        };
        let of_presets = parts(&mut PRESETS.iter().filter_map(part_of));
        assert_eq!(parts(&mut list.models.keys().map(String::as_str)), of_presets);
        assert_eq!(parts(&mut list._price_pages.keys().map(String::as_str)), of_presets);
        for (name, model) in list.models.values().flatten() {
            let price = |kind| model.prices.base.get(kind);
            let (input, cached) = (price(UsageKind::Input).unwrap(), price(UsageKind::Cached));
            assert!(
                input > 0.0 && cached.is_none_or(|cached| 0.0 < cached && cached < input),
                "{name}"
            );
            // Embeddings have no price of answers.
            let output = price(UsageKind::Output);
            assert_eq!(output.is_none(), name.contains("embed"), "{name}");
            assert!(output.is_none_or(|output| output >= input), "{name}");
            assert!(model.context.is_none_or(|context| context >= 1_000), "{name}");
            let words = ["tools", "vision", "json", "audio"];
            let mut capabilities = model.capabilities.iter().flatten();
            assert!(capabilities.all(|word| words.contains(&word.as_str())), "{name}");
        }
    }

    #[test]
    fn hosts_and_models_are_found_by_their_exact_names_only() {
        assert_eq!(part_of_host("api.groq.com"), Some("groq"));
        for host in ["groq.com", "api.groq.com.example.org", "localhost", ""] {
            assert_eq!(part_of_host(host), None);
        }
        assert!(find(Some("openai"), "gpt-5").is_some());
        assert!(find(Some("groq"), "gpt-5").is_none() && find(None, "gpt-5").is_none());
        assert!(find(Some("openai"), "gpt-5-2099-01-01").is_none());
        assert!(models(Some("anthropic")).any(|model| model == "claude-haiku-4-5"));
        assert_eq!(models(None).count(), 0);
        // Claude Code requests these names. A key for it can have a budget only if they have
        // prices.
        for name in ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-6"] {
            assert!(find(Some("anthropic"), name).is_some(), "{name}");
        }
    }
}

#[cfg(test)]
#[path = "price_list_kinds_tests.rs"]
mod kinds_tests;

#[cfg(test)]
#[path = "price_list_terms_tests.rs"]
mod terms_tests;
