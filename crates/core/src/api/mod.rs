//! The API: one table of operations in `operations.rs`, and one file of handlers for each noun.
//! Most handlers take a `Call` and typed records, and return an `Answer` (`call.rs`). The others
//! read an [`ApiRequest`] themselves. `route.rs` has the types of a route. No Pingora type appears
//! here.

mod agents;
pub mod audit;
mod body;
mod call;
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
#[macro_use]
mod operation;
mod operations;
mod outline;
mod page;
pub mod pin;
mod progress;
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

pub use self::node_callbacks::NODE_MODELS;
pub use self::operations::{NODE_REPORT, NOTED, ROUTES, openapi_document, openapi_file};
pub use self::page::{parameter as query_parameter, read as read_query};
pub use self::progress::{ProgressStep, ProgressStream};
pub use self::route::{
    ApiRequest, ApiResult, BodyKind, ClientOrigin, Handler, PathParams, Policy, ProgressHandler,
    Responder, Route,
};
pub use self::static_file::StaticFile;
use rerouter_access::auth::{self, Credential, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::interface::Surface;

pub enum RouteMatch {
    Route(&'static Route, PathParams),
    /// The path exists, but with other methods.
    WrongMethod(Error),
    Unknown,
}

pub fn find(method: &Method, path: &str) -> RouteMatch {
    let asked = get_for_head(method);
    if let Some(route) =
        fixed().get(path).and_then(|routes| routes.iter().find(|route| route.method == asked))
    {
        return RouteMatch::Route(route, PathParams::default());
    }
    find_in(&ROUTES, method, path)
}

/// HEAD is answered like GET (RFC 9110 section 9.3.2).
fn get_for_head(method: &Method) -> &Method {
    if method == Method::HEAD { &Method::GET } else { method }
}

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

pub fn may_call(route: &Route, who: &Principal) -> Result<()> {
    match route.policy {
        policy if policy.is_open() => Ok(()),
        _ if matches!(who, Principal::Anonymous) => {
            Err(auth::unauthorized(Surface::of(route.path), "missing"))
        }
        Policy::Scope(scope) => who.require(scope),
        Policy::Session if !matches!(who, Principal::User { via: Credential::Session(_), .. }) => {
            Err(Error::forbidden("This call needs a session, not a key."))
        }
        Policy::Admin if !who.is_admin() => Err(Error::forbidden("This is for admins.")),
        _ => Ok(()),
    }
}

/// The rows whose path has no `{…}`, by path. Those of inference calls are among them.
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

/// The paths of the data plane, for the answer to an unknown path.
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
