//! Merge patches (RFC 7396).

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use crate::read::read_at;
use crate::schema::MERGED;
use rerouter_base::error::{Error, Result};

/// A field of a merge patch. `Absent` leaves the value unchanged, and `Null` removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Patch<T> {
    #[default]
    Absent,
    Null,
    Set(T),
}

impl<T> Patch<T> {
    /// Whether the patch has the field. Null counts too.
    pub fn is_present(&self) -> bool {
        !matches!(self, Patch::Absent)
    }

    /// The new value, for a field that cannot be null.
    pub fn set(&self) -> Option<&T> {
        match self {
            Patch::Set(value) => Some(value),
            Patch::Absent | Patch::Null => None,
        }
    }

    /// The new value; `Some(None)` if the value is removed, `None` if it stays.
    pub fn change(&self) -> Option<Option<&T>> {
        self.is_present().then(|| self.set())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Patch::Null, Patch::Set))
    }
}

/// Allows the value or null. A field that cannot be null uses `#[schemars(with = "…")]`.
impl<T: JsonSchema> JsonSchema for Patch<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

/// A merge patch of a `T`. Its members are those of `T`, each optional and nullable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct MergePatch<T> {
    members: Map<String, Value>,
    #[serde(skip)]
    of: PhantomData<T>,
}

impl<T: Serialize + DeserializeOwned + JsonSchema + 'static> MergePatch<T> {
    /// Applies the patch to `before`. Errors name the path, which starts with `field`.
    pub fn apply(&self, field: &str, before: &T) -> Result<T> {
        let before = serde_json::to_value(before).map_err(Error::internal)?;
        read_at(field, merge(before, Value::Object(self.members.clone())))
    }
}

impl<T: JsonSchema> JsonSchema for MergePatch<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}Patch", T::schema_name().trim_start_matches("New")).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        schema.remove("required");
        schema.insert(MERGED.to_owned(), true.into());
        let said = "A merge patch (RFC 7396): absent members stay, null removes.";
        schema.insert("description".to_owned(), said.into());
        let members = schema.get_mut("properties").and_then(Value::as_object_mut);
        members.into_iter().flat_map(Map::values_mut).for_each(allow_null);
        schema
    }
}

/// Makes a schema accept null too.
fn allow_null(schema: &mut Value) {
    let null = || json!({ "type": "null" });
    if schema.get("$ref").is_some() {
        let nullable = [schema.take(), null()];
        *schema = json!({ "anyOf": nullable });
    }
    match schema.get_mut("type") {
        Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "null") => {}
        Some(Value::Array(kinds)) => kinds.push("null".into()),
        Some(kind) => *kind = json!([kind.take(), "null"]),
        None => {}
    }
    // Enumerations have to list null.
    if let Some(Value::Array(options)) = schema.get_mut("enum") {
        options.push(Value::Null);
    }
    if let Some(Value::Array(options)) = schema.get_mut("oneOf") {
        options.push(null());
    }
    // The values of maps may be null too.
    if let Some(of) = schema.get_mut("additionalProperties").filter(|of| of.is_object()) {
        allow_null(of);
    }
}

/// Applies a merge patch (RFC 7396 section 2).
fn merge(target: Value, patch: Value) -> Value {
    let Value::Object(patch) = patch else { return patch };
    let mut merged = match target {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (name, value) in patch {
        let before = merged.shift_remove(&name).unwrap_or_default();
        if !value.is_null() {
            merged.insert(name, merge(before, value));
        }
    }
    Value::Object(merged)
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
