//! The OpenAPI 3.1 document: the route table, with one line here for each of its rows. Tests fail
//! for a row without a line, a line without a row, and an answer that the document does not
//! describe.

mod descriptions;
mod examples;
mod responses;

use serde_json::{Map, Value, json};

use self::responses::{named, responses};
use super::models::MODELS_PAGE;
use super::operation::{Operation, Parameters, Shape};
use crate::api::route::{MERGE_PATCH, Route};
use rerouter_base::interface::Surface;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_records::page::{PAGE_DEFAULT, PAGE_MAX};
use rerouter_records::schema::{self, Components};

/// The document of these operations.
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
            "schemas": schemas(components),
            "headers": descriptions::headers(),
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

/// The schemas of records, and those that are written by hand.
fn schemas(components: Components) -> Map<String, Value> {
    let mut all: Map<String, Value> =
        serde_json::from_str(include_str!("../schemas.json")).unwrap_or_default();
    all.extend(components.into_map());
    all
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
    if let Some(shape) = operation.takes {
        let schema = match shape {
            Shape::Named(name) => named(name),
            Shape::Of(of) => components.request(of),
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
    let of_path =
        path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let of_path = of_path
        .map(|name| (name.trim_end_matches("..."), descriptions::of_path(path, name)))
        .map(|(name, says)| {
            json!({
                "name": name, "in": "path", "required": true, "description": says,
                "schema": { "type": "string", "minLength": 1 }
            })
        });
    let of_query: Vec<Value> = match operation.query {
        Parameters::Named(names) => {
            names.iter().map(|name| query_parameter(operation, name)).collect()
        }
        Parameters::Of(schema) => derived_parameters(&schema()),
    };
    of_path.chain(of_query).chain(descriptions::of_headers(operation)).collect()
}

/// The parameters of a query with this schema.
fn derived_parameters(schema: &Value) -> Vec<Value> {
    let members = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let parameter = |(name, of): (&String, &Value)| {
        let mut of = schema::required(of);
        // The description belongs to the parameter.
        let says = of.as_object_mut().and_then(|of| of.shift_remove("description"));
        json!({
            "name": name, "in": "query", "required": false, "description": says, "schema": of
        })
    };
    members.map(parameter).collect()
}

fn query_parameter(operation: &Operation, name: &str) -> Value {
    let mut schema = query_schema(operation, name);
    // The description belongs to the parameter.
    let said = schema.as_object_mut().and_then(|schema| schema.remove("description"));
    let says = said.unwrap_or_else(|| descriptions::of_query(operation.id, name).into());
    json!({
        "name": name, "in": "query", "required": false, "description": says, "schema": schema
    })
}

/// With a `description`, where it is of this operation alone.
fn query_schema(operation: &Operation, name: &str) -> Value {
    match name {
        "limit" if operation.id == "listModels" => {
            let says = "Only with `anthropic-version`, as `after_id` and `before_id`; \
                otherwise the list is complete";
            json!({
                "type": "integer", "minimum": 1, "maximum": MODELS_PAGE,
                "description": says
            })
        }
        "limit" => {
            json!({
                "type": "integer", "minimum": 1, "maximum": PAGE_MAX,
                "default": PAGE_DEFAULT
            })
        }
        "endpoint" => {
            json!({
                "enum": Endpoint::ALL.map(Endpoint::as_str),
                "default": Endpoint::ChatCompletions.as_str(),
                "description": "Endpoint of the request in the body"
            })
        }
        "since" | "until" => {
            json!({ "type": "string", "format": "date-time" })
        }
        "shadow" => {
            let says = "Only shadows; by default the list leaves them out, \
                unless `shadow_of` is given";
            json!({ "type": "boolean", "default": false, "description": says })
        }
        "max_changed" => {
            let says = "Evaluates the change on the captures of the last 24 hours first: at \
                most this share may get another target. A percentage like `2%` or a fraction \
                like `0.02`";
            let (fraction, percentage) = (
                json!({ "type": "number", "minimum": 0, "maximum": 1 }),
                json!({ "pattern": "^[0-9.]+%$" }),
            );
            json!({ "anyOf": [fraction, percentage], "description": says })
        }
        "forbid_unroutable" | "allow_empty" | "dry_run" | "replays" | "stream" | "replay" => {
            json!({ "type": "boolean" })
        }
        _ => json!({ "type": "string" }),
    }
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
