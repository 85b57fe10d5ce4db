//! The whole API as one table: method, path, who may call, and what answers. Handlers take `(&App,
//! &Principal, &ApiRequest)` and return an [`ApiResult`], one file for each noun. No Pingora type
//! appears here.

mod agents;
mod answer;
pub mod audit;
mod body;
mod conditional;
mod decide;
mod evaluate;
pub mod first_admin;
mod gate;
mod gateways;
pub mod idempotency;
mod import;
mod keys;
pub mod limits;
mod models;
mod node_callbacks;
mod node_endpoint;
mod nodes;
pub mod openapi;
mod outline;
mod page;
pub mod pin;
mod providers;
pub mod replays;
mod routing;
mod static_file;
mod status;
#[cfg(test)]
mod tests;
mod usage;
mod users;

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::OnceLock;

use bytes::Bytes;
use http::{Method, Request, Response};
use serde_json::Value;
use tokio::sync::mpsc;

pub use self::evaluate::EVALUATE_MAX;
pub use self::node_callbacks::NODE_MODELS;
pub use self::page::{PAGE_MAX, parameter as query_parameter};
pub use self::static_file::StaticFile;
use crate::app::App;
use rerouter_access::auth::{self, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::interface::Surface;
use rerouter_dialect::endpoint::Endpoint;

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
    Answer(ApiResult),
}

/// The body that a handler takes; always bounded, in `gateway/intake.rs`, and never compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// JSON, up to `MANAGEMENT_BODY`.
    Json,
    /// Events of a node in JSON, up to `NODE_EVENTS_BODY`.
    Events,
    /// A merge patch, bounded as JSON.
    Patch,
    /// A routing document in JSON or YAML, up to [`rerouter_base::bounds::DOCUMENT_BYTES`].
    Document,
    /// The JSON of an inference call, up to `limits.request_body`.
    Prompt,
    /// Captures in JSON, one per line, up to `IMPORT_BODY`. A single one may be
    /// `application/json`.
    Lines,
    /// A form of a page, up to `MANAGEMENT_BODY`.
    Form,
    /// A form with a routing document in it, up to `FORM_BODY`.
    DocumentForm,
    /// JSON with a routing document in it, up to `EVALUATE_BODY`.
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
            BodyKind::Form | BodyKind::DocumentForm => &["application/x-www-form-urlencoded"],
        }
    }
}

/// A request with its whole body. What is known beside is in its extensions: [`PathParams`],
/// [`ClientOrigin`], [`RequestId`](rerouter_base::id::RequestId).
pub type ApiRequest = Request<Bytes>;
pub type ApiResult = Result<Response<Bytes>>;
/// A handler of the table.
pub type Handler = for<'a> fn(&'a App, &'a Principal, &'a ApiRequest) -> ResponseFuture<'a>;
/// A handler that reports progress.
pub type ProgressHandler =
    for<'a> fn(
        &'a App,
        &'a Principal,
        &'a ApiRequest,
    ) -> Pin<Box<dyn Future<Output = Result<ProgressStream>> + Send + 'a>>;
/// The future of a handler.
pub type ResponseFuture<'a> = Pin<Box<dyn Future<Output = ApiResult> + Send + 'a>>;

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

macro_rules! methods {
    ($($name:ident $method:ident),*) => {
        $(const fn $name(path: &'static str, policy: Policy, responder: Responder) -> Route {
            Route { method: Method::$method, path, policy, responder }
        })*
    };
}
methods!(get GET, post POST, put PUT, patch PATCH, delete DELETE);

/// Every operation of the gateway.
#[rustfmt::skip]
pub static ROUTES: &[Route] = {
    use Endpoint::{ChatCompletions, CountTokens, Embeddings, Messages, Responses};
    use Policy::{Admin, Any, Open, Registration, Scope};
    use Responder::{Inference, Reroute};
    const EVALUATE: Responder = Responder::Progress(
        |app, who, request| Box::pin(evaluate::post(app, who, request)),
        BodyKind::Evaluation,
    );
    &[
        // PIN
        get(   "/health",                          Open,              here!(pin::health)),
        get(   "/version",                         Open,              here!(pin::version)),
        get(   "/openapi.json",                    Open,              here!(openapi::get)),
        post(  "/v1/auth/register",                Registration,      here!(pin::register)),
        post(  "/v1/auth/login",                   Open,              here!(pin::login)),
        get(   "/v1/auth/me",                      Any,               here!(pin::me)),
        post(  "/v1/auth/logout",                  Any,               here!(pin::logout)),
        post(  "/v1/auth/password",                Any,               here!(pin::password)),
        post(  "/v1/apikeys",                      Scope("user"),     here!(keys::create)),
        get(   "/v1/apikeys",                      Scope("user"),     here!(keys::list)),
        get(   "/v1/apikeys/{id}",                 Scope("user"),     here!(keys::get)),
        patch( "/v1/apikeys/{id}",                 Scope("user"),     here!(keys::patch, Patch)),
        delete("/v1/apikeys/{id}",                 Scope("user"),     here!(keys::revoke)),
        post(  "/v1/apikeys/{id}/rotate",          Scope("user"),     here!(keys::rotate)),
        post(  "/v1/users",                        Admin,             here!(users::create)),
        get(   "/v1/users",                        Admin,             here!(users::list)),
        get(   "/v1/users/{id}",                   Admin,             here!(users::get)),
        patch( "/v1/users/{id}",                   Admin,             here!(users::update, Patch)),
        delete("/v1/users/{id}",                   Admin,             here!(users::delete)),
        get(   "/v1/audit",                        Admin,             here!(audit::list)),
        get(   "/v1/gateways",                     Admin,             here!(gateways::list)),
        delete("/v1/gateways/{id}",                Admin,             here!(gateways::forget)),
        post(  "/v1/nodes",                        Admin,             here!(nodes::create)),
        get(   "/v1/nodes",                        Admin,             here!(nodes::list)),
        get(   "/v1/nodes/{id}",                   Admin,             here!(nodes::get)),
        delete("/v1/nodes/{id}",                   Admin,             here!(nodes::delete)),
        post(  "/v1/nodes/{id}/rotate",            Admin,             here!(nodes::rotate)),
        // PIN, by nodes
        post(  "/v1/agent/register",               Any, here!(node_callbacks::register)),
        post(  NODE_REPORT,                        Any, here!(node_callbacks::heartbeat)),
        post(  "/v1/agent/events",                 Any, here!(node_callbacks::events, Events)),
        post(  "/v1/agent/deregister",             Any, here!(node_callbacks::deregister)),
        // AGENT
        post(  "/v1/agents",                       Scope("agents"),   here!(agents::create)),
        get(   "/v1/agents",                       Scope("agents"),   here!(agents::list)),
        get(   "/v1/agents/{id}",                  Scope("agents"),   here!(agents::get)),
        patch( "/v1/agents/{id}",                  Scope("agents"),   here!(agents::patch, Patch)),
        delete("/v1/agents/{id}",                  Scope("agents"),   here!(agents::delete)),
        post(  "/v1/api-keys",                     Scope("keys"),     here!(keys::create)),
        get(   "/v1/api-keys",                     Scope("keys"),     here!(keys::list)),
        get(   "/v1/api-keys/{id}",                Scope("keys"),     here!(keys::get)),
        patch( "/v1/api-keys/{id}",                Scope("keys"),     here!(keys::patch, Patch)),
        delete("/v1/api-keys/{id}",                Scope("keys"),     here!(keys::revoke)),
        post(  "/v1/api-keys/{id}/rotate",         Scope("keys"),     here!(keys::rotate)),
        // ROUTER management
        post(  "/v1/router/keys",                  Scope("keys"),     here!(keys::create)),
        get(   "/v1/router/keys",                  Scope("keys"),     here!(keys::list)),
        get(   "/v1/router/keys/{id}",             Scope("keys"),     here!(keys::get)),
        patch( "/v1/router/keys/{id}",             Scope("keys"),     here!(keys::patch, Patch)),
        delete("/v1/router/keys/{id}",             Scope("keys"),     here!(keys::revoke)),
        post(  "/v1/router/keys/{id}/rotate",      Scope("keys"),     here!(keys::rotate)),
        get(   "/v1/router/replay",                Scope("replay"),   here!(replays::list)),
        delete("/v1/router/replay",                Scope("replay"),   here!(replays::erase)),
        get(   "/v1/router/replay/{id}",           Scope("replay"),   here!(replays::get)),
        delete("/v1/router/replay/{id}",           Scope("replay"),   here!(replays::delete)),
        get(   "/v1/router/replay/{id}/compare/{other}", Scope("replay"), here!(replays::compare)),
        post(  "/v1/router/replay/{id}/reroute",   Scope("replay"),   Reroute),
        post(  "/v1/router/replay/evaluate",       Scope("replay"),   EVALUATE),
        post(  "/v1/router/replay/import",         Scope("admin"),    here!(import::post, Lines)),
        post(  "/v1/router/decide",                Scope("inference"), here!(decide::post, Prompt)),
        get(   "/v1/router/config",                Scope("config"),   here!(routing::get)),
        put(   "/v1/router/config",                Scope("config"), here!(routing::put, Document)),
        post(  "/v1/router/config/validate", Scope("evaluate"), here!(routing::validate, Document)),
        get(   "/v1/router/config/revisions",      Scope("config"),   here!(routing::revisions)),
        get(   "/v1/router/config/revisions/{revision}", Scope("config"), here!(routing::revision)),
        post(  "/v1/router/config/rollback",       Scope("config"),   here!(routing::rollback)),
        get(   "/v1/router/providers",             Scope("config"),   here!(providers::list)),
        get(   "/v1/router/status",                Scope("config"),   here!(status::get)),
        get(   "/v1/router/usage",                 Scope("replay"),   here!(usage::get)),
        // ROUTER data plane
        get(   "/v1/models",                       Scope("inference"), here!(models::list)),
        get(   "/v1/models/{id...}",               Scope("inference"), here!(models::get)),
        post(  "/v1/chat/completions",             Scope("inference"), Inference(ChatCompletions)),
        post(  "/v1/embeddings",                   Scope("inference"), Inference(Embeddings)),
        post(  "/v1/responses",                    Scope("inference"), Inference(Responses)),
        post(  "/v1/messages",                     Scope("inference"), Inference(Messages)),
        post(  "/v1/messages/count_tokens",        Scope("inference"), Inference(CountTokens)),
    ]
};

/// The values of a pattern's `{…}`, in order, still percent-encoded. An extension of a handler's
/// request.
#[derive(Clone, Debug, Default)]
pub struct PathParams(pub Vec<String>);

impl PathParams {
    /// The first value, or the empty text.
    pub fn first(&self) -> &str {
        self.get(0)
    }

    /// The value at an index from 0, or the empty text.
    pub fn get(&self, at: usize) -> &str {
        self.0.get(at).map_or("", String::as_str)
    }
}

/// Path of heartbeats: the only node callback that works while the store is unavailable.
pub const NODE_REPORT: &str = "/v1/agent/heartbeat";

/// Where a request comes from. An extension of a handler's request, as is its
/// [`RequestId`](rerouter_base::id::RequestId).
#[derive(Clone, Debug, Default)]
pub struct ClientOrigin {
    /// Address of the client, with `X-Forwarded-For` of trusted proxies applied.
    pub address: Option<IpAddr>,
    /// Whether that address is reliable: not if an untrusted proxy forwarded the request, nor if
    /// the address is that of a trusted proxy.
    pub proven: bool,
    /// Whether the client uses https.
    pub secure: bool,
    /// Address of the listener that took the connection.
    pub listener: Option<SocketAddr>,
}

/// Result of a look-up in the route table.
pub enum RouteMatch {
    /// A row of the table.
    Route(&'static Route, PathParams),
    /// The path exists, but with other methods.
    WrongMethod(Error),
    Unknown,
}

/// Finds the route of a request.
pub fn find(method: &Method, path: &str) -> RouteMatch {
    let asked = get_for_head(method);
    if let Some(route) =
        fixed().get(path).and_then(|routes| routes.iter().find(|route| route.method == asked))
    {
        return RouteMatch::Route(route, PathParams::default());
    }
    find_in(ROUTES, method, path)
}

/// HEAD is answered wherever GET is (RFC 9110 section 9.3.2).
fn get_for_head(method: &Method) -> &Method {
    if method == Method::HEAD { &Method::GET } else { method }
}

/// Finds the route of a request in a table.
pub fn find_in(table: &'static [Route], method: &Method, path: &str) -> RouteMatch {
    let method = get_for_head(method);
    let mut allow: Vec<&str> = Vec::new();
    for route in table {
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

/// Refuses a caller whom the policy of a route excludes.
pub fn may_call(route: &Route, who: &Principal) -> Result<()> {
    match route.policy {
        policy if policy.is_open() => Ok(()),
        _ if matches!(who, Principal::Anonymous) => {
            Err(auth::unauthorized(Surface::of(route.path), "missing"))
        }
        Policy::Scope(scope) => who.require(scope),
        Policy::Admin if !who.is_admin() => Err(Error::new(Kind::Forbidden, "This is for admins.")),
        _ => Ok(()),
    }
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
pub fn served_inference() -> String {
    let served: Vec<String> = ROUTES
        .iter()
        .filter(|route| Surface::of(route.path).is_data_plane())
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
