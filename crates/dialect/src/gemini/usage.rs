//! The usage in Gemini's answers: `usageMetadata`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::usage::Usage;
use super::super::usage_answer::{UsageRules, last_member};
use super::super::usage_object::read_count;

pub(crate) const USAGE: UsageRules = UsageRules { read, member: "\"usageMetadata\"" };

/// A truncated answer is read as far as it goes. Of several `usageMetadata` members the last wins.
fn read(answer: &[u8]) -> Option<Usage> {
    last_member(answer, "usageMetadata").and_then(Usage::read)
}

/// The tokens in an answer of `countTokens`.
pub(super) fn read_count_answer(answer: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
    struct CountAnswer<'a> {
        total_tokens: &'a RawValue,
    }
    let answer: CountAnswer<'_> = serde_json::from_slice(answer).ok()?;
    read_count(answer.total_tokens.get())
}
