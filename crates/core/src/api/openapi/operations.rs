//! The operations of the route table; those on keys stand once for all three interfaces.

use crate::api::gate::Gate;
use crate::api::{audit, decide, keys, replays, usage};

/// One operation, beyond its row in the route table.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Schema of the request body.
    pub(super) takes: Option<&'static str>,
    /// Status and schema of a success.
    pub(super) gives: (u16, Option<&'static str>),
    /// Error statuses beside those of every operation of the surface.
    pub(super) refuses: &'static [u16],
    pub(super) query: &'static [&'static str],
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
const KEY_PAGE: &[&str] = keys::PARAMETERS;

/// The operations on keys, which each interface has.
#[rustfmt::skip]
macro_rules! keys {
    ($path:literal, $name:literal) => {
        &[
            op("POST", $path, concat!("create", $name, "Key"),
                "Create a key; only this answer shows its secret")
                .takes("NewKey").gives(201, "KeyWithSecret").refuses(&[409, 429]),
            op("GET", $path, concat!("list", $name, "Keys"), "List keys")
                .gives(200, "KeyList").query(KEY_PAGE),
            op("GET", concat!($path, "/{id}"), concat!("get", $name, "Key"), "Get a key")
                .gives(200, "Key").refuses(&[404]),
            op("PATCH", concat!($path, "/{id}"), concat!("patch", $name, "Key"),
                "Change a key by a merge patch (RFC 7396). Limits and labels: an admin or the key \
                 that created it")
                .takes("KeyPatch").gives(200, "Key").refuses(&[404, 409]),
            op("DELETE", concat!($path, "/{id}"), concat!("revoke", $name, "Key"),
                "Revoke a key, with `descendants` also its descendants; effective on return")
                .gives_nothing().refuses(&[404]).query(&["descendants"]),
            op("POST", concat!($path, "/{id}/rotate"), concat!("rotate", $name, "Key"),
                "Rotate the secret of a key; the old one ends now or after a grace period")
                .takes("Rotation").gives(200, "KeyWithSecret").refuses(&[404, 409]),
        ]
    };
}

pub(super) static OPERATIONS: [&[Operation]; 4] = [
    keys!("/v1/apikeys", "Pin"),
    keys!("/v1/api-keys", "Agent"),
    keys!("/v1/router/keys", "Router"),
    OTHERS,
];

#[rustfmt::skip]
const OTHERS: &[Operation] = &[
    op("GET", "/health", "health", "Health of the gateway").gives(200, "Health").refuses(&[503]),
    op("GET", "/version", "version", "Name and version").gives(200, "Version"),
    op("GET", "/openapi.json", "openapi", "This document").gives(200, "OpenApi"),
    op("POST", "/v1/auth/register", "register", "Register an account")
        .takes("Registration").gives(201, "Registered").refuses(&[403, 409, 429]),
    op("POST", "/v1/auth/login", "login", "Log in: a session cookie, and a token for programs")
        .takes("Login").gives(200, "LoggedIn").refuses(&[401, 429]),
    op("GET", "/v1/auth/me", "me", "The caller").gives(200, "User"),
    op("POST", "/v1/auth/logout", "logout", "End the session with its cookie and its token")
        .gives_nothing(),
    op("POST", "/v1/auth/password", "changePassword",
        "Change the password and end all other sessions of the user")
        .takes("PasswordChange").gives_nothing().refuses(&[409, 429]),
    op("POST", "/v1/users", "createUser", "Create a user or an admin")
        .takes("NewUser").gives(201, "UserRecord").refuses(&[409]),
    op("GET", "/v1/users", "listUsers", "List users, newest first")
        .gives(200, "UserList").query(PAGE),
    op("GET", "/v1/users/{id}", "getUser", "Get a user").gives(200, "UserRecord").refuses(&[404]),
    op("PATCH", "/v1/users/{id}", "updateUser",
        "Change a user by a merge patch (RFC 7396). Disabling ends the sessions at once and \
         suspends the keys. A new `password` ends the sessions. Only `ADMIN_API_KEY` may disable \
         or demote the last admin, or set the password of an admin")
        .takes("UserPatch").gives(200, "UserRecord").refuses(&[404, 409]),
    op("DELETE", "/v1/users/{id}", "deleteUser",
        "Delete a user: keys and sessions end, all captures are deleted, usage and audit keep the \
         id. A repeated call goes on where one broke off. Only `ADMIN_API_KEY` may delete the last \
         admin")
        .gives_nothing().refuses(&[404, 409]),
    op("GET", "/v1/audit", "listAudit",
        "List audit rows, newest first. Rows of capture reads and deletions are written before the \
         act")
        .gives(200, "AuditList").query(audit::PARAMETERS),
    op("GET", "/v1/gateways", "listGateways",
        "List the gateways that share the store, the newest registration first; none with SQLite")
        .gives(200, "GatewayList"),
    op("DELETE", "/v1/gateways/{id}", "forgetGateway",
        "Take a dead gateway off the list that had `on_lease_lost: serve_stale`")
        .gives_nothing().refuses(&[404, 409]),
    op("POST", "/v1/nodes", "createNode", "Enrol a node; only this answer shows its secret")
        .takes("NewNode").gives(201, "NodeWithSecret").refuses(&[409]),
    op("GET", "/v1/nodes", "listNodes", "List nodes").gives(200, "NodeList").query(PAGE),
    op("GET", "/v1/nodes/{id}", "getNode", "Get a node and its state")
        .gives(200, "Node").refuses(&[404]),
    op("DELETE", "/v1/nodes/{id}", "deleteNode", "Delete a node; it gets no further requests")
        .gives_nothing().refuses(&[404]),
    op("POST", "/v1/nodes/{id}/rotate", "rotateNode",
        "Rotate the secret of a node; the old one ends at the first use of the new one, or after \
         ten minutes")
        .gives(200, "NodeWithSecret").refuses(&[404, 409]),
    op("POST", "/v1/agent/register", "registerNode", "Register a node: its endpoint and models")
        .takes("NodeRegistration").gives(200, "NodeRegistered").refuses(&[404, 409, 429]),
    op("POST", "/v1/agent/heartbeat", "nodeHeartbeat",
        "Report the state of a node and renew its lease")
        .takes("NodeHeartbeat").gives(200, "NodeLease").refuses(&[404, 409, 429]),
    op("POST", "/v1/agent/events", "nodeEvents",
        "Write events of a node to the gateway's log, each id once")
        .takes("NodeEvents").gives(202, "NodeEventsTaken").refuses(&[404, 429]),
    op("POST", "/v1/agent/deregister", "deregisterNode", "Deregister a node")
        .takes("NodeLeaving").gives_nothing().refuses(&[404, 409, 429]),
    op("POST", "/v1/agents", "createAgent", "Create an agent")
        .takes("NewAgent").gives(201, "Agent").refuses(&[409]),
    op("GET", "/v1/agents", "listAgents", "List agents").gives(200, "AgentList").query(PAGE),
    op("GET", "/v1/agents/{id}", "getAgent",
        "Get an agent by id or name; 304 if `If-None-Match` matches")
        .gives(200, "Agent").refuses(&[404]),
    op("PATCH", "/v1/agents/{id}", "changeAgent",
        "Change an agent, by id or name, by a merge patch (RFC 7396); honours `If-Match`")
        .takes("AgentPatch").gives(200, "Agent").refuses(&[404, 409, 412]),
    op("DELETE", "/v1/agents/{id}", "deleteAgent",
        "Delete an agent, by id or name; honours `If-Match`")
        .gives_nothing().refuses(&[404, 412]),
    op("GET", "/v1/router/replay", "listReplays",
        "List captures in the caller's reach, newest first. With a rare filter a page may be short \
         or empty although more follow: continue at `next` while `has_more`")
        .gives(200, "ReplayList").query(replays::PARAMETERS),
    op("DELETE", "/v1/router/replay", "eraseReplays",
        "Delete all captures that match all parameters given, of which one is needed; unreadable \
         on return. A repeated call goes on where one broke off")
        .gives(200, "Erased").refuses(&[429]).query(replays::ERASED_BY),
    op("GET", "/v1/router/replay/{id}", "getReplay", "Get a whole capture")
        .gives(200, "Capture").refuses(&[404, 409]).query(&["with"]),
    op("POST", "/v1/router/replay/{id}/reroute", "reroute",
        "Run a captured request again under the live document")
        .gives(200, "Reroute").refuses(&[404, 409, 429, 502]).query(&["dry_run"]),
    op("DELETE", "/v1/router/replay/{id}", "deleteReplay", "Delete a capture; unreadable on return")
        .gives_nothing().refuses(&[404]).query(&["replays"]),
    op("GET", "/v1/router/replay/{id}/compare/{other}", "compareReplays",
        "Compare two captures field by field")
        .gives(200, "Comparison").refuses(&[404, 409]),
    op("POST", "/v1/router/replay/evaluate", "evaluate",
        "Evaluate a document on captured traffic without calling providers. `application/x-ndjson` \
         streams progress")
        .takes("Evaluate").gives(200, "Evaluation").refuses(&[429]),
    op("POST", "/v1/router/replay/import", "importReplays",
        "Import exported captures, one per line; known ids are left unchanged")
        .takes("Capture").gives(200, "Import").refuses(&[409, 429]).query(&["owner"]),
    op("GET", "/v1/router/usage", "usage",
        "Usage by time, as far as the caller reaches")
        .gives(200, "UsageList").query(usage::PARAMETERS),
    op("POST", "/v1/router/decide", "decide",
        "Decide a request without sending it; nothing is captured")
        .takes("InferenceRequest").gives(200, "Decision").refuses(&[404, 429])
        .query(decide::PARAMETERS),
    op("GET", "/v1/router/providers", "listProviders",
        "State of the live document's providers in this process; `nodes` is listed if the document \
         has targets on nodes")
        .gives(200, "ProviderList").query(PAGE),
    op("GET", "/v1/router/status", "status",
        "State of this process: document, capture queue, disk, certificates")
        .gives(200, "GatewayStatus"),
    op("GET", "/v1/router/config", "getConfig",
        "Get the live routing document; as YAML with `Accept: application/yaml`")
        .gives(200, "Config"),
    op("PUT", "/v1/router/config", "putConfig",
        "Replace the routing document; live on return. `If-Match` names the revision it replaces")
        .takes("RoutingDocument").gives(200, "ConfigTaken").refuses(&[409, 412, 429])
        .query(Gate::PARAMETERS),
    op("POST", "/v1/router/config/validate", "validateConfig",
        "Report every problem of a routing document; changes nothing")
        .takes("RoutingDocument").gives(200, "Validation"),
    op("GET", "/v1/router/config/revisions", "listRevisions",
        "List the routing documents that were live, newest first")
        .gives(200, "RevisionList").query(PAGE),
    op("GET", "/v1/router/config/revisions/{revision}", "getRevision",
        "Get a routing document that was live")
        .gives(200, "Revision").refuses(&[404]),
    op("POST", "/v1/router/config/rollback", "rollbackConfig",
        "Make an earlier routing document live again")
        .takes("Rollback").gives(200, "ConfigTaken").refuses(&[404, 409, 412]),
    op("GET", "/v1/models", "listModels",
        "List the models that the key may request; in Anthropic's shape with `anthropic-version`")
        .gives(200, "ModelList").query(&["limit", "after_id", "before_id"]),
    op("GET", "/v1/models/{id...}", "getModel", "Get a model; slashes as they are or as %2F")
        .gives(200, "Model").refuses(&[404]),
    op("POST", "/v1/chat/completions", "createChatCompletion",
        "Chat completion, JSON or a stream of events")
        .takes("ChatRequest").gives(200, "ChatCompletion").refuses(&[404, 429, 502]),
    op("POST", "/v1/embeddings", "createEmbeddings", "Embeddings")
        .takes("EmbeddingsRequest").gives(200, "Embeddings").refuses(&[404, 429, 502]),
    op("POST", "/v1/responses", "createResponse", "Response, JSON or a stream of events")
        .takes("ResponseRequest").gives(200, "Response").refuses(&[404, 429, 502]),
    op("POST", "/v1/messages", "createMessage",
        "Message in Anthropic's API, JSON or a stream of events")
        .takes("MessageRequest").gives(200, "Message").refuses(&[404, 429, 502]),
    op("POST", "/v1/messages/count_tokens", "countTokens",
        "Count the tokens of a message, in Anthropic's API")
        .takes("CountRequest").gives(200, "TokenCount").refuses(&[404, 429, 502]),
];
