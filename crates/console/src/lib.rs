//! The console: pages for people, at `/console/`. It is a client of the API inside the process. A
//! page finds a route with [`api::find`], calls its handler as the user who looks at the page,
//! under the same policy, and reads its JSON. So the console can show and change only what the API
//! can, and never touches the store.
//!
//! Pages are plain HTML that works by links and forms. htmx replaces parts of a page; a handler
//! tells such a request by [`PageCall::is_fragment`](call::PageCall::is_fragment).

// The documentation is written for readers of the source, who see private items.
#![allow(rustdoc::private_intra_doc_links)]
// A scenario of a test reads from top to bottom, however many steps it has.
#![cfg_attr(test, allow(clippy::too_many_lines))]

mod agents;
mod answer;
mod assets;
mod audit;
mod call;
mod captures;
mod first_admin;
#[cfg(test)]
mod fixtures;
mod form;
mod form_fields;
mod form_state;
mod gateways;
mod keys;
mod layout;
mod limits;
mod links;
mod nodes;
mod overview;
mod pieces;
mod playground;
mod refusal;
mod resource;
mod routing;
mod sign_in;
mod snippets;
mod times;
mod users;

use http::Method;

use rerouter_core::api::{self, ApiResult, BodyKind, Policy, Responder, Route, RouteMatch};
use rerouter_core::app::App;
use rerouter_records::agent::AgentRecord;
use rerouter_records::gateway::GatewayRecord;
use rerouter_records::key::KeyRecord;
use rerouter_records::node::NodeRecord;
use rerouter_records::user::UserRecord;

pub use refusal::{PageAsk, refuse};

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
    post(     "/console/lost-holds",              page!(overview::settle)),
    // keys, users, agents, nodes, gateways, audit, playground
    get(      "/console/keys",                    page!(keys::list)),
    post(     "/console/keys",                    page!(resource::create::<KeyRecord>)),
    get(      "/console/keys/new",                page!(resource::blank::<KeyRecord>)),
    get(      "/console/keys/{id}",               page!(keys::show)),
    post(     "/console/keys/{id}",               page!(resource::change::<KeyRecord>)),
    post(     "/console/keys/{id}/rotate",        page!(keys::rotate)),
    post(     "/console/keys/{id}/status",        page!(resource::change::<KeyRecord>)),
    post(     "/console/keys/{id}/revoke",        page!(keys::revoke)),
    get(      "/console/clients",                 page!(snippets::show)),
    get(      "/console/users",                   page!(resource::list::<UserRecord>)),
    post(     "/console/users",                   page!(resource::create::<UserRecord>)),
    get(      "/console/users/new",               page!(resource::blank::<UserRecord>)),
    get(      "/console/users/{id}",              page!(resource::show::<UserRecord>)),
    post(     "/console/users/{id}",              page!(resource::change::<UserRecord>)),
    post(     "/console/users/{id}/password",     page!(users::set_password)),
    post(     "/console/users/{id}/disabled",     page!(users::set_disabled)),
    get(      "/console/agents",                  page!(resource::list::<AgentRecord>)),
    post(     "/console/agents",                  page!(resource::create::<AgentRecord>)),
    get(      "/console/agents/new",              page!(resource::blank::<AgentRecord>)),
    get(      "/console/agents/{id}",             page!(resource::show::<AgentRecord>)),
    post(     "/console/agents/{id}",             page!(resource::change::<AgentRecord>)),
    post(     "/console/agents/{id}/delete",      page!(resource::delete::<AgentRecord>)),
    get(      "/console/nodes",                   page!(resource::list::<NodeRecord>)),
    post(     "/console/nodes",                   page!(resource::create::<NodeRecord>)),
    get(      "/console/nodes/new",               page!(resource::blank::<NodeRecord>)),
    get(      "/console/nodes/{id}",              page!(nodes::show)),
    post(     "/console/nodes/{id}/rotate",       page!(nodes::rotate)),
    post(     "/console/nodes/{id}/delete",       page!(resource::delete::<NodeRecord>)),
    get(      "/console/gateways",                page!(resource::list::<GatewayRecord>)),
    post(     "/console/gateways/{id}/forget",    page!(gateways::forget)),
    get(      "/console/audit",                   page!(audit::list)),
    get(      "/console/playground",              page!(playground::show)),
    post(     "/console/playground/decide",       page!(playground::decide)),
    // captures
    get(      "/console/captures",                page!(captures::list::show)),
    get(      "/console/captures/{id}",           page!(captures::one::show)),
    post(     "/console/captures/{id}/delete",    page!(captures::one::delete)),
    get(      "/console/captures/{id}/messages",  page!(captures::conversation::earlier)),
    get(      "/console/captures/{id}/text",      page!(captures::text::show)),
    get(      "/console/captures/{id}/raw/{side}", page!(captures::text::download)),
    get(      "/console/captures/{id}/compare/{other}", page!(captures::compare::show)),
    // routing
    get(      "/console/routing",                 page!(routing::document::show)),
    post(     "/console/routing/check",           page!(routing::document::check, DocumentForm)),
    post(     "/console/routing/download",        page!(routing::document::download, DocumentForm)),
    get(      "/console/routing/evaluate",        page!(routing::evaluate::show)),
    post(     "/console/routing/evaluate",        progress!(routing::evaluate::run, DocumentForm)),
    post(     "/console/routing/review",          page!(routing::apply::review, DocumentForm)),
    post(     "/console/routing/apply",           page!(routing::apply::apply, DocumentForm)),
    get(      "/console/routing/revisions",       page!(routing::revisions::show)),
    get(      "/console/routing/revisions/{a}/{b}", page!(routing::revisions::compare)),
    post(     "/console/routing/revisions/{revision}/rollback",
                                                  page!(routing::revisions::rollback)),
];

async fn asset(call: call::PageCall<'_>) -> ApiResult {
    assets::answer(call.request, &call.param(0), &call.param(1))
}

/// Finds the page of a request that is no call of the API.
pub fn find(app: &App, method: &Method, path: &str) -> RouteMatch {
    match app.server.console {
        true => api::find_in(PAGES, method, path),
        false => RouteMatch::Unknown,
    }
}

#[cfg(test)]
mod tests;
