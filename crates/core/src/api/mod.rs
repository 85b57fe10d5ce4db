//! The whole API as one table: method, path, who may call, and what answers. Handlers take `(&App,
//! &Principal, &ApiRequest)` and return an [`ApiResult`], one file for each noun. What a row says,
//! and what its handler gets and gives, is in `route.rs`. No Pingora type appears here.

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
mod openapi;
mod outline;
mod page;
pub mod pin;
mod providers;
pub mod replays;
mod route;
mod routing;
mod static_file;
mod status;
#[cfg(test)]
mod tests;
mod usage;
mod users;

use std::collections::HashMap;
use std::sync::OnceLock;

use http::Method;
use serde_json::Value;

pub use self::evaluate::EVALUATE_MAX;
pub use self::node_callbacks::NODE_MODELS;
pub use self::page::{PAGE_MAX, parameter as query_parameter};
pub use self::route::{
    ApiRequest, ApiResult, BodyKind, ClientOrigin, Handler, PathParams, Policy, ProgressHandler,
    ProgressStep, ProgressStream, Responder, Route,
};
pub use self::static_file::StaticFile;
use crate::app::App;
use rerouter_access::auth::{self, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::interface::Surface;
use rerouter_dialect::endpoint::Endpoint;

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
        get(   "/openapi.json",                    Open,              here!(openapi_get)),
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

/// Path of heartbeats: the only node callback that works while the store is unavailable.
pub const NODE_REPORT: &str = "/v1/agent/heartbeat";

/// The OpenAPI document of the table.
pub fn openapi_document() -> Value {
    openapi::document(ROUTES)
}

/// The document as it is sent, made at its first use.
pub fn openapi_file() -> &'static StaticFile {
    static FILE: OnceLock<StaticFile> = OnceLock::new();
    FILE.get_or_init(|| StaticFile::new("application/json", openapi_document().to_string()))
}

async fn openapi_get(_: &App, _: &Principal, request: &ApiRequest) -> ApiResult {
    openapi_file().answer(request.headers(), "no-cache")
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
