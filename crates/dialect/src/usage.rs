//! The usage that an answer reports, in the fields of every protocol and vendor, or the gateway's
//! estimate. Implausible counts are ignored, as they would corrupt sums, budgets and bills.

use std::sync::LazyLock;

use memchr::memmem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::wire::json;

/// Limit on a count of tokens. A higher count is implausible.
pub(super) const USAGE_TOKENS: u64 = 1_000_000_000;

/// Bytes of text per token, on average over English and code.
const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of a request and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens of the request, with those read from and written to the cache.
    pub prompt_tokens: u64,
    /// Tokens generated, reasoning included.
    pub completion_tokens: u64,
    /// Both. It is more than the sum where `completion_tokens` leaves out thinking (Google).
    pub total_tokens: u64,
    /// Prompt tokens read from the cache.
    pub cached_tokens: Option<u64>,
    /// Whether this is our estimate, as the provider reported no usage of the whole answer.
    pub estimated: bool,
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
            cached_tokens: None,
            estimated: true,
        }
    }

    /// Reads a `usage` object; `None` if it has no counts.
    pub fn read(written: &str) -> Option<Self> {
        PartialUsage::read(written)?.usage()
    }

    /// Tokens that are billed as output: `completion_tokens` and thinking that only the total
    /// counts.
    pub fn output_tokens(&self) -> u64 {
        self.completion_tokens.max(self.total_tokens.saturating_sub(self.prompt_tokens))
    }
}

/// Reads the usage of whole answers.
pub(crate) struct UsageRules {
    /// Reads an answer, which may be truncated.
    pub read: fn(&[u8]) -> Option<Usage>,
    /// Reads the last bytes of an answer.
    pub read_ending: fn(&[u8]) -> Option<Usage>,
}

/// The rules for the member `usage`, which all dialects but Gemini have.
pub(super) const USAGE: UsageRules = UsageRules { read, read_ending };

/// The usage reported so far. Some streams report the prompt at the beginning and the output at the
/// end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialUsage {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    /// Tokens from the cache, part of `prompt` or of `fresh`.
    cached: Option<u64>,
    /// Prompt tokens neither read from the cache nor written to it.
    fresh: Option<u64>,
    cache_read: Option<u64>,
    cache_written: Option<u64>,
    absurd: bool,
}

impl PartialUsage {
    /// Reads a `usage` object leniently; `None` if it has no counts.
    pub fn read(written: &str) -> Option<Self> {
        let written: UsageFields<'_> = serde_json::from_str(written).ok()?;
        let mut absurd = false;
        let mut count = |raw: Option<&RawValue>| {
            let count = raw.map(|raw| read_count(raw.get()));
            absurd |= count == Some(None);
            count.flatten()
        };
        let told = PartialUsage {
            prompt: count(written.prompt_tokens),
            completion: count(written.completion_tokens.or(written.output_tokens)),
            fresh: count(written.input_tokens),
            cache_read: count(written.cache_read_input_tokens),
            cache_written: count(written.cache_creation_input_tokens),
            ..PartialUsage::default()
        };
        // An implausible total or cached count is ignored.
        let lenient = |raw: Option<&RawValue>| raw.and_then(|raw| read_count(raw.get()));
        let details = written.prompt_tokens_details.or(written.input_tokens_details);
        let details: Option<UsageDetails<'_>> =
            details.and_then(|details| serde_json::from_str(details.get()).ok());
        let cached = details.and_then(|details| details.cached_tokens);
        let cached = cached
            .or(written.prompt_cache_hit_tokens)
            .or(written.num_cached_tokens)
            .or(written.cached_tokens);
        let told = PartialUsage {
            total: lenient(written.total_tokens),
            cached: lenient(cached),
            absurd,
            ..told
        };
        let counts = absurd || told.prompt.or(told.completion).or(told.fresh).is_some();
        counts.then_some(told)
    }

    /// Usage whose `prompt` includes cached tokens; `None` if neither prompt nor completion is
    /// counted.
    pub(crate) fn of_counts(
        prompt: Option<u64>,
        completion: Option<u64>,
        total: Option<u64>,
        cached: Option<u64>,
    ) -> Option<Self> {
        let told = PartialUsage { prompt, completion, total, cached, ..PartialUsage::default() };
        prompt.or(completion).is_some().then_some(told)
    }

    /// Merges a later report. Counts in a stream are totals so far, so later ones replace earlier
    /// ones.
    pub fn and_then(self, later: PartialUsage) -> PartialUsage {
        PartialUsage {
            prompt: later.prompt.or(self.prompt),
            completion: later.completion.or(self.completion),
            total: later.total.or(self.total.filter(|_| later.completion.is_none())),
            cached: later.cached.or(self.cached),
            fresh: later.fresh.or(self.fresh),
            cache_read: later.cache_read.or(self.cache_read),
            cache_written: later.cache_written.or(self.cache_written),
            absurd: self.absurd || later.absurd,
        }
    }

    /// Whether both prompt and answer were counted.
    pub fn is_whole(&self) -> bool {
        !self.absurd && self.prompt.or(self.fresh).is_some() && self.completion.is_some()
    }

    /// The usage; `None` if a count is implausible.
    pub fn usage(&self) -> Option<Usage> {
        if self.absurd {
            return None;
        }
        let completion_tokens = self.completion.unwrap_or(0);
        let prompt_tokens = self.whole_prompt().unwrap_or(0);
        let sum = prompt_tokens + completion_tokens;
        Some(Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: self.total.unwrap_or(sum),
            cached_tokens: self.cached.or(self.cache_read),
            estimated: false,
        })
    }

    /// The whole prompt, including cached tokens if they are counted apart.
    pub(crate) fn whole_prompt(&self) -> Option<u64> {
        self.prompt.or_else(|| {
            Some(self.fresh? + self.cache_read.unwrap_or(0) + self.cache_written.unwrap_or(0))
        })
    }

    /// The usage of an interrupted answer: the reported prompt, and an estimate of the rest.
    pub(crate) fn completed_by(&self, ours: Usage) -> Usage {
        let Some(told) = self.usage() else { return ours };
        let prompt_tokens = self.whole_prompt().unwrap_or(ours.prompt_tokens);
        let completion_tokens = told.completion_tokens.max(ours.completion_tokens);
        let total_tokens = prompt_tokens.saturating_add(completion_tokens);
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            cached_tokens: told.cached_tokens,
            estimated: true,
        }
    }
}

/// Reads a count; `None` if it is implausible or no whole number.
pub(crate) fn read_count(raw: &str) -> Option<u64> {
    let whole = || raw.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && *number >= 0.0);
    let count = raw.parse::<u64>().ok().or_else(|| whole().map(|number| number as u64))?;
    (count <= USAGE_TOKENS).then_some(count)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct UsageFields<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    // Responses: the whole prompt. Messages: the prompt without cached tokens.
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    input_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_read_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_creation_input_tokens: Option<&'a RawValue>,
    // DeepSeek, Mistral and providers behind Hugging Face use these if they have no details.
    #[serde(borrow)]
    prompt_cache_hit_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    num_cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct UsageDetails<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
}

/// The usage in an answer that is no stream. A truncated answer is read as far as it goes.
fn read(body: &[u8]) -> Option<Usage> {
    read_last_members(body).unwrap_or_else(|| read_whole(body))
}

/// Length of the answer's end in which the usage is searched first.
const ENDING: usize = 1024;
const NAME: &[u8] = b"\"usage\"";

/// Reads the usage if it is among the last members of the answer, as it nearly always is; `None`
/// for any other answer. Only the end is read: the members from the last `"usage"` up to the
/// bracket that ends the answer. These are members of the answer itself, as no other bracket
/// follows.
fn read_last_members(body: &[u8]) -> Option<Option<Usage>> {
    static SEARCH: LazyLock<memmem::FinderRev<'static>> =
        LazyLock::new(|| memmem::FinderRev::new(NAME));
    let ending = body.get(body.len().saturating_sub(ENDING)..)?;
    let at = SEARCH.rfind(ending)?;
    // After a backslash, the quote belongs to a longer name.
    let is_name = at.checked_sub(1).and_then(|before| ending.get(before)) != Some(&b'\\');
    let mut usage = None;
    let read = json::read_last_members(ending.get(at..)?, |cursor, name| {
        let span = cursor.skip()?;
        if name.is("usage") {
            usage = std::str::from_utf8(cursor.raw(&span)).ok().and_then(Usage::read);
        }
        Ok(())
    });
    (is_name && at > 0 && read).then_some(usage)
}

/// Reads a whole answer for its usage.
fn read_whole(body: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct UsageMember<'a> {
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    match serde_json::from_slice::<UsageMember<'_>>(body) {
        Ok(said) => said.usage.and_then(|usage| Usage::read(usage.get())),
        Err(_) => walk_to_usage(body),
    }
}

/// Reads an answer that is truncated or has duplicate members. The last one wins.
fn walk_to_usage(body: &[u8]) -> Option<Usage> {
    let mut usage = None;
    let _broken = json::read_object(body, |cursor, name| {
        let span = cursor.skip()?;
        if name.is("usage") {
            usage = std::str::from_utf8(cursor.raw(&span)).ok().and_then(Usage::read);
        }
        Ok(())
    });
    usage
}

/// The usage in the last bytes of an answer, from its last member `usage`. The name cannot be part
/// of a string, whose quotes would be escaped.
fn read_ending(ending: &[u8]) -> Option<Usage> {
    let at = memmem::rfind(ending, NAME)?;
    let value = ending.get(at + NAME.len()..)?.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<&RawValue>();
    Usage::read(values.next()?.ok()?.get())
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
