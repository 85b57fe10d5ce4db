//! The whole API as one table: method, path, who may call, what answers, what it takes and gives,
//! and what the OpenAPI document says of it.

use std::sync::{LazyLock, OnceLock};

use serde_json::Value;

use super::call::{Answer, Call};
use super::gate::Gate;
use super::operation::{Handled, Operation, Parameters, Shape, delete, get, patch, post, put};
use super::route::{ApiRequest, ApiResult, BodyKind, Policy, Responder, Route};
use super::static_file::StaticFile;
use super::{
    agents, audit, decide, evaluate, gateways, import, keys, models, node_callbacks, nodes,
    openapi, pin, providers, replays, routing, status, usage, users,
};
use crate::app::App;
use Policy::{Admin, Any, Open, Registration, Scope, Session};
use Responder::{Inference, Reroute};
use rerouter_access::auth::Principal;
use rerouter_dialect::endpoint::Endpoint::{
    ChatCompletions, CountTokens, Embeddings, Messages, Responses,
};
use rerouter_records::account::{
    LoggedIn, Login, NewAccount, PasswordChange, Registered, User, Version,
};
use rerouter_records::agent::{AgentRecord, NewAgent};
use rerouter_records::audit::{AuditEvent, AuditQuery};
use rerouter_records::evaluation::{NewEvaluation, Rollback};
use rerouter_records::gateway::GatewayRecord;
use rerouter_records::key::{
    KeyPatch, KeyQuery, KeyRecord, KeyWithSecret, NewKey, RevokeQuery, Rotation,
};
use rerouter_records::node::{
    NewNode, NewRegistration, NoBody, NodeEvents, NodeEventsTaken, NodeHeartbeat, NodeLease,
    NodeLeaving, NodeRecord, NodeRegistered, NodeWithSecret,
};
use rerouter_records::page::{Page, PageQuery};
use rerouter_records::patch::MergePatch;
use rerouter_records::schema;
use rerouter_records::status::{GatewayStatus, ProviderStatus};
use rerouter_records::usage::{UsageList, UsageParameters};
use rerouter_records::user::{NewUser, UserPatch, UserRecord};

/// The operations on keys, which each interface has.
#[rustfmt::skip]
macro_rules! keys {
    ($path:literal, $name:literal, $scope:literal) => {
        &[
            post($path, Scope($scope), call!(keys::create, optional NewKey => 201 KeyWithSecret),
                concat!("create", $name, "Key"), "Create a key; only this answer shows its secret")
                .refuses(&[409, 429]),
            get($path, Scope($scope), call!(keys::list, query KeyQuery => 200 Page<KeyRecord>),
                concat!("list", $name, "Keys"), "List keys"),
            get(concat!($path, "/{id}"), Scope($scope), call!(keys::get => 200 KeyRecord),
                concat!("get", $name, "Key"), "Get a key")
                .refuses(&[404]),
            patch(concat!($path, "/{id}"), Scope($scope),
                call!(keys::patch, optional_patch KeyPatch => 200 KeyRecord),
                concat!("patch", $name, "Key"),
                "Change a key by a merge patch (RFC 7396). Limits and labels: an admin or the key \
                 that created it")
                .refuses(&[404, 409]),
            delete(concat!($path, "/{id}"), Scope($scope),
                call!(keys::revoke, query RevokeQuery => 204),
                concat!("revoke", $name, "Key"),
                "Revoke a key, with `descendants` also its descendants; effective on return")
                .refuses(&[404]),
            post(concat!($path, "/{id}/rotate"), Scope($scope),
                call!(keys::rotate, optional Rotation => 200 KeyWithSecret),
                concat!("rotate", $name, "Key"),
                "Rotate the secret of a key; the old one ends now or after a grace period")
                .refuses(&[404, 409]),
        ]
    };
}

/// Path of heartbeats: the only node callback that works while the store is unavailable.
pub const NODE_REPORT: &str = "/v1/agent/heartbeat";

const PAGE: &[&str] = &["limit", "after"];
const EVALUATE: Handled = Handled::by(Responder::Progress(
    |app, who, request| Box::pin(evaluate::post(app, who, request)),
    BodyKind::Evaluation,
));

/// Every operation of the gateway.
pub(super) static OPERATIONS: &[&[Operation]] = &[
    PIN,
    keys!("/v1/apikeys", "Pin", "user"),
    NODES,
    AGENT,
    keys!("/v1/api-keys", "Agent", "keys"),
    keys!("/v1/router/keys", "Router", "keys"),
    ROUTER,
    DATA_PLANE,
];

/// The OpenAPI document of the table.
pub fn openapi_document() -> Value {
    openapi::document(OPERATIONS)
}

/// The document as it is sent, made at its first use.
pub fn openapi_file() -> &'static StaticFile {
    static FILE: OnceLock<StaticFile> = OnceLock::new();
    FILE.get_or_init(|| StaticFile::new("application/json", openapi_document().to_string()))
}

async fn openapi_get(_: &App, _: &Principal, request: &ApiRequest) -> ApiResult {
    openapi_file().answer(request.headers(), "no-cache")
}

/// The routes of all operations.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    OPERATIONS.iter().copied().flatten().map(|operation| operation.route.clone()).collect()
});

#[rustfmt::skip]
const PIN: &[Operation] = &[
    get("/health", Open, here!(pin::health), "health",
        "Health of the gateway")
        .gives(200, "Health").refuses(&[503]),
    get("/version", Open, call!(pin::version => 200 Version), "version", "Name and version"),
    get("/openapi.json", Open, here!(openapi_get), "openapi",
        "This document")
        .gives(200, "OpenApi"),
    post("/v1/auth/register", Registration,
        call!(pin::register, body NewAccount => 201 Registered), "register",
        "Register an account")
        .refuses(&[403, 409, 429]),
    post("/v1/auth/login", Open, call!(pin::login, body Login => 200 LoggedIn), "login",
        "Log in: a session cookie, and a token for programs")
        .refuses(&[401, 429]),
    get("/v1/auth/me", Any, call!(pin::me => 200 User), "me", "The caller"),
    post("/v1/auth/logout", Session, call!(pin::logout, optional NoBody => 204), "logout",
        "End the session with its cookie and its token"),
    post("/v1/auth/password", Session, call!(pin::password, body PasswordChange => 204),
        "changePassword", "Change the password and end all other sessions of the user")
        .refuses(&[409, 429]),
    post("/v1/users", Admin, call!(users::create, body NewUser => 201 UserRecord), "createUser",
        "Create a user or an admin")
        .refuses(&[409]),
    get("/v1/users", Admin, call!(users::list, query PageQuery => 200 Page<UserRecord>),
        "listUsers", "List users, newest first"),
    get("/v1/users/{id}", Admin, call!(users::get => 200 UserRecord), "getUser", "Get a user")
        .refuses(&[404]),
    patch("/v1/users/{id}", Admin, call!(users::update, patch UserPatch => 200 UserRecord),
        "updateUser",
        "Change a user by a merge patch (RFC 7396). Disabling ends the sessions at once and \
         suspends the keys. A new `password` ends the sessions. Only `ADMIN_API_KEY` may disable \
         or demote the last admin, or set the password of an admin")
        .refuses(&[404, 409]),
    delete("/v1/users/{id}", Admin, call!(users::delete => 204), "deleteUser",
        "Delete a user: keys and sessions end, all captures are deleted, usage and audit keep the \
         id. A repeated call goes on where one broke off. Only `ADMIN_API_KEY` may delete the last \
         admin")
        .refuses(&[404, 409]),
    get("/v1/audit", Admin, call!(audit::list, query AuditQuery => 200 Page<AuditEvent>),
        "listAudit",
        "List audit rows, newest first. Rows of capture reads and deletions are written before the \
         act"),
    get("/v1/gateways", Admin, call!(gateways::list => 200 Page<GatewayRecord>), "listGateways",
        "List the gateways that share the store, the newest registration first; none with SQLite"),
    delete("/v1/gateways/{id}", Admin, call!(gateways::forget => 204), "forgetGateway",
        "Take a dead gateway off the list that had `on_lease_lost: serve_stale`")
        .refuses(&[404, 409]),
    post("/v1/nodes", Admin, call!(nodes::create, body NewNode => 201 NodeWithSecret),
        "createNode", "Enrol a node; only this answer shows its secret")
        .refuses(&[409]),
    get("/v1/nodes", Admin, call!(nodes::list, query PageQuery => 200 Page<NodeRecord>),
        "listNodes", "List nodes"),
    get("/v1/nodes/{id}", Admin, call!(nodes::get => 200 NodeRecord), "getNode",
        "Get a node and its state")
        .refuses(&[404]),
    delete("/v1/nodes/{id}", Admin, call!(nodes::delete => 204), "deleteNode",
        "Delete a node; it gets no further requests")
        .refuses(&[404]),
    post("/v1/nodes/{id}/rotate", Admin,
        call!(nodes::rotate, optional NoBody => 200 NodeWithSecret), "rotateNode",
        "Rotate the secret of a node; the old one ends at the first use of the new one, or after \
         ten minutes")
        .refuses(&[404, 409]),
];

#[rustfmt::skip]
const NODES: &[Operation] = &[
    post("/v1/agent/register", Any,
        call!(node_callbacks::register, body NewRegistration => 200 NodeRegistered),
        "registerNode", "Register a node: its endpoint and models")
        .refuses(&[404, 409, 429]),
    post(NODE_REPORT, Any, call!(node_callbacks::heartbeat, body NodeHeartbeat => 200 NodeLease),
        "nodeHeartbeat", "Report the state of a node and renew its lease")
        .refuses(&[404, 409, 429]),
    post("/v1/agent/events", Any,
        call!(node_callbacks::events, events NodeEvents => 202 NodeEventsTaken), "nodeEvents",
        "Write events of a node to the gateway's log, each id once")
        .refuses(&[404, 429]),
    post("/v1/agent/deregister", Any,
        call!(node_callbacks::deregister, optional NodeLeaving => 204), "deregisterNode",
        "Deregister a node")
        .refuses(&[404, 409, 429]),
];

#[rustfmt::skip]
const AGENT: &[Operation] = &[
    post("/v1/agents", Scope("agents"), call!(agents::create, body NewAgent => 201 AgentRecord),
        "createAgent", "Create an agent")
        .refuses(&[409]),
    get("/v1/agents", Scope("agents"),
        call!(agents::list, query PageQuery => 200 Page<AgentRecord>),
        "listAgents", "List agents"),
    get("/v1/agents/{id}", Scope("agents"), call!(agents::get => 200 AgentRecord), "getAgent",
        "Get an agent by id or name; 304 if `If-None-Match` matches")
        .refuses(&[404]),
    patch("/v1/agents/{id}", Scope("agents"),
        call!(agents::patch, patch MergePatch<NewAgent> => 200 AgentRecord), "changeAgent",
        "Change an agent, by id or name, by a merge patch (RFC 7396); honours `If-Match`")
        .refuses(&[404, 409, 412]),
    delete("/v1/agents/{id}", Scope("agents"), call!(agents::delete => 204), "deleteAgent",
        "Delete an agent, by id or name; honours `If-Match`")
        .refuses(&[404, 412]),
];

#[rustfmt::skip]
const ROUTER: &[Operation] = &[
    get("/v1/router/replay", Scope("replay"), here!(replays::list), "listReplays",
        "List captures in the caller's reach, newest first. With a rare filter a page may be short \
         or empty although more follow: continue at `next` while `has_more`")
        .gives(200, "ReplayList").query(replays::PARAMETERS),
    delete("/v1/router/replay", Scope("replay"), here!(replays::erase), "eraseReplays",
        "Delete all captures that match all parameters given, of which one is needed; unreadable \
         on return. A repeated call goes on where one broke off")
        .gives(200, "Erased").refuses(&[429]).query(replays::ERASED_BY),
    get("/v1/router/replay/{id}", Scope("replay"), here!(replays::get), "getReplay",
        "Get a whole capture")
        .gives(200, "Capture").refuses(&[404, 409]).query(&["with"]),
    delete("/v1/router/replay/{id}", Scope("replay"), here!(replays::delete), "deleteReplay",
        "Delete a capture; unreadable on return")
        .gives_nothing().refuses(&[404]).query(&["replays"]),
    get("/v1/router/replay/{id}/compare/{other}", Scope("replay"), here!(replays::compare),
        "compareReplays",
        "Compare two captures field by field")
        .gives(200, "Comparison").refuses(&[404, 409]),
    post("/v1/router/replay/{id}/reroute", Scope("replay"), Handled::by(Reroute), "reroute",
        "Run a captured request again under the live document")
        .gives(200, "Reroute").refuses(&[404, 409, 429, 502]).query(&["dry_run"]),
    post("/v1/router/replay/evaluate", Scope("replay"), EVALUATE, "evaluate",
        "Evaluate a document on captured traffic without calling providers. `application/x-ndjson` \
         streams progress")
        .may_take_a(schema::of::<NewEvaluation>).gives(200, "Evaluation").refuses(&[429]),
    post("/v1/router/replay/import", Scope("admin"), here!(import::post, Lines), "importReplays",
        "Import exported captures, one per line; known ids are left unchanged")
        .takes("Capture").gives(200, "Import").refuses(&[409, 429]).query(&["owner"]),
    post("/v1/router/decide", Scope("inference"), here!(decide::post, Prompt), "decide",
        "Decide a request without sending it; nothing is captured")
        .takes("InferenceRequest").gives(200,
            "Decision").refuses(&[404, 429])
        .query(decide::PARAMETERS),
    get("/v1/router/config", Scope("config"), here!(routing::get), "getConfig",
        "Get the live routing document; as YAML with `Accept: application/yaml`")
        .gives(200, "Config"),
    put("/v1/router/config", Scope("config"), here!(routing::put, Document), "putConfig",
        "Replace the routing document; live on return. `If-Match` names the revision it replaces")
        .takes("RoutingDocument").gives(200,
            "ConfigTaken").refuses(&[409, 412, 429])
        .query(Gate::PARAMETERS),
    post("/v1/router/config/validate", Scope("evaluate"), here!(routing::validate, Document),
        "validateConfig",
        "Report every problem of a routing document; changes nothing")
        .takes("RoutingDocument").gives(200, "Validation"),
    get("/v1/router/config/revisions", Scope("config"), here!(routing::revisions), "listRevisions",
        "List the routing documents that were live, newest first")
        .gives(200, "RevisionList").query(PAGE),
    get("/v1/router/config/revisions/{revision}", Scope("config"), here!(routing::revision),
        "getRevision",
        "Get a routing document that was live")
        .gives(200, "Revision").refuses(&[404]),
    post("/v1/router/config/rollback", Scope("config"), here!(routing::rollback), "rollbackConfig",
        "Make an earlier routing document live again")
        .takes_a(schema::of::<Rollback>).gives(200, "ConfigTaken").refuses(&[404, 409, 412]),
    get("/v1/router/providers", Scope("config"),
        call!(providers::list, query PageQuery => 200 Page<ProviderStatus>), "listProviders",
        "State of the live document's providers in this process; `nodes` is listed if the document \
         has targets on nodes"),
    get("/v1/router/status", Scope("config"), call!(status::get => 200 GatewayStatus), "status",
        "State of this process: document, capture queue, disk, certificates"),
    get("/v1/router/usage", Scope("replay"),
        call!(usage::get, query UsageParameters => 200 UsageList), "usage",
        "Usage by time, as far as the caller reaches"),
];

#[rustfmt::skip]
const DATA_PLANE: &[Operation] = &[
    get("/v1/models", Scope("inference"), here!(models::list), "listModels",
        "List the models that the key may request; in Anthropic's shape with `anthropic-version`")
        .gives(200, "ModelList").query(&["limit", "after_id", "before_id"]),
    get("/v1/models/{id...}", Scope("inference"), here!(models::get), "getModel",
        "Get a model; slashes as they are or as %2F")
        .gives(200, "Model").refuses(&[404]),
    post("/v1/chat/completions", Scope("inference"), Handled::by(Inference(ChatCompletions)),
        "createChatCompletion",
        "Chat completion, JSON or a stream of events")
        .takes("ChatRequest").gives(200, "ChatCompletion").refuses(&[404, 429, 502]),
    post("/v1/embeddings", Scope("inference"), Handled::by(Inference(Embeddings)),
        "createEmbeddings",
        "Embeddings")
        .takes("EmbeddingsRequest").gives(200, "Embeddings").refuses(&[404, 429, 502]),
    post("/v1/responses", Scope("inference"), Handled::by(Inference(Responses)), "createResponse",
        "Response, JSON or a stream of events")
        .takes("ResponseRequest").gives(200, "Response").refuses(&[404, 429, 502]),
    post("/v1/messages", Scope("inference"), Handled::by(Inference(Messages)), "createMessage",
        "Message in Anthropic's API, JSON or a stream of events")
        .takes("MessageRequest").gives(200, "Message").refuses(&[404, 429, 502]),
    post("/v1/messages/count_tokens", Scope("inference"), Handled::by(Inference(CountTokens)),
        "countTokens",
        "Count the tokens of a message, in Anthropic's API")
        .takes("CountRequest").gives(200, "TokenCount").refuses(&[404, 429, 502]),
];
