//! The OpenAPI 3.1 document: the route table, with one line here for each of its rows. Tests fail
//! for a row without a line, a line without a row, and an answer that the document does not
//! describe.

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

/// One operation, beyond its row in the route table.
struct Operation {
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    /// Schema of the request's body.
    takes: Option<&'static str>,
    /// Success: status, and the schema of the body if there is one.
    gives: (u16, Option<&'static str>),
    /// Error statuses beside those of every operation of the surface.
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
    op("GET", "/health", "health", "Health of the gateway").gives(200, "Health").refuses(&[503]),
    op("GET", "/version", "version", "Name and version").gives(200, "Version"),
    op("GET", "/openapi.json", "openapi", "This document").gives(200, "OpenApi"),
    op("POST", "/v1/auth/register", "register", "Register an account").takes("Registration").gives(201, "Registered").refuses(&[403, 409, 429]),
    op("POST", "/v1/auth/login", "login", "Log in: a session cookie, and a token for programs").takes("Login").gives(200, "LoggedIn").refuses(&[401, 429]),
    op("GET", "/v1/auth/me", "me", "The caller").gives(200, "User"),
    op("POST", "/v1/auth/logout", "logout", "End the session with its cookie and its token").gives_nothing(),
    op("POST", "/v1/auth/password", "changePassword", "Change the password and end all other sessions of the user").takes("PasswordChange").gives_nothing().refuses(&[409, 429]),
    op("POST", "/v1/apikeys", "createPinKey", "Create a key; only this answer shows its secret").takes("NewKey").gives(201, "KeyWithSecret").refuses(&[409, 429]),
    op("GET", "/v1/apikeys", "listPinKeys", "List keys").gives(200, "KeyList").query(KEY_PAGE),
    op("GET", "/v1/apikeys/{id}", "getPinKey", "Get a key").gives(200, "Key").refuses(&[404]),
    op("PATCH", "/v1/apikeys/{id}", "patchPinKey", "Change a key by a merge patch (RFC 7396). Limits and labels: an admin or the key that created it").takes("KeyPatch").gives(200, "Key").refuses(&[404, 409]),
    op("DELETE", "/v1/apikeys/{id}", "revokePinKey", "Revoke a key, with `descendants` also its descendants; effective on return").gives_nothing().refuses(&[404]).query(&["descendants"]),
    op("POST", "/v1/apikeys/{id}/rotate", "rotatePinKey", "Rotate the secret of a key; the old one ends now or after a grace period").takes("Rotation").gives(200, "KeyWithSecret").refuses(&[404, 409]),
    op("POST", "/v1/users", "createUser", "Create a user or an admin").takes("NewUser").gives(201, "UserRecord").refuses(&[409]),
    op("GET", "/v1/users", "listUsers", "List users, newest first").gives(200, "UserList").query(PAGE),
    op("GET", "/v1/users/{id}", "getUser", "Get a user").gives(200, "UserRecord").refuses(&[404]),
    op("PATCH", "/v1/users/{id}", "updateUser", "Change a user by a merge patch (RFC 7396). Disabling ends the sessions at once and suspends the keys. Only `ADMIN_API_KEY` may disable or demote the last admin").takes("UserPatch").gives(200, "UserRecord").refuses(&[404, 409]),
    op("GET", "/v1/audit", "listAudit", "List audit rows, newest first. Rows of capture reads and deletions are written before the act").gives(200, "AuditList").query(audit::PARAMETERS),
    op("POST", "/v1/nodes", "createNode", "Enrol a node; only this answer shows its secret").takes("NewNode").gives(201, "NodeWithSecret").refuses(&[409]),
    op("GET", "/v1/nodes", "listNodes", "List nodes").gives(200, "NodeList").query(PAGE),
    op("GET", "/v1/nodes/{id}", "getNode", "Get a node and its state").gives(200, "Node").refuses(&[404]),
    op("DELETE", "/v1/nodes/{id}", "deleteNode", "Delete a node; it gets no further requests").gives_nothing().refuses(&[404]),
    op("POST", "/v1/nodes/{id}/rotate", "rotateNode", "Rotate the secret of a node; the old one ends at the first use of the new one, or after ten minutes").gives(200, "NodeWithSecret").refuses(&[404, 409]),
    op("POST", "/v1/agent/register", "registerNode", "Register a node: its endpoint and models").takes("NodeRegistration").gives(200, "NodeRegistered").refuses(&[404, 409, 429]),
    op("POST", "/v1/agent/heartbeat", "nodeHeartbeat", "Report the state of a node and renew its lease").takes("NodeHeartbeat").gives(200, "NodeLease").refuses(&[404, 409, 429]),
    op("POST", "/v1/agent/events", "nodeEvents", "Write events of a node to the gateway's log, each id once").takes("NodeEvents").gives(202, "NodeEventsTaken").refuses(&[404, 429]),
    op("POST", "/v1/agent/deregister", "deregisterNode", "Deregister a node").takes("NodeLeaving").gives_nothing().refuses(&[404, 409, 429]),
    op("POST", "/v1/agents", "createAgent", "Create an agent").takes("NewAgent").gives(201, "Agent").refuses(&[409]),
    op("GET", "/v1/agents", "listAgents", "List agents").gives(200, "AgentList").query(PAGE),
    op("GET", "/v1/agents/{id}", "getAgent", "Get an agent by id or name; 304 if `If-None-Match` matches").gives(200, "Agent").refuses(&[404]),
    op("PATCH", "/v1/agents/{id}", "changeAgent", "Change an agent, by id or name, by a merge patch (RFC 7396); honours `If-Match`").takes("AgentPatch").gives(200, "Agent").refuses(&[404, 409, 412]),
    op("DELETE", "/v1/agents/{id}", "deleteAgent", "Delete an agent, by id or name; honours `If-Match`").gives_nothing().refuses(&[404, 412]),
    op("POST", "/v1/api-keys", "createAgentKey", "Create a key; only this answer shows its secret").takes("NewKey").gives(201, "KeyWithSecret").refuses(&[409, 429]),
    op("GET", "/v1/api-keys", "listAgentKeys", "List keys").gives(200, "KeyList").query(KEY_PAGE),
    op("GET", "/v1/api-keys/{id}", "getAgentKey", "Get a key").gives(200, "Key").refuses(&[404]),
    op("PATCH", "/v1/api-keys/{id}", "patchAgentKey", "Change a key by a merge patch (RFC 7396). Limits and labels: an admin or the key that created it").takes("KeyPatch").gives(200, "Key").refuses(&[404, 409]),
    op("DELETE", "/v1/api-keys/{id}", "revokeAgentKey", "Revoke a key, with `descendants` also its descendants; effective on return").gives_nothing().refuses(&[404]).query(&["descendants"]),
    op("POST", "/v1/api-keys/{id}/rotate", "rotateAgentKey", "Rotate the secret of a key; the old one ends now or after a grace period").takes("Rotation").gives(200, "KeyWithSecret").refuses(&[404, 409]),
    op("POST", "/v1/router/keys", "createRouterKey", "Create a key; only this answer shows its secret").takes("NewKey").gives(201, "KeyWithSecret").refuses(&[409, 429]),
    op("GET", "/v1/router/keys", "listRouterKeys", "List keys").gives(200, "KeyList").query(KEY_PAGE),
    op("GET", "/v1/router/keys/{id}", "getRouterKey", "Get a key").gives(200, "Key").refuses(&[404]),
    op("PATCH", "/v1/router/keys/{id}", "patchRouterKey", "Change a key by a merge patch (RFC 7396). Limits and labels: an admin or the key that created it").takes("KeyPatch").gives(200, "Key").refuses(&[404, 409]),
    op("DELETE", "/v1/router/keys/{id}", "revokeRouterKey", "Revoke a key, with `descendants` also its descendants; effective on return").gives_nothing().refuses(&[404]).query(&["descendants"]),
    op("POST", "/v1/router/keys/{id}/rotate", "rotateRouterKey", "Rotate the secret of a key; the old one ends now or after a grace period").takes("Rotation").gives(200, "KeyWithSecret").refuses(&[404, 409]),
    op("GET", "/v1/router/replay", "listReplays", "List captures, newest first. With a rare filter a page may be short or empty although more follow: continue at `next` while `has_more`").gives(200, "ReplayList").query(replays::PARAMETERS),
    op("GET", "/v1/router/replay/{id}", "getReplay", "Get a whole capture").gives(200, "Capture").refuses(&[404]),
    op("POST", "/v1/router/replay/{id}/reroute", "reroute", "Run a captured request again under the live document").gives(200, "Reroute").refuses(&[404, 409, 429, 502]).query(&["dry_run"]),
    op("DELETE", "/v1/router/replay/{id}", "deleteReplay", "Delete a capture; unreadable on return").gives_nothing().refuses(&[404]).query(&["replays"]),
    op("GET", "/v1/router/replay/{id}/compare/{other}", "compareReplays", "Compare two captures field by field").gives(200, "Comparison").refuses(&[404]),
    op("POST", "/v1/router/replay/evaluate", "evaluate", "Evaluate a document on captured traffic without calling providers. `application/x-ndjson` streams progress").takes("Evaluate").gives(200, "Evaluation").refuses(&[429]),
    op("POST", "/v1/router/replay/import", "importReplays", "Import exported captures, one per line; known ids are left unchanged").takes("Capture").gives(200, "Import").refuses(&[409, 429]).query(&["owner"]),
    op("GET", "/v1/router/usage", "usage", "Usage summed by day: the caller's, for admins everybody's").gives(200, "UsageList").query(usage::PARAMETERS),
    op("POST", "/v1/router/decide", "decide", "Decide a request without sending it; nothing is captured").takes("InferenceRequest").gives(200, "Decision").refuses(&[404, 429]).query(decide::PARAMETERS),
    op("GET", "/v1/router/providers", "listProviders", "State of the live document's providers in this process; `nodes` is listed if the document has targets on nodes").gives(200, "ProviderList").query(PAGE),
    op("GET", "/v1/router/config", "getConfig", "Get the live routing document; as YAML with `Accept: application/yaml`").gives(200, "Config"),
    op("PUT", "/v1/router/config", "putConfig", "Replace the routing document; live on return. `If-Match` names the revision it replaces").takes("RoutingDocument").gives(200, "ConfigTaken").refuses(&[409, 412, 429]).query(Gate::PARAMETERS),
    op("POST", "/v1/router/config/validate", "validateConfig", "Report every problem of a routing document; changes nothing").takes("RoutingDocument").gives(200, "Validation"),
    op("GET", "/v1/router/config/revisions", "listRevisions", "List the routing documents that were live, newest first").gives(200, "RevisionList").query(PAGE),
    op("POST", "/v1/router/config/rollback", "rollbackConfig", "Make an earlier routing document live again").takes("Rollback").gives(200, "ConfigTaken").refuses(&[404, 409, 412]),
    op("GET", "/v1/models", "listModels", "List the models that the key may request; in Anthropic's shape with `anthropic-version`").gives(200, "ModelList").query(&["limit", "after_id", "before_id"]),
    op("GET", "/v1/models/{id...}", "getModel", "Get a model; slashes as they are or as %2F").gives(200, "Model").refuses(&[404]),
    op("POST", "/v1/chat/completions", "createChatCompletion", "Chat completion, JSON or a stream of events").takes("ChatRequest").gives(200, "ChatCompletion").refuses(&[404, 429, 502]),
    op("POST", "/v1/embeddings", "createEmbeddings", "Embeddings").takes("EmbeddingsRequest").gives(200, "Embeddings").refuses(&[404, 429, 502]),
    op("POST", "/v1/responses", "createResponse", "Response, JSON or a stream of events").takes("ResponseRequest").gives(200, "Response").refuses(&[404, 429, 502]),
    op("POST", "/v1/messages", "createMessage", "Message in Anthropic's API, JSON or a stream of events").takes("MessageRequest").gives(200, "Message").refuses(&[404, 429, 502]),
    op("POST", "/v1/messages/count_tokens", "countTokens", "Count the tokens of a message, in Anthropic's API").takes("CountRequest").gives(200, "TokenCount").refuses(&[404, 429, 502]),
];

/// Headers of answers to inference calls.
const CALL_HEADERS: [(&str, &str); 8] = [
    ("x-request-id", "Id of the request and of its capture"),
    ("x-rerouter-provider", "The provider that answered"),
    ("x-rerouter-model", "The model that answered"),
    ("x-rerouter-recipe", "Recipe of the decision; `direct` if `provider/model` was requested"),
    ("x-rerouter-rule", "Rule of the recipe; absent if none"),
    ("x-rerouter-revision", "Revision of the routing document"),
    ("x-rerouter-attempts", "Number of attempts"),
    ("x-rerouter-upstream-request-id", "The provider's request id, if any"),
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
        .map(|name| (name.trim_end_matches("..."), words::of_path(operation.path, name)))
        .map(|(name, says)| json!({ "name": name, "in": "path", "required": true, "description": says, "schema": { "type": "string", "minLength": 1 } }));
    let of_query = operation.query.iter().map(|name| {
        let mut schema = match *name {
            "limit" if operation.id == "listModels" => {
                let says = "Only with `anthropic-version`, as `after_id` and `before_id`; otherwise the list is complete";
                json!({ "type": "integer", "minimum": 1, "maximum": crate::bounds::MODELS_PAGE, "description": says })
            }
            "limit" => {
                json!({ "type": "integer", "minimum": 1, "maximum": crate::bounds::PAGE_MAX, "default": crate::bounds::PAGE_DEFAULT })
            }
            "endpoint" => {
                json!({ "enum": Endpoint::ALL.map(Endpoint::as_str), "default": Endpoint::ChatCompletions.as_str(), "description": "Endpoint of the request in the body" })
            }
            "action" => {
                let meanings: Vec<String> = Action::ALL.iter().map(|action| format!("`{}`: {}", action.as_str(), action.meaning())).collect();
                let words: Vec<&str> = Action::ALL.iter().map(|action| action.as_str()).collect();
                json!({ "type": "string", "enum": words, "description": meanings.join(" ") })
            }
            "since" | "until" if operation.id == "usage" => {
                let says = "A day in UTC, as `2026-11-21` or `2026-11-21T00:00:00Z`; a time within a day is 400, as usage is \
                            summed by day";
                json!({ "type": "string", "description": says })
            }
            "since" | "until" => json!({ "type": "string", "format": "date-time" }),
            "shadow" => {
                let says = "Only shadows; by default the list leaves them out, unless `shadow_of` is given";
                json!({ "type": "boolean", "default": false, "description": says })
            }
            "max_changed" => {
                let says = "Evaluates the change on the captures of the last 24 hours first: at most this share may get another \
                            target. A percentage like `2%` or a fraction like `0.02`";
                let (fraction, percentage) = (json!({ "type": "number", "minimum": 0, "maximum": 1 }), json!({ "pattern": "^[0-9.]+%$" }));
                json!({ "anyOf": [fraction, percentage], "description": says })
            }
            "forbid_unroutable" | "allow_empty" | "dry_run" | "replays" | "descendants" => json!({ "type": "boolean" }),
            _ => json!({ "type": "string" }),
        };
        // The description belongs to the parameter.
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
    // Calls that draw on limits report what is left of them.
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
    // Bodies are read and bounded for every operation.
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
            // A provider's refusal passes through.
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
        // A provider's refusals pass through.
        responses
            .insert("4XX".into(), json!({ "description": "The provider's answer, unchanged" }));
        responses.insert(
            "5XX".into(),
            json!({ "description": "The last provider's answer, unchanged" }),
        );
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
        assert_eq!(ids.len(), OPERATIONS.len(), "duplicate operation id");
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
