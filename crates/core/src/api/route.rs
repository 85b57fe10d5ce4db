//! The types of a table row: the route, and the request and answer of its handler.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use bytes::Bytes;
use http::{Method, Request, Response};

use super::progress::ProgressStream;
use crate::app::App;
use rerouter_access::auth::Principal;
use rerouter_base::error::Result;
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
    /// A user with a session, not with a key.
    Session,
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

/// Media type of a merge patch (RFC 7396 section 4), accepted for PATCH in addition to plain JSON.
pub(super) const MERGE_PATCH: &str = "application/merge-patch+json";

/// The kind of body that a handler takes. `gateway/intake.rs` limits its size and refuses
/// compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// JSON, up to `MANAGEMENT_BODY`.
    Json,
    /// Events of a node in JSON, up to `NODE_EVENTS_BODY`.
    Events,
    /// A merge patch, with the limit of JSON.
    Patch,
    /// A routing document in JSON or YAML, up to [`rerouter_base::bounds::DOCUMENT_BYTES`].
    Document,
    /// The JSON of an inference call, up to `limits.request_body`.
    Prompt,
    /// Captures in JSON, one per line, up to `IMPORT_BODY`. A single capture may be
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
            BodyKind::Patch => &["application/json", MERGE_PATCH],
            BodyKind::Document => &["application/json", "application/yaml"],
            BodyKind::Lines => &["application/x-ndjson", "application/json"],
            BodyKind::Form | BodyKind::DocumentForm => &["application/x-www-form-urlencoded"],
        }
    }
}

/// A request with its whole body. Its extensions hold [`PathParams`], [`ClientOrigin`] and
/// [`RequestId`](rerouter_base::id::RequestId).
pub type ApiRequest = Request<Bytes>;
pub type ApiResult = Result<Response<Bytes>>;
pub type Handler = for<'a> fn(&'a App, &'a Principal, &'a ApiRequest) -> ResponseFuture<'a>;
pub type ProgressHandler =
    for<'a> fn(
        &'a App,
        &'a Principal,
        &'a ApiRequest,
    ) -> Pin<Box<dyn Future<Output = Result<ProgressStream>> + Send + 'a>>;
type ResponseFuture<'a> = Pin<Box<dyn Future<Output = ApiResult> + Send + 'a>>;

#[derive(Clone)]
pub struct Route {
    pub method: Method,
    /// Path pattern: `{name}` matches one segment, `{name...}` at the end one or more. Also the
    /// `route` label of metrics.
    pub path: &'static str,
    pub policy: Policy,
    pub responder: Responder,
}

/// The values of a pattern's `{…}`, in order, still percent-encoded. Part of the extensions of a
/// handler's request.
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

/// Part of the extensions of a handler's request.
#[derive(Clone, Debug, Default)]
pub struct ClientOrigin {
    /// Address of the client, with `X-Forwarded-For` of trusted proxies applied.
    pub address: Option<IpAddr>,
    /// Whether the address is reliable: no untrusted proxy forwarded the request, and the address
    /// is not that of a trusted proxy.
    pub proven: bool,
    /// Whether the client uses https.
    pub secure: bool,
    /// Address of the listener that accepted the connection.
    pub listener: Option<SocketAddr>,
}
