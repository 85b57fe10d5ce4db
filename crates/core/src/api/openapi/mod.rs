//! The OpenAPI 3.1 document: the route table, with one line here for each of its rows. Tests fail
//! for a row without a line, a line without a row, and an answer that the document does not
//! describe.

mod descriptions;
mod examples;
mod operations;
mod responses;

use serde_json::{Map, Value, json};

use self::operations::{OPERATIONS, Operation};
use self::responses::{json_of, responses};
use super::models::MODELS_PAGE;
use super::page::{PAGE_DEFAULT, PAGE_MAX};
use super::usage::USAGE_GROUPS;
use crate::api::route::{MERGE_PATCH, Route};
use rerouter_base::interface::Surface;
use rerouter_dialect::endpoint::Endpoint;
use rerouter_store::{Action, UsageInterval, UsageOrder};

/// The document of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let (mut paths, examples) = (Map::new(), examples::read());
    for route in routes {
        let Some(operation) = OPERATIONS.iter().copied().flatten().find(|operation| {
            operation.method == route.method.as_str() && operation.path == route.path
        }) else {
            continue;
        };
        let path = route.path.replace("...}", "}");
        let item = paths.entry(path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            let mut described = describe(route, operation);
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
            "schemas": schemas(),
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

fn schemas() -> Value {
    serde_json::from_str(include_str!("../schemas.json")).unwrap_or_default()
}

fn describe(route: &Route, operation: &Operation) -> Value {
    let surface = Surface::of(route.path);
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [tag(surface)],
        "responses": responses(route, operation, surface),
        "security": security(route, surface),
    });
    let Value::Object(fields) = &mut described else { return described };
    let parameters = parameters(operation);
    if !parameters.is_empty() {
        fields.insert("parameters".into(), parameters.into());
    }
    if let Some(schema) = operation.takes {
        // An empty body counts as an empty object if every field is optional.
        let required =
            !matches!(schema, "NewKey" | "KeyPatch" | "Rotation" | "Evaluate" | "NodeLeaving");
        let mut content = json_of(schema);
        if let (Value::Object(content), "Capture") = (&mut content, schema) {
            let says = "One capture per line.";
            content.insert(
                "application/x-ndjson".into(),
                json!({ "schema": { "type": "string", "description": says } }),
            );
        }
        if let (Value::Object(content), "RoutingDocument") = (&mut content, schema) {
            content.insert("application/yaml".into(), json!({ "schema": { "type": "string" } }));
        }
        if let (Value::Object(content), true) = (&mut content, operation.method == "PATCH") {
            content.extend(
                json_of(schema)
                    .as_object()
                    .and_then(|json| Some((MERGE_PATCH.to_owned(), json.values().next()?.clone()))),
            );
        }
        fields.insert("requestBody".into(), json!({ "required": required, "content": content }));
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
    let of_path = operation
        .path
        .split('/')
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let of_path = of_path
        .map(|name| (name.trim_end_matches("..."), descriptions::of_path(operation.path, name)))
        .map(|(name, says)| {
            json!({
                "name": name, "in": "path", "required": true, "description": says,
                "schema": { "type": "string", "minLength": 1 }
            })
        });
    let of_query = operation.query.iter().map(|name| query_parameter(operation, name));
    of_path.chain(of_query).chain(descriptions::of_headers(operation)).collect()
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
        "limit" if operation.id == "usage" => {
            let most = USAGE_GROUPS;
            json!({
                "type": "integer", "minimum": 1, "maximum": most, "default": most,
                "description": "Maximum number of sums"
            })
        }
        "interval" => {
            let says = "What usage is summed by. Days are kept for 400 days, hours for 8 days, \
                five minutes for 6 hours";
            json!({
                "enum": UsageInterval::ALL.map(UsageInterval::as_str),
                "default": UsageInterval::default().as_str(), "description": says
            })
        }
        "order" => {
            let says = "The largest first; without it the latest time first, else in the order \
                of the values";
            json!({ "enum": UsageOrder::ALL.map(UsageOrder::as_str), "description": says })
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
        "action" => {
            let meanings: Vec<String> = Action::ALL
                .iter()
                .map(|action| format!("`{}`: {}", action.as_str(), action.meaning()))
                .collect();
            let words: Vec<&str> = Action::ALL.iter().map(|action| action.as_str()).collect();
            json!({ "type": "string", "enum": words, "description": meanings.join(" ") })
        }
        "since" | "until" if operation.id == "usage" => {
            let says = "Start of an interval in UTC: for days `2026-11-21` or \
                `2026-11-21T00:00:00Z`; a time within an interval is 400";
            json!({ "type": "string", "description": says })
        }
        "since" | "until" | "expires_before" | "unused_since" => {
            json!({ "type": "string", "format": "date-time" })
        }
        "budget_used" => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
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
        "forbid_unroutable" | "allow_empty" | "dry_run" | "replays" | "descendants" | "stream"
        | "replay" => json!({ "type": "boolean" }),
        _ => json!({ "type": "string" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ROUTES;

    #[test]
    fn every_route_has_its_line_and_every_line_its_route() {
        let mut routes: Vec<String> =
            ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        let mut lines: Vec<String> = OPERATIONS
            .iter()
            .copied()
            .flatten()
            .map(|operation| format!("{} {}", operation.method, operation.path))
            .collect();
        routes.sort();
        lines.sort();
        assert_eq!(routes, lines);
        let mut ids: Vec<&str> =
            OPERATIONS.iter().copied().flatten().map(|operation| operation.id).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all, "duplicate operation id");
    }

    #[test]
    fn every_parameter_says_what_it_is() {
        let document = document(ROUTES);
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
        let document = document(ROUTES);
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
