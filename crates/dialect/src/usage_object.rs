//! Reads usage objects: the counts that every answer has, those of the kinds of usage, what
//! multiplies prices, and the provider's own cost. What has no known meaning is kept as told.

use serde_json::Value;
use serde_json::value::RawValue;

use super::neutral::answer::TokenCounts;
use super::usage::{TIER, Usage, UsageExtra, may_multiply, read_mode};
use crate::wire::json::{self, Cursor, JsonError, JsonKind, MemberName};
use rerouter_base::usage_kind::{UsageCounts, UsageKind};

/// Limit on a count of tokens. A higher count is implausible.
pub(super) const USAGE_TOKENS: u64 = 1_000_000_000;

/// Limit on a cost that a provider reports, in US dollars. A higher cost is implausible.
const USAGE_COST: f64 = 1e6;

/// Limit on the members of unknown meaning that are kept of an answer.
const UNKNOWN_MEMBERS: usize = 16;

/// Limit on the bytes of a kept name or value.
const UNKNOWN_BYTES: usize = 128;

/// Bytes that most paths fit in.
const PATH_BYTES: usize = 64;

/// Members that are part of a count that has its own member, or that are not billed.
const NOT_BILLED: &[&str] = &[
    "cache_creation.ephemeral_5m_input_tokens",
    "cacheTokensDetails.DOCUMENT",
    "cacheTokensDetails.IMAGE",
    "cacheTokensDetails.TEXT",
    "cacheTokensDetails.VIDEO",
    "candidatesTokensDetails.TEXT",
    "completion_time",
    "completion_tokens_details.accepted_prediction_tokens",
    "completion_tokens_details.rejected_prediction_tokens",
    "completion_tokens_details.text_tokens",
    "input_tokens_details.text_tokens",
    "iterations.message",
    "output_tokens_details.text_tokens",
    "promptTokenDetails.TEXT",
    "prompt_cache_miss_tokens",
    "prompt_time",
    "prompt_tokens_details.cached_tokens_details.text_tokens",
    "prompt_tokens_details.text_tokens",
    "prompt_tokens_details.video_tokens",
    "promptTokensDetails.DOCUMENT",
    "promptTokensDetails.TEXT",
    "promptTokensDetails.VIDEO",
    "queue_time",
    "search_context_size",
    "server_tool_use.web_fetch_requests",
    "server_tool_use_details.tool_calls_executed",
    "server_tool_use_details.tool_calls_requested",
    "toolUsePromptTokensDetails.TEXT",
    "total_time",
];

/// Members whose parts are all parts of the provider's own cost.
const COSTS: [&str; 2] = ["cost", "cost_details"];

/// The usage reported so far. Some streams report the prompt at the beginning and the output at the
/// end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PartialUsage {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    /// Prompt tokens neither read from the cache nor written to it.
    fresh: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    /// Results of tools that the provider runs, which the model reads like a prompt.
    tools: Option<u64>,
    /// Thinking that `completion` leaves out.
    thoughts: Option<u64>,
    counts: UsageCounts,
    extra: UsageExtra,
    /// The cost of a provider that is paid apart, and whether it is.
    elsewhere: (Option<f64>, bool),
    absurd: bool,
}

impl PartialUsage {
    /// Reads a usage object leniently; `None` if it has no counts.
    pub(crate) fn read(written: &str) -> Option<Self> {
        let mut told = PartialUsage::default();
        let mut path = String::with_capacity(PATH_BYTES);
        json::read_object(written.as_bytes(), |cursor, name| told.named(cursor, name, &mut path))
            .ok()?;
        told.counts().then_some(told)
    }

    /// Reads the value at the cursor, which may have no counts; `None` if it is not UTF-8.
    pub(super) fn read_next(cursor: &mut Cursor<'_>) -> Result<Option<Self>, JsonError> {
        let mut told = PartialUsage::default();
        let mut path = String::with_capacity(PATH_BYTES);
        let begin = cursor.position();
        cursor.members(|cursor, name| told.named(cursor, name, &mut path))?;
        let is_text = std::str::from_utf8(cursor.raw(&(begin..cursor.position()))).is_ok();
        Ok(is_text.then_some(told))
    }

    /// Reads the usage of an event, which may name the tier that serves the answer. Of an event
    /// without usage, a tier that may multiply prices.
    pub(crate) fn of_event(usage: Option<&RawValue>, tier: Option<&RawValue>) -> Option<Box<Self>> {
        let mut told = usage.and_then(|usage| PartialUsage::read(usage.get()));
        let tier = tier.and_then(|tier| read_mode(tier.get()));
        if let Some(tier) = tier.filter(|tier| told.is_some() || may_multiply(tier)) {
            told.get_or_insert_default().extra.modes.insert(TIER.to_owned(), tier);
        }
        told.map(Box::new)
    }

    pub(crate) fn counts(&self) -> bool {
        self.absurd || self.prompt.or(self.completion).or(self.fresh).is_some()
    }

    /// The paths of members of unknown meaning.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.extra.unknown.keys().map(String::as_str)
    }

    /// Counts searches that the usage object does not tell.
    pub(crate) fn count_searches(&mut self, searches: u64) {
        if searches > 0 {
            self.counts.set(UsageKind::WebSearch, searches);
        }
    }

    /// `path` is a buffer.
    fn named(
        &mut self,
        cursor: &mut Cursor<'_>,
        name: MemberName<'_>,
        path: &mut String,
    ) -> Result<(), JsonError> {
        path.clear();
        path.push_str(&name.text());
        self.member(cursor, path)
    }

    /// Reads a member's value; `path` is that of the member.
    fn member(&mut self, cursor: &mut Cursor<'_>, path: &mut String) -> Result<(), JsonError> {
        let length = path.len();
        match cursor.kind()? {
            // Counts have to be numbers.
            JsonKind::Object if self.base(path).is_none() => cursor.members(|cursor, name| {
                path.truncate(length);
                path.push('.');
                path.push_str(&name.text());
                self.member(cursor, path)
            }),
            JsonKind::Array if self.base(path).is_none() => cursor.elements(|cursor| {
                path.truncate(length);
                let span = cursor.skip()?;
                let element = serde_json::from_slice(cursor.raw(&span)).unwrap_or_default();
                self.element(&element, path);
                Ok(())
            }),
            _ => {
                let span = cursor.skip()?;
                let raw = std::str::from_utf8(cursor.raw(&span)).unwrap_or_default();
                self.value(path, raw);
                Ok(())
            }
        }
    }

    /// Reads an element of a list: the tokens of a modality, or one of the model's turns.
    fn element(&mut self, element: &Value, path: &mut String) {
        path.push('.');
        let name = element.get("modality").or_else(|| element.get("type")).and_then(Value::as_str);
        path.push_str(name.unwrap_or("[]"));
        match (element.get("modality"), element.get("tokenCount")) {
            (Some(_), count) => self.value(path, &count.map_or_else(String::new, Value::to_string)),
            _ => self.value(path, &element.to_string()),
        }
    }

    /// The count that every answer has, and whether the usage is worth nothing if it is
    /// implausible.
    fn base(&mut self, path: &str) -> Option<(&mut Option<u64>, bool)> {
        Some(match path {
            "prompt_tokens" | "promptTokenCount" => (&mut self.prompt, true),
            "completion_tokens" | "output_tokens" | "candidatesTokenCount" => {
                (&mut self.completion, true)
            }
            // Responses: the whole prompt. Messages: the prompt without cached tokens.
            "input_tokens" => (&mut self.fresh, true),
            "total_tokens" | "totalTokenCount" => (&mut self.total, false),
            "cache_read_input_tokens" => (&mut self.cache_read, true),
            "cache_creation_input_tokens" => (&mut self.cache_written, true),
            "toolUsePromptTokenCount" => (&mut self.tools, true),
            "thoughtsTokenCount" => (&mut self.thoughts, true),
            _ => return None,
        })
    }

    fn value(&mut self, path: &str, raw: &str) {
        let count = read_count(raw);
        let mut absurd = false;
        if let Some((place, is_required)) = self.base(path) {
            // Of two names for the answer, that of chat completions counts.
            *place = if path == "output_tokens" { place.or(count) } else { count.or(*place) };
            absurd = is_required && count.is_none() && raw != "null";
        } else if UsageKind::told_by(path).is_none() {
            return self.other(path, raw);
        }
        self.absurd |= absurd;
        let Some(kind) = UsageKind::told_by(path) else { return };
        match count {
            // A count of nothing is not worth a place in records. `cached_tokens` always has one.
            Some(0) if kind != UsageKind::Cached => {}
            // Some providers tell a kind in two places.
            Some(count) => {
                let told = self.counts.get(kind).unwrap_or(0);
                self.counts.set(kind, count.max(told));
            }
            None if raw != "null" => self.keep(path, raw),
            None => {}
        }
    }

    /// Takes the value of a member that is no count of tokens.
    fn other(&mut self, path: &str, raw: &str) {
        let amount = |per_dollar: f64| {
            let cost = raw.parse::<f64>().ok()? / per_dollar;
            (0.0..=USAGE_COST).contains(&cost).then_some(cost)
        };
        let extra = &mut self.extra;
        match path {
            "cost" | "cost.total_cost" | "cost_in_usd_ticks" if raw != "null" => {
                // xAI counts ticks, of which ten billion are a dollar.
                let cost = amount(if path == "cost_in_usd_ticks" { 1e10 } else { 1.0 });
                extra.cost_usd = cost.or(extra.cost_usd);
                if cost.is_none() {
                    self.keep(path, raw);
                }
            }
            "cost_details.upstream_inference_cost" => self.elsewhere.0 = amount(1.0),
            "is_byok" => self.elsewhere.1 = raw == "true",
            "service_tier" | "speed" | "inference_geo" => extra.set_mode(path, raw),
            "serviceTier" | "trafficType" => extra.set_mode(TIER, raw),
            _ if NOT_BILLED.contains(&path) => {}
            _ if path.split_once('.').is_some_and(|(name, _)| COSTS.contains(&name)) => {}
            _ if says_nothing(raw) => {}
            _ => self.keep(path, raw),
        }
    }

    fn keep(&mut self, path: &str, raw: &str) {
        let unknown = &mut self.extra.unknown;
        if unknown.len() < UNKNOWN_MEMBERS {
            let whole = (raw.len() <= UNKNOWN_BYTES).then(|| serde_json::from_str(raw).ok());
            let value = whole.flatten().unwrap_or_else(|| Value::from(first_bytes(raw)));
            unknown.entry(first_bytes(path).to_owned()).or_insert(value);
        }
    }

    /// Merges a later report. Counts in a stream are totals so far, so later ones replace earlier
    /// ones.
    pub(crate) fn update(&mut self, later: PartialUsage) {
        self.total = later.total.or(self.total.filter(|_| later.completion.is_none()));
        for (count, later) in [
            (&mut self.prompt, later.prompt),
            (&mut self.completion, later.completion),
            (&mut self.fresh, later.fresh),
            (&mut self.cache_read, later.cache_read),
            (&mut self.cache_written, later.cache_written),
            (&mut self.tools, later.tools),
            (&mut self.thoughts, later.thoughts),
        ] {
            *count = later.or(*count);
        }
        let (mut counts, before) = (later.counts.all(), self.counts.all());
        counts.iter_mut().zip(before).for_each(|(count, before)| *count = count.or(before));
        self.counts = UsageCounts::of(counts);
        self.extra.cost_usd = later.extra.cost_usd.or(self.extra.cost_usd);
        self.extra.modes.extend(later.extra.modes);
        for (path, told) in later.extra.unknown {
            if self.extra.unknown.len() < UNKNOWN_MEMBERS {
                self.extra.unknown.insert(path, told);
            }
        }
        self.elsewhere.0 = later.elsewhere.0.or(self.elsewhere.0);
        self.elsewhere.1 |= later.elsewhere.1;
        self.absurd |= later.absurd;
    }

    /// Whether both prompt and answer were counted.
    pub(crate) fn is_whole(&self) -> bool {
        !self.absurd && self.prompt.or(self.fresh).is_some() && self.completion.is_some()
    }

    /// The usage; `None` if a count is implausible.
    pub(crate) fn usage(&self) -> Option<Usage> {
        if self.absurd {
            return None;
        }
        let completion_tokens = self.completion.unwrap_or(0) + self.thoughts.unwrap_or(0);
        let prompt_tokens = self.whole_prompt().unwrap_or(0);
        let sum = prompt_tokens + completion_tokens;
        let mut extra = self.extra.clone();
        if let (Some(cost), (Some(elsewhere), true)) = (&mut extra.cost_usd, self.elsewhere) {
            *cost += elsewhere;
        }
        Some(Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: self.total.unwrap_or(sum),
            counts: self.counts,
            estimated: false,
            extra,
        })
    }

    /// The usage; `None` if it has no counts.
    pub(super) fn counted(&self) -> Option<Usage> {
        self.usage().filter(|_| self.counts())
    }

    /// The counts as clients of other dialects get them.
    pub(crate) fn token_counts(&self) -> TokenCounts {
        let count = |kind| self.counts.get(kind).unwrap_or(0);
        let (input, cache_read) = (self.whole_prompt().unwrap_or(0), count(UsageKind::Cached));
        TokenCounts {
            input,
            cache_read,
            // OpenRouter counts some tokens as read and as written.
            cache_written: count(UsageKind::CacheWrite).min(input.saturating_sub(cache_read)),
            output: self.completion.unwrap_or(0) + self.thoughts.unwrap_or(0),
            reasoning: count(UsageKind::Reasoning),
        }
    }

    /// The whole prompt, including cached tokens if they are counted apart.
    pub(crate) fn whole_prompt(&self) -> Option<u64> {
        let apart = |fresh| fresh + self.cache_read.unwrap_or(0) + self.cache_written.unwrap_or(0);
        let prompt = self.prompt.or_else(|| self.fresh.map(apart));
        prompt.map(|prompt| prompt + self.tools.unwrap_or(0))
    }

    /// The usage of an interrupted answer: the reported prompt, and an estimate of the rest.
    pub(crate) fn completed_by(&self, ours: Usage) -> Usage {
        let Some(told) = self.usage() else { return ours };
        let prompt_tokens = self.whole_prompt().unwrap_or(ours.prompt_tokens);
        let completion_tokens = told.completion_tokens.max(ours.completion_tokens);
        let total_tokens = prompt_tokens.saturating_add(completion_tokens);
        Usage { prompt_tokens, completion_tokens, total_tokens, estimated: true, ..told }
    }
}

impl Usage {
    /// Reads a `usage` object; `None` if it has no counts.
    pub fn read(written: &str) -> Option<Self> {
        PartialUsage::read(written)?.usage()
    }
}

/// Reads a count; `None` if it is implausible or no whole number.
pub(crate) fn read_count(raw: &str) -> Option<u64> {
    let whole = || raw.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && *number >= 0.0);
    let count = raw.parse::<u64>().ok().or_else(|| whole().map(|number| number as u64))?;
    (count <= USAGE_TOKENS).then_some(count)
}

/// Whether a value says that nothing was used.
fn says_nothing(raw: &str) -> bool {
    matches!(raw, "null" | "false" | "\"\"" | "") || raw.parse() == Ok(0.0)
}

/// The beginning of a text that is too long to keep.
fn first_bytes(text: &str) -> &str {
    text.get(..text.floor_char_boundary(UNKNOWN_BYTES)).unwrap_or_default()
}
