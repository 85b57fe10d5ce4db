//! Notes on what was not imported, and readers of LiteLLM's values.

use std::ops::RangeInclusive;

use serde_json::Value;

#[derive(Default)]
pub(super) struct Notes {
    pub(super) lines: Vec<String>,
}

impl Notes {
    /// Adds a line. It must not contain the value, which may be a credential.
    pub(super) fn add(&mut self, place: &str, why: &str) {
        let line = format!("{place}: {why}");
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }

    /// A number within a range. Any other value is noted.
    pub(super) fn within(
        &mut self,
        place: &str,
        value: Option<&Value>,
        range: RangeInclusive<f64>,
    ) -> Option<f64> {
        let found = number(value).filter(|number| range.contains(number));
        if found.is_none() && value.is_some_and(|value| !value.is_null()) {
            let (least, most) = range.into_inner();
            self.add(place, &format!("not carried: no number from {least} to {most}"));
        }
        found
    }
}

/// Turns `os.environ/NAME` into `${NAME}`. In other texts, `${` is escaped as `$${`.
pub(super) fn expanded(text: &str) -> String {
    match variable(text) {
        Some(name) => format!("${{{name}}}"),
        None => text.replace("${", "$${"),
    }
}

/// The variable that a text refers to. `None` for variables of the gateway itself, which routing
/// documents must not use.
pub(super) fn variable(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix("os.environ/")?;
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let well = letters && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
    let own = matches!(name, "ADMIN_API_KEY" | "AGENT_CLOUD_API_KEY");
    (well && !own && !name.starts_with("REROUTER_")).then_some(name)
}

/// Reads a list of mappings with one pair each, such as `fallbacks`: a name, and the names that it
/// leads to. Entries of another form are noted.
pub(super) fn pairs(
    place: &str,
    value: Option<&Value>,
    notes: &mut Notes,
) -> Vec<(String, Vec<String>)> {
    let items = value.and_then(Value::as_array);
    if value.is_some_and(|value| !value.is_null()) && items.is_none() {
        notes.add(place, "not a list");
    }
    let (mut pairs, maps) = (Vec::new(), items.into_iter().flatten().map(Value::as_object));
    for (name, to) in maps.flatten().flatten() {
        let names = texts(Some(to));
        if !to.is_string() && to.as_array().is_none_or(|items| items.len() != names.len()) {
            notes.add(&format!("{place} of {name}"), "names are carried, and nothing else");
        }
        pairs.push((name.clone(), names));
    }
    pairs
}

/// Reads a list of texts or a single text.
pub(super) fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Converts a scalar to text; `None` for null, lists and mappings.
pub(super) fn scalar(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Reads a number, which may be written as text.
pub(super) fn number(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        _ => None,
    }
}
