//! The whole API as one table: method, path, who may call, and what answers. Handlers take `(&App, &Principal,
//! &Request<Bytes>)` and give `Result<Response<Bytes>>`, one file a noun; no type of the engine below appears here.

pub mod agents;
mod answer;
pub mod audit;
mod body;
mod conditional;
pub mod decide;
pub mod evaluate;
mod gate;
pub mod import;
pub mod keys;
pub mod limits;
pub mod models;
pub mod node_callbacks;
pub mod nodes;
pub mod openapi;
mod page;
pub mod pin;
pub mod providers;
pub mod replays;
pub mod routing;
#[cfg(test)]
mod tests;
pub mod usage;
pub mod users;

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
use crate::error::{Error, Kind, Result};
use crate::protocol::endpoint::Endpoint;

/// Who may call a route, once the credential is known to be good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Anybody, without a credential.
    Open,
    /// The same, while registration is open.
    Registration,
    /// Whoever the interface accepts.
    Any,
    /// An admin.
    Admin,
    /// A principal with this scope (sessions and admins have every default scope).
    Scope(&'static str),
}

impl Policy {
    /// Whether no credential is looked at.
    pub fn is_open(self) -> bool {
        matches!(self, Policy::Open | Policy::Registration)
    }
}

/// What answers a route.
#[derive(Clone, Copy)]
pub enum Answer {
    /// A function of this layer, and the bodies that it takes.
    Here(Handler, Takes),
    /// The data plane: routed to a provider.
    Inference(Endpoint),
    /// A capture, run again through the data plane.
    Reroute,
    /// A function of this layer whose answer takes its time.
    Slow(SlowHandler, Takes),
}

/// An answer that takes its time. Whoever drops it, because the client has left, ends the work.
pub struct Slow {
    /// Whether the client reads lines of progress as they come; the last line is then the answer.
    pub lines: bool,
    /// What comes, [`Step::Answer`] last.
    pub steps: mpsc::Receiver<Step>,
}

/// One step towards a slow answer.
pub enum Step {
    /// How far the work has come.
    Line(Value),
    /// What came of it.
    Answer(Result<Response<Bytes>>),
}

/// The bodies that a handler takes; all are bounded, none may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// JSON, up to [`bounds::MANAGEMENT_BODY`](crate::bounds::MANAGEMENT_BODY).
    Json,
    /// The events of a node in JSON, up to [`bounds::NODE_EVENTS_BODY`](crate::bounds::NODE_EVENTS_BODY).
    Events,
    /// A merge patch, as long as other JSON.
    Patch,
    /// A routing document in JSON or YAML, up to [`bounds::DOCUMENT_BYTES`](crate::bounds::DOCUMENT_BYTES).
    Document,
    /// What an inference call takes: JSON, up to `limits.request_body`.
    Prompt,
    /// Captures, one a line in JSON (one alone is `application/json` too), up to [`bounds::IMPORT_BODY`](crate::bounds::IMPORT_BODY).
    Lines,
    /// JSON with a routing document in it, up to [`bounds::EVALUATE_BODY`](crate::bounds::EVALUATE_BODY).
    Evaluation,
}

impl Takes {
    /// The media types of it.
    pub fn types(self) -> &'static [&'static str] {
        match self {
            Takes::Json | Takes::Events | Takes::Prompt | Takes::Evaluation => {
                &["application/json"]
            }
            Takes::Patch => &["application/json", body::MERGE_PATCH],
            Takes::Document => &["application/json", "application/yaml"],
            Takes::Lines => &["application/x-ndjson", "application/json"],
        }
    }
}

/// The type of a handler in the table.
pub type Handler = for<'a> fn(&'a App, &'a Principal, &'a Request<Bytes>) -> Answering<'a>;
/// The type of a handler whose answer takes its time.
pub type SlowHandler = for<'a> fn(
    &'a App,
    &'a Principal,
    &'a Request<Bytes>,
) -> Pin<Box<dyn Future<Output = Result<Slow>> + Send + 'a>>;
/// A handler at work.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>>> + Send + 'a>>;

/// One row of the table.
pub struct Route {
    /// HTTP method.
    pub method: Method,
    /// Path pattern; `{name}` stands for one segment, `{name...}` at the end for all that are left, one at least. Also the
    /// metric's `route` label.
    pub path: &'static str,
    /// Who may call.
    pub policy: Policy,
    /// What answers.
    pub answer: Answer,
}

macro_rules! here {
    ($handler:path) => {
        here!($handler, Json)
    };
    ($handler:path, $takes:ident) => {
        Answer::Here(|app, who, request| Box::pin($handler(app, who, request)), Takes::$takes)
    };
}

const fn route(method: Method, path: &'static str, policy: Policy, answer: Answer) -> Route {
    Route { method, path, policy, answer }
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
    route(Method::POST,   "/v1/router/replay/{id}/reroute",   Policy::Scope("replay"),    Answer::Reroute),
    route(Method::POST,   "/v1/router/replay/evaluate",       Policy::Scope("replay"),    Answer::Slow(|app, who, request| Box::pin(evaluate::post(app, who, request)), Takes::Evaluation)),
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
    route(Method::POST,   "/v1/chat/completions",             Policy::Scope("inference"), Answer::Inference(Endpoint::ChatCompletions)),
    route(Method::POST,   "/v1/embeddings",                   Policy::Scope("inference"), Answer::Inference(Endpoint::Embeddings)),
    route(Method::POST,   "/v1/responses",                    Policy::Scope("inference"), Answer::Inference(Endpoint::Responses)),
    route(Method::POST,   "/v1/messages",                     Policy::Scope("inference"), Answer::Inference(Endpoint::Messages)),
    route(Method::POST,   "/v1/messages/count_tokens",        Policy::Scope("inference"), Answer::Inference(Endpoint::CountTokens)),
];

/// The values of a pattern's `{…}`, in order, as they stand in the path. In the extensions of a handler's request.
#[derive(Clone, Debug, Default)]
pub struct PathParams(pub Vec<String>);

impl PathParams {
    /// The first value; empty when the pattern has none.
    pub fn first(&self) -> &str {
        self.get(0)
    }

    /// The value at a place, counted from 0; empty when the pattern has no such place.
    pub fn get(&self, at: usize) -> &str {
        self.0.get(at).map_or("", String::as_str)
    }
}

/// Where nodes report; of all that they tell this alone is taken while the store takes nothing.
pub const NODE_REPORT: &str = "/v1/agent/heartbeat";

/// What the connection says about the client. In the extensions of a handler's request, as is the request's
/// [`RequestId`](crate::id::RequestId).
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Its address, after trusted proxies have been believed.
    pub address: Option<IpAddr>,
    /// Whether that is where the request comes from, as far as can be told: not where it says that it was forwarded by somebody
    /// who is not trusted, and not where it is a trusted proxy's own.
    pub proven: bool,
    /// Whether the client's side is https.
    pub secure: bool,
}

/// What a method and path lead to.
pub enum Found {
    /// A row of the table.
    Route(&'static Route, PathParams),
    /// The path exists with these methods only.
    WrongMethod(Error),
    /// No such path.
    Nothing,
}

/// Looks a request up. A path that is known answers for all its methods before an unknown one is looked for.
pub fn find(method: &Method, path: &str) -> Found {
    // Every path that answers GET answers HEAD: the same head, no body (RFC 9110 section 9.3.2).
    let method = if method == Method::HEAD { &Method::GET } else { method };
    if let Some(route) =
        fixed().get(path).and_then(|routes| routes.iter().find(|route| route.method == method))
    {
        return Found::Route(route, PathParams::default());
    }
    let mut allow: Vec<&str> = Vec::new();
    for route in ROUTES {
        if let Some(params) = matches(route.path, path) {
            if route.method == method {
                return Found::Route(route, params);
            }
            allow.push(route.method.as_str());
        }
    }
    if allow.is_empty() {
        return Found::Nothing;
    }
    let allow = allow.join(", ");
    Found::WrongMethod(
        Error::new(Kind::MethodNotAllowed, format!("This path answers {allow}.")).allowing(allow),
    )
}

/// The rows without a `{…}`, by path: what inference calls ask for is found at once.
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

/// The data plane's paths, for the answer to an unknown one.
pub fn served_inference() -> String {
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
