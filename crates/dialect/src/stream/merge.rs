//! Reads the objects of a stream, and merges deltas.

use serde_json::{Map, Value};

use crate::wire::sse::{self, Splitter, SseEvent};

/// Adds the fields of a delta. Fields in `fragments` are appended; of the others the last non-empty
/// value wins.
pub fn merge(before: &mut Map<String, Value>, fields: Map<String, Value>, fragments: &[&str]) {
    for (name, value) in fields {
        if fragments.contains(&name.as_str()) {
            extend(before.entry(name).or_insert(Value::Null), value);
        } else if !value.is_null() && value.as_str() != Some("") {
            before.insert(name, value);
        }
    }
}

/// Appends to a string or list. Replaces any other value, except by null.
pub fn extend(before: &mut Value, more: Value) {
    match (before, more) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(parts), Value::Array(more)) => parts.extend(more),
        (_, Value::Null) => {}
        (before, more) => *before = more,
    }
}

/// Calls `each` with the data of every event that is an object.
pub(crate) fn each_object(stream: &[u8], mut each: impl FnMut(Map<String, Value>)) {
    let mut splitter = Splitter::with_limit(stream.len());
    let mut take = |event: SseEvent<'_>| {
        if let Some(data) = sse::fields(event.bytes()).data
            && let Ok(Value::Object(object)) = serde_json::from_slice(&data)
        {
            each(object);
        }
    };
    splitter.feed(stream, &mut take);
    splitter.finish(&mut take);
}
