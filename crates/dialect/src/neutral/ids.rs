//! Makes ids of a client's dialect from the provider's ids, so that a search for one finds the
//! other.

/// Limit on the length of a provider's id; the rest is cut off.
const ID_CHARS: usize = 96;

/// The provider's id without its dialect's prefix and without characters that a dialect may refuse.
pub(crate) fn stem(id: &str) -> String {
    let prefixes = ["chatcmpl-", "msg_", "resp_", "gen-"];
    let bare = prefixes.iter().find_map(|prefix| id.strip_prefix(prefix)).unwrap_or(id);
    let allowed = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    bare.chars().filter(allowed).take(ID_CHARS).collect()
}

/// Makes the id of a tool call that has none. Repeated reads of an answer make the same id.
pub(crate) fn call_id(answer: &str, number: usize) -> String {
    format!("call_{}_{number}", stem(answer))
}
