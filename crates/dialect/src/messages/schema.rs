//! Makes JSON Schemas fit Anthropic's rules. Their values keep their text.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;

use crate::json_writer::Members;
use crate::members::WireName;
use crate::neutral::json_text::{Quoted, put};
use crate::neutral::request::Tool;

/// Keywords that `input_schema` may not have at its top.
const COMBINED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords whose value has a schema for each name.
const BY_NAME: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// Keywords whose value is data.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
/// Deeper schemas stay as they are. Each level parses the inner ones again.
const DEPTH: usize = 64;

/// The members of a JSON object in their order.
struct Object<'a>(Vec<(WireName<'a>, &'a RawValue)>);

impl<'a> Object<'a> {
    fn read(json: &'a RawValue) -> Option<Self> {
        serde_json::from_str(json.get()).ok()
    }

    fn value(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find_map(|(known, value)| (known.0 == name).then_some(*value))
    }

    fn is_combined(&self) -> bool {
        COMBINED.iter().any(|name| self.value(name).is_some())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(WireName<'de>, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        from.deserialize_map(Reader).map(Object)
    }
}

/// Writes the description and the schema of a tool. The schema needs a type. Combined schemas,
/// which may not stand at its top, go into the description with all of it.
pub(super) fn write_tool(item: &mut Members<'_>, tool: &Tool) {
    let schema = tool.parameters.as_deref().and_then(|json| Some((json, Object::read(json)?)));
    let Some((json, object)) = schema else {
        item.option("description", &tool.description);
        return item.value("input_schema", &json!({"type": "object", "properties": {}}));
    };
    let rule = object
        .is_combined()
        .then(|| format!("The arguments have to match this JSON Schema:\n{}", json.get()));
    let says: Vec<&str> = tool.description.iter().chain(&rule).map(String::as_str).collect();
    item.option("description", &(!says.is_empty()).then(|| says.join("\n\n")));
    if rule.is_none() && object.value("type").is_some() {
        return item.value("input_schema", json);
    }
    item.object("input_schema", |schema| {
        if object.value("type").is_none() {
            schema.value("type", "object");
        }
        for (name, value) in object.0.iter().filter(|(name, _)| !COMBINED.contains(&&*name.0)) {
            schema.value(&name.0, value);
        }
    });
}

/// The schema with `"additionalProperties":false` in each object that does not say, as an output
/// format needs it.
pub(super) fn closed(schema: &RawValue) -> Option<Box<RawValue>> {
    let mut out = Vec::with_capacity(schema.get().len() + 256);
    close(schema, false, DEPTH, &mut out);
    RawValue::from_string(String::from_utf8(out).ok()?).ok()
}

/// Writes a value of a schema. `names` tells that it has schemas by name.
fn close(json: &RawValue, names: bool, depth: usize, out: &mut Vec<u8>) {
    let inner = depth.checked_sub(1);
    if let (Some(inner), Some(object)) = (inner, Object::read(json)) {
        for (at, (name, value)) in object.0.iter().enumerate() {
            put!(out, if at == 0 { "{" } else { "," }, Quoted(&name.0), ":");
            match &*name.0 {
                name if !names && DATA.contains(&name) => put!(out, value.get()),
                name => close(value, !names && BY_NAME.contains(&name), inner, out),
            }
        }
        let kind = object.value("type").map_or("", RawValue::get);
        let has = |name| object.value(name).is_some();
        let is_object = !names && (kind.contains("\"object\"") || has("properties"));
        let is_open = is_object && !has("additionalProperties");
        put!(
            out,
            match (object.0.is_empty(), is_open) {
                (true, _) => "{}",
                (false, true) => ",\"additionalProperties\":false}",
                (false, false) => "}",
            }
        );
    } else if let (Some(inner), Ok(list)) = (inner, serde_json::from_str(json.get())) {
        let list: Vec<&RawValue> = list;
        put!(out, "[");
        for (at, value) in list.into_iter().enumerate() {
            put!(out, if at == 0 { "" } else { "," });
            close(value, false, inner, out);
        }
        put!(out, "]");
    } else {
        put!(out, json.get());
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
