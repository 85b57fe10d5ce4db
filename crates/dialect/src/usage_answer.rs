//! Reads the usage of whole answers.

use std::sync::LazyLock;

use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::usage::{PLAIN_MODES, TIER, Usage};
use crate::wire::json;

/// How the usage of whole answers is read.
pub(crate) struct UsageRules {
    /// Reads an answer, which may be truncated.
    pub read: fn(&[u8]) -> Option<Usage>,
    /// The member that has it, in quotes.
    pub member: &'static str,
}

/// The rules for the member `usage`, which all dialects but Gemini have.
pub(super) const USAGE: UsageRules = UsageRules { read, member: "\"usage\"" };

/// The usage in an answer that is no stream. A truncated answer is read as far as it goes.
fn read(body: &[u8]) -> Option<Usage> {
    let mut usage = read_last_members(body).unwrap_or_else(|| read_whole(body))?;
    if let Some(tier) = read_tier(body) {
        usage.extra.set_mode(TIER, tier);
    }
    Some(usage)
}

/// The member [`TIER`] of an answer, as it stands in JSON; `None` if there is none.
fn read_tier(body: &[u8]) -> Option<&str> {
    static SEARCH: LazyLock<memmem::Finder<'static>> =
        LazyLock::new(|| memmem::Finder::new(b"\"service_tier\""));
    let mut found = None;
    for at in SEARCH.find_iter(body) {
        let value = body.get(at + TIER.len() + 2..)?.trim_ascii_start().strip_prefix(b":");
        let value = value.unwrap_or_default().trim_ascii_start();
        let plain = PLAIN_MODES.iter().find(|mode| {
            let rest =
                value.strip_prefix(b"\"").and_then(|rest| rest.strip_prefix(mode.as_bytes()));
            rest.is_some_and(|rest| rest.starts_with(b"\""))
        });
        // The answer may quote the request, so only a parser knows which member is its own.
        let Some(plain) = plain else { return last_member(body, TIER) };
        found = Some(*plain);
    }
    found
}

/// The last member of this name, as it stands in JSON, in an answer that may be truncated or have
/// duplicate members.
pub(super) fn last_member<'a>(body: &'a [u8], member: &str) -> Option<&'a str> {
    let mut last = None;
    let _broken = json::read_object(body, |cursor, name| {
        let span = cursor.skip()?;
        if name.is(member) {
            last = std::str::from_utf8(cursor.raw(&span)).ok();
        }
        Ok(())
    });
    last
}

/// Length of the answer's end in which the usage is searched first.
const ENDING: usize = 1024;

/// Reads the usage if it is among the last members of the answer, as it nearly always is; `None`
/// for any other answer. Only the end is read: the members from the last `"usage"` up to the
/// bracket that ends the answer. These are members of the answer itself, as no other bracket
/// follows.
fn read_last_members(body: &[u8]) -> Option<Option<Usage>> {
    static SEARCH: LazyLock<memmem::FinderRev<'static>> =
        LazyLock::new(|| memmem::FinderRev::new(USAGE.member));
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
        Err(_) => last_member(body, "usage").and_then(Usage::read),
    }
}

/// The usage in the last bytes of an answer, from its last member of this name in quotes. The name
/// cannot be part of a string, whose quotes would be escaped.
pub(super) fn read_ending(ending: &[u8], member: &str) -> Option<Usage> {
    let at = memmem::rfind(ending, member.as_bytes())?;
    let value = ending.get(at + member.len()..)?.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(value).into_iter::<&RawValue>();
    Usage::read(values.next()?.ok()?.get())
}

#[cfg(test)]
#[path = "usage_answer_tests.rs"]
mod tests;
