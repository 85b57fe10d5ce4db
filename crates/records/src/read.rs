//! Reads a record from JSON or from a query. Its schema is checked first, so that errors name the
//! field and the expected value. No error quotes a value, as it may be a secret.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::schema::{self, MERGED};
use crate::{Time, words};
use rerouter_base::error::{Error, Result};

/// Reads a body. Fails with 400 and the name of the wrong field.
pub fn read<T: DeserializeOwned + JsonSchema + 'static>(body: Map<String, Value>) -> Result<T> {
    read_at("", Value::Object(body))
}

/// Reads the value of a field as [`read`] does.
pub fn read_at<T: DeserializeOwned + JsonSchema + 'static>(field: &str, value: Value) -> Result<T> {
    Check { noun: "field", is_merged: false }.value(&schema::whole::<T>(), &value, field)?;
    // This fails only by a mistake of ours, as the schema has been checked.
    serde_json::from_value(value).map_err(|_| Error::invalid(field, "The body cannot be read."))
}

/// Reads the parameters of a query.
pub fn read_query<T>(parameters: BTreeMap<String, String>) -> Result<T>
where
    T: DeserializeOwned + JsonSchema + 'static,
{
    let schema = schema::whole::<T>();
    let typed = |(name, text): (String, String)| {
        let of = schema.pointer(&format!("/properties/{name}"));
        let value = match of.map_or("", words::kind) {
            // `str::parse` takes a sign, JSON does not.
            "integer" => text
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| text.parse::<u64>().ok())
                .flatten()
                .map(Value::from),
            "number" => text.parse().ok().and_then(serde_json::Number::from_f64).map(Value::Number),
            "boolean" => text.parse::<bool>().ok().map(Value::from),
            _ => None,
        };
        (name, value.unwrap_or(Value::String(text)))
    };
    let members = parameters.into_iter().map(typed).collect();
    let value = Value::Object(members);
    Check { noun: "parameter", is_merged: false }.value(&schema, &value, "")?;
    serde_json::from_value(value).map_err(|_| Error::invalid("", "The query cannot be read."))
}

/// Checks JSON against a schema.
#[derive(Clone, Copy)]
struct Check {
    /// The word for a member in errors: `field` or `parameter`.
    noun: &'static str,
    /// Whether the value belongs to a merge patch. Then nothing is required, and null is allowed.
    is_merged: bool,
}

impl Check {
    fn value(mut self, schema: &Value, value: &Value, field: &str) -> Result<()> {
        let plain = words::plain(schema);
        // If `plain` is another schema, the original one allows null.
        if value.is_null() && (self.is_merged || !std::ptr::eq(plain, schema)) {
            return Ok(());
        }
        let schema = plain;
        self.is_merged |= schema.get(MERGED).is_some();
        let wrong = || Error::invalid(field, format!("{field} must be {}.", words::of(schema)));
        if !fits(schema, value) {
            return Err(wrong());
        }
        match value {
            Value::Object(members) => self.members(schema, members, field),
            Value::Array(items) => match schema.get("items") {
                Some(of) if words::kind(of) == "object" => items
                    .iter()
                    .enumerate()
                    .try_for_each(|(at, item)| self.value(of, item, &format!("{field}[{at}]"))),
                Some(of) if !items.iter().all(|item| fits(of, item)) => Err(wrong()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn members(self, schema: &Value, members: &Map<String, Value>, field: &str) -> Result<()> {
        let path = |name: &str| match field {
            "" => name.to_owned(),
            field => format!("{field}.{name}"),
        };
        for (name, member) in members {
            let known = schema.get("properties").and_then(|known| known.get(name));
            match (known, schema.get("additionalProperties")) {
                (Some(of), _) => self.value(of, member, &path(name))?,
                (None, Some(Value::Bool(false))) => {
                    let (path, noun) = (path(name), self.noun);
                    return Err(Error::invalid(path.clone(), format!("Unknown {noun} {path}.")));
                }
                // In a map, an error about a value is reported for the map itself.
                (None, Some(_)) if self.is_merged && member.is_null() => {}
                (None, Some(of)) if !fits(of, member) => {
                    return Err(Error::invalid(
                        field,
                        format!("{field} must be {}.", words::of(schema)),
                    ));
                }
                (None, _) => {}
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let mut required = required.filter_map(Value::as_str).filter(|_| !self.is_merged);
        match required.find(|name| !members.contains_key(*name)).map(path) {
            Some(missing) => {
                Err(Error::invalid(missing.clone(), format!("{missing} is required.")))
            }
            None => Ok(()),
        }
    }
}

/// Whether a value has the type and bounds of its schema. Members and items are not checked.
fn fits(schema: &Value, value: &Value) -> bool {
    let kinds = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.as_slice(),
        Some(kind) => std::slice::from_ref(kind),
        None => &[],
    };
    let of_kind = |kind: &Value| match kind.as_str().unwrap_or_default() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    if !kinds.is_empty() && !kinds.iter().any(of_kind) {
        return false;
    }
    let options = words::options(schema);
    if value.is_null() {
        return !kinds.is_empty() || options.is_empty() || words::has_null(schema);
    }
    if options.contains(&value) {
        return true;
    }
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let counts = |least: &str, most: &str, count: usize| {
        let count = count as f64;
        bound(least).is_none_or(|least| count >= least)
            && bound(most).is_none_or(|most| count <= most)
    };
    options.is_empty()
        && match value {
            Value::Number(number) => number.as_f64().is_some_and(|number| {
                bound("minimum").is_none_or(|least| number >= least)
                    && bound("maximum").is_none_or(|most| number <= most)
                    && bound("exclusiveMinimum").is_none_or(|least| number > least)
            }),
            Value::String(text) => {
                let is_time = schema.get("format").is_some_and(|format| format == "date-time");
                counts("minLength", "maxLength", text.chars().count())
                    && (!is_time || Time::parse(text).is_some())
            }
            Value::Array(items) => counts("minItems", "maxItems", items.len()),
            Value::Object(members) => counts("minProperties", "maxProperties", members.len()),
            Value::Null | Value::Bool(_) => true,
        }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
