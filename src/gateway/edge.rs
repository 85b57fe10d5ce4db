//! The edge application: one request after another on a connection, in plain async code. Head under its deadline,
//! gate, route, credential, policy; then a handler of `api/`, or the data plane; then keep or close the connection.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Request, Response, header};
use jiff::Timestamp;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use pingora_proxy::HttpProxy;

use super::admission::Admission;
use super::door::{self, Serves};
use super::exchange::Exchange;
use super::intake::{self, Pace};
use super::{Gateway, allowance, gate, head, inference, panicked, reply, reroute, slow};
use crate::api::{self, Answer, Found, Policy, Takes};
use crate::app::App;
use crate::auth::{self, Principal};
use crate::body_memory::{BodyClass, Held};
use crate::bounds;
use crate::error::{Error, Kind, Result};
use crate::interface::Surface;
use crate::repeats::Repeats;
use crate::store::FaultPlace;

/// The application that every listener of the gateway runs.
pub struct Edge {
    pub(super) app: Arc<App>,
    pub(super) proxy: Arc<HttpProxy<Gateway>>,
    pub(super) repeats: Repeats<reroute::Told>,
}

/// How a request ended: what was sent, and whether the connection may be used again.
pub(super) struct Ended {
    pub(super) status: u16,
    pub(super) sent: usize,
    pub(super) reusable: bool,
}

impl Ended {
    /// For when there is no session: the engine did not give it back.
    pub(super) const GONE: Ended = Ended { status: 500, sent: 0, reusable: false };
}

impl Edge {
    /// The edge around the proxy whose hooks are [`Gateway`]'s.
    pub fn new(app: Arc<App>, proxy: Arc<HttpProxy<Gateway>>) -> Self {
        Edge { app, proxy, repeats: Repeats::new("capture") }
    }

    /// What forgets the answers of reroutes that are too old to be told again, each time that it is called.
    pub fn sweeper(&self) -> Box<dyn Fn(Timestamp) + Send + Sync> {
        let repeats = self.repeats.clone();
        Box::new(move |now| repeats.sweep(now))
    }

    /// One request whose head has been read. Its session stays in its `place`, but for as long as the engine has it.
    async fn request(
        &self,
        place: &mut Option<Box<ServerSession>>,
        exchange: &mut Exchange,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> Ended {
        let Some(session) = place.as_deref_mut() else { return Ended::GONE };
        let raw = session.as_http1().map(|http1| http1.get_headers_raw_bytes());
        if let Err(error) = gate::check(session.req_header(), raw.as_deref()) {
            // The framing itself is in doubt: nothing after this head can be trusted.
            return refuse(session, exchange, error, false).await;
        }
        let mut admitted = self.admit(exchange, session);
        if let Some((node, signed)) = exchange.signed.take()
            && let Err(error) = Box::pin(self.spend(
                node,
                &signed,
                admitted.as_ref().map_or("", |admission| admission.route().path),
            ))
            .await
        {
            // Whatever else is wrong with the request: what was sent twice is nobody's.
            admitted = Err(error);
        }
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return refuse(session, exchange, error, true).await,
        };
        exchange.principal(admitted.principal());
        if standby {
            exchange.hurried = !admitted.is_known();
            if !admitted.without_a_place(session.is_body_empty()) {
                let error =
                    Error::new(Kind::Unavailable, "There are too many connections; try again.");
                return turn_away(session, exchange, &error.retry_after(bounds::LIMIT_RETRY)).await;
            }
        }
        self.app.store.faults().pass(FaultPlace::Entry);
        match admitted.route().answer {
            Answer::Inference(endpoint) => {
                inference::run(self, place, exchange, endpoint, &admitted, shutdown).await
            }
            // Boxed, so that the future of an inference call, which is allocated and moved, has no room for theirs.
            Answer::Here(handler, takes) => {
                Box::pin(self.handle(session, exchange, (handler, takes), &admitted)).await
            }
            Answer::Slow(handler, takes) => {
                Box::pin(slow::run(self, session, exchange, (handler, takes), &admitted)).await
            }
            Answer::Reroute => {
                Box::pin(reroute::run(self, session, exchange, &admitted, shutdown)).await
            }
        }
    }

    /// Everything that can be refused before the body is read, in the order of the contract.
    fn admit(&self, exchange: &mut Exchange, session: &ServerSession) -> Result<Admission> {
        let headers = &session.req_header().headers;
        let listener = session.server_addr().and_then(|address| address.as_inet()).copied();
        if !self.app.server.accepts_host(&exchange.authority, listener) {
            return Err(Error::new(Kind::MisdirectedRequest, "This host is not served here."));
        }
        let found =
            match self.app.server.serves(listener, exchange.surface.interface(), &exchange.path) {
                true => api::find(&exchange.method, &exchange.path),
                false => Found::Nothing,
            };
        if let Found::Route(route, _) = &found {
            exchange.route = route.path;
        }
        let open = match &found {
            Found::Route(route, _) => route.policy.is_open(),
            // Outside /v1 there is nothing to protect by hiding it.
            _ => exchange.path != "/v1" && !exchange.path.starts_with("/v1/"),
        };
        let principal = if open { Principal::Anonymous } else { self.identify(exchange, session)? };
        let (route, params) = match found {
            Found::Route(route, params) => (route, params),
            Found::WrongMethod(error) => return Err(error),
            Found::Nothing => return Err(unknown_path(exchange.surface)),
        };
        if !shows_a_credential(headers, exchange.surface) {
            // What a browser adds by itself, a cookie or nothing, proves nothing about who wrote the request.
            auth::browser_allows(&exchange.method, headers, &exchange.origin())?;
        }
        if route.policy == Policy::Registration {
            api::pin::may_register(&self.app)?;
        }
        Admission::of(route, params, principal)
    }

    fn identify(&self, exchange: &mut Exchange, session: &ServerSession) -> Result<Principal> {
        self.app.store.check().map_err(Error::store_unavailable)?;
        if exchange.surface == Surface::NodeCallback {
            return self.identify_node(exchange, session);
        }
        let headers = &session.req_header().headers;
        self.app
            .auth
            .identify(headers, exchange.surface, exchange.client.secure, exchange.at)
            .map_err(|refused| {
                self.app
                    .metrics
                    .auth_failure(exchange.surface.interface().as_str(), refused.reason);
                refused.into()
            })
    }

    /// Looks at the credential and the policy once more when the body was long in coming: what was revoked meanwhile does
    /// nothing, and who may do less does no more than that. Gives the principal to go on with, where it is another look at it.
    pub(super) fn still_good(
        &self,
        exchange: &Exchange,
        session: &ServerSession,
        admitted: &Admission,
    ) -> Result<Option<Principal>> {
        let principal = admitted.principal();
        if matches!(principal, Principal::Anonymous)
            || exchange.started.elapsed() < bounds::CREDENTIAL_AGE
        {
            return Ok(None);
        }
        self.app.store.check().map_err(Error::store_unavailable)?;
        if let Principal::Node { id, signed } = principal {
            let taken = self.app.nodes.takes(id, signed.generation, self.app.clock.now());
            return if taken { Ok(None) } else { Err(self.no_node("key")) };
        }
        let headers = &session.req_header().headers;
        let again = self.app.auth.identify(
            headers,
            exchange.surface,
            exchange.client.secure,
            self.app.clock.now(),
        );
        let fresh = again.map_err(|refused| -> Error {
            self.app.metrics.auth_failure(exchange.surface.interface().as_str(), refused.reason);
            refused.into()
        })?;
        admitted.again(fresh).map(Some)
    }

    /// A handler of `api/`: its body within the management bound, its answer written whole.
    async fn handle(
        &self,
        session: &mut ServerSession,
        exchange: &mut Exchange,
        (handler, takes): (api::Handler, Takes),
        admitted: &Admission,
    ) -> Ended {
        if matches!(takes, Takes::Prompt)
            && intake::costs_work(session)
            && let Err(error) = allowance::look(&self.app, exchange, admitted.principal(), false)
        {
            return refuse(session, exchange, error, true).await;
        }
        let mut held = self.app.body_memory.begin(BodyClass::Management);
        let body = match self.management_body(session, takes, &mut held).await {
            Ok(body) => body,
            Err(error) => {
                let framed = error.kind() == Kind::UnsupportedMediaType;
                return refuse(session, exchange, error, framed).await;
            }
        };
        let fresh = match self.still_good(exchange, session, admitted) {
            Ok(fresh) => fresh,
            Err(error) => return refuse(session, exchange, error, true).await,
        };
        let principal = fresh.as_ref().unwrap_or(admitted.principal());
        exchange.line.bytes_in = body.len() as u64;
        if let Principal::Node { signed, .. } = principal
            && !signed.covers(&body)
        {
            return refuse(session, exchange, self.no_node("digest"), true).await;
        }
        let request = for_handler(session, exchange, admitted, body);
        let answering = async {
            self.app.store.faults().pass(FaultPlace::Handler);
            handler(&self.app, principal, &request).await
        };
        // A mistake of ours in one call is that call's end, and not its connection's. What it held is dropped, locks included.
        let answered = AssertUnwindSafe(answering).catch_unwind().await.unwrap_or_else(|_| {
            self.app.metrics.panic();
            Err(panicked::error())
        });
        drop((request, held));
        match answered {
            Ok(response) => answer(session, exchange, response, true).await,
            Err(error) => refuse(session, exchange, error, true).await,
        }
    }

    pub(super) async fn management_body(
        &self,
        session: &mut ServerSession,
        takes: Takes,
        held: &mut Held,
    ) -> Result<Bytes> {
        let headers = &session.req_header().headers;
        if headers.contains_key(header::CONTENT_ENCODING) {
            return Err(Error::new(
                Kind::UnsupportedMediaType,
                "Management calls take no compressed bodies.",
            )
            .accepting("identity"));
        }
        let kind =
            headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_ascii_lowercase());
        let limit = match takes {
            Takes::Json | Takes::Patch => bounds::MANAGEMENT_BODY,
            Takes::Events => bounds::NODE_EVENTS_BODY,
            Takes::Document => bounds::DOCUMENT_BYTES,
            Takes::Evaluation => bounds::EVALUATE_BODY,
            Takes::Lines => bounds::IMPORT_BODY,
            Takes::Prompt => self.app.server.limits.request_body,
        };
        let body = intake::read_body(session, limit, self.pace(), held).await?;
        let kind = kind
            .as_deref()
            .map(|kind| kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii());
        if !body.is_empty() && !takes.types().iter().any(|taken| Some(taken.as_bytes()) == kind) {
            return Err(Error::new(
                Kind::UnsupportedMediaType,
                format!("The body must be {}.", takes.types().join(" or ")),
            ));
        }
        Ok(body)
    }

    pub(super) fn pace(&self) -> Pace {
        let limits = &self.app.server.limits;
        Pace { min_rate: limits.body_min_rate, grace: limits.header_timeout }
    }
}

#[async_trait]
impl Serves for Edge {
    async fn serve(
        &self,
        mut session: Box<ServerSession>,
        standby: bool,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        // From here on a request is under way, and a drain waits for it.
        let _busy = self.app.begin_request();
        if session.get_keepalive().is_some() {
            // Pingora has just made it infinite; a draining gateway offers none, nor a connection that has no place.
            let keep = !standby && !*shutdown.borrow();
            session.set_keepalive(keep.then_some(bounds::KEEP_ALIVE.as_secs()));
        }
        session.set_read_timeout(Some(bounds::BODY_SILENCE));
        session.set_write_timeout(Some(bounds::KEEP_ALIVE));
        let mut exchange = Box::new(Exchange::open(&self.app, &session));
        exchange.hurried = standby;
        let mut place = Some(session);
        let serving = AssertUnwindSafe(self.request(&mut place, &mut exchange, standby, shutdown))
            .catch_unwind()
            .await;
        let ended = match (serving, place.as_deref_mut()) {
            (Ok(ended), _) => ended,
            (Err(_), Some(session)) => {
                Box::pin(panicked::end(&self.app, session, &mut exchange)).await.0
            }
            (Err(_), None) => {
                self.app.metrics.panic();
                Ended::GONE
            }
        };
        exchange.close(&self.app, ended.status, ended.sent);
        door::finish(place?, ended.reusable && !standby).await
    }

    async fn refuse(&self, session: &mut ServerSession, came: &[u8], error: Error) {
        let surface = surface_of_first(came);
        let mut exchange = Box::new(Exchange::unread(&self.app, session, surface));
        exchange.refused(&error);
        let mut response = reply::error(surface, exchange.id.as_str(), &error);
        name_request(&exchange, &mut response);
        reply::write_unparsed(session, response).await;
        exchange.close(&self.app, error.status().as_u16(), 0);
    }
}

/// Writes an error in its envelope. `framed` says that the request itself was well framed: then its unread body is
/// drained and the connection kept, where that costs little.
pub(super) async fn refuse(
    session: &mut ServerSession,
    exchange: &mut Exchange,
    error: Error,
    framed: bool,
) -> Ended {
    exchange.refused(&error);
    let response = reply::error(exchange.surface, exchange.id.as_str(), &error);
    answer(session, exchange, response, framed).await
}

/// Refuses for want of a place. That is in the log once a minute, and not once a request.
async fn turn_away(session: &mut ServerSession, exchange: &mut Exchange, error: &Error) -> Ended {
    exchange.line.error = Some(error.kind().row().word.to_string());
    let response = reply::error(exchange.surface, exchange.id.as_str(), error);
    answer(session, exchange, response, false).await
}

/// Writes a whole answer of ours.
pub(super) async fn answer(
    session: &mut ServerSession,
    exchange: &mut Exchange,
    mut response: Response<Bytes>,
    framed: bool,
) -> Ended {
    name_request(exchange, &mut response);
    let status = response.status().as_u16();
    let keep = framed && !exchange.hurried && intake::drain(session).await;
    match reply::write(session, response, keep).await {
        Ok(sent) => {
            if !keep && !exchange.hurried && !session.is_body_done() {
                intake::discard(session, bounds::DISCARD_BYTES).await;
            }
            Ended { status, sent, reusable: keep }
        }
        Err(_) => Ended { status, sent: 0, reusable: false },
    }
}

/// A request as handlers of `api/` take it, with what they find in its extensions.
pub(super) fn for_handler(
    session: &ServerSession,
    exchange: &Exchange,
    admitted: &Admission,
    body: Bytes,
) -> Request<Bytes> {
    let mut request = Request::new(body);
    *request.method_mut() = exchange.method.clone();
    *request.uri_mut() = session.req_header().uri.clone();
    *request.headers_mut() = session.req_header().headers.clone();
    request.extensions_mut().insert(admitted.params().clone());
    request.extensions_mut().insert(exchange.client.clone());
    request.extensions_mut().insert(exchange.id.clone());
    request
}

/// Our id of the request on every answer, and what is left of the caller's rates.
pub(super) fn name_request(exchange: &Exchange, response: &mut Response<Bytes>) {
    allowance::name_rates(&exchange.rates, response.headers_mut());
    if let Ok(id) = http::HeaderValue::from_str(exchange.id.as_str()) {
        response.headers_mut().insert(&reply::REQUEST_ID, id.clone());
        if exchange.surface == Surface::Messages {
            response.headers_mut().insert("request-id", id);
        }
    }
}

fn unknown_path(surface: Surface) -> Error {
    if surface.is_data_plane() {
        return Error::new(
            Kind::NotFound,
            format!("This path is not served. Served are: {}.", api::served_inference()),
        );
    }
    Error::not_found("path")
}

/// Whether the request carries a credential that no browser adds by itself.
fn shows_a_credential(headers: &HeaderMap, surface: Surface) -> bool {
    auth::shows_authorization(headers)
        || surface == Surface::NodeCallback
        || (surface.is_data_plane()
            && (headers.contains_key("x-api-key") || headers.contains_key("api-key")))
}

/// The surface that a head would have been for, by as much of it as came.
fn surface_of_first(first: &[u8]) -> Surface {
    let target = head::first_line(first).split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let target = String::from_utf8_lossy(target);
    let path = target.split('?').next().unwrap_or_default();
    match path.split_once("://") {
        // Absolute form (RFC 9112 section 3.2.2): the path begins after the authority.
        Some((_, rest)) => Surface::of(rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/")),
        None => Surface::of(path),
    }
}
