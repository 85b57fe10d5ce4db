//! The schemas of records, for the OpenAPI document and for [`read`](crate::read::read).

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::words;

/// A schema keyword for [`read`](crate::read::read) only, which marks merge patches.
pub(crate) const MERGED: &str = "x-merged";

/// The place of schemas in the OpenAPI document.
const COMPONENTS: &str = "/components/schemas";

/// Returns a reference to the schema of a record.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Returns a reference to the schema of `T`.
pub fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema of `T` in requests, with all subschemas inline.
pub fn whole<T: JsonSchema + 'static>() -> Arc<Value> {
    static WHOLE: LazyLock<RwLock<HashMap<TypeId, Arc<Value>>>> = LazyLock::new(RwLock::default);
    let id = TypeId::of::<T>();
    if let Some(known) = WHOLE.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
        return Arc::clone(known);
    }
    let mut settings = settings();
    settings.inline_subschemas = true;
    let schema: Arc<Value> = Arc::new(settings.into_generator().into_root_schema_for::<T>().into());
    let mut all = WHOLE.write().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(all.entry(id).or_insert(schema))
}

/// The names of the members of `T`.
pub fn names<T: JsonSchema + 'static>() -> Vec<String> {
    let schema = whole::<T>();
    let members = schema.get("properties").and_then(Value::as_object);
    members.into_iter().flat_map(Map::keys).cloned().collect()
}

fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.definitions_path = COMPONENTS.into();
    settings
}

/// Collects the schemas of the OpenAPI document.
pub struct Components {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Default for Components {
    fn default() -> Self {
        Components {
            requests: settings().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }
}

impl Components {
    /// Returns a reference to a schema in requests.
    pub fn request(&mut self, of: SchemaOf) -> Value {
        of(&mut self.requests).into()
    }

    /// Returns a reference to a schema in answers.
    pub fn answer(&mut self, of: SchemaOf) -> Value {
        of(&mut self.answers).into()
    }

    /// All referenced schemas by name.
    pub fn into_map(mut self) -> Map<String, Value> {
        let mut all = self.answers.take_definitions(true);
        all.extend(self.requests.take_definitions(true));
        for schema in all.values_mut() {
            strip(schema);
        }
        all.sort_keys();
        all
    }
}

/// The schema of a value that cannot be null, for the OpenAPI document.
pub fn required(schema: &Value) -> Value {
    let mut required = words::plain(schema).clone();
    for (name, kept) in
        [("description", schema.get("description")), ("default", schema.get("default"))]
    {
        if let (Some(kept), Some(members)) = (kept, required.as_object_mut()) {
            members.insert(name.to_owned(), kept.clone());
        }
    }
    let kind = words::kind(&required).to_owned();
    if let Some(members) = required.as_object_mut() {
        members.entry("type").and_modify(|of| *of = kind.into());
        if let Some(Value::Array(options)) = members.get_mut("enum") {
            options.retain(|option| !option.is_null());
        }
    }
    strip(&mut required);
    required
}

/// Removes everything that the OpenAPI document does not need. A schema that accepts everything
/// becomes `{}`, as client generators do not know `true`.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let parts = members.get_mut("properties").and_then(Value::as_object_mut);
            let parts = parts.into_iter().flat_map(Map::values_mut);
            parts.filter(|part| part.is_boolean()).for_each(|part| *part = json!({}));
            let types = members.get("type").cloned().unwrap_or_default();
            let is_list = types == "array"
                || types.as_array().is_some_and(|types| types.contains(&json!("array")));
            if is_list && !members.get("items").is_some_and(Value::is_object) {
                members.insert("items".to_owned(), json!({}));
            }
            join_words(members);
            members.shift_remove(MERGED);
            // `title` repeats the name. Formats such as `uint64` do not belong to JSON Schema.
            members.shift_remove("title");
            if !matches!(words::kind(&Value::Object(members.clone())), "string" | "") {
                members.shift_remove("format");
            }
            members.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Turns a choice of constants into an enumeration, as client generators do not know such a choice.
/// Descriptions of the words are moved into the description of the enumeration.
fn join_words(members: &mut Map<String, Value>) {
    let options = members.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let mut words = Vec::new();
    let mut about: Vec<String> =
        members.get("description").and_then(Value::as_str).map(str::to_owned).into_iter().collect();
    for option in options {
        let of_option = option.get("enum").and_then(Value::as_array).cloned();
        let of_option = of_option.or_else(|| option.get("const").map(|word| vec![word.clone()]));
        let Some(of_option) = of_option.filter(|words| words.iter().all(Value::is_string)) else {
            return;
        };
        let said = option.get("description").and_then(Value::as_str);
        about.extend(said.map(|said| {
            let word = of_option.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("`, `");
            format!("`{word}`: {said}")
        }));
        words.extend(of_option);
    }
    if !words.is_empty() {
        members.shift_remove("oneOf");
        members.insert("type".to_owned(), "string".into());
        members.insert("enum".to_owned(), words.into());
        if !about.is_empty() {
            members.insert("description".to_owned(), about.join(" ").into());
        }
    }
}
