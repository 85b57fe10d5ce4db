//! Who may call what. Every answer needs an [`Admission`], and only a caller that may use the route
//! gets one.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use jiff::Timestamp;
use pingora::protocols::http::ServerSession;

use super::exchange::HttpExchange;
use super::node_signature::NodeSignatures;
use rerouter_access::auth::{self, AgentCredential, Principal};
use rerouter_base::error::{Error, Kind, Result};
use rerouter_base::interface::Surface;
use rerouter_console as console;
use rerouter_core::api::{self, PathParams, Policy, Responder, Route, RouteMatch};
use rerouter_core::app::App;

/// `Retry-After` of a gateway without a lease: another gateway can answer at once.
const LEASE_RETRY: Duration = Duration::from_secs(1);
/// A credential is checked again if the body took longer than this to arrive.
const CREDENTIAL_AGE: Duration = Duration::from_millis(10);

pub(super) struct Admission {
    pub(super) route: &'static Route,
    pub(super) params: PathParams,
    pub(super) principal: Principal,
}

impl Admission {
    /// Checks everything that can refuse a request before its body is read: host, credential,
    /// route, origin and policy. The credential comes before the route, so that strangers do not
    /// learn which routes exist.
    pub(super) fn check(
        app: &App,
        exchange: &mut HttpExchange,
        session: &ServerSession,
    ) -> Result<Self> {
        let headers = &session.req_header().headers;
        let listener = session.server_addr().and_then(|address| address.as_inet()).copied();
        if !app.server.accepts_host(&exchange.authority, listener) {
            let why = "This host is not served here: see `hosts` of the server document.";
            return Err(Error::new(Kind::MisdirectedRequest, why));
        }
        let found = match app.server.serves(listener, exchange.surface.interface(), &exchange.path)
        {
            true => match api::find(&exchange.method, &exchange.path) {
                RouteMatch::Unknown => console::find(app, &exchange.method, &exchange.path),
                found => found,
            },
            false => RouteMatch::Unknown,
        };
        if let RouteMatch::Route(route, _) = &found {
            exchange.route = route.path;
        }
        let open = match &found {
            RouteMatch::Route(route, _) => route.policy.is_open(),
            // A 404 outside /v1 needs no credential: there is nothing to hide.
            _ => exchange.path != "/v1" && !exchange.path.starts_with("/v1/"),
        };
        if !answers_always(&found, open) {
            has_lease(app)?;
        }
        let principal = if open { Principal::Anonymous } else { identify(app, exchange, session)? };
        exchange.principal(&principal);
        let (route, params) = match found {
            RouteMatch::Route(route, params) => (route, params),
            RouteMatch::WrongMethod(error) => return Err(error),
            RouteMatch::Unknown => return Err(unknown_path(exchange)),
        };
        exchange.is_uncounted = matches!(route.responder, Responder::Inference(_));
        if !auth::has_explicit_credential(headers, exchange.surface) {
            // A browser sends a cookie, or nothing, by itself: neither proves who wrote the
            // request.
            auth::check_origin(&exchange.method, headers, &exchange.origin())?;
        }
        if route.policy == Policy::Registration {
            api::pin::may_register(app)?;
        }
        let reads = matches!(route.method, Method::GET);
        if app.is_handed_over() && !reads && !matches!(route.responder, Responder::Inference(_)) {
            let why = "A new process has taken over. Try again: this connection closes.";
            return Err(Error::new(Kind::Unavailable, why).retry_after(LEASE_RETRY));
        }
        api::may_call(route, &principal)?;
        Ok(Admission { route, params, principal })
    }

    pub(super) fn request(
        &self,
        session: &ServerSession,
        exchange: &HttpExchange,
        body: Bytes,
    ) -> Request<Bytes> {
        let head = session.req_header();
        let mut request = Request::new(body);
        *request.method_mut() = exchange.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.headers_mut() = head.headers.clone();
        request.extensions_mut().insert(self.params.clone());
        request.extensions_mut().insert(exchange.client.clone());
        request.extensions_mut().insert(exchange.id.clone());
        request
    }

    /// Whether a credential names the caller.
    pub(super) fn is_known(&self) -> bool {
        !matches!(
            self.principal,
            Principal::Anonymous | Principal::AgentTenant { via: AgentCredential::Open }
        )
    }

    /// Whether a connection with only a reserve slot may answer the request: health and version for
    /// everyone, and calls of a known caller that need no provider.
    pub(super) fn fits_reserve(&self, bodiless: bool) -> bool {
        match self.route.responder {
            Responder::Inference(_) | Responder::Reroute => false,
            Responder::Direct(..) | Responder::Progress(..) => {
                self.is_known() || (bodiless && matches!(self.route.path, "/health" | "/version"))
            }
        }
    }

    /// Checks credential and policy again if the body took long to arrive, so that a key that was
    /// revoked meanwhile is refused. Returns the caller as the check now finds it.
    pub(super) async fn recheck(
        &self,
        app: &App,
        exchange: &HttpExchange,
        session: &ServerSession,
    ) -> Result<Cow<'_, Principal>> {
        let unchanged = Cow::Borrowed(&self.principal);
        if matches!(self.principal, Principal::Anonymous)
            || exchange.started.elapsed() < CREDENTIAL_AGE
        {
            return Ok(unchanged);
        }
        app.catch_up().await?;
        has_lease(app)?;
        if let Principal::Node { id, signed } = &self.principal {
            let known = app.nodes.takes(id, signed.generation, app.clock.now());
            return match known {
                true => Ok(unchanged),
                false => Err(NodeSignatures { app }.no_node("key")),
            };
        }
        let fresh = by_credential(app, exchange, session, app.clock.now())?;
        api::may_call(self.route, &fresh)?;
        Ok(Cow::Owned(fresh))
    }
}

/// Whether a request needs neither key tables nor store: health, version, a path outside `/v1`.
fn answers_always(found: &RouteMatch, open: bool) -> bool {
    match found {
        RouteMatch::Route(route, _) => route.policy == Policy::Open && route.method == Method::GET,
        _ => open,
    }
}

/// Returns 503 without a valid lease: another gateway may have made changes that this gateway's
/// tables lack.
pub(super) fn has_lease(app: &App) -> Result<()> {
    if app.authority.is_valid() {
        return Ok(());
    }
    let why = match app.authority.is_refused() {
        true => "This gateway has no lease: another one runs on its data directory, or on a copy.",
        false => "This gateway has no lease: it cannot reach the database of keys. Try again.",
    };
    Err(Error::new(Kind::Unavailable, why).retry_after(LEASE_RETRY))
}

fn identify(app: &App, exchange: &mut HttpExchange, session: &ServerSession) -> Result<Principal> {
    match exchange.surface {
        Surface::NodeCallback => NodeSignatures { app }.identify_node(exchange, session),
        _ => by_credential(app, exchange, session, exchange.at),
    }
}

fn by_credential(
    app: &App,
    exchange: &HttpExchange,
    session: &ServerSession,
    now: Timestamp,
) -> Result<Principal> {
    let headers = &session.req_header().headers;
    let identified = app.auth.identify(headers, exchange.surface, exchange.client.secure, now);
    identified.map_err(|refused| {
        let labels = [exchange.surface.interface().as_str(), refused.reason];
        app.metrics.request.auth_failures.with_label_values(&labels).inc();
        refused.into()
    })
}

fn unknown_path(exchange: &HttpExchange) -> Error {
    if exchange.surface.is_data_plane() {
        return Error::new(
            Kind::NotFound,
            format!("This path is not served. Served are: {}.", api::served_inference()),
        );
    }
    // The client may have a base URL without `/v1`. Which paths serve inference is no secret.
    let meant = format!("/v1{}", exchange.path);
    let is_meant = Surface::of(&meant).is_data_plane()
        && !matches!(api::find(&exchange.method, &meant), RouteMatch::Unknown);
    match is_meant {
        true => Error::new(Kind::NotFound, format!("No such path. Did you mean {meant}?")),
        false => Error::not_found("path"),
    }
}
