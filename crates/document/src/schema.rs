//! JSON Schemas (draft 7) of documents, for editors, and the rows of the reference.

use serde_json::{Map, Value, json};

use crate::table::{KeyTable, add_type, object};

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
            add_type(types, "null");
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
    add_type(schema, "string");
}

/// The schema as a file for editors. Links are removed, as editors show descriptions as plain text.
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

/// Markdown with each link `[text](target)` replaced by `text`.
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

/// A key with a value that is not a section.
pub struct KeyEntry {
    /// Path such as `listeners[].address`, or `providers.NAME` in a section whose keys are names.
    pub path: String,
    pub default: String,
    pub about: String,
}

impl KeyEntry {
    /// The row of the reference, as Markdown.
    pub fn row(&self) -> String {
        format!("| `{}` | {} | {} |", self.path, self.default, self.about)
    }
}

/// The keys of a document, in the order of their rows.
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
