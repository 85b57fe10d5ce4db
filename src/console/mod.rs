//! The console: pages for people, at `/console/`. It is a client of the API inside the process: a
//! page finds a route with [`api::find`], under the same policy, calls its handler as whoever looks
//! at the page, and reads its JSON. So it shows and changes what the API would, and never touches
//! the store.
//!
//! Pages are plain HTML that works by links and forms. htmx replaces parts of a page; a handler
//! tells such a request by [`PageCall::is_fragment`](call::PageCall::is_fragment).

mod answer;
mod assets;
mod call;
mod first_admin;
mod form;
mod layout;
mod overview;
mod pieces;
mod refusal;
mod sign_in;

use http::Method;

use crate::api::{self, ApiResult, BodyKind, Policy, Responder, Route, RouteMatch};
use crate::app::App;

pub(crate) use refusal::{PageAsk, refuse};

/// The responder of a page: an `async fn(PageCall<'_>) -> ApiResult`, and the form that it takes.
macro_rules! page {
    ($handler:path) => {
        page!($handler, Form)
    };
    ($handler:path, $takes:ident) => {
        Responder::Direct(
            |app, who, request| {
                Box::pin(async move {
                    let call = call::PageCall { app, who, request };
                    $handler(call).await.or_else(|error| call.refusal(error))
                })
            },
            BodyKind::$takes,
        )
    };
}

/// As `page!`, for an `async fn(PageCall<'_>) -> Result<ProgressStream>`.
#[allow(unused_macros)]
macro_rules! progress {
    ($handler:path, $takes:ident) => {
        Responder::Progress(
            |app, who, request| Box::pin($handler(call::PageCall { app, who, request })),
            BodyKind::$takes,
        )
    };
}

macro_rules! methods {
    ($($name:ident $method:ident $policy:ident),*) => {
        $(const fn $name(path: &'static str, responder: Responder) -> Route {
            Route { method: Method::$method, path, policy: Policy::$policy, responder }
        })*
    };
}
methods!(get GET Any, post POST Any, open GET Open, open_post POST Open);

/// Every page. All but the open ones need a session; what a caller may see and do there is decided
/// by the routes of the API that the page calls.
#[rustfmt::skip]
pub static PAGES: &[Route] = &[
    open(     "/",                                page!(sign_in::root)),
    open(     "/console",                         page!(sign_in::root)),
    open(     "/console/assets/{digest}/{name}",  page!(asset)),
    open(     "/console/sign-in",                 page!(sign_in::show)),
    open_post("/console/sign-in",                 page!(sign_in::sign_in)),
    post(     "/console/sign-out",                page!(sign_in::sign_out)),
    open(     "/console/first-admin",             page!(first_admin::show)),
    open_post("/console/first-admin",             page!(first_admin::create)),
    get(      "/console/password",                page!(sign_in::show_password)),
    post(     "/console/password",                page!(sign_in::change_password)),
    get(      "/console/agent-key",               page!(sign_in::show_agent_key)),
    post(     "/console/agent-key",               page!(sign_in::set_agent_key)),
    // overview
    get(      "/console/",                        page!(overview::show)),
];

async fn asset(call: call::PageCall<'_>) -> ApiResult {
    assets::answer(call.request, &call.param(0), &call.param(1))
}

/// Finds the page of a request that is no call of the API.
pub(crate) fn find(app: &App, method: &Method, path: &str) -> RouteMatch {
    match app.server.console {
        true => api::find_in(PAGES, method, path),
        false => RouteMatch::Unknown,
    }
}

#[cfg(test)]
mod tests;
