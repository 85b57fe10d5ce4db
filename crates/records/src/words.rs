//! Texts for errors that describe the value that a schema expects.

use serde_json::Value;

/// The text after "must be", as in "`limits.rpm` must be …".
pub(crate) fn of(schema: &Value) -> String {
    let schema = plain(schema);
    let options = options(schema);
    if !options.is_empty() {
        return one_of(&options);
    }
    let (least, most) = (bound(schema, "minimum"), bound(schema, "maximum"));
    match kind(schema) {
        "boolean" => "true or false".to_owned(),
        "integer" => format!(
            "a whole number{}",
            range(least.filter(|least| least != "0" || most.is_some()), most, "")
        ),
        "number" => match bound(schema, "exclusiveMinimum") {
            Some(least) => {
                let most = most.map(|most| format!(" and up to {most}")).unwrap_or_default();
                format!("a number above {least}{most}")
            }
            None => format!("a number{}", range(least, most, "")),
        },
        "string" => format!("{}{}", text_noun(schema), length(schema)),
        "array" => {
            let items = schema.get("items");
            let (nouns, length) = (items.map_or("entries", plural), items.map(length));
            let most = up_to(schema, "maxItems");
            format!("a list of {most}{nouns}{}", length.unwrap_or_default())
        }
        "object" => match schema.get("additionalProperties").filter(|of| of.is_object()) {
            Some(of) => format!("an object of {}{}", up_to(schema, "maxProperties"), plural(of)),
            None => format!("an object{}", with_members(schema)),
        },
        _ => "valid".to_owned(),
    }
}

/// The schema without a wrapper that only allows null.
pub(crate) fn plain(schema: &Value) -> &Value {
    let options = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let mut options = options.filter(|one| one.get("type").is_none_or(|kind| kind != "null"));
    match (options.next(), options.next()) {
        (Some(one), None) => one,
        _ => schema,
    }
}

/// The type, without null.
pub(crate) fn kind(schema: &Value) -> &str {
    match plain(schema).get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null").unwrap_or_default()
        }
        _ => "",
    }
}

/// The values of an enumeration, without null; empty for other schemas.
pub(crate) fn options(schema: &Value) -> Vec<&Value> {
    let listed = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let consts = listed("oneOf").chain(listed("anyOf")).filter_map(|one| one.get("const"));
    let within = listed("oneOf").filter_map(|one| one.get("enum")?.as_array()).flatten();
    let own = schema.get("const").into_iter().chain(listed("enum"));
    own.chain(consts).chain(within).filter(|option| !option.is_null()).collect()
}

/// Whether null is among the values of an enumeration.
pub(crate) fn has_null(schema: &Value) -> bool {
    let listed = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    listed("enum").any(Value::is_null)
        || listed("oneOf").any(|one| one.get("type").is_some_and(|kind| kind == "null"))
}

fn one_of(options: &[&Value]) -> String {
    let words: Vec<&str> = options.iter().filter_map(|option| option.as_str()).collect();
    match words.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

fn bound(schema: &Value, name: &str) -> Option<String> {
    schema.get(name).filter(|bound| bound.is_number()).map(Value::to_string)
}

fn range(least: Option<String>, most: Option<String>, unit: &str) -> String {
    let of = if unit.is_empty() { "from" } else { "of" };
    match (least, most) {
        (None, None) => String::new(),
        (Some(least), None) => format!(" of at least {least}{unit}"),
        (None, Some(most)) => format!(" of up to {most}{unit}"),
        (Some(least), Some(most)) => format!(" {of} {least} to {most}{unit}"),
    }
}

fn up_to(schema: &Value, name: &str) -> String {
    bound(schema, name).map(|most| format!("up to {most} ")).unwrap_or_default()
}

/// What a text is, by its `format`.
fn text_noun(schema: &Value) -> &'static str {
    match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => "an RFC 3339 time",
        Some("uri") => "a URL",
        Some("user-id") => "the id of a user",
        _ => "a string",
    }
}

/// The number of characters of a text.
fn length(schema: &Value) -> String {
    range(bound(schema, "minLength"), bound(schema, "maxLength"), " characters")
}

/// The required members of an object.
fn with_members(schema: &Value) -> String {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let required: Vec<&str> = required.filter_map(Value::as_str).collect();
    match required.split_last() {
        Some((last, [])) => format!(" with {last}"),
        Some((last, others)) => format!(" with {} and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn plural(schema: &Value) -> &'static str {
    match kind(schema) {
        "boolean" => "true or false",
        "integer" => "whole numbers",
        "number" => "numbers",
        "string" => "strings",
        "array" => "lists",
        "object" => "objects",
        _ => "values",
    }
}
