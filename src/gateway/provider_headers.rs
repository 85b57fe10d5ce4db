//! The heads of an attempt: the request head that a provider gets, and the provider's answer head
//! as the client gets it.

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALT_SVC, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH,
    CONTENT_TYPE, HOST, PROXY_AUTHENTICATE, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::response::Parts as ResponseParts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType, Result};

use super::allowance;
use super::answer_filter::mask_headers;
use super::call::InferenceCall;
use super::content_type::is_event_stream;
use super::failure::{CUT, fault};
use super::plan::ANTHROPIC_VERSION;
use super::reply::{ANTHROPIC_REQUEST_ID, REQUEST_ID};
use crate::protocol::anthropic;
use crate::routing::{Protocol, Provider, Target};
use crate::secret::Secret;
use crate::store::PanicPoint;

/// Headers of a provider's answer that are not passed on: they concern its connection, a proxy in
/// front of it, browsers of its host, or the operator's account.
static DROPPED: [HeaderName; 16] = [
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

/// The provider's own id of the request.
static UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-rerouter-upstream-request-id");
static PROVIDER: HeaderName = HeaderName::from_static("x-rerouter-provider");
static MODEL: HeaderName = HeaderName::from_static("x-rerouter-model");
static RECIPE: HeaderName = HeaderName::from_static("x-rerouter-recipe");
static RULE: HeaderName = HeaderName::from_static("x-rerouter-rule");
static REVISION: HeaderName = HeaderName::from_static("x-rerouter-revision");
static ATTEMPTS: HeaderName = HeaderName::from_static("x-rerouter-attempts");

/// The most headers that [`name_call`] adds.
const CALL_HEADERS: usize = 20;

/// Adds our headers to an answer of the data plane: request id, decision, number of attempts, and
/// the target that answers, if one does.
pub(super) fn name_call(
    call: &InferenceCall,
    attempts: usize,
    target: Option<&Target>,
    headers: &mut HeaderMap,
) {
    allowance::name_rates(&call.rates, headers);
    headers.insert(&REQUEST_ID, text(call.id.as_str()));
    if call.request.endpoint.is_anthropic() {
        headers.insert(&ANTHROPIC_REQUEST_ID, text(call.id.as_str()));
    }
    headers.insert(&RECIPE, text(&call.plan.decision.recipe));
    if let Some((_, rule)) = &call.plan.rule {
        headers.insert(&RULE, rule.clone());
    }
    headers.insert(&REVISION, text(call.plan.live.routing.revision()));
    headers.insert(&ATTEMPTS, HeaderValue::from(attempts));
    if let Some(target) = target {
        headers.insert(&PROVIDER, text(&target.provider.name));
        headers.insert(&MODEL, text(&target.model));
    }
}

fn text(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static("unprintable"))
}

/// Writes the request head for the provider and gives the body that belongs to it. Of the client's
/// headers only those of [`forwarded`](super::plan::forwarded) are in it.
pub(super) fn write_request(call: &InferenceCall, head: &mut RequestHeader) -> Result<Bytes> {
    let target = call
        .target()
        .ok_or_else(|| Error::explain(ErrorType::InternalError, "the plan is used up"))?;
    let provider = &target.provider;
    let base = &provider.base;
    let body = call.request.body_for(&target);
    let (mut fresh, ()) = http::Request::new(()).into_parts();
    fresh.method = Method::POST;
    // The version of Pingora's connection to the provider.
    fresh.version = head.version;
    // All providers of a plan take the query, as they speak the dialect of the request.
    fresh.uri =
        value(Uri::try_from(base.target(call.request.endpoint, call.request.query.as_deref())))?;
    // The map itself: Pingora's own insertion parses each name again, to keep its case.
    let headers = &mut fresh.headers;
    headers.reserve(16);
    headers.insert(HOST, value(HeaderValue::try_from(base.authority()))?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    // Bytes are relayed as they come, so they must not be compressed.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("rerouter/", env!("CARGO_PKG_VERSION"))),
    );
    for (name, value) in &call.request.headers {
        headers.append(name.clone(), value.clone());
    }
    call.with_key(|key| add_credential(headers, provider, key))?;
    *head = RequestHeader::from(fresh);
    Ok(body)
}

/// Adds our credential and the configured headers of a provider.
pub(super) fn add_credential(
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

/// A header or path of the routing document. The checks of the document see to it that it can be
/// written; if it cannot, the attempt fails.
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

/// Turns a provider's answer head into ours: hop-by-hop headers go, our headers join, event streams
/// lose their length.
pub(super) fn rewrite_answer(call: &InferenceCall, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    call.app.store.faults().pass(PanicPoint::Head);
    let mut parts = ResponseParts::from(std::mem::replace(
        head,
        ResponseHeader::build_no_case(head.status, Some(0))?,
    ));
    // The version concerns the provider's connection (RFC 9110 section 2.5). A client of HTTP/1.1
    // would close its own after an answer of 1.0.
    parts.version = Version::HTTP_11;
    let headers = &mut parts.headers;
    settle_framing(headers)?;
    let target = call.target();
    if let Some(target) = &target {
        mask_headers(headers, &target.provider.known_by);
    }
    headers.reserve(CALL_HEADERS);
    // Ours replaces it.
    let upstream_id =
        headers.get(&REQUEST_ID).cloned().or_else(|| headers.remove(&ANTHROPIC_REQUEST_ID));
    for name in named_by_connection(headers) {
        headers.remove(name);
    }
    for name in &DROPPED {
        headers.remove(name);
    }
    // The first are ours. The others would let pages of other origins read our answers.
    let not_theirs = |name: &&HeaderName| {
        ["x-rerouter-", "access-control-"].iter().any(|start| name.as_str().starts_with(start))
    };
    let not_theirs: Vec<HeaderName> = headers.keys().filter(not_theirs).cloned().collect();
    for name in not_theirs {
        headers.remove(name);
    }
    if is_event_stream(headers) {
        // An error event may have to follow the end that the provider announced.
        headers.remove(CONTENT_LENGTH);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    }
    let attempts = call.progress().attempts.len() + 1;
    name_call(call, attempts, target.as_deref(), headers);
    if let Some(id) = upstream_id {
        headers.insert(&UPSTREAM_REQUEST_ID, id);
    }
    *head = ResponseHeader::from(parts);
    Ok(())
}

/// Makes the framing unambiguous: the only transfer coding is `chunked`, named once, and a repeated
/// length is written once. Pingora has refused lengths that differ.
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

/// The hop-by-hop headers of a message: `Connection` itself and what it names (RFC 9110 section
/// 7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        // Pingora uses these for framing.
        .filter(|name| name != CONTENT_LENGTH && name != TRANSFER_ENCODING && name != CONNECTION)
        .collect();
    names.dedup();
    names
}
