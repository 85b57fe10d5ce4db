//! Writes the routing document as YAML, with a line for each provider, model and target.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::deployment::DeploymentList;
use super::groups::ModelGroup;

pub(super) fn document(
    list: &DeploymentList,
    groups: &[ModelGroup],
    names: &[(String, String)],
) -> String {
    let mut text = String::from("# The routing document, imported from LiteLLM.\n");
    // Writing to a `String` cannot fail.
    let mut line = |line: String| _ = writeln!(text, "{line}");
    let section = |name: &str, rows: &[(String, Map<String, Value>)]| {
        let rows = rows.iter().map(|(name, value)| {
            format!("\n  {}: {}", word(name), flow(&Value::Object(value.clone())))
        });
        let rows: String = rows.collect();
        format!("\n{name}:{}", if rows.is_empty() { " {}" } else { &rows })
    };
    line(section("providers", &list.providers));
    if !list.models.is_empty() {
        line(section("models", &list.models));
    }
    line(format!("\nrecipes:{}", if groups.is_empty() { " {}" } else { "" }));
    for group in groups {
        line(format!("  {}:\n    rules:\n      - name: default", word(&group.recipe)));
        if group.strategy != "priority" {
            line(format!("        strategy: {}", group.strategy));
        }
        line("        targets:".to_owned());
        for (target, weight) in &group.targets {
            let mut row = Map::new();
            row.insert("target".to_owned(), target.as_str().into());
            row.extend(weight.map(|weight| ("weight".to_owned(), plain(weight))));
            line(format!("          - {}", flow(&Value::Object(row))));
        }
        if let Some(attempts) = group.attempts {
            line(format!("    retry: {}", flow(&json!({ "attempts": attempts }))));
        }
    }
    line(format!("\naliases:{}", if names.is_empty() { " {}" } else { "" }));
    for (name, recipe) in names {
        line(format!("  {}: {}", word(name), word(recipe)));
    }
    text
}

/// A number as JSON. A whole number has no fraction.
fn plain(number: f64) -> Value {
    if number.fract() == 0.0 { json!(number as u64) } else { json!(number) }
}

/// A value in YAML's flow style.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| format!("{}: {}", word(name), flow(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => word(text),
        other => other.to_string(),
    }
}

/// A text, without quotes if YAML reads it as a plain word.
fn word(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_lowercase().as_str());
    // A JSON string is valid YAML.
    if is_plain { text.to_owned() } else { Value::from(text).to_string() }
}
