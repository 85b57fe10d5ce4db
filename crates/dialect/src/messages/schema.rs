//! Makes JSON Schemas fit Anthropic's rules.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::json_writer::Members;
use crate::neutral::request::Tool;

/// Keywords that `input_schema` may not have at its top.
const COMBINED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value has a schema for each name.
const BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords that an output format may not have.
const BOUNDS: [&str; 12] = [
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "uniqueItems",
];
/// Keywords whose value is data.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// The schema needs a type. Combined schemas, which may not stand at its top, go into the
/// description with all of it.
pub(super) fn write_tool(item: &mut Members<'_>, tool: &Tool) {
    let Some(json) = &tool.parameters else {
        item.option("description", &tool.description);
        return item.value("input_schema", &json!({"type": "object", "properties": {}}));
    };
    let mut schema: Map<String, Value> = serde_json::from_str(json.get()).unwrap_or_default();
    let before = schema.len();
    schema.retain(|name, _| !COMBINED.contains(&name.as_str()));
    let is_combined = schema.len() < before;
    let rule =
        is_combined.then(|| format!("The arguments have to match this JSON Schema:\n{json}"));
    let says: Vec<&str> = tool.description.iter().chain(&rule).map(String::as_str).collect();
    item.option("description", &(!says.is_empty()).then(|| says.join("\n\n")));
    let is_unreadable = before == 0 && json.get() != "{}";
    if is_unreadable || (schema.contains_key("type") && !is_combined) {
        return item.value("input_schema", json);
    }
    schema.entry("type").or_insert(json!("object"));
    item.value("input_schema", &schema);
}

/// The schema as an output format needs it: each object that does not say gets
/// `"additionalProperties":false`, bounds go into descriptions, and `oneOf` becomes `anyOf`. `None`
/// if it has more than 128 levels.
pub(super) fn closed(schema: &RawValue) -> Option<Value> {
    let mut schema = serde_json::from_str(schema.get()).ok()?;
    close(&mut schema);
    Some(schema)
}

fn close(schema: &mut Value) {
    match schema {
        Value::Array(list) => list.iter_mut().for_each(close),
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                match (name.as_str(), value) {
                    (name, Value::Object(named)) if BY_NAME.contains(&name) => {
                        named.values_mut().for_each(close);
                    }
                    (name, value) if !DATA.contains(&name) => close(value),
                    _ => {}
                }
            }
            let kind = members.get("type");
            let is_object = kind == Some(&json!("object"))
                || kind.and_then(Value::as_array).is_some_and(|of| of.contains(&json!("object")))
                || members.contains_key("properties");
            if is_object {
                members.entry("additionalProperties").or_insert(json!(false));
            }
            if !members.contains_key("anyOf")
                && let Some(choices) = members.remove("oneOf")
            {
                members.insert("anyOf".to_owned(), choices);
            }
            describe_bounds(members);
        }
        _ => {}
    }
}

/// Moves the bounds of a schema into its description. A list may need one item.
fn describe_bounds(members: &mut Map<String, Value>) {
    let is_taken = |name: &str, value: &Value| {
        (value.is_number() || value.is_boolean())
            && (name != "minItems" || value.as_u64().is_none_or(|least| least > 1))
    };
    let found = BOUNDS.iter().filter_map(|name| {
        let value = members.get(*name).filter(|value| is_taken(name, value))?;
        Some((*name, value.clone()))
    });
    let found: Vec<(&str, Value)> = found.collect();
    let mut says: Vec<String> =
        members.get("description").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
    for (name, value) in &found {
        members.remove(*name);
        says.push(format!("{name}: {value}"));
    }
    if !found.is_empty() {
        members.insert("description".to_owned(), says.join("\n").into());
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
