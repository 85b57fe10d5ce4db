//! The OpenAPI 3.1 document of the table of operations. Tests fail for an answer that the document
//! does not describe.

mod examples;
mod headers;
mod responses;

use serde_json::{Map, Value, json};

use self::responses::responses;
use super::operation::Operation;
use crate::api::route::{MERGE_PATCH, Route};
use rerouter_base::interface::Surface;
use rerouter_records::schema::{self, Components};

pub(super) fn document(operations: &[&[Operation]]) -> Value {
    let (mut paths, mut components) = (Map::new(), Components::default());
    let examples = examples::read();
    for operation in operations.iter().copied().flatten() {
        let route = &operation.route;
        let item = paths.entry(route.path.replace("...}", "}")).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            let mut described = describe(operation, &mut components);
            examples::add(&examples, operation.id, &mut described);
            item.insert(route.method.as_str().to_ascii_lowercase(), described);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rerouter", "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "An LLM edge gateway: authenticated, \
                captured and replayable at proxy speed.",
        },
        "paths": paths,
        "components": {
            "schemas": components.into_map(),
            "headers": headers::of_limits(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "nodeSignature": {
                    "type": "apiKey", "in": "header", "name": "Signature",
                    "description": "HTTP Message Signatures (RFC 9421), \
                        `hmac-sha256` with the node's secret, \
                        beside `Signature-Input` and `Content-Digest`: label `sig1`; \
                        components `@method`, `@authority`, `@path`, `@query`, `content-digest`; \
                        parameters `created`, `nonce`, `keyid`, `alg`, `tag`, in this order.",
                },
                "apiKey": { "type": "apiKey", "in": "header", "name": "x-api-key" },
                "session": { "type": "apiKey", "in": "cookie", "name": "rerouter_session" },
            },
        },
    })
}

fn describe(operation: &Operation, components: &mut Components) -> Value {
    let surface = Surface::of(operation.route.path);
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [tag(surface)],
        "responses": responses(operation, surface, components),
        "security": security(&operation.route, surface),
    });
    let Value::Object(fields) = &mut described else { return described };
    let parameters = parameters(operation);
    if !parameters.is_empty() {
        fields.insert("parameters".into(), parameters.into());
    }
    if let Some(of) = operation.takes {
        let schema = match operation.id {
            // An import takes captures in the form in which gateways answer with them.
            "importReplays" => components.answer(of),
            _ => components.request(of),
        };
        let mut content =
            Map::from_iter([("application/json".to_owned(), json!({ "schema": schema }))]);
        let text = |says: Option<&str>| match says {
            Some(says) => json!({ "schema": { "type": "string", "description": says } }),
            None => json!({ "schema": { "type": "string" } }),
        };
        match operation.id {
            "importReplays" => {
                let lines = text(Some("One capture per line."));
                content.insert("application/x-ndjson".into(), lines);
            }
            "putConfig" | "validateConfig" => {
                content.insert("application/yaml".into(), text(None));
            }
            _ if operation.route.method == "PATCH" => {
                content.insert(MERGE_PATCH.to_owned(), json!({ "schema": schema }));
            }
            _ => {}
        }
        let body = json!({ "required": !operation.takes_nothing, "content": content });
        fields.insert("requestBody".into(), body);
    }
    described
}

fn tag(surface: Surface) -> &'static str {
    match surface {
        Surface::Pin | Surface::Console | Surface::NodeCallback => "PIN",
        Surface::Agent => "AGENT",
        Surface::RouterManagement => "ROUTER management",
        Surface::Messages | Surface::DataPlane => "ROUTER data plane",
    }
}

fn security(route: &Route, surface: Surface) -> Value {
    if route.policy.is_open() {
        return json!([]);
    }
    match surface {
        // Open mode needs no credential.
        Surface::Agent => json!([{ "bearer": [] }, {}]),
        Surface::NodeCallback => json!([{ "nodeSignature": [] }]),
        Surface::Messages | Surface::DataPlane => {
            json!([{ "bearer": [] }, { "apiKey": [] }, { "session": [] }])
        }
        _ => json!([{ "bearer": [] }, { "session": [] }]),
    }
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let path = operation.route.path;
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path = names.zip(operation.parts).map(|(name, says)| {
        json!({
            "name": name.trim_end_matches("..."), "in": "path", "required": true,
            "description": says, "schema": { "type": "string", "minLength": 1 }
        })
    });
    let of_query = operation.query.map(|schema| derived_parameters(&schema())).unwrap_or_default();
    of_path.chain(of_query).chain(headers::of_requests(operation)).collect()
}

fn derived_parameters(schema: &Value) -> Vec<Value> {
    let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let parameter = |(name, of): (&String, &Value)| {
        let mut of = schema::required(of);
        // OpenAPI has the description on the parameter, not in its schema.
        let says = of.as_object_mut().and_then(|of| of.shift_remove("description"));
        json!({
            "name": name, "in": "query", "required": false, "description": says, "schema": of
        })
    };
    members.map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::super::operations::OPERATIONS;
    use super::*;

    #[test]
    fn operations_have_ids_of_their_own() {
        let all = || OPERATIONS.iter().copied().flatten();
        let ids: std::collections::BTreeSet<&str> = all().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), all().count());
    }

    #[test]
    fn every_parameter_says_what_it_is() {
        let document = document(OPERATIONS);
        let operations = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .flat_map(|item| item.as_object().unwrap().values());
        let mut seen = 0;
        for operation in operations {
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let says = parameter["description"].as_str().unwrap_or_default();
                assert!(says.len() > 10, "{}: {parameter}", operation["operationId"]);
                seen += 1;
            }
        }
        assert!(seen > 60, "{seen}");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document(OPERATIONS);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
