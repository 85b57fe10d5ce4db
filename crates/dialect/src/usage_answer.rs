//! Reads the usage of whole answers.

use std::sync::LazyLock;

use memchr::memmem;

use super::usage::{TIER, Usage};
use super::usage_object::PartialUsage;
use crate::wire::json::{self, Cursor, JsonError};

pub(crate) struct UsageRules {
    /// Reads an answer, which may be truncated.
    pub read: fn(&[u8]) -> Option<Usage>,
    /// The member that has it, in quotes.
    pub member: &'static str,
}

/// The rules for the member `usage`, which all dialects but Gemini have.
pub(super) const USAGE: UsageRules = UsageRules { read, member: "\"usage\"" };

/// A truncated answer is read as far as it goes.
fn read(body: &[u8]) -> Option<Usage> {
    let mut usage = match usage_at_end(body) {
        Some(told) => told.counted(),
        None => last_member(body, "usage").and_then(Usage::read),
    }?;
    if let Some(tier) = read_tier(body) {
        usage.extra.set_mode(TIER, tier);
    }
    Some(usage)
}

const QUOTED_TIER: &str = "\"service_tier\"";

/// The member [`TIER`] of an answer, as it stands in JSON; `None` if there is none, as in messages,
/// whose usage has it, and in truncated answers.
fn read_tier(body: &[u8]) -> Option<&str> {
    static SEARCH: LazyLock<(memmem::Finder<'static>, memmem::FinderRev<'static>)> =
        LazyLock::new(|| (memmem::Finder::new(QUOTED_TIER), memmem::FinderRev::new(QUOTED_TIER)));
    // Most answers have none. The search from the beginning is five times as fast.
    SEARCH.0.find(body).and_then(|_| own_member(body, TIER, &SEARCH.1, raw_text))
}

/// Places of a name that are tried from the end of an answer.
const PLACES: usize = 4;

/// The last member of this name that the answer itself has, as `read` reads its value. `search`
/// finds the name in quotes. Only the end of the answer is read. The answer may quote the request,
/// but from its own member on there are only members up to the bracket that ends it.
fn own_member<'a, T>(
    body: &'a [u8],
    member: &str,
    search: &memmem::FinderRev<'_>,
    read: impl Fn(&mut Cursor<'a>) -> Result<Option<T>, JsonError>,
) -> Option<T> {
    let mut end = body.len();
    for _ in 0..PLACES {
        let at = search.rfind(body.get(..end)?)?;
        end = at;
        // After a backslash, the quote belongs to a longer name.
        if at.checked_sub(1).and_then(|before| body.get(before)).is_none_or(|byte| *byte == b'\\') {
            continue;
        }
        let mut last = None;
        let is_own = json::read_last_members(body.get(at..)?, |cursor, name| {
            if !name.is(member) {
                return cursor.pass();
            }
            last = read(cursor)?;
            Ok(())
        });
        if is_own {
            return last;
        }
    }
    None
}

/// The next value as it stands in JSON; `None` if it is not UTF-8.
fn raw_text<'a>(cursor: &mut Cursor<'a>) -> Result<Option<&'a str>, JsonError> {
    let span = cursor.skip()?;
    Ok(std::str::from_utf8(cursor.raw(&span)).ok())
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

/// The usage if it is among the last members of the answer, as it nearly always is. It may have no
/// counts.
fn usage_at_end(body: &[u8]) -> Option<PartialUsage> {
    static SEARCH: LazyLock<memmem::FinderRev<'static>> =
        LazyLock::new(|| memmem::FinderRev::new(USAGE.member));
    let ending = body.get(body.len().saturating_sub(ENDING)..)?;
    own_member(ending, "usage", &SEARCH, PartialUsage::read_next)
}

/// The usage in the last bytes of an answer, from its last member of this name in quotes.
pub(super) fn read_ending(ending: &[u8], member: &str) -> Option<Usage> {
    let search = memmem::FinderRev::new(member);
    let name = member.trim_matches('"');
    let mut usage = own_member(ending, name, &search, PartialUsage::read_next)?.counted()?;
    let tier = own_member(ending, TIER, &memmem::FinderRev::new(QUOTED_TIER), raw_text);
    if let Some(tier) = tier {
        usage.extra.set_mode(TIER, tier);
    }
    Some(usage)
}

#[cfg(test)]
#[path = "usage_answer_tests.rs"]
mod tests;
