//! The usage in Gemini's answers: `usageMetadata`.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::usage::{PartialUsage, Usage, UsageRules, read_count};
use crate::wire::json;

pub(crate) const USAGE: UsageRules = UsageRules { read, read_ending };

const NAME: &[u8] = b"\"usageMetadata\"";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UsageMetadata<'a> {
    /// Includes the tokens read from the cache.
    #[serde(borrow)]
    prompt_token_count: Option<&'a RawValue>,
    /// Results of tools that Google runs, which the model reads like a prompt.
    #[serde(borrow)]
    tool_use_prompt_token_count: Option<&'a RawValue>,
    /// Tokens of the answer without its thinking.
    #[serde(borrow)]
    candidates_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    thoughts_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    total_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    cached_content_token_count: Option<&'a RawValue>,
}

/// Reads the `usageMetadata` object; `None` if it has no counts. Implausible counts are left out.
pub(crate) fn read_metadata(written: &str) -> Option<PartialUsage> {
    let written: UsageMetadata<'_> = serde_json::from_str(written).ok()?;
    let count = |raw: Option<&RawValue>| raw.and_then(|raw| read_count(raw.get()));
    let sum = |one, other| {
        let counts = [count(one), count(other)];
        let known = counts.iter().any(Option::is_some);
        known.then(|| counts.into_iter().flatten().sum())
    };
    PartialUsage::of_counts(
        sum(written.prompt_token_count, written.tool_use_prompt_token_count),
        sum(written.candidates_token_count, written.thoughts_token_count),
        count(written.total_token_count),
        count(written.cached_content_token_count),
    )
}

/// The tokens in an answer of `countTokens`.
pub(super) fn read_count_answer(answer: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CountAnswer<'a> {
        #[serde(borrow)]
        total_tokens: &'a RawValue,
    }
    let answer: CountAnswer<'_> = serde_json::from_slice(answer).ok()?;
    read_count(answer.total_tokens.get())
}

/// The usage of an answer. A truncated answer is read as far as it goes. Of several `usageMetadata`
/// members the last wins.
fn read(answer: &[u8]) -> Option<Usage> {
    let mut usage = None;
    let _broken = json::read_object(answer, |cursor, name| {
        let span = cursor.skip()?;
        if name.is("usageMetadata") {
            let written = std::str::from_utf8(cursor.raw(&span)).ok();
            usage = written.and_then(read_metadata).and_then(|told| told.usage());
        }
        Ok(())
    });
    usage
}

/// The usage in the last bytes of an answer, from its last `usageMetadata`. The name cannot be part
/// of a string, whose quotes would be escaped.
fn read_ending(ending: &[u8]) -> Option<Usage> {
    let at = memmem::rfind(ending, NAME)?;
    let value = ending.get(at + NAME.len()..)?.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<&RawValue>();
    read_metadata(values.next()?.ok()?.get())?.usage()
}
