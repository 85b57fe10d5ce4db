//! Compiles keyword sets.

use std::collections::{BTreeSet, HashSet};

use super::compiler::Compiler;
use crate::keywords::{Keywords, lower};
use rerouter_document::Located;

/// Maximum number of keyword sets of a routing document.
pub const KEYWORD_SETS: usize = 64;
/// Maximum length of a keyword in bytes.
const KEYWORD_BYTES: usize = 256;

impl Compiler<'_> {
    /// `None` if a set has a problem.
    pub(super) fn keywords(
        &mut self,
        sets: &[(Located<String>, Vec<Located<String>>)],
    ) -> Option<Keywords> {
        self.limit(sets.iter().map(|(name, _)| name), KEYWORD_SETS, "keyword sets");
        self.set_names = sets.iter().map(|(name, _)| name.value.clone()).collect();
        let before = self.faults.len();
        for (name, words) in sets {
            self.plain_name(name, "keyword set");
            if words.is_empty() {
                let message = "a keyword set needs at least one word";
                self.fault(name, message, "add a word, or remove it");
            }
            self.words(words);
        }
        let lowered = sets.iter().map(|(name, words)| {
            let words: BTreeSet<String> = words.iter().map(|word| lower(&word.value)).collect();
            (name.value.as_str(), words)
        });
        match Keywords::build(lowered) {
            Ok(keywords) => (self.faults.len() == before).then_some(keywords),
            Err(why) => {
                if let Some((name, _)) = sets.first() {
                    let message = format!("the keyword search cannot be built: {why}");
                    self.fault(name, message, "have fewer or shorter ones");
                }
                None
            }
        }
    }

    fn words(&mut self, words: &[Located<String>]) {
        let mut seen = HashSet::new();
        for word in words {
            if word.value.trim().is_empty() {
                let message = "a keyword must not be blank";
                self.fault(word, message, "remove it");
            } else if word.value.len() > KEYWORD_BYTES {
                let message = format!("a keyword is at most {} bytes long", KEYWORD_BYTES);
                self.fault(word, message, "shorten it");
            } else if !seen.insert(lower(&word.value)) {
                let message = "duplicate keyword (case is ignored)";
                self.fault(word, message, "remove one of them");
            }
        }
    }
}
