//! Answers of an operation: its success, and the refusals of its surface.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::headers;
use crate::api::operation::Operation;
use crate::api::route::Policy;
use rerouter_base::interface::Surface;
use rerouter_records::error::{
    AgentError, AgentUnauthorized, AnthropicError, ManagementError, OpenAIError, OrProvider,
    RerouteError, Unauthorized, Unconfirmed,
};
use rerouter_records::health::Health;
use rerouter_records::schema::{self, Components, SchemaOf};

/// Headers of answers to inference calls.
const CALL_HEADERS: [(&str, &str); 10] = [
    ("x-request-id", "Id of the request and of its capture"),
    ("x-rerouter-provider", "The provider that answered"),
    ("x-rerouter-model", "The model that answered"),
    ("x-rerouter-recipe", "Recipe of the decision; `direct` if `provider/model` was requested"),
    ("x-rerouter-rule", "Rule of the recipe; absent if none"),
    ("x-rerouter-revision", "Revision of the routing document"),
    ("x-rerouter-attempts", "Number of attempts"),
    ("x-rerouter-estimated", "What is the gateway's estimate: `input_tokens`; absent if nothing"),
    ("x-rerouter-dropped", "Members that a translation left out, by commas; absent if none"),
    ("x-rerouter-upstream-request-id", "The provider's request id, if any"),
];

pub(super) fn responses(
    operation: &Operation,
    surface: Surface,
    components: &mut Components,
) -> Map<String, Value> {
    let infers = surface.is_data_plane() && operation.takes.is_some();
    // Calls that count against limits report what is left of them.
    let draws = operation.id == "reroute" || infers;
    let mut responses = Map::new();
    responses.insert(operation.gives.0.to_string(), success(operation, infers, draws, components));
    if matches!(operation.id, "getAgent" | "openapi") {
        responses.insert("304".into(), json!({ "description": reason(304) }));
    }
    if may_be_unconfirmed(operation) {
        let says = "Done. Gateways that answer without a lease may not know of it yet";
        let content = json_of(components.answer(schema::of::<Unconfirmed>));
        responses.insert("202".into(), json!({ "description": says, "content": content }));
    }
    for status in refusals(operation) {
        let schema = json_of(components.answer(refusal_schema(surface, operation, status)));
        let mut refusal = json!({ "description": reason(status), "content": schema });
        if let (Value::Object(refusal), true) = (&mut refusal, draws && status == 429) {
            refusal.insert("headers".into(), headers::limit_headers().into());
        }
        responses.insert(status.to_string(), refusal);
    }
    if infers {
        // A provider's refusals pass through.
        for (class, says) in [
            ("4XX", "The provider's answer, unchanged"),
            ("5XX", "The last provider's answer, unchanged"),
        ] {
            responses.insert(class.into(), json!({ "description": says }));
        }
    }
    responses
}

fn success(operation: &Operation, infers: bool, draws: bool, components: &mut Components) -> Value {
    let (status, shape) = operation.gives;
    let mut fields = Map::from_iter([("description".to_owned(), reason(status).into())]);
    if let Some(shape) = shape {
        let mut content = json_of(components.answer(shape));
        let also = match operation.id {
            "createChatCompletion" | "createResponse" | "createMessage" => {
                Some("text/event-stream")
            }
            "evaluate" => Some("application/x-ndjson"),
            "getConfig" => Some("application/yaml"),
            _ => None,
        };
        if let (Value::Object(content), Some(also)) = (&mut content, also) {
            let media = match also {
                // Tools apply a schema to each event, not to the whole text.
                "text/event-stream" => json!({}),
                _ => json!({ "schema": { "type": "string" } }),
            };
            content.insert(also.into(), media);
        }
        fields.insert("content".into(), content);
    }
    if draws {
        let mut headers = headers::limit_headers();
        if infers {
            let header = |(name, says): (&str, &str)| {
                (name.to_owned(), json!({ "description": says, "schema": { "type": "string" } }))
            };
            headers.extend(CALL_HEADERS.map(header));
        }
        fields.insert("headers".into(), headers.into());
    }
    fields.into()
}

/// Whether the operation changes tables that every gateway has in memory.
fn may_be_unconfirmed(operation: &Operation) -> bool {
    const FOLLOWED: [&str; 7] = [
        "/v1/auth/",
        "/v1/apikeys",
        "/v1/users",
        "/v1/nodes",
        "/v1/agents",
        "/v1/api-keys",
        "/v1/router/keys",
    ];
    let route = &operation.route;
    route.method != "GET" && FOLLOWED.iter().any(|path| route.path.starts_with(path))
}

/// Error statuses in order. Every operation may have those of reading a limited body.
fn refusals(operation: &Operation) -> Vec<u16> {
    let route = &operation.route;
    let mut statuses = vec![400, 405, 408, 413, 415, 421, 431, 500, 503];
    if !route.policy.is_open() {
        statuses.push(401);
    }
    if matches!(route.policy, Policy::Scope(_) | Policy::Admin) || route.method != "GET" {
        statuses.push(403);
    }
    statuses.extend(operation.refuses);
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn refusal_schema(surface: Surface, operation: &Operation, status: u16) -> SchemaOf {
    match (surface, status) {
        (_, 429 | 502 | 503) if operation.id == "reroute" => schema::of::<RerouteError>,
        (_, 503) if operation.id == "health" => schema::of::<Health>,
        (Surface::Agent, 401) => schema::of::<AgentUnauthorized>,
        (Surface::Agent, _) => schema::of::<AgentError>,
        (Surface::DataPlane, 401 | 403) => schema::of::<OpenAIError>,
        // A provider's refusal passes through.
        (Surface::DataPlane, _) if operation.takes.is_some() => {
            schema::of::<OrProvider<OpenAIError>>
        }
        (Surface::DataPlane, _) => schema::of::<OpenAIError>,
        (Surface::Messages, 401 | 403) => schema::of::<AnthropicError>,
        (Surface::Messages, _) => schema::of::<OrProvider<AnthropicError>>,
        (_, 401) => schema::of::<Unauthorized>,
        _ => schema::of::<ManagementError>,
    }
}

fn reason(status: u16) -> &'static str {
    StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Answer")
}

fn json_of(schema: Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}
