//! Deltas put together.

use serde_json::{Map, Value};

/// Adds the fields of a delta. Those named in `fragments` are appended; of the others the last that
/// is not empty counts.
pub(crate) fn merge(
    before: &mut Map<String, Value>,
    fields: Map<String, Value>,
    fragments: &[&str],
) {
    for (name, value) in fields {
        if fragments.contains(&name.as_str()) {
            extend(before.entry(name).or_insert(Value::Null), value);
        } else if !value.is_null() && value.as_str() != Some("") {
            before.insert(name, value);
        }
    }
}

/// Appends to a string or list; replaces another value, unless by null.
pub(crate) fn extend(before: &mut Value, more: Value) {
    match (before, more) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(parts), Value::Array(more)) => parts.extend(more),
        (_, Value::Null) => {}
        (before, more) => *before = more,
    }
}
