//! Expands `${NAME}` and `${NAME:-default}` from the environment. This happens after parsing, so
//! that a value cannot add structure. `$${` is an escaped `${`. Messages never quote values.

use crate::diagnostics::{Diagnostics, Lookup};
use crate::place::Finding;
use crate::tree::{TreeEntry, TreeNode, TreeValue};

/// Hint for a variable that cannot be expanded.
pub(crate) const HINT: &str = "`${NAME}` must be set and allowed; `${NAME:-default}` may be unset";

#[derive(Debug, PartialEq, Eq)]
pub enum ExpandError {
    /// A variable has neither a value nor a default. The text is the message.
    Unset(String),
    Wrong(String),
}

impl ExpandError {
    pub fn message(self) -> String {
        match self {
            ExpandError::Unset(message) | ExpandError::Wrong(message) => message,
        }
    }
}

/// An empty variable counts as unset.
pub fn expand(text: &str, lookup: &Lookup<'_>) -> Result<String, ExpandError> {
    let wrong = |message: &str| ExpandError::Wrong(message.to_owned());
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = from.get(2..).unwrap_or("");
            continue;
        }
        out.push_str(before);
        let (inside, after) = from
            .get(2..)
            .and_then(|inside| inside.split_once('}'))
            .ok_or_else(|| wrong("`${` without its `}`; `$${` stands for `${`"))?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let letters = !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if name.is_empty() || !letters {
            return Err(wrong("`${…}` must have the name of a variable; `$${` stands for `${`"));
        }
        match (lookup(name).map_err(ExpandError::Wrong)?.filter(|value| !value.is_empty()), default)
        {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => {
                return Err(ExpandError::Unset(format!(
                    "the variable `{name}` is not set and has no default"
                )));
            }
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Expands every scalar of a tree. If the environment is not read, a variable without a default has
/// an unknown value.
pub fn expand_tree(
    node: &TreeNode,
    path: &str,
    lookup: &Lookup<'_>,
    faults: &mut Diagnostics<'_>,
) -> TreeNode {
    let value = match &node.value {
        TreeValue::Text { text, .. } if text.contains("${") => match expand(text, lookup) {
            Ok(text) => TreeValue::Text { text, plain: true },
            Err(ExpandError::Unset(_)) if faults.no_env => {
                faults.unknown.insert(path.to_owned());
                TreeValue::Unknown
            }
            Err(failure) => {
                faults.push(Finding {
                    path: path.to_owned(),
                    at: node.at,
                    message: failure.message(),
                    hint: Some(HINT.to_owned()),
                });
                TreeValue::Null
            }
        },
        TreeValue::List(items) => {
            let expanded = |(at, item)| expand_tree(item, &format!("{path}[{at}]"), lookup, faults);
            TreeValue::List(items.iter().enumerate().map(expanded).collect())
        }
        TreeValue::Map(entries) => {
            let expanded = |entry: &TreeEntry| {
                let below = crate::tree::join(path, &entry.key);
                TreeEntry {
                    key: entry.key.clone(),
                    at: entry.at,
                    node: expand_tree(&entry.node, &below, lookup, faults),
                }
            };
            TreeValue::Map(entries.iter().map(expanded).collect())
        }
        other => other.clone(),
    };
    TreeNode { at: node.at, value }
}

/// Whether a name matches a pattern, in which `*` matches any characters.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    let mut rest = rest;
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or(""),
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: &str) -> Result<Option<String>, String> {
        match name {
            "SET" => Ok(Some("value ${SET}".to_owned())),
            "EMPTY" => Ok(Some(String::new())),
            "SECRET" => Err("not allowed".to_owned()),
            _ => Ok(None),
        }
    }

    #[test]
    fn variables_are_expanded_once() {
        for (text, wanted) in [
            ("a${SET}b", Ok("avalue ${SET}b")),
            ("${NOPE:-x}/${EMPTY:-}", Ok("x/")),
            ("$${SET} $5", Ok("${SET} $5")),
            ("${EMPTY}", Err("the variable `EMPTY` is not set and has no default")),
            ("${SECRET:-x}", Err("not allowed")),
        ] {
            assert_eq!(
                expand(text, &look).map_err(ExpandError::message),
                wanted.map(str::to_owned).map_err(str::to_owned),
                "{text}"
            );
        }
        for bad in ["${", "${}", "${A B}", "${1A}", "${:-x}"] {
            assert!(expand(bad, &look).is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, wanted) in [
            ("*_API_KEY", "OPENAI_API_KEY", true),
            ("*_API_KEY", "OPENAI_API_KEY2", false),
            ("A", "A", true),
            ("A", "AB", false),
            ("A*B*C", "AxBxBC", true),
            ("A*A", "A", false),
            ("*", "", true),
        ] {
            assert_eq!(matches_pattern(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
