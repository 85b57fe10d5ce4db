//! One attempt at one target: its address, the head and body that its provider gets, what of the provider's head
//! the client gets, and the rule that decides whether the next target is tried.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALT_SVC, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH,
    CONTENT_TYPE, HOST, PROXY_AUTHENTICATE, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::response::Parts as ResponseParts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use log::warn;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorSource, ErrorType, Result};

use super::call::Call;
use super::failure::{
    BAD_STATUS, CUT, Failure, IN_BAND, NO_FIRST_CONTENT, OVER_TIME, TOO_LARGE, fault,
};
use super::reach::Reach;
use super::relay::is_event_stream;
use super::reply;
use super::resolve::Unresolved;
use super::under_way::UnderWay;
use crate::app::App;
use crate::protocol::anthropic;
use crate::routing::provider::{Protocol, Provider};
use crate::secret::{Mask, Secret};
use crate::store::PanicPoint;

/// Headers of the client that providers see, besides what the protocol itself needs.
static FORWARDED: [HeaderName; 3] = [
    HeaderName::from_static("openai-beta"),
    ANTHROPIC_VERSION,
    HeaderName::from_static("anthropic-beta"),
];

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Of a client's headers those that providers see.
pub(super) fn forwarded(headers: &HeaderMap) -> HeaderMap {
    FORWARDED
        .iter()
        .flat_map(|name| {
            headers.get_all(name).iter().map(move |value| (name.clone(), value.clone()))
        })
        .collect()
}

/// Headers of a provider's answer that stay with us: they speak of its connection, of a proxy before it, of what browsers do for
/// its host, or of whose account we have there.
static KEPT_BACK: [HeaderName; 16] = [
    SET_COOKIE,
    ALT_SVC,
    STRICT_TRANSPORT_SECURITY,
    TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-authentication-info"),
    UPGRADE,
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("timing-allow-origin"),
    HeaderName::from_static("openai-organization"),
    HeaderName::from_static("openai-project"),
    HeaderName::from_static("anthropic-organization-id"),
];

/// How Anthropic's API calls its id of a request.
pub(super) static ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// The provider's own id of the request, beside ours.
static UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-rerouter-upstream-request-id");

/// The address of the attempt's target, with every timeout set: Pingora has none by default.
pub(super) async fn peer(app: &Arc<App>, reach: &Reach, call: &Arc<Call>) -> Result<Box<HttpPeer>> {
    let target = call
        .begin_attempt()
        .ok_or_else(|| Error::explain(ErrorType::InternalError, "the plan is used up"))?;
    if let Err(barred) = call.admit(app, &target) {
        let mut error = Error::explain(ErrorType::ConnectError, "no permit").into_up();
        error.set_retry(call.attempt_failed(barred, false));
        return Err(error);
    }
    call.faults.pass(PanicPoint::Attempt);
    let found = reach.peer(&target.provider).await.map(Box::new);
    found.map_err(|why| unresolved(call, &target.provider.name, &why))
}

fn unresolved(call: &Call, provider: &str, why: &Unresolved) -> Box<Error> {
    warn!("provider {provider}: no address to connect to: {why:?}");
    let mut error = Error::explain(ErrorType::ConnectError, "no address").into_up();
    error.set_retry(call.attempt_failed(Failure::Connect, false));
    error
}

/// Replaces the head that goes to the provider: nothing of the client's but what [`FORWARDED`] names. Gives the body that fits it.
pub(super) fn write_head(call: &Call, head: &mut RequestHeader) -> Result<Bytes> {
    let target = call
        .target()
        .ok_or_else(|| Error::explain(ErrorType::InternalError, "the plan is used up"))?;
    let provider = &target.provider;
    let base = &provider.base;
    let body = call.body_for(&target);
    let (mut fresh, ()) = http::Request::new(()).into_parts();
    fresh.method = Method::POST;
    // As Pingora's connection to the provider has it.
    fresh.version = head.version;
    // Every provider of a plan speaks the dialect of the request, and so of its query.
    fresh.uri = value(Uri::try_from(base.target(call.endpoint, call.query.as_deref())))?;
    // The map itself: Pingora's own insertion reads each name anew, to keep its case.
    let headers = &mut fresh.headers;
    headers.reserve(16);
    headers.insert(HOST, value(HeaderValue::try_from(base.authority()))?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    // Bytes are relayed as they come, so they must come as they are.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("rerouter/", env!("CARGO_PKG_VERSION"))),
    );
    for (name, value) in &call.forward {
        headers.append(name.clone(), value.clone());
    }
    let state = call.state();
    credit(headers, provider, state.in_flight.as_ref().and_then(UnderWay::key))?;
    drop(state);
    *head = RequestHeader::from(fresh);
    Ok(body)
}

/// Adds what a provider is to know us by.
pub(super) fn credit(
    headers: &mut HeaderMap,
    provider: &Provider,
    key: Option<&Secret>,
) -> Result<()> {
    match (provider.protocol, key) {
        (Protocol::Anthropic, key) => {
            headers
                .entry(&ANTHROPIC_VERSION)
                .or_insert(HeaderValue::from_static(anthropic::VERSION));
            if let Some(key) = key {
                headers.insert(provider.protocol.key_header(), sensitive(key.expose())?);
            }
        }
        (_, Some(key)) => {
            drop(headers.insert(AUTHORIZATION, sensitive(&format!("Bearer {}", key.expose()))?))
        }
        (_, None) => {}
    }
    for (name, value) in &provider.headers {
        headers.insert(name.clone(), value.clone());
    }
    Ok(())
}

/// What the document's checks let through can be written as a header or a path; should it not, the attempt fails.
pub(super) fn value<T, E>(made: std::result::Result<T, E>) -> Result<T> {
    made.map_err(|_| {
        Error::explain(ErrorType::InternalError, "a provider's head cannot be written")
    })
}

fn sensitive(credential: &str) -> Result<HeaderValue> {
    let mut value = value(HeaderValue::try_from(credential))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Makes a provider's head ours: connection matters leave, our headers join, event streams lose their length.
pub(super) fn read_head(call: &Call, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    call.faults.pass(PanicPoint::Head);
    let mut parts = ResponseParts::from(std::mem::replace(
        head,
        ResponseHeader::build_no_case(head.status, Some(0))?,
    ));
    // The version speaks of one connection (RFC 9110 section 2.5); a client of HTTP/1.1 would close after an answer of 1.0.
    parts.version = Version::HTTP_11;
    let headers = &mut parts.headers;
    settle_framing(headers)?;
    if let Some(target) = call.target() {
        cover(headers, &target.provider.known_by);
    }
    headers.reserve(reply::CALL_HEADERS);
    // Ours stand in the place of theirs.
    let upstream_id =
        headers.get(&reply::REQUEST_ID).cloned().or_else(|| headers.remove(&ANTHROPIC_REQUEST_ID));
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in &KEPT_BACK {
        headers.remove(name);
    }
    // The first are ours to say. The others would let pages of other origins read what is answered here.
    let not_theirs = |name: &&HeaderName| {
        ["x-rerouter-", "access-control-"].iter().any(|start| name.as_str().starts_with(start))
    };
    let not_theirs: Vec<HeaderName> = headers.keys().filter(not_theirs).cloned().collect();
    for name in not_theirs {
        headers.remove(name);
    }
    if is_event_stream(headers) {
        // An error event may have to follow what the provider announced as the end.
        headers.remove(CONTENT_LENGTH);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    }
    reply::name_call(call, true, headers);
    if let Some(id) = upstream_id {
        headers.insert(&UPSTREAM_REQUEST_ID, id);
    }
    *head = ResponseHeader::from(parts);
    Ok(())
}

/// Sees to it that every reader finds the same end of a body: the only coding is `chunked`, named once, and a length that was
/// said more than once is said once. Lengths that differ the engine has refused.
fn settle_framing(headers: &mut HeaderMap) -> Result<()> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|coding| !is_chunked(coding)) || codings.next().is_some() {
        return Err(fault(CUT, true));
    }
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(()) };
    if lengths.next().is_some() || length.as_bytes().contains(&b',') {
        let first = length.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default();
        let once = value(HeaderValue::from_bytes(first.trim_ascii()))?;
        headers.insert(CONTENT_LENGTH, once);
    }
    Ok(())
}

/// Puts stars in the place of what a careless provider says back of what we showed it.
fn cover(headers: &mut HeaderMap, known_by: &Mask) {
    for value in headers.values_mut().filter(|value| known_by.matches(value.as_bytes())) {
        let covered = known_by.mask(Bytes::copy_from_slice(value.as_bytes()));
        // Stars can stand wherever other visible characters can.
        *value = HeaderValue::from_maybe_shared(covered).unwrap_or(HeaderValue::from_static("*"));
    }
}

/// The hop-by-hop headers of a message: `Connection` itself and what it names (RFC 9110 section 7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        // Pingora frames the message by these itself.
        .filter(|name| name != CONTENT_LENGTH && name != TRANSFER_ENCODING && name != CONNECTION)
        .collect();
    names.dedup();
    names
}

/// The retry rule: what the error means for this attempt, and whether Pingora's loop goes round again.
pub(super) fn failed(
    call: Option<&Call>,
    mut error: Box<Error>,
    known: Option<Failure>,
    reused: bool,
) -> Box<Error> {
    let Some(call) = call else { return error };
    if call.state().relay.has_said_all() {
        // All that went wrong is the framing, or the client did not wait for it: the answer is whole.
        error.set_retry(false);
        return error;
    }
    let failure = known.unwrap_or_else(|| classify(call, &error));
    let stale = reused && failure == Failure::Cut;
    let again = call.attempt_failed(failure, stale);
    if failure != Failure::ClientGone {
        // A deadline of ours reaches us as an error of the client's side; the provider is at fault.
        error.as_up();
    }
    error.set_retry(again);
    error
}

fn classify(call: &Call, error: &Error) -> Failure {
    match error.etype() {
        // What the status said holds, also when the rest of that answer never came.
        ErrorType::Custom(NO_FIRST_CONTENT | OVER_TIME) => {
            refused(call).unwrap_or(Failure::Timeout)
        }
        ErrorType::Custom(BAD_STATUS) => refused(call).unwrap_or(Failure::ServerError),
        ErrorType::Custom(IN_BAND) => Failure::InBand,
        ErrorType::Custom(CUT) => Failure::Cut,
        ErrorType::Custom(TOO_LARGE) => Failure::TooLarge,
        _ if *error.esource() == ErrorSource::Downstream => Failure::ClientGone,
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => {
            refused(call).unwrap_or(Failure::Timeout)
        }
        _ if *error.esource() == ErrorSource::Upstream => refused(call).unwrap_or(Failure::Cut),
        _ => Failure::Internal,
    }
}

/// The failure that the status of an uncommitted answer stands for.
fn refused(call: &Call) -> Option<Failure> {
    let state = call.state();
    if state.relay.committed { None } else { state.relay.refused() }
}
