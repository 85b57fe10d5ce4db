//! What an answer says about the tokens it took, and our own count where it says nothing.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::json;

/// Bytes of an answer's text that make a token, on average over English and code.
const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of an answer, by the provider's count or by ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    pub prompt_tokens: u64,
    /// Tokens generated, reasoning included.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Those of the prompt that came from the provider's cache.
    pub cached_tokens: Option<u64>,
    /// True when the provider gave no count and this is ours.
    pub estimated: bool,
}

impl Usage {
    /// Our own count for an answer of `bytes` bytes of text.
    pub fn estimate(prompt_tokens: u64, bytes: u64) -> Self {
        let completion_tokens = bytes.div_ceil(BYTES_PER_TOKEN);
        Usage { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens, cached_tokens: None, estimated: true }
    }

    /// Reads a `usage` object as providers of this protocol write it; `None` unless it counts something.
    pub fn read(written: &str) -> Option<Self> {
        let written: WrittenUsage = serde_json::from_str(written).ok()?;
        let (prompt_tokens, completion_tokens) = match (written.prompt_tokens, written.completion_tokens) {
            (None, None) => return None,
            (prompt, completion) => (prompt.unwrap_or(0), completion.unwrap_or(0)),
        };
        Some(Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: written.total_tokens.unwrap_or(prompt_tokens.saturating_add(completion_tokens)),
            cached_tokens: written.prompt_tokens_details.and_then(|details| details.cached_tokens),
            estimated: false,
        })
    }
}

#[derive(Deserialize)]
struct WrittenUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<WrittenDetails>,
}

#[derive(Deserialize)]
struct WrittenDetails {
    cached_tokens: Option<u64>,
}

/// The provider's count in an answer that is no stream. One that breaks off still says what it said until then; what is
/// not as expected counts as absent.
pub fn read(body: &[u8]) -> Option<Usage> {
    #[derive(Deserialize)]
    struct Said<'a> {
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    match serde_json::from_slice::<Said<'_>>(body) {
        Ok(said) => said.usage.and_then(|usage| Usage::read(usage.get())),
        Err(_) => walk_to_usage(body),
    }
}

/// As far as an answer goes that is not whole, or says things twice: the last counts.
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

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
