//! Holds each answer that the tests see against the OpenAPI document: its status is documented for the operation, and
//! its JSON has the documented shape and no field that is not documented. The part of JSON Schema
//! that the document uses, no more: an unknown word panics.

use std::sync::LazyLock;

use serde_json::Value;

use super::client::Answer;

static DOCUMENT: LazyLock<Value> = LazyLock::new(rerouter::api::openapi::document);

/// Panics when the answer is not in the document. Paths and methods that the document does not have are free: there is no operation.
pub fn hold(method: &str, target: &str, answer: &Answer) {
    let path = target.split('?').next().unwrap();
    let Some(operation) = operation(method, path) else { return };
    let responses = &operation["responses"];
    let status = answer.status.to_string();
    let class = format!("{}XX", &status[..1]);
    let response = responses.get(&status).or_else(|| responses.get(&class));
    let response = response.unwrap_or_else(|| {
        panic!("{method} {path}: {status} is not documented: {}", answer.text())
    });
    let kind = answer.header("content-type").unwrap_or_default().split(';').next().unwrap().trim();
    let content = response.get("content");
    let whole = answer.whole && !answer.body.is_empty();
    if let Some(schema) = content
        .and_then(|content| content.get("application/json"))
        .map(|content| &content["schema"])
        && kind == "application/json"
        && whole
    {
        let value = answer.json();
        let problems =
            [check(schema, &value, ""), undocumented(&[schema], &value, "", false)].concat();
        assert!(problems.is_empty(), "{method} {path} {status}: {problems:?} in {}", answer.text());
    }
    assert!(
        content.is_some() || answer.body.is_empty() || responses.get(&status).is_none(),
        "{method} {path} {status}: a body that is not documented"
    );
}

fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let paths = DOCUMENT["paths"].as_object()?;
    let exact = paths.get(path);
    // The names of models may have slashes.
    let path = if path.starts_with("/v1/models/") { "/v1/models/{id}" } else { path };
    let item = exact
        .or_else(|| paths.iter().find(|(pattern, _)| fits(pattern, path)).map(|(_, item)| item))?;
    item.get(method.to_ascii_lowercase())
}

fn fits(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) =
        (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len()
        && pattern
            .iter()
            .zip(&path)
            .all(|(want, have)| want == have || (want.starts_with('{') && !have.is_empty()))
}

/// Everything in which a value differs from its schema.
fn check(schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (word, says) in schema.as_object().expect("a schema") {
        let good = match word.as_str() {
            "$ref" => {
                let target = DOCUMENT
                    .pointer(says.as_str().unwrap().strip_prefix('#').unwrap())
                    .expect("a reference that leads somewhere");
                problems.extend(check(target, value, at));
                true
            }
            "allOf" => {
                problems.extend(
                    says.as_array().unwrap().iter().flat_map(|part| check(part, value, at)),
                );
                true
            }
            "anyOf" => {
                says.as_array().unwrap().iter().any(|part| check(part, value, at).is_empty())
            }
            "type" => match says {
                Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind.as_str().unwrap())),
                kind => is(value, kind.as_str().unwrap()),
            },
            "const" => value == says,
            "enum" => says.as_array().unwrap().contains(value),
            "pattern" => begins(value, says.as_str().unwrap()),
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 >= says.as_u64().unwrap()),
            "maxLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 <= says.as_u64().unwrap()),
            "maxProperties" => {
                value.as_object().is_none_or(|fields| fields.len() as u64 <= says.as_u64().unwrap())
            }
            "exclusiveMinimum" => {
                value.as_f64().is_none_or(|number| number > says.as_f64().unwrap())
            }
            "minimum" => value.as_f64().is_none_or(|number| number >= says.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= says.as_f64().unwrap()),
            "format" => value
                .as_str()
                .is_none_or(|text| says != "date-time" || text.parse::<jiff::Timestamp>().is_ok()),
            "required" => {
                let missing = |name: &&Value| {
                    value.is_object() && value.get(name.as_str().unwrap()).is_none()
                };
                problems.extend(
                    says.as_array()
                        .unwrap()
                        .iter()
                        .filter(missing)
                        .map(|name| format!("{at}: {name} is missing")),
                );
                true
            }
            "properties" => {
                for (name, part) in says.as_object().unwrap() {
                    problems.extend(
                        value
                            .get(name)
                            .into_iter()
                            .flat_map(|value| check(part, value, &format!("{at}.{name}"))),
                    );
                }
                true
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, value) in value
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(name, _)| !known.is_some_and(|known| known.contains_key(*name)))
                {
                    match says {
                        Value::Bool(false) => {
                            problems.push(format!("{at}.{name} is not documented"))
                        }
                        Value::Bool(true) => {}
                        part => problems.extend(check(part, value, &format!("{at}.{name}"))),
                    }
                }
                true
            }
            "maxItems" => {
                value.as_array().is_none_or(|items| items.len() as u64 <= says.as_u64().unwrap())
            }
            "items" => {
                problems.extend(
                    value
                        .as_array()
                        .into_iter()
                        .flatten()
                        .enumerate()
                        .flat_map(|(n, item)| check(says, item, &format!("{at}[{n}]"))),
                );
                true
            }
            "description" | "default" => true,
            word => panic!("the document uses `{word}`, which this check does not know"),
        };
        if !good {
            problems.push(format!("{at}: {value} is not {word} {says}"));
        }
    }
    problems
}

/// The fields of a value that none of the schemas which hold for it names. Clients may meet a field
/// that they do not know; here one is a field that somebody forgot to write down. `open` says that
/// what is around it may be anything.
fn undocumented(schemas: &[&Value], value: &Value, at: &str, open: bool) -> Vec<String> {
    let mut all = Vec::new();
    schemas.iter().for_each(|schema| gather(schema, value, &mut all));
    let words = ["type", "properties", "additionalProperties", "const", "enum"];
    // A schema that says nothing of its value lets it be anything.
    let open = open
        || all.iter().any(|schema| {
            schema.get("additionalProperties") == Some(&Value::Bool(true))
                || words.iter().all(|word| schema.get(word).is_none())
        });
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| {
                let named: Vec<&Value> =
                    all.iter().filter_map(|schema| schema.get("properties")?.get(name)).collect();
                let rest = all.iter().filter_map(|schema| {
                    schema.get("additionalProperties").filter(|rest| rest.is_object())
                });
                let rest: Vec<&Value> = if named.is_empty() { rest.collect() } else { Vec::new() };
                let at = format!("{at}.{name}");
                match named.is_empty() && rest.is_empty() {
                    true if open => Vec::new(),
                    true => vec![format!("{at} is not documented")],
                    false => undocumented(&[named, rest].concat(), value, &at, open),
                }
            })
            .collect(),
        Value::Array(items) => {
            let each: Vec<&Value> = all.iter().filter_map(|schema| schema.get("items")).collect();
            items
                .iter()
                .enumerate()
                .flat_map(|(n, item)| undocumented(&each, item, &format!("{at}[{n}]"), open))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// A schema, and those that it refers to, as far as they hold for the value.
fn gather<'a>(schema: &'a Value, value: &Value, all: &mut Vec<&'a Value>) {
    let mut refers = false;
    if let Some(target) = schema.get("$ref") {
        gather(
            DOCUMENT.pointer(target.as_str().unwrap().strip_prefix('#').unwrap()).unwrap(),
            value,
            all,
        );
        refers = true;
    }
    for word in ["allOf", "anyOf"] {
        let parts = schema.get(word).and_then(Value::as_array).into_iter().flatten();
        for part in parts.filter(|part| word == "allOf" || check(part, value, "").is_empty()) {
            gather(part, value, all);
            refers = true;
        }
    }
    if !refers || schema.get("properties").is_some() {
        all.push(schema);
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        kind => panic!("the document uses the type `{kind}`"),
    }
}

/// The patterns of answers are all `^prefix`; those of requests are not looked at here.
fn begins(value: &Value, pattern: &str) -> bool {
    let prefix = pattern.strip_prefix('^').expect("a pattern of the form ^prefix");
    assert!(
        prefix.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
        "a pattern of the form ^prefix"
    );
    value.as_str().is_none_or(|text| text.starts_with(prefix))
}

#[test]
fn planted_differences_are_found() {
    use serde_json::json;
    let key = "/v1/router/keys/key_1";
    let answer = |status: u16, body: Value| Answer {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body: body.to_string().into_bytes(),
        whole: true,
    };
    let good = json!({ "error": "not_found", "detail": "No such key." });
    let key_with = |more: Value| {
        let mut record = json!({
            "object": "api_key", "id": "key_1", "interface": "router", "name": "k", "redacted": "rtr_", "owner": null, "created_by": null,
            "scopes": [], "labels": {}, "limits": {}, "status": "active", "created_at": "2026-11-22T00:00:00Z", "expires_at": null,
            "last_used_at": null, "revoked_at": null, "rotated_at": null, "previous_secret_expires_at": null, "metadata": {},
        });
        record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        record
    };
    hold(
        "GET",
        key,
        &answer(200, key_with(json!({ "labels": { "any": "thing" }, "usage": null }))),
    );
    hold("GET", key, &answer(404, good.clone()));
    // What is a provider's may have any field.
    hold(
        "POST",
        "/v1/chat/completions",
        &answer(200, json!({ "id": "x", "choices": [{ "surprise": 1 }], "surprise": 1 })),
    );
    hold("GET", "/v1/unknown/path", &answer(418, good.clone()));
    for bad in [
        answer(418, good.clone()),
        answer(404, json!({ "error": "not_found" })),
        answer(404, json!({ "error": 1, "detail": "x" })),
        answer(404, json!({ "error": "not_found", "detail": "x", "more": 1 })),
        answer(401, json!({ "error": "Unauthorized", "detail": "x" })),
        answer(200, good),
        answer(200, key_with(json!({ "surprise": 1 }))),
        answer(
            200,
            key_with(json!({ "created_by": { "type": "session", "id": "x", "surprise": 1 } })),
        ),
        answer(
            200,
            key_with(
                json!({ "usage": { "requests": null, "tokens": null, "concurrency": null, "budget": { "surprise": 1 } } }),
            ),
        ),
    ] {
        let shown = bad.text();
        assert!(std::panic::catch_unwind(|| hold("GET", key, &bad)).is_err(), "{shown} was taken");
    }
}
