//! Checks each answer that the tests see against the OpenAPI document: its status is documented
//! for the operation, and its JSON has the documented shape without any other field.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

use super::client::Answer;

/// The OpenAPI document, whose answers may have no undocumented field.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut document = rerouter::internals::api::openapi_document();
    let schemas = document["components"]["schemas"].as_object().unwrap().clone();
    let parts: Map<String, Value> = schemas
        .iter()
        .map(|(name, schema)| (name.clone(), strict_part(schema, &schemas)))
        .collect();
    document["components"]["strict"] = parts.into();
    let operations =
        document["paths"].as_object_mut().unwrap().values_mut().filter_map(Value::as_object_mut);
    for operation in operations.flat_map(|item| item.values_mut()) {
        let responses = operation.get_mut("responses").and_then(Value::as_object_mut);
        for response in responses.into_iter().flat_map(|responses| responses.values_mut()) {
            if let Some(schema) = response.pointer_mut("/content/application~1json/schema") {
                *schema = strict(schema, &schemas);
            }
        }
    }
    document
});

/// Compiled schemas by their place in the document.
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// A schema under which a value has documented fields only, also within its fields. Clients may
/// meet unknown fields; here one is a field that somebody forgot to document.
fn strict(schema: &Value, schemas: &Map<String, Value>) -> Value {
    if is_open(schema, schemas) {
        return json!({});
    }
    let mut schema = strict_part(schema, schemas);
    let says_something = ["type", "properties", "additionalProperties", "$ref", "allOf", "anyOf"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
    if says_something {
        schema["unevaluatedProperties"] = json!(false);
    }
    schema
}

/// Whether a schema lets a value be anything: one of its alternatives says nothing.
fn is_open(schema: &Value, schemas: &Map<String, Value>) -> bool {
    let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
    let schema = name.and_then(|name| schemas.get(name)).unwrap_or(schema);
    let says_nothing = |part: &Value| {
        part.as_object().is_some_and(|part| part.keys().all(|key| key == "description"))
    };
    schema["anyOf"].as_array().is_some_and(|parts| parts.iter().any(says_nothing))
}

/// The same for a part of a schema, whose other parts may document further fields. What may have
/// additional fields may have them at any depth.
fn strict_part(schema: &Value, schemas: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    if schema.get("additionalProperties") == Some(&json!(true)) {
        return schema;
    }
    if let Some(name) = schema["$ref"].as_str() {
        schema["$ref"] = name.replace("/schemas/", "/strict/").into();
    }
    for keyword in ["allOf", "anyOf"] {
        let parts = schema.get_mut(keyword).and_then(Value::as_array_mut);
        parts.into_iter().flatten().for_each(|part| *part = strict_part(part, schemas));
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let fields = properties.into_iter().flat_map(Map::values_mut);
    fields.for_each(|field| *field = strict(field, schemas));
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = schema.get_mut(keyword).filter(|below| below.is_object()) {
            *below = strict(below, schemas);
        }
    }
    schema
}

fn validator(pointer: &str) -> Arc<Validator> {
    let mut validators = VALIDATORS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let compile = || {
        let mut schema = DOCUMENT.clone();
        schema["$ref"] = format!("#{}", pointer.replace('{', "%7B").replace('}', "%7D")).into();
        let options =
            jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        Arc::new(options.build(&schema).unwrap())
    };
    validators.entry(pointer.to_owned()).or_insert_with(compile).clone()
}

/// Panics if the answer is not documented. Paths and methods without an operation are not checked.
pub fn hold(method: &str, target: &str, answer: &Answer) {
    let path = target.split('?').next().unwrap();
    let Some((pattern, operation)) = operation(method, path) else { return };
    let responses = &operation["responses"];
    let status = answer.status.to_string();
    let class = format!("{}XX", &status[..1]);
    let documented =
        [status.as_str(), &class].into_iter().find(|name| responses.get(name).is_some());
    let documented = documented.unwrap_or_else(|| {
        panic!("{method} {path}: {status} is not documented: {}", answer.text())
    });
    let content = responses[documented].get("content");
    let kind = answer.header("content-type").unwrap_or_default().split(';').next().unwrap().trim();
    let json = content.and_then(|content| content.get("application/json"));
    if json.is_some() && kind == "application/json" && answer.whole && !answer.body.is_empty() {
        let pattern = pattern.replace('/', "~1");
        let method = method.to_ascii_lowercase();
        let pointer = format!(
            "/paths/{pattern}/{method}/responses/{documented}/content/application~1json/schema"
        );
        let value = answer.json();
        let problems: Vec<String> = validator(&pointer)
            .iter_errors(&value)
            .map(|problem| format!("{}: {problem}", problem.instance_path()))
            .collect();
        assert!(
            problems.is_empty(),
            "{method} {path} {status}: {problems:#?} in {}",
            answer.text()
        );
    }
    assert!(
        content.is_some() || answer.body.is_empty() || documented == class,
        "{method} {path} {status}: a body that is not documented"
    );
}

fn operation(method: &str, path: &str) -> Option<(&'static str, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object()?;
    // The names of models may have slashes.
    let path = if path.starts_with("/v1/models/") { "/v1/models/{id}" } else { path };
    let (pattern, item) = paths
        .get_key_value(path)
        .or_else(|| paths.iter().find(|(pattern, _)| fits(pattern, path)))?;
    Some((pattern, item.get(method.to_ascii_lowercase())?))
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

#[test]
fn planted_differences_are_found() {
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
            "object": "api_key", "id": "key_1", "interface": "router", "name": "k",
            "redacted": "rtr_", "owner": "usr_a", "created_by": {"type": "session", "id": "sess_a"},
            "scopes": [], "labels": {}, "limits": {}, "status": "active",
            "created_at": "2026-11-22T00:00:00Z", "expires_at": null,
            "last_used_at": null, "revoked_at": null, "rotated_at": null,
            "previous_secret_expires_at": null, "metadata": {},
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
            key_with(json!({
                "usage": {
                    "requests": null, "tokens": null, "concurrency": null,
                    "budget": { "surprise": 1 }
                }
            })),
        ),
    ] {
        let shown = bad.text();
        assert!(std::panic::catch_unwind(|| hold("GET", key, &bad)).is_err(), "{shown} was taken");
    }
}
