//! The data plane, top-down: body, decision, the call through Pingora's proxy, and what remains of it: the last
//! answer or an error event, the capture, the counters, the access line. A reroute takes the same steps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use pingora::apps::HttpServerApp;
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use serde_json::json;

use super::attempt::FORWARDED;
use super::call::Call;
use super::edge::{Edge, Ended, answer, refuse};
use super::exchange::Exchange;
use super::failure::Failure;
use super::record::{Outcome, Record};
use super::relay::{Answer, Mode};
use super::wrap::Wrap;
use super::{intake, reply};
use crate::app::{App, Live};
use crate::auth::Principal;
use crate::error::{Error, Kind, Result};
use crate::id::RequestId;
use crate::protocol::openai::{self, ChatRequest, Endpoint};
use crate::routing::decide::{Decision, decide};
use crate::routing::inputs::{Inputs, RequestFacts, Who};

/// A request of the data plane that has been read: what is decided on, and what is sent.
pub(super) struct Prompt {
    pub(super) endpoint: Endpoint,
    pub(super) body: Bytes,
    pub(super) request: ChatRequest,
    /// The client's headers.
    pub(super) headers: HeaderMap,
}

/// `POST /v1/chat/completions`.
pub(super) async fn run(
    edge: &Edge,
    mut session: Box<ServerSession>,
    exchange: &mut Exchange,
    principal: &Principal,
    shutdown: &ShutdownWatch,
) -> Ended {
    let app = &edge.app;
    let (prompt, waited) = match read(edge, &mut session).await {
        Ok(read) => read,
        Err((error, framed)) => return refuse(session, exchange, error, framed).await,
    };
    if let Err(error) = edge.still_good(exchange, &session, principal) {
        return refuse(session, exchange, error, true).await;
    }
    exchange.line.bytes_in = prompt.body.len() as u64;
    exchange.line.model = Some(prompt.request.model.clone());
    let live = app.live();
    let routing_began = Instant::now();
    let inputs = gather(app, &live, exchange, &prompt, principal);
    let decision =
        may_ask_for(principal, &inputs.request.name).and_then(|()| decide(&live.routing, &inputs).map(Arc::new).map_err(Error::from));
    let mut record = Record::begin(app, exchange, principal, &prompt);
    record.decided(inputs, decision.as_ref().ok().cloned(), routing_began.elapsed());
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => {
            exchange.refused(&error);
            let response = reply::error(exchange.surface, exchange.id.as_str(), &error);
            record.refused(app, exchange, &error, response.body().clone());
            return answer(session, exchange, response, true).await;
        }
    };
    let call = Arc::new(prepare(app, exchange.id.clone(), live, &decision, prompt, Mode::Relay));
    // The wait for the client's bytes is not ours.
    app.metrics.overhead(exchange.started.elapsed().saturating_sub(waited));
    let session = proxy(edge, Some(session), &call, shutdown).await;
    let outcome = Outcome::take(&call, record.prompt_tokens());
    let (ended, said) = match session {
        Some(session) => conclude(session, exchange, &call, &outcome).await,
        None => (Ended { session: None, status: 500, sent: 0, reusable: false }, Bytes::new()),
    };
    record.close(app, exchange, outcome, ended.status, said);
    ended
}

/// Reads and understands the body; gives also how long its bytes were awaited. With the error: whether the request is
/// still well framed.
async fn read(edge: &Edge, session: &mut ServerSession) -> Result<(Prompt, Duration), (Error, bool)> {
    let headers = session.req_header().headers.clone();
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err((Error::new(Kind::UnsupportedMediaType, "Compressed request bodies are not supported by this version."), true));
    }
    let limit = edge.app.server.limits.request_body;
    let began = Instant::now();
    let body = intake::read_body(session, limit, edge.pace()).await.map_err(|error| (error, false))?;
    let waited = began.elapsed();
    let endpoint = Endpoint::ChatCompletions;
    let request = openai::read_request(&body, endpoint).map_err(|error| (error, true))?;
    Ok((Prompt { endpoint, body, request, headers }, waited))
}

/// Whether the key's `limits.models` allow the name; if not, the answer is that of a name that does not exist.
pub(super) fn may_ask_for(principal: &Principal, model: &str) -> Result<()> {
    let allowed = principal.key().is_none_or(|key| key.limits.allows_model(model));
    if allowed { Ok(()) } else { Err(crate::routing::decide::Refusal::ModelNotFound { model: model.to_string() }.into()) }
}

/// Copies out everything that the decision may look at.
fn gather(app: &App, live: &Live, exchange: &Exchange, prompt: &Prompt, principal: &Principal) -> Inputs {
    let request = &prompt.request;
    let signals = app.server.routing.signal_headers.iter().filter_map(|name| {
        let value = prompt.headers.get(name)?.to_str().ok()?;
        Some((name.clone(), value.to_string()))
    });
    let mut needs = Vec::new();
    for (needed, name) in
        [(request.tools > 0, "tools"), (request.images > 0, "vision"), (request.json_output, "json"), (request.audio > 0, "audio")]
    {
        if needed {
            needs.push(name.to_string());
        }
    }
    let mut inputs = Inputs {
        version: Inputs::VERSION,
        at: exchange.at,
        request: RequestFacts {
            endpoint: prompt.endpoint.as_str().to_string(),
            model: request.model.clone(),
            name: request.model.clone(),
            agent: None,
            needs,
            prompt_tokens: app.bias.correct(&request.model, request.prompt_tokens),
            max_tokens: request.max_tokens,
            stream: request.stream,
            messages: request.messages,
            tools: request.tools,
            images: request.images,
            audio: request.audio,
            json_output: request.json_output,
            language: None,
            headers: signals.collect(),
        },
        keywords: Default::default(),
        principal: who(principal),
        seed: app.random.next_u64(),
        health: app.health.snapshot(&live.routing, exchange.at),
    };
    inputs.complete(&live.routing, || Some(openai::last_user_text(&prompt.body, request)));
    inputs
}

fn who(principal: &Principal) -> Who {
    let key = principal.key();
    Who {
        key: key.map(|key| key.id.to_string()),
        user: principal.user_id().map(|user| user.to_string()),
        labels: key.map(|key| key.labels.clone()).unwrap_or_default(),
        user_labels: match principal {
            Principal::User { user, .. } => user.labels.clone(),
            _ => Default::default(),
        },
        models: key.and_then(|key| key.limits.models.clone()),
    }
}

/// Makes the call that Pingora's hooks walk.
pub(super) fn prepare(app: &App, id: RequestId, live: Arc<Live>, decision: &Arc<Decision>, prompt: Prompt, mode: Mode) -> Call {
    app.metrics.decision(&decision.recipe, decision.rule.as_deref().unwrap_or(""), &decision.provider, &decision.model);
    let retry = live.routing.retry_of(decision);
    let recipe = live.routing.recipe(&decision.recipe).filter(|_| mode == Mode::Relay && retry.budget_percent.is_some());
    let budget = recipe.map(|recipe| recipe.budget().clone());
    if let Some(budget) = &budget {
        budget.request(app.clock.now());
    }
    let mut targets = live.routing.targets_of(decision);
    targets.truncate(retry.attempts.max(1));
    let forward = FORWARDED.iter().flat_map(|name| prompt.headers.get_all(name).iter().map(move |value| (name.clone(), value.clone())));
    Call {
        id,
        mode,
        targets,
        retry,
        budget,
        clock: app.clock.clone(),
        endpoint_path: prompt.endpoint.path(),
        forward: forward.collect(),
        decision: decision.clone(),
        capture_limit: app.server.capture.max_body,
        body: prompt.body,
        model: prompt.request.model_span,
        live,
        coming: app.captures.coming().clone(),
        state: Default::default(),
        home: Default::default(),
    }
}

/// Through Pingora's proxy and back: upstream selection, failover, relaying. The session comes home with the wrap's end.
pub(super) async fn proxy(
    edge: &Edge,
    session: Option<Box<ServerSession>>,
    call: &Arc<Call>,
    shutdown: &ShutdownWatch,
) -> Option<Box<ServerSession>> {
    let head = RequestHeader::build_no_case("POST", b"/", Some(0)).ok()?;
    let wrap = match session {
        Some(session) => Wrap::around(session, head, call.clone()),
        None => Wrap::memory(head, call.clone()),
    };
    // For a session of ours it always gives `None`; the connection is the edge's to keep.
    let _ = edge.proxy.process_new_http(ServerSession::new_custom(Box::new(wrap)), shutdown).await;
    call.take_home()
}

/// Writes what is left to write once the proxy is done, and gives what it wrote beside the provider's answer.
async fn conclude(mut session: Box<ServerSession>, exchange: &mut Exchange, call: &Call, outcome: &Outcome) -> (Ended, Bytes) {
    let status = outcome.status.unwrap_or(502);
    if outcome.complete {
        let sent = session.body_bytes_sent();
        return (Ended { session: Some(session), status, sent, reusable: true }, Bytes::new());
    }
    if outcome.failure == Some(Failure::ClientGone) {
        return (Ended { session: Some(session), status: 499, sent: 0, reusable: false }, Bytes::new());
    }
    call.ends();
    if outcome.committed {
        // Too late for another status: a stream says what happened and ends properly, any other answer is cut, so
        // that nobody takes it for whole.
        let event = if outcome.stream { error_event(outcome.between_events) } else { Bytes::new() };
        let reusable = outcome.stream && session.write_response_body(event.clone(), true).await.is_ok();
        let sent = session.body_bytes_sent();
        return (Ended { session: Some(session), status, sent, reusable }, event);
    }
    let mut response = match &outcome.answer {
        Some(last) => pass_on(last),
        None => {
            let error = provider_failed(outcome);
            exchange.refused(&error);
            reply::error(exchange.surface, exchange.id.as_str(), &error)
        }
    };
    if !response.headers().contains_key(RETRY_AFTER) || outcome.answer.is_some() {
        // We have tried what there is; unless it was nobody, and we say ourselves when to come back.
        response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    }
    reply::name_call(call, false, response.headers_mut());
    let said = if outcome.answer.is_some() { Bytes::new() } else { response.body().clone() };
    (answer(session, exchange, response, true).await, said)
}

/// The last provider's answer when no better one is to be had: its status, its words.
fn pass_on(last: &Answer) -> Response<Bytes> {
    let mut response = Response::new(last.body.clone());
    *response.status_mut() = StatusCode::from_u16(last.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = last.headers.clone();
    response.headers_mut().remove(TRANSFER_ENCODING);
    response.headers_mut().remove(CONTENT_LENGTH);
    response.headers_mut().remove("connection");
    response
}

/// For when no provider gave an answer that could be passed on: 502, or, where none was even asked, what a decision made
/// a moment later would have said.
pub(super) fn provider_failed(outcome: &Outcome) -> Error {
    let words = || outcome.attempts.iter().map(|attempt| attempt.error.as_deref().unwrap_or("no answer"));
    let asked = words().any(|word| !Failure::BARRED.iter().any(|barred| barred.as_str() == word));
    let tried = outcome.attempts.iter().zip(words()).map(|(attempt, word)| format!("{}/{}: {word}", attempt.provider, attempt.model));
    let tried = tried.collect::<Vec<_>>().join(", ");
    if asked || outcome.attempts.is_empty() {
        return Error::new(Kind::ProviderFailed, format!("No provider answered ({tried})."));
    }
    let broken = words().any(|word| word == Failure::BreakerOpen.as_str());
    let kind = if broken { Kind::NoTarget } else { Kind::RateLimited };
    Error::new(kind, format!("No target can take the request now ({tried}).")).retry_after(Duration::from_secs(1))
}

/// What a client reads instead of the rest of a stream that broke off; no `[DONE]` follows.
fn error_event(between_events: bool) -> Bytes {
    let error = Error::new(Kind::ProviderFailed, "The provider's stream broke off.");
    let event = json!({"error": reply::openai_error(&error)});
    let start = if between_events { "" } else { "\n\n" };
    Bytes::from(format!("{start}data: {event}\n\n"))
}
