//! The whole API as one table: method, path, permitted callers, responder, inputs and outputs, and
//! the descriptions for the OpenAPI document.

use std::sync::{LazyLock, OnceLock};

use serde_json::Value;

use super::call::{Answer, Call};
use super::operation::{Handled, Noted, Operation, delete, get, patch, post, put};
use super::route::{ApiRequest, ApiResult, BodyKind, Policy, Responder, Route};
use super::static_file::StaticFile;
use super::{
    agents, audit, decide, evaluate, gateways, import, keys, models, node_callbacks, nodes,
    openapi, pin, providers, replays, routing, status, usage, users,
};
use crate::app::App;
use Action::{
    AgentCreate, AgentDelete, AgentUpdate, CaptureDelete, CaptureErase, CaptureImport, ConfigPut,
    ConfigRollback, GatewayForget, KeyCreate, KeyRevoke, KeyRotate, KeyUpdate, NodeCreate,
    NodeDelete, NodeRotate, SessionCreate, SessionEnd, UserCreate, UserDelete, UserUpdate,
};
use Noted::{As, Captured, ChangesNothing, Reported};
use Policy::{Admin, Any, Open, Registration, Scope, Session};
use Responder::{Inference, Reroute};
use rerouter_access::auth::Principal;
use rerouter_dialect::endpoint::Endpoint::{
    self, ChatCompletions, CountTokens, Messages, Responses,
};
use rerouter_records::account::{
    LoggedIn, Login, NewAccount, PasswordChange, Registered, User, Version,
};
use rerouter_records::agent::{AgentRecord, NewAgent};
use rerouter_records::audit::{AuditEvent, AuditQuery};
use rerouter_records::evaluation::{EvaluationRecord, NewEvaluation, Rollback};
use rerouter_records::gateway::GatewayRecord;
use rerouter_records::health::Health;
use rerouter_records::inference::{
    ChatCompletion, ChatRequest, CountRequest, DecideQuery, Embeddings, EmbeddingsRequest,
    InferenceRequest, Message, MessageRequest, OpenApi, Response, ResponseRequest, TokenCount,
};
use rerouter_records::key::{
    KeyPatch, KeyQuery, KeyRecord, KeyWithSecret, NewKey, RevokeQuery, Rotation,
};
use rerouter_records::model::{ModelList, ModelQuery, ModelRecord};
use rerouter_records::node::{
    NewNode, NewRegistration, NoBody, NodeEvents, NodeEventsTaken, NodeHeartbeat, NodeLease,
    NodeLeaving, NodeRecord, NodeRegistered, NodeWithSecret,
};
use rerouter_records::page::{Page, PageQuery};
use rerouter_records::patch::MergePatch;
use rerouter_records::replay::{
    CaptureQuery, CaptureRecord, Comparison, DecisionRecord, DeletionQuery, Erased, ErasureQuery,
    Import, ImportQuery, ReplayList, ReplayQuery, RerouteQuery, Rerouted,
};
use rerouter_records::routing::{
    Config, ConfigTaken, GateQuery, ListedRevision, RevisionRecord, RoutingDocument, Validation,
};
use rerouter_records::schema;
use rerouter_records::status::{GatewayStatus, ProviderStatus};
use rerouter_records::usage::{LostHoldRecord, Settlement, UsageList, UsageParameters};
use rerouter_records::user::{NewUser, UserPatch, UserRecord};
use rerouter_store::Action;

/// The operations on keys, which every interface has.
#[rustfmt::skip]
macro_rules! keys {
    ($path:literal, $name:literal, $scope:literal) => {
        &[
            post($path, Scope($scope), As(KeyCreate),
                call!(keys::create, optional NewKey => 201 KeyWithSecret),
                concat!("create", $name, "Key"), "Create a key; only this answer shows its secret")
                .refuses(&[409, 429]),
            get($path, Scope($scope), call!(keys::list, query KeyQuery => 200 Page<KeyRecord>),
                concat!("list", $name, "Keys"), "List keys"),
            get(concat!($path, "/{id}"), Scope($scope), call!(keys::get => 200 KeyRecord),
                concat!("get", $name, "Key"), "Get a key")
                .at(KEY).refuses(&[404]),
            patch(concat!($path, "/{id}"), Scope($scope), As(KeyUpdate),
                call!(keys::patch, optional_patch KeyPatch => 200 KeyRecord),
                concat!("patch", $name, "Key"),
                "Change a key by a merge patch (RFC 7396). Limits and labels: an admin or the key \
                 that created it")
                .at(KEY).refuses(&[404, 409]),
            delete(concat!($path, "/{id}"), Scope($scope), As(KeyRevoke),
                call!(keys::revoke, query RevokeQuery => 204),
                concat!("revoke", $name, "Key"),
                "Revoke a key, with `descendants` also its descendants; effective on return")
                .at(KEY).refuses(&[404]),
            post(concat!($path, "/{id}/rotate"), Scope($scope), As(KeyRotate),
                call!(keys::rotate, optional Rotation => 200 KeyWithSecret),
                concat!("rotate", $name, "Key"),
                "Rotate the secret of a key; the old one ends now or after a grace period")
                .at(KEY).refuses(&[404, 409]),
        ]
    };
}

/// Path of heartbeats: the only node callback that works while the store is unavailable.
pub const NODE_REPORT: &str = "/v1/agent/heartbeat";

const USER: &[&str] = &["Id of the user: `usr_…`."];
const NODE: &[&str] = &["Id of the node: `node_…`."];
const KEY: &[&str] = &["Id of the key: `key_…`."];
const AGENT_NAME: &[&str] = &["Id of the agent, `agent_…`, or its name."];
const CAPTURE: &[&str] = &["Id of the capture, equal to its request id: `req_…`."];
const CAPTURES: &[&str] =
    &["Id of the capture, equal to its request id: `req_…`.", "Id of the capture to compare with."];
const EVALUATE: Handled = Handled::by(Responder::Progress(
    |app, who, request| Box::pin(evaluate::post(app, who, request)),
    BodyKind::Evaluation,
));

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

pub fn openapi_document() -> Value {
    openapi::document(OPERATIONS)
}

/// The OpenAPI document in the form that is sent, made at its first use.
pub fn openapi_file() -> &'static StaticFile {
    static FILE: OnceLock<StaticFile> = OnceLock::new();
    FILE.get_or_init(|| StaticFile::new("application/json", openapi_document().to_string()))
}

async fn openapi_get(_: &App, _: &Principal, request: &ApiRequest) -> ApiResult {
    openapi_file().answer(request.headers(), "no-cache")
}

pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    OPERATIONS.iter().copied().flatten().map(|operation| operation.route.clone()).collect()
});

/// The operations whose success writes an audit row: method, path, action. A `PATCH` that disables
/// a user writes [`Action::UserDisable`].
pub static NOTED: LazyLock<Vec<(&str, &str, Action)>> = LazyLock::new(|| {
    let noted = |operation: &'static Operation| match operation.noted {
        As(action) => Some((operation.route.method.as_str(), operation.route.path, action)),
        ChangesNothing | Captured | Reported => None,
    };
    OPERATIONS.iter().copied().flatten().filter_map(noted).collect()
});

#[rustfmt::skip]
const PIN: &[Operation] = &[
    get("/health", Open, here!(pin::health), "health",
        "Health of the gateway")
        .gives::<Health>().refuses(&[503]),
    get("/version", Open, call!(pin::version => 200 Version), "version", "Name and version"),
    get("/openapi.json", Open, here!(openapi_get), "openapi",
        "This document")
        .gives::<OpenApi>(),
    post("/v1/auth/register", Registration, As(UserCreate),
        call!(pin::register, body NewAccount => 201 Registered), "register",
        "Register an account")
        .refuses(&[403, 409, 429]),
    post("/v1/auth/login", Open, As(SessionCreate),
        call!(pin::login, body Login => 200 LoggedIn), "login",
        "Log in: a session cookie, and a token for programs")
        .refuses(&[401, 429]),
    get("/v1/auth/me", Any, call!(pin::me => 200 User), "me", "The caller"),
    post("/v1/auth/logout", Session, As(SessionEnd),
        call!(pin::logout, optional NoBody => 204), "logout",
        "End the session with its cookie and its token"),
    post("/v1/auth/password", Session, As(Action::PasswordChange),
        call!(pin::password, body PasswordChange => 204),
        "changePassword", "Change the password and end all other sessions of the user")
        .refuses(&[409, 429]),
    post("/v1/users", Admin, As(UserCreate),
        call!(users::create, body NewUser => 201 UserRecord), "createUser",
        "Create a user or an admin")
        .refuses(&[409]),
    get("/v1/users", Admin, call!(users::list, query PageQuery => 200 Page<UserRecord>),
        "listUsers", "List users, newest first"),
    get("/v1/users/{id}", Admin, call!(users::get => 200 UserRecord), "getUser", "Get a user")
        .at(USER).refuses(&[404]),
    patch("/v1/users/{id}", Admin, As(UserUpdate),
        call!(users::update, patch UserPatch => 200 UserRecord),
        "updateUser",
        "Change a user by a merge patch (RFC 7396). Disabling ends the sessions at once and \
         suspends the keys. A new `password` ends the sessions. Only `ADMIN_API_KEY` may disable \
         or demote the last admin, or set the password of an admin")
        .at(USER).refuses(&[404, 409]),
    delete("/v1/users/{id}", Admin, As(UserDelete), call!(users::delete => 204), "deleteUser",
        "Delete a user: keys and sessions end, all captures are deleted, usage and audit keep the \
         id. A repeated call goes on where one broke off. Only `ADMIN_API_KEY` may delete the last \
         admin")
        .at(USER).refuses(&[404, 409]),
    get("/v1/audit", Admin, call!(audit::list, query AuditQuery => 200 Page<AuditEvent>),
        "listAudit",
        "List audit rows, newest first. Rows of capture reads and deletions are written before the \
         act"),
    get("/v1/gateways", Admin, call!(gateways::list => 200 Page<GatewayRecord>), "listGateways",
        "List the gateways that share the store, the newest registration first; none with SQLite"),
    delete("/v1/gateways/{id}", Admin, As(GatewayForget),
        call!(gateways::forget => 204), "forgetGateway",
        "Take a dead gateway off the list that had `on_lease_lost: serve_stale`")
        .at(&["Id of the registration of the gateway: `gw_…`."]).refuses(&[404, 409]),
    post("/v1/nodes", Admin, As(NodeCreate),
        call!(nodes::create, body NewNode => 201 NodeWithSecret),
        "createNode", "Enrol a node; only this answer shows its secret")
        .refuses(&[409]),
    get("/v1/nodes", Admin, call!(nodes::list, query PageQuery => 200 Page<NodeRecord>),
        "listNodes", "List nodes"),
    get("/v1/nodes/{id}", Admin, call!(nodes::get => 200 NodeRecord), "getNode",
        "Get a node and its state")
        .at(NODE).refuses(&[404]),
    delete("/v1/nodes/{id}", Admin, As(NodeDelete), call!(nodes::delete => 204), "deleteNode",
        "Delete a node; it gets no further requests")
        .at(NODE).refuses(&[404]),
    post("/v1/nodes/{id}/rotate", Admin, As(NodeRotate),
        call!(nodes::rotate, optional NoBody => 200 NodeWithSecret), "rotateNode",
        "Rotate the secret of a node; the old one ends at the first use of the new one, or after \
         ten minutes")
        .at(NODE).refuses(&[404, 409]),
];

#[rustfmt::skip]
const NODES: &[Operation] = &[
    post("/v1/agent/register", Any, Reported,
        call!(node_callbacks::register, body NewRegistration => 200 NodeRegistered),
        "registerNode", "Register a node: its endpoint and models")
        .refuses(&[404, 409, 429]),
    post(NODE_REPORT, Any, Reported,
        call!(node_callbacks::heartbeat, body NodeHeartbeat => 200 NodeLease),
        "nodeHeartbeat", "Report the state of a node and renew its lease")
        .refuses(&[404, 409, 429]),
    post("/v1/agent/events", Any, Reported,
        call!(node_callbacks::events, events NodeEvents => 202 NodeEventsTaken), "nodeEvents",
        "Write events of a node to the gateway's log, each id once")
        .refuses(&[404, 429]),
    post("/v1/agent/deregister", Any, Reported,
        call!(node_callbacks::deregister, optional NodeLeaving => 204), "deregisterNode",
        "Deregister a node")
        .refuses(&[404, 409, 429]),
];

#[rustfmt::skip]
const AGENT: &[Operation] = &[
    post("/v1/agents", Scope("agents"), As(AgentCreate),
        call!(agents::create, body NewAgent => 201 AgentRecord),
        "createAgent", "Create an agent")
        .refuses(&[409]),
    get("/v1/agents", Scope("agents"),
        call!(agents::list, query PageQuery => 200 Page<AgentRecord>),
        "listAgents", "List agents"),
    get("/v1/agents/{id}", Scope("agents"), call!(agents::get => 200 AgentRecord), "getAgent",
        "Get an agent by id or name; 304 if `If-None-Match` matches")
        .at(AGENT_NAME).refuses(&[404]),
    patch("/v1/agents/{id}", Scope("agents"), As(AgentUpdate),
        call!(agents::patch, patch MergePatch<NewAgent> => 200 AgentRecord), "changeAgent",
        "Change an agent, by id or name, by a merge patch (RFC 7396); honours `If-Match`")
        .at(AGENT_NAME).refuses(&[404, 409, 412]),
    delete("/v1/agents/{id}", Scope("agents"), As(AgentDelete),
        call!(agents::delete => 204), "deleteAgent",
        "Delete an agent, by id or name; honours `If-Match`")
        .at(AGENT_NAME).refuses(&[404, 412]),
];

#[rustfmt::skip]
const ROUTER: &[Operation] = &[
    get("/v1/router/replay", Scope("replay"),
        call!(replays::list, query ReplayQuery => 200 ReplayList), "listReplays",
        "List captures in the caller's reach, newest first. With a rare filter a page may be short \
         or empty although more follow: continue at `next` while `has_more`"),
    delete("/v1/router/replay", Scope("replay"), As(CaptureErase),
        call!(replays::erase, query ErasureQuery => 200 Erased), "eraseReplays",
        "Delete all captures that match all parameters given, of which one is needed; unreadable \
         on return. A repeated call goes on where one broke off")
        .refuses(&[429]),
    get("/v1/router/replay/{id}", Scope("replay"), here!(replays::get), "getReplay",
        "Get a whole capture")
        .at(CAPTURE).query::<CaptureQuery>().gives::<CaptureRecord>().refuses(&[404, 409]),
    delete("/v1/router/replay/{id}", Scope("replay"), As(CaptureDelete),
        call!(replays::delete, query DeletionQuery => 204), "deleteReplay",
        "Delete a capture; unreadable on return")
        .at(CAPTURE).refuses(&[404]),
    get("/v1/router/replay/{id}/compare/{other}", Scope("replay"), here!(replays::compare),
        "compareReplays",
        "Compare two captures field by field")
        .at(CAPTURES).gives::<Comparison>().refuses(&[404, 409]),
    post("/v1/router/replay/{id}/reroute", Scope("replay"), Captured,
        Handled::by(Reroute), "reroute",
        "Run a captured request again under the live document")
        .at(CAPTURE).query::<RerouteQuery>().gives::<Rerouted>().refuses(&[404, 409, 429, 502]),
    post("/v1/router/replay/evaluate", Scope("replay"), ChangesNothing, EVALUATE, "evaluate",
        "Evaluate a document on captured traffic without calling providers. `application/x-ndjson` \
         streams progress")
        .may_take::<NewEvaluation>().gives::<EvaluationRecord>().refuses(&[429]),
    post("/v1/router/replay/import", Scope("admin"), As(CaptureImport),
        call!(import::post, raw Lines CaptureRecord, query ImportQuery => 200 Import),
        "importReplays",
        "Import exported captures, one per line; known ids are left unchanged")
        .refuses(&[409, 429]),
    post("/v1/router/decide", Scope("inference"), ChangesNothing,
        call!(decide::post, raw Prompt InferenceRequest, query DecideQuery => 200 DecisionRecord),
        "decide",
        "Decide a request without sending it; nothing is captured")
        .refuses(&[404, 429]),
    get("/v1/router/config", Scope("config"), here!(routing::get), "getConfig",
        "Get the live routing document; as YAML with `Accept: application/yaml`")
        .gives::<Config>(),
    put("/v1/router/config", Scope("config"), As(ConfigPut),
        here!(routing::put, Document), "putConfig",
        "Replace the routing document; live on return. `If-Match` names the revision it replaces")
        .query::<GateQuery>().takes::<RoutingDocument>().gives::<ConfigTaken>()
        .refuses(&[409, 412, 429]),
    post("/v1/router/config/validate", Scope("evaluate"), ChangesNothing,
        call!(routing::validate, raw Document RoutingDocument => 200 Validation),
        "validateConfig",
        "Report every problem of a routing document; changes nothing"),
    get("/v1/router/config/revisions", Scope("config"),
        call!(routing::revisions, query PageQuery => 200 Page<ListedRevision>), "listRevisions",
        "List the routing documents that were live, newest first"),
    get("/v1/router/config/revisions/{revision}", Scope("config"),
        call!(routing::revision => 200 RevisionRecord), "getRevision",
        "Get a routing document that was live")
        .at(&["The revision of the document: twelve hex digits."]).refuses(&[404]),
    post("/v1/router/config/rollback", Scope("config"), As(ConfigRollback),
        here!(routing::rollback), "rollbackConfig",
        "Make an earlier routing document live again")
        .takes::<Rollback>().gives::<ConfigTaken>().refuses(&[404, 409, 412]),
    get("/v1/router/providers", Scope("config"),
        call!(providers::list, query PageQuery => 200 Page<ProviderStatus>), "listProviders",
        "State of the live document's providers in this process; `nodes` is listed if the document \
         has targets on nodes"),
    get("/v1/router/status", Scope("config"), call!(status::get => 200 GatewayStatus), "status",
        "State of this process: document, capture queue, disk, certificates"),
    get("/v1/router/usage", Scope("replay"),
        call!(usage::get, query UsageParameters => 200 UsageList), "usage",
        "Usage by time, as far as the caller reaches"),
    get("/v1/router/usage/lost", Scope("admin"),
        call!(usage::lost => 200 Page<LostHoldRecord>), "listLostHolds",
        "List what dead processes held of budgets; it counts until it is settled"),
    patch("/v1/router/usage", Scope("admin"), As(Action::UsageSettle),
        call!(usage::settle, body Settlement => 204), "settleUsage",
        "Settle what dead processes held of a budget: a part was spent, the rest is given back")
        .refuses(&[409]),
];

#[rustfmt::skip]
const DATA_PLANE: &[Operation] = &[
    get("/v1/models", Scope("inference"), here!(models::list), "listModels",
        "List the models that the key may request; in Anthropic's shape with `anthropic-version`")
        .query::<ModelQuery>().gives::<ModelList>(),
    get("/v1/models/{id...}", Scope("inference"), here!(models::get), "getModel",
        "Get a model; slashes as they are or as %2F")
        .at(&["Name of the model: an alias, `agent/<name>` or `provider/model`."])
        .gives::<ModelRecord>().refuses(&[404]),
    post("/v1/chat/completions", Scope("inference"), Captured,
        Handled::by(Inference(ChatCompletions)),
        "createChatCompletion",
        "Chat completion, JSON or a stream of events")
        .takes::<ChatRequest>().gives::<ChatCompletion>().refuses(&[404, 429, 502]),
    post("/v1/embeddings", Scope("inference"), Captured,
        Handled::by(Inference(Endpoint::Embeddings)), "createEmbeddings",
        "Embeddings")
        .takes::<EmbeddingsRequest>().gives::<Embeddings>().refuses(&[404, 429, 502]),
    post("/v1/responses", Scope("inference"), Captured,
        Handled::by(Inference(Responses)), "createResponse",
        "Response, JSON or a stream of events")
        .takes::<ResponseRequest>().gives::<Response>().refuses(&[404, 429, 502]),
    post("/v1/messages", Scope("inference"), Captured,
        Handled::by(Inference(Messages)), "createMessage",
        "Message in Anthropic's API, JSON or a stream of events")
        .takes::<MessageRequest>().gives::<Message>().refuses(&[404, 429, 502]),
    post("/v1/messages/count_tokens", Scope("inference"), Captured,
        Handled::by(Inference(CountTokens)),
        "countTokens",
        "Count the tokens of a message, in Anthropic's API")
        .takes::<CountRequest>().gives::<TokenCount>().refuses(&[404, 429, 502]),
];
