//! Ids of a client's dialect, made from those of the provider, so that both can be found by one.

/// Longest id that is taken from a provider.
const ID_CHARS: usize = 96;

/// The provider's id without the prefix of its dialect, of characters that any dialect accepts.
pub(crate) fn stem(id: &str) -> String {
    let prefixes = ["chatcmpl-", "msg_", "resp_", "gen-"];
    let bare = prefixes.iter().find_map(|prefix| id.strip_prefix(prefix)).unwrap_or(id);
    let allowed = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    bare.chars().filter(allowed).take(ID_CHARS).collect()
}

/// The id of a tool call that the provider gave none: the same whenever it is read.
pub(crate) fn call_id(answer: &str, number: usize) -> String {
    format!("call_{}_{number}", stem(answer))
}
