//! The whole API as one table: method, path, who may call, and what answers. Handlers take `(&App,
//! &Principal, &Request<Bytes>)` and return `Result<Response<Bytes>>`, one file for each noun. No
//! Pingora type appears here.

mod agents;
mod answer;
pub(crate) mod audit;
mod body;
mod conditional;
mod decide;
mod evaluate;
mod gate;
mod import;
mod keys;
pub(crate) mod limits;
mod models;
mod node_callbacks;
mod node_endpoint;
mod nodes;
pub(crate) mod openapi;
mod page;
pub(crate) mod pin;
mod providers;
pub(crate) mod replays;
mod routing;
#[cfg(test)]
mod tests;
mod usage;
mod users;

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::OnceLock;

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::app::App;
use crate::auth::Principal;
use crate::dialect::endpoint::Endpoint;
use crate::error::{Error, Kind, Result};

/// Who may call a route, once the caller is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Anybody, without a credential.
    Open,
    /// Anybody, without a credential, while registration is open.
    Registration,
    /// Every principal that the interface accepts.
    Any,
    Admin,
    /// A principal with this scope (sessions and admins have every default scope).
    Scope(&'static str),
}

impl Policy {
    /// Whether the route ignores credentials.
    pub fn is_open(self) -> bool {
        matches!(self, Policy::Open | Policy::Registration)
    }
}

/// What answers a route.
#[derive(Clone, Copy)]
pub enum Responder {
    /// A function of this room, and the bodies that it takes.
    Direct(Handler, BodyKind),
    /// An inference call, routed to a provider.
    Inference(Endpoint),
    /// A captured request, run again.
    Reroute,
    /// A function of this room that reports progress.
    Progress(ProgressHandler, BodyKind),
}

/// A running call that reports progress. Dropping it, as when the client leaves, ends the work.
pub struct ProgressStream {
    /// Whether the client gets progress as lines; the last line is the answer then.
    pub lines: bool,
    /// The steps; [`ProgressStep::Answer`] is the last.
    pub steps: mpsc::Receiver<ProgressStep>,
}

/// Progress, or the answer.
pub enum ProgressStep {
    /// Progress of the work.
    Line(Value),
    Answer(Result<Response<Bytes>>),
}

/// The body that a handler takes; always bounded, never compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// JSON, up to [`MANAGEMENT_BODY`](crate::bounds::MANAGEMENT_BODY).
    Json,
    /// Events of a node in JSON, up to [`NODE_EVENTS_BODY`](crate::bounds::NODE_EVENTS_BODY).
    Events,
    /// A merge patch, bounded as JSON.
    Patch,
    /// A routing document in JSON or YAML, up to [`DOCUMENT_BYTES`](crate::bounds::DOCUMENT_BYTES).
    Document,
    /// The JSON of an inference call, up to `limits.request_body`.
    Prompt,
    /// Captures in JSON, one per line, up to [`IMPORT_BODY`](crate::bounds::IMPORT_BODY). A single
    /// one may be `application/json`.
    Lines,
    /// JSON with a routing document in it, up to [`EVALUATE_BODY`](crate::bounds::EVALUATE_BODY).
    Evaluation,
}

impl BodyKind {
    pub fn types(self) -> &'static [&'static str] {
        match self {
            BodyKind::Json | BodyKind::Events | BodyKind::Prompt | BodyKind::Evaluation => {
                &["application/json"]
            }
            BodyKind::Patch => &["application/json", body::MERGE_PATCH],
            BodyKind::Document => &["application/json", "application/yaml"],
            BodyKind::Lines => &["application/x-ndjson", "application/json"],
        }
    }
}

/// A handler of the table.
pub(crate) type Handler =
    for<'a> fn(&'a App, &'a Principal, &'a Request<Bytes>) -> ResponseFuture<'a>;
/// A handler that reports progress.
pub(crate) type ProgressHandler =
    for<'a> fn(
        &'a App,
        &'a Principal,
        &'a Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<ProgressStream>> + Send + 'a>>;
/// The future of a handler.
pub(crate) type ResponseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Bytes>>> + Send + 'a>>;

/// One row of the table.
pub struct Route {
    pub method: Method,
    /// Path pattern: `{name}` matches one segment, `{name...}` at the end one or more. Also the
    /// `route` label of metrics.
    pub path: &'static str,
    pub policy: Policy,
    pub responder: Responder,
}

macro_rules! here {
    ($handler:path) => {
        here!($handler, Json)
    };
    ($handler:path, $takes:ident) => {
        Responder::Direct(
            |app, who, request| Box::pin($handler(app, who, request)),
            BodyKind::$takes,
        )
    };
}

const fn route(method: Method, path: &'static str, policy: Policy, responder: Responder) -> Route {
    Route { method, path, policy, responder }
}

/// Every operation of the gateway.
#[rustfmt::skip]
pub static ROUTES: &[Route] = &[
    // PIN
    route(Method::GET,    "/health",                          Policy::Open,               here!(pin::health)),
    route(Method::GET,    "/version",                         Policy::Open,               here!(pin::version)),
    route(Method::GET,    "/openapi.json",                    Policy::Open,               here!(openapi::get)),
    route(Method::POST,   "/v1/auth/register",                Policy::Registration,       here!(pin::register)),
    route(Method::POST,   "/v1/auth/login",                   Policy::Open,               here!(pin::login)),
    route(Method::GET,    "/v1/auth/me",                      Policy::Any,                here!(pin::me)),
    route(Method::POST,   "/v1/auth/logout",                  Policy::Any,                here!(pin::logout)),
    route(Method::POST,   "/v1/auth/password",                Policy::Any,                here!(pin::password)),
    route(Method::POST,   "/v1/apikeys",                      Policy::Scope("user"),      here!(keys::create)),
    route(Method::GET,    "/v1/apikeys",                      Policy::Scope("user"),      here!(keys::list)),
    route(Method::GET,    "/v1/apikeys/{id}",                 Policy::Scope("user"),      here!(keys::get)),
    route(Method::PATCH,  "/v1/apikeys/{id}",                 Policy::Scope("user"),      here!(keys::patch, Patch)),
    route(Method::DELETE, "/v1/apikeys/{id}",                 Policy::Scope("user"),      here!(keys::revoke)),
    route(Method::POST,   "/v1/apikeys/{id}/rotate",          Policy::Scope("user"),      here!(keys::rotate)),
    route(Method::POST,   "/v1/users",                        Policy::Admin,              here!(users::create)),
    route(Method::GET,    "/v1/users",                        Policy::Admin,              here!(users::list)),
    route(Method::GET,    "/v1/users/{id}",                   Policy::Admin,              here!(users::get)),
    route(Method::PATCH,  "/v1/users/{id}",                   Policy::Admin,              here!(users::update, Patch)),
    route(Method::GET,    "/v1/audit",                        Policy::Admin,              here!(audit::list)),
    route(Method::POST,   "/v1/nodes",                        Policy::Admin,              here!(nodes::create)),
    route(Method::GET,    "/v1/nodes",                        Policy::Admin,              here!(nodes::list)),
    route(Method::GET,    "/v1/nodes/{id}",                   Policy::Admin,              here!(nodes::get)),
    route(Method::DELETE, "/v1/nodes/{id}",                   Policy::Admin,              here!(nodes::delete)),
    route(Method::POST,   "/v1/nodes/{id}/rotate",            Policy::Admin,              here!(nodes::rotate)),
    // PIN, by nodes
    route(Method::POST,   "/v1/agent/register",               Policy::Any,                here!(node_callbacks::register)),
    route(Method::POST,   NODE_REPORT,                        Policy::Any,                here!(node_callbacks::heartbeat)),
    route(Method::POST,   "/v1/agent/events",                 Policy::Any,                here!(node_callbacks::events, Events)),
    route(Method::POST,   "/v1/agent/deregister",             Policy::Any,                here!(node_callbacks::deregister)),
    // AGENT
    route(Method::POST,   "/v1/agents",                       Policy::Scope("agents"),    here!(agents::create)),
    route(Method::GET,    "/v1/agents",                       Policy::Scope("agents"),    here!(agents::list)),
    route(Method::GET,    "/v1/agents/{id}",                  Policy::Scope("agents"),    here!(agents::get)),
    route(Method::PATCH,  "/v1/agents/{id}",                  Policy::Scope("agents"),    here!(agents::patch, Patch)),
    route(Method::DELETE, "/v1/agents/{id}",                  Policy::Scope("agents"),    here!(agents::delete)),
    route(Method::POST,   "/v1/api-keys",                     Policy::Scope("keys"),      here!(keys::create)),
    route(Method::GET,    "/v1/api-keys",                     Policy::Scope("keys"),      here!(keys::list)),
    route(Method::GET,    "/v1/api-keys/{id}",                Policy::Scope("keys"),      here!(keys::get)),
    route(Method::PATCH,  "/v1/api-keys/{id}",                Policy::Scope("keys"),      here!(keys::patch, Patch)),
    route(Method::DELETE, "/v1/api-keys/{id}",                Policy::Scope("keys"),      here!(keys::revoke)),
    route(Method::POST,   "/v1/api-keys/{id}/rotate",         Policy::Scope("keys"),      here!(keys::rotate)),
    // ROUTER management
    route(Method::POST,   "/v1/router/keys",                  Policy::Scope("keys"),      here!(keys::create)),
    route(Method::GET,    "/v1/router/keys",                  Policy::Scope("keys"),      here!(keys::list)),
    route(Method::GET,    "/v1/router/keys/{id}",             Policy::Scope("keys"),      here!(keys::get)),
    route(Method::PATCH,  "/v1/router/keys/{id}",             Policy::Scope("keys"),      here!(keys::patch, Patch)),
    route(Method::DELETE, "/v1/router/keys/{id}",             Policy::Scope("keys"),      here!(keys::revoke)),
    route(Method::POST,   "/v1/router/keys/{id}/rotate",      Policy::Scope("keys"),      here!(keys::rotate)),
    route(Method::GET,    "/v1/router/replay",                Policy::Scope("replay"),    here!(replays::list)),
    route(Method::GET,    "/v1/router/replay/{id}",           Policy::Scope("replay"),    here!(replays::get)),
    route(Method::DELETE, "/v1/router/replay/{id}",           Policy::Scope("replay"),    here!(replays::delete)),
    route(Method::GET,    "/v1/router/replay/{id}/compare/{other}", Policy::Scope("replay"), here!(replays::compare)),
    route(Method::POST,   "/v1/router/replay/{id}/reroute",   Policy::Scope("replay"),    Responder::Reroute),
    route(Method::POST,   "/v1/router/replay/evaluate",       Policy::Scope("replay"),    Responder::Progress(|app, who, request| Box::pin(evaluate::post(app, who, request)), BodyKind::Evaluation)),
    route(Method::POST,   "/v1/router/replay/import",         Policy::Scope("admin"),     here!(import::post, Lines)),
    route(Method::POST,   "/v1/router/decide",                Policy::Scope("inference"), here!(decide::post, Prompt)),
    route(Method::GET,    "/v1/router/config",                Policy::Scope("config"),    here!(routing::get)),
    route(Method::PUT,    "/v1/router/config",                Policy::Scope("config"),    here!(routing::put, Document)),
    route(Method::POST,   "/v1/router/config/validate",       Policy::Scope("evaluate"),  here!(routing::validate, Document)),
    route(Method::GET,    "/v1/router/config/revisions",      Policy::Scope("config"),    here!(routing::revisions)),
    route(Method::POST,   "/v1/router/config/rollback",       Policy::Scope("config"),    here!(routing::rollback)),
    route(Method::GET,    "/v1/router/providers",             Policy::Scope("config"),    here!(providers::list)),
    route(Method::GET,    "/v1/router/usage",                 Policy::Scope("replay"),    here!(usage::get)),
    // ROUTER data plane
    route(Method::GET,    "/v1/models",                       Policy::Scope("inference"), here!(models::list)),
    route(Method::GET,    "/v1/models/{id...}",               Policy::Scope("inference"), here!(models::get)),
    route(Method::POST,   "/v1/chat/completions",             Policy::Scope("inference"), Responder::Inference(Endpoint::ChatCompletions)),
    route(Method::POST,   "/v1/embeddings",                   Policy::Scope("inference"), Responder::Inference(Endpoint::Embeddings)),
    route(Method::POST,   "/v1/responses",                    Policy::Scope("inference"), Responder::Inference(Endpoint::Responses)),
    route(Method::POST,   "/v1/messages",                     Policy::Scope("inference"), Responder::Inference(Endpoint::Messages)),
    route(Method::POST,   "/v1/messages/count_tokens",        Policy::Scope("inference"), Responder::Inference(Endpoint::CountTokens)),
];

/// The values of a pattern's `{…}`, in order, still percent-encoded. An extension of a handler's
/// request.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathParams(pub(crate) Vec<String>);

impl PathParams {
    /// The first value, or the empty text.
    pub(crate) fn first(&self) -> &str {
        self.get(0)
    }

    /// The value at an index from 0, or the empty text.
    pub(crate) fn get(&self, at: usize) -> &str {
        self.0.get(at).map_or("", String::as_str)
    }
}

/// Path of heartbeats: the only node callback that works while the store is unavailable.
pub(crate) const NODE_REPORT: &str = "/v1/agent/heartbeat";

/// Where a request comes from. An extension of a handler's request, as is its
/// [`RequestId`](crate::id::RequestId).
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientOrigin {
    /// Address of the client, with `X-Forwarded-For` of trusted proxies applied.
    pub(crate) address: Option<IpAddr>,
    /// Whether that address is reliable: not if an untrusted proxy forwarded the request, nor if
    /// the address is that of a trusted proxy.
    pub(crate) proven: bool,
    /// Whether the client uses https.
    pub(crate) secure: bool,
}

/// Result of a look-up in the route table.
pub(crate) enum RouteMatch {
    /// A row of the table.
    Route(&'static Route, PathParams),
    /// The path exists, but with other methods.
    WrongMethod(Error),
    Unknown,
}

/// Finds the route of a request.
pub(crate) fn find(method: &Method, path: &str) -> RouteMatch {
    // HEAD is answered wherever GET is (RFC 9110 section 9.3.2).
    let method = if method == Method::HEAD { &Method::GET } else { method };
    if let Some(route) =
        fixed().get(path).and_then(|routes| routes.iter().find(|route| route.method == method))
    {
        return RouteMatch::Route(route, PathParams::default());
    }
    let mut allow: Vec<&str> = Vec::new();
    for route in ROUTES {
        if let Some(params) = matches(route.path, path) {
            if route.method == method {
                return RouteMatch::Route(route, params);
            }
            allow.push(route.method.as_str());
        }
    }
    if allow.is_empty() {
        return RouteMatch::Unknown;
    }
    let allow = allow.join(", ");
    RouteMatch::WrongMethod(
        Error::new(Kind::MethodNotAllowed, format!("This path allows {allow}.")).allowing(allow),
    )
}

/// The rows without a `{…}` by path, among them those of inference calls.
fn fixed() -> &'static HashMap<&'static str, Vec<&'static Route>> {
    static FIXED: OnceLock<HashMap<&str, Vec<&Route>>> = OnceLock::new();
    FIXED.get_or_init(|| {
        let mut fixed: HashMap<&str, Vec<&Route>> = HashMap::new();
        for route in ROUTES.iter().filter(|route| !route.path.contains('{')) {
            fixed.entry(route.path).or_default().push(route);
        }
        fixed
    })
}

/// The data plane's routes, for the answer to an unknown path.
pub(crate) fn served_inference() -> String {
    let served: Vec<String> = ROUTES
        .iter()
        .filter(|route| crate::interface::Surface::of(route.path).is_data_plane())
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    served.join(", ")
}

fn matches(pattern: &str, path: &str) -> Option<PathParams> {
    if !pattern.contains('{') {
        return (pattern == path).then(PathParams::default);
    }
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut params = Vec::new();
    loop {
        match (wanted.next(), given.next()) {
            (Some(want), Some(have)) if want.starts_with('{') && want.ends_with("...}") => {
                let rest: Vec<&str> = std::iter::once(have).chain(given).collect();
                let whole = rest.iter().all(|segment| !segment.is_empty());
                params.push(rest.join("/"));
                return whole.then_some(PathParams(params));
            }
            (None, None) => return Some(PathParams(params)),
            (Some(want), Some(have)) if want.starts_with('{') && !have.is_empty() => {
                params.push(have.to_string())
            }
            (Some(want), Some(have)) if want == have => {}
            _ => return None,
        }
    }
}
