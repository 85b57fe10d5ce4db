//! The function `matches`: linear-time regular expressions. Patterns are literals. The check
//! compiles each one once; threads that evaluate it cache it.

use std::cell::RefCell;
use std::collections::HashMap;

use cel::common::types::{CelBool, CelString};
use cel::{Env, ExecutionError};
use regex::{Regex, RegexBuilder};

use super::flaw::shorten;

/// Maximum size of a compiled pattern of `matches` in bytes: a few hundred states.
const CEL_PATTERN: usize = 64 << 10;
/// Number of compiled patterns that a thread caches: those of a live document and of another one
/// that is evaluated.
const CEL_PATTERNS: usize = 256;

thread_local! {
    /// Cache of compiled patterns. It is cleared when full, as a live document has few patterns.
    static COMPILED: RefCell<HashMap<String, Regex>> = RefCell::new(HashMap::new());
}

/// The error is a message.
pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    RegexBuilder::new(pattern).size_limit(CEL_PATTERN).dfa_size_limit(CEL_PATTERN).build().map_err(
        |error| match error {
            regex::Error::CompiledTooBig(_) => "it is too large".to_owned(),
            // The parser draws a diagram; its last line is the message.
            error => shorten(
                error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: "),
                160,
            ),
        },
    )
}

/// Adds the function in both forms: `text.matches(pattern)` and `matches(text, pattern)`.
pub(super) fn add_to(env: &mut Env) -> Result<(), cel::DeclarationError> {
    cel::add_overload!(
        env, fn matches: (CelString, CelString) -> Result<CelBool>,
        name = "matches", id = "matches"
    )?;
    cel::add_member_overload!(
        env, fn matches: (CelString, CelString) -> Result<CelBool>,
        name = "matches", id = "text_matches"
    )
}

fn matches(text: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelBool, ExecutionError> {
    let (text, pattern) = (text.inner(), pattern.inner());
    COMPILED.with_borrow_mut(|compiled| {
        if let Some(known) = compiled.get(pattern) {
            return Ok(CelBool::from(known.is_match(text)));
        }
        let new = compile(pattern)
            .map_err(|message| ExecutionError::function_error("matches", message))?;
        let found = new.is_match(text);
        if compiled.len() >= CEL_PATTERNS {
            compiled.clear();
        }
        compiled.insert(pattern.to_owned(), new);
        Ok(CelBool::from(found))
    })
}
