//! The OpenAPI 3.1 document, made from the route table and one line for each of its rows. A row without a line, or a
//! line without a row, fails a test; so does an answer of the test suite that is not in the document.

mod words;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::gate::Gate;
use super::{Policy, ROUTES, Route, answer, audit, decide, replays, usage};
use crate::app::App;
use crate::auth::Principal;
use crate::error::Result;
use crate::interface::Surface;
use crate::protocol::endpoint::Endpoint;
use crate::store::Action;

/// What the document says of one operation beyond the route table.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// Schema of the request's body.
    takes: Option<&'static str>,
    /// Success: status, and the schema of the body if there is one.
    gives: (u16, Option<&'static str>),
    /// Refusals beside those that every operation of the surface has.
    refuses: &'static [u16],
    /// Query parameters.
    query: &'static [&'static str],
}

const fn op(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> Operation {
    Operation {
        method,
        path,
        id,
        summary,
        takes: None,
        gives: (200, None),
        refuses: &[],
        query: &[],
    }
}

impl Operation {
    const fn takes(mut self, schema: &'static str) -> Self {
        self.takes = Some(schema);
        self
    }

    const fn gives(mut self, status: u16, schema: &'static str) -> Self {
        self.gives = (status, Some(schema));
        self
    }

    const fn gives_nothing(mut self) -> Self {
        self.gives = (204, None);
        self
    }

    const fn refuses(mut self, statuses: &'static [u16]) -> Self {
        self.refuses = statuses;
        self
    }

    const fn query(mut self, names: &'static [&'static str]) -> Self {
        self.query = names;
        self
    }
}

const PAGE: &[&str] = &["limit", "after"];
const KEY_PAGE: &[&str] = &["limit", "after", "status", "owner"];
#[rustfmt::skip]
static OPERATIONS: &[Operation] = &[
    op("GET", "/health", "health", "Whether the gateway serves").gives(200, "Health").refuses(&[503]),
    op("GET", "/version", "version", "Name and version").gives(200, "Version"),
    op("GET", "/openapi.json", "openapi", "This document").gives(200, "OpenApi"),
    op("POST", "/v1/auth/register", "register", "Register an account").takes("Registration").gives(201, "Registered").refuses(&[403, 409, 429]),
    op("POST", "/v1/auth/login", "login", "Begin a session: a cookie, and a token for programs").takes("Login").gives(200, "LoggedIn").refuses(&[401, 429]),
    op("GET", "/v1/auth/me", "me", "Who the request is").gives(200, "User"),
    op("POST", "/v1/auth/logout", "logout", "End the session, its cookie and its token").gives_nothing(),
    op("POST", "/v1/auth/password", "changePassword", "Change the password; every other session of the user ends").takes("PasswordChange").gives_nothing().refuses(&[409, 429]),
    op("POST", "/v1/apikeys", "createPinKey", "Make a key; its secret is in this answer only").takes("NewKey").gives(201, "KeyWithSecret").refuses(&[409, 429]),
    op("GET", "/v1/apikeys", "listPinKeys", "List keys").gives(200, "KeyList").query(KEY_PAGE),
    op("GET", "/v1/apikeys/{id}", "getPinKey", "One key").gives(200, "Key").refuses(&[404]),
    op("PATCH", "/v1/apikeys/{id}", "patchPinKey", "Change a key: a merge patch (RFC 7396) of name, metadata, status, expires_at; of limits and labels by an admin or the key that made it; its user narrows the limits of what no key made").takes("KeyPatch").gives(200, "Key").refuses(&[404, 409]),
    op("DELETE", "/v1/apikeys/{id}", "revokePinKey", "Revoke a key, and with `descendants` all that descend from it: dead when this returns").gives_nothing().refuses(&[404]).query(&["descendants"]),
    op("POST", "/v1/apikeys/{id}/rotate", "rotatePinKey", "Another secret for a key; the old one ends now or after a grace").takes("Rotation").gives(200, "KeyWithSecret").refuses(&[404, 409]),
    op("POST", "/v1/users", "createUser", "Make a user, an admin too").takes("NewUser").gives(201, "UserRecord").refuses(&[409]),
    op("GET", "/v1/users", "listUsers", "List users, the newest first").gives(200, "UserList").query(PAGE),
    op("GET", "/v1/users/{id}", "getUser", "One user").gives(200, "UserRecord").refuses(&[404]),
    op("PATCH", "/v1/users/{id}", "updateUser", "A merge patch (RFC 7396) of a user. Who is disabled is out at once: sessions end, keys are refused until the user is enabled again. The last admin is not disabled or demoted but by `ADMIN_API_KEY`").takes("UserPatch").gives(200, "UserRecord").refuses(&[404, 409]),
    op("GET", "/v1/audit", "listAudit", "Who did what to what, the last first; of deletions and reads of captures the row comes before they happen").gives(200, "AuditList").query(audit::PARAMETERS),
    op("POST", "/v1/nodes", "createNode", "Enrol a node; its secret is in this answer only").takes("NewNode").gives(201, "NodeWithSecret").refuses(&[409]),
    op("GET", "/v1/nodes", "listNodes", "List nodes").gives(200, "NodeList").query(PAGE),
    op("GET", "/v1/nodes/{id}", "getNode", "One node, and how it stands").gives(200, "Node").refuses(&[404]),
    op("DELETE", "/v1/nodes/{id}", "deleteNode", "Delete a node: it is given nothing more when this returns").gives_nothing().refuses(&[404]),
    op("POST", "/v1/nodes/{id}/rotate", "rotateNode", "The secret of the next generation; the one before ends with its first use, or ten minutes later").gives(200, "NodeWithSecret").refuses(&[404, 409]),
    op("POST", "/v1/agent/register", "registerNode", "A node says where it is and what it serves").takes("NodeRegistration").gives(200, "NodeRegistered").refuses(&[404, 409, 429]),
    op("POST", "/v1/agent/heartbeat", "nodeHeartbeat", "A node says how it is; its lease begins anew").takes("NodeHeartbeat").gives(200, "NodeLease").refuses(&[404, 409, 429]),
    op("POST", "/v1/agent/events", "nodeEvents", "What happened at a node, each id once, into the gateway's log").takes("NodeEvents").gives(202, "NodeEventsTaken").refuses(&[404, 429]),
    op("POST", "/v1/agent/deregister", "deregisterNode", "A node leaves").takes("NodeLeaving").gives_nothing().refuses(&[404, 409, 429]),
    op("POST", "/v1/agents", "createAgent", "Make an agent").takes("NewAgent").gives(201, "Agent").refuses(&[409]),
    op("GET", "/v1/agents", "listAgents", "List agents").gives(200, "AgentList").query(PAGE),
    op("GET", "/v1/agents/{id}", "getAgent", "One agent, by id or name; 304 where `If-None-Match` has its entity tag").gives(200, "Agent").refuses(&[404]),
    op("PATCH", "/v1/agents/{id}", "changeAgent", "Change an agent, by id or name: a merge patch (RFC 7396); `If-Match` holds the entity tag of what it changes").takes("AgentPatch").gives(200, "Agent").refuses(&[404, 409, 412]),
    op("DELETE", "/v1/agents/{id}", "deleteAgent", "Delete an agent, by id or name; `If-Match` holds the entity tag of what it deletes").gives_nothing().refuses(&[404, 412]),
    op("POST", "/v1/api-keys", "createAgentKey", "Make a key; its secret is in this answer only").takes("NewKey").gives(201, "KeyWithSecret").refuses(&[409, 429]),
    op("GET", "/v1/api-keys", "listAgentKeys", "List keys").gives(200, "KeyList").query(KEY_PAGE),
    op("GET", "/v1/api-keys/{id}", "getAgentKey", "One key").gives(200, "Key").refuses(&[404]),
    op("PATCH", "/v1/api-keys/{id}", "patchAgentKey", "Change a key: a merge patch (RFC 7396) of name, metadata, status, expires_at; of limits and labels by an admin or the key that made it; its user narrows the limits of what no key made").takes("KeyPatch").gives(200, "Key").refuses(&[404, 409]),
    op("DELETE", "/v1/api-keys/{id}", "revokeAgentKey", "Revoke a key, and with `descendants` all that descend from it: dead when this returns").gives_nothing().refuses(&[404]).query(&["descendants"]),
    op("POST", "/v1/api-keys/{id}/rotate", "rotateAgentKey", "Another secret for a key; the old one ends now or after a grace").takes("Rotation").gives(200, "KeyWithSecret").refuses(&[404, 409]),
    op("POST", "/v1/router/keys", "createRouterKey", "Make a key; its secret is in this answer only").takes("NewKey").gives(201, "KeyWithSecret").refuses(&[409, 429]),
    op("GET", "/v1/router/keys", "listRouterKeys", "List keys").gives(200, "KeyList").query(KEY_PAGE),
    op("GET", "/v1/router/keys/{id}", "getRouterKey", "One key").gives(200, "Key").refuses(&[404]),
    op("PATCH", "/v1/router/keys/{id}", "patchRouterKey", "Change a key: a merge patch (RFC 7396) of name, metadata, status, expires_at; of limits and labels by an admin or the key that made it; its user narrows the limits of what no key made").takes("KeyPatch").gives(200, "Key").refuses(&[404, 409]),
    op("DELETE", "/v1/router/keys/{id}", "revokeRouterKey", "Revoke a key, and with `descendants` all that descend from it: dead when this returns").gives_nothing().refuses(&[404]).query(&["descendants"]),
    op("POST", "/v1/router/keys/{id}/rotate", "rotateRouterKey", "Another secret for a key; the old one ends now or after a grace").takes("Rotation").gives(200, "KeyWithSecret").refuses(&[404, 409]),
    op("GET", "/v1/router/replay", "listReplays", "List captures, newest first. With a rare filter a page may be short, or empty, although more follow: go on at `next` as long as `has_more`").gives(200, "ReplayList").query(replays::PARAMETERS),
    op("GET", "/v1/router/replay/{id}", "getReplay", "One capture, whole").gives(200, "Capture").refuses(&[404]),
    op("POST", "/v1/router/replay/{id}/reroute", "reroute", "Run a capture again under the current document").gives(200, "Reroute").refuses(&[404, 409, 429, 502]).query(&["dry_run"]),
    op("DELETE", "/v1/router/replay/{id}", "deleteReplay", "Delete a capture: unreadable when this returns").gives_nothing().refuses(&[404]).query(&["replays"]),
    op("GET", "/v1/router/replay/{id}/compare/{other}", "compareReplays", "Two captures, field by field").gives(200, "Comparison").refuses(&[404]),
    op("POST", "/v1/router/replay/evaluate", "evaluate", "What a document would have done to captured traffic; no provider is called. `application/x-ndjson` streams progress").takes("Evaluate").gives(200, "Evaluation").refuses(&[429]),
    op("POST", "/v1/router/replay/import", "importReplays", "Captures as an export has them, one a line, become this gateway's; known ids change nothing").takes("Capture").gives(200, "Import").refuses(&[409, 429]).query(&["owner"]),
    op("GET", "/v1/router/usage", "usage", "What was used, in sums by day; one's own, an admin's everybody's").gives(200, "UsageList").query(usage::PARAMETERS),
    op("POST", "/v1/router/decide", "decide", "Where a request of an endpoint would go now, and why; no provider is called, nothing is captured").takes("InferenceRequest").gives(200, "Decision").refuses(&[404, 429]).query(decide::PARAMETERS),
    op("GET", "/v1/router/providers", "listProviders", "What the live document's providers are doing, as this process sees them; `nodes` is one of them where it has targets on nodes").gives(200, "ProviderList").query(PAGE),
    op("GET", "/v1/router/config", "getConfig", "The live routing document; as YAML with `Accept: application/yaml`").gives(200, "Config"),
    op("PUT", "/v1/router/config", "putConfig", "Another routing document, live when this returns; `If-Match` holds the revision it replaces").takes("RoutingDocument").gives(200, "ConfigTaken").refuses(&[409, 412, 429]).query(Gate::PARAMETERS),
    op("POST", "/v1/router/config/validate", "validateConfig", "Every problem of a routing document; nothing changes").takes("RoutingDocument").gives(200, "Validation"),
    op("GET", "/v1/router/config/revisions", "listRevisions", "The routing documents that were live, the last first").gives(200, "RevisionList").query(PAGE),
    op("POST", "/v1/router/config/rollback", "rollbackConfig", "Make a document that was live live again").takes("Rollback").gives(200, "ConfigTaken").refuses(&[404, 409, 412]),
    op("GET", "/v1/models", "listModels", "The names that the key may ask for; Anthropic's shape with `anthropic-version`").gives(200, "ModelList").query(&["limit", "after_id", "before_id"]),
    op("GET", "/v1/models/{id...}", "getModel", "One name; slashes stand as they are or as %2F").gives(200, "Model").refuses(&[404]),
    op("POST", "/v1/chat/completions", "createChatCompletion", "Chat completion, JSON or a stream of events").takes("ChatRequest").gives(200, "ChatCompletion").refuses(&[404, 429, 502]),
    op("POST", "/v1/embeddings", "createEmbeddings", "Embeddings").takes("EmbeddingsRequest").gives(200, "Embeddings").refuses(&[404, 429, 502]),
    op("POST", "/v1/responses", "createResponse", "Response, JSON or a stream of events").takes("ResponseRequest").gives(200, "Response").refuses(&[404, 429, 502]),
    op("POST", "/v1/messages", "createMessage", "Message in Anthropic's API, JSON or a stream of events").takes("MessageRequest").gives(200, "Message").refuses(&[404, 429, 502]),
    op("POST", "/v1/messages/count_tokens", "countTokens", "Tokens that a message would take, in Anthropic's API").takes("CountRequest").gives(200, "TokenCount").refuses(&[404, 429, 502]),
];

/// Headers of an answer that a provider gave, or should have given.
const CALL_HEADERS: [(&str, &str); 8] = [
    ("x-request-id", "The id of the request, and of its capture"),
    ("x-rerouter-provider", "The provider that answered"),
    ("x-rerouter-model", "The model that answered"),
    (
        "x-rerouter-recipe",
        "The recipe of the decision; `direct` where a model was asked for by its name",
    ),
    ("x-rerouter-rule", "The rule of the recipe; absent where there is none"),
    ("x-rerouter-revision", "The revision of the routing document"),
    ("x-rerouter-attempts", "How many attempts were made"),
    ("x-rerouter-upstream-request-id", "The provider's own id of the request, where it gave one"),
];

/// `GET /openapi.json`
pub async fn get(_: &App, _: &Principal, _: &Request<Bytes>) -> Result<Response<Bytes>> {
    Ok(answer::json(StatusCode::OK, &document()))
}

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let Some(operation) = OPERATIONS.iter().find(|operation| {
            operation.method == route.method.as_str() && operation.path == route.path
        }) else {
            continue;
        };
        let path = route.path.replace("...}", "}");
        let item = paths.entry(path).or_insert_with(|| json!({}));
        if let Value::Object(item) = item {
            item.insert(route.method.as_str().to_ascii_lowercase(), describe(route, operation));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rerouter", "version": env!("CARGO_PKG_VERSION"), "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "An LLM edge gateway: authenticated, captured and replayable at proxy speed.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "headers": words::headers(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "nodeSignature": {
                    "type": "apiKey", "in": "header", "name": "Signature",
                    "description": "HTTP Message Signatures (RFC 9421), `hmac-sha256` with the node's secret, beside `Signature-Input` and `Content-Digest`: \
                        label `sig1`; components `@method`, `@authority`, `@path`, `@query`, `content-digest`; parameters `created`, `nonce`, `keyid`, `alg`, `tag`, in this order.",
                },
                "apiKey": { "type": "apiKey", "in": "header", "name": "x-api-key" },
                "session": { "type": "apiKey", "in": "cookie", "name": "rerouter_session" },
            },
        },
    })
}

fn schemas() -> Value {
    serde_json::from_str(include_str!("schemas.json")).unwrap_or_default()
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
        // Nothing at all stands for an empty object where every field is optional.
        let required =
            !matches!(schema, "NewKey" | "KeyPatch" | "Rotation" | "Evaluate" | "NodeLeaving");
        let mut content = json_of(schema);
        if let (Value::Object(content), "Capture") = (&mut content, schema) {
            let says = "One capture a line.";
            content.insert(
                "application/x-ndjson".into(),
                json!({ "schema": { "type": "string", "description": says } }),
            );
        }
        if let (Value::Object(content), "RoutingDocument") = (&mut content, schema) {
            content.insert("application/yaml".into(), json!({ "schema": { "type": "string" } }));
        }
        if let (Value::Object(content), true) = (&mut content, operation.method == "PATCH") {
            content.extend(json_of(schema).as_object().and_then(|json| {
                Some((super::body::MERGE_PATCH.to_owned(), json.values().next()?.clone()))
            }));
        }
        fields.insert("requestBody".into(), json!({ "required": required, "content": content }));
    }
    described
}

fn tag(surface: Surface) -> &'static str {
    match surface {
        Surface::Pin | Surface::NodeCallback => "PIN",
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
        // Open mode: nothing is needed where AGENT is not enforced.
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
        .map(|name| (name.trim_end_matches("..."), words::of_path(operation.path, name)))
        .map(|(name, says)| json!({ "name": name, "in": "path", "required": true, "description": says, "schema": { "type": "string", "minLength": 1 } }));
    let of_query = operation.query.iter().map(|name| {
        let mut schema = match *name {
            "limit" if operation.id == "listModels" => {
                let says = "Counts with `anthropic-version` only, as `after_id` and `before_id` do; else, and without it, the list is whole";
                json!({ "type": "integer", "minimum": 1, "maximum": crate::bounds::MODELS_PAGE, "description": says })
            }
            "limit" => {
                json!({ "type": "integer", "minimum": 1, "maximum": crate::bounds::PAGE_MAX, "default": crate::bounds::PAGE_DEFAULT })
            }
            "endpoint" => {
                json!({ "enum": Endpoint::ALL.map(Endpoint::as_str), "default": Endpoint::ChatCompletions.as_str(), "description": "What the body is a request of" })
            }
            "action" => {
                let meanings: Vec<String> = Action::ALL.iter().map(|action| format!("`{}`: {}", action.as_str(), action.meaning())).collect();
                let words: Vec<&str> = Action::ALL.iter().map(|action| action.as_str()).collect();
                json!({ "type": "string", "enum": words, "description": meanings.join(" ") })
            }
            "since" | "until" if operation.id == "usage" => {
                let says = "The beginning of a day in UTC, as `2026-11-21` or `2026-11-21T00:00:00Z`: usage is summed by day, so a time \
                            within a day is 400";
                json!({ "type": "string", "description": says })
            }
            "since" | "until" => json!({ "type": "string", "format": "date-time" }),
            "shadow" => {
                let says = "Only shadows; else the list has all but them, unless `shadow_of` asks for one";
                json!({ "type": "boolean", "default": false, "description": says })
            }
            "max_changed" => {
                let says = "The change is first tried on what was captured in the last 24 hours: at most this part of it may go \
                            elsewhere. A percentage like `2%`, or a fraction like `0.02`; anything else is 400";
                let (fraction, percentage) = (json!({ "type": "number", "minimum": 0, "maximum": 1 }), json!({ "pattern": "^[0-9.]+%$" }));
                json!({ "anyOf": [fraction, percentage], "description": says })
            }
            "forbid_unroutable" | "allow_empty" | "dry_run" | "replays" | "descendants" => json!({ "type": "boolean" }),
            _ => json!({ "type": "string" }),
        };
        // What stands with the schema is about the parameter.
        let said = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let says = said.unwrap_or_else(|| words::of_query(operation.id, name).into());
        json!({ "name": name, "in": "query", "required": false, "description": says, "schema": schema })
    });
    of_path.chain(of_query).chain(words::of_headers(operation)).collect()
}

fn json_of(schema: &str) -> Value {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

fn responses(route: &Route, operation: &Operation, surface: Surface) -> Map<String, Value> {
    let mut responses = Map::new();
    let (status, schema) = operation.gives;
    let mut success = json!({ "description": reason(status) });
    if let (Value::Object(success), Some(schema)) = (&mut success, schema) {
        let mut content = json_of(schema);
        if let Value::Object(content) = &mut content {
            match schema {
                "ChatCompletion" | "Response" | "Message" => content
                    .insert("text/event-stream".into(), json!({ "schema": { "type": "string" } })),
                "Evaluation" => content.insert(
                    "application/x-ndjson".into(),
                    json!({ "schema": { "type": "string" } }),
                ),
                "Config" => content
                    .insert("application/yaml".into(), json!({ "schema": { "type": "string" } })),
                _ => None,
            };
        }
        success.insert("content".into(), content);
    }
    // What draws on limits says what is left of them.
    let infers = surface.is_data_plane() && operation.takes.is_some();
    let draws = operation.id == "reroute" || infers;
    if let (Value::Object(success), true) = (&mut success, draws) {
        let mut headers = words::limit_headers();
        if infers {
            let header = |(name, says): (&str, &str)| {
                (name.to_owned(), json!({ "description": says, "schema": { "type": "string" } }))
            };
            headers.extend(CALL_HEADERS.map(header));
        }
        success.insert("headers".into(), headers.into());
    }
    responses.insert(status.to_string(), success);
    if operation.id == "getAgent" {
        responses.insert("304".into(), json!({ "description": reason(304) }));
    }
    let mut refusals = vec![400, 405, 408, 421, 431, 500, 503];
    if !route.policy.is_open() {
        refusals.push(401);
    }
    if matches!(route.policy, Policy::Scope(_) | Policy::Admin) || operation.method != "GET" {
        refusals.push(403);
    }
    // A body that an operation does not ask for is read all the same, and so bounded.
    refusals.extend([413, 415]);
    refusals.extend(operation.refuses);
    refusals.sort_unstable();
    refusals.dedup();
    for status in refusals {
        let schema = match (surface, status) {
            (_, 429 | 502 | 503) if operation.id == "reroute" => "RerouteError",
            (_, 503) if operation.id == "health" => "Health",
            (Surface::Agent, 401) => "AgentUnauthorized",
            (Surface::Agent, _) => "AgentError",
            // A provider's own refusal goes through with its body.
            (Surface::DataPlane, 401 | 403) => "OpenAIError",
            (Surface::DataPlane, _) if operation.takes.is_some() => "OpenAIOrProviderError",
            (Surface::DataPlane, _) => "OpenAIError",
            (Surface::Messages, 401 | 403) => "AnthropicError",
            (Surface::Messages, _) => "AnthropicOrProviderError",
            (_, 401) => "Unauthorized",
            _ => "ManagementError",
        };
        let mut refusal = json!({ "description": reason(status), "content": json_of(schema) });
        if let (Value::Object(refusal), true) = (&mut refusal, draws && status == 429) {
            refusal.insert("headers".into(), words::limit_headers().into());
        }
        responses.insert(status.to_string(), refusal);
    }
    if surface.is_data_plane() && operation.takes.is_some() {
        // A provider's own refusals go through with their body.
        responses.insert("4XX".into(), json!({ "description": "The provider's answer, as it is" }));
        responses
            .insert("5XX".into(), json!({ "description": "The last provider's answer, as it is" }));
    }
    responses
}

fn reason(status: u16) -> &'static str {
    StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_its_line_and_every_line_its_route() {
        let mut routes: Vec<String> =
            ROUTES.iter().map(|route| format!("{} {}", route.method, route.path)).collect();
        let mut lines: Vec<String> = OPERATIONS
            .iter()
            .map(|operation| format!("{} {}", operation.method, operation.path))
            .collect();
        routes.sort();
        lines.sort();
        assert_eq!(routes, lines);
        let mut ids: Vec<&str> = OPERATIONS.iter().map(|operation| operation.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), OPERATIONS.len(), "an operation id stands twice");
    }

    #[test]
    fn every_parameter_says_what_it_is() {
        let document = document();
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
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}
