//! What was not carried, and values that LiteLLM reads from the environment.

use serde_json::Value;

/// Lines on what was not carried.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) lines: Vec<String>,
}

impl Notes {
    /// Adds one. The value itself is not named: it may be a credential.
    pub(super) fn add(&mut self, place: &str, why: &str) {
        let line = format!("{place}: {why}");
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }
}

/// A text with `os.environ/NAME` as `${NAME}`. Other texts are taken as they are.
pub(super) fn expanded(text: &str) -> String {
    match variable(text) {
        Some(name) => format!("${{{name}}}"),
        None => text.replace("${", "$${"),
    }
}

/// The variable that a text names, unless it is one of the gateway's own, which routing documents
/// must not use.
pub(super) fn variable(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix("os.environ/")?;
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let well = letters && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    let own = matches!(name, "ADMIN_API_KEY" | "AGENT_CLOUD_API_KEY");
    (well && !own && !name.starts_with("REROUTER_")).then_some(name)
}

/// The entries of a list of mappings with one pair each, as `fallbacks` has them: a name, and the
/// names that it leads to.
pub(super) fn pairs(value: Option<&Value>) -> Vec<(String, Vec<String>)> {
    let maps = value.and_then(Value::as_array).into_iter().flatten();
    let pairs = maps.filter_map(Value::as_object).flatten();
    pairs.map(|(name, to)| (name.clone(), texts(Some(to)))).collect()
}

/// A list of texts, or one text.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// A value as text; `None` for null, lists and mappings.
pub(super) fn scalar(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// A number, also one that is written as text.
pub(super) fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}
