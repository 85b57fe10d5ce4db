//! The heads of an attempt: the request head for the provider, and the provider's answer head as
//! the client gets it.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::response::Parts as ResponseParts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::{Error, ErrorType, Result};

use super::allowance;
use super::answer_filter::mask_headers;
use super::answer_translation::{AnswerPlan, DROPPED};
use super::answers::{ANTHROPIC_REQUEST_ID, REQUEST_ID};
use super::call::InferenceCall;
use super::content_type::{is_event_stream, is_plain};
use super::failure::{CUT, fault};
use super::plan::{SentRequest, TranslatedRequest};
use rerouter_dialect::endpoint::Endpoint;
use rerouter_dialect::protocol::Way;
use rerouter_routing::{Target, header_of};
use rerouter_store::PanicPoint;

static UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-rerouter-upstream-request-id");
static PROVIDER: HeaderName = HeaderName::from_static("x-rerouter-provider");
static MODEL: HeaderName = HeaderName::from_static("x-rerouter-model");
static RECIPE: HeaderName = HeaderName::from_static("x-rerouter-recipe");
static RULE: HeaderName = HeaderName::from_static("x-rerouter-rule");
static REVISION: HeaderName = HeaderName::from_static("x-rerouter-revision");
static ATTEMPTS: HeaderName = HeaderName::from_static("x-rerouter-attempts");
static BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The most headers that [`name_call`] adds, without the rate headers.
const CALL_HEADERS: usize = 9;

/// Whether the client gets this header of a provider's answer. The others concern the provider's
/// connection, a proxy in front of it, browsers of its host or the operator's account, or have
/// names that only the gateway sets.
fn is_passed_on(name: &str) -> bool {
    let is_dropped = matches!(
        name,
        "set-cookie"
            | "alt-svc"
            | "strict-transport-security"
            | "te"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authentication-info"
            | "upgrade"
            | "clear-site-data"
            | "nel"
            | "report-to"
            | "timing-allow-origin"
            | "openai-organization"
            | "openai-project"
            | "anthropic-organization-id"
    );
    // `access-control-` headers would let pages of other origins read our answers.
    !is_dropped && !name.starts_with("x-rerouter-") && !name.starts_with("access-control-")
}

/// Adds our headers to an answer of the data plane: request id, decision, number of attempts, and
/// the target that answers, if one does.
pub(super) fn name_call(
    call: &InferenceCall,
    attempts: usize,
    target: Option<&Target>,
    headers: &mut HeaderMap,
) {
    allowance::name_rates(&call.rates, headers);
    let id = header_of(call.id.as_str());
    if let Some(name) = call.request.endpoint.request_id_header() {
        headers.insert(name, id.clone());
    }
    headers.insert(&REQUEST_ID, id);
    headers.insert(&RECIPE, call.plan.recipe.clone());
    if let Some((_, rule)) = &call.plan.rule {
        headers.insert(&RULE, rule.clone());
    }
    headers.insert(&REVISION, call.plan.live.routing.shown_revision.clone());
    let attempts = match attempts {
        1 => HeaderValue::from_static("1"),
        more => HeaderValue::from(more),
    };
    headers.insert(&ATTEMPTS, attempts);
    if let Some(target) = target {
        headers.insert(&PROVIDER, target.provider.shown.clone());
        headers.insert(&MODEL, target.shown.clone());
    }
}

/// Writes the request head for the provider and returns the body that belongs to it. Of the
/// client's headers the head has only those of [`forwarded`](super::plan::forwarded).
pub(super) fn write_request(call: &InferenceCall, head: &mut RequestHeader) -> Result<Bytes> {
    let target = call
        .target()
        .ok_or_else(|| Error::explain(ErrorType::InternalError, "the plan is used up"))?;
    let made = written(target.provider.head.as_ref())?;
    let translated = match target.provider.way(call.request.endpoint) {
        Some(Way::Translated(dialect)) => Some(call.translate(&target, dialect)?),
        _ => None,
    };
    let is_native = translated.is_none();
    let (uri, body, more) = match translated {
        Some(TranslatedRequest { request_target, body, header }) => (request_target, body, header),
        None => {
            // Only a provider that speaks the dialect of the request gets its query.
            let SentRequest { endpoint, query, .. } = &call.request;
            let uri = written(endpoint_request_target(&target, *endpoint, query.as_deref()))?;
            (uri, call.request.body_for(&target), None)
        }
    };
    let (mut fresh, ()) = http::Request::new(()).into_parts();
    fresh.method = Method::POST;
    // The version that Pingora set for its connection to the provider.
    fresh.version = head.version;
    fresh.uri = uri;
    // The map is set directly: Pingora's own insertion parses each name again, to keep its case.
    fresh.headers = written(call.headers())?;
    let headers = &mut fresh.headers;
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    // The client's headers make sense only in its own dialect.
    for name in call.request.headers.keys().filter(|name| is_native && !made.sets(name)) {
        // The client's value replaces a default of ours.
        headers.remove(name);
        for value in call.request.headers.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    if let Some(trace) = &call.trace {
        trace.write(call.progress().attempts.len(), headers);
    }
    if let Some((name, value)) = more {
        headers.append(name, value);
    }
    *head = RequestHeader::from(fresh);
    Ok(body)
}

/// The request target (path and query) for an endpoint.
pub(super) fn endpoint_request_target(
    target: &Target,
    endpoint: Endpoint,
    query: Option<&str>,
) -> Option<Uri> {
    let made = target.provider.head.as_ref()?.request_target(endpoint);
    match (made, query) {
        (Some(made), None) => Some(made.clone()),
        _ => {
            Uri::try_from(target.provider.base.request_target(endpoint, &target.model, query)).ok()
        }
    }
}

/// Unwraps a part of a head. The routing document's checks ensure that there is one; if not, the
/// attempt fails.
pub(super) fn written<T>(made: Option<T>) -> Result<T> {
    made.ok_or_else(|| {
        Error::explain(ErrorType::InternalError, "a provider's head cannot be written")
    })
}

/// Turns a provider's answer head into ours: removes hop-by-hop headers, adds our headers, and
/// removes the length of an event stream.
pub(super) fn rewrite_answer(call: &InferenceCall, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    call.app.store.faults().pass(PanicPoint::Head);
    let mut parts = ResponseParts::from(std::mem::replace(
        head,
        ResponseHeader::build_no_case(head.status, Some(0))?,
    ));
    // The provider's version concerns only its connection (RFC 9110 section 2.5). A client of
    // HTTP/1.1 would close its connection after an answer of HTTP/1.0.
    parts.version = Version::HTTP_11;
    let headers = &mut parts.headers;
    settle_framing(headers)?;
    let target = call.target();
    if let Some(target) = &target {
        mask_headers(headers, &target.provider.known_by);
    }
    // Our request id replaces the provider's.
    let upstream_id =
        headers.get(&REQUEST_ID).cloned().or_else(|| headers.remove(&ANTHROPIC_REQUEST_ID));
    let mut gone = named_by_connection(headers);
    gone.extend(headers.keys().filter(|name| !is_passed_on(name.as_str())).cloned());
    for name in gone {
        headers.remove(name);
    }
    if let Some(plan) = &call.progress().translation {
        translate_head(plan, parts.status, headers)?;
    }
    headers.reserve(CALL_HEADERS + call.rates.len());
    if is_event_stream(headers) {
        // An error event may have to follow after the length that the provider announced.
        headers.remove(CONTENT_LENGTH);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(&BUFFERING, HeaderValue::from_static("no"));
    }
    let attempts = call.progress().attempts.len() + 1;
    name_call(call, attempts, target.as_deref(), headers);
    if let Some(id) = upstream_id {
        headers.insert(&UPSTREAM_REQUEST_ID, id);
    }
    *head = ResponseHeader::from(parts);
    Ok(())
}

fn translate_head(plan: &AnswerPlan, status: StatusCode, headers: &mut HeaderMap) -> Result<()> {
    if !is_plain(headers) {
        // We asked the provider for an answer without a content coding.
        return Err(fault(CUT, true));
    }
    headers.remove(CONTENT_LENGTH);
    if !(status.is_success() && is_event_stream(headers)) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(dropped) = plan.dropped_header(&[]) {
        headers.insert(&DROPPED, dropped);
    }
    Ok(())
}

/// Makes the framing unambiguous: `chunked` is the only transfer coding and is named once, and a
/// repeated length is written once. Pingora has already refused lengths that differ.
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
        let once = written(HeaderValue::from_bytes(first.trim_ascii()).ok())?;
        headers.insert(CONTENT_LENGTH, once);
    }
    Ok(())
}

/// The hop-by-hop headers that `Connection` names (RFC 9110 section 7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        // Pingora handles these three headers itself.
        .filter(|name| name != CONTENT_LENGTH && name != TRANSFER_ENCODING && name != CONNECTION)
        .collect();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_the_provider_s_connection_or_account_stays_behind() {
        for name in [
            "set-cookie",
            "alt-svc",
            "strict-transport-security",
            "te",
            "keep-alive",
            "proxy-connection",
            "proxy-authenticate",
            "proxy-authentication-info",
            "upgrade",
            "clear-site-data",
            "nel",
            "report-to",
            "timing-allow-origin",
            "openai-organization",
            "openai-project",
            "anthropic-organization-id",
            "x-rerouter-recipe",
            "access-control-allow-origin",
        ] {
            // Fails if the name is not in lower case, as header names are.
            assert_eq!(HeaderName::from_static(name).as_str(), name);
            assert!(!is_passed_on(name), "{name}");
        }
        for name in ["content-type", "date", "openai-version", "x-request-id", "retry-after"] {
            assert!(is_passed_on(name), "{name}");
        }
    }
}
