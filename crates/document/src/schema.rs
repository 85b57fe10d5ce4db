//! JSON Schemas (draft 7) of documents, for editors, and the rows of their references.

use serde_json::{Map, Value, json};

use crate::table::{KeyRow, KeyTable};
use crate::tree;

/// The schema of a record.
pub fn object<T: KeyTable>() -> Value {
    let rows = T::rows();
    let required: Vec<&str> = rows.iter().filter(|row| row.required).map(|row| row.key).collect();
    let properties: Map<String, Value> =
        rows.into_iter().map(|row| (row.key.to_owned(), property(row))).collect();
    let mut schema = json!({
        "type": if required.is_empty() { json!(["object", "null"]) } else { json!("object") },
        "additionalProperties": false,
        "properties": properties,
    });
    if let (false, Some(schema)) = (required.is_empty(), schema.as_object_mut()) {
        schema.insert("required".to_owned(), json!(required));
    }
    schema
}

fn property(row: KeyRow) -> Value {
    let mut found = Map::new();
    found.insert("description".to_owned(), row.about.trim().into());
    found.extend(row.default.as_deref().map(|default| ("default".to_owned(), as_json(default))));
    found.extend(row.schema.as_object().cloned().unwrap_or_default());
    if !row.required {
        // `null` is as if the key was missing.
        add(&mut found, "type", json!("null"));
        if let Some(Value::Array(words)) = found.get_mut("enum") {
            words.push(Value::Null);
        }
    }
    found.into()
}

/// Adds a value to the list `type`, if there is one.
fn add(schema: &mut Map<String, Value>, name: &str, value: Value) {
    let Some(types) = schema.get_mut(name) else { return };
    let mut list = types.as_array().cloned().unwrap_or_else(|| vec![types.clone()]);
    if !list.contains(&value) {
        list.push(value);
    }
    *types = list.into();
}

fn as_json(text: &str) -> Value {
    let parsed = tree::parse(text).ok();
    let text = parsed.map(|parsed| tree::canonical(&parsed.root)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The schema of a document. With `variables`, any scalar may be a text with `${…}`.
pub fn schema<T: KeyTable>(title: &str, about: &str, variables: bool) -> Value {
    let mut found = Map::new();
    found.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    found.insert("title".to_owned(), title.into());
    found.insert("description".to_owned(), about.into());
    let mut object = object::<T>();
    if variables {
        allow_variables(&mut object);
    }
    found.extend(object.as_object().cloned().unwrap_or_default());
    found.into()
}

fn allow_variables(schema: &mut Value) {
    const VARIABLE: &str = r"\$\{";
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(allow_variables);
    }
    ["items", "additionalProperties"]
        .iter()
        .for_each(|below| schema.get_mut(*below).into_iter().for_each(allow_variables));
    if let Some(Value::Array(words)) = schema.remove("enum") {
        let mut types = json!({ "type": "string", "pattern": VARIABLE });
        let types_of = types.as_object_mut();
        if let (true, Some(types)) = (words.contains(&Value::Null), types_of) {
            add(types, "type", json!("null"));
        }
        schema.insert("anyOf".to_owned(), json!([{ "enum": words }, types]));
        return;
    }
    let types = schema.get("type").cloned().unwrap_or_default();
    let is = |word: &str| {
        types == word || types.as_array().is_some_and(|all| all.contains(&json!(word)))
    };
    if is("object") || is("array") {
        return;
    }
    let pattern = schema.get("pattern").and_then(Value::as_str);
    match (pattern, is("string")) {
        (Some(pattern), _) => {
            let either = format!("{pattern}|{VARIABLE}");
            schema.insert("pattern".to_owned(), either.into());
        }
        (None, false) => {
            schema.insert("pattern".to_owned(), VARIABLE.into());
        }
        (None, true) => {}
    }
    add(schema, "type", json!("string"));
}

/// The schema as a file for editors, which show descriptions as plain text.
pub fn schema_text(schema: &Value) -> String {
    let mut schema = schema.clone();
    without_links(&mut schema);
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

fn without_links(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    for (name, value) in members {
        match value {
            Value::String(text) if name == "description" => *text = plain(text),
            Value::Object(_) => without_links(value),
            _ => {}
        }
    }
}

/// Markdown without the targets of links: `[text](target)` becomes `text`.
fn plain(markdown: &str) -> String {
    let mut pieces = markdown.split("](");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some(open) = text.rfind('[') {
            text.remove(open);
        }
        text.push_str(piece.split_once(')').map_or("", |(_, after)| after));
    }
    text
}

/// A key that holds a value, not a section.
pub struct KeyEntry {
    /// `listeners[].address`; `providers.NAME` for a section whose names are free.
    pub path: String,
    pub default: String,
    pub about: String,
}

impl KeyEntry {
    /// The row of a reference.
    pub fn row(&self) -> String {
        format!("| `{}` | {} | {} |", self.path, self.default, self.about)
    }
}

/// The keys of a record, in the order of its rows.
pub fn keys<T: KeyTable>() -> Vec<KeyEntry> {
    let mut found = Vec::new();
    note(&object::<T>(), "", &mut found);
    found
}

fn note(schema: &Value, path: &str, found: &mut Vec<KeyEntry>) {
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let is_required =
            || schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        if value["properties"].is_object() {
            note(value, &path, found);
        } else if let Some(items) =
            value.get("items").filter(|items| items["properties"].is_object())
        {
            note(items, &format!("{path}[]"), found);
        } else {
            let default = match value.get("default") {
                Some(Value::String(text)) => format!("`{text}`"),
                Some(default) => format!("`{default}`"),
                None if is_required() => "required".to_owned(),
                None => "–".to_owned(),
            };
            let about = value["description"].as_str().unwrap_or_default().to_owned();
            let is_map = value["additionalProperties"].is_object();
            let path = if is_map { format!("{path}.NAME") } else { path };
            found.push(KeyEntry { path, default, about });
        }
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
