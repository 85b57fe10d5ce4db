//! The usage in Gemini's answers: `usageMetadata`.

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::usage::Usage;
use super::super::usage_answer::UsageRules;
use super::super::usage_object::read_count;
use crate::wire::json;

pub(crate) const USAGE: UsageRules = UsageRules { read, read_ending };

const NAME: &[u8] = b"\"usageMetadata\"";

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
            usage = written.and_then(Usage::read);
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
    Usage::read(values.next()?.ok()?.get())
}
