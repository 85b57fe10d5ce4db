//! The usage that an answer reports, in the fields of every protocol and vendor, or the gateway's
//! estimate. Implausible counts are ignored, as they would corrupt sums, budgets and bills.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use rerouter_base::usage_kind::UsageCounts;

/// Bytes of text per token, on average over English and code.
const BYTES_PER_TOKEN: u64 = 4;

/// What a request and its answer used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens of the request, with those read from and written to the cache.
    pub prompt_tokens: u64,
    /// Tokens generated, reasoning included.
    pub completion_tokens: u64,
    /// Both. It is more than the sum where `completion_tokens` leaves out thinking (Google).
    pub total_tokens: u64,
    #[serde(flatten)]
    pub counts: UsageCounts,
    /// Whether this is our estimate, as the provider reported no usage of the whole answer.
    pub estimated: bool,
    #[serde(flatten)]
    pub extra: UsageExtra,
}

/// What a usage object tells beside counts. Most tell nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UsageExtra {
    /// What the answer cost, as the provider tells it, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Values that may multiply prices, by the member that has them in requests.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modes: BTreeMap<String, String>,
    /// Members of unknown meaning as told, by their path: up to 16 of up to 128 bytes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<String, Value>,
}

/// The member of chat completions and responses that names the tier which served them.
pub(super) const TIER: &str = "service_tier";

/// Modes that never multiply prices.
const PLAIN_MODES: [&str; 8] =
    ["", "auto", "default", "global", "not_available", "on_demand", "standard", "standard_only"];

/// Limit on the bytes of a mode. Longer ones are cut.
const MODE_BYTES: usize = 64;

pub fn may_multiply(mode: &str) -> bool {
    !PLAIN_MODES.contains(&mode)
}

/// The mode that a member has, as it stands in JSON; `None` if it has none.
pub(super) fn read_mode(raw: &str) -> Option<String> {
    let said = serde_json::from_str::<Option<String>>(raw);
    let said = said.unwrap_or_else(|_| Some(raw.to_owned()))?.to_ascii_lowercase();
    // Google names the tier so.
    let mode = said.strip_prefix("on_demand_").unwrap_or(&said);
    Some(mode.get(..mode.floor_char_boundary(MODE_BYTES)).unwrap_or_default().to_owned())
}

impl UsageExtra {
    /// Notes the value of a member, as it stands in JSON.
    pub(super) fn set_mode(&mut self, member: &str, raw: &str) {
        if let Some(mode) = read_mode(raw) {
            self.modes.insert(member.to_owned(), mode);
        }
    }
}

impl Usage {
    /// Estimates the usage of an answer of `bytes` bytes of text.
    pub fn estimate(prompt_tokens: u64, bytes: u64) -> Self {
        let completion_tokens = bytes.div_ceil(BYTES_PER_TOKEN);
        let total_tokens = prompt_tokens.saturating_add(completion_tokens);
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            estimated: true,
            ..Usage::default()
        }
    }

    /// Whether it tells more than the counts that every answer has, and cached tokens.
    pub fn has_kinds(&self) -> bool {
        let counts = UsageCounts { cached_tokens: None, ..self.counts };
        let UsageExtra { cost_usd, modes, unknown } = &self.extra;
        let has_extra = cost_usd.is_some() || !modes.is_empty() || !unknown.is_empty();
        has_extra || counts != UsageCounts::default()
    }

    /// The usage if the provider had cached nothing of the prompt, but would write it to its cache:
    /// for as long as the rest of it, or for an hour if that is not known.
    #[must_use]
    pub fn without_cache(&self) -> Self {
        let mut usage = self.clone();
        let counts = &mut usage.counts;
        let cached = counts.cached_tokens.take().unwrap_or(0);
        counts.cached_audio_tokens = None;
        let written = counts.cache_write_tokens.unwrap_or(0);
        let for_an_hour = match counts.cache_write_1h_tokens {
            None if written > 0 => 0,
            for_an_hour => for_an_hour.unwrap_or(0).saturating_add(cached),
        };
        usage.written(written.saturating_add(cached), for_an_hour);
        usage
    }

    /// Sets how much of the prompt was written to the cache, and how much of that for an hour.
    pub fn written(&mut self, all: u64, for_an_hour: u64) {
        self.counts.cache_write_tokens = (all > 0).then_some(all);
        self.counts.cache_write_1h_tokens = (for_an_hour > 0).then_some(for_an_hour);
    }

    /// Adds the modes that were requested, unless the answer names others, and leaves those that
    /// never multiply prices.
    pub fn add_modes(&mut self, requested: &[(&'static str, String)]) {
        let modes = &mut self.extra.modes;
        for (member, mode) in requested {
            modes.entry((*member).to_owned()).or_insert_with(|| mode.clone());
        }
        modes.retain(|_, mode| may_multiply(mode));
    }

    /// Tokens that are billed as output: `completion_tokens` and thinking that only the total
    /// counts.
    pub fn output_tokens(&self) -> u64 {
        self.completion_tokens.max(self.total_tokens.saturating_sub(self.prompt_tokens))
    }
}
