//! Values of captures, as pages show them.

use std::borrow::Cow;
use std::fmt::Write;

use maud::Markup;
use serde_json::Value;

use crate::pieces::{badge, duration_ms, money};
use rerouter_records::replay::{CaptureState, ReplayBase};

/// `provider/model`.
pub(super) fn target(provider: &str, model: &str) -> String {
    visible(&format!("{provider}/{model}")).into_owned()
}

/// The target that answered.
pub(super) fn served(base: &ReplayBase) -> Option<String> {
    base.served.as_ref().map(|served| target(&served.provider, &served.model))
}

/// A duration in milliseconds, or a dash for `None`.
pub(super) fn span(ms: Option<u64>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| duration_ms(ms as f64))
}

pub(super) fn cost(usd: Option<f64>) -> String {
    usd.map_or_else(|| "–".to_owned(), money)
}

/// The API's reason why a target was left out, in words for people.
pub(crate) fn reason(word: &str) -> &str {
    match word {
        "breaker_open" => "too many failures",
        "cooldown" => "pause",
        "concurrency" => "at its limit of requests",
        "no_node" => "no node was ready",
        "context" => "the request is too long for it",
        "capability" => "it lacks a capability",
        "translation" => "the request cannot be translated",
        "endpoint" => "it does not serve this endpoint",
        other => other,
    }
}

/// A badge with the status of a request, and its state unless it was completed.
pub(super) fn outcome(base: &ReplayBase) -> Markup {
    let kind = match (base.status, base.state) {
        (200..300, CaptureState::Completed) => "ok",
        (_, CaptureState::Aborted) | (400..500, _) => "warn",
        _ => "bad",
    };
    match base.state {
        CaptureState::Completed => badge(kind, &base.status.to_string()),
        state => badge(kind, &format!("{} {}", base.status, state.as_str())),
    }
}

/// Makes every character visible that could hide or reorder others. Line breaks and tabs stay, and
/// so do joiners, which many scripts need.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match u32::from(letter) {
            _ if !is_hidden(letter) => shown.push(letter),
            // From U+2400 on, Unicode has symbols for the control characters in the same order.
            code @ 0..0x20 => shown.extend(char::from_u32(0x2400 + code)),
            0x7f => shown.push('\u{2421}'),
            // Writing to a string does not fail.
            code => write!(shown, "⟨U+{code:04X}⟩").unwrap_or_default(),
        }
    }
    Cow::Owned(shown)
}

fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\0'..' ' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' => true,
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => true,
        '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

/// A JSON object or array as indented JSON. Any other text is returned unchanged.
pub(super) fn pretty(text: &str) -> Cow<'_, str> {
    /// Longer texts stay as they are.
    const MOST: usize = 64 << 10;
    let value = (text.len() <= MOST).then(|| serde_json::from_str::<Value>(text).ok()).flatten();
    let written = value.filter(|value| value.is_object() || value.is_array());
    let written = written.and_then(|value| serde_json::to_string_pretty(&value).ok());
    written.map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_hides_or_reorders_is_visible() {
        for (hidden, shown) in [
            ("a\0b", "a␀b"),
            ("\u{1b}[31m", "␛[31m"),
            ("line\r\nend\t.", "line␍\nend\t."),
            ("x\u{7f}", "x␡"),
            ("\u{85}", "⟨U+0085⟩"),
            ("gpt\u{202e}evil", "gpt⟨U+202E⟩evil"),
            ("\u{feff}\u{e0041}", "⟨U+FEFF⟩⟨U+E0041⟩"),
            ("<b>क्\u{200d}ष 👩\u{200d}💻</b>", "<b>क्\u{200d}ष 👩\u{200d}💻</b>"),
        ] {
            assert_eq!(visible(hidden), shown);
        }
    }

    #[test]
    fn only_json_is_set_in_lines() {
        assert_eq!(pretty("{\"a\":1}"), "{\n  \"a\": 1\n}");
        for text in ["1", "plain", "{broken", ""] {
            assert_eq!(pretty(text), text);
        }
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(text: String) {
            let shown = visible(&text);
            prop_assert!(!shown.chars().any(is_hidden));
            prop_assert!(visible(&shown) == shown);
        }
    }
}
