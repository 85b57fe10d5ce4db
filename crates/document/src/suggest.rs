//! Suggestions for misspelt names in documents and expressions.

/// The name in `known` with the smallest edit distance to `word`. The distance may be a third of
/// the length at most.
fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 128 {
        return None;
    }
    let allowed = (word.chars().count().max(3)) / 3;
    known
        .into_iter()
        .filter(|name| name.len() <= 128)
        .map(|name| (distance(word, name), name))
        .filter(|(away, name)| *away <= allowed.max(1) && *away < name.chars().count())
        .min_by_key(|(away, _)| *away)
        .map(|(_, name)| name)
}

/// A hint that names the entry of `known` which `word` probably misspells.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|name| format!("did you mean `{name}`?"))
}

/// Damerau–Levenshtein distance (optimal string alignment) of two words, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_none() {
        let known = ["strategy", "targets", "when", "name"];
        assert_eq!(nearest("stragety", known), Some("strategy"));
        assert_eq!(nearest("Target", known), Some("targets"));
        assert_eq!(nearest("wehn", known), Some("when"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }
}
