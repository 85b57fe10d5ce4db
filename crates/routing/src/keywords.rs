//! Keyword sets, and one search for all of them in the text of a request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aho_corasick::AhoCorasick;
use sha2::{Digest, Sha256};

use super::inputs::KeywordHit;

/// Number of bytes of the last user message that are searched for keywords. The search takes about
/// a millisecond.
const KEYWORD_TEXT: usize = 1 << 20;

pub struct Keywords {
    sets: Vec<KeywordSet>,
    /// Automaton over the lower-case words of all sets.
    search: AhoCorasick,
    /// Index of the set for each pattern of the automaton.
    owners: Vec<usize>,
}

struct KeywordSet {
    name: String,
    hash: String,
}

impl Keywords {
    /// Fails if the words are too many or too long for the automaton.
    pub(super) fn build<'w>(
        sets: impl Iterator<Item = (&'w str, BTreeSet<String>)>,
    ) -> Result<Keywords, String> {
        let (mut named, mut patterns, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (name, words)) in sets.enumerate() {
            named.push(KeywordSet { name: name.to_owned(), hash: hash(&words) });
            owners.extend(words.iter().map(|_| at));
            patterns.extend(words);
        }
        let search = AhoCorasick::new(patterns).map_err(|error| error.to_string())?;
        Ok(Keywords { sets: named, search, owners })
    }

    /// Names of the sets in document order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.iter().map(|set| set.name.as_str())
    }

    /// For each set, whether one of its words is in the text. A result in `known` for the same
    /// words is reused. `text` is called only if a set is not in `known`. If it returns `None`,
    /// unknown sets are left out.
    pub fn find(
        &self,
        known: &BTreeMap<String, KeywordHit>,
        text: impl FnOnce() -> Option<String>,
    ) -> BTreeMap<String, KeywordHit> {
        let mut hits: Vec<Option<bool>> =
            self.sets.iter().map(|set| stored(known, &set.hash)).collect();
        if hits.iter().any(Option::is_none)
            && let Some(text) = text()
        {
            let found = self.search(&text);
            for (hit, found) in hits.iter_mut().zip(found) {
                hit.get_or_insert(found);
            }
        }
        let pair = |(set, hit): (&KeywordSet, Option<bool>)| {
            Some((set.name.clone(), KeywordHit { hash: set.hash.clone(), hit: hit? }))
        };
        self.sets.iter().zip(hits).filter_map(pair).collect()
    }

    fn search(&self, text: &str) -> Vec<bool> {
        let bounded = text.get(..text.floor_char_boundary(KEYWORD_TEXT)).unwrap_or("");
        let text = lower(bounded);
        let mut found = vec![false; self.sets.len()];
        let mut left = found.len();
        for hit in self.search.find_overlapping_iter(&text) {
            let set = self.owners.get(hit.pattern().as_usize()).and_then(|at| found.get_mut(*at));
            if let Some(found) = set.filter(|found| !**found) {
                *found = true;
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
        found
    }
}

impl fmt::Debug for Keywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The lower-case form that is compared.
pub(super) fn lower(word: &str) -> String {
    if word.is_ascii() { word.to_ascii_lowercase() } else { word.to_lowercase() }
}

fn stored(known: &BTreeMap<String, KeywordHit>, hash: &str) -> Option<bool> {
    known.values().find(|hit| hit.hash == hash).map(|hit| hit.hit)
}

/// Hash of a set as sixteen hex digits, independent of the words' order and case.
fn hash(words: &BTreeSet<String>) -> String {
    let mut hasher = Sha256::new();
    for word in words {
        hasher.update((word.len() as u64).to_le_bytes());
        hasher.update(word.as_bytes());
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keywords(sets: &[(&str, &[&str])]) -> Keywords {
        let words = |words: &[&str]| words.iter().map(|word| lower(word)).collect();
        Keywords::build(sets.iter().map(|(name, set)| (*name, words(set)))).unwrap()
    }

    fn hits(keywords: &Keywords, text: &str) -> Vec<String> {
        let found = keywords.find(&BTreeMap::new(), || Some(text.to_owned()));
        assert_eq!(found.len(), keywords.names().count());
        found.into_iter().filter(|(_, hit)| hit.hit).map(|(name, _)| name).collect()
    }

    #[test]
    fn words_are_found_in_any_case_and_within_each_other() {
        let sets = keywords(&[
            ("code", &["Refactor", "stack trace", "```"]),
            ("trace", &["trace"]),
            ("sharp", &["Größe", "ΠΡΟΣ"]),
        ]);
        assert_eq!(hits(&sets, "Please REFACTOR this"), ["code"]);
        assert_eq!(hits(&sets, "a Stack Trace"), ["code", "trace"]);
        assert_eq!(hits(&sets, "```rust"), ["code"]);
        assert_eq!(hits(&sets, "in welcher GRÖSSE"), Vec::<String>::new());
        assert_eq!(hits(&sets, "in welcher GRÖßE"), ["sharp"]);
        assert_eq!(hits(&sets, "stack  trac e"), Vec::<String>::new());
        let beyond = format!("{}refactor", " ".repeat(KEYWORD_TEXT));
        assert_eq!(hits(&sets, &beyond), Vec::<String>::new());
        assert_eq!(hits(&sets, &beyond[1024..]), ["code"]);
    }

    #[test]
    fn what_is_known_of_the_same_words_stands() {
        let first = keywords(&[("a", &["x", "Y"]), ("b", &["z"])]);
        let known = first.find(&BTreeMap::new(), || Some("y".to_owned()));
        let second = keywords(&[("other", &["y", "X"]), ("b", &["z", "w"])]);
        // Known hits are kept, whatever the text contains.
        let found = second.find(&known, || Some("w".to_owned()));
        assert!(found["other"].hit && found["b"].hit);
        let known_all =
            keywords(&[("other", &["y", "x"])]).find(&known, || panic!("nothing is left to ask"));
        assert!(known_all["other"].hit);
        // Without a text, unknown sets are left out.
        assert_eq!(second.find(&known, || None).keys().collect::<Vec<_>>(), ["other"]);
        assert_ne!(
            hash(&["ab".to_owned(), "c".to_owned()].into()),
            hash(&["a".to_owned(), "bc".to_owned()].into())
        );
    }
}
