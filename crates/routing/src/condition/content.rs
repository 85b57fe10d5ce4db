//! Patterns that expressions search for in the texts of a request. They are compiled with the
//! document. Each text is searched once, before the decision. The decision sees only the matches,
//! and only the matches are stored with a capture.

use std::collections::BTreeMap;

use regex::Regex;
use sha2::{Digest, Sha256};

use super::pattern;
use crate::inputs::TextMatches;

/// Number of bytes of a text that are searched. A search takes linear time, so the work for a
/// request is bounded by this number times the number of patterns.
const CONTENT_TEXT: usize = 64 << 10;

/// A text of a request that expressions can search, and its signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextPart {
    /// The last user message.
    User,
    /// The system prompt, or the instructions.
    System,
}

impl TextPart {
    pub const ALL: [TextPart; 2] = [TextPart::User, TextPart::System];

    pub fn signal(self) -> &'static str {
        match self {
            TextPart::User => "user_message",
            TextPart::System => "system_prompt",
        }
    }

    pub(crate) fn of_signal(name: &str) -> Option<TextPart> {
        TextPart::ALL.into_iter().find(|part| part.signal() == name)
    }
}

#[derive(Debug, Default)]
pub(crate) struct ContentPatterns(BTreeMap<TextPart, BTreeMap<String, Regex>>);

impl ContentPatterns {
    /// Adds a checked pattern under its hash.
    pub(crate) fn add(&mut self, part: TextPart, pattern: &str) {
        if let Ok(compiled) = pattern::compile(pattern) {
            self.0.entry(part).or_default().insert(hash(pattern.as_bytes()), compiled);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(BTreeMap::len).sum()
    }

    /// Adds the matches that are not in `known`. `text` is called only for a text with unknown
    /// matches. They stay unknown if `text` returns `None`, or if its text is not the one that the
    /// known matches belong to. Returns whether all matches are known now.
    pub(crate) fn find(
        &self,
        known: &mut BTreeMap<String, TextMatches>,
        text: impl Fn(TextPart) -> Option<String>,
    ) -> bool {
        let mut complete = true;
        for (part, patterns) in &self.0 {
            let before = known.get(part.signal());
            let is_missing =
                |hash: &String| before.is_none_or(|before| !before.matches.contains_key(hash));
            if !patterns.keys().any(is_missing) {
                continue;
            }
            let found = text(*part).filter(|text| {
                before.is_none_or(|before| before.digest == hash(bounded(text).as_bytes()))
            });
            let Some(text) = found else {
                complete = false;
                continue;
            };
            let text = bounded(&text);
            let new: Vec<(String, bool)> = patterns
                .iter()
                .filter(|(hash, _)| is_missing(hash))
                .map(|(hash, pattern)| (hash.clone(), pattern.is_match(text)))
                .collect();
            let of_text = known.entry(part.signal().to_owned()).or_insert_with(|| TextMatches {
                digest: hash(text.as_bytes()),
                matches: BTreeMap::new(),
            });
            of_text.matches.extend(new);
        }
        complete
    }
}

/// The part of a text that is searched.
fn bounded(text: &str) -> &str {
    text.get(..text.floor_char_boundary(CONTENT_TEXT)).unwrap_or_default()
}

/// Hash of a pattern or text, sixteen hex digits.
pub(super) fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patterns(list: &[(TextPart, &str)]) -> ContentPatterns {
        let mut patterns = ContentPatterns::default();
        for (part, pattern) in list {
            patterns.add(*part, pattern);
        }
        patterns
    }

    #[test]
    fn what_is_known_of_the_same_text_stands_and_another_text_is_not_searched() {
        let mut known = BTreeMap::new();
        let first = patterns(&[(TextPart::User, "a+"), (TextPart::System, "^x")]);
        let texts = |part| Some(if part == TextPart::User { "baab" } else { "yx" }.to_owned());
        assert!(first.find(&mut known, texts));
        let matches = |known: &BTreeMap<String, TextMatches>, signal: &str, pattern: &str| {
            known[signal].matches.get(&hash(pattern.as_bytes())).copied()
        };
        assert_eq!(matches(&known, "user_message", "a+"), Some(true));
        assert_eq!(matches(&known, "system_prompt", "^x"), Some(false));
        // All matches are known, so the text is not needed.
        assert!(first.find(&mut known, |_| panic!("all is known")));
        let second = patterns(&[(TextPart::User, "a+"), (TextPart::User, "b$")]);
        let before = known.clone();
        assert!(!second.find(&mut known, |_| None));
        assert!(!second.find(&mut known, |_| Some("another".to_owned())));
        assert_eq!(known, before);
        assert!(second.find(&mut known, texts));
        assert_eq!(matches(&known, "user_message", "b$"), Some(true));
        assert_eq!(matches(&known, "user_message", "a+"), Some(true));
    }

    proptest! {
        #[test]
        fn a_text_is_searched_up_to_its_bound(text in "(é|x){0,40}", extra in 0usize..4) {
            let filler = "é".repeat(CONTENT_TEXT / 2 - extra);
            let long = [&filler, text.as_str(), "needle"].concat();
            let mut known = BTreeMap::new();
            let pattern = patterns(&[(TextPart::User, "needle")]);
            prop_assert!(pattern.find(&mut known, |_| Some(long.clone())));
            let within = long.find("needle").unwrap() + 6 <= CONTENT_TEXT;
            prop_assert_eq!(known["user_message"].matches[&hash(b"needle")], within);
        }
    }
}
